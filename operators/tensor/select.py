"""Operators that select by position or by rank: gather, one-hot, top-k, sort, argmax."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import copying
from ..base.indexing import (
    along_axis,
    checked_rows,
    counted_from_front,
    id_check,
    open_mesh,
    scatter_adder,
    taker,
)
from ..base.row_adder import row_adder, row_summer

_X = Slot("x", "any shape", not_in_gradient=True)
_FROM_END = AttrSpec("from_end", "bool", "ids below 0 are allowed and count from the end", False)
_IDS = np.dtype("int64")
_FEW = 8  # largest k for which top_k searches instead of sorting


# -- gather and scatter ------------------------------------------------------------------------

gather = operator(
    "gather",
    doc="Entries of x along an axis: for axis 0, out[i, ...] = x[ids[i], ...].",
    inputs=[_X, Slot("ids", "integers of any shape, 0 <= ids < x.shape[axis]")],
    outputs=[Slot("out", "shape of x, with ids' shape in place of axis", not_in_gradient=True)],
    attrs=[AttrSpec("axis", "int", "axis of x that ids count along", 0), _FROM_END],
)


@gather.shape_rule
def gather_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    axis = s.axis(s.attrs["axis"], len(shape))
    s.integers("ids")
    s.set("out", ((*shape[:axis], *s["ids"], *shape[axis + 1 :]), s.dtype("x")))


def _ids(k: KernelArgs, bound: int) -> tuple[Any, Call | None]:
    """The ids counted from the front, and the call that counts them so where that takes one."""
    ids = k["ids"]
    # Unsigned ids have no values below 0 that could count from the end.
    if not k.attrs["from_end"] or ids.dtype.kind == "u" or not ids.size:
        return ids, None
    return counted_from_front(k, ids, bound)


def _check(k: KernelArgs, ids: Any, count: Call | None, bound: int) -> Call:
    """The check of what `_ids` gave, after the call that counts them."""
    if count is None:
        return id_check(k, "ids", bound)
    return in_order(count, id_check(k, "ids", bound, counted=ids))


@gather.kernel
def gather_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    axis = k.attrs["axis"] % x.ndim
    ids, count = _ids(k, x.shape[axis])
    if not ids.size:
        return nothing
    rows = checked_rows(k, "ids", x, k["out"]) if not axis and count is None else None
    if rows is not None:
        return rows
    check = _check(k, ids, count, x.shape[axis])
    return in_order(check, taker(k, x, ids, axis, k["out"]))


@gather.backward("x")
def gather_grad_kernel(k: KernelArgs) -> Call:
    x_grad, out_grad = k["x_grad"], k["out_grad"]
    axis = k.attrs["axis"] % x_grad.ndim
    ids, count = _ids(k, x_grad.shape[axis])
    # The axis in front, on both sides: a view without cost where it is the first already.
    rows = k.xp.moveaxis(x_grad, axis, 0)
    taken = range(axis, axis + ids.ndim)
    values = out_grad.transpose(*taken, *(a for a in range(out_grad.ndim) if a not in taken))
    # Ids are not checked again: the forward run has refused bad ones.
    add = scatter_adder(k, rows, ids, values)

    return in_order(count, partial(x_grad.fill, 0), add)


scatter_add = operator(
    "scatter_add",
    doc="x with rows added: out = x, then out[ids[i]] += updates[i] for every i.",
    inputs=[
        Slot("x", "[n, ...]", not_in_gradient=True),
        Slot("ids", "integers of any shape, 0 <= ids < n; repeated ones add up"),
        Slot("updates", "shape of ids, then of a row of x", not_in_gradient=True),
    ],
    outputs=[Slot("out", "shape of x", not_in_gradient=True, inplace="x")],
    attrs=[_FROM_END],
)


@scatter_add.shape_rule
def scatter_add_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    if not shape:
        s.fail("x needs at least one dimension")
    s.integers("ids")
    if s.dtype("updates") != s.dtype("x"):
        s.fail("x and updates want one dtype")
    s.same_shape("updates and ids with a row of x", s["updates"], (*s["ids"], *shape[1:]))
    s.set("out", (shape, s.dtype("x")))


@scatter_add.kernel
def scatter_add_kernel(k: KernelArgs) -> Call:
    x, out, (ids, count) = k["x"], k["out"], _ids(k, len(k["x"]))
    check = _check(k, ids, count, len(x))
    return in_order(check, copying(k.xp, x, out), scatter_adder(k, out, ids, k["updates"]))


@scatter_add.gradient_maker
def scatter_add_gradient(g: GradientArgs) -> list[OpNode]:
    grads = g.output_grads("out")
    ops = []
    if g.needs("x"):
        ops.append(g.op("assign", {"x": grads}, {"out": g.input_grads("x")}))
    if g.needs("updates"):
        reads = {"x": grads, "ids": g.inputs("ids")}
        ops.append(g.op("gather", reads, {"out": g.input_grads("updates")}, g.attrs))
    return ops


# The gradient of rows that are gathered and added is such a pair, too: its rows go back.
@gather.kernel(
    device="cpu", library="direct", tails=("gather_grad.out_grad", "scatter_add.updates")
)
def gather_scatter_kernel(k: KernelArgs) -> Call | None:
    """Rows taken and added elsewhere, without an array of them; None for a gather alone."""
    if not k.tail or k.attrs["axis"] % k["x"].ndim:
        return None
    (after,) = k.tail
    begin = after["x"] if after.op.type == "scatter_add" else None
    x, out = k["x"], after["out" if begin is not None else "x_grad"]
    # Of other shapes a row that is taken may be several that are added.
    if k["ids"].shape != after["ids"].shape or np.may_share_memory(x, out):
        return None
    if begin is None and after.attrs["axis"] % out.ndim:
        return None
    ids, to = _ids(k, len(x)), _ids(after, len(out))
    checks = in_order(_check(k, *ids, len(x)), _check(after, *to, len(out)))
    summed = row_summer(k, after, begin, out, checks)
    if summed is not None:
        return summed
    add = row_adder(out, to[0], x, ids[0])
    start = partial(out.fill, 0) if begin is None else copying(k.xp, begin, out)
    return None if add is None else in_order(checks, start, add)


# -- one-hot -----------------------------------------------------------------------------------

one_hot = operator(
    "one_hot",
    doc="1 at each id and 0 elsewhere along a new last axis.",
    inputs=[Slot("ids", "integers of any shape, 0 <= ids < depth")],
    outputs=[Slot("out", "shape of ids, then depth")],
    attrs=[
        AttrSpec("depth", "int", "size of the new axis", minimum=0),
        AttrSpec("dtype", "dtype", "of the result", np.dtype("float32")),
    ],
    no_gradient="its input holds integers",
)


@one_hot.shape_rule
def one_hot_shape(s: ShapeArgs) -> None:
    s.integers("ids")
    s.set("out", ((*s["ids"], s.attrs["depth"]), s.attrs["dtype"]))


@one_hot.kernel
def one_hot_kernel(k: KernelArgs) -> Call:
    ids, out = k["ids"], k["out"]
    check = id_check(k, "ids", k.attrs["depth"])
    # The index is made once and holds the array of ids itself, so each call reads their new values.
    index = (*open_mesh(k.xp, ids.shape), ids)

    def run() -> None:
        check()
        out.fill(0)
        out[index] = 1

    return run


# -- order -------------------------------------------------------------------------------------


def _ordering(k: KernelArgs, ids: Any, descending: bool) -> Any:
    """A callable that writes the positions along axis of the entries of x in order.

    As many as `ids` has. Equal entries stay in their order. NaN counts as the largest, as in
    PyTorch.
    """
    xp = k.xp
    axis = k.attrs["axis"]
    x = xp.moveaxis(k["x"], axis, -1)
    ids = xp.moveaxis(ids, axis, -1)
    last = x.shape[-1] - 1
    count = ids.shape[-1]

    def run() -> None:
        if descending:  # ascending order of the reversed array, read backwards, keeps ties stable
            order = last - xp.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        else:
            order = xp.argsort(x, axis=-1, kind="stable")
        xp.copyto(ids, order[..., :count])

    return run


def _ordered(k: KernelArgs, values: str, descending: bool) -> Any:
    """A callable that writes the first entries of x in order, and their positions."""
    xp = k.xp
    x = k["x"]
    out = k[values]
    ids = k["ids"]
    axis = k.attrs["axis"]
    find = _ordering(k, ids, descending)

    def run() -> None:
        find()
        xp.copyto(out, xp.take_along_axis(x, ids, axis=axis))

    return run


def _largest(k: KernelArgs, values: str, count: int) -> Any:
    """As `_ordered`, descending, for a small count: a search for each, far cheaper than sorting."""
    xp = k.xp
    axis = k.attrs["axis"]
    x, out, ids = (xp.moveaxis(a, axis, -1) for a in (k["x"], k[values], k["ids"]))
    # A copy of x, in which the lowest value takes the place of what has been chosen.
    left = k.scratch(x.shape, x.dtype)
    mesh = open_mesh(xp, x.shape[:-1])
    lowest = _lowest(x.dtype)
    by_sorting = _ordered(k, values, True)

    def run() -> None:
        xp.copyto(left, x)
        for place in range(count):
            # argmax takes the first of equal entries, and NaN for the largest, as the sort does.
            best = left.argmax(-1)
            index = (*mesh, best)
            ids[..., place] = best
            out[..., place] = left[index]
            left[index] = lowest
        if (out[..., -1:] == lowest).any():  # entries found and entries of x look the same now
            by_sorting()

    return run


def _lowest(dtype: np.dtype) -> Any:
    if is_float(dtype):
        return -np.inf
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def _order_gradient(op_type: str, values: str) -> Any:
    """Register `OP_grad`, which puts the gradients of `values` back in place, and its maker."""
    grad = operator(
        f"{op_type}_grad",
        doc=f"Gradient of `{op_type}`: each value's gradient goes to where the value was.",
        inputs=[
            Slot("x", "any shape", shape_only=True),
            Slot("ids", "positions along axis"),
            Slot(f"{values}_grad", f"gradient of the loss with respect to {values}"),
        ],
        outputs=[Slot("x_grad", "shape of x")],
        attrs=[AttrSpec("axis", "int", "axis that ids count along", -1)],
        no_gradient="the gradient of a gradient is not built",
    )

    @grad.shape_rule
    def grad_shape(s: ShapeArgs) -> None:
        s.same_shape(f"ids and {values}_grad", s["ids"], s[f"{values}_grad"])
        s.same("the ranks of x and ids", len(s["x"]), len(s["ids"]))
        s.axis(s.attrs["axis"], len(s["x"]))
        s.set("x_grad", (s["x"], s.dtype(f"{values}_grad")))

    @grad.kernel
    def grad_kernel(k: KernelArgs) -> Call:
        x_grad = k["x_grad"]
        arriving = k[f"{values}_grad"]
        index = along_axis(k.xp, k["ids"], k.attrs["axis"])

        def run() -> None:
            x_grad.fill(0)
            # Positions along a line differ, so nothing meets at one place and has to be added.
            x_grad[index] = arriving

        return run

    def maker(g: GradientArgs) -> list[OpNode]:
        reads = {
            "x": g.inputs("x"),
            "ids": g.outputs("ids"),
            f"{values}_grad": g.output_grads(values),
        }
        axis = {name: value for name, value in g.attrs.items() if name == "axis"}
        return [g.op(f"{op_type}_grad", reads, {"x_grad": g.input_grads("x")}, axis)]

    return maker


top_k = operator(
    "top_k",
    doc="The k largest entries along an axis, largest first, and where they are. Of equal entries"
    " the first counts as larger.",
    inputs=[_X],
    outputs=[
        Slot("values", "shape of x with k along axis", not_in_gradient=True),
        Slot("ids", "int64, as values: positions along axis"),
    ],
    attrs=[
        AttrSpec("k", "int", "how many", minimum=1),
        AttrSpec("axis", "int", "axis to look along", -1),
    ],
)


@top_k.shape_rule
def top_k_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    count = s.attrs["k"]
    axis = s.axis(s.attrs["axis"], len(shape))
    if 0 <= shape[axis] < count:
        s.fail(f"axis {axis} of size {shape[axis]} does not have {count} entries")
    out = (*shape[:axis], count, *shape[axis + 1 :])
    s.set("values", (out, s.dtype("x")))
    s.set("ids", (out, _IDS))


@top_k.kernel
def top_k_kernel(k: KernelArgs) -> Call:
    few = k.attrs["k"] <= _FEW
    return _largest(k, "values", k.attrs["k"]) if few else _ordered(k, "values", True)


top_k.gradient_maker(_order_gradient("top_k", "values"))


_SORTING = (
    AttrSpec("axis", "int", "axis to sort along", -1),
    AttrSpec("descending", "bool", "largest first", False),
)

sort = operator(
    "sort",
    doc="x in order along an axis, and where each entry was. Equal entries keep their order, and"
    " NaN counts as the largest.",
    inputs=[_X],
    outputs=[
        Slot("out", "shape of x", not_in_gradient=True),
        Slot("ids", "int64, shape of x: position of each entry of out in x along axis"),
    ],
    attrs=_SORTING,
)


@sort.shape_rule
def sort_shape(s: ShapeArgs) -> None:
    s.axis(s.attrs["axis"], len(s["x"]))
    s.set("out", (s["x"], s.dtype("x")))
    s.set("ids", (s["x"], _IDS))


@sort.kernel
def sort_kernel(k: KernelArgs) -> Call:
    return _ordered(k, "out", k.attrs["descending"])


sort.gradient_maker(_order_gradient("sort", "out"))


argsort = operator(
    "argsort",
    doc="Positions of the entries of x in order along an axis. Equal entries keep their order, and"
    " NaN counts as the largest.",
    inputs=[_X],
    outputs=[Slot("out", "int64, shape of x: position of each entry in x along axis")],
    attrs=_SORTING,
    no_gradient="its result is a position",
)


@argsort.shape_rule
def argsort_shape(s: ShapeArgs) -> None:
    s.axis(s.attrs["axis"], len(s["x"]))
    s.set("out", (s["x"], _IDS))


@argsort.kernel
def argsort_kernel(k: KernelArgs) -> Call:
    return _ordering(k, k["out"], k.attrs["descending"])


def _extreme(op_type: str, what: str) -> Any:
    entry = operator(
        op_type,
        doc=f"Position of the {what} entry along an axis, the first of equal ones.",
        inputs=[_X],
        outputs=[Slot("out", "int64, shape of x without axis, or with size 1 there")],
        attrs=[
            AttrSpec("axis", "int", "axis to look along", -1),
            AttrSpec("keepdims", "bool", "keep the axis with size 1", False),
        ],
        no_gradient="its result is a position",
    )

    @entry.shape_rule
    def extreme_shape(s: ShapeArgs) -> None:
        shape = s["x"]
        axis = s.axis(s.attrs["axis"], len(shape))
        if shape[axis] == 0:
            s.fail(f"there is no element along axis {axis}, and so no {what} one")
        ones = (1,) if s.attrs["keepdims"] else ()
        s.set("out", ((*shape[:axis], *ones, *shape[axis + 1 :]), _IDS))

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        x = k["x"]
        out = k["out"]
        axis = k.attrs["axis"]
        if k.attrs["keepdims"]:
            out = k.xp.squeeze(out, axis % x.ndim)
        return partial(getattr(x, op_type), axis, out)

    return entry


argmax = _extreme("argmax", "largest")
argmin = _extreme("argmin", "smallest")
