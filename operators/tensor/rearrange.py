"""The same entries in other places along axes: flip, roll, repeat_interleave."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import beside

_X = Slot("x", "any shape", not_in_gradient=True)


def _distinct_axes(s: ShapeArgs) -> list[int]:
    axes = [s.axis(axis, len(s["x"]), "axes:") for axis in s.attrs["axes"]]
    if len(set(axes)) < len(axes):
        s.fail(f"axes {list(s.attrs['axes'])} name an axis twice")
    return axes


# -- flip --------------------------------------------------------------------------------------

flip = operator(
    "flip",
    doc="x in the opposite order along axes: out[i] = x[n - 1 - i].",
    inputs=[_X],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[AttrSpec("axes", "ints", "axes to reverse; none = all", ())],
    source="numpy.flip",
    rows=beside("axes"),
)


@flip.shape_rule
def flip_shape(s: ShapeArgs) -> None:
    _distinct_axes(s)
    s.set("out", (s["x"], s.dtype("x")))


@flip.kernel
def flip_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    axes = [axis % x.ndim for axis in k.attrs["axes"]] or range(x.ndim)
    back = tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(x.ndim))
    return partial(k.xp.copyto, k["out"], x[(*back, ...)])


@flip.gradient_maker
def flip_gradient(g: GradientArgs) -> list[OpNode]:
    return [g.op("flip", {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, g.attrs)]


# -- roll --------------------------------------------------------------------------------------

roll = operator(
    "roll",
    doc="x moved along axes, where what leaves at one end comes in at the other:"
    " out[(i + shift) mod n] = x[i]. Without axes x is rolled as one row of all its elements.",
    inputs=[_X],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[
        AttrSpec("shifts", "ints", "how far for each of axes; backwards where negative"),
        AttrSpec("axes", "ints", "axes to move along; none = all elements in a row", ()),
    ],
    source="numpy.roll",
    rows=beside("axes"),
)


@roll.shape_rule
def roll_shape(s: ShapeArgs) -> None:
    axes = _distinct_axes(s)
    shifts = s.attrs["shifts"]
    if len(shifts) != max(len(axes), 1):
        s.fail(f"shifts {list(shifts)} need one number for each of axes {axes}, or one for none")
    s.set("out", (s["x"], s.dtype("x")))


def _in_a_row(k: KernelArgs, array: Any) -> tuple[Any, Any]:
    """All elements of an array as one row, and scratch memory that stands for it, or None."""
    if array.flags.c_contiguous:
        return array.reshape(-1), None
    held = k.scratch(array.shape, array.dtype)
    return held.reshape(-1), held


@roll.kernel
def roll_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    axes = k.attrs["axes"]
    if axes:
        return in_order(*_blocks(xp, x, out, dict(zip(axes, k.attrs["shifts"], strict=True))))
    source, held = _in_a_row(k, x)
    target, result = _in_a_row(k, out)
    return in_order(
        None if held is None else partial(xp.copyto, held, x),
        *_blocks(xp, source, target, {0: k.attrs["shifts"][0]}),
        None if result is None else partial(xp.copyto, out, result),
    )


def _blocks(xp: Any, x: Any, out: Any, shifts: dict[int, int]) -> list[Call]:
    """Copies of the parts that stay together: two along each axis that moves."""
    # One list stands for all axes: entries are replaced below, and the list itself never changes.
    parts: list[list[tuple[slice, slice]]] = [[(slice(None), slice(None))]] * x.ndim
    for axis, shift in shifts.items():
        by = shift % x.shape[axis] if x.shape[axis] else 0
        # An axis that stays is one block: of a shift by 0, slice(-0, None) would be the whole axis.
        if by:
            parts[axis] = [
                (slice(None, -by), slice(by, None)),
                (slice(-by, None), slice(None, by)),
            ]
    calls = []
    for chosen in product(*parts):
        source, target = zip(*chosen, strict=True)
        calls.append(partial(xp.copyto, out[(*target, ...)], x[(*source, ...)]))
    return calls


@roll.gradient_maker
def roll_gradient(g: GradientArgs) -> list[OpNode]:
    attrs = {**g.attrs, "shifts": tuple(-shift for shift in g.attrs["shifts"])}
    return [g.op("roll", {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, attrs)]


# -- repeat_interleave -------------------------------------------------------------------------

repeat_interleave = operator(
    "repeat_interleave",
    doc="Every entry along an axis several times, one after the other: a, b -> a, a, b, b. (`tile`"
    " gives a, b, a, b.)",
    inputs=[_X],
    outputs=[Slot("out", "shape of x, `repeats` times as long along axis", not_in_gradient=True)],
    attrs=[
        AttrSpec("repeats", "int", "how often", minimum=0),
        AttrSpec("axis", "int", "axis of the entries", 0),
    ],
    source="torch.repeat_interleave; numpy.repeat",
    rows=beside("axis"),
)


@repeat_interleave.shape_rule
def repeat_interleave_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    axis = s.axis(s.attrs["axis"], len(shape))
    size = shape[axis] * s.attrs["repeats"] if shape[axis] >= 0 else -1
    s.set("out", ((*shape[:axis], size, *shape[axis + 1 :]), s.dtype("x")))


def _spread(k: KernelArgs, repeated: Any) -> tuple[Any, int]:
    """`repeated` with an axis for the copies after the axis of the entries, and its number."""
    shape = k.shape("x")
    axis = k.attrs["axis"] % len(shape) + 1
    # Splitting an axis gives a view of strided memory, too, so a copy into it reaches `repeated`.
    return repeated.reshape((*shape[:axis], k.attrs["repeats"], *shape[axis:])), axis


@repeat_interleave.kernel(channels_last=(("x", "out"),))
def repeat_interleave_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    spread, axis = _spread(k, k["out"])
    if k.xp is not np or x.strides[axis - 1] != x.itemsize:
        return partial(k.xp.copyto, spread, k.xp.expand_dims(x, axis))
    # NumPy would go over the few copies of an entry innermost.
    lead = (slice(None),) * axis
    copies = [partial(np.copyto, spread[(*lead, n)], x) for n in range(k.attrs["repeats"])]
    return in_order(*copies)


@repeat_interleave.backward("x")
def repeat_interleave_grad_kernel(k: KernelArgs) -> Call:
    spread, axis = _spread(k, k["out_grad"])
    return partial(spread.sum, axis, out=k["x_grad"])
