"""Training criteria and evaluation nodes: sums over all samples, [1]."""

from __future__ import annotations

from ...network.nodes import rules
from ...network.nodes.node import Node
from ..emitter import Emitter, size
from ..table import lowers

_NONE = (1 << 64) - 1  # C++'s SIZE_MAX


@lowers("SquareError")
def lower_square_error(e: Emitter, node: Node) -> str:
    x, y = (e.flat(child) for child in node.inputs)
    return e.total(e.op("square", {"x": e.op("sub", {"x": x, "y": y})}))


@lowers("CrossEntropyWithSoftmax")
def lower_cross_entropy_with_softmax(e: Emitter, node: Node) -> str:
    label, x = (e.flat(child) for child in node.inputs)
    reads = {"label": label, "x": x}
    return e.op("cntk.cross_entropy_with_softmax", reads, out=("out", "log_softmax"))


@lowers("CrossEntropy")
def lower_cross_entropy(e: Emitter, node: Node) -> str:
    label, x = (e.flat(child) for child in node.inputs)
    terms = e.op("mul", {"x": label, "y": e.op("cntk.log", {"x": x})})
    return e.op("neg", {"x": e.total(terms)})


@lowers("ClassificationError")
def lower_classification_error(e: Emitter, node: Node) -> str:
    label, x = (e.flat(child) for child in node.inputs[:2])
    top = 1
    if len(node.inputs) == 3:
        top = int(rules.constant_value(node.inputs[2]) or 1)
    return e.op("cntk.classification_error", {"label": label, "x": x}, {"top": top})


@lowers("MatrixL1Reg")
def lower_matrix_l1_reg(e: Emitter, node: Node) -> str:
    return e.total(e.op("abs", {"x": e.value(node.inputs[0])}))


@lowers("MatrixL2Reg")
def lower_matrix_l2_reg(e: Emitter, node: Node) -> str:
    squares = e.op("square", {"x": e.value(node.inputs[0])})
    return e.op("cntk.sqrt", {"x": e.total(squares)})


@lowers("Logistic")
def lower_logistic(e: Emitter, node: Node) -> str:
    names = ("label", "x", "weight")
    reads: dict[str, str] = dict(zip(names, map(e.flat, node.inputs), strict=False))
    return e.op("cntk.logistic", reads)


@lowers("ForwardBackward")
def lower_forward_backward(e: Emitter, node: Node) -> str:
    label, x = node.inputs
    e.sequences(x.axis)
    blank, delay = node.attributes["blankTokenId"], node.attributes["delayConstraint"]
    if not 0 <= blank < _NONE:  # CNTK's default, which means the last class
        blank = size(x) - 1
    attrs = {"blank": blank, "delay": delay}
    reads = {"label": e.flat(label), "x": e.flat(x)}
    return e.op("cntk.ctc", reads, attrs, out=("out", "slope"))
