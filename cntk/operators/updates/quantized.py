"""Gradients that travel between ranks in few bits; what rounding loses is added the next time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....framework.base.communicator import SingleCommunicator
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator

SOURCE = (
    "Seide, Fu, Droppo, Li and Yu 2014, 1-bit stochastic gradient descent and its application to"
    " data-parallel distributed training of speech DNNs; CNTK: Source/Math/ColumnQuantizer.h"
)
_DEVIATIONS = 4.0  # that the range of several bits reaches to both sides
_SMALLEST = 1e-36  # range

quantized_all_reduce = operator(
    "cntk.quantized_all_reduce",
    doc=(
        "Sum over all ranks of values that travel in few bits. Each rank adds what rounding lost"
        " the last time (`error`) to x and rounds it, row by row of the last axis, to 2^bits"
        " numbers; the sums are rounded once more, with an error of their own (`sum_error`), equal"
        " on all ranks. With 1 bit a number says whether a value is below 0 (`zero`), or below the"
        " mean of its row, and stands for the mean of such values; with more bits numbers lie"
        " evenly within four standard deviations."
    ),
    inputs=[
        Slot("x", "any shapes, one dtype", duplicable=True),
        Slot("error", "lost by this rank, shapes of x", duplicable=True),
        Slot("sum_error", "lost in the sums, shapes of x", duplicable=True),
    ],
    outputs=[
        Slot("out", "the sums", duplicable=True, inplace="x"),
        Slot("error_out", "lost now", duplicable=True, inplace="error"),
        Slot("sum_error_out", "lost now in the sums", duplicable=True, inplace="sum_error"),
    ],
    attrs=[
        AttrSpec("bits", "int", "of a number, a power of two", 1, minimum=1, maximum=32),
        AttrSpec("zero", "bool", "with 1 bit: whether 0 divides the two numbers", True),
    ],
    source=SOURCE,
    no_gradient="an update of parameters",
    world=True,
)


@quantized_all_reduce.shape_rule
def quantized_all_reduce_shape(s: ShapeArgs) -> None:
    specs = s.specs("x")
    bits = s.attrs["bits"]
    if bits & (bits - 1):
        s.fail(f"bits is a power of two, not {bits}")
    for slot in ("error", "sum_error"):
        given = s.specs(slot)
        s.same(f"the numbers of x and {slot}", len(specs), len(given))
        for (shape, dtype), (other, own) in zip(specs, given, strict=True):
            s.same_shape(f"x and {slot}", shape, other)
            if own != dtype or own.kind != "f":
                s.fail(f"x and {slot} want one dtype of floats and have {dtype} and {own}")
    for slot in ("out", "error_out", "sum_error_out"):
        s.set(slot, *specs)


@quantized_all_reduce.kernel
def quantized_all_reduce_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    state = k.state
    title = k.op.title()
    rounding = _Rounding(xp, k.attrs["bits"], k.attrs["zero"])
    slots = ("x", "error", "sum_error", "out", "error_out", "sum_error_out")
    parts = [[_rows(array) for array in k.list(slot)] for slot in slots]
    messages = [rounding.size(x) for x in parts[0]]
    sent = xp.empty(sum(messages), np.uint8)
    ends = np.cumsum(messages).tolist()
    places = [slice(end - size, end) for size, end in zip(messages, ends, strict=True)]

    def run() -> None:
        context = state.context
        ranks = None if context is None else context.communicator
        if ranks is None:
            ranks = SingleCommunicator()
        ranks.operator = title
        for x, error, lost, place in zip(parts[0], parts[1], parts[4], places, strict=True):
            value = x + error
            code = rounding.encode(value, sent[place])
            xp.subtract(value, code, lost)
        received = xp.empty((ranks.size, sent.size), np.uint8)
        ranks.all_gather(sent, received)
        for x, error, out, lost, place in zip(
            parts[0], parts[2], parts[3], parts[5], places, strict=True
        ):
            total = error.copy()
            for rank in range(ranks.size):
                total += rounding.decode(received[rank, place], x.shape, x.dtype)
            xp.copyto(out, rounding.encode(total, sent[place]))
            xp.subtract(total, out, lost)

    return run


def _rows(array: Any) -> Any:
    """An array as rows of its last axis: the columns of CNTK's matrix."""
    return array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


@dataclass(frozen=True)
class _Rounding:
    """Rows of numbers to bytes and back: the two ends of each row's range, then its numbers."""

    xp: Any
    bits: int
    zero: bool

    def size(self, rows: Any) -> int:
        """Bytes of a message."""
        return 2 * len(rows) * rows.itemsize + -(-rows.size * self.bits // 8)

    def encode(self, rows: Any, message: Any) -> Any:
        """Write the message of rows; what it stands for."""
        xp = self.xp
        ranges = 2 * len(rows) * rows.itemsize
        low, high = self._range(rows)
        ends = xp.concatenate([low, high])
        message[:ranges] = ends.reshape(-1).view(np.uint8)
        if self.bits == 1:
            limit = 0 if self.zero else (low + high) * rows.dtype.type(0.5)
            numbers = rows >= limit
        else:
            step = self._step(low, high)
            top = (1 << self.bits) - 1
            inside = xp.where(step > 0, (rows - low) / xp.where(step > 0, step, 1), 0)
            numbers = xp.clip(inside, 0, top).astype(np.uint64)
        message[ranges:] = self._packed(numbers)
        return self._meaning(numbers, low, high)

    def decode(self, message: Any, shape: tuple[int, int], dtype: np.dtype) -> Any:
        """What a message stands for."""
        ranges = 2 * shape[0] * dtype.itemsize
        low, high = self.xp.ascontiguousarray(message[:ranges]).view(dtype).reshape(2, -1, 1)
        numbers = self._unpacked(message[ranges:], shape[0] * shape[1]).reshape(shape)
        return self._meaning(numbers, low, high)

    def _range(self, rows: Any) -> tuple[Any, Any]:
        """The ends of the range of each row, [rows, 1]."""
        xp = self.xp
        real = rows.dtype.type
        count = max(rows.shape[1], 1)
        if self.bits > 1:
            reach = real(_DEVIATIONS) * xp.sqrt((rows * rows).sum(1, keepdims=True) / count)
            return -reach, reach
        mean = real(0) if self.zero else rows.sum(1, keepdims=True) / count
        below = rows < mean
        few = xp.maximum(below.sum(1, keepdims=True), 1).astype(rows.dtype)
        many = xp.maximum((~below).sum(1, keepdims=True), 1).astype(rows.dtype)
        low_mean = xp.where(below, rows, 0).sum(1, keepdims=True) / few
        high_mean = xp.where(below, 0, rows).sum(1, keepdims=True) / many
        if self.zero:
            middle = real(0.5) * (low_mean + high_mean)
            radius = 2 * (high_mean - middle)
        else:
            middle = mean
            radius = 2 * xp.abs(rows - mean).sum(1, keepdims=True) / count
        return middle - radius, middle + radius

    def _step(self, low: Any, high: Any) -> Any:
        """The distance of two neighboring numbers; 0 where a row has no range."""
        used = (1 << self.bits) - (self.bits > 1)
        return self.xp.where(high - low < _SMALLEST, 0, (high - low) / low.dtype.type(used))

    def _meaning(self, numbers: Any, low: Any, high: Any) -> Any:
        half = low.dtype.type(0.5)
        return (numbers.astype(low.dtype) + half) * self._step(low, high) + low

    def _packed(self, numbers: Any) -> Any:
        """Numbers as bytes, the first in the highest bits."""
        flat = numbers.reshape(-1)
        if self.bits == 1:
            return self.xp.packbits(flat)
        if self.bits >= 8:
            return flat.astype(f"u{self.bits // 8}").view(np.uint8)
        shifts = self.xp.arange(self.bits - 1, -1, -1, dtype=np.uint8)
        single = (flat.astype(np.uint8)[:, None] >> shifts) & 1
        return self.xp.packbits(single.reshape(-1))

    def _unpacked(self, data: Any, count: int) -> Any:
        if self.bits >= 8:
            return self.xp.ascontiguousarray(data).view(f"u{self.bits // 8}")
        single = self.xp.unpackbits(data)[: count * self.bits]
        if self.bits == 1:
            return single
        shifts = self.xp.arange(self.bits - 1, -1, -1, dtype=np.uint8)
        return (single.reshape(count, self.bits) << shifts).sum(1)
