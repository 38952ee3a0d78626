"""Scales and offsets after a ReLU, moved in front of it.

For s > 0 is s max(a, 0) + o = max(s a + o, o), exactly. So batch normalization after
`relu(W x + b)` costs nothing: its scales go into W and b, its offsets into the biases of what reads
it, or into b and a `Max` that stands for the ReLU.

Layers with a bypass, x' = c x + y, keep x / c and x' / c^2 and so on, whose sums need no product;
the scales go into the weights that read these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....nnet3.graph.topology import Topology
from ....nnet3.language.descriptor import BinarySumDescriptor, SimpleSumDescriptor
from ...nnet3_rows.affine import diagonal
from ...nnet3_rows.net import Value
from ...nnet3_rows.walk import SPLICED

_LEAST = 1e-6
"""Bypasses whose product is smaller begin anew, so that nothing overflows."""


class Folding:
    """Which scales and offsets move into affine components.

    Args:
        topology: of the network.
        needed: the nodes that are written.
    """

    def __init__(self, topology: Topology, needed: set[int]) -> None:
        self._topology = topology
        self._needed = needed
        self._scales: dict[int, np.ndarray] = {}
        self._floors: dict[int, np.ndarray] = {}
        self._shifts: dict[int, np.ndarray] = {}
        self._shifted: set[int] = set()
        self._left: dict[int, float] = {}
        self._put_off: dict[int, float] = {}
        for number, node in enumerate(topology.nodes):
            if node.kind == "component" and node.component.type in SPLICED:
                self._fold(number)

    def _fold(self, number: int) -> None:
        nodes = self._topology.nodes
        relu = self.only_reader(number)
        if relu is None or nodes[relu].component.type != "RectifiedLinearComponent":
            return
        norm = self.only_reader(relu)
        transform = None if norm is None else diagonal(nodes[norm].component)
        if norm is None or transform is None or not (transform[0] > 0).all():
            return
        last = self._copy_of(norm)
        scale = self._bypass(last)
        self._scales[number] = transform[0] / scale
        self._left[norm] = scale
        reader = self.only_reader(last)
        if transform[1].any() and (reader is None or nodes[reader].component.type not in SPLICED):
            self._floors[relu] = self._shifts[number] = transform[1] / scale
            self._shifted.add(norm)

    def _copy_of(self, number: int) -> int:
        """The last of the components that do nothing after a node."""
        while (reader := self.only_reader(number)) is not None:
            transform = diagonal(self._topology.nodes[reader].component)
            if transform is None or (transform[0] != 1).any() or transform[1].any():
                break
            number = reader
        return number

    def _bypass(self, number: int) -> float:
        """The scale of the sum of a node with another one scaled; 1 where there is none."""
        readers = [each for each in self._topology.readers_of[number] if each in self._needed]
        if len(readers) != 1 or self._topology.in_loop[readers[0]]:
            return 1.0
        node = self._topology.nodes[readers[0]]
        after = readers[0] + 1
        if node.kind != "descriptor" or node.is_output or len(node.expression().parts) != 1:
            return 1.0
        transform = diagonal(self._topology.nodes[after].component)
        (part,) = node.expression().parts
        plain = transform is not None and (transform[0] == 1).all() and not transform[1].any()
        if not plain or not isinstance(part, BinarySumDescriptor) or part.op != "Sum":
            return 1.0
        name = self._topology.nodes[number].name
        for one, other in ((part.a, part.b), (part.b, part.a)):
            if str(one) == name and isinstance(other, SimpleSumDescriptor):
                if len(scales := other.scales()) != 1:
                    continue
                ((source, factor),) = scales.items()
                scale = self._put_off.get(self._topology.index[source], 1.0) * factor
                if _LEAST < scale < 1 / _LEAST:
                    self._put_off[after] = scale
                    return scale
        return 1.0

    def only_reader(self, number: int) -> int | None:
        """The component that alone reads a node, all its columns at the same time and unscaled."""
        return _only_reader(self._topology, number, self._needed)

    def scale_of(self, number: int) -> np.ndarray | None:
        """Factors for the columns of an affine component."""
        return self._scales.get(number)

    def shift_of(self, number: int) -> np.ndarray | None:
        """What is added to the scaled columns of an affine component."""
        return self._shifts.get(number)

    def floor_of(self, number: int) -> np.ndarray | None:
        """The least values of a ReLU's columns, where these are not 0."""
        return self._floors.get(number)

    def puts_off(self, number: int) -> bool:
        """Whether the scale of a node is left to those who read it."""
        return number in self._put_off

    def after(self, number: int, value: Value) -> Value:
        """The value of a component whose scales are applied already, without them."""
        left = self._left.get(number)
        if left is None:
            return value
        scale = None if left == 1 else np.full(value.dim, left)
        offset = None if number in self._shifted else value.offset
        return replace(value, scale=scale, offset=offset)


def _only_reader(topology: Topology, number: int, needed: set[int]) -> int | None:
    """The component that alone reads a node, all its columns at the same time and unscaled."""
    readers = [reader for reader in topology.readers_of[number] if reader in needed]
    if len(readers) != 1 or topology.in_loop[number] or topology.in_loop[readers[0]]:
        return None
    reader = topology.nodes[readers[0]]
    if reader.kind != "descriptor" or reader.is_output:
        return None
    return readers[0] + 1 if str(reader.expression()) == topology.nodes[number].name else None
