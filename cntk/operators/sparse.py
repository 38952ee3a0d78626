"""Sparse rows: each sample holds few elements, given by their numbers and values.

The elements of all rows lie one after the other in `indices` and `values`; row i has counts[i].
Elements of a row that have the same number are added.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.names import EMPTY, rows_name
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.indexing import id_check, scatter_adder, taker
from ...operators.optim.updates import merge_rows

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


def _row_of_element(k: KernelArgs, row: Any) -> None:
    """The row of each element.

    Raises:
        RunError: the counts of the rows do not add up to the elements that there are.
    """
    ends = k.xp.cumsum(k["counts"])
    held = int(ends[-1]) if len(ends) else 0
    if held != len(row):
        raise RunError(k.describe(f"counts add up to {held} elements, and there are {len(row)}"))
    row[...] = k.xp.searchsorted(ends, k.xp.arange(len(row)), side="right")


to_dense = operator(
    "cntk.to_dense",
    doc="Sparse rows as a matrix, [N, width].",
    inputs=_ROWS,
    outputs=[Slot("out", "[N, width]")],
    attrs=[AttrSpec("width", "int", "elements of a row", minimum=1)],
    no_gradient="sparse rows are data",
)


@to_dense.shape_rule
def to_dense_shape(s: ShapeArgs) -> None:
    s.set("out", ((_rows_rule(s), s.attrs["width"]), s.dtype("values")))


@to_dense.kernel
def to_dense_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    values = k["values"]
    indices = k["indices"]
    row = k.scratch(values.shape, _INT)
    check = id_check(k, "indices", out.shape[1])

    def run() -> None:
        check()
        out.fill(0)
        _row_of_element(k, row)
        xp.add.at(out, (row, indices), values)

    return run


_PARTS = AttrSpec("parts", "int", "rows of the matrix that stand side by side in a row", 1, 1)
_TRANSPOSE = AttrSpec("transpose", "bool", "w is [M, D]", False)

sparse_times = operator(
    "cntk.sparse_times",
    doc=(
        "Product of sparse rows and a matrix: [N rows of P D elements] and [D, M] -> [N, P M], with"
        " P = `parts`. The gradient of the matrix holds the rows that occur, one for each element,"
        " and their numbers; it is dense where the matrix is computed by an operator or transposed."
    ),
    inputs=[
        *_ROWS,
        Slot("w", "[D, M], or [D, m1, ..., mk] for M = m1 ... mk", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, P M]", not_in_gradient=True)],
    attrs=[_PARTS, _TRANSPOSE],
    source="CNTK: Times of a sparse operand, Source/Math/CPUSparseMatrix.cpp",
)


@sparse_times.shape_rule
def sparse_times_shape(s: ShapeArgs) -> None:
    rows = _rows_rule(s)
    w = s["w"]
    if s.attrs["transpose"]:
        w = s.rank("w", 2)[::-1]
    elif len(w) < 2:
        s.fail("w is no matrix")
    width = -1 if -1 in w[1:] else s.attrs["parts"] * count(w[1:])
    s.set("out", ((rows, width), s.floats("values", "w")))


class _Elements:
    """Where the elements of sparse rows go: a row of the matrix, and a row of a result [N P, M].

    Attributes:
        ids: row of the matrix for each element, [E]. at: row of the result, [E].
    """

    def __init__(self, k: KernelArgs, depth: int) -> None:
        self._k = k
        self._xp = k.xp
        self._parts = k.attrs["parts"]
        self._depth = depth
        self._indices = k["indices"]
        self.at = k.scratch(self._indices.shape, _INT)
        self.ids = self._indices
        if self._parts > 1:
            self.ids = k.scratch(self._indices.shape, _INT)

    def load(self) -> None:
        _row_of_element(self._k, self.at)
        if self._parts > 1:
            part, ids = self._xp.divmod(self._indices, self._depth)
            self._xp.copyto(self.ids, ids)
            self._xp.multiply(self.at, self._parts, self.at)
            self._xp.add(self.at, part, self.at)


@sparse_times.kernel
def sparse_times_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    w = k["w"]
    out = k["out"]
    parts = k.attrs["parts"]
    values = k["values"]
    counts = k["counts"]
    transpose = k.attrs["transpose"]
    depth = w.shape[1] if transpose else w.shape[0]
    check = id_check(k, "indices", parts * depth)
    elements = _Elements(k, depth)
    if not values.size or not out.size:
        return in_order(check, elements.load, partial(out.fill, 0))
    terms = k.scratch((len(values), out.shape[1] // parts), w.dtype)
    factors = values[:, None]
    whole = k.in_one_piece(out)
    if transpose:
        spread = k.scratch(terms.shape[::-1], w.dtype)
        take = taker(k, w, elements.ids, 1, spread)
        taken = spread.T
    else:
        spread = terms.reshape(-1, *w.shape[1:])
        take = taker(k, w, elements.ids, 0, spread)
        taken = terms
    add = scatter_adder(k, whole.reshape(-1, terms.shape[1]), elements.at, terms)

    def run() -> None:
        check()
        elements.load()
        take()
        xp.multiply(taken, factors, terms)
        if parts == 1 and len(terms) == len(out) and counts.min() == 1:
            xp.copyto(out, terms)  # one element in each row
            return
        whole.fill(0)
        add()
        if whole is not out:
            xp.copyto(out, whole)

    return run


_GRAD_INPUTS = [*_ROWS, Slot("out_grad", "[N, P M]"), Slot("w", "the matrix", shape_only=True)]

sparse_times_grad = operator(
    "cntk.sparse_times_rows_grad",
    doc=(
        "Gradient of `cntk.sparse_times` by its matrix: grad[e] = values[e] * out_grad[row of e],"
        " for the row rows[e] of the matrix."
    ),
    inputs=_GRAD_INPUTS,
    outputs=[Slot("grad", "[E, M], or [E, m1, ..., mk]"), Slot("rows", "[E], int64")],
    attrs=[_PARTS],
    no_gradient="the gradient of a gradient is not built",
)


def _check_out_grad(s: ShapeArgs, width: int) -> None:
    """The gradient of a product with a matrix that is `width` wide."""
    rows, columns = s.rank("out_grad", 2)
    s.same("rows of counts and out_grad", _rows_rule(s), rows)
    wanted = -1 if width < 0 else s.attrs["parts"] * width
    s.same("columns of out_grad and of the product", columns, wanted)


@sparse_times_grad.shape_rule
def sparse_times_grad_shape(s: ShapeArgs) -> None:
    _check_out_grad(s, count(s["w"][1:]))
    elements = s["values"][0]
    s.set("grad", ((elements, *s["w"][1:]), s.floats("out_grad")))
    s.set("rows", ((elements,), _INT))


def _terms_of(k: KernelArgs, terms: Any, elements: _Elements) -> Call:
    """A callable for the terms [E, M] of the gradient, one for each element."""
    xp = k.xp
    out_grad = k["out_grad"]
    factors = k["values"][:, None]
    whole = k.in_one_piece(out_grad)
    rows = whole.reshape(-1, terms.shape[1]) if terms.size else whole

    def run() -> None:
        elements.load()
        if not terms.size:
            return
        if whole is not out_grad:
            xp.copyto(whole, out_grad)
        xp.take(rows, elements.at, 0, terms)
        xp.multiply(terms, factors, terms)

    return run


@sparse_times_grad.kernel
def sparse_times_grad_kernel(k: KernelArgs) -> Call:
    grad, rows = k["grad"], k["rows"]
    depth = k.shape("w")[0]
    elements = _Elements(k, depth)
    whole = k.in_one_piece(grad)
    terms = whole.reshape(len(rows), -1 if grad.size else 0)
    check = id_check(k, "indices", k.attrs["parts"] * depth)
    calls = [check, _terms_of(k, terms, elements), partial(k.xp.copyto, rows, elements.ids)]
    if whole is not grad:
        calls.append(partial(k.xp.copyto, grad, whole))
    return in_order(*calls)


sparse_times_columns_grad = operator(
    "cntk.sparse_times_columns_grad",
    doc="Gradient of `cntk.sparse_times` by a transposed matrix [M, D], of its shape.",
    inputs=_GRAD_INPUTS,
    outputs=[Slot("grad", "[M, D]")],
    attrs=[_PARTS],
    no_gradient="the gradient of a gradient is not built",
)


@sparse_times_columns_grad.shape_rule
def sparse_times_columns_grad_shape(s: ShapeArgs) -> None:
    _check_out_grad(s, s.rank("w", 2)[0])
    s.set("grad", (s.rank("w", 2), s.dtype("out_grad")))


@sparse_times_columns_grad.kernel
def sparse_times_columns_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["grad"]
    width, depth = grad.shape
    elements = _Elements(k, depth)
    terms = k.scratch((len(k["values"]), width), grad.dtype)
    load = _terms_of(k, terms, elements)

    def run() -> None:
        load()
        ids, sums = merge_rows(xp, elements.ids, terms)
        grad.fill(0)
        grad[:, ids] = sums.T

    return run


@sparse_times.gradient_maker
def sparse_times_gradient(g: GradientArgs) -> list[OpNode]:
    tables, grads = g.inputs("w"), g.input_grads("w")
    if grads == [EMPTY]:
        return []
    reads = {slot: g.inputs(slot) for slot in ("values", "indices", "counts")}
    reads |= {"out_grad": g.output_grads("out"), "w": tables}
    attrs = {name: value for name, value in g.attrs.items() if name == "parts"}
    if g.attrs.get("transpose", False):
        return [g.op("cntk.sparse_times_columns_grad", reads, {"grad": grads}, attrs)]
    if tables[0].version == 0:  # it comes from outside: a parameter can take rows
        writes = {"grad": grads, "rows": g.sparse_rows(grads[0])}
        return [g.op("cntk.sparse_times_rows_grad", reads, writes, attrs)]
    some = f"{grads[0]}@SOME"
    rows = rows_name(f"{grads[0]}@SOME")
    return [
        g.op("cntk.sparse_times_rows_grad", reads, {"grad": some, "rows": rows}, attrs),
        g.op("rows_to_dense", {"x": some, "rows": rows, "like": tables}, {"out": grads}),
    ]
