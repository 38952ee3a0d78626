"""Sparse rows: each sample holds few elements, given by their numbers and values.

The elements of all rows stand one after the other in `indices` and `values`; row i has counts[i].
Elements of a row that have the same number are added.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.names import EMPTY, rows_name
from ...framework.registry import AttrSpec, Slot, operator
from ...framework.shape import ShapeArgs
from ...operators._calls import Call, in_order
from ...operators._indexing import id_check, scatter_adder, taker

_ROWS = [
    Slot("values", "[E]"),
    Slot("indices", "number of each element in its row, int64 [E]"),
    Slot("counts", "elements of each row, int64 [N]"),
]
_INT = np.dtype(np.int64)


def _rows_rule(s: ShapeArgs) -> int:
    """Checks sparse rows; their number."""
    s.same("numbers of values and indices", s.rank("values", 1)[0], s.rank("indices", 1)[0])
    s.integers("indices")
    s.integers("counts")
    s.set_offsets("out", s.offsets("counts"))
    return s.rank("counts", 1)[0]


def _row_of_element(xp: Any, counts: Any, row: Any) -> None:
    """The row of each element."""
    row[...] = xp.searchsorted(xp.cumsum(counts), xp.arange(len(row)), side="right")


to_dense = operator(
    "cntk.to_dense",
    doc="Sparse rows as a matrix, [N, width].",
    inputs=_ROWS,
    outputs=[Slot("out", "[N, width]")],
    attrs=[AttrSpec("width", "int", "elements of a row", minimum=1)],
    no_gradient="sparse rows are data",
)


@to_dense.shape_rule
def _(s: ShapeArgs) -> None:
    s.set("out", ((_rows_rule(s), s.attrs["width"]), s.dtype("values")))


@to_dense.kernel
def _(k: Any) -> Call:
    xp, out, values, indices, counts = k.xp, k["out"], k["values"], k["indices"], k["counts"]
    row = k.scratch(values.shape, _INT)

    def run() -> None:
        out.fill(0)
        _row_of_element(xp, counts, row)
        xp.add.at(out, (row, indices), values)

    return run


sparse_times = operator(
    "cntk.sparse_times",
    doc=(
        "Product of sparse rows and a matrix: [N rows of D elements] and [D, M] -> [N, M]. The"
        " gradient of the matrix holds the rows that occur, one for each element, and their"
        " numbers; where the matrix is computed by an operator it is dense."
    ),
    inputs=[*_ROWS, Slot("w", "[D, M]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, M]", not_in_gradient=True)],
    source="CNTK: Times of a sparse operand, Source/Math/CPUSparseMatrix.cpp",
)


@sparse_times.shape_rule
def _(s: ShapeArgs) -> None:
    s.set("out", ((_rows_rule(s), s.rank("w", 2)[1]), s.floats("values", "w")))


@sparse_times.kernel
def _(k: Any) -> Call:
    xp, w, out = k.xp, k["w"], k["out"]
    values, indices, counts = k["values"], k["indices"], k["counts"]
    check = id_check(k, "indices", len(w))
    if not values.size:
        return in_order(check, partial(out.fill, 0))
    terms = k.scratch((len(values), w.shape[1]), w.dtype)
    take, factors = taker(k, w, indices, 0, terms), values[:, None]
    row = k.scratch(values.shape, _INT)
    add = scatter_adder(k, out, row, terms)

    def run() -> None:
        check()
        take()
        xp.multiply(terms, factors, terms)
        if len(terms) == len(out) and counts.min() == 1:
            xp.copyto(out, terms)  # one element in each row
            return
        out.fill(0)
        _row_of_element(xp, counts, row)
        add()

    return run


sparse_times_grad = operator(
    "cntk.sparse_times_rows_grad",
    doc=(
        "Gradient of `cntk.sparse_times` by its matrix: grad[e] = values[e] * out_grad[row of e],"
        " for the row rows[e] of the matrix."
    ),
    inputs=[*_ROWS, Slot("out_grad", "[N, M]")],
    outputs=[Slot("grad", "[E, M]"), Slot("rows", "[E], int64")],
    no_gradient="the gradient of a gradient is not built",
)


@sparse_times_grad.shape_rule
def _(s: ShapeArgs) -> None:
    _rows_rule(s)
    count = s["values"][0]
    s.set("grad", ((count, s.rank("out_grad", 2)[1]), s.dtype("out_grad")))
    s.set("rows", ((count,), _INT))


@sparse_times_grad.kernel
def _(k: Any) -> Call:
    xp, out_grad, grad, rows = k.xp, k["out_grad"], k["grad"], k["rows"]
    values, indices, counts = k["values"], k["indices"], k["counts"]
    row = k.scratch(values.shape, _INT)
    factors = values[:, None]

    def run() -> None:
        xp.copyto(rows, indices)
        _row_of_element(xp, counts, row)
        xp.take(out_grad, row, 0, grad)
        xp.multiply(grad, factors, grad)

    return run


@sparse_times.gradient_maker
def _(g: Any) -> Any:
    tables, grads = g.inputs("w"), g.input_grads("w")
    if grads == [EMPTY]:
        return []
    reads = {slot: g.inputs(slot) for slot in ("values", "indices", "counts")}
    reads["out_grad"] = g.output_grads("out")
    if tables[0].version == 0:  # it comes from outside: a parameter can take rows
        writes = {"grad": grads, "rows": g.sparse_rows(grads[0])}
        return [g.op("cntk.sparse_times_rows_grad", reads, writes)]
    some, rows = f"{grads[0]}@SOME", rows_name(f"{grads[0]}@SOME")
    return [
        g.op("cntk.sparse_times_rows_grad", reads, {"grad": some, "rows": rows}),
        g.op("rows_to_dense", {"x": some, "rows": rows, "like": tables}, {"out": grads}),
    ]
