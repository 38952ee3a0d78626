"""Statistics of the whole data before training: Mean, InvStdDev, and priors of labels.

Source: CNTK's `ComputationNetworkLib/PreComputeNodes.h`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import RunError
from ..network.network import Network
from ..network.nodes.node import Node
from ..readers.base.minibatches import minibatches
from ..readers.base.reader import DataReader
from ..run.runtime import CntkNet
from .report import Say

_LEAST_VARIANCE = 1e-10


class _Moments:
    """Mean and variance of the rows seen so far."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: np.ndarray | float = 0.0
        self.squares: np.ndarray | float = 0.0  # sum of squared distances from the mean

    def add(self, rows: np.ndarray) -> None:
        if not len(rows):
            return
        rows = rows.astype(np.float64)
        mean = rows.mean(0)
        total = self.count + len(rows)
        shift = mean - self.mean
        self.squares = (
            self.squares + ((rows - mean) ** 2).sum(0) + shift**2 * (self.count * len(rows) / total)
        )
        self.mean = self.mean + shift * (len(rows) / total)
        self.count = total

    def inverse_deviation(self) -> np.ndarray:
        return 1 / np.sqrt(np.maximum(self.squares / self.count, _LEAST_VARIANCE))


def uncomputed(network: Network) -> list[Node]:
    """Statistics that are still to be computed, in the order of evaluation."""
    return [
        node
        for node in network.order
        if node.kind.precompute and not node.attributes.get("hasComputed")
    ]


def precompute(
    net: CntkNet, reader: DataReader, size: int, epoch_size: int | None, say: Say, trace: int = 0
) -> bool:
    """Compute the statistics of a network that are not there yet; False if there are none.

    Raises:
        RunError: the reader gives no data.
    """
    nodes = uncomputed(net.network)
    if not nodes:
        if trace > 0:
            say(
                "No PreCompute nodes found, or all already computed. Skipping pre-computation "
                "step.\n"
            )
        return False
    say(f"\nPrecomputing --> {len(nodes)} PreCompute nodes found.\n\n")
    if trace > 0:
        for node in nodes:
            say(f"\t{node.name} = {node.operation}()\n")
    sources = list(dict.fromkeys(node.inputs[0] for node in nodes))
    moments = {source: _Moments() for source in sources}
    bound = net.bound_net(sources)
    for minibatch in minibatches(reader, size, 0, epoch_size):
        bound.run(minibatch)
        for source, moment in moments.items():
            moment.add(bound.value(source).data)
    for node in nodes:
        moment = moments[node.inputs[0]]
        if not moment.count:
            raise RunError(f"{node.name}: No data accumulated during precomputation.")
        value = moment.mean if node.operation == "Mean" else moment.inverse_deviation()
        net.set(node.name, np.asarray(value).transpose())
        node.attributes["hasComputed"] = True
    net.store()
    say("\nPrecomputing --> Completed.\n\n")
    return True
