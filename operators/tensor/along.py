"""Entries of an array at positions that differ from line to line: take, put, and by whole indices.

`take_along_axis` and `put_along_axis` count along one axis, `gather_nd` and `scatter_nd` along
several at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import Shape, ShapeArgs, count
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import copying, reducing
from ..base.indexing import id_check, open_mesh, scatter_adder, taker

_X = Slot("x", "any shape", not_in_gradient=True)
_INT64 = np.dtype("int64")


def _rows_of(k: KernelArgs, array: Any, axes: int) -> tuple[Any, Any]:
    """An array as contiguous rows, one for each position along its first `axes` axes.

    Returns:
        The rows [n, ...], and scratch memory that holds them and has the array's shape; None where
        they are the array's own memory.
    """
    held = None
    if not array.flags.c_contiguous:
        held = array = k.scratch(array.shape, array.dtype)
    return array.reshape(count(array.shape[:axes]), *array.shape[axes:]), held


def _row_numbers(
    k: KernelArgs, shape: Shape, lead: Shape, parts: Mapping[int, Any], *, wrap: bool = False
) -> tuple[Any, list[Call]]:
    """Numbers of rows, where the axes `lead` count rows, and the calls that compute them.

    Args:
        shape: of the result.
        parts: axis of `lead` -> positions along it, an array that broadcasts to `shape`. Other
            axes of `lead` are in step with the axes of the result.
        wrap: positions below 0 count from the end.
    """
    xp = k.xp
    numbers, part = k.scratch(shape, _INT64), k.scratch(shape, _INT64)
    mesh = open_mesh(np, shape)
    # What no value decides is added up while binding; calls are left to the positions alone.
    fixed = np.zeros(shape, _INT64)
    calls = []
    for axis, size in enumerate(lead):
        stride = np.int64(count(lead[axis + 1 :]))
        if axis not in parts:
            fixed += mesh[axis] * stride
            continue
        # int64 comes first: a narrow id times the stride would overflow.
        calls.append(partial(xp.copyto, part, parts[axis], casting="unsafe"))
        if wrap:
            below, more = k.scratch(shape, bool), k.scratch(shape, _INT64)
            calls += [
                partial(xp.less, part, np.int64(0), below),
                partial(xp.multiply, below, np.int64(size), more),
                partial(xp.add, part, more, part),
            ]
        calls.append(partial(xp.multiply, part, stride, part))
        calls.append(partial(xp.add, numbers, part, numbers))
    # Scratch memory does not last from call to call, so each call begins with the fixed part.
    return numbers, [partial(xp.copyto, numbers, xp.asarray(fixed)), *calls]


def _changing(k: KernelArgs, axes: int, numbers: Any, values: Any, *, add: bool) -> Call:
    """A call for out = x with rows replaced by values, or with values added to them."""
    xp = k.xp
    out = k["out"]
    rows, held = _rows_of(k, out, axes)
    target = out if held is None else held
    return in_order(
        copying(xp, k["x"], target),
        scatter_adder(k, rows, numbers, values) if add else _putting(rows, numbers, values),
        None if held is None else partial(xp.copyto, out, held),
    )


def _putting(rows: Any, numbers: Any, values: Any) -> Call:
    def run() -> None:
        rows[numbers] = values

    return run


def _taking(k: KernelArgs, x: Any, axes: int, numbers: Any, out: Any) -> Call:
    """A call for out = rows of x, by number."""
    rows, held = _rows_of(k, x, axes)
    load = None if held is None else partial(k.xp.copyto, held, x)
    return in_order(load, taker(k, rows, numbers, 0, out))


def _adding_to_zeros(k: KernelArgs, axes: int, numbers: Any) -> Call:
    """A call for x_grad = zeros, then out_grad added to its rows by number."""
    x_grad = k["x_grad"]
    rows, held = _rows_of(k, x_grad, axes)
    return in_order(
        partial(rows.fill, 0),
        scatter_adder(k, rows, numbers, k["out_grad"]),
        None if held is None else partial(k.xp.copyto, x_grad, held),
    )


def _changed_gradients(k: KernelArgs, axes: int, numbers: Any, spread: Shape) -> Call:
    """Gradients of x and of the updates, which broadcast to `spread`, from the result's."""
    xp = k.xp
    out_grad = k["out_grad"]
    calls = []
    x_grad, updates_grad = k.get("x_grad"), k.get("updates_grad")
    # Updates come first: x_grad may be the memory of out_grad, whose rows are cleared below.
    if updates_grad is not None:
        whole = updates_grad
        if whole.shape != spread or not whole.flags.c_contiguous:
            whole = k.scratch(spread, whole.dtype)
        if whole.size:
            calls.append(_taking(k, out_grad, axes, numbers, whole))
        calls.append(reducing(xp, whole, updates_grad))
    if x_grad is not None:
        rows, held = _rows_of(k, x_grad, axes)
        calls.append(copying(xp, out_grad, x_grad if held is None else held))
        # What was replaced has no influence on the result.
        if k.attrs["mode"] == "set" and numbers.size:
            calls.append(_putting(rows, numbers, rows.dtype.type(0)))
        calls.append(None if held is None else partial(xp.copyto, x_grad, held))
    return in_order(*calls)


# -- along an axis -----------------------------------------------------------------------------

_AXIS = AttrSpec("axis", "int", "axis of x that ids count along", -1)
_MODE = AttrSpec(
    "mode", "string", "whether updates replace or are added", "set", choices=("set", "add")
)
_IDS = Slot("ids", "integers, 0 <= ids < x.shape[axis]; rank of x, other axes of its size or 1")


def _lines_rule(s: ShapeArgs) -> tuple[int, Shape]:
    """The axis, and the shape of the entries that ids pick, which other axes of x broadcast to."""
    shape, ids = s["x"], s["ids"]
    s.integers("ids")
    if len(ids) != len(shape):
        s.fail(f"ids want the rank of x, {len(shape)}, and have {len(ids)} dimensions")
    axis = s.axis(s.attrs["axis"], len(shape))
    for other, (have, want) in enumerate(zip(ids, shape, strict=True)):
        if other != axis and have not in (1, -1, want) and want != -1:
            s.fail(f"ids have size {have} along axis {other}, where x has {want}")
    picked = (*shape[:axis], ids[axis], *shape[axis + 1 :])
    return axis, picked


def _lines(k: KernelArgs) -> tuple[Shape, Call, Any]:
    """Shape of the entries that ids pick, a call that checks ids, and the entries' numbers.

    The call computes the numbers, too.
    """
    lead = k.shape("x")
    ids = k["ids"]
    axis = k.attrs["axis"] % len(lead)
    picked = (*lead[:axis], ids.shape[axis], *lead[axis + 1 :])
    if not count(picked):
        return picked, nothing, k.scratch(picked, _INT64)
    numbers, calls = _row_numbers(k, picked, lead, {axis: ids})
    return picked, in_order(id_check(k, "ids", lead[axis]), *calls), numbers


take_along_axis = operator(
    "take_along_axis",
    doc="Entries of x at positions along an axis, other ones for each line: for axis 1 of a matrix,"
    " out[i, j] = x[i, ids[i, j]]. Axes of ids that have size 1 broadcast.",
    inputs=[_X, _IDS],
    outputs=[Slot("out", "shape of x, as long as ids along axis", not_in_gradient=True)],
    attrs=[_AXIS],
    source="numpy.take_along_axis; PyTorch's gather and take_along_dim",
)


@take_along_axis.shape_rule
def take_along_axis_shape(s: ShapeArgs) -> None:
    s.set("out", (_lines_rule(s)[1], s.dtype("x")))


@take_along_axis.kernel
def take_along_axis_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    picked, find, numbers = _lines(k)
    return in_order(find, _taking(k, x, x.ndim, numbers, k["out"])) if count(picked) else nothing


@take_along_axis.backward("x")
def take_along_axis_grad_kernel(k: KernelArgs) -> Call:
    picked, find, numbers = _lines(k)
    if not count(picked):
        return partial(k["x_grad"].fill, 0)
    return in_order(find, _adding_to_zeros(k, len(picked), numbers))


put_along_axis = operator(
    "put_along_axis",
    doc="x with entries put at positions along an axis, other ones for each line: for axis 1 of a"
    " matrix, out[i, ids[i, j]] = updates[i, j], or += for mode `add`, where equal ids add up. With"
    " mode `set` the ids of a line must differ: which of several updates stays is not said. Axes of"
    " ids and of updates that have size 1 broadcast.",
    inputs=[
        _X,
        _IDS,
        Slot(
            "updates",
            "shape of ids, with x's size or 1 along other axes than axis",
            not_in_gradient=True,
        ),
    ],
    outputs=[Slot("out", "shape of x", not_in_gradient=True, inplace="x")],
    attrs=[_AXIS, _MODE],
    source="numpy.put_along_axis; PyTorch's scatter and scatter_add",
)


@put_along_axis.shape_rule
def put_along_axis_shape(s: ShapeArgs) -> None:
    axis, picked = _lines_rule(s)
    updates = s["updates"]
    if s.dtype("updates") != s.dtype("x"):
        s.fail(f"x is {s.dtype('x')} and updates are {s.dtype('updates')}, want one dtype")
    if len(updates) != len(picked):
        s.fail(f"updates want the rank of x, {len(picked)}, and have {len(updates)} dimensions")
    for other, (have, want) in enumerate(zip(updates, picked, strict=True)):
        if have not in (1, -1, want) and want != -1:
            what = "ids have" if other == axis else "x has"
            s.fail(f"updates have size {have} along axis {other}, where {what} {want}")
    s.set("out", (s["x"], s.dtype("x")))


@put_along_axis.kernel
def put_along_axis_kernel(k: KernelArgs) -> Call:
    picked, find, numbers = _lines(k)
    if not count(picked):
        return in_order(copying(k.xp, k["x"], k["out"]))
    # A view: no update is copied to fill its broadcast axes.
    updates = k.xp.broadcast_to(k["updates"], picked)
    add = k.attrs["mode"] == "add"
    return in_order(find, _changing(k, len(picked), numbers, updates, add=add))


@put_along_axis.backward("x", "updates", inplace={"x_grad": "out_grad"})
def put_along_axis_grad_kernel(k: KernelArgs) -> Call:
    picked, find, numbers = _lines(k)
    return in_order(find, _changed_gradients(k, len(picked), numbers, picked))


# -- by whole indices --------------------------------------------------------------------------

_INDEXES = Slot(
    "ids", "integers [..., m]: places in the first m axes of x; below 0 they count from the end"
)


def _index_rule(s: ShapeArgs, batch: int) -> tuple[Shape, Shape]:
    """Shape of the indexes without the last axis, and the shape of what each one picks."""
    shape, ids = s["x"], s["ids"]
    s.integers("ids")
    if not ids:
        s.fail("ids want at least 1 dimension")
    if ids[-1] < 0:
        s.fail(
            "the last dimension of ids must be known: it says how many axes of x they go through"
        )
    if batch >= len(ids) or batch + ids[-1] > len(shape):
        s.fail(
            f"{ids[-1]} numbers in an index after {batch} batch axes go through more axes than"
            f" x, with {len(shape)}, and ids, with {len(ids)}, have"
        )
    lead = [
        s.same(f"dimensions {axis} of x and ids", shape[axis], ids[axis]) for axis in range(batch)
    ]
    return (*lead, *ids[batch:-1]), shape[batch + ids[-1] :]


def _indexes(k: KernelArgs, batch: int) -> tuple[int, Call, Any]:
    """How many axes of x the indexes go through; a call that checks them; the rows' numbers.

    The call computes the numbers, too.
    """
    xp = k.xp
    ids = k["ids"]
    shape = k.shape("x")
    axes = batch + ids.shape[-1]
    lead = shape[:axes]
    parts = {batch + j: ids[..., j] for j in range(ids.shape[-1])}
    index_shape = ids.shape[:-1]
    if not count(index_shape):
        return axes, nothing, k.scratch(index_shape, _INT64)
    sizes = xp.asarray(np.array(lead[batch:], _INT64))
    bad, other = k.scratch(ids.shape, bool), k.scratch(ids.shape, bool)
    signed = k.scratch(ids.shape, _INT64)

    def check() -> None:
        # In int64, where an id is below the range if its sum with the size is negative.
        xp.copyto(signed, ids, casting="unsafe")
        xp.greater_equal(signed, sizes, bad)
        xp.add(signed, sizes, signed)
        xp.less(signed, np.int64(0), other)
        xp.logical_or(bad, other, bad)
        if bad.any():
            first = ids[bad.any(-1)][0].tolist()
            limits = ", ".join(f"-{size} to {size - 1}" for size in lead[batch:])
            why = f"ids {k.op.inputs['ids'][0]!r} hold the index {first}, want {limits}"
            raise RunError(k.describe(why))

    numbers, calls = _row_numbers(k, index_shape, lead, parts, wrap=True)
    return axes, in_order(check, *calls), numbers


gather_nd = operator(
    "gather_nd",
    doc="Parts of x by whole indexes: out[i, ...] = x[ids[i, 0], ..., ids[i, m-1], ...]. Both begin"
    " with `batch_dims` axes in common, which the indexes leave out.",
    inputs=[_X, _INDEXES],
    outputs=[
        Slot(
            "out", "shape of ids without its last axis, then the rest of x's", not_in_gradient=True
        )
    ],
    attrs=[AttrSpec("batch_dims", "int", "axes in front that x and ids share", 0, minimum=0)],
    source="ONNX GatherND",
)


@gather_nd.shape_rule
def gather_nd_shape(s: ShapeArgs) -> None:
    lead, rest = _index_rule(s, s.attrs["batch_dims"])
    s.set("out", ((*lead, *rest), s.dtype("x")))


@gather_nd.kernel
def gather_nd_kernel(k: KernelArgs) -> Call:
    axes, find, numbers = _indexes(k, k.attrs["batch_dims"])
    # Bad indexes are refused even where the parts that they pick are empty.
    if not k["out"].size:
        return find
    return in_order(find, _taking(k, k["x"], axes, numbers, k["out"]))


@gather_nd.backward("x")
def gather_nd_grad_kernel(k: KernelArgs) -> Call:
    axes, find, numbers = _indexes(k, k.attrs["batch_dims"])
    if not k["out_grad"].size:
        return partial(k["x_grad"].fill, 0)
    return in_order(find, _adding_to_zeros(k, axes, numbers))


scatter_nd = operator(
    "scatter_nd",
    doc="x with parts put in by whole indexes: out[ids[i, 0], ..., ids[i, m-1], ...] ="
    " updates[i, ...], or += for mode `add`, where equal indexes add up. With mode `set` the"
    " indexes must differ: which of several updates stays is not said.",
    inputs=[
        _X,
        _INDEXES,
        Slot(
            "updates",
            "shape of ids without its last axis, then the rest of x's",
            not_in_gradient=True,
        ),
    ],
    outputs=[Slot("out", "shape of x", not_in_gradient=True, inplace="x")],
    attrs=[_MODE],
    source="ONNX ScatterND",
)


@scatter_nd.shape_rule
def scatter_nd_shape(s: ShapeArgs) -> None:
    lead, rest = _index_rule(s, 0)
    if s.dtype("updates") != s.dtype("x"):
        s.fail(f"x is {s.dtype('x')} and updates are {s.dtype('updates')}, want one dtype")
    s.same_shape("updates and the parts of x that ids pick", s["updates"], (*lead, *rest))
    s.set("out", (s["x"], s.dtype("x")))


@scatter_nd.kernel
def scatter_nd_kernel(k: KernelArgs) -> Call:
    axes, find, numbers = _indexes(k, 0)
    updates = k["updates"]
    if not updates.size:
        return in_order(find, copying(k.xp, k["x"], k["out"]))
    add = k.attrs["mode"] == "add"
    return in_order(find, _changing(k, axes, numbers, updates, add=add))


@scatter_nd.backward("x", "updates", inplace={"x_grad": "out_grad"})
def scatter_nd_grad_kernel(k: KernelArgs) -> Call:
    axes, find, numbers = _indexes(k, 0)
    return in_order(find, _changed_gradients(k, axes, numbers, k.shape("updates")))
