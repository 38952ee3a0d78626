"""Binding one operator to its arrays: which kernel serves, and what it sees of half precision.

A kernel sees float16 and bfloat16 as float32: it gets copies of its inputs in float32 and writes to
memory in float32, which is rounded once into the outputs. So sums, products, exponentials and
statistics are accumulated in float32 in every operator, BLAS serves where NumPy has no product of
halves worth the name, and kernels need no thought of it. Operators that only move values, or hold
nets, say `takes_halves` and get the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..base.dtypes import HALVES, SINGLE, is_float, wide
from ..base.errors import OpscopeError, RunError
from ..base.shape import ArraySpec
from ..fusion.team import in_order
from ..ir.kernel_args import Call, KernelArgs, KernelFrame
from ..ir.operation import Operator


def bind_operator(
    op: Operator,
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
) -> Call:
    """A call that computes an operator.

    Args:
        arrays: of its variables; those whose values it does not read may be missing.
        specs: shapes and dtypes of all of its variables.
        libraries: of kernels, the best first.

    Raises:
        RunError: no kernel fits, or one cannot be bound. Own errors pass through.
    """
    device, halves = frame.place.kind, set()
    if device not in op.entry.takes_halves:
        names = (*op.input_vars(), *op.output_vars())
        halves = {name for name in names if name in specs and specs[name][1] in HALVES}
    if not halves:
        return _bind(op, arrays, specs, frame, libraries, loops=True)
    seen = {name: specs[name] for name in op.input_vars() if name in specs}
    seen.update((name, specs[name]) for name in op.output_vars())
    given = {name: arrays[name] for name in seen if name in arrays}
    before: list[Call] = []
    after: list[Call] = []
    written = set(op.output_vars())
    read = {*op.value_reads(), *(written if op.accumulate else ())}
    packed = False
    for name in sorted(halves):
        shape, dtype = seen[name]
        seen[name] = shape, wide(dtype)
        if name not in given:
            continue
        own, fixed = given[name], None
        if name in read and name not in written:
            fixed = _fixed_copy(frame, own)
        if fixed is not None:
            given[name], packed = fixed, True
            continue
        copy = given[name] = frame.scratch(shape, SINGLE)
        if name in read:
            before.append(partial(frame.xp.copyto, copy, own))
        if name in written:
            after.append(partial(frame.xp.copyto, own, copy, casting="unsafe"))
    return in_order(*before, _bind(op, given, seen, frame, libraries, loops=packed), *after)


def _fixed_copy(frame: KernelFrame, array: Any) -> Any:
    """The float32 copy of an array that a loop does not change, made before it; else None."""
    prepared = getattr(frame, "prepared", None)
    if prepared is None or not prepared.holds(array):
        return None
    key = "float32", array.ctypes.data, array.shape, array.strides, array.dtype

    def make() -> tuple[Any, Call]:
        copy = np.empty(array.shape, SINGLE)
        prepared.declare([copy])
        return copy, partial(np.copyto, copy, array)

    return prepared.get(key, make)


def _bind(
    op: Operator,
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
    *,
    loops: bool,
) -> Call:
    """The call of the first kernel that does not decline.

    Args:
        loops: whether kernels serve that want the weights of a loop in memory of their own.
    """
    args = KernelArgs(op, arrays, specs, frame)
    dtype = deciding_dtype(op, specs)
    for kernel in op.entry.kernels_for(frame.place.kind, dtype, libraries):
        if kernel.in_loops and not (loops and args.prepared is not None):
            continue
        try:
            call = kernel.bind(args)
        except OpscopeError:
            raise
        except Exception as error:
            raise RunError(op.describe(f"cannot be bound: {error!r}", specs)) from error
        if call is not None:
            return call
    raise RunError(op.describe(f"no kernel for {dtype} on {frame.place}", specs))


def deciding_dtype(op: Operator, specs: Mapping[str, ArraySpec]) -> np.dtype:
    """The dtype that kernels are chosen by: the first floating operand's, outputs first."""
    first = None
    for name in (*op.output_vars(), *op.input_vars()):
        if name in specs:
            dtype = specs[name][1]
            if is_float(dtype):
                return dtype
            first = first or dtype
    return first or SINGLE
