"""Arithmetic of sliding windows, for convolutions and poolings.

Along one axis, tap `k` of the window at output position `p` reads the input at
`p * stride + k * dilation - before`, where `before` and `after` are the padding at the two ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any, TypeVar

from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.ir.registry import AttrSpec, Slot

Value = TypeVar("Value")

STRIDE = AttrSpec(
    "stride", "ints", "step of the window: one value, or one an axis", (1,), minimum=1
)
DILATION = AttrSpec(
    "dilation", "ints", "distance of the window's taps: one value, or one an axis", (1,), minimum=1
)
PADDING = AttrSpec(
    "padding",
    "ints",
    "zeros added at both ends: one value, one an axis, or all begins and then all ends",
    (0,),
    minimum=0,
)
PADDING_ALGORITHM = AttrSpec(
    "padding_algorithm",
    "string",
    "`explicit`: as `padding` says; `valid`: none; `same`: the least that gives ceil(S / stride)"
    " positions, the greater part at the end (TensorFlow's SAME, ONNX's SAME_UPPER)",
    "explicit",
    choices=("explicit", "same", "valid"),
)


SPATIAL = {1: "L", 2: "H, W", 3: "D, H, W"}
"""Number of spatial axes -> what they are called in shapes."""


WINNERS = Slot(
    "index", "winning tap of each pass along an axis, last one first; flat", intermediate=True
)


@dataclass(frozen=True)
class Axis:
    """A sliding window along one axis."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def extent(self) -> int:
        """Number of inputs from the first tap to the last."""
        return (self.kernel - 1) * self.dilation + 1

    def positions(self, size: int, ceil_mode: bool = False) -> int:
        """Number of window positions over `size` inputs; not positive where none fits.

        With `ceil_mode` a last window may hang over the end, if it starts before the end padding.
        """
        room = size + self.before + self.after - self.extent
        if not ceil_mode:
            return room // self.stride + 1
        count = -(-room // self.stride) + 1
        return count - 1 if (count - 1) * self.stride >= size + self.before else count

    def inverse(self, positions: int, output_padding: int = 0) -> int:
        """Number of inputs that a transposed convolution makes of `positions`."""
        covered = (positions - 1) * self.stride + self.extent + output_padding
        return covered - self.before - self.after

    def span(self, tap: int, size: int, positions: int) -> tuple[slice, slice]:
        """Where `tap` falls inside the input: slices of the positions and of the `size` inputs."""
        shift = tap * self.dilation - self.before
        # -(a // b) is -a / b rounded up.
        first = max(0, -(shift // self.stride))
        last = min(positions, (size - 1 - shift) // self.stride + 1)
        if last <= first:
            # Both empty: a start below 0 would count from the end.
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + shift
        stop = (last - 1) * self.stride + shift + 1
        return slice(first, last), slice(start, stop, self.stride)


def per_axis(s: ShapeArgs, name: str, rank: int) -> tuple[int, ...]:
    """An attribute of one value, or one an axis, as one an axis."""
    values = s.attrs[name]
    if len(values) not in (1, rank):
        s.fail(f"{name} wants 1 or {rank} values and has {len(values)}")
    return spread(values, rank)


def spread(values: Sequence[Value], rank: int) -> tuple[Value, ...]:
    """One value repeated for every axis; several as they are."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def check_attrs(s: ShapeArgs, rank: int) -> None:
    """Refuse strides, dilations and paddings whose number does not fit `rank` spatial axes."""
    for name in ("stride", "dilation"):
        if name in s.attrs and (name != "stride" or s.attrs[name]):
            per_axis(s, name, rank)
    if len(s.attrs["padding"]) not in {1, rank, 2 * rank}:
        count = len(s.attrs["padding"])
        s.fail(f"padding wants 1, {rank} or {2 * rank} values and has {count}")


def make_axes(attrs: dict, kernel: Sequence[int], sizes: Sequence[int]) -> tuple[Axis, ...]:
    """The windows of an operator's attributes, checked before, over one or more spatial axes.

    Args:
        kernel: taps along each axis. sizes: inputs along each axis; -1 where it is not known yet.
    """
    rank = len(kernel)
    # Poolings may leave the stride open: windows then stand side by side.
    strides = spread(attrs["stride"] or tuple(kernel), rank)
    dilations = spread(attrs.get("dilation", (1,)), rank)
    algorithm = attrs.get("padding_algorithm", "explicit")
    if algorithm == "same":
        totals = [
            max((-(-size // step) - 1) * step + Axis(k, step, d).extent - size, 0)
            for size, k, step, d in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        befores = [total // 2 for total in totals]
        afters = [total - before for total, before in zip(totals, befores, strict=True)]
    elif algorithm == "valid":
        befores = afters = [0] * rank
    else:
        padding = attrs["padding"]
        if len(padding) == 2 * rank:
            befores, afters = padding[:rank], padding[rank:]
        else:
            befores = afters = spread(padding, rank)
    return tuple(map(Axis, kernel, strides, dilations, befores, afters))


def tap_spans(
    axes: Sequence[Axis], sizes: Sequence[int], positions: Sequence[int]
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """The positions of every tap of a window over several axes, row-major; see `Axis.span`."""
    for taps in product(*(range(axis.kernel) for axis in axes)):
        spans = [
            axis.span(tap, size, count)
            for axis, tap, size, count in zip(axes, taps, sizes, positions, strict=True)
        ]
        yield tuple(span[0] for span in spans), tuple(span[1] for span in spans)


def winners_of(index: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The parts of `WINNERS` in these shapes, pass by pass; None for each where it is not there."""
    if index is None:
        return [None] * len(shapes)
    ends = [*accumulate(map(count, shapes), initial=0)]
    parts = zip(shapes, ends, ends[1:], strict=False)
    return [index[begin:end].reshape(shape) for shape, begin, end in parts]
