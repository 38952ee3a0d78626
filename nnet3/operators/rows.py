"""Operators on rows of matrices, to which commands of compiled computations are lowered.

`add_*` add to their target, `copy_*` set it. Row lists are attributes, so that a kernel
can see beforehand where they are runs of neighboring rows, which need no indexing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sequence import repeated
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import copy_task, in_order, recordable, with_task
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...operators.base.calls import copying
from ...operators.base.indexing import scatter_adder

_ALPHA = AttrSpec("alpha", "float", "factor of x", 1.0)
_SOURCE = "Kaldi's CuMatrixBase"
_FORWARD_ONLY = "compiled computations hold it, whose backward part is also compiled"


def _same_columns(s: ShapeArgs, *others: tuple[int, ...]) -> None:
    for shape in (s["y"], *others):
        if len(shape) != 2:
            s.fail("wants matrices")
        if shape[1] >= 0 and s["y"][1] >= 0 and shape[1] != s["y"][1]:
            s.fail(f"adds rows of {shape[1]} columns to rows of {s['y'][1]}")


def _check_rows(s: ShapeArgs, rows: np.ndarray, count: int, bound: int) -> None:
    if 0 <= s["y"][0] != count:
        s.fail(f"has {count} entries for {s['y'][0]} rows")
    if len(rows) and (rows.min() < -1 or (bound >= 0 and rows.max() >= bound)):
        s.fail(f"an entry lies outside of -1 .. {bound - 1}")


def _rows(attrs: Any, name: str = "rows") -> np.ndarray:
    return np.asarray(attrs[name], np.int64)


def _runs(target: np.ndarray, source: np.ndarray) -> list[tuple[slice, slice]] | None:
    """Both lists as few pairs of slices; None where there would be many."""
    breaks = (np.diff(target) != 1) | (np.diff(source) != 1)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(target)]))
    if len(starts) - 1 > max(2, len(target) // 16):
        return None
    pairs = []
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        a = int(target[begin])
        b = int(source[begin])
        size = end - begin
        pairs.append((slice(a, a + size), slice(b, b + size)))
    return pairs


def _mover(k: KernelArgs, y: Any, x: Any, alpha: float, adds: bool) -> Call:
    """y = alpha x, or y += alpha x, for matrices of one size."""
    xp = k.xp
    scale = x.dtype.type(alpha)
    if not adds:
        return partial(xp.copyto, y, x) if alpha == 1 else partial(xp.multiply, x, scale, y)
    if alpha == 1:
        return partial(xp.add, y, x, y)
    part = k.scratch(x.shape, x.dtype)
    return in_order(partial(xp.multiply, x, scale, part), partial(xp.add, y, part, y))


def _row_mover(
    k: KernelArgs, y: Any, x: Any, target: np.ndarray, source: np.ndarray, *, adds: bool = False
) -> Call | None:
    """y[target] = alpha x[source], or with `adds` +=; no row is in `target` twice."""
    alpha = k.attrs["alpha"]
    if not len(target):
        return None
    runs = _runs(target, source)
    if runs is not None:
        return in_order(*(_mover(k, y[a], x[b], alpha, adds) for a, b in runs))
    xp = k.xp
    ids, places = xp.asarray(source), xp.asarray(target)
    mode = {"mode": "clip"} if xp is np else {}
    whole = len(target) == len(y) and (target == np.arange(len(y))).all()
    shape = len(source), x.shape[1]
    taken = y if whole and not adds else k.scratch(shape, x.dtype)
    held = k.scratch(shape, x.dtype) if adds else None

    def move() -> None:
        x.take(ids, 0, taken, **mode)
        if alpha != 1:
            xp.multiply(taken, taken.dtype.type(alpha), taken)
        if whole and adds:
            xp.add(y, taken, y)
        elif adds:
            y.take(places, 0, held, **mode)
            xp.add(held, taken, held)
            y[places] = held
        elif not whole:
            y[places] = taken

    task = None if adds or alpha != 1 else copy_task(y, x, target, source)
    return with_task(recordable(move), task)


def _adding(op_type: str, doc: str, x: Slot, *attrs: AttrSpec) -> OperatorDef:
    """Register an operator that adds rows of x to y."""
    return operator(
        op_type,
        doc=doc,
        inputs=[Slot("y", "[N, D]"), x],
        outputs=[Slot("out", "[N, D]", inplace="y")],
        attrs=[_ALPHA, *attrs],
        source=_SOURCE,
        no_gradient=_FORWARD_ONLY,
    )


add_scaled = _adding(
    "nnet3.add_scaled",
    "out = y + alpha x.",
    Slot("x", "[N, D]"),
)


@add_scaled.shape_rule
def add_scaled_shape(s: ShapeArgs) -> None:
    s.same_shape("y and x", s["y"], s["x"])
    s.set("out", (s["y"], s.floats("y", "x")))


@add_scaled.kernel
def add_scaled_kernel(k: KernelArgs) -> Call:
    copy = copying(k.xp, k["y"], k["out"])
    return in_order(copy, _mover(k, k["out"], k["x"], k.attrs["alpha"], adds=True))


add_rows = _adding(
    "nnet3.add_rows",
    "out[i] = y[i] + alpha x[rows[i]], and y[i] where rows[i] is -1.",
    Slot("x", "[M, D]"),
    AttrSpec("rows", "tensor", "integers [N], -1 <= rows < M"),
)


@add_rows.shape_rule
def add_rows_shape(s: ShapeArgs) -> None:
    rows = _rows(s.attrs)
    _same_columns(s, s["x"])
    _check_rows(s, rows, len(rows), s["x"][0])
    s.set("out", (s["y"], s.floats("y", "x")))


@add_rows.kernel
def add_rows_kernel(k: KernelArgs) -> Call:
    rows = _rows(k.attrs)
    target = np.flatnonzero(rows >= 0)
    copy = copying(k.xp, k["y"], k["out"])
    return in_order(copy, _row_mover(k, k["out"], k["x"], target, rows[target], adds=True))


add_rows_multi = _adding(
    "nnet3.add_rows_multi",
    "out[i] = y[i] + alpha x_s[r] for (s, r) = pairs[i], and y[i] where s is -1.",
    Slot("x", "[*, D] each", duplicable=True),
    AttrSpec("pairs", "tensor", "integers [N, 2]: number of an x, and its row"),
)


@add_rows_multi.shape_rule
def add_rows_multi_shape(s: ShapeArgs) -> None:
    pairs = _rows(s.attrs, "pairs")
    shapes = s.shapes("x")
    _same_columns(s, *shapes)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        s.fail(f"wants pairs [N, 2], not {pairs.shape}")
    _check_rows(s, pairs[:, 0], len(pairs), len(shapes))
    for number, shape in enumerate(shapes):
        of_this = pairs[pairs[:, 0] == number, 1]
        _check_rows(s, of_this, len(pairs), shape[0])
    s.set("out", (s["y"], s.floats("y", "x")))


@add_rows_multi.kernel
def add_rows_multi_kernel(k: KernelArgs) -> Call:
    pairs = _rows(k.attrs, "pairs")
    calls = [copying(k.xp, k["y"], k["out"])]
    for number, x in enumerate(k.list("x")):
        target = np.flatnonzero(pairs[:, 0] == number)
        calls.append(_row_mover(k, k["out"], x, target, pairs[target, 1], adds=True))
    return in_order(*calls)


add_row_ranges = _adding(
    "nnet3.add_row_ranges",
    "out[i] = y[i] + alpha (x[a] + ... + x[b - 1]) for (a, b) = ranges[i]; a = -1: y[i].",
    Slot("x", "[M, D]"),
    AttrSpec("ranges", "tensor", "integers [N, 2]: 0 <= a < b <= M, or -1, -1"),
)


@add_row_ranges.shape_rule
def add_row_ranges_shape(s: ShapeArgs) -> None:
    ranges = _rows(s.attrs, "ranges")
    _same_columns(s, s["x"])
    if ranges.ndim != 2 or ranges.shape[1] != 2:
        s.fail(f"wants ranges [N, 2], not {ranges.shape}")
    _check_rows(s, ranges[:, 0], len(ranges), s["x"][0])
    real = ranges[ranges[:, 0] >= 0]
    if (real[:, 0] >= real[:, 1]).any() or 0 <= s["x"][0] < real[:, 1].max(initial=0):
        s.fail("a range is empty, or leads beyond x")
    s.set("out", (s["y"], s.floats("y", "x")))


@add_row_ranges.kernel
def add_row_ranges_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    out = k["out"]
    xp = k.xp
    ranges = _rows(k.attrs, "ranges")
    target = np.flatnonzero(ranges[:, 0] >= 0)
    begin, end = ranges[target].T
    sizes = end - begin
    copy = copying(xp, k["y"], out)
    if not len(target):
        return in_order(copy)
    if (sizes == 1).all():
        return in_order(copy, _row_mover(k, out, x, target, begin, adds=True))
    # The sums go through a matrix of their own: row j of it is the sum over range j.
    sums = k.scratch((len(target), x.shape[1]), x.dtype)
    numbers = np.arange(len(target))
    add = _row_mover(k, out, sums, target, numbers, adds=True)
    runs = _runs(begin[1:], end[:-1]) if len(target) > 1 else [(slice(0), slice(0))]
    together = (begin[1:] == end[:-1]).all() and (sizes == sizes[0]).all()
    if runs is not None and together:
        size = int(sizes[0])
        part = x[int(begin[0]) : int(end[-1])].reshape(len(target), size, x.shape[1])
        return in_order(copy, partial(xp.sum, part, 1, None, sums), add)
    ids = xp.asarray(repeated(numbers, sizes))
    rows = np.concatenate([np.arange(a, b) for a, b in zip(begin, end, strict=True)])
    taken = k.scratch((len(rows), x.shape[1]), x.dtype)
    mode = {"mode": "clip"} if xp is np else {}
    return in_order(
        copy,
        partial(x.take, xp.asarray(rows), 0, taken, **mode),
        partial(sums.fill, 0),
        scatter_adder(k, sums, ids, taken),
        add,
    )


copy_rows = operator(
    "nnet3.copy_rows",
    doc="out[i] = alpha x[rows[i]], and 0 where rows[i] is -1.",
    inputs=[Slot("x", "[M, D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[_ALPHA, AttrSpec("rows", "tensor", "integers [N], -1 <= rows < M")],
    source=_SOURCE,
)


def _scalable(s: ShapeArgs) -> Any:
    """The dtype of x: any for a plain copy, a floating one where rows are scaled."""
    return s.dtype("x") if s.attrs["alpha"] == 1 else s.floats("x")


@copy_rows.shape_rule
def copy_rows_shape(s: ShapeArgs) -> None:
    rows = _rows(s.attrs)
    s.rank("x", 2)
    if rows.ndim != 1:
        s.fail(f"wants rows [N], not {rows.shape}")
    if len(rows) and (rows.min() < -1 or 0 <= s["x"][0] <= rows.max()):
        s.fail(f"an entry lies outside of -1 .. {s['x'][0] - 1}")
    s.set("out", ((len(rows), s["x"][1]), _scalable(s)))


@copy_rows.kernel
def copy_rows_kernel(k: KernelArgs) -> Call:
    rows = _rows(k.attrs)
    out = k["out"]
    target = np.flatnonzero(rows >= 0)
    clear = partial(out.fill, 0) if len(target) < len(rows) else None
    return in_order(clear, _row_mover(k, out, k["x"], target, rows[target]))


@copy_rows.backward("x")
def copy_rows_grad_kernel(k: KernelArgs) -> Call:
    rows = _rows(k.attrs)
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    target = np.flatnonzero(rows >= 0)
    source = rows[target]
    clear = partial(x_grad.fill, 0)
    if len(np.unique(source)) == len(source):
        clear = clear if len(source) < len(x_grad) else None
        return in_order(clear, _row_mover(k, x_grad, grad, source, target))
    taken = k.scratch((len(target), grad.shape[1]), grad.dtype)
    numbers = np.arange(len(target))
    return in_order(
        clear,
        _row_mover(k, taken, grad, numbers, target),
        scatter_adder(k, x_grad, k.xp.asarray(source), taken),
    )


copy_rows_multi = operator(
    "nnet3.copy_rows_multi",
    doc="out[i] = alpha x_s[r] for (s, r) = pairs[i], and 0 where s is -1.",
    inputs=[Slot("x", "[*, D] each", duplicable=True)],
    outputs=[Slot("out", "[N, D]")],
    attrs=[_ALPHA, AttrSpec("pairs", "tensor", "integers [N, 2]: number of an x, and its row")],
    source=_SOURCE,
    no_gradient=_FORWARD_ONLY,
)


@copy_rows_multi.shape_rule
def copy_rows_multi_shape(s: ShapeArgs) -> None:
    pairs = _rows(s.attrs, "pairs")
    shapes = s.shapes("x")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not shapes:
        s.fail(f"wants pairs [N, 2] and at least one x, not {pairs.shape}")
    if any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
        s.fail("wants matrices with equal numbers of columns")
    if len(pairs) and (pairs[:, 0].min() < -1 or pairs[:, 0].max() >= len(shapes)):
        s.fail("a pair names an x that is not there")
    for number, shape in enumerate(shapes):
        rows = pairs[pairs[:, 0] == number, 1]
        if len(rows) and (rows.min() < 0 or 0 <= shape[0] <= rows.max()):
            s.fail(f"a pair leads out of x number {number}")
    s.set("out", ((len(pairs), shapes[0][1]), _scalable(s)))


@copy_rows_multi.kernel
def copy_rows_multi_kernel(k: KernelArgs) -> Call:
    pairs = _rows(k.attrs, "pairs")
    out = k["out"]
    calls: list[Call | None] = []
    if (pairs[:, 0] < 0).any():
        calls.append(partial(out.fill, 0))
    for number, x in enumerate(k.list("x")):
        target = np.flatnonzero(pairs[:, 0] == number)
        calls.append(_row_mover(k, out, x, target, pairs[target, 1]))
    return in_order(*calls)
