"""Targets of a cross entropy: smoothed, weighted by class; and the weights of the samples."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ..linear.matmul import as_rows
from .labels import IGNORE_INDEX, INDEX_LABEL, bind_labels, index_rule


def reshaped(k: KernelArgs) -> bool:
    """Whether the targets of the operator are other than its labels say."""
    return k.attrs["label_smoothing"] > 0 or k.get("weight") is not None


def bind_targets(k: KernelArgs, samples: int, classes: int) -> tuple[Any, list[Call]]:
    """The factors of -log p, [samples, classes], and the calls that compute them first.

    They are weight[c] ((1 - eps) label[c] + eps / C), where a class number is 1 at its class; rows
    of ignored samples are 0.
    """
    xp, eps, weight = k.xp, k.attrs["label_smoothing"], k.get("weight")
    if k.attrs["soft_label"]:
        label, load = as_rows(k, k["label"], samples, classes)
        if not reshaped(k):
            return label, load
        out = k.scratch(label.shape, label.dtype)
        load = [*load, partial(xp.multiply, label, label.dtype.type(1 - eps), out)]
        labels = None
    else:
        labels = bind_labels(k, classes)
        dtype = k["softmax"].dtype if "softmax" in k.op.inputs else k["x"].dtype
        out, load = k.scratch((samples, classes), dtype), list(labels.load)
    spread, peak = out.dtype.type(eps / max(classes, 1)), out.dtype.type(1 - eps)
    numbers = xp.arange(samples)

    def run() -> None:
        valid = None
        if labels is None:
            xp.add(out, spread, out)
        else:
            valid = labels.check()
            out.fill(spread)
            out[numbers, labels.values if valid is None else labels.values * valid] += peak
        if weight is not None:
            xp.multiply(out, weight, out)
        if valid is not None:
            out[~valid] = 0

    return out, [*load, run]


label_weight = operator(
    "label_weight",
    doc=(
        "How much each sample counts in a mean: out = weight[label], 1 without `weight`, and 0"
        " where the label is `ignore_index`. label [...] or [..., 1], weight [C] -> out [...]."
    ),
    inputs=[
        Slot("x", "scores [..., C], which say how many classes there are", shape_only=True),
        INDEX_LABEL,
        Slot("weight", "of each class, [C]", optional=True),
    ],
    outputs=[Slot("out", "[...]")],
    attrs=[IGNORE_INDEX],
    no_gradient="the weights of classes are not trained",
)


@label_weight.shape_rule
def label_weight_shape(s: ShapeArgs) -> None:
    samples = index_rule(s)
    if s.has("weight"):
        s.floats("x", "weight")
        s.same("the classes of x and of weight", s["x"][-1], s.rank("weight", 1)[0])
    s.set("out", (samples, s.dtype("x")))


@label_weight.kernel
def label_weight_kernel(k: KernelArgs) -> Call:
    weight, samples, classes = k.get("weight"), count(k["out"].shape), k.shape("x")[-1]
    matrix, store = as_rows(k, k["out"], samples, 1, write=True)
    flat, labels = matrix[:, 0], bind_labels(k, classes)

    def run() -> None:
        valid = labels.check()
        if weight is None:
            flat.fill(1)
        else:
            flat[...] = weight[labels.values if valid is None else labels.values * valid]
        if valid is not None:
            flat[~valid] = 0

    return in_order(*labels.load, run, *store)
