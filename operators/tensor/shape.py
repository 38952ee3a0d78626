"""Operators that change only the shape: reshape, flatten, transpose, expand, tile, meshgrid.

Those that keep the order of elements cost nothing where the output shares the input's memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.backend import same_memory
from ...framework.base.sizes.shape import ShapeArgs, ShapeRule, count
from ...framework.fusion.rows.row_copies import copy_call
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import EVERYWHERE, AttrSpec, OperatorDef, Slot, operator
from ..base.calls import reducing

_X = Slot("x", "any shape", not_in_gradient=True)


# -- the same elements in the same order -------------------------------------------------------


def copier(xp: Any, source: Any, target: Any) -> Any:
    """A callable that copies elements in row-major order, whatever the two shapes."""
    if target.flags.c_contiguous:
        same = target.reshape(source.shape)
        return nothing if same_memory(source, same) else partial(xp.copyto, same, source)
    if source.flags.c_contiguous:
        return partial(xp.copyto, target, source.reshape(target.shape))

    # Inside the call: reshaping strided memory may copy, and then of this run's values.
    def run() -> None:
        xp.copyto(target, source.reshape(target.shape))

    return run


def _reshaping(
    op_type: str, doc: str, out: str, attrs: list[AttrSpec], rule: ShapeRule
) -> OperatorDef:
    entry = operator(
        op_type,
        doc=doc,
        inputs=[_X],
        outputs=[Slot("out", out, not_in_gradient=True, inplace="x")],
        attrs=attrs,
        shape=rule,
        reshapes=True,
        takes_halves=EVERYWHERE,
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        return copier(k.xp, k["x"], k["out"])

    @entry.backward("x", inplace={"x_grad": "out_grad"})
    def grad_kernel(k: KernelArgs) -> Call:
        return copier(k.xp, k["out_grad"], k["x_grad"])

    return entry


def _reshape_rule(s: ShapeArgs) -> None:
    shape = s["x"]
    wanted = s.attrs["shape"]
    if wanted.count(-1) > 1:
        s.fail(f"shape {list(wanted)} leaves more than one dimension open")
    copied = [axis for axis, dim in enumerate(wanted) if dim == 0]
    if copied and copied[-1] >= len(shape):
        s.fail(f"shape {list(wanted)} copies dimension {copied[-1]}, which x does not have")
    # Copied dimensions stand on both sides, so they cancel, even when unknown or zero.
    source = count([dim for axis, dim in enumerate(shape) if axis not in copied])
    target = count([dim for dim in wanted if dim > 0])
    if -1 in wanted:
        if source >= 0 and source % target:
            s.fail(f"shape {list(wanted)}: {source} elements do not divide by {target}")
    elif source not in (-1, target):
        s.fail(f"shape {list(wanted)} does not hold the elements of x")
    # `target` is a product of dimensions above 0 alone, so it is not 0.
    rest = source // target if source >= 0 else -1
    sizes = {0: lambda axis: shape[axis], -1: lambda axis: rest}
    out = [sizes[dim](axis) if dim in sizes else dim for axis, dim in enumerate(wanted)]
    s.set("out", (out, s.dtype("x")))


def _flatten_rule(s: ShapeArgs) -> None:
    shape = s["x"]
    axis = s.attrs["axis"]
    if not -len(shape) <= axis <= len(shape):
        s.fail(f"axis {axis} is out of range for {len(shape)} dimensions")
    axis += len(shape) if axis < 0 else 0
    s.set("out", ((count(shape[:axis]), count(shape[axis:])), s.dtype("x")))


def _distinct(s: ShapeArgs, rank: int) -> list[int]:
    axes = [s.axis(axis, rank, "axes:") for axis in s.attrs["axes"]]
    if len(set(axes)) < len(axes):
        s.fail(f"axes {list(s.attrs['axes'])} name an axis twice")
    return axes


def _squeeze_rule(s: ShapeArgs) -> None:
    shape = s["x"]
    axes = _distinct(s, len(shape))
    for axis in axes:
        if shape[axis] not in (1, -1):
            s.fail(f"axis {axis} has size {shape[axis]}, so it cannot be left out")
    s.set("out", ([dim for axis, dim in enumerate(shape) if axis not in axes], s.dtype("x")))


def _unsqueeze_rule(s: ShapeArgs) -> None:
    shape = s["x"]
    rank = len(shape) + len(s.attrs["axes"])
    axes = _distinct(s, rank)
    rest = iter(shape)
    s.set("out", ([1 if axis in axes else next(rest) for axis in range(rank)], s.dtype("x")))


reshape = _reshaping(
    "reshape",
    "The elements of x, in row-major order, in another shape.",
    "shape `shape`",
    [
        AttrSpec(
            "shape",
            "ints",
            "the new shape: 0 copies x's dimension there, one -1 takes all other elements",
            minimum=-1,
        )
    ],
    _reshape_rule,
)
flatten = _reshaping(
    "flatten",
    "x as a matrix: the axes before `axis` become rows, the others columns.",
    "[product of x's dimensions before axis, product of the others]",
    [AttrSpec("axis", "int", "first axis that goes into the columns", 1)],
    _flatten_rule,
)
squeeze = _reshaping(
    "squeeze",
    "x without axes of size 1.",
    "shape of x without `axes`",
    [AttrSpec("axes", "ints", "axes to leave out; each has size 1")],
    _squeeze_rule,
)
unsqueeze = _reshaping(
    "unsqueeze",
    "x with new axes of size 1.",
    "shape of x with 1 at each of `axes`",
    [AttrSpec("axes", "ints", "places of the new axes in the result")],
    _unsqueeze_rule,
)


# -- transpose ---------------------------------------------------------------------------------

transpose = operator(
    "transpose",
    doc="Axes in another order: out.shape[i] = x.shape[perm[i]].",
    inputs=[_X],
    outputs=[Slot("out", "shape of x, permuted", not_in_gradient=True)],
    attrs=[AttrSpec("perm", "ints", "axis of x for each axis of out; none = reversed", ())],
    takes_halves=EVERYWHERE,
)


@transpose.shape_rule
def transpose_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    perm = s.attrs["perm"]
    # No perm reverses the axes, as array.transpose() without arguments does in the kernels.
    axes = [s.axis(axis, len(shape), "perm:") for axis in perm] or range(len(shape))[::-1]
    if sorted(axes) != list(range(len(shape))):
        s.fail(f"perm {list(perm)} does not name each of the {len(shape)} axes once")
    s.set("out", ([shape[axis] for axis in axes], s.dtype("x")))


@transpose.kernel
def transpose_kernel(k: KernelArgs) -> Call:
    return copy_call(k.xp, k["x"].transpose(*k.attrs["perm"]), k["out"])


@transpose.backward("x")
def transpose_grad_kernel(k: KernelArgs) -> Call:
    # The target is turned as x was, which spares the inverse permutation.
    return partial(k.xp.copyto, k["x_grad"].transpose(*k.attrs["perm"]), k["out_grad"])


# -- repetition --------------------------------------------------------------------------------

expand = operator(
    "expand",
    doc="x broadcast to a shape, as NumPy's broadcast_to; new axes come in front.",
    inputs=[_X],
    outputs=[Slot("out", "shape `shape`", not_in_gradient=True)],
    attrs=[AttrSpec("shape", "ints", "the new shape; -1 keeps x's dimension", minimum=-1)],
)


@expand.shape_rule
def expand_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    wanted = s.attrs["shape"]
    new = len(wanted) - len(shape)
    if new < 0:
        s.fail(f"shape {list(wanted)} has fewer dimensions than x")
    out: list[int] = []
    for axis, dim in enumerate(wanted):
        held = shape[axis - new] if axis >= new else 1
        if dim == -1 and axis < new:
            s.fail(f"shape {list(wanted)}: axis {axis} is new, so it needs a size")
        if dim != -1 and held not in (1, -1, dim):
            s.fail(f"axis {axis - new} has size {held} and cannot become {dim}")
        out.append(held if dim == -1 else dim)
    s.set("out", (out, s.dtype("x")))


@expand.kernel
def expand_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.copyto, k["out"], k["x"])


@expand.backward("x")
def expand_grad_kernel(k: KernelArgs) -> Call:
    return reducing(k.xp, k["out_grad"], k["x_grad"]) or nothing


tile = operator(
    "tile",
    doc="x repeated along each axis: out.shape[i] = repeats[i] * x.shape[i].",
    inputs=[_X],
    outputs=[Slot("out", "shape of x times repeats", not_in_gradient=True)],
    attrs=[AttrSpec("repeats", "ints", "number of copies along each axis of x", minimum=0)],
)


@tile.shape_rule
def tile_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    repeats = s.attrs["repeats"]
    if len(repeats) != len(shape):
        s.fail(f"repeats {list(repeats)} need one number for each axis of x")
    out = [-1 if dim < 0 else dim * n for dim, n in zip(shape, repeats, strict=True)]
    s.set("out", (out, s.dtype("x")))


def _tiles(k: KernelArgs, tiled: Any) -> Any:
    """`tiled` with two axes for each: copy, place in x."""
    pairs = zip(k.attrs["repeats"], k.shape("x"), strict=True)
    # Splitting axes gives a view of strided memory, too, so a copy into it reaches `tiled`.
    return tiled.reshape([size for pair in pairs for size in pair])


@tile.kernel
def tile_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    spread = x.reshape([size for dim in x.shape for size in (1, dim)])
    return partial(k.xp.copyto, _tiles(k, k["out"]), spread)


@tile.backward("x")
def tile_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k["x_grad"]
    # A scalar has no axes of copies to sum over.
    if not x_grad.ndim:
        return partial(k.xp.copyto, x_grad, k["out_grad"])
    copies = tuple(range(0, 2 * x_grad.ndim, 2))
    return partial(_tiles(k, k["out_grad"]).sum, copies, x_grad.dtype, x_grad)


# -- meshgrid ----------------------------------------------------------------------------------

meshgrid = operator(
    "meshgrid",
    doc="Coordinates of a grid: each vector along an axis of its own, repeated along all others."
    " There are as many results as vectors.",
    inputs=[Slot("x", "vectors [A], [B], ...", duplicable=True, not_in_gradient=True)],
    outputs=[
        Slot(
            "out",
            "[A, B, ...] each; [B, A, ...] for indexing `xy`",
            duplicable=True,
            not_in_gradient=True,
        )
    ],
    attrs=[
        AttrSpec(
            "indexing",
            "string",
            "`ij`: vector i lies along axis i; `xy`: the first two change places, as in pictures",
            "ij",
            choices=("ij", "xy"),
        )
    ],
    source="numpy.meshgrid; PyTorch's default is also `ij`",
)


def _grid_axes(count: int, indexing: str) -> list[int]:
    """The axis of each vector."""
    axes = list(range(count))
    if indexing == "xy" and count > 1:
        axes[:2] = 1, 0
    return axes


@meshgrid.shape_rule
def meshgrid_shape(s: ShapeArgs) -> None:
    shapes = s.shapes("x")
    outputs = s.op.outputs["out"]
    if len(outputs) != len(shapes):
        s.fail(f"gives one result for each of {len(shapes)} vectors, not {len(outputs)}")
    for shape in shapes:
        if len(shape) != 1:
            s.fail(f"x wants vectors, and one has {len(shape)} dimensions")
    axes = _grid_axes(len(shapes), s.attrs["indexing"])
    out = [shapes[axes.index(axis)][0] for axis in range(len(shapes))]
    s.set("out", *((out, dtype) for _, dtype in s.specs("x")))


@meshgrid.kernel
def meshgrid_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    vectors = k.list("x")
    calls = []
    axes = _grid_axes(len(vectors), k.attrs["indexing"])
    for vector, out, axis in zip(vectors, k.list("out"), axes, strict=True):
        if out is not None:
            # Axes in front broadcast by themselves.
            line = vector.reshape((-1, *(1,) * (len(vectors) - axis - 1)))
            calls.append(partial(xp.copyto, out, line))
    return in_order(*calls)


@meshgrid.backward("x")
def meshgrid_grad_kernel(k: KernelArgs) -> Call:
    calls = []
    arriving = k.list("out_grad")
    axes = _grid_axes(len(arriving), k.attrs["indexing"])
    for grad, target, axis in zip(arriving, k.list("x_grad"), axes, strict=True):
        if target is not None:
            others = tuple(other for other in range(grad.ndim) if other != axis)
            calls.append(partial(grad.sum, others, out=target))
    return in_order(*calls)
