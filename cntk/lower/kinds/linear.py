"""Products of matrices and tensors, distances, and sums."""

from __future__ import annotations

import math

from ...network.nodes import rules
from ...network.nodes.node import Node
from ..emitter import Emitter, dims, size
from ..table import lowers


@lowers("Times", "QuantizedTimes", "TransposeTimes")
def lower_times(e: Emitter, node: Node) -> str:
    """As products of rows and a matrix: the right operand's summed dimensions are its fastest, and
    the left operand's the slowest of its array."""
    left, right = node.inputs
    transposed = node.kind.operation == "TransposeTimes"
    shape = left.shape
    if transposed:
        shape = (1, shape[0]) if len(shape) == 1 else shape[::-1]
    output_rank = node.attributes["outputRank"]
    width, depth = math.prod(shape[:output_rank]), math.prod(shape[output_rank:])
    rest = size(right) // depth
    rows = e.sparse(right)
    if rows is not None and left.axis is None:
        if transposed:
            matrix = e.shaped(left, (width, depth))
        else:  # the table itself where it can be: then its gradient holds some rows
            fits = len(left.shape) > 1 and left.shape[-1] == depth
            matrix = e.value(left) if fits else e.shaped(left, (depth, width))
        reads = {**rows.slots, "w": matrix}
        attrs = {"transpose": transposed, "parts": rest if right.axis is not None else 1}
        return e.unflat(e.op("cntk.sparse_times", reads, attrs), node)
    matrix = (depth, width)
    attrs = {"transpose_y": transposed}
    matrix = e.shaped(left, matrix[::-1] if transposed else matrix)
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
def lower_sum_elements(e: Emitter, node: Node) -> str:
    return e.total(e.value(node.inputs[0]))


@lowers("DiagTimes")
def lower_diag_times(e: Emitter, node: Node) -> str:
    diagonal, right = node.inputs
    x = e.flat(right)
    y = e.shaped(diagonal, (size(diagonal),))
    return e.unflat(e.op("mul", {"x": x, "y": y}), node)


@lowers("KhatriRaoProduct")
def lower_khatri_rao_product(e: Emitter, node: Node) -> str:
    first, second = node.inputs
    x = e.shaped(second, (size(second), 1))
    y = e.shaped(first, (1, size(first)))
    out = e.op("mul", {"x": x, "y": y})
    rows = () if node.axis is None else (0,)
    return e.reshape(out, (*rows, *dims(node)))


@lowers("CosDistance", "CosDistanceWithNegativeSamples")
def lower_cos_distance(e: Emitter, node: Node) -> str:
    x, y = (e.flat(child) for child in node.inputs[:2])
    attrs = {}
    if node.operation != "CosDistance":
        shift, negatives = (int(rules.constant_value(child) or 0) for child in node.inputs[2:])
        attrs = {"shift": shift, "negatives": negatives}
    out = e.op("cntk.cos_distance", {"x": x, "y": y}, attrs)
    return out if node.axis is not None else e.reshape(out, dims(node))


@lowers("LookupTable")
def lower_lookup_table(e: Emitter, node: Node) -> str:
    table, words = node.inputs
    width, count = rules.matrix(table)
    number = size(words) // count
    matrix = e.shaped(table, (count, width))
    rows = e.sparse(words)
    if rows is not None:
        out = e.op("cntk.sparse_times", {**rows.slots, "w": matrix}, {"parts": number})
        return e.unflat(out, node)
    if number == 1:
        return e.op("matmul", {"x": e.flat(words), "y": matrix})
    out = e.op("matmul", {"x": e.shaped(words, (number, count)), "y": matrix})
    return e.reshape(out, (0, *dims(node)))
