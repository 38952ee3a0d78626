"""Look-up of table rows, with dense gradients or with sparse ones: values and row numbers.

A sparse gradient is a matrix of values, one row for each looked-up id, beside the ids' row numbers.
The same row may come several times; rows numbered -1 are skipped.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import Shape, ShapeArgs, count
from ...framework.fusion.team import in_order, nothing, recordable
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import EVERYWHERE, AttrSpec, Slot, operator
from ...framework.ir.rows import rows_of
from ..base.indexing import checked_rows, id_check, scatter_adder, taker
from .shape import copier

_ROWS = np.dtype("int64")
_PADDING = AttrSpec(
    "padding_idx", "int", "id whose result is zero and which gets no gradient; -1 = none", -1, -1
)

embedding = operator(
    "embedding",
    doc="Rows of a table: out[i, ...] = w[ids[i, ...]]. With sparse=True the gradient of w holds"
    " only the rows looked up.",
    inputs=[
        Slot("ids", "integers of any shape, 0 <= ids < rows of w"),
        Slot("w", "[rows, dim]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "shape of ids, then dim", not_in_gradient=True)],
    attrs=[AttrSpec("sparse", "bool", "write sparse-row gradients", False), _PADDING],
    source="Paddle's lookup_table_op",
    rows=rows_of("ids", but=("w",)),
    takes_halves=EVERYWHERE,
)


@embedding.shape_rule
def embedding_shape(s: ShapeArgs) -> None:
    _, dim = _table(s)
    s.integers("ids")
    s.set("out", ((*s["ids"], dim), s.dtype("w")))


def _table(s: ShapeArgs) -> Shape:
    """The shape of w, which has the row of padding_idx."""
    table = s.rank("w", 2)
    padding = s.attrs["padding_idx"]
    if 0 <= table[0] <= padding:
        s.fail(f"padding_idx {padding} is no row of w")
    return table


@embedding.kernel
def embedding_kernel(k: KernelArgs) -> Call:
    ids = k["ids"]
    out = k["out"]
    padding = k.attrs["padding_idx"]
    if not ids.size:
        return nothing
    rows = checked_rows(k, "ids", k["w"], out) if padding < 0 else None
    if rows is not None:
        return rows
    check = id_check(k, "ids", k.shape("w")[0])
    take = taker(k, k["w"], ids, 0, out)

    def clear() -> None:
        out[ids == padding] = 0

    return in_order(check, take, recordable(clear) if padding >= 0 else None)


embedding_grad = operator(
    "embedding_grad",
    doc="Gradient of `embedding`: w_grad[ids[i]] += out_grad[i], from zero.",
    inputs=[
        Slot("ids", "integers of any shape"),
        Slot("w", "[rows, dim]", shape_only=True),
        Slot("out_grad", "shape of ids, then dim"),
    ],
    outputs=[Slot("w_grad", "[rows, dim]")],
    attrs=[_PADDING],
    no_gradient="the gradient of a gradient is not built",
)


@embedding_grad.shape_rule
def embedding_grad_shape(s: ShapeArgs) -> None:
    table = _table(s)
    _check_lookup(s)
    s.same("dim of out_grad and of w", s["out_grad"][-1], table[1])
    s.set("w_grad", (table, s.floats("w", "out_grad")))


def _check_lookup(s: ShapeArgs) -> None:
    """out_grad is the gradient of rows that ids looked up."""
    shape = s["out_grad"]
    s.integers("ids")
    if not shape:
        s.fail("out_grad wants at least 1 dimension")
    s.same_shape("ids and out_grad without its last axis", s["ids"], shape[:-1])


@embedding_grad.kernel
def embedding_grad_kernel(k: KernelArgs) -> Call:
    w_grad = k["w_grad"]
    padding = k.attrs["padding_idx"]
    check = id_check(k, "ids", w_grad.shape[0])
    add = scatter_adder(k, w_grad, k["ids"], k["out_grad"])
    clear = partial(k.xp.copyto, w_grad[padding], 0) if padding >= 0 else None
    return in_order(check, partial(k.xp.copyto, w_grad, 0), add, clear)


embedding_rows_grad = operator(
    "embedding_rows_grad",
    doc="Sparse-row gradient of `embedding`: the gradient of every looked-up row, and its number."
    " Ids equal to padding_idx give row -1 and zeros.",
    inputs=[
        Slot("ids", "n integers, in any shape"),
        Slot("out_grad", "shape of ids, then dim"),
    ],
    outputs=[
        Slot("values", "[n, dim]", inplace="out_grad"),
        Slot("rows", "[n], int64"),
    ],
    attrs=[_PADDING],
    no_gradient="the gradient of a gradient is not built",
)


@embedding_rows_grad.shape_rule
def embedding_rows_grad_shape(s: ShapeArgs) -> None:
    _check_lookup(s)
    total = count(s["ids"])
    s.set("values", ((total, s["out_grad"][-1]), s.dtype("out_grad")))
    s.set("rows", ((total,), _ROWS))


@embedding_rows_grad.kernel
def embedding_rows_grad_kernel(k: KernelArgs) -> Call:
    values = k["values"]
    rows = k["rows"]
    padding = k.attrs["padding_idx"]
    copy_values = copier(k.xp, k["out_grad"], values)
    copy_rows = copier(k.xp, k["ids"], rows)

    def clear() -> None:
        padded = rows == padding
        values[padded] = 0
        rows[padded] = -1

    return in_order(copy_values, copy_rows, recordable(clear) if padding >= 0 else None)


@embedding.gradient_maker
def embedding_gradient(g: GradientArgs) -> list[OpNode]:
    tables, grads = g.inputs("w"), g.input_grads("w")
    if grads == [EMPTY]:
        return []
    padding = {name: value for name, value in g.attrs.items() if name == "padding_idx"}
    reads = {"ids": g.inputs("ids"), "out_grad": g.output_grads("out")}
    # Only a table from outside can take rows: an operator that makes one wants a dense gradient.
    sparse = g.attrs.get("sparse", False) and tables[0].version == 0
    if sparse:
        writes = {"values": grads, "rows": g.sparse_rows(grads[0])}
        return [g.op("embedding_rows_grad", reads, writes, padding)]
    return [g.op("embedding_grad", {**reads, "w": tables}, {"w_grad": grads}, padding)]


# -- sparse rows -------------------------------------------------------------------------------

rows_to_dense = operator(
    "rows_to_dense",
    doc="The whole table that sparse rows stand for: zeros, then out[rows[i]] += x[i]; row -1 is"
    " passed over.",
    inputs=[
        Slot("x", "[n, dim], the values"),
        Slot("rows", "[n] integers, -1 <= rows < rows of like"),
        Slot("like", "[rows, dim], the table; its values are not read", shape_only=True),
    ],
    outputs=[Slot("out", "shape of like")],
    no_gradient="sparse rows are gradients themselves",
)


def _check_rows(s: ShapeArgs) -> None:
    shape = s["x"]
    rows = s.rank("rows", 1)
    s.integers("rows")
    if not shape:
        s.fail("x needs a row for each of rows")
    s.same("numbers of rows", shape[0], rows[0])


@rows_to_dense.shape_rule
def rows_to_dense_shape(s: ShapeArgs) -> None:
    _check_rows(s)
    s.same_shape("rows of x and of like", s["x"][1:], s["like"][1:])
    s.set("out", (s["like"], s.dtype("x")))


@rows_to_dense.kernel
def rows_to_dense_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    rows = k["rows"]
    out = k["out"]
    add = scatter_adder(k, out, rows, x)

    def run() -> None:
        out.fill(0)
        least, last = (rows.min(), rows.max()) if rows.size else (0, -1)
        if least < -1 or last >= len(out):
            bad = int(least if least < -1 else last)
            name = k.op.inputs["rows"][0]
            raise RunError(k.describe(f"rows {name!r} holds {bad}, want -1 to {len(out) - 1}"))
        if least < 0:
            held = rows >= 0
            # The compiled adder counts negative rows from the end: -1 would be the last row.
            xp.add.at(out, rows[held], x[held])
        else:
            add()

    return run


merge_rows = operator(
    "merge_rows",
    doc="Sparse rows, each number at most once: values of equal rows are summed at the first of"
    " them; the others become zeros with row -1. Shapes stay.",
    inputs=[Slot("x", "[n, ...], the values"), Slot("rows", "[n] integers, -1 = nothing")],
    outputs=[Slot("out", "shape of x"), Slot("rows_out", "shape of rows")],
    no_gradient="sparse rows are gradients themselves",
)


@merge_rows.shape_rule
def merge_rows_shape(s: ShapeArgs) -> None:
    _check_rows(s)
    s.set("out", (s["x"], s.dtype("x")))
    s.set("rows_out", (s["rows"], s.dtype("rows")))


@merge_rows.kernel
def merge_rows_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    rows = k["rows"]
    out = k["out"]
    rows_out = k["rows_out"]
    if not rows.size:
        return nothing
    first = k.scratch(rows.shape, _ROWS)  # for each entry: the first entry with its number
    # No scratch memory: the first place is set once and must stay True from call to call.
    starts = xp.ones(rows.shape, bool)
    add = scatter_adder(k, out, first, k["x"])

    def run() -> None:
        # Stable, so that the first entry of each number leads its group.
        order = xp.argsort(rows, kind="stable")
        ordered = rows[order]
        xp.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
        group = xp.cumsum(starts) - 1
        first[order] = order[starts][group]
        out.fill(0)
        add()
        # The rows -1 were summed as a group like others, and mean nothing.
        out[rows < 0] = 0
        rows_out.fill(-1)
        heads = order[starts]
        rows_out[heads] = rows[heads]

    return run
