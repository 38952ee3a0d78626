"""`x[:, i] = v` with a computed i, as one choice for each element.

Paddle's exporter writes the range of i, the shape of the part that it takes of x, and a scatter.
Their shapes follow from i, as far as a net can tell; so each would cut the round of a loop, as of a
table's cells, into several nets. There is one row in the range, or none where i lies beyond the
last one. A negative i counts from the end. ONNX's operators refuse -1, for which the range begins
behind its end; here -1 is the last row. A place before the first row is refused as they do, and so
is a value that does not fit the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import RunError
from ....proto import onnx_pb2 as pb
from .calls import Call, Kind, Value
from .graph import Graph, Node

_SAME_NUMBER = ("Squeeze", "Unsqueeze", "Reshape", "Identity")
"""Operators that hand on the number of an array of one element."""
_NUMBERS = (
    pb.TensorProto.FLOAT,
    pb.TensorProto.DOUBLE,
    pb.TensorProto.INT32,
    pb.TensorProto.INT64,
)
ROW = "ScatterElements.row"
"""The operator of such a write."""


def choose_rows(graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
    """Change a graph, and the graphs inside it, to such choices.

    Args:
        arrays: constants by name.
    """
    for node in graph.nodes:
        for inner in node.graphs():
            choose_rows(inner, arrays)
    finder = _Finder(graph.nodes, arrays)
    found = {id(node): write for node in graph.nodes if (write := finder.write_of(node))}
    if not found:
        return
    written: list[Node] = []
    for node in graph.nodes:
        write = found.get(id(node))
        written.append(node if write is None else write.node(node))
    before = {name for node in graph.nodes for name in node.reads()}
    used = {*graph.outputs}
    kept: list[Node] = []
    for node in reversed(written):
        # What the range and the scatter alone have read goes with them.
        if not used.isdisjoint(node.outputs) or before.isdisjoint(node.outputs):
            kept.append(node)
            used.update(node.reads())
    graph.nodes = kept[::-1]


@dataclass(frozen=True)
class _Write:
    """Attributes: tensor: that is written to. at: the place along `axis`. value: what is written,
    with one element along the axis."""

    tensor: str
    axis: int
    at: str
    value: str

    def node(self, scatter: Node) -> Node:
        """What computes the result of the scatter."""
        inputs = (self.tensor, self.at, self.value)
        attrs = {"axis": self.axis}
        return Node(
            ROW, "", scatter.version, scatter.name, inputs, scatter.outputs, attrs, (), _KIND
        )


class _Finder:
    def __init__(self, nodes: Sequence[Node], arrays: Mapping[str, np.ndarray]) -> None:
        self._makers = {out: node for node in nodes if not node.domain for out in node.outputs}
        self._arrays = arrays

    def write_of(self, node: Node) -> _Write | None:
        """What a node writes; None where it is no such scatter."""
        if node.op != "ScatterElements" or node.domain or len(node.inputs) != 3:
            return None
        if node.attrs.get("reduction", "none") != "none":
            return None
        tensor, places, updates = node.inputs
        axis = node.attrs.get("axis", 0)
        tile, expand = self._made(places, "Tile"), self._made(updates, "Expand")
        if tile is None or expand is None:
            return None
        row, part = self._made(tile.inputs[0], "Reshape"), self._shape_of(expand.inputs[1])
        rows = self._made(row.inputs[0], "Range") if row is not None else None
        cut = self._made(part, "Slice")
        if row is None or rows is None or cut is None or len(cut.inputs) < 4:
            return None
        shape = self._ints(row.inputs[1])
        if shape is None or axis not in range(len(shape)):
            return None
        rank = len(shape)
        if shape != [-1 if each == axis else 1 for each in range(rank)]:
            return None
        steps = cut.inputs[4:5] if cut.inputs[4:5] != ("",) else ()
        at = self._number(cut.inputs[1])
        fits = (
            cut.inputs[0] == tensor
            and self._ints(cut.inputs[3]) == [axis]
            and all(self._ints(name) == [1] for name in (*steps, self._number(rows.inputs[2])))
            and self._number(rows.inputs[0]) == at
            and self._number(rows.inputs[1]) == self._number(cut.inputs[2])
            and at not in self._arrays
            and self._is_next(cut.inputs[2], at, tensor, axis)
            and self._sizes(tile.inputs[1], part) == [*range(axis), None, *range(axis + 1, rank)]
        )
        return _Write(tensor, axis, cut.inputs[1], expand.inputs[0]) if fits else None

    def _made(self, name: str, op: str) -> Node | None:
        """The node of a kind that makes a value."""
        node = self._makers.get(name)
        return node if node is not None and node.op == op else None

    def _shape_of(self, name: str) -> str:
        """Whose shape a value is; "" where it is none."""
        node = self._made(name, "Shape")
        return node.inputs[0] if node is not None and not node.attrs else ""

    def _ints(self, name: str) -> list[int] | None:
        array = self._arrays.get(name)
        return None if array is None or array.dtype.kind not in "if" else array.reshape(-1).tolist()

    def _number(self, name: str) -> str:
        """The first value that a number was, before it was given other shapes and types."""
        while True:
            node = self._makers.get(name)
            if node is None:
                return name
            converts = node.op == "Cast" and node.attrs.get("to") in _NUMBERS
            if not (converts or node.op in _SAME_NUMBER):
                return name
            name = node.inputs[0]

    def _is_next(self, name: str, at: str, tensor: str, axis: int) -> bool:
        """Whether a value is at + 1, and at most the tensor's size along the axis."""
        least = self._made(self._number(name), "Min")
        if least is None or len(least.inputs) != 2:
            return False
        ends = [self._makers.get(self._number(each)) for each in least.inputs]
        for size, after in (ends, ends[::-1]):
            if size is None or after is None or (size.op, after.op) != ("Gather", "Add"):
                continue
            of_axis = self._ints(size.inputs[1]) == [axis]
            terms = [self._number(each) for each in after.inputs]
            ones = [self._ints(term) == [1] for term in terms]
            if of_axis and self._shape_of(size.inputs[0]) == tensor and at in terms and any(ones):
                return True
        return False

    def _sizes(self, name: str, part: str) -> list[int | None] | None:
        """The axes of `part` whose sizes a value joins, None for a size of 1."""
        joined = self._made(name, "Concat")
        if joined is None:
            return None
        sizes: list[int | None] = []
        for each in joined.inputs:
            if self._ints(each) == [1]:
                sizes.append(None)
                continue
            cut = self._made(each, "Slice")
            if cut is None or self._shape_of(cut.inputs[0]) != part or len(cut.inputs) != 4:
                return None
            bounds = [self._ints(given) for given in cut.inputs[1:4]]
            if any(one is None or len(one) != 1 for one in bounds) or bounds[2] != [0]:
                return None
            first, last = (one[0] for one in bounds[:2] if one is not None)
            sizes += range(first, last)
        return sizes


def _write_row(n: Call) -> Value:
    """`x[:, at] = value` along an axis, as one choice for each element.

    A place before the first row is an error, as is a value that does not fit the row; after the
    last row nothing is written.
    """
    x, at, value = n[0], n.reshape(n.cast(n[1], np.int64), [1]), n[2]
    axis = n.axis(n.attr("axis", 0), x.ndim)
    row = [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
    ends = zip(reversed(row), reversed(value.shape), strict=False)
    if value.ndim > x.ndim or not all([have in (1, want) for want, have in ends]):
        raise RunError(
            f"{n.where}: {n.node.title()}: what is written, {list(value.shape)}, does not fit a row"
            f" {row} of {list(x.shape)}"
        )
    size = x.shape[axis]
    if size == 0:
        return x
    rows = n.following(np.arange, [size], np.int64, size)
    zero = n.const([0], np.int64)
    # The row of a place that counts from the end, which the operator checks; else the first one.
    from_end = n.op("gather", rows, n.op("minimum", at, zero), from_end=True)
    lines = n.reshape(rows, [-1 if other == axis else 1 for other in range(x.ndim)])
    chosen = n.op("equal", lines, n.op("maximum", at, from_end))
    return n.op("where", chosen, value, x)


_KIND = Kind(lower=_write_row)
