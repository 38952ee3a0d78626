"""Pooling over time, where each sequence becomes one row, and expanding rows over time."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.sequence import lengths_of
from ...framework.base.sizes.shape import Levels, ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .sequences import (
    column,
    gather,
    gather_grad,
    levels_of,
    offsets_in,
    reduce_groups,
    sequence_of_row,
    sequences_in,
)

# Above every row number, and low enough that a row number added to it still fits int32.
_NO_ROW = np.int32(1 << 30)

# Pool type -> the factor of a sum over a sequence of so many rows.
_SCALES = {
    "sum": lambda lengths: np.ones(len(lengths)),
    # The sum of an empty sequence is 0 already: a length of 0 counts as 1 to keep 0 / 0 out.
    "mean": lambda lengths: 1 / np.maximum(lengths, 1),
    "sqrt": lambda lengths: 1 / np.sqrt(np.maximum(lengths, 1)),
}

sequence_pool = operator(
    "sequence_pool",
    doc=(
        "One row for each of S sequences: x [N, ...] -> out [S, ...]. Types: the first or last row;"
        " or of every element the maximum, the sum, the mean, or the sum over the square root of"
        " the length. Of several levels the innermost is pooled, and out carries the others. An"
        " empty sequence gives zeros. Of equal maxima the first row gets the gradient."
    ),
    inputs=[Slot("x", "sequences [N, ...]")],
    outputs=[Slot("out", "[S, ...]")],
    attrs=[
        AttrSpec("pool_type", "string", "how", "mean", choices=("first", "last", "max", *_SCALES))
    ],
    source="Paddle: paddle/operators/sequence_pool_op.cc",
)


@sequence_pool.shape_rule
def sequence_pool_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    # Rows that are only picked may be integers; sums are scaled by fractions.
    dtype = s.floats("x") if s.attrs["pool_type"] in _SCALES else s.dtype("x")
    s.set("out", ((sequences_in(levels), *s["x"][1:]), dtype))
    s.set_offsets("out", None if levels is None else levels[:-1])


def _ends(k: KernelArgs, offsets: np.ndarray) -> np.ndarray:
    """The first or last row of each sequence; -1 where it is empty."""
    ends = offsets[:-1] if k.attrs["pool_type"] == "first" else offsets[1:] - 1
    # Without this an empty sequence would get the first row of the next one.
    return np.where(lengths_of(offsets) > 0, ends, -1)


@sequence_pool.kernel
def sequence_pool_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    how = k.attrs["pool_type"]
    offsets = offsets_in(k, "x")
    if how in ("first", "last"):
        return gather(k, x, _ends(k, offsets), out)
    if how == "max":
        return reduce_groups(k, xp.maximum, x, offsets, out)
    # The S results are scaled, not the N rows.
    scale = None
    if how != "sum":
        factors = column(k, _SCALES[how](lengths_of(offsets)), out)
        scale = partial(xp.multiply, out, factors, out)
    return in_order(reduce_groups(k, xp.add, x, offsets, out), scale)


@sequence_pool.backward("x")
def sequence_pool_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    how = k.attrs["pool_type"]
    offsets = offsets_in(k, "x")
    if how in ("first", "last"):
        return gather_grad(k, grad, _ends(k, offsets), x_grad)
    if how == "max":
        return _max_grad(k, offsets)
    load = None
    if how != "sum":
        # Scaled before rows are repeated, which is less work; in scratch memory, as others may read
        # out_grad.
        scaled = k.scratch(grad.shape, grad.dtype)
        factors = column(k, _SCALES[how](lengths_of(offsets)), grad)
        load = partial(xp.multiply, grad, factors, scaled)
        grad = scaled
    return in_order(load, gather(k, grad, sequence_of_row(offsets), x_grad))


def _max_grad(k: KernelArgs, offsets: np.ndarray) -> Call:
    """Each element of out_grad goes to the first row that holds the maximum."""
    xp = k.xp
    x = k["x"]
    out = k["out"]
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    if not x.size:
        return nothing
    top = k.scratch(x.shape, x.dtype)
    less, flag = k.scratch(x.shape, bool), k.scratch(x.shape, bool)
    numbers, first = k.scratch(x.shape, np.int32), k.scratch(out.shape, np.int32)
    # The first row with the maximum is the least number among such rows: two reductions over
    # groups, with no loop over sequences. int32 halves the memory that they read.
    counter = xp.arange(len(x), dtype=np.int32).reshape((-1,) + (1,) * (x.ndim - 1))
    owner = sequence_of_row(offsets)
    take_top = gather(k, out, owner, top)
    # An empty sequence gets number 0 here, which no row of its own asks for.
    find_first = reduce_groups(k, xp.minimum, numbers, offsets, first)
    take_first = gather(k, first, owner, numbers)
    take_grad = gather(k, grad, owner, x_grad)

    def run() -> None:
        take_top()
        # Arithmetic on masks: masked copies are ten times slower where the mask is irregular.
        xp.not_equal(x, top, out=less)
        xp.equal(x, x, out=flag)
        xp.logical_and(less, flag, out=less)  # NaN is the maximum of its sequence
        xp.multiply(less, _NO_ROW, out=numbers)
        xp.add(numbers, counter, out=numbers)
        find_first()
        # The numbers are spent: their memory takes the first row of each sequence, spread over its
        # rows.
        take_first()
        xp.equal(numbers, counter, out=flag)
        take_grad()
        xp.multiply(x_grad, flag, out=x_grad)

    return run


# -- the other way round -------------------------------------------------------------------------

sequence_expand = operator(
    "sequence_expand",
    doc=(
        "One row of x for each sequence of `like`, repeated over its rows: x [S, ...] -> out"
        " [N, ...] with the offsets of like [N, ...]. `level` selects its sequences: -1, the"
        " innermost; 0, the outermost. Empty sequences give nothing."
    ),
    inputs=[
        Slot("x", "[S, ...]", not_in_gradient=True),
        Slot("like", "sequences [N, ...]", not_in_gradient=True, shape_only=True),
    ],
    outputs=[Slot("out", "sequences [N, ...]", not_in_gradient=True)],
    attrs=[AttrSpec("level", "int", "level of like whose sequences x has rows for", -1)],
    source="Paddle: paddle/operators/seq_expand_op.cc",
)


@sequence_expand.shape_rule
def sequence_expand_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "like")
    if not s["x"]:
        s.fail("x wants at least 1 dimension, a row for each sequence of like")
    if levels is not None:
        s.axis(s.attrs["level"], len(levels), "level")
        count = len(levels[s.attrs["level"]]) - 1
        s.same("rows of x and sequences of like", s["x"][0], count)
    # The result has the rows of `like` whatever the level: only what repeats x differs.
    s.set("out", ((s["like"][0], *s["x"][1:]), s.dtype("x")))
    s.set_offsets("out", levels)


def _source_rows(levels: Levels, level: int) -> np.ndarray:
    """For each row the number of its sequence on `level`."""
    level %= len(levels)
    offsets = levels[level]
    # Offsets of an outer level count sequences of the next one: step by step they become rows.
    for inner in levels[level + 1 :]:
        offsets = inner[offsets]
    return sequence_of_row(offsets)


@sequence_expand.kernel
def sequence_expand_kernel(k: KernelArgs) -> Call:
    return gather(k, k["x"], _source_rows(k.offsets("like"), k.attrs["level"]), k["out"])


@sequence_expand.backward("x")
def sequence_expand_grad_kernel(k: KernelArgs) -> Call:
    index = _source_rows(k.offsets("like"), k.attrs["level"])
    return gather_grad(k, k["out_grad"], index, k["x_grad"])
