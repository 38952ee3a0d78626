"""Operators that depend on whether a run trains, and states from minibatch to minibatch."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying

is_training = operator(
    "cntk.is_training",
    doc="1 while a run trains, else 0.",
    outputs=[Slot("out", "[1]")],
    attrs=[AttrSpec("dtype", "dtype", "of out", np.dtype(np.float32))],
    source="CNTK: EnvironmentInput, Source/ComputationNetworkLib/InputAndParamNodes.h",
    no_gradient="it has no input",
)


@is_training.shape_rule
def is_training_shape(s: ShapeArgs) -> None:
    s.set("out", ((1,), s.attrs["dtype"]))


@is_training.kernel
def is_training_kernel(k: KernelArgs) -> Call:
    return partial(k["out"].fill, 1 if k.train else 0)


epoch_mean = operator(
    "cntk.epoch_mean",
    doc=(
        "Mean of all samples since the count was set to 0: mean and count are read and written; out"
        " is the mean."
    ),
    inputs=[
        Slot("x", "samples of this minibatch, [N, ...]"),
        Slot("mean", "of the samples before, [...]"),
        Slot("count", "of them, float64 [1]"),
    ],
    outputs=[
        Slot("mean_out", "the variable of mean"),
        Slot("count_out", "the variable of count"),
    ],
    source="CNTK: EpochAccumulatorNode, Source/ComputationNetworkLib/LinearAlgebraNodes.cpp",
    no_gradient="it evaluates",
)


@epoch_mean.shape_rule
def epoch_mean_shape(s: ShapeArgs) -> None:
    for slot in ("x", "mean", "count"):
        s.floats(slot)
    if not s["x"]:
        s.fail("x wants rows and is a number")
    s.same_shape("rows of x and mean", s["x"][1:], s["mean"])
    s.same_shape("count and [1]", s["count"], (1,))
    s.set("mean_out", (s["mean"], s.dtype("mean")))
    s.set("count_out", ((1,), s.dtype("count")))


@epoch_mean.kernel
def epoch_mean_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["mean_out"]
    total = k["count_out"]
    load = [copying(xp, k["mean"], out), copying(xp, k["count"], total)]
    if not len(x):
        return in_order(*load) or nothing
    own = k.scratch(out.shape, out.dtype)

    def run() -> None:
        before = float(total[0])
        total[0] = before + len(x)
        x.sum(0, None, own)
        xp.multiply(out, before / (before + len(x)), out)
        xp.multiply(own, 1 / (before + len(x)), own)
        xp.add(out, own, out)

    return in_order(*load, run)
