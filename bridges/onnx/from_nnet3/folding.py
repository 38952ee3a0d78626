"""Scales behind a ReLU, moved in front of it: s max(a, 0) = max(s a, 0) for s > 0, exactly.

Batch normalisation behind `relu(W x + b)` then costs nothing: its scales go into W and b, its
offsets into the biases of what reads it.
"""

from __future__ import annotations

import numpy as np

from ....nnet3.graph.topology import Topology
from .emit import Value
from .rowwise import AFFINE, diagonal

_AFFINE = (*AFFINE, "TdnnComponent")


class Folding:
    """Which scales move into affine components.

    Args:
        topology: of the network.
        needed: the nodes that are written.
    """

    def __init__(self, topology: Topology, needed: set[int]) -> None:
        self._scales: dict[int, np.ndarray] = {}
        self._without: dict[int, np.ndarray] = {}
        for number, node in enumerate(topology.nodes):
            if node.kind != "component" or node.component.type not in _AFFINE:
                continue
            relu = _only_reader(topology, number, needed)
            if relu is None or topology.nodes[relu].component.type != "RectifiedLinearComponent":
                continue
            behind = _only_reader(topology, relu, needed)
            found = None if behind is None else diagonal(topology.nodes[behind].component)
            if behind is not None and found is not None and (found[0] > 0).all():
                self._scales[number] = found[0]
                self._without[behind] = found[0]

    def scale_of(self, number: int) -> np.ndarray | None:
        """Factors for the columns of an affine component."""
        return self._scales.get(number)

    def after(self, number: int, value: Value) -> Value:
        """The value of a component whose scales are applied already, without them."""
        scale = self._without.get(number)
        if scale is None or value.scale is None:
            return value
        return Value(value.name, value.dim, value.still, None, value.offset)


def _only_reader(topology: Topology, number: int, needed: set[int]) -> int | None:
    """The component that alone reads a node, all its columns at the same time and unscaled."""
    readers = [reader for reader in topology.readers_of[number] if reader in needed]
    if len(readers) != 1 or topology.in_loop[number] or topology.in_loop[readers[0]]:
        return None
    reader = topology.nodes[readers[0]]
    if reader.kind != "descriptor" or reader.is_output:
        return None
    return readers[0] + 1 if str(reader.expression()) == topology.nodes[number].name else None
