"""Fused loops on a GPU: those of one structure in one kernel, however many arrays they have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...fusion.cuda.cuda_source import TYPES, TableSource, gpu_source, table_source
from ...fusion.cuda.device_kernels import elementwise, table_of, takes
from ...fusion.cuda.device_lists import loop_call
from ...fusion.scalars.codegen import FULL, ONE, Loop
from ...fusion.team import in_order
from ...ir.kernel_args import Call
from .loop_arrays import BoundLoop


def bind_loops(xp: Any, bound: Sequence[BoundLoop], arrays: Sequence[Sequence[Any]]) -> Call:
    """A call of loops that stand beside each other; `arrays`: of the operands of each."""
    alike: dict[Loop, list[Sequence[Any]]] = {}
    for one, own in zip(bound, arrays, strict=True):
        alike.setdefault(one.loop, []).append(own)
    calls: list[Call] = []
    for loop, parts in alike.items():
        source = _table_source(loop)
        shared = len(parts) > 1 or (source is not None and source.heads)
        if source is not None and shared and takes(*(a for part in parts for a in part)):
            calls += _table_calls(xp, loop, source, parts)
        else:
            calls += [bind_loop(xp, loop, part) for part in parts]
    return in_order(*calls)


def bind_loop(xp: Any, loop: Loop, arrays: Sequence[Any]) -> Call:
    """A call of one loop over arrays that broadcast; these are of its operands."""
    kernel, inputs, outputs = _gpu_kernel(xp, loop)
    call = partial(kernel, *(arrays[i] for i in inputs), *(arrays[i] for i in outputs))
    return loop_call(call, loop, arrays)


@cache
def _gpu_kernel(xp: Any, loop: Loop) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    source = gpu_source(loop)
    kernel = xp.ElementwiseKernel(
        source.in_params, source.out_params, source.operation, source.name
    )
    return kernel, source.inputs, source.outputs


@cache
def _table_source(loop: Loop) -> TableSource | None:
    """The loop over the elements of many arrays; None where it reads rows, columns or halves."""
    plain = all(o.kind in (FULL, ONE) and o.dtype in TYPES for o in loop.operands)
    return table_source(loop) if plain else None


def _table_calls(
    xp: Any, loop: Loop, source: TableSource, parts: Sequence[Sequence[Any]]
) -> list[Call]:
    """The call of the loop, after that which computes what is the same for all elements."""
    table, ends, size = table_of(xp, parts, counted=loop.stores[0][0])
    if not size:
        return []
    heads = xp.empty(max(len(parts) * source.heads, 1), loop.dtype)
    launch = partial(elementwise, xp, source.text, dtype=loop.dtype)
    calls = []
    if source.heads:
        calls.append(
            launch(source.head, size=len(parts), args=(table, heads, np.int64(len(parts))))
        )
    given = table, ends, heads, np.int64(size)
    return [*calls, launch(source.name, size=size, args=given)]
