"""Products of matrices and tensors, distances, and sums."""

from __future__ import annotations

import math

from ..network.node import Node
from .emitter import Emitter, dims, size
from .table import lowers


@lowers("Times", "QuantizedTimes", "TransposeTimes")
def _(e: Emitter, node: Node) -> str:
    """As products of rows and a matrix: the right operand's summed dimensions are its fastest, and
    the left operand's the slowest of its array."""
    left, right = node.inputs
    transposed = node.operation == "TransposeTimes"
    shape = left.shape
    if transposed:
        shape = (1, shape[0]) if len(shape) == 1 else shape[::-1]
    kept = node.attributes["outputRank"]
    width, depth = math.prod(shape[:kept]), math.prod(shape[kept:])
    matrix = e.shaped(left, (width, depth) if transposed else (depth, width))
    rest = size(right) // depth
    attrs = {"transpose_y": transposed}
    rows = e.sparse(right)
    if rows is not None and rest == 1 and left.axis is None:
        if transposed:
            matrix = e.op("transpose", {"x": matrix}, {"perm": (1, 0)})
        reads = {"values": rows.values, "indices": rows.indices, "first": rows.first}
        out = e.op("cntk.sparse_times", {**reads, "w": matrix})
        return e.unflat(out, node)
    if left.axis is not None:
        x = e.shaped(right, (rest, depth))
        out = e.op("matmul", {"x": x, "y": matrix}, attrs)
        return e.reshape(out, (0, *dims(node)))
    if right.axis is None:
        x = e.shaped(right, (rest, depth))
        return e.reshaped(e.op("matmul", {"x": x, "y": matrix}, attrs), (rest, width), dims(node))
    if rest == 1:
        out = e.op("matmul", {"x": e.shaped(right, (depth,)), "y": matrix}, attrs)
        return e.unflat(out, node)
    out = e.op("matmul", {"x": e.shaped(right, (rest, depth)), "y": matrix}, attrs)
    return e.reshape(out, (0, *dims(node)))


@lowers("SumElements")
def _(e: Emitter, node: Node) -> str:
    return e.total(e.value(node.inputs[0]))
