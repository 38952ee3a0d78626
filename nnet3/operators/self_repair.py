"""Self-repair: a push back towards the useful range for units whose slope is mostly near 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.blocks import blocks_of
from ...operators.base.calls import copying

PROBABILITY = 0.5
"""Of a batch being repaired; the push is as much stronger."""

self_repair = operator(
    "nnet3.self_repair",
    doc=(
        "In half of all batches, drawn at random, adds to the gradient [N, D] at the input of a"
        " nonlinearity in the columns whose average slope, slopes / count, is below `lower`:"
        " -2 scale (2 out - 1) for sigmoid, -2 scale out for tanh; for relu +2 scale there and"
        " -2 scale where it is above `upper`, the slopes averaged over blocks of columns."
        " repaired [1] and processed [1] count columns."
    ),
    inputs=[
        Slot("grad", "[N, D]"),
        Slot("out", "[N, D]: output of the nonlinearity"),
        Slot("slopes", "[D]: sums of slopes so far"),
        Slot("count", "[1]: rows in these sums"),
        Slot("repaired", "[1]"),
        Slot("processed", "[1]"),
    ],
    outputs=[
        Slot("grad_out", "[N, D]", inplace="grad"),
        Slot("repaired_out", "[1]"),
        Slot("processed_out", "[1]"),
    ],
    attrs=[
        AttrSpec("kind", "string", "the nonlinearity", choices=("sigmoid", "tanh", "relu")),
        AttrSpec("lower", "float", "least average slope that is left alone"),
        AttrSpec("upper", "float", "greatest average slope that is left alone; relu only", 1.0),
        AttrSpec("scale", "float", "strength", minimum=0.0),
        AttrSpec("block", "int", "columns whose slopes are averaged over blocks", minimum=1),
    ],
    source="Kaldi: nnet3/nnet-simple-component.cc",
    no_gradient="it changes gradients",
    random=True,
)


@self_repair.shape_rule
def self_repair_shape(s: ShapeArgs) -> None:
    rows, cols = s.same_shape("grad and out", s["grad"], s["out"])
    s.same("the columns of grad and the length of slopes", cols, s.rank("slopes", 1)[0])
    if cols >= 0 and cols % s.attrs["block"]:
        s.fail(f"the {cols} columns of grad do not fall into blocks of {s.attrs['block']}")
    s.set("grad_out", ((rows, cols), s.floats("grad", "out")))
    s.same_shape("count and [1]", s["count"], (1,))
    for slot in ("repaired", "processed"):
        s.same_shape(f"{slot} and [1]", s[slot], (1,))
        s.set(f"{slot}_out", (s[slot], s.dtype(slot)))


@self_repair.kernel
def self_repair_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    attrs = k.attrs
    state = k.state
    width = k.attrs["block"]
    kind, slopes, count = attrs["kind"], k["slopes"], k["count"]
    grad = blocks_of(k["grad_out"], width)
    out = blocks_of(k["out"], width)
    real = grad.dtype.type
    push = real(attrs["scale"] / PROBABILITY)
    counted = _counted(count)

    def repair() -> None:
        xp.add(k["processed"], width, k["processed_out"])
        xp.copyto(k["repaired_out"], k["repaired"])
        if not counted() or state.host_generator.random() > PROBABILITY:
            return
        average = slopes.reshape(-1, width).mean(axis=0) / count
        low = (average <= attrs["lower"]).astype(grad.dtype)
        if kind == "relu":
            high = (average > attrs["upper"]).astype(grad.dtype)
            change = (low - high) * push
            touched = low + high
        elif kind == "tanh":
            change = out * (low * -push)
            touched = low
        else:
            change = (out * real(2) - real(1)) * (low * -push)
            touched = low
        xp.add(grad, change, grad)
        xp.add(k["repaired_out"], touched.sum(), k["repaired_out"])

    return in_order(copying(xp, k["grad"], k["grad_out"]), repair)


def _counted(count: Any) -> Callable[[], bool]:
    """Whether rows have been counted; a GPU is asked until it says so."""
    if isinstance(count, np.ndarray):
        return lambda: bool(count[0])
    known = False

    def counted() -> bool:
        nonlocal known
        # Where the sums are set to 0 again, quotients of them are NaN, below no bound.
        known = known or bool(float(count[0]))
        return known

    return counted


draw_repair = operator(
    "nnet3.draw_repair",
    doc=(
        "Self-repair of tanh units inside of a larger component, for one batch: with probability"
        " 1/2, drawn at random, 2 scale for the units whose average slope, slopes / count, is below"
        " `lower`, and 0 for the others -> repair_out [D]. repaired [1] counts them."
    ),
    inputs=[
        Slot("slopes", "[D]: sums of slopes so far"),
        Slot("count", "[1]: rows in these sums"),
        Slot("repair", "[D]: as it was", shape_only=True),
        Slot("repaired", "[1]"),
    ],
    outputs=[Slot("repair_out", "[D]"), Slot("repaired_out", "[1]")],
    attrs=[
        AttrSpec("lower", "float", "least average slope that is left alone"),
        AttrSpec("scale", "float", "strength", minimum=0.0),
    ],
    source="Kaldi: nnet3/nnet-combined-component.cc",
    no_gradient="it changes gradients",
    random=True,
)


@draw_repair.shape_rule
def draw_repair_shape(s: ShapeArgs) -> None:
    s.set(
        "repair_out",
        (s.same_shape("repair and slopes", s["repair"], s["slopes"]), s.floats("repair")),
    )
    for slot in ("repaired", "count"):
        s.same_shape(f"{slot} and [1]", s[slot], (1,))
    s.set("repaired_out", (s["repaired"], s.dtype("repaired")))


@draw_repair.kernel
def draw_repair_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    state = k.state
    slopes = k["slopes"]
    count = k["count"]
    repair, repaired, total = k["repair_out"], k["repaired_out"], k["repaired"]
    lower = k.attrs["lower"]
    push = k.attrs["scale"] / PROBABILITY
    counted = _counted(count)

    def draw() -> None:
        xp.copyto(repaired, total)
        repair.fill(0)
        if not counted() or state.host_generator.random() > PROBABILITY:
            return
        low = slopes < lower * count
        xp.multiply(low, push, repair, casting="unsafe")
        xp.add(repaired, low.sum(), repaired)

    return draw
