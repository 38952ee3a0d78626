"""Targets of a cross entropy: smoothed, weighted by class; and the weights of the samples."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.dtypes import wide
from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ..linear.matmul import as_rows
from .labels import IGNORE_INDEX, INDEX_LABEL, bind_labels, index_rule


def reshaped(k: KernelArgs) -> bool:
    """Whether the targets of the operator are other than its labels say."""
    return k.attrs["label_smoothing"] > 0 or k.get("weight") is not None


def bind_targets(k: KernelArgs, samples: int, classes: int) -> tuple[Any, list[Call], Any]:
    """The factors of -log p, [samples, classes], the calls that compute them, ignored samples.

    The factors are weight[c] ((1 - eps) label[c] + eps / C), where a class number is 1 at its
    class. The last of the three is a mask [samples, 1], or None where no sample can be ignored.
    """
    if k.attrs["soft_label"]:
        label, load = as_rows(k, k["label"], samples, classes)
        return (*_soft_targets(k, label, load), None) if reshaped(k) else (label, load, None)
    labels = bind_labels(k, classes)
    dtype = k["softmax"].dtype if "softmax" in k.op.inputs else k["x"].dtype
    out = k.scratch((samples, classes), dtype)
    ignored = k.scratch((samples, 1), bool)
    eps = k.attrs["label_smoothing"]
    weight = k.get("weight")
    numbers = k.xp.arange(samples)
    spread = dtype.type(eps / max(classes, 1))
    peak = dtype.type(1 - eps)

    def run() -> None:
        valid = labels.check()
        out.fill(spread)
        if valid is None:
            ignored.fill(False)
            # An index names each row once, so += loses nothing. Where a row has the label, both
            # parts add up to 1 - eps + eps / C, as PyTorch smooths.
            out[numbers, labels.values] += peak
        else:
            k.xp.logical_not(valid[:, None], ignored)
            # An ignored label may be no class at all: class 0 stands in, and its loss is cleared
            # afterwards.
            out[numbers, labels.values * valid] += peak
        if weight is not None:
            k.xp.multiply(out, weight, out)

    return out, [*labels.load, run], ignored


def _soft_targets(k: KernelArgs, label: Any, load: list[Call]) -> tuple[Any, list[Call]]:
    eps = k.attrs["label_smoothing"]
    weight = k.get("weight")
    dtype = label.dtype
    # The label is an input and stays as it is.
    out = k.scratch(label.shape, dtype)
    spread = dtype.type(eps / max(label.shape[1], 1))
    calls = [*load, partial(k.xp.multiply, label, dtype.type(1 - eps), out)]
    calls.append(partial(k.xp.add, out, spread, out))
    if weight is not None:
        calls.append(partial(k.xp.multiply, out, weight, out))
    return out, calls


def clearing(k: KernelArgs, rows: Any, ignored: Any) -> Call | None:
    """A call that sets rows of ignored samples to 0, even where they hold NaN."""
    # Set, not multiplied: 0 times NaN is NaN.
    return None if ignored is None else partial(k.xp.copyto, rows, 0, where=ignored)


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
    outputs=[Slot("out", "[...], as the losses: float32 for halves")],
    attrs=[IGNORE_INDEX],
    no_gradient="the weights of classes are not trained",
)


@label_weight.shape_rule
def label_weight_shape(s: ShapeArgs) -> None:
    samples = index_rule(s)
    if s.has("weight"):
        s.floats("x", "weight")
        s.same("the classes of x and of weight", s["x"][-1], s.rank("weight", 1)[0])
    s.set("out", (samples, wide(s.dtype("x"))))


@label_weight.kernel
def label_weight_kernel(k: KernelArgs) -> Call:
    weight = k.get("weight")
    samples = count(k["out"].shape)
    classes = k.shape("x")[-1]
    matrix, store = as_rows(k, k["out"], samples, 1, write=True)
    flat = matrix[:, 0]
    labels = bind_labels(k, classes)

    def run() -> None:
        valid = labels.check()
        if weight is None:
            flat.fill(1)
        else:
            # Ignored labels may lie outside of the table: they read class 0, and are cleared below.
            flat[...] = weight[labels.values if valid is None else labels.values * valid]
        if valid is not None:
            flat[~valid] = 0

    return in_order(*labels.load, run, *store)
