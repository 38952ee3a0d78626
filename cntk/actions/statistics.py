"""The action bnstat: running statistics of batch normalization computed again.

Source: CNTK's `SGDLib/PostComputingActions.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import RunError
from ...framework.base.files.atomic import make_folder_of
from ..config.parameters import ConfigParameters
from ..models.v1 import write_model
from ..network.nodes.node import Node
from ..parallel.options import ParallelOptions
from ..parallel.ranks import Ranks
from ..readers.base.minibatches import minibatches
from ..readers.base.pack import Minibatch
from ..run.runtime import CntkNet
from ..run.tracing import names_of, trace
from ..sgd.evaluate import evaluation_nodes
from ..sgd.measure import sub_minibatch
from ..sgd.schedules import set_attribute
from .common import Run, build_or_load, minibatch_size, net_of, reader_of


@dataclass(frozen=True)
class StatisticsOptions:
    """The settings of bnstat.

    Attributes:
        path: of the new model.
        rounds: minibatches for each node.
        size: of a minibatch, in samples.
        names: of the nodes below which batch normalization is looked for.
        traced: nodes whose values are shown, and how.
        distributed: whether each of several processes reads its own part of the data; else they cut
            minibatches.
    """

    path: Path
    rounds: int
    size: int
    names: list[str]
    traced: dict[str, str]
    distributed: bool

    @classmethod
    def of(cls, section: ConfigParameters) -> StatisticsOptions:
        """The settings of a section.

        Raises:
            FormatError: a value is wrong.
        """
        model = section.string("modelPath", "")
        return cls(
            Path(section.string("newModelPath", "") or f"{model}.PBN"),
            section.int("itersPerNode", 30),
            minibatch_size(section, 40960),
            section.array("evalNodeNames", "").strings(),
            names_of(section),
            section.bool("enableDistributedMBReading", False),
        )


def batch_norm_statistics(run: Run, section: ConfigParameters) -> None:
    """Average the statistics of each node of batch normalization over `itersPerNode` minibatches,
    from the lowest node to the highest, and save the model as `newModelPath`.

    Each of several ranks does so over its part of the data, and they take the mean of what they
    have: of the means, and of the variances, as CNTK does.

    Raises:
        RunError: there are too few data.
    """
    options = StatisticsOptions.of(section)
    path, rounds, size = options.path, options.rounds, options.size
    network = build_or_load(run, section)
    roots = evaluation_nodes(network, options.names)
    below = set(network.below(roots))
    nodes = [n for n in network.order if n in below and n.operation == "BatchNormalization"]
    net = net_of(section, network, run)
    trace(net, options.traced, run.say)
    for node in nodes:
        _set(net, node, -1.0, 0.0)  # an average of all samples
        set_attribute(net, node, "samplesSeen", 0)
    ranks = _ranks(run, options)
    with reader_of(section) as reader:
        divided = ranks is None or ranks.divide(reader, True)
        coming = minibatches(reader, size, 0, len(nodes) * size * rounds)
        for node in nodes:
            run.say(f"Estimating Statistics --> {node.name}\n")
            some = _average(net, node, coming, rounds, None if divided else ranks)
            _set(net, node, math.inf, math.inf)
            if ranks is not None:
                _join(ranks, net, node, some)
    net.store()
    if run.is_main:
        make_folder_of(path)
        write_model(network, path)


def _ranks(run: Run, options: StatisticsOptions) -> Ranks | None:
    if run.communicator is None or run.communicator.size == 1:
        return None
    return Ranks(run.communicator, ParallelOptions(distributed=options.distributed), 0)


def _set(net: CntkNet, node: Node, time: float, blend: float) -> None:
    set_attribute(net, node, "normalizationTimeConstant", time)
    set_attribute(net, node, "blendTimeConstant", blend)


def _average(
    net: CntkNet, node: Node, coming: Iterator[Minibatch], rounds: int, ranks: Ranks | None
) -> bool:
    """Average a node's statistics; False where no sample came. `ranks`: those that cut."""
    bound = net.bound_net([node])
    some = False
    for _ in range(rounds):
        minibatch = next(coming, None)
        if minibatch is None:
            raise RunError("bnstat: the reader gives too few minibatches")
        if ranks is not None and minibatch:
            minibatch = sub_minibatch(minibatch, ranks.rank, ranks.count)
        if minibatch or ranks is None:
            bound.run(minibatch, OpContext(train=True, seed=0))
            some = True
    return some


def _join(ranks: Ranks, net: CntkNet, node: Node, some: bool) -> None:
    """The mean of the statistics of all ranks that had samples."""
    ranks.communicator.operator = f"the statistics of {node.name}"
    for statistic in node.inputs[3:5]:
        assert statistic is not None
        own = net.scope.numpy(statistic.name)
        sums = np.append(own.reshape(-1) if some else np.zeros(own.size), float(some))
        ranks.communicator.all_reduce(sums)
        if not sums[-1]:
            raise RunError(f"bnstat: no samples came to {node.name}")
        net.scope.var(statistic.name).set(
            (sums[:-1] / sums[-1]).reshape(own.shape), dtype=own.dtype
        )
