"""Interpolation of signals and images, a row of the result after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.ir.kernel_args import Call, KernelArgs
from ..conv.interpolate import scales_of, taps_of
from .images import Work, rooms, steps, suited

_STEPS = "image", "channel", "row"
_TAPS = 4
"""Places of a row, and shares, that there is memory for."""


def interpolate(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays do not suit."""
    x, out = k["x"], k["out"]
    rank = x.ndim - 2
    if rank > 2 or not suited(x, out):
        return None
    scales = scales_of(k.attrs, x.shape, out.shape)
    if rank == 1:
        x, out, scales = x[:, :, None], out[:, :, None], [1.0, *scales]
    side = all(_has_pixels(array, array.shape[1]) for array in (x, out))
    if not side and not all(_has_pixels(array, 1) for array in (x, out)):
        return None
    images, channels, height, width = x.shape
    high, wide = out.shape[2:]
    inner = channels if side else 1
    line = width * inner
    parts = rooms(line * x.itemsize)
    fields: dict[str, Any] = {"images": images, "channels": channels, "inner": inner, "side": side}
    fields |= {"height": height, "width": width, "high": high, "wide": wide, "threads": parts}
    for name, array in (("x", x), ("out", out)):
        fields |= _steps(name, array, side)
    taps = taps_of(k.attrs["mode"])
    work = Work(x.dtype)
    work.add(
        *("interpolation", "interpolate", taps * out.size),
        **{"x": x, "out": out, "taps": taps, "aligned": k.attrs["align_corners"]},
        **{"scale_down": scales[0], "scale_right": scales[1]},
        line=k.scratch((parts, line), x.dtype),
        shares=k.scratch((parts, _TAPS * wide), x.dtype),
        places=k.scratch((parts, _TAPS * wide), "int64"),
        **fields,
    )
    return work.call()


def _has_pixels(array: Any, size: int) -> bool:
    """Whether the pixels of a row of images follow one another, of so many channels each."""
    _, channel, _, pixel = steps(array)
    side_by_side = size == 1 or channel == 1
    return side_by_side and (array.shape[3] == 1 or pixel == size)


def _steps(name: str, array: Any, side: bool) -> dict[str, int]:
    image, channel, row, _ = steps(array)
    own: Sequence[int] = image, 1 if side else channel, row
    return {f"{name}_{what}": step for what, step in zip(_STEPS, own, strict=True)}
