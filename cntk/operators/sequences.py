"""Operators along the sequences of a minibatch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sequence import lengths_of, repeated
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...framework.ir.rows import rows_of
from ...operators.base.calls import copying, reducing
from ...operators.base.indexing import scatter_adder, taker
from ...operators.sequence.sequences import levels_of, offsets_in, packed, sequences_in

initial_state = operator(
    "cntk.initial_state",
    doc=(
        "Values of a delay before the first row of each sequence: x for all of them; with"
        " `carried` and `fresh`, x for sequences that begin in this minibatch and their row of"
        " carried for those that go on."
    ),
    inputs=[
        Slot("x", "the initial state, [...]", not_in_gradient=True),
        Slot("like", "sequences", not_in_gradient=True, shape_only=True),
        Slot("fresh", "which sequences begin here, bool [S]", optional=True),
        Slot("carried", "[S, ...]", optional=True, not_in_gradient=True),
    ],
    outputs=[Slot("out", "[S, ...]", not_in_gradient=True)],
    source="CNTK: Source/ComputationNetworkLib/RecurrentNodes.cpp",
)


@initial_state.shape_rule
def initial_state_shape(s: ShapeArgs) -> None:
    if s.has("fresh") != s.has("carried"):
        s.fail("fresh and carried go together")
    count = sequences_in(levels_of(s, "like"))
    if s.has("fresh"):
        count = s.same("sequences", count, s.rank("fresh", 1)[0], s["carried"][0])
        s.same_shape("x and rows of carried", s["x"], s["carried"][1:])
        if s.dtype("fresh") != bool:
            s.fail(f"fresh wants bool and has {s.dtype('fresh')}")
        if not np.can_cast(s.dtype("carried"), s.dtype("x"), "same_kind"):
            s.fail(f"carried is {s.dtype('carried')} and x {s.dtype('x')}")
    s.set("out", ((count, *s["x"]), s.dtype("x")))
    s.set_offsets("out", ())


@initial_state.kernel
def initial_state_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    fill = partial(xp.copyto, out, x)
    if k.get("fresh") is None:
        return fill
    carried = k["carried"]
    mask = _mask(k)
    return in_order(partial(xp.copyto, out, carried), partial(xp.copyto, out, x, where=mask))


def _mask(k: KernelArgs) -> Any:
    """`fresh` [S] shaped to go with [S, ...]."""
    fresh = k["fresh"]
    return fresh.reshape(len(fresh), *(1 for _ in k.shape("x")))


@initial_state.backward("x")
def initial_state_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    if k.get("fresh") is None:
        return partial(xp.sum, grad, 0, None, x_grad)
    mask = _mask(k)
    masked = k.scratch(grad.shape, grad.dtype)
    return in_order(
        partial(xp.multiply, grad, mask, masked), partial(xp.sum, masked, 0, None, x_grad)
    )


expand_rows = operator(
    "cntk.expand_rows",
    doc="The same x in every row: out[i] = x, [N, ...], for the N rows of `like`.",
    inputs=[
        Slot("x", "[...]", not_in_gradient=True),
        Slot("like", "[N, ...]", not_in_gradient=True, shape_only=True),
    ],
    outputs=[Slot("out", "[N, ...]", not_in_gradient=True)],
    rows=rows_of("like", but=("x",)),
)


@expand_rows.shape_rule
def expand_rows_shape(s: ShapeArgs) -> None:
    s.set("out", ((s["like"][0], *s["x"]), s.dtype("x")))
    s.set_offsets("out", s.offsets("like"))


@expand_rows.kernel
def expand_rows_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.copyto, k["out"], k["x"])


@expand_rows.backward("x")
def expand_rows_grad_kernel(k: KernelArgs) -> Call:
    return reducing(k.xp, k["out_grad"], k["x_grad"][None]) or nothing


with_sequences = operator(
    "cntk.with_sequences",
    doc="The rows of x as sequences of `like`, whose sequences have the same lengths.",
    inputs=[
        Slot("x", "sequences [N, ...]", not_in_gradient=True),
        Slot("like", "sequences [N, ...]", not_in_gradient=True, shape_only=True),
    ],
    outputs=[Slot("out", "sequences [N, ...]", not_in_gradient=True, inplace="x")],
    source="CNTK: ReconcileDynamicAxis, Source/ComputationNetworkLib/ReshapingNodes.h",
)


@with_sequences.shape_rule
def with_sequences_shape(s: ShapeArgs) -> None:
    mine, others = levels_of(s, "x"), levels_of(s, "like")
    if not (
        mine is None or others is None or np.array_equal(lengths_of(mine[0]), lengths_of(others[0]))
    ):
        s.fail("the sequences of x and like differ in length")
    s.set("out", (s["x"], s.dtype("x")))
    s.set_offsets("out", others)


@with_sequences.kernel
def with_sequences_kernel(k: KernelArgs) -> Call:
    return copying(k.xp, k["x"], k["out"]) or nothing


@with_sequences.backward("x")
def with_sequences_grad_kernel(k: KernelArgs) -> Call:
    return copying(k.xp, k["out_grad"], k["x_grad"]) or nothing


packed_index = operator(
    "cntk.packed_index",
    doc=(
        "Positions in the sequences of `source` as numbers of its rows: out[i] = x[i] + the first"
        " row of the sequence that row i of x belongs to."
    ),
    inputs=[
        Slot("x", "sequences of positions, [M, 1]"),
        Slot("source", "as many sequences, [N, ...]", shape_only=True),
    ],
    outputs=[Slot("out", "sequences of row numbers, int64 [M, 1]")],
    source="CNTK: Source/ComputationNetworkLib/ReshapingNodes.cpp",
    no_gradient="it gives numbers of rows",
)


@packed_index.shape_rule
def packed_index_shape(s: ShapeArgs) -> None:
    mine, others = levels_of(s, "x"), levels_of(s, "source")
    s.same("sequences of x and source", sequences_in(mine), sequences_in(others))
    s.same("columns of x", s.rank("x", 2)[1], 1)
    s.set("out", (s["x"], np.int64))
    s.set_offsets("out", mine)


@packed_index.kernel
def packed_index_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    if not out.size:
        return nothing
    offsets = offsets_in(k, "source")
    counts = lengths_of(offsets_in(k, "x"))
    first = xp.asarray(repeated(offsets[:-1], counts)).reshape(out.shape)
    length = xp.asarray(repeated(lengths_of(offsets), counts)).reshape(out.shape)

    def run() -> None:
        xp.copyto(out, x, casting="unsafe")
        if ((out < 0) | (out >= length)).any():
            raise RunError(k.describe("a position does not lie within its sequence"))
        xp.add(out, first, out)

    return run


_INDEX = Slot("index", "numbers of rows, [M, 1]")


def _index_rule(s: ShapeArgs) -> int:
    """Checks the numbers of rows; how many there are."""
    rows, columns = s.rank("index", 2)
    s.same("columns of index", columns, 1)
    return rows


def _row_numbers(k: KernelArgs) -> tuple[Any, Call]:
    """Memory [M] for the row numbers, and the call that fills it."""
    index = k["index"]
    ids = k.scratch((len(index),), np.int64)
    return ids, partial(k.xp.copyto, ids, index[:, 0], casting="unsafe")


def _in_range(k: KernelArgs, ids: Any, bound: int) -> Call:
    def check() -> None:
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= bound):
            raise RunError(k.describe(f"a row number is outside 0 .. {bound - 1}"))

    return check


gather_rows = operator(
    "cntk.gather_rows",
    doc="Rows of x: out[i] = x[index[i]].",
    inputs=[Slot("x", "[N, ...]", not_in_gradient=True), _INDEX],
    outputs=[Slot("out", "sequences as index has them, [M, ...]", not_in_gradient=True)],
    source="CNTK: GatherPacked, Source/ComputationNetworkLib/ReshapingNodes.cpp",
)


@gather_rows.shape_rule
def gather_rows_shape(s: ShapeArgs) -> None:
    rows = _index_rule(s)
    s.set("out", ((rows, *s["x"][1:]), s.dtype("x")))
    s.set_offsets("out", s.offsets("index"))


@gather_rows.kernel
def gather_rows_kernel(k: KernelArgs) -> Call:
    ids, load = _row_numbers(k)
    check = _in_range(k, ids, k.shape("x")[0])
    if not k["out"].size:
        return nothing
    x, pack = packed(k, k["x"])
    return in_order(load, check, pack, taker(k, x, ids, 0, k["out"]))


@gather_rows.backward("x")
def gather_rows_grad_kernel(k: KernelArgs) -> Call:
    x_grad, grad = k["x_grad"], k["out_grad"]
    ids, load = _row_numbers(k)
    clear = partial(x_grad.fill, 0)
    return in_order(load, clear, scatter_adder(k, x_grad, ids, grad) if grad.size else None)


scatter_rows = operator(
    "cntk.scatter_rows",
    doc="Rows put into the sequences of `like`: zeros, then out[index[i]] += x[i].",
    inputs=[
        Slot("x", "[M, ...]", not_in_gradient=True),
        _INDEX,
        Slot("like", "sequences [N, ...]", not_in_gradient=True, shape_only=True),
    ],
    outputs=[Slot("out", "sequences [N, ...]", not_in_gradient=True)],
    source="CNTK: ScatterPacked, Source/ComputationNetworkLib/ReshapingNodes.cpp",
)


@scatter_rows.shape_rule
def scatter_rows_shape(s: ShapeArgs) -> None:
    s.same("rows of x and index", s["x"][0], _index_rule(s))
    s.set("out", ((s["like"][0], *s["x"][1:]), s.dtype("x")))
    s.set_offsets("out", s.offsets("like"))


@scatter_rows.kernel
def scatter_rows_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    ids, load = _row_numbers(k)
    add = scatter_adder(k, out, ids, x) if x.size else None
    return in_order(load, _in_range(k, ids, len(out)), partial(out.fill, 0), add)


@scatter_rows.backward("x")
def scatter_rows_grad_kernel(k: KernelArgs) -> Call:
    ids, load = _row_numbers(k)
    if not k["x_grad"].size:
        return nothing
    grad, pack = packed(k, k["out_grad"])
    return in_order(load, pack, taker(k, grad, ids, 0, k["x_grad"]))
