"""Axes of samples as sequences of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import copying

SOURCE = "CNTK: OptimizedRNNStackNode, Source/ComputationNetworkLib/RNNNodes.cpp"

split_steps = operator(
    "cntk.split_steps",
    doc="Each row as a sequence over its first axis: x [N, T, ...] -> N sequences of T rows [...].",
    inputs=[Slot("x", "[N, T, ...]", not_in_gradient=True)],
    outputs=[Slot("out", "sequences [N T, ...]", not_in_gradient=True)],
    source=SOURCE,
)


@split_steps.shape_rule
def split_steps_shape(s: ShapeArgs) -> None:
    rows, steps, *rest = s["x"]
    known = rows >= 0 and steps >= 0
    s.set("out", ((rows * steps if known else -1, *rest), s.dtype("x")))
    if known:
        s.set_offsets("out", (np.arange(rows + 1) * steps,))


def _grouped(k: KernelArgs, source: Any, target: Any) -> Call:
    """Copy rows to groups of rows, or back; one of the two arrays has an axis more."""
    if not source.size:
        return nothing
    few, many = (source, target) if source.ndim > target.ndim else (target, source)
    split = many.reshape(few.shape)
    pair = (few, split) if few is source else (split, few)
    return copying(k.xp, *pair) or nothing


@split_steps.kernel
def split_steps_kernel(k: KernelArgs) -> Call:
    return _grouped(k, k["x"], k["out"])


@split_steps.backward("x")
def split_steps_grad_kernel(k: KernelArgs) -> Call:
    return _grouped(k, k["out_grad"], k["x_grad"])


join_steps = operator(
    "cntk.join_steps",
    doc=(
        "The rows of each sequence as one row: N sequences x of T rows [...] -> [N, T, ...]; out"
        " has the sequences of `like`."
    ),
    inputs=[
        Slot("x", "[N T, ...]", not_in_gradient=True),
        Slot("like", "[N, T, ...]", not_in_gradient=True, shape_only=True),
    ],
    outputs=[Slot("out", "[N, T, ...]", not_in_gradient=True)],
    source=SOURCE,
)


@join_steps.shape_rule
def join_steps_shape(s: ShapeArgs) -> None:
    rows, steps = s["like"][:2]
    if rows >= 0 and steps >= 0:
        s.same("rows of x and rows times steps of like", s["x"][0], rows * steps)
    s.set("out", ((rows, steps, *s["x"][1:]), s.dtype("x")))
    s.set_offsets("out", s.offsets("like"))


@join_steps.kernel
def join_steps_kernel(k: KernelArgs) -> Call:
    return _grouped(k, k["x"], k["out"])


@join_steps.backward("x")
def join_steps_grad_kernel(k: KernelArgs) -> Call:
    return _grouped(k, k["out_grad"], k["x_grad"])
