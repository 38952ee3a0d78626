"""Arrays that ranks share out: cut, summed and scattered, put together again.

A shard is 1/ranks of an array's elements in the order of memory, [ceil(elements / ranks)]; the last
ones are filled up with zeros. So shards have one shape on all ranks, and nets over them are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.communicator import part_length
from ...framework.base.dtypes import wide
from ...framework.base.errors import RanksError
from ...framework.base.sizes.shape import Shape, ShapeArgs, count
from ...framework.fusion.team import nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.ranks import ranks_of
from .ranks import (
    EVERYWHERE,
    MODE,
    TOTAL,
    WEIGHT,
    check_weight,
    one_dtype,
    scale,
    weighing,
)

_SOURCE = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameters"
_RANKS = AttrSpec("ranks", "int", "how many there are", minimum=1)
_WHOLE = "any shapes, equal on all ranks, one dtype"
_NO_GRADIENT = "it serves updates of parameters"

shard = operator(
    "shard",
    doc="""This rank's part of arrays that all ranks hold: of n elements, in the order of memory,
rank r gets those from r ceil(n / ranks) on; zeros where there are none.""",
    inputs=[Slot("x", _WHOLE, duplicable=True)],
    outputs=[Slot("out", "[ceil(elements / ranks)] of each", duplicable=True)],
    attrs=[_RANKS],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    world=True,
    takes_halves=EVERYWHERE,
)


@shard.shape_rule
def shard_shape(s: ShapeArgs) -> None:
    one_dtype(s, "x")
    s.set("out", *_shards(s, "x"))


@shard.kernel
def shard_kernel(k: KernelArgs) -> Call:
    ranks = _checked_ranks(k)
    pairs = [
        (k.in_one_piece(x), x, out)
        for x, out in zip(k.list("x"), k.list("out"), strict=True)
        if out is not None
    ]

    def run() -> None:
        rank = ranks().rank
        for flat, x, out in pairs:
            if flat is not x:
                k.xp.copyto(flat, x)
            begin = rank * out.size
            own = flat.reshape(-1)[begin : begin + out.size]
            k.xp.copyto(out[: own.size], own)
            out[own.size :] = 0

    return run


all_gather_shards = operator(
    "all_gather_shards",
    doc="""Arrays whose parts the ranks hold (see `shard`), whole on all ranks: one message for all
of them.""",
    inputs=[Slot("x", "[ceil(elements / ranks)] each, one dtype: shards", duplicable=True)],
    outputs=[Slot("out", "of the shapes that `shapes` says", duplicable=True)],
    attrs=[
        _RANKS,
        AttrSpec("shapes", "ints", "of each out: how many dimensions it has, and then these"),
    ],
    source=_SOURCE,
    no_gradient="gradients of parameters that ranks share are summed by `reduce_scatter_start`",
    world=True,
    takes_halves=EVERYWHERE,
)


@all_gather_shards.shape_rule
def all_gather_shards_shape(s: ShapeArgs) -> None:
    dtype = one_dtype(s, "x")
    given = list(s.attrs["shapes"])
    shapes: list[Shape] = []
    while given:
        rank = given.pop(0)
        if not 0 <= rank <= len(given):
            s.fail(f"shapes={s.attrs['shapes']} wants the number of dimensions before them")
        shapes.append(tuple(given[:rank]))
        del given[:rank]
    specs = s.specs("x")
    s.same("numbers of x and of shapes", len(specs), len(shapes))
    for (own, _), shape in zip(specs, shapes, strict=True):
        s.same_shape("x and its part of out", own, (part_length(count(shape), s.attrs["ranks"]),))
    s.set("out", *((shape, dtype) for shape in shapes))


@all_gather_shards.kernel
def all_gather_shards_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    ranks = _checked_ranks(k)
    shards, outs = k.list("x"), k.list("out")
    size, dtype = k.attrs["ranks"], shards[0].dtype
    total = sum(one.size for one in shards)
    if not total:
        return nothing
    first, whole = shards[0], outs[0]
    if len(shards) == 1 and whole is not None and whole.size == size * total:
        if whole.flags.c_contiguous and first.flags.c_contiguous:
            # One array without a rest is received where it belongs.
            received = whole.reshape(size, total)
            return lambda: ranks().all_gather(first, received)
    own, rows = k.scratch((total,), dtype), k.scratch((size, total), dtype)
    ends = np.cumsum([one.size for one in shards]).tolist()
    parts = [slice(end - one.size, end) for one, end in zip(shards, ends, strict=True)]
    wanted = [
        (rows[:, part], k.in_one_piece(out), out)
        for part, out in zip(parts, outs, strict=True)
        if out is not None
    ]

    def run() -> None:
        for one, part in zip(shards, parts, strict=True):
            xp.copyto(own[part], one)
        ranks().all_gather(own, rows)
        for received, flat, out in wanted:
            _from_rows(xp, received, flat.reshape(-1))
            if flat is not out:
                xp.copyto(out, flat)

    return run


reduce_scatter_start = operator(
    "reduce_scatter_start",
    doc="""Begins the sums over all ranks of a bucket of arrays. Each rank gets its part of a sum
(see `shard`); `reduce_scatter_wait` ends it. x may change as soon as this operator has run. With
`weight` it is the mean weighted by it, as of `all_reduce`.""",
    inputs=[Slot("x", _WHOLE, duplicable=True), WEIGHT, TOTAL],
    outputs=[
        Slot("packed", "[ranks, n], float32 at least: on its way, for the wait alone"),
        Slot("part", "[n], as packed: where the sum arrives, for the wait alone"),
        Slot("ticket", "[], int64: by its name the wait takes the sum back; it holds nothing"),
    ],
    attrs=[_RANKS],
    source=f"{_SOURCE}; MPI_Reduce_scatter_block",
    no_gradient=_NO_GRADIENT,
    world=True,
    takes_halves=EVERYWHERE,
)


@reduce_scatter_start.shape_rule
def reduce_scatter_start_shape(s: ShapeArgs) -> None:
    dtype = wide(one_dtype(s, "x", floats=s.has("weight")))
    check_weight(s)
    total = _total(_shards(s, "x"))
    s.set("packed", ((s.attrs["ranks"], total), dtype))
    s.set("part", ((total,), dtype))
    s.set("ticket", ((), "int64"))


@reduce_scatter_start.kernel
def reduce_scatter_start_kernel(k: KernelArgs) -> Call:
    ranks = _checked_ranks(k)
    weigh = weighing(k)
    xs, packed, part = k.list("x"), k["packed"], k["part"]
    (ticket,) = k.op.outputs["ticket"]
    size = k.attrs["ranks"]
    lengths = [part_length(x.size, size) for x in xs]

    def run() -> None:
        end = 0
        for x, length in zip(xs, lengths, strict=True):
            _to_rows(k.xp, x, packed[:, end : end + length])
            end += length
        others = ranks()
        weigh(packed, others)
        others.keep(ticket, others.start_reduce_scatter(packed, part), part)

    return run


reduce_scatter_wait = operator(
    "reduce_scatter_wait",
    doc="""Ends what `reduce_scatter_start` has begun: out are this rank's parts of the sums, or
with mode=mean of the means, in the dtype of `like`.""",
    inputs=[
        Slot("packed", "output of the start"),
        Slot("part", "output of the start"),
        Slot("ticket", "the ticket of the start, []"),
        Slot("like", "x of the start; values are not read", duplicable=True, shape_only=True),
    ],
    outputs=[Slot("out", "[ceil(elements / ranks)] of each x", duplicable=True)],
    attrs=[_RANKS, MODE],
    source=f"{_SOURCE}; MPI_Reduce_scatter_block",
    no_gradient=_NO_GRADIENT,
    world=True,
    takes_halves=EVERYWHERE,
)


@reduce_scatter_wait.shape_rule
def reduce_scatter_wait_shape(s: ShapeArgs) -> None:
    one_dtype(s, "like", floats=s.attrs["mode"] == "mean")
    s.integers("ticket")
    s.rank("ticket", 0)
    shards = _shards(s, "like")
    s.same("the length of part and of the shards", s["part"][0], _total(shards))
    s.set("out", *shards)


@reduce_scatter_wait.kernel
def reduce_scatter_wait_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    (ticket,) = k.op.inputs["ticket"]
    mean = k.attrs["mode"] == "mean"
    outs, part = k.list("out"), k["part"]
    lengths = [part_length(count(n), k.attrs["ranks"]) for n in k.shapes("like")]

    def run() -> None:
        others = ranks()
        others.redeem(ticket)
        if mean:
            scale(part, 1 / others.size)
        end = 0
        for out, length in zip(outs, lengths, strict=True):
            if out is not None:
                k.xp.copyto(out, part[end : end + length], casting="unsafe")
            end += length

    return run


all_finite = operator(
    "all_finite",
    doc="Whether all ranks have found their parts finite: out = 1 where x is 1 on every rank, else"
    " 0.",
    inputs=[Slot("x", "1 or 0, a float []")],
    outputs=[Slot("out", "1 or 0, as x")],
    source="PyTorch: torch.amp.GradScaler over the ranks of FSDP",
    no_gradient=_NO_GRADIENT,
    world=True,
)


@all_finite.shape_rule
def all_finite_shape(s: ShapeArgs) -> None:
    s.rank("x", 0)
    s.set("out", ((), s.floats("x")))


@all_finite.kernel
def all_finite_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    ranks = ranks_of(k)
    x, out = k["x"], k["out"]
    bad, none = k.scratch((), x.dtype), k.scratch((), bool)

    def run() -> None:
        # How many ranks have found a number that is not finite: exact, whatever their number.
        xp.equal(x, 0, none)
        xp.copyto(bad, none)
        ranks().all_reduce(bad)
        xp.equal(bad, 0, none)
        xp.copyto(out, none)

    return run


def _shards(s: ShapeArgs, slot: str) -> list[tuple[Shape, np.dtype]]:
    """Shapes and dtypes of the shards of a slot's variables."""
    sizes = [(count(shape), dtype) for shape, dtype in s.specs(slot)]
    ranks = s.attrs["ranks"]
    return [((-1 if n < 0 else part_length(n, ranks),), dtype) for n, dtype in sizes]


def _total(shards: list[tuple[Shape, np.dtype]]) -> int:
    """Elements of all shards together; -1 where that is unknown."""
    sizes = [shape[0] for shape, _ in shards]
    return -1 if min(sizes, default=0) < 0 else sum(sizes)


def _to_rows(xp: Any, array: Any, rows: Any) -> None:
    """Copy an array's elements into rows, one for each rank; zeros where there are no more."""
    flat = array.reshape(-1)
    size, length = rows.shape
    full = flat.size // length if length else size
    xp.copyto(rows[:full], flat[: full * length].reshape(full, length), casting="unsafe")
    if full < size:
        rest = flat.size - full * length
        xp.copyto(rows[full, :rest], flat[full * length :], casting="unsafe")
        rows[full, rest:] = 0
        rows[full + 1 :] = 0


def _from_rows(xp: Any, rows: Any, flat: Any) -> None:
    """Copy an array's elements out of the rows of all ranks."""
    length = rows.shape[1]
    full = flat.size // length if length else 0
    xp.copyto(flat[: full * length].reshape(full, length), rows[:full])
    if full * length < flat.size:
        xp.copyto(flat[full * length :], rows[full, : flat.size - full * length])


def _checked_ranks(k: KernelArgs) -> Callable[[], Any]:
    """As `ranks_of`, where as many ranks must run as the attribute says."""
    ranks = ranks_of(k)
    size = k.attrs["ranks"]

    def get() -> Any:
        others = ranks()
        if others.size != size:
            raise RanksError(k.describe(f"ranks={size}, but {others.size} run"))
        return others

    return get
