"""Convolution and max-pooling of images that lie as vectors in the rows of a matrix.

An image [X, Y, Z] is a row with index (Y Z) x + Z y + z ("zyx"), or (Y Z) x + Y z + y ("yzx").
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.base.blocks import chunks_of
from ....operators.base.calls import reducing
from ..base.component import Component, Properties, UpdatableComponent
from ..base.fields import BOOL, INT, MATRIX, VECTOR, Field
from ..base.initial import normal, read_matrix_file, split_bias
from ..base.keys import Computed, optional, required
from ..base.lowering import OUT, Recipe, X
from ..base.summary import parameter_stats

_P = Properties
_VECTORIZATIONS = ("yzx", "zyx")  # which dimension runs fastest; Kaldi's enum in this order
_IMAGE = ("input_x_dim", "input_y_dim", "input_z_dim")
_FILTER = ("filt_x_dim", "filt_y_dim", "filt_x_step", "filt_y_step")
_POOL = tuple(f"pool_{axis}_{what}" for what in ("size", "step") for axis in "xyz")
_SOURCE = "Kaldi: nnet3/nnet-combined-component.cc"


def _token(attr: str) -> str:
    """`<InputXDim>` for `input_x_dim`."""
    return "<" + "".join(part.capitalize() for part in attr.split("_")) + ">"


def _int_fields(*attrs: str) -> tuple[Field, ...]:
    return tuple(Field(_token(attr), INT, attr) for attr in attrs)


def _option(attr: str) -> str:
    return attr.replace("_", "-")


class ConvolutionComponent(UpdatableComponent):
    """A convolution over x and y of an image with z planes, which lies in one row.

    `filter_params` [filters, filt_x * filt_y * z], `bias_params` [filters]. The output holds, for
    each position (x slow, y fast), all filters.
    """

    input_x_dim: int
    input_y_dim: int
    input_z_dim: int
    filt_x_dim: int
    filt_y_dim: int
    filt_x_step: int
    filt_y_step: int
    input_vectorization: int
    filter_params: np.ndarray
    bias_params: np.ndarray

    own_fields = (
        *_int_fields(*_IMAGE, *_FILTER, "input_vectorization"),
        Field("<FilterParams>", MATRIX, "filter_params"),
        Field("<BiasParams>", VECTOR, "bias_params"),
        Field("<IsGradient>", BOOL, "is_gradient", default=False),
    )
    own_keys = (
        *required(int, *map(_option, _IMAGE + _FILTER)),
        *optional(int, num_filters=Computed("of the matrix")),
        *optional(str, input_vectorization_order="zyx", matrix=None),
        *optional(
            float,
            param_stddev=Computed("1 / sqrt(filt-x-dim * filt-y-dim * input-z-dim)"),
            bias_stddev=1.0,
        ),
    )
    trained = ("filter_params", "bias_params")
    flags = (
        _P.SIMPLE | _P.UPDATABLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_ADDS | _P.PROPAGATE_ADDS
    )

    @property
    def num_x_steps(self) -> int:
        """Positions of the filter along x."""
        return 1 + (self.input_x_dim - self.filt_x_dim) // self.filt_x_step

    @property
    def num_y_steps(self) -> int:
        """Positions of the filter along y."""
        return 1 + (self.input_y_dim - self.filt_y_dim) // self.filt_y_step

    @property
    def input_dim(self) -> int:
        return self.input_x_dim * self.input_y_dim * self.input_z_dim

    @property
    def output_dim(self) -> int:
        return self.num_x_steps * self.num_y_steps * self.filter_params.shape[0]

    @property
    def filter_dim(self) -> int:
        """Inputs of one filter."""
        return self.filt_x_dim * self.filt_y_dim * self.input_z_dim

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.set_attributes(o, *_IMAGE + _FILTER)
        self.check_image()
        order = o.input_vectorization_order
        self.demand(order in _VECTORIZATIONS, f"input-vectorization-order={order}: yzx or zyx")
        self.input_vectorization = _VECTORIZATIONS.index(order)
        if o.matrix is not None:
            self.demand(o.num_filters is None, "num-filters= does not go with matrix=")
            self.filter_params, self.bias_params = split_bias(read_matrix_file(o.matrix))
        else:
            self.demand(o.num_filters is not None, "wants num-filters= or matrix=")
            stddev = self.filter_dim**-0.5 if o.param_stddev is None else o.param_stddev
            self.filter_params = normal(rng, (o.num_filters, self.filter_dim), stddev)
            self.bias_params = normal(rng, o.num_filters, o.bias_stddev)

    def check_image(self) -> None:
        """Refuse filters that do not cover the image."""
        for name in _IMAGE + _FILTER:
            self.demand(getattr(self, name) > 0, f"{_option(name)} must be positive")
        for axis in "xy":
            image = getattr(self, f"input_{axis}_dim")
            size, step = getattr(self, f"filt_{axis}_dim"), getattr(self, f"filt_{axis}_step")
            self.demand(
                image >= size and (image - size) % step == 0,
                f"filters of {size} in steps of {step} do not cover input-{axis}-dim={image}",
            )

    def check(self) -> None:
        self.check_image()
        super().check()
        self.demand(self.input_vectorization in (0, 1), "unknown input-vectorization")
        filters, dim = self.filter_params.shape
        self.demand(dim == self.filter_dim, f"filters have {dim} inputs, not {self.filter_dim}")
        size = self.bias_params.size
        self.demand(size == filters, f"{filters} filters, but {size} biases")

    def info(self) -> str:
        text = super().info()
        for name in (*_IMAGE, *_FILTER, "input_vectorization"):
            text += f", {_option(name)}={getattr(self, name)}"
        text += f", num-filters={self.filter_params.shape[0]}"
        text += parameter_stats("filter-params", self.filter_params)
        return text + parameter_stats("bias-params", self.bias_params, mean=True)

    def lower(self, recipe: Recipe) -> None:
        attrs = {
            "size": [int(self.input_x_dim), int(self.input_y_dim), int(self.input_z_dim)],
            "filter": [int(self.filt_x_dim), int(self.filt_y_dim)],
            "step": [int(self.filt_x_step), int(self.filt_y_step)],
            "order": _VECTORIZATIONS[self.input_vectorization],
        }
        w = recipe.parameter("filter_params", self.filter_params)
        b = recipe.parameter("bias_params", self.bias_params)
        recipe.op("nnet3.convolution", OUT, attrs=attrs, x=X, w=w, b=b)


class MaxpoolingComponent(Component):
    """The maximum over boxes of an x, y, z image that lies in one row (z fastest)."""

    input_x_dim: int
    input_y_dim: int
    input_z_dim: int
    pool_x_size: int
    pool_y_size: int
    pool_z_size: int
    pool_x_step: int
    pool_y_step: int
    pool_z_step: int

    fields = _int_fields(*_IMAGE, *_POOL)
    keys = required(int, *map(_option, _IMAGE + _POOL))
    flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_NEEDS_OUTPUT | _P.BACKPROP_ADDS

    def num_pools(self, axis: str) -> int:
        """Boxes along `x`, `y` or `z`."""
        size, step = getattr(self, f"pool_{axis}_size"), getattr(self, f"pool_{axis}_step")
        return 1 + (getattr(self, f"input_{axis}_dim") - size) // step

    @property
    def input_dim(self) -> int:
        return self.input_x_dim * self.input_y_dim * self.input_z_dim

    @property
    def output_dim(self) -> int:
        return self.num_pools("x") * self.num_pools("y") * self.num_pools("z")

    def check(self) -> None:
        for name in _IMAGE + _POOL:
            self.demand(getattr(self, name) > 0, f"{_option(name)} must be positive")
        for axis in "xyz":
            image = getattr(self, f"input_{axis}_dim")
            size, step = getattr(self, f"pool_{axis}_size"), getattr(self, f"pool_{axis}_step")
            self.demand(
                image >= size >= step and (image - size) % step == 0,
                f"pools of {size} in steps of {step} do not cover input-{axis}-dim={image}",
            )

    def info(self) -> str:
        dims = (f", {_option(name)}={getattr(self, name)}" for name in _IMAGE + _POOL)
        return self.type + "".join(dims)

    def lower(self, recipe: Recipe) -> None:
        attrs = {
            "size": [int(self.input_x_dim), int(self.input_y_dim), int(self.input_z_dim)],
            "pool": [int(self.pool_x_size), int(self.pool_y_size), int(self.pool_z_size)],
            "step": [int(self.pool_x_step), int(self.pool_y_step), int(self.pool_z_step)],
        }
        recipe.op("nnet3.max_pool", OUT, attrs=attrs, x=X)


def _positions(s: ShapeArgs, window: str) -> list[int]:
    """Places that a window takes along each axis."""
    size = s.attrs["size"]
    attrs = s.attrs
    if len(size) != 3 or len(attrs[window]) != len(attrs["step"]):
        s.fail(f"size wants 3 numbers, and {window} as many as step")
    whole = [*attrs[window], *size[len(attrs[window]) :]]
    steps = [*attrs["step"], *(1 for _ in size[len(attrs["step"]) :])]
    for total, part, step in zip(size, whole, steps, strict=True):
        if part > total or (total - part) % step:
            s.fail(f"windows of {attrs[window]} in steps of {attrs['step']} do not cover {size}")
    cols = s.rank("x", 2)[1]
    s.same("the columns of x and the product of size", cols, size[0] * size[1] * size[2])
    return [1 + (t - p) // k for t, p, k in zip(size, whole, steps, strict=True)]


_SIZE = AttrSpec("size", "ints", "X, Y and Z of an image", minimum=1)

convolution = operator(
    "nnet3.convolution",
    doc=(
        "Convolution of the images in the rows of x [N, X*Y*Z] with F filters that span all of Z:"
        " w [F, FX*FY*Z], b [F] -> out [N, PX*PY*F], where PX = 1 + (X - FX) / SX."
    ),
    inputs=[
        Slot("x", "[N, X*Y*Z]"),
        Slot("w", "[F, FX*FY*Z]"),
        Slot("b", "[F]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, PX*PY*F]", not_in_gradient=True)],
    attrs=[
        _SIZE,
        AttrSpec("filter", "ints", "FX and FY", minimum=1),
        AttrSpec("step", "ints", "SX and SY: steps of the filter", minimum=1),
        AttrSpec("order", "string", "order of y and z in a row", "zyx", choices=_VECTORIZATIONS),
    ],
    source=_SOURCE,
)


@convolution.shape_rule
def convolution_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b")
    across, down, _ = _positions(s, "filter")
    filters, taps = s.rank("w", 2)
    filters = s.same("the rows of w and the length of b", filters, s.rank("b", 1)[0])
    wanted = s.attrs["filter"][0] * s.attrs["filter"][1] * s.attrs["size"][2]
    s.same("the columns of w and the size of a filter", taps, wanted)
    s.set("out", ((s["x"][0], across * down * filters if filters >= 0 else -1), dtype))


def _patches(array: Any, attrs: Any, xp: Any) -> Any:
    """Windows of the images [N, PX, PY, FX, FY, Z]: a view."""
    x, y, z = attrs["size"]
    rows = array.shape[0]
    if attrs["order"] == "zyx":
        images = array.reshape(rows, x, y, z)
    else:
        images = array.reshape(rows, x, z, y).swapaxes(2, 3)
    windows = xp.lib.stride_tricks.as_strided
    (fx, fy), (sx, sy) = attrs["filter"], attrs["step"]
    n, dx, dy, dz = images.strides
    shape = (rows, 1 + (x - fx) // sx, 1 + (y - fy) // sy, fx, fy, z)
    return windows(images, shape, (n, dx * sx, dy * sy, dx, dy, dz))


def _windows(attrs: Any) -> int:
    """How many windows an image has."""
    (x, y, _), (fx, fy), (sx, sy) = attrs["size"], attrs["filter"], attrs["step"]
    return (1 + (x - fx) // sx) * (1 + (y - fy) // sy)


@convolution.kernel
def convolution_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    w = k["w"]
    b = k["b"]
    out = k["out"]
    patches = _patches(k["x"], k.attrs, xp)
    pools = patches.shape[1] * patches.shape[2]
    taps = w.shape[1]
    chunks = chunks_of(len(out), pools * taps * out.itemsize)
    longest = max((c.stop - c.start for c in chunks), default=0)
    buffer = k.scratch((longest, *patches.shape[1:]), out.dtype)
    targets = out.reshape(len(out), pools, len(w))
    calls = []
    for rows in chunks:
        part = buffer[: rows.stop - rows.start]
        calls += [
            partial(xp.copyto, part, patches[rows]),
            partial(xp.matmul, part.reshape(len(part), pools, taps), w.T, out=targets[rows]),
        ]
    return in_order(*calls, partial(xp.add, targets, b, targets))


@convolution.backward("x", "w", "b")
def convolution_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    w = k["w"]
    x_grad = k.get("x_grad")
    w_grad = k.get("w_grad")
    filters, taps = w.shape
    grad = k["out_grad"]
    calls = []
    rows_total = grad.shape[0]
    pools = _windows(k.attrs)
    grad = grad.reshape(rows_total, pools, filters)
    if k.get("b_grad") is not None:
        calls.append(reducing(xp, grad, k["b_grad"]))
    if w_grad is not None:
        calls.append(partial(w_grad.fill, 0))
    if x_grad is not None:
        calls.append(partial(x_grad.fill, 0))
    chunks = chunks_of(rows_total, pools * taps * grad.itemsize)
    for rows in chunks:
        part = grad[rows]
        flat = k.scratch((part.shape[0] * pools, filters), grad.dtype)
        calls.append(partial(xp.copyto, flat.reshape(part.shape), part))
        if w_grad is not None:
            source = _patches(k["x"][rows], k.attrs, xp)
            buffer = k.scratch(source.shape, grad.dtype)
            share = k.scratch(w_grad.shape, grad.dtype)
            calls += [
                partial(xp.copyto, buffer, source),
                partial(xp.matmul, flat.T, buffer.reshape(len(flat), taps), out=share),
                partial(xp.add, w_grad, share, w_grad),
            ]
        if x_grad is not None:
            target = _patches(x_grad[rows], k.attrs, xp)
            spread = k.scratch(target.shape, grad.dtype)
            calls.append(partial(xp.matmul, flat, w, out=spread.reshape(len(flat), taps)))
            for i in range(target.shape[3]):  # windows overlap, their single places do not
                for j in range(target.shape[4]):
                    place = target[:, :, :, i, j]
                    calls.append(partial(xp.add, place, spread[:, :, :, i, j], place))
    return in_order(*calls)


max_pool = operator(
    "nnet3.max_pool",
    doc=(
        "Maximum over windows of the images in the rows of x [N, X*Y*Z] -> out [N, PX*PY*PZ]."
        " Elements that tie for the maximum each get the whole gradient."
    ),
    inputs=[Slot("x", "[N, X*Y*Z]")],
    outputs=[Slot("out", "[N, PX*PY*PZ]")],
    attrs=[
        _SIZE,
        AttrSpec("pool", "ints", "sizes of a window along x, y and z", minimum=1),
        AttrSpec("step", "ints", "steps of the window along x, y and z", minimum=1),
    ],
    source=_SOURCE,
)


@max_pool.shape_rule
def max_pool_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x")
    if len(s.attrs["pool"]) != 3:
        s.fail("pool wants 3 numbers")
    across, down, deep = _positions(s, "pool")
    s.set("out", ((s["x"][0], across * down * deep), dtype))


def _places(array: Any, attrs: Any) -> list[Any]:
    """For each place within a window, that element of all windows: views [N, PX, PY, PZ]."""
    size, pool, step = (np.array(attrs[name]) for name in ("size", "pool", "step"))
    images = array.reshape(array.shape[0], *(int(n) for n in size))
    ends = (size - pool) // step * step + 1
    return [
        images[(slice(None), *(slice(o, o + e, s) for o, e, s in zip(at, ends, step, strict=True)))]
        for at in np.ndindex(*pool)
    ]


@max_pool.kernel
def max_pool_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    places = _places(k["x"], k.attrs)
    out = k["out"].reshape(places[0].shape)
    first = partial(xp.copyto, out, places[0])
    return in_order(first, *(partial(xp.maximum, out, place, out=out) for place in places[1:]))


@max_pool.backward("x")
def max_pool_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x_grad = k["x_grad"]
    places = _places(k["x"], k.attrs)
    targets = _places(x_grad, k.attrs)
    out, grad = (k[slot].reshape(places[0].shape) for slot in ("out", "out_grad"))
    equal = k.scratch(out.shape, bool)
    share = k.scratch(out.shape, out.dtype)

    def spread() -> None:
        x_grad.fill(0)
        for place, target in zip(places, targets, strict=True):
            xp.equal(place, out, out=equal)
            xp.multiply(grad, equal, out=share)
            xp.add(target, share, target)

    return spread
