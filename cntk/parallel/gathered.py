"""What ranks have gathered by themselves over an epoch, brought together at its end.

Source: CNTK's `SGDLib/AccumulatorAggregation.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...framework.base.communicator import Communicator
from ...framework.base.context import OpContext
from ...framework.base.scope import Variable
from ...framework.ir.op_list import OpList
from ...framework.passes.prune import prune
from ...framework.runtime.plain_net import PlainNet
from ..lower import lower
from ..network.nodes.node import Node
from ..run.runtime import CntkNet

_MEAN = "cntk.epoch_mean"


def accumulated(communicator: Communicator, net: CntkNet, nodes: Sequence[Node]) -> list[float]:
    """The values of nodes above `EpochAccumulator` nodes, whose means then cover the samples of all
    ranks. What else the nodes need is as in this rank's last minibatch.
    """
    lowered = lower(net.network, list(nodes), net.dtype)
    for name, (shape, dtype, value) in lowered.states.items():
        if net.scope.find(name) is None:  # no samples came to this rank
            net.scope.var(name).set(np.full(shape, value, dtype))
    communicator.operator = "the means of an epoch"
    for node in net.network.order:
        if node.operation == "EpochAccumulator" and f"{node.name}@MEAN" in lowered.states:
            mean, count = (net.scope.var(f"{node.name}@{part}") for part in ("MEAN", "COUNT"))
            _join(communicator, mean, count)
    names = [lowered.values[node] for node in nodes]
    above = _above(lowered.op_list, names)
    if above.ops:
        PlainNet(above, check=False).run(
            net.scope, OpContext(train=False, live_out=frozenset(names))
        )
    return [float(net.scope.numpy(name).sum()) for name in names]


def _join(communicator: Communicator, mean: Variable, count: Variable) -> None:
    """Mean and count of all ranks' samples, from each rank's mean and count."""
    own, samples = mean.numpy().copy(), count.numpy().copy()
    sums = np.concatenate([own.astype(np.float64).reshape(-1) * samples, samples])
    communicator.all_reduce(sums)
    mean.set((sums[:-1] / max(sums[-1], 1)).reshape(own.shape).astype(own.dtype))
    count.set(sums[-1:].copy())


def _above(net: OpList, names: Sequence[str]) -> OpList:
    """The operators between the means of accumulators and some variables."""
    above = net.copy()
    above.ops = [op for op in net.ops if op.type != _MEAN]
    return prune(above, names)


def take_main_statistics(communicator: Communicator, net: CntkNet) -> None:
    """Let all ranks have the running statistics of the main one: those that are saved."""
    communicator.operator = "the statistics of batch normalization"
    for node in net.network.order:
        if node.operation != "BatchNormalization":
            continue
        statistics = [child.name for child in node.inputs[3:] if child is not None]
        for name in [*statistics, f"{node.name}@SEEN"]:
            if net.scope.find(name) is not None:
                value = net.scope.numpy(name).copy()
                communicator.broadcast(value)
                net.scope.var(name).set(value)
