"""Kernels for operators over given arrays, and what a run reads from a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from ..base.dtypes import FLOATS, HALVES, SINGLE
from ..base.errors import OpscopeError, RunError, ShapeError, VariableError, format_shape, nearest
from ..base.scope import Scope
from ..base.shape import ArraySpec, Levels, fits, layout_hint
from ..fusion.team import in_order
from ..ir.kernel_args import KernelArgs, KernelFrame
from ..ir.op_list import VarDecl
from ..ir.operation import Operator
from .halves import in_float32


def bind_operator(
    op: Operator,
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
) -> Callable[[], Any]:
    """A call that computes an operator.

    Args:
        arrays: of its variables; those whose values it does not read may be missing.
        specs: shapes and dtypes of all of its variables.
        libraries: of kernels, the best first.

    Raises:
        RunError: no kernel fits, or one cannot be bound. Own errors pass through.
    """
    if overwritten := [name for name in op.overwritten() if name in arrays]:
        return _bind_apart(op, overwritten, arrays, specs, frame, libraries)
    names = (*op.input_vars(), *op.output_vars())
    half = any(name in specs and specs[name][1] in HALVES for name in names)
    if not half or frame.place.kind in op.entry.takes_halves:
        return _bind_kernel(op, arrays, specs, frame, libraries, True)
    seen = in_float32(op, arrays, specs, frame)
    call = _bind_kernel(op, seen.arrays, seen.specs, frame, libraries, seen.prepared)
    return in_order(*seen.before, call, *seen.after)


def _bind_apart(
    op: Operator,
    overwritten: Sequence[str],
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
) -> Callable[[], Any]:
    """As `bind_operator`, for one that writes to what it reads without being made for that.

    A kernel reads its inputs at any time, so it writes to memory of its own, which is copied.
    """
    new = {name: f"{name} (new)" for name in overwritten}
    apart = copy(op)
    apart.outputs = {
        slot: tuple([new.get(name, name) for name in names]) for slot, names in op.outputs.items()
    }
    made = {new[name]: frame.scratch(*specs[name]) for name in overwritten}
    described = {new[name]: specs[name] for name in overwritten}
    call = bind_operator(apart, {**arrays, **made}, {**specs, **described}, frame, libraries)
    copies = [partial(frame.xp.copyto, arrays[name], made[new[name]]) for name in overwritten]
    return in_order(call, *copies)


def _bind_kernel(
    op: Operator,
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
    packs: bool,
) -> Callable[[], Any]:
    """The call of the first kernel that does not decline.

    Args:
        packs: whether kernels serve that pack the weights of a loop before it.
    """
    args = KernelArgs(op, arrays, specs, frame)
    dtype = _deciding_dtype(op, specs)
    for kernel in op.entry.kernels_for(frame.place.kind, dtype, libraries):
        if kernel.in_loops and not (packs and args.prepared is not None):
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


def _deciding_dtype(op: Operator, specs: Mapping[str, ArraySpec]) -> np.dtype:
    """The dtype that kernels are chosen by: the first floating operand's, outputs first."""
    first = None
    for name in (*op.output_vars(), *op.input_vars()):
        if name in specs:
            dtype = specs[name][1]
            if dtype in FLOATS:
                return dtype
            first = first or dtype
    return first or SINGLE


def external_specs(
    names: Sequence[str], scope: Scope, declared: Mapping[str, VarDecl], where: str
) -> tuple[dict[str, ArraySpec], dict[str, Levels], tuple[Any, ...]]:
    """Shapes and dtypes of the variables that a run reads from the scope, offsets, and a signature.

    Raises:
        VariableError: one is not there or holds no value.
        ShapeError: one contradicts its declaration.
    """
    specs: dict[str, ArraySpec] = {}
    levels: dict[str, Levels] = {}
    signature = []
    for name in names:
        variable = scope.find(name)
        if variable is None:
            hint = nearest(name, scope.visible_names())
            raise VariableError(f"{where}: the scope has no variable {name!r}{hint}")
        array = variable.inner
        if array is None:
            raise VariableError(f"{where}: variable {name!r} holds no value; feed or initialise it")
        var = declared.get(name)
        if var is not None:
            _check_given(name, array, var, where)
        specs[name] = (array.shape, array.dtype)
        offsets = tuple(level.tobytes() for level in variable.offsets)
        if offsets:
            levels[name] = variable.offsets
        signature.append((array.shape, array.dtype, offsets))
    return specs, levels, tuple(signature)


def _check_given(name: str, array: Any, var: VarDecl, where: str) -> None:
    shape, dtype = var.shape, var.dtype
    if (shape is None or fits(array.shape, shape)) and (dtype is None or dtype == array.dtype):
        return
    wanted = f"{dtype or 'any dtype '}{format_shape(shape)}"
    given = f"{array.dtype}{format_shape(array.shape)}"
    raise ShapeError(
        f"{where}: variable {name!r} wants {wanted} and was given {given}"
        + layout_hint(array.shape, shape)
    )
