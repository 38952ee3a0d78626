"""Affine components: convolutions over time where they read rows of equal distances."""

from __future__ import annotations

from itertools import pairwise

from ....nnet3.language.descriptor import SimpleSumDescriptor
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.net import Value
from ...nnet3_rows.reading import Rows
from ...nnet3_rows.reads import Read
from ...nnet3_rows.walk import RowsWalk

Shape = tuple[int, int, int]
"""Taps, stride and dilation."""


def window_of(w: RowsWalk, number: int, grid: Grid) -> tuple[Value, Shape] | None:
    """What an affine component's convolution reads; None: its input is put together before.

    It is a convolution where it reads rows of one node, at offsets of equal distances. A component
    that several nodes use has one module, for which these put their inputs together.
    """
    nodes = w.topology.nodes
    taps = _taps(w, number)
    name = nodes[number].component_name
    users = [each for each in w.plan.grids if nodes[each].kind == "component"]
    if taps is None or [nodes[each].component_name for each in users].count(name) > 1:
        return None
    rows = w.rows[taps[0]]
    moves = taps[1]
    if len(moves) == 1 or rows.value.still or not (rows.grid.moving and grid.moving):
        return None
    have = rows.grid
    steps = {b - a for a, b in pairwise(moves)}
    distance = min(steps)
    if len(steps) > 1 or distance <= 0 or distance % have.step or grid.step % have.step:
        return None
    if have.before(grid, moves[0]) is None or have.after(grid, moves[-1]) is None:
        return None
    shape = len(moves), grid.step // have.step, distance // have.step
    return w.reader.window(rows, grid, moves[0], moves[-1]), shape


def _taps(w: RowsWalk, number: int) -> tuple[int, list[int]] | None:
    """The node whose rows at some offsets an affine component reads side by side."""
    offsets = list(getattr(w.topology.nodes[number].component, "time_offsets", [0]))
    reads: list[Read] = []
    for part in w.topology.nodes[number - 1].expression().parts:
        if not isinstance(part, SimpleSumDescriptor):
            return None
        listed = w.plan.reads(part.src)
        if len(listed) != 1 or listed[0].scale != 1 or listed[0].offset is None:
            return None
        reads += listed
    if len({read.node for read in reads}) != 1 or (len(reads) > 1 and len(offsets) > 1):
        return None
    return reads[0].node, [offset + (read.offset or 0) for offset in offsets for read in reads]


def affine_input(w: RowsWalk, number: int, grid: Grid) -> Value:
    """The input of an affine component put together, for the rows of its output."""
    node = w.topology.nodes[number]
    net = w.net
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
