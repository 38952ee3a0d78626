"""Reshaping, slicing, stacking and reducing within a sample.

Axis a of CNTK, counted from 1, is axis -a of our arrays.
"""

from __future__ import annotations

import math

from ...network.nodes.node import Node
from ..emitter import Emitter, dims, size
from ..table import lowers


@lowers("Reshape")
def lower_reshape(e: Emitter, node: Node) -> str:
    return e.shaped(node.inputs[0], dims(node))


@lowers("LegacyReshape")
def lower_legacy_reshape(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    if node.axis is child.axis:
        return e.shaped(child, dims(node))
    return e.reshape(e.value(child), (-1, *dims(node)))  # more samples, or fewer


@lowers("Slice")
def lower_slice(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    axis, begin = node.attributes["axis"], node.attributes["beginIndex"]
    begin += child.shape[axis - 1] if begin < 0 else 0
    return e.cut(e.value(child), -axis, begin, begin + node.shape[axis - 1])


@lowers("Crop")
def lower_crop(e: Emitter, node: Node) -> str:
    out = e.value(node.inputs[0])
    for axis, key in ((1, "xOffset"), (2, "yOffset")):
        begin = int(node.attributes[key])
        out = e.cut(out, -axis, begin, begin + node.shape[axis - 1])
    return out


@lowers("RowRepeat")
def lower_row_repeat(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    rank = len(dims(child))
    repeats = (node.attributes["numRepeats"], *(1,) * (rank - 1))
    repeats = (1, *repeats) if node.axis is not None else repeats
    return e.op("tile", {"x": e.value(child)}, {"repeats": repeats})


@lowers("RowStack")
def lower_row_stack(e: Emitter, node: Node) -> str:
    axis = node.attributes["axis"]
    shape = dims(node)
    pieces = []
    for child in node.inputs:
        own = (1,) * (len(shape) - len(dims(child))) + dims(child)
        piece = e.shaped(child, own)
        wanted = (*shape[:-axis], own[-axis], *shape[len(shape) - axis + 1 :])
        if node.axis is not None and child.axis is None:
            piece = e.op("cntk.expand_rows", {"x": piece, "like": e.some_rows(node)})
        if own != wanted:
            rows = () if node.axis is None else (-1,)
            piece = e.op("expand", {"x": piece}, {"shape": (*rows, *wanted)})
        pieces.append(piece)
    return e.op("concat", {"x": pieces}, {"axis": -axis})


@lowers("TransposeDimensions")
def lower_transpose_dimensions(e: Emitter, node: Node) -> str:
    rank = len(dims(node))
    first, second = (rank - node.attributes[key] for key in ("axis1", "axis2"))
    x = e.shaped(node.inputs[0], (1,) * (rank - len(dims(node.inputs[0]))) + dims(node.inputs[0]))
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    if node.axis is not None:
        order = [0, *(axis + 1 for axis in order)]
    return e.op("transpose", {"x": x}, {"perm": tuple(order)})


_REDUCE = {
    "Sum": "reduce_sum",
    "Mean": "reduce_mean",
    "LogSum": "logsumexp",
    "Max": "reduce_max",
    "Min": "reduce_min",
    "Argmax": "argmax",
    "Argmin": "argmin",
}


@lowers("ReduceElements")
def lower_reduce_elements(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    axis = node.attributes["axis"]
    op_type = _REDUCE[node.attributes["reductionOp"]]
    if axis == 0:
        x = e.shaped(child, (math.prod(dims(child)),))
        axis = 1
    else:
        x = e.value(child)
    if op_type in ("argmax", "argmin"):
        out = e.op(op_type, {"x": x}, {"axis": -axis, "keepdims": True})
        return e.op("cast", {"x": out}, {"dtype": e.dtype})
    return e.op(op_type, {"x": x}, {"axes": (-axis,), "keepdims": True})


@lowers("SumColumnElements")
def lower_sum_column_elements(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    x = e.shaped(child, (size(child),))
    return e.op("reduce_sum", {"x": x}, {"axes": (-1,), "keepdims": True})


@lowers("Diagonal")
def lower_diagonal(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    count = node.shape[1]
    flat = e.shaped(child, (count * count,))
    picked = e.op("slice", {"x": flat}, {"axes": (0,), "starts": (0,), "steps": (count + 1,)})
    return e.reshape(picked, dims(node))
