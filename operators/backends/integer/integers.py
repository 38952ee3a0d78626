"""Arrays of 8-bit integers that stand for reals, by loops in C (library "native")."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....framework.base.cpu.threads import most_threads
from ....framework.fusion import team
from ....framework.fusion.compiled import arguments, native
from ....framework.fusion.compiled.libraries import Library
from ....framework.ir.kernel_args import Call, KernelArgs
from ...base.calls import is_read
from ...base.integers import BYTES
from ...conv.pool import max_pool1d, max_pool2d
from ...conv.windows import Axis, make_axes, spread
from ...math import quantize as ops

_DTYPES = {*BYTES, np.dtype("float32")}
_WORK = 2
"""Work of an element."""


def whole(*arrays: Any) -> bool:
    """Whether arrays are of NumPy, each in one piece in some order of its axes; None is skipped."""
    given = [one for one in arrays if one is not None]
    return all(type(one) is np.ndarray and one.size and one.flags.aligned for one in given) and all(
        one.flags.c_contiguous or pixels_of(one) is not None for one in given
    )


def pixels_of(array: Any) -> Any:
    """The images [N, C, ...] of an array as [N, ..., C], where they lie so in memory, in one piece;
    None for others."""
    if array.ndim < 3:
        return None
    turned = np.moveaxis(array, 1, -1)
    return turned if turned.flags.c_contiguous else None


def alike(*arrays: Any) -> list[Any] | None:
    """Arrays of one shape as they lie in memory, each in one piece; None where they lie apart."""
    if len({one.shape for one in arrays}) > 1:
        return None
    if all(one.flags.c_contiguous for one in arrays):
        return [one.reshape(-1) for one in arrays]
    turned = [pixels_of(one) for one in arrays]
    return None if any(one is None for one in turned) else [one.reshape(-1) for one in turned]


def is_signed(array: Any) -> bool:
    """Whether 8-bit integers have a sign."""
    return array.dtype == np.int8


def _task(library: Library, name: str, work: int, **fields: Any) -> team.ParallelTask:
    return team.block_task(work, arguments.bind(library, name, **fields))


def _kernel(bind: Callable[[KernelArgs, Library], list[team.ParallelTask] | None]) -> Any:
    def kernel(k: KernelArgs) -> Call | None:
        library = native.load("integers")
        given = [k[slot] for slots in (k.op.inputs, k.op.outputs) for slot in slots]
        kinds = {one.dtype for one in given if one is not None}
        if library is None or not kinds <= _DTYPES or not whole(k["x"], k["out"]):
            return None
        tasks = bind(k, library)
        return None if tasks is None else team.run_together(tasks)

    return kernel


def _turned(planes: Any, pixels: Any) -> tuple[Any, Any, dict[str, int]] | None:
    """Arrays of one shape as they lie in memory, and the sizes of images [N, C, ...] of which one
    holds planes and the other one pixels; None for others."""
    together = alike(planes, pixels)
    if together is not None:
        return *together, {"images": 1, "channels": 1, "size": planes.size}
    turned = pixels_of(pixels)
    if not planes.flags.c_contiguous or turned is None:
        return None
    images, channels = planes.shape[:2]
    sizes = {"images": images, "channels": channels, "size": planes.size // (images * channels)}
    return planes, turned, sizes


def _quantize(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    return _quantizing(k, library, k["scale"], k.get("zero"))


def _quantizing(
    k: KernelArgs, library: Library, scale: Any, zero: Any
) -> list[team.ParallelTask] | None:
    turned = _turned(k["x"], k["out"])
    if turned is None:
        return None
    x, out, sizes = turned
    given = {"scale": scale, "zero": zero, "is_signed": is_signed(out), **sizes}
    return [_task(library, "quantize", _WORK * x.size, x=x, out=out, **given)]


def _dequantize(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    turned = _turned(k["out"], k["x"])
    if turned is None:
        return None
    out, x, sizes = turned
    given = {"scale": k["scale"], "zero": k.get("zero"), "is_signed": is_signed(x), **sizes}
    return [_task(library, "dequantize", _WORK * x.size, x=x, out=out, **given)]


def _dynamic(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    x, scale, zero = k["x"], k["scale"], k["zero"]
    then = _quantizing(k, library, scale, zero)
    if then is None:
        return None
    parts = most_threads()
    ranges = k.scratch((parts, 2), np.float32)
    flat = alike(x)
    if flat is None:
        return None
    found = _task(library, "range_of", x.size, count=x.size, parts=parts, x=flat[0], ranges=ranges)
    chosen = _task(library, "scale_of", 1, parts=parts, ranges=ranges, scale=scale, zero=zero)
    return [found, chosen, *then]


def _combine(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    x, y, out = k["x"], k["y"], k["out"]
    sizes = _repeated(x, y, out) if whole(y) else None
    if sizes is None:
        return None
    images, rows, columns = sizes
    fields: dict[str, Any] = {"images": images, "rows": rows, "columns": columns}
    for name, array in (("x", x), ("y", y)):
        is_one_row = array.size != out.size
        fields[f"{name}_image"] = columns if is_one_row else rows * columns
        fields[f"{name}_step"] = 0 if is_one_row else columns
    fields |= {f"{name}_scale": k[f"{name}_scale"] for name in ("x", "y", "out")}
    fields |= {f"{name}_zero": k.get(f"{name}_zero") for name in ("x", "y", "out")}
    multiplies = k.op.type == ops.quantized_mul.type
    fields |= {"multiplies": multiplies, "is_signed": is_signed(x)}
    arrays = dict(zip(("x", "y", "out"), map(_as_they_lie, (x, y, out)), strict=True))
    return [_task(library, "combine", _WORK * out.size, **fields, **arrays)]


def _as_they_lie(array: Any) -> Any:
    return (array if array.flags.c_contiguous else pixels_of(array)).reshape(-1)


def _repeated(x: Any, y: Any, out: Any) -> tuple[int, int, int] | None:
    """Images, rows and columns of a result, where of one factor each image has one row for all;
    None where the factors are repeated in another way or lie apart."""
    if alike(x, y, out) is not None:
        return 1, 1, out.size
    small, large = sorted((x, y), key=lambda array: array.size)
    if large.shape != out.shape or alike(large, out) is None:
        return None
    shape = (1,) * (out.ndim - small.ndim) + small.shape
    if len(shape) > out.ndim:
        return None
    sizes = out.shape
    if not out.flags.c_contiguous:  # channels lie last
        if small.size != max(shape) and pixels_of(small.reshape(shape)) is None:
            return None
        shape, sizes = ((*one[:1], *one[2:], one[1]) for one in (shape, sizes))
    elif not small.flags.c_contiguous:
        return None
    first, last = 0, len(sizes)
    while first < last and shape[first] == sizes[first]:
        first += 1
    while last > first and shape[last - 1] == sizes[last - 1]:
        last -= 1
    if any(size != 1 for size in shape[first:last]):
        return None
    return math.prod(sizes[:first]), math.prod(sizes[first:last]), math.prod(sizes[last:])


def _look_up(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    together = alike(k["x"], k["out"])
    if together is None or not k["table"].flags.c_contiguous:
        return None
    x, out = together
    work = _WORK * x.size
    return [_task(library, "look_up", work, count=x.size, x=x, table=k["table"], out=out)]


def _means(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    x, out = k["x"], k["out"]
    pixels = pixels_of(x)
    if pixels is None or not out.flags.c_contiguous:
        return None
    fields = {slot: k.get(slot) for slot in ("x_scale", "x_zero", "out_scale", "out_zero")}
    fields |= {"images": len(x), "channels": x.shape[1], "is_signed": is_signed(x)}
    count = x[0, 0].size
    fields |= {"pixels": count, "x_image": count * x.shape[1], "x_pixel": x.shape[1]}
    return [_task(library, "means_of", x.size, x=pixels, out=out.reshape(len(x), -1), **fields)]


def windows_of(axes: tuple[Axis, ...], x: Any, out: Any, *, dilates: bool) -> dict[str, Any]:
    """Fields of windows over images [N, ..., C] of one or two spatial axes, in one piece."""
    lift = (1,) * (2 - len(axes))
    down, right = (Axis(1), *axes) if lift else axes
    height, width = (*lift, *x.shape[1:-1])
    fields: dict[str, Any] = {"images": len(x), "height": height, "width": width}
    fields |= dict(zip(("high", "wide"), (*lift, *out.shape[1:-1]), strict=True))
    for way, axis in (("down", down), ("right", right)):
        fields |= {f"kernel_{way}": axis.kernel, f"stride_{way}": axis.stride}
        fields |= {f"before_{way}": axis.before}
        if dilates:
            fields[f"dilation_{way}"] = axis.dilation
    channels = x.shape[-1]
    fields |= {"x_pixel": channels, "x_row": width * channels}
    fields["x_image"] = height * fields["x_row"]
    return fields


def _most(k: KernelArgs, library: Library) -> list[team.ParallelTask] | None:
    x, out = pixels_of(k["x"]), pixels_of(k["out"])
    rank = k["x"].ndim - 2
    if x is None or out is None or (k.get("index") is not None and is_read(k, "index")):
        return None
    axes = make_axes(k.attrs, spread(k.attrs["kernel"], rank), k["x"].shape[2:])
    fields = windows_of(axes, x, out, dilates=False)
    fields |= {"channels": x.shape[-1], "is_signed": is_signed(x), "out_pixel": x.shape[-1]}
    taps = fields["kernel_down"] * fields["kernel_right"]
    return [_task(library, "most_of", out.size * taps, x=x, out=out, **fields)]


# The channels of images lie last where their convolutions and poolings ask for it; these take
# them so, too, as their references say, but gain nothing.
for _entry, _bind in (
    (ops.quantize_linear, _quantize),
    (ops.dequantize_linear, _dequantize),
    (ops.dynamic_quantize_linear, _dynamic),
    (ops.quantized_add, _combine),
    (ops.quantized_mul, _combine),
    (ops.byte_table, _look_up),
):
    _entry.kernel(_kernel(_bind), device="cpu", library="native")
_means_of = ops.quantized_global_avg_pool
_means_of.kernel(_kernel(_means), device="cpu", library="native", channels_last=(("x",),))
for _entry in (max_pool1d, max_pool2d):
    _entry.kernel(
        _kernel(_most),
        device="cpu",
        dtypes=BYTES,
        library="native",
        channels_last=(("x",), ("out",)),
    )
