"""Convolution and max-pooling of images that lie as vectors in the rows of a matrix.

An image [X, Y, Z] is a row with index (Y Z) x + Z y + z ("zyx"), or (Y Z) x + Y z + y ("yzx").
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order, reducing
from .lowering import OUT, Recipe, X, lowers

_SOURCE = "Kaldi: nnet3/nnet-combined-component.cc"
_ORDERS = ("yzx", "zyx")
CHUNK_BYTES = 32 << 20
"""Memory that patches may take at a time."""


@lowers("ConvolutionComponent")
def lower_convolution_component(component: Any, recipe: Recipe) -> None:
    c = component
    attrs = {
        "size": [int(c.input_x_dim), int(c.input_y_dim), int(c.input_z_dim)],
        "filter": [int(c.filt_x_dim), int(c.filt_y_dim)],
        "step": [int(c.filt_x_step), int(c.filt_y_step)],
        "order": _ORDERS[c.input_vectorization],
    }
    w = recipe.parameter("filter_params", c.filter_params)
    b = recipe.parameter("bias_params", c.bias_params)
    recipe.op("nnet3.convolution", OUT, attrs=attrs, x=X, w=w, b=b)


@lowers("MaxpoolingComponent")
def lower_maxpooling_component(component: Any, recipe: Recipe) -> None:
    c = component
    attrs = {
        "size": [int(c.input_x_dim), int(c.input_y_dim), int(c.input_z_dim)],
        "pool": [int(c.pool_x_size), int(c.pool_y_size), int(c.pool_z_size)],
        "step": [int(c.pool_x_step), int(c.pool_y_step), int(c.pool_z_step)],
    }
    recipe.op("nnet3.max_pool", OUT, attrs=attrs, x=X)


def _positions(s: ShapeArgs, window: str) -> list[int]:
    """Places that a window takes along each axis."""
    size, attrs = s.attrs["size"], s.attrs
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
        AttrSpec("order", "string", "order of y and z in a row", "zyx", choices=_ORDERS),
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


def chunks_of(rows: int, row_bytes: int) -> list[slice]:
    """Ranges of rows whose patches fit into `CHUNK_BYTES`."""
    step = max(1, CHUNK_BYTES // max(row_bytes, 1))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


@convolution.kernel
def convolution_kernel(k: KernelArgs) -> Call:
    xp, w, b, out = k.xp, k["w"], k["b"], k["out"]
    patches = _patches(k["x"], k.attrs, xp)
    pools, taps = patches.shape[1] * patches.shape[2], w.shape[1]
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
    xp, w, x_grad, w_grad = k.xp, k["w"], k.get("x_grad"), k.get("w_grad")
    filters, taps = w.shape
    grad, calls = k["out_grad"], []
    rows_total, pools = grad.shape[0], _windows(k.attrs)
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
    xp, places = k.xp, _places(k["x"], k.attrs)
    out = k["out"].reshape(places[0].shape)
    first = partial(xp.copyto, out, places[0])
    return in_order(first, *(partial(xp.maximum, out, place, out=out) for place in places[1:]))


@max_pool.backward("x")
def max_pool_grad_kernel(k: KernelArgs) -> Call:
    xp, x_grad = k.xp, k["x_grad"]
    places, targets = _places(k["x"], k.attrs), _places(x_grad, k.attrs)
    out, grad = (k[slot].reshape(places[0].shape) for slot in ("out", "out_grad"))
    equal, share = k.scratch(out.shape, bool), k.scratch(out.shape, out.dtype)

    def spread() -> None:
        x_grad.fill(0)
        for place, target in zip(places, targets, strict=True):
            xp.equal(place, out, out=equal)
            xp.multiply(grad, equal, out=share)
            xp.add(target, share, target)

    return spread
