"""Interpolation: images, volumes and signals made larger or smaller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from ...framework.base.sizes.dims import Dim
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .axis_map import AxisMap, apply_maps
from .windows import per_axis, spread

_RANKS = {"bilinear": 2, "trilinear": 3, "bicubic": 2}
_KINDS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_SHORT = 64
"""Denominators up to which a factor of a size has all its digits in every product."""
_TOO_LARGE = 2.0**64  # of no array is an axis as long
_SMALL_IMAGE = 128
"""Sides together of images that PyTorch makes by another loop, which knows sizes alone."""
_CUBIC = -0.75  # the coefficient of the cubic convolution, PyTorch's

interpolate = operator(
    "interpolate",
    doc="Interpolation of [N, C, ...] along all spatial axes, to another `size`, to the sizes of"
    " `like`, or by a factor `scale`: upsampling and downsampling. An axis of S places becomes one"
    " of floor(S * scale). Place p lies at (p + 0.5) * r - 0.5 of x, where r is 1 / scale, or"
    " S / size; with align_corners at p * (S - 1) / (size - 1), so that the corners are the same;"
    " `nearest` takes floor(p * r). As in PyTorch r is S / size in mode `linear` where a factor"
    " leaves a size as it is, and in mode `nearest` where it keeps or doubles a side of an image of"
    " which the new sides are at most 128 together.",
    inputs=[
        Slot("x", "[N, C, ...], floats", not_in_gradient=True),
        Slot(
            "like",
            "of as many axes as x; out has its spatial sizes, and its values are not read",
            optional=True,
            not_in_gradient=True,
            shape_only=True,
        ),
    ],
    outputs=[Slot("out", "[N, C, ...], new spatial sizes", not_in_gradient=True)],
    attrs=[
        AttrSpec("size", "ints", "of the spatial axes: one value, or one an axis", (), minimum=1),
        AttrSpec("scale", "floats", "factor of the sizes: one value, or one an axis", ()),
        AttrSpec(
            "mode",
            "string",
            "`nearest`, `linear`, `cubic`, or with the number of axes `bilinear`, `trilinear`,"
            " `bicubic`",
            "nearest",
            choices=("nearest", "linear", "cubic", *_KINDS),
        ),
        AttrSpec("align_corners", "bool", "the corners of x and out are the same places", False),
    ],
    source="R. Keys 1981, Cubic convolution interpolation; names and numbers as in PyTorch",
)


@interpolate.shape_rule
def interpolate_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x")
    rank = len(x) - 2
    mode = s.attrs["mode"]
    if rank < 1:
        s.fail("x wants at least 3 dimensions")
    if _RANKS.get(mode, rank) != rank:
        s.fail(f"mode {mode!r} wants {_RANKS[mode]} spatial axes, and x has {rank}")
    if s.attrs["align_corners"] and mode == "nearest":
        s.fail("align_corners is for linear and cubic modes, not for nearest")
    like = s["like"] if s.has("like") else None
    if bool(s.attrs["size"]) + bool(s.attrs["scale"]) + (like is not None) != 1:
        s.fail("give one of size, scale and like")
    if 0 in x[2:]:
        s.fail("x has a spatial axis of size 0")
    sizes: Sequence[Any]
    if like is not None:
        s.same("the ranks of x and like", len(x), len(like))
        sizes = like[2:]
        if 0 in sizes:
            s.fail("like has a spatial axis of size 0")
    elif s.attrs["size"]:
        sizes = per_axis(s, "size", rank)
    else:
        scales = per_axis(s, "scale", rank)
        if not all(0 < scale < inf for scale in scales):
            s.fail(f"scale={list(scales)} is not above 0 and finite")
        sizes = tuple(
            -1 if n < 0 else _scaled(n, scale) for n, scale in zip(x[2:], scales, strict=True)
        )
        if 0 in sizes:
            s.fail(f"scale={list(scales)} leaves nothing of the spatial sizes {list(x[2:])}")
    s.set("out", ((*x[:2], *sizes), dtype))


def _scaled(size: Any, scale: float) -> Any:
    """A size times a factor, rounded down; exact for sizes that vary if the factor is a short
    fraction."""
    up, down = scale.as_integer_ratio()
    if isinstance(size, Dim) and down <= _SHORT:
        return size * up // down
    # A product may be infinite; this, too, is refused as larger than any array.
    return int(min(int(size) * scale, _TOO_LARGE))


def taps_of(mode: str) -> int:
    """How many places of x a place of out reads, along an axis."""
    return _TAPS[_KINDS.get(mode, mode)]


def _places(before: int, after: int, scale: float, aligned: bool) -> np.ndarray:
    """Where in x each place of out lies."""
    positions = np.arange(after)
    if aligned:
        return positions * ((before - 1) / (after - 1) if after > 1 else 0.0)
    return (positions + 0.5) * (1 / scale if scale else before / after) - 0.5


def _axis_map(kind: str, before: int, after: int, scale: float, aligned: bool) -> AxisMap:
    """The map along one axis; `scale` 0: as the sizes say."""
    last = before - 1
    if kind == "nearest":
        # In float32 as PyTorch does: a product just below a whole number decides the place.
        ratio = np.float32(1 / scale if scale else before / after)
        places = np.floor(np.arange(after, dtype=np.float32) * ratio)
        return AxisMap.of(before, places.clip(0, last).astype(int)[None], np.ones((1, after)))
    at = _places(before, after, scale, aligned)
    if kind == "linear":
        # As in PyTorch: places before the first one take its value.
        at = at.clip(0, None)
        low = np.floor(at).clip(None, last)
        rest = (at - low).clip(0, 1)
        taps = [low, low + 1]
        weights = [1 - rest, rest]
    else:
        # Taps beyond the edge are clipped to it below, and `AxisMap.of` adds up their weights.
        low = np.floor(at)
        rest = at - low
        taps = [low - 1, low, low + 1, low + 2]
        weights = [_far(rest + 1), _near(rest), _near(1 - rest), _far(2 - rest)]
    return AxisMap.of(before, np.stack(taps).clip(0, last).astype(int), np.stack(weights))


def _near(distance: np.ndarray) -> np.ndarray:
    """Weight of a place at a distance of at most 1."""
    return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1


def _far(distance: np.ndarray) -> np.ndarray:
    """Weight of a place at a distance from 1 to 2."""
    return _CUBIC * (((distance - 5) * distance + 8) * distance - 4)


def scales_of(attrs: Mapping[str, Any], before: Sequence[Any], after: Sequence[Any]) -> list[float]:
    """The factors of the spatial axes by which places are found; 0 where the sizes say them.

    Args:
        before, after: shapes of x and out.
    """
    rank = len(before) - 2
    kind = _KINDS.get(attrs["mode"], attrs["mode"])
    scales = [float(scale) for scale in spread(attrs["scale"] or (0.0,), rank)]
    small = None
    for axis, scale in enumerate(scales):
        if scale.is_integer():  # it says the same as the sizes
            continue
        old, new = before[2 + axis], after[2 + axis]
        if kind == "linear" and new == old:
            scales[axis] = 0.0
        elif kind == "nearest" and rank == 2:
            small = after[2] + after[3] <= _SMALL_IMAGE if small is None else small
            if small and (new == old or new == 2 * old):
                scales[axis] = 0.0
    return scales


def _maps(k: KernelArgs, before: Sequence[int], after: Sequence[int]) -> list[AxisMap]:
    mode = str(k.attrs["mode"])
    aligned = k.attrs["align_corners"]
    scales = scales_of(k.attrs, before, after)
    return [
        _axis_map(_KINDS.get(mode, mode), size, positions, scale, aligned)
        for size, positions, scale in zip(before[2:], after[2:], scales, strict=True)
    ]


@interpolate.kernel
def interpolate_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    return apply_maps(k, _maps(k, x.shape, out.shape), x, out)


@interpolate.backward("x")
def interpolate_grad_kernel(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    return apply_maps(k, _maps(k, x_grad.shape, grad.shape), grad, x_grad, transposed=True)
