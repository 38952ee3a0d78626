"""Samples and columns of a minibatch as CNTK counts them, and the criteria of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...framework.base.communicator import Communicator
from ...framework.base.errors import ShapeError
from ..network.network import Network
from ..network.nodes.analysis import depth_first
from ..network.nodes.node import DEFAULT_AXIS, Node
from ..parallel.gathered import accumulated
from ..readers.base.layout import Layout
from ..readers.base.pack import Minibatch
from ..run.runtime import BoundNet, CntkNet
from .report import Total


def samples_of(network: Network, minibatch: Minibatch) -> int:
    """Samples of the inputs with the default dynamic axis, gaps not counted; of the largest input
    if none has it."""
    counts = [
        layout.samples
        for name, layout in minibatch.layouts.items()
        if name in network and _axis(network.find(name)) == DEFAULT_AXIS
    ]
    return max(counts, default=minibatch.samples)


def columns_of(network: Network, minibatch: Minibatch) -> int:
    """Columns of the largest feature input, gaps counted."""
    names = {node.name.lower() for node in network.groups["feature"]}
    counts = [layout.columns for name, layout in minibatch.layouts.items() if name.lower() in names]
    return max(counts, default=minibatch.columns)


def accumulating(node: Node) -> bool:
    """Whether a node's value covers the whole epoch so far."""
    return any(child.operation == "EpochAccumulator" for child in depth_first([node]))


def reset_accumulators(net: CntkNet) -> None:
    """Begin an epoch: accumulators start from zero."""
    for node in net.network.nodes.values():
        if node.operation == "EpochAccumulator":
            for part in ("MEAN", "COUNT"):
                statistic = net.scope.find(f"{node.name}@{part}")
                if statistic is not None:
                    statistic.set(np.zeros_like(statistic.numpy()))


def with_accumulated(
    communicator: Communicator, net: CntkNet, nodes: Sequence[Node], totals: Sequence[Total]
) -> list[Total]:
    """Totals in which nodes that gather over an epoch have gathered over all ranks."""
    gathering = [node for node in nodes if accumulating(node)]
    values = dict(zip(gathering, accumulated(communicator, net, gathering), strict=True))
    return [
        Total(values[node], 1) if node in values else total
        for node, total in zip(nodes, totals, strict=True)
    ]


def _axis(node: Node) -> str:
    return node.axis.name if node.axis is not None else ""


def measured(bound: BoundNet, nodes: Sequence[Node], samples: int) -> Iterator[tuple[float, int]]:
    """Sum and samples of each node: `samples` for one that is a number, else its own rows."""
    for node in nodes:
        value = bound.value(node)
        count = samples if node.axis is None else len(value.data)
        yield float(value.data.sum()) if samples else 0.0, count


def sub_minibatches(minibatch: Minibatch, count: int) -> list[Minibatch]:
    """A minibatch cut into at most `count` by the parallel sequences of its largest stream; parts
    without a sequence are left out.

    Raises:
        ShapeError: another stream has not as many sequences.
    """
    count = min(count, _main(minibatch).parallel)
    if count <= 1:
        return [minibatch]
    parts = (sub_minibatch(minibatch, number, count) for number in range(count))
    return [part for part in parts if part]


def sub_minibatch(minibatch: Minibatch, number: int, count: int) -> Minibatch:
    """One of `count` parts of a minibatch, as `sub_minibatches`; empty where no sequence is in it.

    Raises:
        ShapeError: another stream has not as many sequences.
    """
    main = _main(minibatch)
    for name, layout in minibatch.layouts.items():
        if len(layout.slot) != len(main.slot):
            raise ShapeError(
                f"{name} has {len(layout.slot)} sequences, another stream {len(main.slot)}: such a "
                "minibatch cannot be computed in parts (numSubminibatches, maxSamplesInRAM, "
                "ParallelTrain without distributedMBReading)"
            )
    first, last = (main.parallel * n // count for n in (number, number + 1))
    chosen = np.flatnonzero((main.slot >= first) & (main.slot < last))
    if not len(chosen):
        return Minibatch(end_of_epoch=minibatch.end_of_epoch)
    return _part(minibatch, main, chosen, first, last)


def _main(minibatch: Minibatch) -> Layout:
    return max(minibatch.layouts.values(), key=lambda layout: layout.columns)


def _part(
    minibatch: Minibatch, main: Layout, chosen: np.ndarray, first: int, last: int
) -> Minibatch:
    """The chosen sequences, which lie in the slots `first` to `last` of the main layout."""
    layouts_of: dict[int, Layout] = {}
    for layout in minibatch.layouts.values():
        slots = last - first
        slot = layout.slot[chosen] - first
        start = first
        if layout.parallel != main.parallel or not np.array_equal(layout.slot, main.slot):
            used, slot = np.unique(layout.slot[chosen], return_inverse=True)
            slots = len(used)
            start = 0
        begin, end = layout.begin[chosen], layout.end[chosen]
        layouts_of[id(layout)] = Layout(slots, layout.steps, slot, begin, end, start)
    streams = {name: stream.take(chosen) for name, stream in minibatch.streams.items()}
    layouts = {name: layouts_of[id(layout)] for name, layout in minibatch.layouts.items()}
    sequences, lattices = minibatch.sequences, minibatch.lattices
    if len(sequences) == len(main.slot):
        sequences = sequences[chosen]
    if lattices is not None:
        lattices = lattices.take(chosen)
    return Minibatch(streams, layouts, sequences, minibatch.end_of_epoch, lattices)


def sub_minibatch_count(size: int, given: int, most: int | None, parallel: int) -> int:
    """Into how many parts a minibatch of `size` samples is cut: `given`, or so that none has more
    than `most` samples."""
    if given > 1 or most is None:
        return given
    return max(-(-size * parallel // max(most, 1)), 1)
