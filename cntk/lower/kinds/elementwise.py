"""Kinds that work element by element, with broadcasting, and softmax."""

from __future__ import annotations

import numpy as np

from ....operators.names import names_in
from ...network.nodes.node import Node
from ..emitter import Emitter
from ..table import lowers

_OPERATORS = {
    **{kind: rows[0].type for kind, rows in names_in("cntk").items()},
    # The meaning of these is CNTK's own.
    "Log": "cntk.log",
    "LogPlus": "cntk.log_plus",
    "Reciprocal": "cntk.reciprocal",
    "Sqrt": "cntk.sqrt",
}
"""The operators of kinds, also of the kinds in the table of names."""


@lowers(
    "Abs", "Cosine", "Exp", "Floor", "Log", "Negate", "Reciprocal", "RectifiedLinear", "Sigmoid",
    "Sin", "Sqrt", "Tanh",
)  # fmt: skip
def lower_unary(e: Emitter, node: Node) -> str:
    return e.op(_OPERATORS[node.operation], {"x": e.value(node.inputs[0])})


@lowers("Plus", "Minus", "ElementTimes", "LogPlus")
def lower_binary(e: Emitter, node: Node) -> str:
    x, y = e.aligned(*node.inputs)
    return e.op(_OPERATORS[node.operation], {"x": x, "y": y})


@lowers("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")
def lower_compare(e: Emitter, node: Node) -> str:
    x, y = e.aligned(*node.inputs)
    truth = e.op(_OPERATORS[node.operation], {"x": x, "y": y})
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
    x = e.flat(node.inputs[0])
    out = e.op(_OPERATORS[node.operation], {"x": x}, {"axis": -1})
    return e.unflat(out, node)


@lowers("Pass", "Trace", "LabelsToGraph")
def lower_pass(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    rows = e.sparse(child)
    if rows is not None:
        e.set_sparse(node, rows)
        return ""
    return e.value(child)
