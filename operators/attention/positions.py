"""Numbers of positions, and what tells a network of them: sines and cosines, or rotations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sequence import lengths_of, repeated
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.compiled.arguments import made_array
from ...framework.fusion.team import in_order, nothing, recordable
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import rows_of
from .caches import check_past
from .heads import HEADS

_INT = np.dtype("int64")
_BASE = AttrSpec("base", "float", "the slowest angle grows by about 1 / base a step", 1e4, 1.0)

positions = operator(
    "positions",
    doc=(
        "Numbers 0, 1, 2, ... along an axis of x: out [size of the axis]. Where x carries sequences"
        " and the axis holds their rows, each sequence begins at 0. By default the axis before"
        " the last: T of [N, T, D], and the rows of sequences [rows, D]. With `past` sequence n"
        " begins at past[n]: out [N, size of the axis], or, where x carries sequences, [rows]."
    ),
    inputs=[
        Slot("x", "any shape; its values are not read", shape_only=True),
        Slot("past", "int64 [N], positions before x", optional=True),
    ],
    outputs=[Slot("out", "int64 [size of the axis], or [N, size of the axis]")],
    attrs=[AttrSpec("axis", "int", "axis to count along", -2)],
    no_gradient="it reads no values",
)


@positions.shape_rule
def positions_shape(s: ShapeArgs) -> None:
    x = s["x"]
    axis = s.axis(s.attrs["axis"], len(x))
    shape = (x[axis],)
    if s.has("past"):
        levels = s.offsets("x")
        if axis:
            shape = x[0], x[axis]
        elif levels == ():
            s.fail("past along the first axis wants x to carry sequences")
        check_past(s, x[0] if axis else -1 if levels is None else len(levels[-1]) - 1)
    s.set("out", (shape, _INT))


def _counted(k: KernelArgs, axis: int) -> np.ndarray:
    """The positions along an axis of x, counted from the front."""
    # Offsets are of rows, the first axis; along any other one nothing begins anew.
    levels = k.offsets("x") if axis == 0 else ()
    rows = k.shape("x")[axis]
    if not levels:
        return made_array(partial(np.arange, dtype=np.int64), np.int64, rows, rows)
    return made_array(_from_begins, np.int64, rows, offsets=levels[-1:])


def _from_begins(offsets: np.ndarray) -> np.ndarray:
    """The number of each row in its sequence."""
    return np.arange(offsets[-1]) - repeated(offsets[:-1], lengths_of(offsets))


@positions.kernel
def positions_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    # They follow from shape and offsets alone: computed when bound, copied in each run.
    axis = k.attrs["axis"] % len(k.shape("x"))
    numbers = _counted(k, axis)
    numbers = numbers if k.xp is np else k.xp.asarray(numbers)
    past = k.get("past")
    if past is not None and axis:
        return partial(k.xp.add, past[:, None], numbers, out)
    if past is not None:
        lengths = lengths_of(k.offsets("x")[-1])
        sequence = k.xp.asarray(repeated(np.arange(len(lengths)), lengths))
        return recordable(lambda: k.xp.add(past[sequence], numbers, out))
    return partial(k.xp.copyto, out, numbers)


def _rates(k: KernelArgs, width: int) -> Any:
    """The angle that each pair of columns turns by a step, float64."""
    # float64: the angle of a late position times a rate loses its fraction in float32.
    rates = k.attrs["base"] ** (-np.arange(0, width, 2) / max(width, 1))
    return k.xp.asarray(rates)


sinusoidal_encoding = operator(
    "sinusoidal_encoding",
    doc=(
        "Sines and cosines of positions p at falling rates: out[..., 2i] = sin(p / base^(2i / D)),"
        " out[..., 2i + 1] = cos(p / base^(2i / D)), where D is `size`. positions [...] -> out"
        " [..., D]."
    ),
    inputs=[Slot("positions", "integers or floats [...]")],
    outputs=[Slot("out", "[..., size]")],
    attrs=[
        AttrSpec("size", "int", "number of columns", minimum=1),
        AttrSpec("dtype", "dtype", "of the result", np.dtype("float32")),
        _BASE,
    ],
    source="Vaswani et al. 2017, Attention is all you need",
    no_gradient="positions are no result of training",
    rows=rows_of("positions"),
)


@sinusoidal_encoding.shape_rule
def sinusoidal_encoding_shape(s: ShapeArgs) -> None:
    if s.dtype("positions").kind == "b":
        s.fail(f"positions wants numbers and has {s.dtype('positions')}")
    dtype = s.float_dtype("the result is of floating numbers")
    s.set("out", ((*s["positions"], s.attrs["size"]), dtype))


@sinusoidal_encoding.kernel
def sinusoidal_encoding_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    numbers = k["positions"]
    out = k["out"]
    if not out.size:
        return nothing
    rates = _rates(k, out.shape[-1])
    angles = k.scratch((*numbers.shape, len(rates)), np.float64)
    # Views of every other column: the results are rounded to the dtype of out where they belong.
    sines, cosines = out[..., 0::2], out[..., 1::2]

    # An odd size has one sine more than cosines.
    return in_order(
        partial(xp.multiply, numbers[..., None], rates, angles),
        partial(xp.sin, angles, sines, casting="unsafe"),
        partial(xp.cos, angles[..., : cosines.shape[-1]], cosines, casting="unsafe"),
    )


rotary_embedding = operator(
    "rotary_embedding",
    doc=(
        "Rotary position embedding: each pair of columns is turned by the angle p base^(-2i / d),"
        " p the row's position and i the pair's number, so that the product of a query and a key"
        " depends on the distance of their positions alone. x [..., T, d], or with `heads`"
        " [..., T, heads d]; d is even. `positions` broadcasts to x without its last axis; without"
        " it rows count from 0 along T or, where x carries sequences, in each of them. Pairs are"
        " neighbors (0, 1), (2, 3), ... as in the paper, or, not `interleaved`, the columns i and"
        " i + d / 2."
    ),
    inputs=[
        Slot("x", "[..., T, d]", not_in_gradient=True),
        Slot("positions", "integers or floats", optional=True),
    ],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[HEADS, _BASE, AttrSpec("interleaved", "bool", "pairs are neighbors", True)],
    source="Su et al. 2021, RoFormer: enhanced transformer with rotary position embedding",
)


@rotary_embedding.shape_rule
def rotary_embedding_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    heads = s.attrs["heads"] or 1
    if len(shape) < 2:
        s.fail("x wants 2 dimensions or more, [..., steps, width]")
    if shape[-1] % (2 * heads) and shape[-1] >= 0:
        s.fail(f"the {shape[-1]} columns of x do not divide into pairs of {heads} heads")
    if s.has("positions"):
        places = s["positions"]
        if s.dtype("positions").kind == "b":
            s.fail(f"positions wants numbers and has {s.dtype('positions')}")
        if len(places) >= len(shape):
            s.fail(f"positions has {len(places)} dimensions, and x only {len(shape) - 1} of rows")
        # Positions may say less than x (one row for a batch), and not more.
        whole = s.broadcast(places, shape[:-1])
        s.same_shape("the rows of x and those that positions broadcast to", shape[:-1], whole)
    s.set("out", (shape, s.floats("x")))


def _turned(k: KernelArgs, source: str, target: str, sign: int) -> Call:
    """target = source, its pairs of columns turned by the angles of their rows (sign 1) or back."""
    x = k[source]
    out = k[target]
    heads = k.attrs["heads"] or 1
    if not out.size:
        return nothing
    shape = (*out.shape[:-1], heads, out.shape[-1] // heads)
    # The last axis is split, which is a view of any array: writing to the halves of out fills out.
    one, two = _halves(k, x.reshape(shape))
    first, second = _halves(k, out.reshape(shape))
    cosines, sines, load = _angles(k, shape, x.dtype)
    xp = k.xp
    part = k.scratch(one.shape, x.dtype)
    other = k.scratch(one.shape, x.dtype)
    # Turning back is turning by the same angles with the sign of the sine changed.
    minus, plus = (xp.subtract, xp.add) if sign > 0 else (xp.add, xp.subtract)

    def turn() -> None:
        xp.multiply(one, cosines, part)
        xp.multiply(two, sines, other)
        minus(part, other, first)
        xp.multiply(two, cosines, part)
        xp.multiply(one, sines, other)
        plus(part, other, second)

    return in_order(load, recordable(turn))


def _halves(k: KernelArgs, x: Any) -> tuple[Any, Any]:
    """Views of the first and the second columns of all pairs."""
    if k.attrs["interleaved"]:
        return x[..., 0::2], x[..., 1::2]
    middle = x.shape[-1] // 2
    return x[..., :middle], x[..., middle:]


def _angles(k: KernelArgs, shape: tuple[int, ...], dtype: np.dtype) -> tuple[Any, Any, Call]:
    """Cosines and sines that broadcast to the columns [..., heads, d / 2], and a call to fill them.

    Args:
        shape: of x with its heads apart.
    """
    xp = k.xp
    rates = _rates(k, shape[-1])
    position = k.get("positions")
    if position is None:
        # In `shape` heads are apart, so steps are the third axis from the end.
        axis = 0 if k.offsets("x") else len(shape) - 3
        numbers = _counted(k, axis).reshape((-1,) + (1,) * (len(shape) - 1 - axis))
        # Without positions the angles are fixed by the shape: sines are computed once, when bound.
        angles = xp.multiply(xp.asarray(numbers), rates)
        return xp.cos(angles).astype(dtype), xp.sin(angles).astype(dtype), nothing
    # The axis of 1 stands for the heads, which all turn alike.
    angles = k.scratch((*position.shape, 1, len(rates)), np.float64)
    cosines, sines = k.scratch(angles.shape, dtype), k.scratch(angles.shape, dtype)

    load = in_order(
        partial(xp.multiply, position[..., None, None], rates, angles),
        partial(xp.cos, angles, cosines, casting="unsafe"),
        partial(xp.sin, angles, sines, casting="unsafe"),
    )
    return cosines, sines, load


@rotary_embedding.kernel
def rotary_embedding_kernel(k: KernelArgs) -> Call:
    return _turned(k, "x", "out", 1)


@rotary_embedding.backward("x")
def rotary_embedding_grad_kernel(k: KernelArgs) -> Call:
    return _turned(k, "out_grad", "x_grad", -1)  # the inverse of a rotation is its transpose
