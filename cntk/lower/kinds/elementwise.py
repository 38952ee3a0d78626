"""Kinds that work element by element, with broadcasting, and softmax."""

from __future__ import annotations

import numpy as np

from ...network.nodes.node import Node
from ..emitter import Emitter
from ..table import lowers

_UNARY = {
    "Abs": "abs",
    "Cosine": "cos",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "cntk.log",
    "Negate": "neg",
    "Reciprocal": "cntk.reciprocal",
    "RectifiedLinear": "relu",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sqrt": "cntk.sqrt",
    "Tanh": "tanh",
}
_BINARY = {
    "Plus": "add",
    "Minus": "sub",
    "ElementTimes": "mul",
    "LogPlus": "cntk.log_plus",
}
_COMPARE = {
    "Equal": "equal",
    "NotEqual": "not_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
}


@lowers(*_UNARY)
def lower_unary(e: Emitter, node: Node) -> str:
    return e.op(_UNARY[node.operation], {"x": e.value(node.inputs[0])})


@lowers(*_BINARY)
def lower_binary(e: Emitter, node: Node) -> str:
    x, y = e.aligned(*node.inputs)
    return e.op(_BINARY[node.operation], {"x": x, "y": y})


@lowers(*_COMPARE)
def lower_compare(e: Emitter, node: Node) -> str:
    x, y = e.aligned(*node.inputs)
    truth = e.op(_COMPARE[node.operation], {"x": x, "y": y})
    return e.op("cast", {"x": truth}, {"dtype": e.dtype})


@lowers("If")
def lower_if(e: Emitter, node: Node) -> str:
    condition, yes, no = e.aligned(*node.inputs)
    truth = e.op("cast", {"x": condition}, {"dtype": np.dtype(bool)})
    return e.op("where", {"condition": truth, "x": yes, "y": no})


@lowers("Clip")
def lower_clip(e: Emitter, node: Node) -> str:
    low, high, x = e.aligned(*node.inputs)
    below = e.op("minimum", {"x": x, "y": high})
    return e.op("maximum", {"x": below, "y": low})


@lowers("Softmax", "LogSoftmax", "Hardmax")
def lower_softmax(e: Emitter, node: Node) -> str:
    """Over all elements of a sample."""
    op_type = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}
    x = e.flat(node.inputs[0])
    out = e.op(op_type[node.operation], {"x": x}, {"axis": -1})
    return e.unflat(out, node)


@lowers("Pass", "Trace", "LabelsToGraph")
def lower_pass(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    rows = e.sparse(child)
    if rows is not None:
        e.set_sparse(node, rows)
        return ""
    return e.value(child)
