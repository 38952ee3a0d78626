"""Convolutions and poolings by kernels that gather or reduce whole windows (library "cuda").

A convolution is one kernel that gathers its windows, and one product; CuPy's own calls would copy
tap by tap. The largest convolutions gather some images at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import count
from ....framework.fusion.cuda.cublas import multiply
from ....framework.fusion.cuda.device_kernels import cuda_text, elementwise, takes
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import lookup
from ...conv.conv import conv1d, conv2d, conv3d
from ...conv.pool import avg_pool1d, avg_pool2d, avg_pool3d, max_pool1d, max_pool2d, max_pool3d
from ...conv.windows import Axis, make_axes, spread, winners_of

_GATHERED = 1 << 26
"""Elements of gathered windows that are kept at a time: 256 MB of float32."""
_MOST = 1 << 31
"""Elements beyond which places do not fit into 32 bits."""


class _Windows:
    """The windows of one operator: their axes and its kernels.

    Args:
        axes: of its spatial axes. inputs, positions: sizes of these, before and after.
    """

    def __init__(
        self,
        k: KernelArgs,
        axes: tuple[Axis, ...],
        inputs: tuple[int, ...],
        positions: tuple[int, ...],
    ) -> None:
        self._k = k
        self.taps = count([axis.kernel for axis in axes])
        self.positions = count(positions)
        self.inputs = count(inputs)
        # What a window reads is the input itself.
        self.plain = inputs == positions and all(axis == Axis(1) for axis in axes)
        missing = 3 - len(axes)
        rows = [(1, 1, 1, 1, 1, 0, 0)] * missing
        for axis, size, places in zip(axes, inputs, positions, strict=True):
            steps = axis.stride, axis.dilation, axis.before, axis.after
            rows.append((size, places, axis.kernel, *steps))
        self._axes = k.xp.asarray(np.array(rows, np.int64))

    def call(self, name: str, arrays: tuple[Any, ...], size: int, *numbers: int) -> Call:
        """A call of a kernel over the `size` elements of its result."""
        text, winners = cuda_text("windows"), [a.dtype.name for a in arrays if a is not None]
        text = text.replace("WINNER", "int32" if "int32" in winners else "uint8")
        given = (*arrays, self._axes, np.int64(size), *map(np.int64, numbers))
        return elementwise(self._k.xp, text, name, arrays[0].dtype, size, given)


def _fits(*arrays: Any) -> bool:
    """Whether kernels take the arrays, the first of which has elements of their type."""
    given = [array for array in arrays if array is not None]
    return takes(*given) and all(0 < array.size < _MOST for array in given)


# -- convolutions ----------------------------------------------------------------------------------


class _Convolution:
    """The arrays of a convolution as stacks of matrices.

    x [N, G, C/G, inputs], small [N, G, O/G, positions], w [G, O/G, C/G * taps]

    Attributes:
        fits: whether kernels can count the windows of a single image.
    """

    def __init__(self, k: KernelArgs, small: str) -> None:
        self.k, xp = k, k.xp
        x, w, out = k.shape("x"), k["w"], k.shape(small)
        axes = make_axes(k.attrs, w.shape[2:], x[2:])
        self.windows = windows = _Windows(k, axes, x[2:], out[2:])
        self.groups = groups = k.attrs["groups"]
        self.images, self.channels = x[:2]
        self.matrix = w.reshape(groups, w.shape[0] // groups, -1)
        self.depth = self.channels * windows.taps
        self.multiply = partial(multiply, xp)
        most = max(_GATHERED // max(self.depth * windows.positions, 1), 1)
        steps = range(0, self.images, most)
        self.chunks = [slice(at, min(at + most, self.images)) for at in steps]
        self.chunk = min(most, self.images)
        self.fits = self.depth * windows.positions < _MOST

    def split(self, array: Any) -> Any:
        """[N, channels, ...] as [N, G, channels / G, ...]."""
        return array.reshape(array.shape[0], self.groups, array.shape[1] // self.groups, -1)

    def gathered(self, cols: Any, x: Any, apart: bool = False) -> tuple[Any, Call | None]:
        """The windows of some images as matrices, and the call that gathers them into `cols`."""
        windows, images = self.windows, len(x)
        if windows.plain and not apart:
            return self.split(x), None
        size = images * self.depth * windows.positions
        numbers = images, self.channels, int(apart)
        lead = (self.groups, -1, images) if apart else (images, self.groups, -1)
        found = cols[:size].reshape(*lead, windows.positions)
        return found, windows.call("gather_windows", (x, cols), size, *numbers)

    def cols(self) -> Any:
        return self.k.scratch(
            (self.chunk * self.depth * self.windows.positions,), self.k["w"].dtype
        )


def _conv(k: KernelArgs) -> Call | None:
    x, w, b, out = k["x"], k["w"], k.get("b"), k["out"]
    if not _fits(x, w, out, b) or x.dtype != w.dtype:
        return None
    conv = _Convolution(k, "out")
    if not conv.fits:
        return None
    cols = None if conv.windows.plain else conv.cols()
    calls: list[Call | None] = []
    for chunk in conv.chunks:
        windows, gather = conv.gathered(cols, x[chunk])
        product = conv.multiply(conv.matrix[None], windows, conv.split(out[chunk]))
        calls += [gather, product]
    if b is not None:
        bias = b.reshape(-1, *(1,) * (out.ndim - 2))
        calls.append(partial(k.xp.add, out, bias, out))
    return in_order(*calls)


def _conv_grad(k: KernelArgs) -> Call | None:
    grad, w = k["out_grad"], k["w"]
    x, w_grad, b_grad = k.get("x"), k.get("w_grad"), k.get("b_grad")
    if not _fits(grad, w, x, w_grad, b_grad, k.get("x_grad")) or grad.dtype != w.dtype:
        return None
    conv = _Convolution(k, "out_grad")
    if not conv.fits:
        return None
    cols = conv.cols()
    calls: list[Call | None] = []
    if w_grad is not None:
        calls += _weights(conv, cols)
    if b_grad is not None:
        axes = (0, *range(2, grad.ndim))
        calls.append(partial(k.xp.sum, grad, axis=axes, out=b_grad))
    if k.get("x_grad") is not None:
        calls += _large(conv, cols)
    return in_order(*calls)


def _weights(conv: _Convolution, cols: Any) -> Iterator[Call | None]:
    """Calls for w_grad: one product over the positions of all images at once."""
    k, groups, places = conv.k, conv.groups, conv.windows.positions
    w_grad = k["w_grad"].reshape(groups, conv.matrix.shape[1], -1)
    turned = k.scratch((w_grad.shape[0] * w_grad.shape[1] * conv.chunk * places,), w_grad.dtype)
    part = w_grad if len(conv.chunks) == 1 else k.scratch(w_grad.shape, w_grad.dtype)
    for number, chunk in enumerate(conv.chunks):
        x, grad = k["x"][chunk], conv.split(k["out_grad"][chunk])
        windows, gather = conv.gathered(cols, x, apart=True)
        yield gather
        images = len(x)
        small = turned[: grad.size].reshape(groups, -1, images, places)
        yield partial(k.xp.copyto, small, grad.transpose(1, 2, 0, 3))
        left = small.reshape(groups, -1, images * places)
        right = windows.reshape(groups, -1, images * places).swapaxes(1, 2)
        yield conv.multiply(left, right, part if number else w_grad)
        if number:
            yield partial(k.xp.add, w_grad, part, w_grad)


def _large(conv: _Convolution, cols: Any) -> Iterator[Call | None]:
    """Calls for x_grad: gradients of windows, then their sums at each place."""
    k, windows = conv.k, conv.windows
    weights = conv.matrix.swapaxes(1, 2)[None]
    for chunk in conv.chunks:
        x_grad, grad = k["x_grad"][chunk], conv.split(k["out_grad"][chunk])
        if windows.plain:
            yield conv.multiply(weights, grad, conv.split(x_grad))
            continue
        size = len(x_grad) * conv.depth * windows.positions
        shape = len(x_grad), conv.groups, -1, windows.positions
        yield conv.multiply(weights, grad, cols[:size].reshape(shape))
        yield windows.call("sum_windows", (cols, x_grad), x_grad.size)


# -- poolings --------------------------------------------------------------------------------------


def _pooling(k: KernelArgs, large: str, small: str) -> tuple[_Windows, tuple[Axis, ...]]:
    inputs, positions = k.shape(large)[2:], k.shape(small)[2:]
    axes = make_axes(k.attrs, spread(k.attrs["kernel"], len(inputs)), inputs)
    return _Windows(k, axes, inputs, positions), axes


def _winners(k: KernelArgs, axes: tuple[Axis, ...], x: Any, out: Any) -> list[Any]:
    """The winners of three axes, the last one first; None for those without any."""
    shapes, found = [], {}
    shape = tuple(x)
    places = [place for place in range(len(x) - 1, 1, -1) if axes[place - 2] != Axis(1)]
    for place in places:
        shape = (*shape[:place], out[place], *shape[place + 1 :])
        shapes.append(shape)
    found = dict(zip(places, winners_of(k.get("index"), shapes), strict=True))
    return [found.get(len(x) - 1 - number) for number in range(3)]


def _max_pool(k: KernelArgs) -> Call | None:
    x, out = k["x"], k["out"]
    if not _fits(x, out):
        return None
    windows, axes = _pooling(k, "x", "out")
    winners = _winners(k, axes, x.shape, out.shape)
    return windows.call("max_of_windows", (x, out, *winners), out.size)


def _max_pool_grad(k: KernelArgs) -> Call | None:
    grad, x_grad = k["out_grad"], k["x_grad"]
    if not _fits(grad, x_grad):
        return None
    windows, axes = _pooling(k, "x_grad", "out_grad")
    winners = _winners(k, axes, x_grad.shape, grad.shape)
    return windows.call("max_of_windows_grad", (grad, *winners, x_grad), x_grad.size)


def _mean_pool(name: str, large: str, small: str) -> Callable[[KernelArgs], Call | None]:
    source, target = (large, small) if large == "x" else (small, large)

    def bind(k: KernelArgs) -> Call | None:
        if not _fits(k[source], k[target]):
            return None
        windows, _ = _pooling(k, large, small)
        numbers = k[target].size, int(k.attrs["count_include_pad"])
        return windows.call(name, (k[source], k[target]), *numbers)

    return bind


_mean = _mean_pool("mean_of_windows", "x", "out")
_mean_grad = _mean_pool("mean_of_windows_grad", "x_grad", "out_grad")

for _entries, *_kernels in (
    ((conv1d, conv2d, conv3d), _conv, _conv_grad),
    ((max_pool1d, max_pool2d, max_pool3d), _max_pool, _max_pool_grad),
    ((avg_pool1d, avg_pool2d, avg_pool3d), _mean, _mean_grad),
):
    for _entry in _entries:
        for _own, _kernel in zip((_entry, lookup(f"{_entry.type}_grad")), _kernels, strict=True):
            _own.kernel(_kernel, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
