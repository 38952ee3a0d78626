"""Operators that draw random numbers, and dropout.

They draw from the run's random state (`OpContext`). An attribute `seed` other than 0 gives an
operator its own generator, a new one for each run, so its result repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.backend import random_generator
from ...framework.base.sizes.shape import Shape, ShapeArgs, count
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from .shape import copier

_SEED = AttrSpec("seed", "int", "0: the run's random state; else a generator of its own", 0, 0)
_FANS = (
    AttrSpec("fan_in", "int", "inputs of a unit; 0 = from the shape", 0, 0),
    AttrSpec("fan_out", "int", "units an input feeds; 0 = from the shape", 0, 0),
)
_UNIFORM = AttrSpec("uniform", "bool", "uniform instead of normal distribution", True)
_FAN_DOC = (
    " A matrix is [fan_in, fan_out]; a convolution's filters are [channels out, channels in,"
    " ...], whose fans also count the filter's places."
)


def _generator(k: KernelArgs) -> Call:
    """A callable that returns the random generator of the run."""
    # The generator is looked up in each call: a kernel is bound once for runs of any state.
    seed = k.attrs["seed"]
    state = k.state
    if not seed:
        return lambda: state.generator
    return partial(random_generator, state.place, seed)


def _uniform(k: KernelArgs, out: Any, low: float, high: float) -> Callable[[], None]:
    xp = k.xp
    generator = _generator(k)
    # NumPy's generators fill contiguous memory only.
    drawn = k.in_one_piece(out)
    dtype = drawn.dtype
    low, width = dtype.type(low), dtype.type(high - low)

    def run() -> None:
        # The shape besides `out`: without it CuPy draws one number and copies it everywhere.
        generator().random(drawn.shape, dtype, out=drawn)
        xp.multiply(drawn, width, out=drawn)
        xp.add(drawn, low, out=out)

    return run


def _gaussian(k: KernelArgs, out: Any, mean: float, std: float) -> Callable[[], None]:
    xp = k.xp
    generator = _generator(k)
    drawn = k.in_one_piece(out)
    dtype = drawn.dtype
    mean, std = dtype.type(mean), dtype.type(std)

    def run() -> None:
        generator().standard_normal(drawn.shape, dtype, out=drawn)
        xp.multiply(drawn, std, out=drawn)
        xp.add(drawn, mean, out=out)

    return run


def _random(op_type: str, doc: str, attrs: tuple[AttrSpec, ...], source: str = "") -> OperatorDef:
    """Register a fill of `shape` with random numbers of a floating `dtype`."""
    entry = operator(
        op_type,
        doc=doc,
        inputs=[
            Slot("like", "has the sizes that `shape` leaves open", optional=True, shape_only=True)
        ],
        outputs=[Slot("out", "shape `shape`")],
        attrs=[
            AttrSpec(
                "shape", "ints", "of the result; -1: the size that like has there", minimum=-1
            ),
            AttrSpec("dtype", "dtype", "of the result", np.dtype("float32")),
            *attrs,
            _SEED,
        ],
        source=source,
        no_gradient="it reads no values",
        random=True,
    )

    @entry.shape_rule
    def random_shape(s: ShapeArgs) -> None:
        dtype = s.float_dtype("draws floating numbers")
        if not s.attrs.get("low", 0) <= s.attrs.get("high", np.inf):
            s.fail(f"low {s.attrs['low']} is above high {s.attrs['high']}")
        s.set("out", (_sizes(s), dtype))

    return entry


def _sizes(s: ShapeArgs) -> Shape:
    """The attribute `shape` with what it leaves open."""
    shape = s.attrs["shape"]
    if -1 not in shape:
        return shape
    if not s.has("like"):
        s.fail(f"shape {list(shape)} leaves sizes open, and there is no `like` that has them")
    like = s["like"]
    short = [axis for axis, size in enumerate(shape) if size < 0 and axis >= len(like)]
    if short:
        s.fail(f"shape {list(shape)} leaves axis {short[0]} open, which like {list(like)} lacks")
    return tuple(like[axis] if size < 0 else size for axis, size in enumerate(shape))


uniform_random = _random(
    "uniform_random",
    "Numbers drawn evenly from [low, high).",
    (
        AttrSpec("low", "float", "lower bound", -1.0),
        AttrSpec("high", "float", "upper bound", 1.0),
    ),
)


@uniform_random.kernel
def uniform_random_kernel(k: KernelArgs) -> Call:
    return _uniform(k, k["out"], k.attrs["low"], k.attrs["high"])


gaussian_random = _random(
    "gaussian_random",
    "Numbers drawn from a normal distribution.",
    (
        AttrSpec("mean", "float", "of the distribution", 0.0),
        AttrSpec("std", "float", "standard deviation", 1.0, 0.0),
    ),
)


@gaussian_random.kernel
def gaussian_random_kernel(k: KernelArgs) -> Call:
    return _gaussian(k, k["out"], k.attrs["mean"], k.attrs["std"])


def fans(shape: Shape) -> tuple[int, int]:
    """fan_in and fan_out of a parameter: [in, out], or filters [out, in, *places]."""
    if len(shape) < 2:
        size = count(shape)
        return size, size
    if len(shape) == 2:
        return shape[0], shape[1]
    places = count(shape[2:])
    return shape[1] * places, shape[0] * places


def _scaled(k: KernelArgs, variance: float) -> Any:
    """A call that fills `out` with numbers of mean 0 and the variance given."""
    if k.attrs["uniform"]:
        # Numbers drawn evenly from [-b, b] have the variance b * b / 3.
        bound = math.sqrt(3.0 * variance)
        return _uniform(k, k["out"], -bound, bound)
    return _gaussian(k, k["out"], 0.0, math.sqrt(variance))


xavier_random = _random(
    "xavier_random",
    "Glorot's initial weights: mean 0, variance 2 gain^2 / (fan_in + fan_out)." + _FAN_DOC,
    (*_FANS, _UNIFORM, AttrSpec("gain", "float", "factor on the standard deviation", 1.0, 0.0)),
    source="Glorot and Bengio 2010, Understanding the difficulty of training deep networks",
)


@xavier_random.kernel
def xavier_random_kernel(k: KernelArgs) -> Call:
    attrs = k.attrs
    fan_in, fan_out = fans(k["out"].shape)
    total = (attrs["fan_in"] or fan_in) + (attrs["fan_out"] or fan_out)
    return _scaled(k, 2.0 * attrs["gain"] ** 2 / max(total, 1))


he_random = _random(
    "he_random",
    "He's initial weights for rectified units: mean 0, variance 2 / ((1 + slope^2) fan_in)."
    + _FAN_DOC,
    (
        _FANS[0],
        _UNIFORM,
        AttrSpec("slope", "float", "slope of a leaky unit below zero", 0.0),
    ),
    source="He et al. 2015, Delving deep into rectifiers",
)


@he_random.kernel
def he_random_kernel(k: KernelArgs) -> Call:
    fan_in = k.attrs["fan_in"] or fans(k["out"].shape)[0]
    return _scaled(k, 2.0 / ((1.0 + k.attrs["slope"] ** 2) * max(fan_in, 1)))


orthogonal_random = _random(
    "orthogonal_random",
    "A random matrix with orthonormal rows or columns, whichever are fewer, times gain. With more"
    " than two dimensions, the first is the rows and the others together the columns.",
    (AttrSpec("gain", "float", "factor on the result", 1.0),),
    source="Saxe et al. 2014, Exact solutions to the nonlinear dynamics of learning",
)


@orthogonal_random.kernel
def orthogonal_random_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    generator = _generator(k)
    gain = k.attrs["gain"]
    rows = out.shape[0] if out.ndim else 1
    columns = out.size // rows if rows else 0
    tall = rows >= columns

    def run() -> None:
        if not out.size:
            return
        # QR gives orthonormal columns, so a wide matrix is made as a tall one and turned.
        shape = (rows, columns) if tall else (columns, rows)
        q, r = xp.linalg.qr(generator().standard_normal(shape))
        q *= xp.sign(xp.diagonal(r)) * gain  # the sign makes every rotation equally likely
        xp.copyto(out, (q if tall else q.T).reshape(out.shape), casting="same_kind")

    return run


bernoulli_random = _random(
    "bernoulli_random",
    "1 with probability p, else 0.",
    (AttrSpec("p", "float", "probability of a 1", 0.5, 0.0, 1.0),),
)


@bernoulli_random.kernel
def bernoulli_random_kernel(k: KernelArgs) -> Call:
    return draw_below(k, k["out"], k.attrs["p"])


def draw_below(k: KernelArgs, out: Any, p: float) -> Callable[[], None]:
    """1 with probability p, else 0, in `out`: the same ones whatever its dtype."""
    xp = k.xp
    generator = _generator(k)
    dtype = np.dtype("float32")
    drawn = out
    if out.dtype != dtype or not out.flags.c_contiguous:
        drawn = k.scratch(out.shape, dtype)
    bound = dtype.type(p)

    def run() -> None:
        # The shape besides `out`: without it CuPy draws one number and copies it everywhere.
        generator().random(drawn.shape, dtype, out=drawn)
        xp.less(drawn, bound, out=out)

    return run


# -- dropout -----------------------------------------------------------------------------------

dropout = operator(
    "dropout",
    doc="While training, sets elements to 0 with probability p and divides the others by 1 - p, so"
    " that the expected value stays; while testing, out = x. With `channels` that happens to whole"
    " channels of [N, C, ...].",
    inputs=[Slot("x", "any shape", not_in_gradient=True)],
    outputs=[
        Slot("out", "shape of x", not_in_gradient=True, inplace="x"),
        Slot(
            "mask", "shape of x, or [N, C, 1 ...] for channels: 0 or 1 / (1 - p)", intermediate=True
        ),
    ],
    attrs=[
        AttrSpec("p", "float", "probability of a zero", 0.5, 0.0, 1.0),
        AttrSpec("channels", "bool", "all elements of a channel share one fate", False),
        _SEED,
    ],
    source="Srivastava et al. 2014, Dropout; scaled while training, as in PyTorch; channels:"
    " Tompson et al. 2015, Efficient object localization using convolutional networks",
    random=True,
)


@dropout.shape_rule
def dropout_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x")
    if s.attrs["channels"] and len(x) < 3:
        s.fail("channels=True wants x [N, C, ...] with at least 3 dimensions")
    s.set("out", (x, dtype))
    s.set("mask", (_mask_shape(x, s.attrs["channels"]), dtype))


def _mask_shape(x: Sequence[int], channels: bool) -> tuple[int, ...]:
    return (*x[:2], *(1,) * (len(x) - 2)) if channels else tuple(x)


def _drops(k: KernelArgs) -> bool:
    return k.train and k.attrs["p"] > 0


@dropout.kernel
def dropout_kernel(k: KernelArgs) -> Call:
    multiply = k.xp.multiply
    x = k["x"]
    out = k["out"]
    p = k.attrs["p"]
    if not _drops(k):
        return copier(k.xp, x, out)
    mask = k.get("mask")
    if mask is None:
        mask = k.scratch(_mask_shape(x.shape, k.attrs["channels"]), x.dtype)
    draw = draw_below(k, mask, 1 - p)
    # With p = 1 nothing is kept, and 1 / (1 - p) would be infinite.
    scale = x.dtype.type(1 / (1 - p) if p < 1 else 0)

    def run() -> None:
        draw()
        # The mask takes the factor, so that the gradient is a single product.
        multiply(mask, scale, out=mask)
        multiply(x, mask, out=out)

    return run


@dropout.backward("x", inplace={"x_grad": "out_grad"})
def dropout_grad_kernel(k: KernelArgs) -> Call:
    if not _drops(k):
        return copier(k.xp, k["out_grad"], k["x_grad"])
    return partial(k.xp.multiply, k["out_grad"], k["mask"], out=k["x_grad"])
