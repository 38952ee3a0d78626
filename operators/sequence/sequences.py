"""Helpers of operators over sequences: offsets in rules and kernels, gathers, sums over groups.

A kernel computes row numbers from the offsets while it is bound. A run then gathers rows by these
numbers, or adds rows up, for whole arrays at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sequence import (
    bincount,
    count_in,
    lengths_of,
    make_schedule,
    offsets_of,
    repeated,
    rows_in,
)
from ...framework.base.sizes.shape import Levels, ShapeArgs
from ...framework.fusion.compiled.arguments import made_array
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ..base.calls import copying
from ..base.indexing import taken_rows, taker
from .segments import group_reducer

_STEP_COST = 48
"""One step of a loop over steps costs as much as reduceat does for so many elements of a result."""


# -- offsets -----------------------------------------------------------------------------------


def levels_of(s: ShapeArgs, slot: str, number: int = 0) -> Levels | None:
    """The offsets that a variable of an input slot carries; None while a net is built.

    Raises:
        ShapeError: it carries none, or they do not fit its rows.
    """
    name = s.op.inputs[slot][number]
    shape = s.input_spec(name)[0]
    if not shape:
        s.fail(f"{slot} {name!r} wants at least 1 dimension, the rows of its sequences")
    levels = s.input_offsets(name)
    if levels is None:
        return None
    if not levels:
        s.fail(
            f"{slot} {name!r} carries no sequences; give it offsets: feed it as Sequences, or as a"
            " list of arrays to an input that declares its levels"
        )
    # An unknown number of rows is -1, and is checked when it is known.
    rows = rows_in(levels[-1])
    if 0 <= shape[0] != rows:
        s.fail(f"the sequences of {slot} {name!r} have {rows} rows; it has {shape[0]}")
    return levels


def offsets_in(k: KernelArgs, slot: str, number: int = 0) -> np.ndarray:
    """The innermost offsets of a variable of an input slot, for kernels."""
    return k.frame.offsets(k.op.inputs[slot][number])[-1]


def sequences_in(levels: Levels | None) -> Any:
    """Number of the innermost sequences; -1 while a net is built."""
    return -1 if levels is None else count_in(levels[-1])


def sequence_of_row(offsets: np.ndarray) -> np.ndarray:
    """Number of the sequence that each row belongs to."""
    return repeated(np.arange(len(offsets) - 1), lengths_of(offsets))


def made_rows(
    k: KernelArgs, make: Callable[..., np.ndarray], count: int, slot: str, *sizes: int
) -> np.ndarray:
    """Numbers [count] that follow from the innermost offsets of an input, and from sizes.

    Args:
        make: gives them, called with the offsets and the sizes; it looks at nothing else.
    """
    return made_array(make, np.int64, count, *sizes, offsets=(offsets_in(k, slot),))


# -- rows of one array as rows of another --------------------------------------------------------


def packed(k: KernelArgs, x: Any) -> tuple[Any, Call | None]:
    """`x` in contiguous memory, and the call that puts it there (None where it is already).

    `take` copies all of an array that is not contiguous.
    """
    if x.flags.c_contiguous:
        return x, None
    copy = k.scratch(x.shape, x.dtype)
    return copy, partial(k.xp.copyto, copy, x)


def unpacked(k: KernelArgs, out: Any) -> tuple[Any, Call | None]:
    """Contiguous memory for `out`, and the call that copies it there (None where it is `out`)."""
    if out.flags.c_contiguous:
        return out, None
    memory = k.scratch(out.shape, out.dtype)
    return memory, partial(k.xp.copyto, out, memory)


def gather(k: KernelArgs, x: Any, index: np.ndarray, out: Any, empty: Any = 0) -> Call:
    """A call for out[i] = x[index[i]], and `empty` where index[i] < 0.

    Args:
        x: [R, ...]. index: [M]. out: [M, ...].
    """
    if not out.size:
        return nothing
    zeros = not empty and not np.signbit(empty)  # bytes, as that call writes them
    taken = taken_rows(x, index, out) if k.xp is np and zeros else None
    if taken is not None:
        return taken
    # The index is known before a run, so what is special about it is found once: no rows at all, or
    # consecutive ones, which are a slice and need no `take`.
    missing = np.flatnonzero(index < 0)
    if len(missing) == len(index):
        return partial(out.fill, empty)
    begin = int(index[0])
    if begin >= 0 and np.array_equal(index, np.arange(begin, begin + len(index))):
        return copying(k.xp, x[begin : begin + len(index)], out) or nothing
    x, load = packed(k, x)
    # Missing rows take row 0 and are written over afterwards: `take` fills whole arrays only.
    take = taker(k, x, k.xp.asarray(np.maximum(index, 0)), 0, out)
    fill = partial(out.__setitem__, k.xp.asarray(missing), empty) if len(missing) else None
    return in_order(load, take, fill)


def gather_grad(k: KernelArgs, grad: Any, index: np.ndarray, out: Any) -> Call:
    """A call for the transpose of `gather`: out[j] = sum of the grad[i] with index[i] == j."""
    # Sorted by target, so that a sum is one run of rows. The sort is stable: rows are added in
    # ascending order, and a result has the same bits in every run. `add.at` has no fixed order on a
    # GPU.
    valid = np.flatnonzero(index >= 0)
    targets = index[valid]
    rows = valid[np.argsort(targets, kind="stable")]
    offsets = offsets_of(bincount(targets, minlength=len(out)))
    return reduce_groups(k, k.xp.add, grad, offsets, out, rows)


# -- groups of rows reduced to one row each ------------------------------------------------------


def reduce_groups(
    k: KernelArgs,
    ufunc: Any,
    x: Any,
    offsets: np.ndarray,
    out: Any,
    rows: np.ndarray | None = None,
) -> Call:
    """A call for out[g] = ufunc over x[rows[offsets[g] : offsets[g + 1]]]; 0 for an empty group.

    Where that is not done in C, few long groups go through `reduceat`. It is slow for many of them
    and for wide rows, which are therefore added up step by step, the longest groups first: step t
    is one call over the rows t of all groups that have one.

    Args:
        x: [R, ...]. offsets: [G + 1]. out: [G, ...]. rows: [offsets[-1]], by default 0, 1, ...
    """
    lengths = lengths_of(offsets)
    filled = np.flatnonzero(lengths)
    # Rows in their own order need no copy that reorders them.
    if rows is not None and np.array_equal(rows, np.arange(len(x))):
        rows = None
    if not out.size:
        return nothing
    compiled = group_reducer(ufunc, x, offsets, out, rows)
    if compiled is not None:
        return compiled
    # Nothing to add up: each group is a copy of its row, or empty.
    if not len(filled) or lengths.max() == 1:
        index = np.full(len(lengths), -1)
        index[filled] = offsets[:-1][filled] if rows is None else rows[offsets[:-1][filled]]
        return gather(k, x, index, out)
    # Steps cost calls by the length of the longest group, `reduceat` time by the elements of the
    # result.
    width = out.size // len(out)
    if k.xp is np and int(lengths.max()) * _STEP_COST > len(filled) * width:
        return _reduce_runs(k, ufunc, x, offsets, out, rows)
    return _reduce_steps(k, ufunc, x, offsets, out, rows)


def _reduce_runs(
    k: KernelArgs, ufunc: Any, x: Any, offsets: np.ndarray, out: Any, rows: np.ndarray | None
) -> Call:
    load = None
    if rows is not None:
        # `reduceat` wants the rows of a group side by side.
        ordered = k.scratch((len(rows), *x.shape[1:]), x.dtype)
        load = gather(k, x, rows, ordered)
        x = ordered
    filled = np.flatnonzero(lengths_of(offsets))
    # Of an empty group `reduceat` returns the row at its offset, and it refuses an offset past the
    # end: empty groups are left out, and zeros put in afterwards.
    if len(filled) == len(out):
        return in_order(load, partial(ufunc.reduceat, x, offsets[:-1], 0, None, out))
    reduced = k.scratch((len(filled), *out.shape[1:]), out.dtype)
    reduce = partial(ufunc.reduceat, x, offsets[:-1][filled], 0, None, reduced)
    return in_order(load, reduce, gather(k, reduced, _places(filled, len(out)), out))


def _reduce_steps(
    k: KernelArgs, ufunc: Any, x: Any, offsets: np.ndarray, out: Any, rows: np.ndarray | None
) -> Call:
    schedule = make_schedule(offsets)
    taken = schedule.rows if rows is None else rows[schedule.rows]
    x, load = packed(k, x)
    # Longest first: the groups that have a row t are then the first of `total`, a slice and no
    # index.
    first = int(schedule.sizes[0])
    order = schedule.order[:first]
    # Where the groups fall in length already, they are added up in out itself.
    in_place = out.flags.c_contiguous and np.array_equal(order, np.arange(len(out)))
    total = out if in_place else k.scratch((first, *out.shape[1:]), out.dtype)
    part = k.scratch((first, *out.shape[1:]), out.dtype)
    calls = [load]
    for begin, size in zip(schedule.starts, schedule.sizes.tolist(), strict=False):
        index = k.xp.asarray(taken[begin : begin + size])
        # Step 0 copies, so no ufunc needs a neutral element to begin with.
        if not begin:
            calls.append(taker(k, x, index, 0, total))
        else:
            calls.append(taker(k, x, index, 0, part[:size]))
            calls.append(partial(ufunc, total[:size], part[:size], out=total[:size]))
    if not in_place:
        calls.append(gather(k, total, _places(order, len(out)), out))
    return in_order(*calls)


def _places(chosen: np.ndarray, count: int) -> np.ndarray:
    """For each of `count` numbers its place among the `chosen` ones; -1 where it is not there."""
    places = np.full(count, -1)
    places[chosen] = np.arange(len(chosen))
    return places


def column(k: KernelArgs, values: np.ndarray, like: Any) -> Any:
    """Numbers [G] in the dtype of `like` [G, ...], shaped to be multiplied with its rows."""
    # Rounded once, from float64: an array of float64 would make the product one of float64, too.
    shaped = values.astype(like.dtype).reshape((-1,) + (1,) * (like.ndim - 1))
    return k.xp.asarray(shaped)
