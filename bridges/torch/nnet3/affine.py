"""Affine components: convolutions over time where they read rows of equal distances."""

from __future__ import annotations

from dataclasses import dataclass

from ....nnet3.language.descriptor import SimpleSumDescriptor
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.net import Value
from ...nnet3_rows.reading import Rows
from ...nnet3_rows.reads import Read
from ...nnet3_rows.walk import SPLICED, RowsWalk


@dataclass(frozen=True)
class Window:
    """How an affine component reads: rows of one source, by a convolution where taps are many.

    Attributes:
        shape: taps, stride, dilation.
    """

    source: Value
    shape: tuple[int, int, int]


class Windows:
    """Which affine components of a network are convolutions over time.

    A component that several nodes use has one module, so these must read alike.
    """

    def __init__(self, w: RowsWalk) -> None:
        self.w, self.topology, self.plan = w, w.topology, w.plan
        self._shapes: dict[str, tuple[int, int, int] | None] = {}
        self._still: dict[int, bool] = {}
        for number in reversed(self.plan.grids):  # sources first: `_is_still` knows them then
            node = self.topology.nodes[number]
            if node.kind != "component" or node.component.type not in SPLICED:
                continue
            shape = None if number in self.plan.loops else self._shape(number)
            same = self._shapes.get(node.component_name, shape) == shape
            self._shapes[node.component_name] = shape if same else None

    def of(self, number: int) -> Window | None:
        """What a component's convolution reads; None: its input is put together before."""
        shape = self._shapes[self.topology.nodes[number].component_name]
        taps = self._taps(number)
        if shape is None or taps is None or shape[0] != len(taps[1]):
            return None
        source, moves = taps
        rows, grid, reader = self.w.rows[source], self.plan.grids[number], self.w.reader
        if shape[0] == 1:
            return Window(reader.at(rows, grid, Read(-1, 1.0, (moves[0],))), shape)
        return Window(reader.window(rows, grid, moves[0], moves[-1]), shape)

    def _taps(self, number: int) -> tuple[int, list[int]] | None:
        """The node whose rows at some offsets an affine component reads side by side."""
        node = self.topology.nodes[number]
        offsets = list(getattr(node.component, "time_offsets", [0]))
        reads: list[Read] = []
        for part in self.topology.nodes[number - 1].expression().parts:
            if not isinstance(part, SimpleSumDescriptor):
                return None
            listed = self.plan.reads(part.src)
            if len(listed) != 1 or listed[0].scale != 1 or listed[0].offset is None:
                return None
            reads += listed
        if len({read.node for read in reads}) != 1:
            return None
        if len(reads) > 1 and len(offsets) > 1:
            return None
        moves = [offset + (read.offset or 0) for offset in offsets for read in reads]
        return reads[0].node, moves

    def _shape(self, number: int) -> tuple[int, int, int] | None:
        """Taps, stride and dilation of a convolution, where the offsets have equal distances."""
        found, grid = self._taps(number), self.plan.grids[number]
        if found is None or self._is_still(found[0]):
            return None
        source, moves = found
        have = self._grid_of(source)
        steps = {b - a for a, b in zip(moves[:-1], moves[1:], strict=True)}
        distance = min(steps) if steps else have.step
        if len(steps) > 1 or distance <= 0 or distance % have.step or grid.step % have.step:
            return None
        if not have.moving or not grid.moving:
            return None
        if have.before(grid, moves[0]) is None or have.behind(grid, moves[-1]) is None:
            return None
        stride, taps = grid.step // have.step, len(moves)
        if taps == 1:  # every n-th row is a slice; the kernel has nothing to stride over
            stride = 1
        return taps, stride, distance // have.step if taps > 1 else 1

    def _is_still(self, number: int) -> bool:
        """Whether a node may have one row for all times; affine components know it beforehand."""
        if number not in self._still:
            self._still[number] = self._leads_to_still(number)
        return self._still[number]

    def _leads_to_still(self, number: int) -> bool:
        waiting, seen = [number], set()
        while waiting:
            number = waiting.pop()
            node = self.topology.nodes[number]
            if number in seen:
                continue
            seen.add(number)
            if number in self._still:
                if not self._still[number]:
                    return False
                continue
            if node.kind == "dim-range":
                waiting.append(node.source)
                continue
            if self.plan.reach[number].still:
                continue
            if node.kind != "component" or number in self.plan.loops:
                return False
            if node.reads.offsets == ():
                continue
            for part in self.topology.nodes[number - 1].expression().parts:
                if isinstance(part, SimpleSumDescriptor):
                    read = self.plan.reads(part.src)[0]
                    waiting += [read.node] if read.at is None else []
        return True

    def _grid_of(self, number: int) -> Grid:
        while number not in self.w.rows and self.topology.nodes[number].kind == "dim-range":
            number = self.topology.nodes[number].source
        return self.w.rows[number].grid if number in self.w.rows else self.plan.grids[number]


def affine_input(w: RowsWalk, number: int, grid: Grid) -> Value:
    """The input of an affine component put together, for the rows of its output."""
    node, net = w.topology.nodes[number], w.net
    offsets = list(getattr(node.component, "time_offsets", [0]))
    inside = grid if offsets == [0] else w.plan.grids[number - 1]
    whole = net.plain(w.descriptor(number - 1, inside, node.name))
    if offsets == [0]:
        return whole
    if whole.still:
        return net.join([whole] * len(offsets), node.name)
    rows = Rows(whole, inside, f"{node.name}_input")
    read = [w.reader.at(rows, grid, Read(-1, 1.0, (offset,))) for offset in offsets]
    return net.join(read, node.name)
