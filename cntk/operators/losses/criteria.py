"""Criteria: sums over the samples of a minibatch, one number each.

Source: CNTK's `ComputationNetworkLib/TrainingNodes.h` and `EvaluationNodes.h`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order, recordable
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, lookup, operator
from ....operators.backends import rows
from ..elementwise import LOG_OF_SMALLEST, SMALLEST

SOURCE = "CNTK: Source/ComputationNetworkLib/TrainingNodes.h"


def total(s: ShapeArgs, *slots: str) -> None:
    """Shape rule of a criterion over matrices of one shape."""
    for slot in slots:
        s.rank(slot, 2)
    s.same_shape(" and ".join(slots), *(s[slot] for slot in slots))
    s.set("out", ((1,), s.floats(*slots)))


cross_entropy = operator(
    "cntk.cross_entropy_with_softmax",
    doc=(
        "Cross entropy of logits, summed: out = -sum(label * log_softmax(x)). The gradient is"
        " softmax(x) - label by x, also where a row of label does not sum to 1, and -log_softmax(x)"
        " by label."
    ),
    inputs=[Slot("label", "weights of the classes, [N, C]"), Slot("x", "logits, [N, C]")],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("log_softmax", "[N, C]", intermediate=True),
    ],
    source=SOURCE,
)


@cross_entropy.shape_rule
def cross_entropy_shape(s: ShapeArgs) -> None:
    total(s, "label", "x")
    s.set("log_softmax", (s["x"], s.dtype("x")))


@cross_entropy.kernel
def cross_entropy_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    out = k["out"]
    logs = k.get("log_softmax")
    if logs is None:
        logs = k.scratch(x.shape, x.dtype)
    work = k.scratch(x.shape, x.dtype)
    edge = k.scratch((len(x), 1), x.dtype)

    def run() -> None:
        x.max(1, edge, True)
        xp.subtract(x, edge, logs)
        xp.exp(logs, work)
        work.sum(1, None, edge, True)
        xp.log(edge, edge)
        xp.subtract(logs, edge, logs)
        xp.multiply(logs, label, work)
        out[0] = -work.sum()

    return recordable(run)


@cross_entropy.backward("label", "x")
def cross_entropy_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    logs = k["log_softmax"]
    calls = []
    if k.get("label_grad") is not None:
        calls += [
            partial(xp.multiply, logs, grad, k["label_grad"]),
            partial(xp.negative, k["label_grad"], k["label_grad"]),
        ]
    if k.get("x_grad") is not None:
        x_grad = k["x_grad"]
        calls += [
            partial(xp.exp, logs, x_grad),
            partial(xp.subtract, x_grad, k["label"], x_grad),
            partial(xp.multiply, x_grad, grad, x_grad),
        ]
    return in_order(*calls)


classification_error = operator(
    "cntk.classification_error",
    doc=(
        "Number of rows in which the largest element of label (the first of several) is not among"
        " the `top` largest of x."
    ),
    inputs=[Slot("label", "[N, C]"), Slot("x", "[N, C]")],
    outputs=[Slot("out", "[1]")],
    attrs=[AttrSpec("top", "int", "how many of the largest elements count", 1, 1)],
    source="CNTK: Source/ComputationNetworkLib/EvaluationNodes.h",
    no_gradient="it counts",
)


@classification_error.shape_rule
def classification_error_shape(s: ShapeArgs) -> None:
    total(s, "label", "x")
    if 0 in s["x"][1:]:
        s.fail("x has no classes")


@classification_error.kernel
def classification_error_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    out = k["out"]
    top = k.attrs["top"]
    wanted = k.scratch((len(x),), np.int64)
    predicted = k.scratch((len(x),), np.int64)
    numbers = xp.arange(len(x))

    def run() -> None:
        xp.argmax(label, 1, out=wanted)
        if top == 1:
            xp.argmax(x, 1, out=predicted)
            out[0] = (wanted != predicted).sum()
            return
        # Elements before a class in the order of CNTK's partial sort: larger ones.
        picked = x[numbers, wanted][:, None]
        out[0] = ((x > picked).sum(1) >= top).sum()

    return run


logistic = operator(
    "cntk.logistic",
    doc=(
        "Logistic loss of probabilities x, summed: out = -sum(log(p)) with p = x where label is 1"
        " and 1 - x where it is 0 (2 label x + 1 - label - x in between). With weights it is"
        " -N sum(weight log(p)) / sum(weight) for N rows, but the gradient is not divided, as"
        " CNTK's is not: -weight (2 label - 1) / p."
    ),
    inputs=[
        Slot("label", "[N, D]"),
        Slot("x", "[N, D]"),
        Slot("weight", "[N, D]", optional=True),
    ],
    outputs=[Slot("out", "[1]", not_in_gradient=True)],
    source=SOURCE,
)


@logistic.shape_rule
def logistic_shape(s: ShapeArgs) -> None:
    total(s, *(slot for slot in ("label", "x", "weight") if s.has(slot)))


def _probability(xp: Any, label: Any, x: Any, out: Any) -> None:
    """2 label x + 1 - label - x."""
    xp.multiply(label, x, out)
    xp.multiply(out, out.dtype.type(2), out)
    xp.subtract(out, label, out)
    xp.subtract(out, x, out)
    xp.add(out, out.dtype.type(1), out)


@logistic.kernel
def logistic_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    weight = k.get("weight")
    out = k["out"]
    p = k.scratch(x.shape, x.dtype)
    small = k.scratch(x.shape, bool)
    real = x.dtype.type

    def run() -> None:
        _probability(xp, label, x, p)
        xp.less(p, real(SMALLEST), small)
        xp.maximum(p, real(SMALLEST), out=p)
        xp.log(p, p)
        xp.copyto(p, real(LOG_OF_SMALLEST), where=small)
        if weight is None:
            out[0] = -p.sum()
            return
        whole = weight.sum()
        xp.multiply(p, weight, p)
        out[0] = -len(x) * p.sum() / whole

    return run


@logistic.backward("x")
def logistic_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    weight = k.get("weight")
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    p = k.scratch(label.shape, label.dtype)
    real = label.dtype.type

    def run() -> None:
        _probability(xp, label, k["x"], p)
        xp.multiply(label, real(-2), x_grad)
        xp.add(x_grad, real(1), x_grad)
        if weight is not None:
            xp.multiply(x_grad, weight, x_grad)
        xp.divide(x_grad, p, x_grad)
        xp.multiply(x_grad, grad, x_grad)

    return run


def _native_cross_entropy(k: KernelArgs) -> Call | None:
    label, x, logs, out = k["label"], k["x"], k.get("log_softmax"), k["out"]
    if not x.size or not rows.suits(x.dtype, label, x, logs, out):
        return None
    losses = k.scratch((len(x),), x.dtype)
    fields = {"samples": len(x), "classes": x.shape[1], "x": x, "weights": label, "ignored": 0}
    fields |= {"out": losses, "logs": logs}
    each = rows.task("cross_entropy", x.dtype, rows.EXP * x.size, **fields)
    return rows.call(each, rows.mean_task(losses, out, 1))


def _native_cross_entropy_grad(k: KernelArgs) -> Call | None:
    label, logs, grad, x_grad = k["label"], k["log_softmax"], k["out_grad"], k.get("x_grad")
    if k.get("label_grad") is not None or x_grad is None or not logs.size:
        return None
    if not rows.suits(logs.dtype, label, logs, grad, x_grad):
        return None
    fields = {"size": logs.size, "weights": label, "logs": logs}
    fields |= {"out_grad": grad, "x_grad": x_grad}
    return rows.call(rows.task("log_softmax_pull", logs.dtype, rows.EXP * logs.size, **fields))


def _native_classification_error(k: KernelArgs) -> Call | None:
    label, x, out = k["label"], k["x"], k["out"]
    if not x.size or not rows.suits(x.dtype, label, x, out):
        return None
    wrong = k.scratch((len(x),), x.dtype)
    fields = {"samples": len(x), "classes": x.shape[1], "label": label, "x": x}
    fields |= {"out": wrong, "top": k.attrs["top"]}
    each = rows.task("misclassified", x.dtype, rows.TOP * x.size, **fields)
    return rows.call(each, rows.mean_task(wrong, out, 1))


for _entry, _bind in (
    (cross_entropy, _native_cross_entropy),
    (lookup(f"{cross_entropy.type}_grad"), _native_cross_entropy_grad),
    (classification_error, _native_classification_error),
):
    _entry.kernel(
        rows.where_compiled(_bind),
        device="cpu",
        dtypes=(np.float32, np.float64),
        library="native",
    )
