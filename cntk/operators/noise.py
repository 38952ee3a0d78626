"""Operators that draw random numbers, and those that depend on whether a run trains."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.registry import AttrSpec, Slot, operator
from ...framework.shape import ShapeArgs
from ...operators._calls import Call, copying, in_order, nothing

dropout = operator(
    "cntk.dropout",
    doc=(
        "Dropout whose rate is a variable, as training schedules it: elements are set to zero with"
        " this probability, the others multiplied with 1 / (1 - rate). Outside of training, and at"
        " rate 0, out = x."
    ),
    inputs=[
        Slot("x", "any shape", not_in_gradient=True),
        Slot("rate", "0 <= rate < 1, float64 [1]", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "shape of x", not_in_gradient=True),
        Slot("mask", "what each element was multiplied with, shape of x", intermediate=True),
    ],
    source="CNTK: DropoutNode, Source/ComputationNetworkLib/TrainingNodes.h",
    random=True,
)


@dropout.shape_rule
def _(s: ShapeArgs) -> None:
    meta = (s["x"], s.floats("x"))
    s.set("out", meta)
    s.set("mask", meta)


@dropout.kernel
def _(k: Any) -> Call:
    xp, x, out, rate, mask = k.xp, k["x"], k["out"], k["rate"], k.get("mask")
    state = k.state
    if mask is None:
        mask = k.scratch(x.shape, x.dtype)
    keep = partial(xp.copyto, out, x)
    if not k.train:
        return in_order(partial(mask.fill, 1), keep)
    real = x.dtype.type

    def run() -> None:
        p = float(rate[0])
        if p <= 0:
            mask.fill(1)
            keep()
            return
        draw = state.generator.random(x.shape, dtype=np.float32)
        xp.multiply(draw >= np.float32(p), real(1 / (1 - p)), out=mask)
        xp.multiply(x, mask, out)

    return run


@dropout.backward("x")
def _(k: Any) -> Call:
    return partial(k.xp.multiply, k["out_grad"], k["mask"], k["x_grad"])


is_training = operator(
    "cntk.is_training",
    doc="1 while a run trains, else 0.",
    outputs=[Slot("out", "[1]")],
    attrs=[AttrSpec("dtype", "dtype", "of out", np.dtype(np.float32))],
    source="CNTK: EnvironmentInput, Source/ComputationNetworkLib/InputAndParamNodes.h",
    no_gradient="it has no input",
)


@is_training.shape_rule
def _(s: ShapeArgs) -> None:
    s.set("out", ((1,), s.attrs["dtype"]))


@is_training.kernel
def _(k: Any) -> Call:
    return partial(k["out"].fill, 1 if k.train else 0)


random_sample = operator(
    "cntk.random_sample",
    doc=(
        "Classes drawn with probabilities in proportion to `weights`, as one-hot rows: row i is the"
        " i-th draw. Without duplicates a class that was drawn before is drawn again."
    ),
    inputs=[Slot("weights", "not negative, [C]")],
    outputs=[Slot("out", "[count, C]")],
    attrs=[
        AttrSpec("count", "int", "number of draws", minimum=1),
        AttrSpec("duplicates", "bool", "whether a class may be drawn more than once", True),
    ],
    source="CNTK: RandomSampleNode, Source/ComputationNetworkLib/TrainingNodes.cpp",
    no_gradient="it draws at random",
    random=True,
)


@random_sample.shape_rule
def _(s: ShapeArgs) -> None:
    s.set("out", ((s.attrs["count"], s.rank("weights", 1)[0]), s.floats("weights")))


def _host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


@random_sample.kernel
def _(k: Any) -> Call:
    weights, out, count = k["weights"], k["out"], k.attrs["count"]
    numbers = k.xp.arange(count)

    def run() -> None:
        held = _host(weights).astype(np.float64)
        p = held / held.sum()
        drawn = k.state.host_generator.choice(len(p), count, replace=k.attrs["duplicates"], p=p)
        out.fill(0)
        out[numbers, k.xp.asarray(drawn)] = 1

    return run


inclusion_frequency = operator(
    "cntk.inclusion_frequency",
    doc=(
        "How often each class is expected among `count` draws of `cntk.random_sample`. With"
        " duplicates that is count * p. Without them, 1 - (1 - p)^t, where t is the number of draws"
        " that gives `count` different classes on average."
    ),
    inputs=[Slot("weights", "not negative, [C]")],
    outputs=[Slot("out", "[C]")],
    attrs=random_sample.attrs,
    source="CNTK: RandomSampleInclusionFrequencyNode, TrainingNodes.cpp (which estimates t by a"
    " draw)",
    no_gradient="weights of sampling are constants",
)


@inclusion_frequency.shape_rule
def _(s: ShapeArgs) -> None:
    s.set("out", (s.rank("weights", 1), s.floats("weights")))


def _draws_needed(p: np.ndarray, count: int) -> float:
    """The t with sum(1 - (1 - p)^t) = count, found by bisection."""
    logs = np.log1p(-np.minimum(p, 1 - 1e-12))
    low, high = 0.0, float(count)
    while -np.expm1(high * logs).sum() < count and high < 1e12:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if -np.expm1(middle * logs).sum() < count:
            low = middle
        else:
            high = middle
    return high


@inclusion_frequency.kernel
def _(k: Any) -> Call:
    weights, out, count = k["weights"], k["out"], k.attrs["count"]

    def run() -> None:
        held = _host(weights).astype(np.float64)
        p = held / held.sum()
        if k.attrs["duplicates"]:
            found = count * p
        else:
            logs = np.log1p(-np.minimum(p, 1 - 1e-12))
            found = -np.expm1(_draws_needed(p, count) * logs)
        out[...] = k.xp.asarray(found, out.dtype)

    return run


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
def _(s: ShapeArgs) -> None:
    s.same_shape("rows of x and mean", s["x"][1:], s["mean"])
    s.set("mean_out", (s["mean"], s.dtype("mean")))
    s.set("count_out", ((1,), s.dtype("count")))


@epoch_mean.kernel
def _(k: Any) -> Call:
    xp, x, out, total = k.xp, k["x"], k["mean_out"], k["count_out"]
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
