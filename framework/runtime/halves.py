"""What kernels see of half precision: float32.

A kernel gets copies of its float16 and bfloat16 inputs in float32 and writes to memory in float32,
which is rounded once into the outputs. So sums, products, exponentials and statistics are
accumulated in float32 in every operator, BLAS serves where NumPy's own products of halves are slow,
and kernels need no thought of it. Operators that only move values, or hold nets, say `takes_halves`
and get the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.dtypes import HALVES, SINGLE
from ..base.sizes.shape import ArraySpec
from ..fusion.conversions import convert_call
from ..ir.kernel_args import Call, KernelFrame
from ..ir.operation import Operator


@dataclass
class Widened:
    """An operator's arrays and specs, the halves in float32.

    Attributes:
        before, after: calls that fill the copies, and that round the results.
        prepared: whether some copies are made before a loop, so that they may also be packed there.
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, ArraySpec] = field(default_factory=dict)
    before: list[Call] = field(default_factory=list)
    after: list[Call] = field(default_factory=list)
    prepared: bool = False


def in_float32(
    op: Operator, arrays: Mapping[str, Any], specs: Mapping[str, ArraySpec], frame: KernelFrame
) -> Widened:
    """The variables of an operator as its kernel sees them; memory of copies is the frame's."""
    written = set(op.output_vars())
    # What is added to must be widened with its value; other outputs need no copy in.
    read = {*op.value_reads(), *(written if op.accumulate else ())}
    widened = Widened()
    for name in (*op.input_vars(), *op.output_vars()):
        if name in widened.specs or name not in specs:
            continue
        shape, dtype = widened.specs[name] = specs[name]
        if dtype in HALVES:
            widened.specs[name] = shape, SINGLE
        if name not in arrays:
            continue
        own = widened.arrays[name] = arrays[name]
        if dtype not in HALVES:
            continue
        fixed = None if name in written else _fixed_copy(frame, own)
        if fixed is not None:
            widened.arrays[name] = fixed
            widened.prepared = True
            continue
        copy = widened.arrays[name] = frame.scratch(shape, SINGLE)
        if name in read:
            widened.before.append(convert_call(frame.xp, own, copy))
        if name in written:
            widened.after.append(convert_call(frame.xp, copy, own))
    return widened


def _fixed_copy(frame: KernelFrame, array: Any) -> Any:
    """The float32 copy of an array that a loop does not change, made before it; else None."""
    prepared = getattr(frame, "prepared", None)
    if prepared is None or not prepared.holds(array):
        return None
    # By address and strides: steps of a loop see the same weights through views of their own.
    key = "float32", array.ctypes.data, array.shape, array.strides, array.dtype

    def make() -> tuple[Any, Call]:
        copy = np.empty(array.shape, SINGLE)
        prepared.declare([copy])
        return copy, convert_call(np, array, copy)

    return prepared.get(key, make)
