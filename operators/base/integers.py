"""What operators on 8-bit integers that stand for reals share: their slots, the end of their sums.

An integer q stands for scale * (q - zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import KernelArgs
from ...framework.ir.registry import Slot

BYTES = (np.dtype("uint8"), np.dtype("int8"))


def end_slots(outs: str) -> list[Slot]:
    """Slots of what becomes of the sums of an operator with so many results for each."""
    return [
        Slot("scale", f"[], [1] or [{outs}], floats", optional=True),
        Slot("bias", f"[{outs}], int32: added to the sums", optional=True),
        Slot("out_zero", "[] or [1], uint8 or int8: zero point of out", optional=True),
    ]


def end_dtype(s: ShapeArgs, first: str, second: str, outs: int) -> np.dtype:
    """Check the slots of a product of two slots; returns the dtype of its result."""
    for slot in (first, second):
        check_bytes(s, slot)
        check_zero(s, f"{slot}_zero", outs if slot == second else 1, s.dtype(slot))
    if s.has("bias"):
        s.same(f"the size of bias and the results, {outs}", s.rank("bias", 1)[0], outs)
        if s.dtype("bias") != np.int32:
            s.fail(f"bias wants dtype int32 and has {s.dtype('bias')}")
    if s.has("scale"):
        _check_few(s, "scale", outs)
        dtype = s.floats("scale")
    else:
        dtype = np.dtype("int32")
    if not s.has("out_zero"):
        return dtype
    if not s.has("scale"):
        s.fail("out_zero wants a scale as well")
    check_zero(s, "out_zero", 1)
    return s.dtype("out_zero")


def check_bytes(s: ShapeArgs, slot: str) -> None:
    """Refuse a slot that does not hold 8-bit integers."""
    if s.dtype(slot) not in BYTES:
        s.fail(f"{slot} wants dtype uint8 or int8 and has {s.dtype(slot)}")


def check_zero(s: ShapeArgs, slot: str, most: int, dtype: np.dtype | None = None) -> None:
    """Refuse zero points that are not one number or `most` numbers, of a dtype if it is given."""
    if not s.has(slot):
        return
    if dtype is None:
        check_bytes(s, slot)
    elif s.dtype(slot) != dtype:
        of = slot.removesuffix("_zero")
        s.fail(f"{slot} wants the dtype of {of}, {dtype}, and has {s.dtype(slot)}")
    _check_few(s, slot, most)


def _check_few(s: ShapeArgs, slot: str, most: int) -> None:
    if not (len(s[slot]) < 2 and {*s[slot]} <= {1, -1, most}):
        s.fail(f"{slot} wants shape [], [1] or [{most}] and has {list(s[slot])}")


def shifted(x: Any, zero: Any, shape: Sequence[int] = ()) -> Any:
    """Integers less their zero points, as float64; `shape`: of several zero points."""
    if zero is None:
        return x.astype(np.float64)
    wide = zero.astype(np.float64)
    return x - (wide.reshape(shape) if shape and wide.size > 1 else wide)


def as_bytes(xp: Any, values: Any, zero: Any, out: Any) -> None:
    """Write floats, in units of the scale of `out`, as 8-bit integers; half is rounded to even."""
    info = np.iinfo(out.dtype)
    shift = 0 if zero is None else zero.astype(values.dtype)
    whole = xp.rint(xp.clip(values, info.min - shift, info.max - shift)) + shift
    out[...] = whole.astype(out.dtype)


class EndOfSums:
    """What becomes of exact sums, as `end_slots` says.

    Args:
        ones: sizes of the axes of the sums after the axis of the results.
    """

    def __init__(self, k: KernelArgs, ones: Sequence[int]) -> None:
        self._xp = k.xp
        self._ones = (-1, *ones)
        self._scale, self._bias, self._zero = map(k.get, ("scale", "bias", "out_zero"))

    def __call__(self, sums: Any, out: Any) -> None:
        """Write the results of sums of float64 that are whole numbers."""
        if self._bias is not None:
            sums = sums + self._bias.reshape(self._ones)
        whole = sums.astype(np.int64).astype(np.int32)
        if self._scale is None:
            out[...] = whole
            return
        scale = self._scale if self._scale.size == 1 else self._scale.reshape(self._ones)
        scaled = whole.astype(scale.dtype) * scale
        if self._zero is None:
            out[...] = scaled
        else:
            as_bytes(self._xp, scaled, self._zero, out)
