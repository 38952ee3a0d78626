"""What all ranks hold, put together: arrays, rows of tables, and the values of one rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.backend import copy_into, to_host
from ...framework.base.communicator import Communicator
from ...framework.base.errors import RanksError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.ranks import ranks_of
from ..optim.updates import merge_rows
from .ranks import (
    EVERYWHERE,
    MODE,
    TOTAL,
    WEIGHT,
    check_weight,
    exchanging,
    one_dtype,
    refuse_two_means,
    share_of,
)

all_gather = operator(
    "all_gather",
    doc="""The arrays of all ranks, one after the other along the first axis, by rank:
out [ranks * n, ...] of x [n, ...]; a scalar gives [ranks].

Its gradient takes the loss to be the sum of the losses of all ranks.""",
    inputs=[Slot("x", "[n, ...], of one shape on all ranks", not_in_gradient=True)],
    outputs=[Slot("out", "[ranks * n, ...]", not_in_gradient=True)],
    attrs=[AttrSpec("ranks", "int", "how many there are", minimum=1)],
    source="MPI_Allgather",
    world=True,
    takes_halves=EVERYWHERE,
)


@all_gather.shape_rule
def all_gather_shape(s: ShapeArgs) -> None:
    x = s["x"]
    ranks = s.attrs["ranks"]
    first = x[0] if x else 1
    s.set("out", ((first * ranks if first >= 0 else -1, *x[1:]), s.dtype("x")))
    s.set_offsets("out", ())


@all_gather.kernel
def all_gather_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    x = k["x"]
    out = k["out"]
    # The number of ranks is an attribute, so that the shape is known before a run.
    parts = out.reshape(k.attrs["ranks"], *x.shape)

    def run() -> None:
        others = ranks()
        _check_size(k, others.size)
        others.all_gather(x, parts)

    return run


@all_gather.backward("x")
def all_gather_grad_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    shape = k.attrs["ranks"], *x_grad.shape

    def run() -> None:
        others = ranks()
        _check_size(k, others.size)
        # A copy: the sum replaces what it is given, and the gradient may be read by others.
        # Of the sum only the own part is kept: communicators have no reduce-scatter.
        whole = grad.reshape(-1).copy()
        others.all_reduce(whole)
        copy_into(x_grad, whole.reshape(shape)[others.rank])

    return run


def _check_size(k: KernelArgs, size: int) -> None:
    if size != k.attrs["ranks"]:
        raise RanksError(k.describe(f"ranks={k.attrs['ranks']}, but {size} run"))


all_gather_rows = operator(
    "all_gather_rows",
    doc="""Sum over all ranks of gradients with rows for a part of a table, which stay so: only the
rows that a rank has are sent. Rows of one number are summed, rank after rank; their numbers
ascend, and the rest of rows_out is -1. With `weight`, it is the mean weighted by it.""",
    inputs=[
        Slot("x", "[n, ...], the values; n may differ between ranks"),
        Slot("rows", "[n] integers, -1 = nothing"),
        Slot("like", "[table rows, ...], the table; its values are not read", shape_only=True),
        WEIGHT,
        TOTAL,
    ],
    outputs=[
        Slot("out", "[most, ...]; zeros where the number is -1"),
        Slot("rows_out", "[most]"),
    ],
    attrs=[
        MODE,
        AttrSpec(
            "most",
            "int",
            "rows that all ranks together may have; 0: as many as the table. The optimizer passes"
            " over the rest, for which there is memory all the same",
            0,
            minimum=0,
        ),
    ],
    source="MPI_Allgatherv; Horovod's sparse all-reduce",
    no_gradient="sparse rows are gradients themselves",
    world=True,
)


@all_gather_rows.shape_rule
def all_gather_rows_shape(s: ShapeArgs) -> None:
    x = s["x"]
    rows = s.rank("rows", 1)
    like = s["like"]
    dtype = one_dtype(s, "x", floats=True)
    s.integers("rows")
    if not x or not like:
        s.fail("x and like want rows")
    s.same("numbers of rows", x[0], rows[0])
    s.same_shape("rows of x and of like", x[1:], like[1:])
    check_weight(s)
    refuse_two_means(s)
    most = s.attrs["most"] or like[0]
    s.set("out", ((most, *like[1:]), dtype))
    s.set("rows_out", ((most,), s.dtype("rows")))
    s.set_offsets("out", ())
    s.set_offsets("rows_out", ())


@all_gather_rows.kernel
def all_gather_rows_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    share = share_of(k)
    mean = k.attrs["mode"] == "mean"
    x, rows, out, rows_out = k["x"], k["rows"], k["out"], k["rows_out"]

    def run() -> None:
        others = ranks()
        factor = 1 / others.size if mean else 1.0
        if share is not None:
            factor = share(others)
        # On the host: numbers of rows decide about memory, and the parts come from there.
        ids, values = merge_rows(np, to_host(rows), to_host(x))
        if factor == 0:
            # No rows at all: rows of NaN times 0 would stay NaN.
            ids, values = ids[:0], values[:0]
        elif factor != 1:
            values = values * values.dtype.type(factor)
        numbers = others.all_gather_rows(ids)
        parts = others.all_gather_rows(values)
        # Sorted on every rank alike, so that all ranks hold the rows in the same order.
        union = np.unique(np.concatenate(numbers))
        # The memory was laid out before the numbers were known.
        if len(union) > len(rows_out):
            raise RanksError(k.describe(f"the ranks have {len(union)} rows, most={len(rows_out)}"))
        # Every rank adds all parts, in the order of ranks: the same bits everywhere.
        sums = np.zeros((len(union), *values.shape[1:]), values.dtype)
        for own, part in zip(numbers, parts, strict=True):
            sums[np.searchsorted(union, own)] += part  # no number comes twice
        count = len(union)
        # The result has memory for `most` rows; what is left of it says "nothing".
        rows_out[:count], rows_out[count:] = k.xp.asarray(union.astype(rows_out.dtype)), -1
        out[:count], out[count:] = k.xp.asarray(sums), 0

    return run


broadcast = operator(
    "broadcast",
    doc="""The values of one rank on all of them.

Its gradient takes the loss to be the sum of the losses of all ranks: the gradient of rank `root`
is the sum, the gradients of the others are 0.""",
    inputs=[
        Slot(
            "x", "any shapes, equal on all ranks, one dtype", duplicable=True, not_in_gradient=True
        )
    ],
    outputs=[
        Slot(
            "out",
            "shapes of x; may be its variables",
            duplicable=True,
            inplace="x",
            not_in_gradient=True,
        )
    ],
    attrs=[AttrSpec("root", "int", "the rank whose values they are", 0, minimum=0)],
    source="MPI_Bcast",
    world=True,
    joins="x",
    takes_halves=EVERYWHERE,
)


@broadcast.shape_rule
def broadcast_shape(s: ShapeArgs) -> None:
    one_dtype(s, "x")
    s.set("out", *s.specs("x"))


@broadcast.kernel
def broadcast_kernel(k: KernelArgs) -> Call:
    root = k.attrs["root"]
    return exchanging(k, "x", "out", lambda flat, ranks: ranks.broadcast(flat, root))


@broadcast.backward("x")
def broadcast_grad_kernel(k: KernelArgs) -> Call:
    root = k.attrs["root"]

    def exchange(flat: Any, ranks: Communicator) -> None:
        ranks.all_reduce(flat)
        # All ranks take part in the sum, as each must make the same exchanges, though only one
        # keeps it.
        if ranks.rank != root:
            flat.fill(0)

    return exchanging(k, "out_grad", "x_grad", exchange)
