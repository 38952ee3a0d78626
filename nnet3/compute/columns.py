"""Components that rearrange or sum columns: permutation, sums over groups and blocks, p-norm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order
from .lowering import OUT, Recipe, X, lowers

_SOURCE = "Kaldi: nnet3/nnet-simple-component.cc"


@lowers("PermuteComponent")
def lower_permute_component(component: Any, recipe: Recipe) -> None:
    recipe.op("nnet3.permute", OUT, attrs={"columns": _ints(component.column_map)}, x=X)


@lowers("SumGroupComponent")
def lower_sum_group_component(component: Any, recipe: Recipe) -> None:
    recipe.op("nnet3.sum_group", OUT, attrs={"sizes": _ints(component.sizes)}, x=X)


@lowers("SumBlockComponent")
def lower_sum_block_component(component: Any, recipe: Recipe) -> None:
    attrs = {
        "blocks": int(component.input_dim // component.output_dim),
        "scale": float(component.scale),
    }
    recipe.op("nnet3.sum_block", OUT, attrs=attrs, x=X)


@lowers("PnormComponent")
def lower_pnorm_component(component: Any, recipe: Recipe) -> None:
    attrs = {"group": int(component.input_dim // component.output_dim)}
    recipe.op("nnet3.pnorm", OUT, attrs=attrs, x=X)


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


permute = operator(
    "nnet3.permute",
    doc="Permutation of columns: out[:, i] = x[:, columns[i]]; x [N, D] -> out [N, D].",
    inputs=[Slot("x", "[N, D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[AttrSpec("columns", "ints", "column of x for each column of out, each one once")],
    source=_SOURCE,
)


@permute.shape_rule
def permute_shape(s: ShapeArgs) -> None:
    columns = s.attrs["columns"]
    if sorted(columns) != list(range(len(columns))):
        s.fail("columns is no permutation of 0, 1, ...")
    rows, cols = s.rank("x", 2)
    s.same("the columns of x and the permutation", cols, len(columns))
    s.set("out", ((rows, len(columns)), s.dtype("x")))


@permute.kernel
def permute_kernel(k: Any) -> Callable[[], Any]:
    return _gather(k, k["x"], np.asarray(k.attrs["columns"], np.intp), k["out"])


@permute.gradient_maker
def permute_gradient(g: Any) -> list[Any]:
    columns = np.argsort(np.asarray(g.attrs["columns"]))
    grads = {"out": g.input_grads("x")}
    return [g.op("nnet3.permute", {"x": g.output_grads("out")}, grads, {"columns": _ints(columns)})]


def _gather(k: Any, source: Any, columns: Any, target: Any) -> Callable[[], Any]:
    """target[:, i] = source[:, columns[i]]; `take` writes to contiguous memory without a copy."""
    xp = k.xp
    columns = xp.asarray(columns)
    if not target.size:
        return in_order()
    options = {"mode": "clip"} if xp is np else {}
    if target.flags.c_contiguous:
        return partial(xp.take, source, columns, axis=1, out=target, **options)
    buffer = k.scratch(target.shape, target.dtype)
    return in_order(
        partial(xp.take, source, columns, axis=1, out=buffer, **options),
        partial(xp.copyto, target, buffer),
    )


sum_group = operator(
    "nnet3.sum_group",
    doc=(
        "Sums of neighbouring columns: group i holds sizes[i] columns of x [N, sum(sizes)] and"
        " gives column i of out [N, len(sizes)]."
    ),
    inputs=[Slot("x", "[N, sum(sizes)]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, len(sizes)]", not_in_gradient=True)],
    attrs=[AttrSpec("sizes", "ints", "columns in each group", minimum=1)],
    source=_SOURCE,
)


@sum_group.shape_rule
def sum_group_shape(s: ShapeArgs) -> None:
    sizes = s.attrs["sizes"]
    rows, cols = s.rank("x", 2)
    s.same("the columns of x and the sum of sizes", cols, sum(sizes))
    s.set("out", ((rows, len(sizes)), s.floats("x")))


@sum_group.kernel
def sum_group_kernel(k: Any) -> Callable[[], Any]:
    sizes, out = k.attrs["sizes"], k["out"]
    if len(set(sizes)) == 1:
        return partial(k.xp.sum, k["x"].reshape(*out.shape, sizes[0]), axis=2, out=out)
    if k.xp is np:
        starts = np.cumsum((0, *sizes[:-1]))
        return partial(np.add.reduceat, k["x"], starts, axis=1, out=out)
    ones = np.repeat(np.eye(len(sizes), dtype=out.dtype), sizes, axis=0)
    return partial(k.xp.matmul, k["x"], k.xp.asarray(ones), out=out)


@sum_group.backward("x")
def sum_group_grad_kernel(k: Any) -> Callable[[], Any]:
    sizes = k.attrs["sizes"]
    return _gather(k, k["out_grad"], np.repeat(np.arange(len(sizes)), sizes), k["x_grad"])


def divided(s: ShapeArgs, parts: int, what: str) -> None:
    """Shape rule of what makes one column of `parts` columns: x [N, D*parts] -> out [N, D]."""
    rows, cols = s.rank("x", 2)
    if cols >= 0 and cols % parts:
        s.fail(f"the {cols} columns of x do not fall into {what}")
    s.set("out", ((rows, cols // parts if cols >= 0 else -1), s.floats("x")))


sum_block = operator(
    "nnet3.sum_block",
    doc="Scaled sum over the blocks of columns: x [N, B*D] -> out [N, D], times `scale`.",
    inputs=[Slot("x", "[N, B*D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[
        AttrSpec("blocks", "int", "number of blocks, B", minimum=1),
        AttrSpec("scale", "float", "factor of the sum", 1.0),
    ],
    source=_SOURCE,
)


@sum_block.shape_rule
def sum_block_shape(s: ShapeArgs) -> None:
    divided(s, s.attrs["blocks"], f"{s.attrs['blocks']} blocks")


@sum_block.kernel
def sum_block_kernel(k: Any) -> Callable[[], Any]:
    out, blocks = k["out"], k.attrs["blocks"]
    x = k["x"].reshape(out.shape[0], blocks, out.shape[1])
    return in_order(partial(k.xp.sum, x, axis=1, out=out), _scaling(k, out))


@sum_block.backward("x")
def sum_block_grad_kernel(k: Any) -> Callable[[], Any]:
    grad, blocks = k["out_grad"], k.attrs["blocks"]
    target = k["x_grad"].reshape(grad.shape[0], blocks, grad.shape[1])
    scale = grad.dtype.type(k.attrs["scale"])
    return partial(k.xp.multiply, grad[:, None], scale, target)


def _scaling(k: Any, out: Any) -> Callable[[], Any] | None:
    scale = k.attrs["scale"]
    return None if scale == 1 else partial(k.xp.multiply, out, out.dtype.type(scale), out)


pnorm = operator(
    "nnet3.pnorm",
    doc=(
        "Euclidean norm of groups of neighbouring columns:"
        " out[:, i] = sqrt(sum of x[:, i*G : (i+1)*G] squared); x [N, D*G] -> out [N, D]."
        " The gradient is 0 where the norm is."
    ),
    inputs=[Slot("x", "[N, D*G]")],
    outputs=[Slot("out", "[N, D]")],
    attrs=[AttrSpec("group", "int", "columns in a group, G", minimum=1)],
    source=_SOURCE,
)


@pnorm.shape_rule
def pnorm_shape(s: ShapeArgs) -> None:
    divided(s, s.attrs["group"], f"groups of {s.attrs['group']}")


@pnorm.kernel
def pnorm_kernel(k: Any) -> Callable[[], Any]:
    xp, out = k.xp, k["out"]
    x = k["x"].reshape(*out.shape, k.attrs["group"])
    squares = k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.multiply, x, x, squares),
        partial(xp.sum, squares, axis=2, out=out),
        partial(xp.sqrt, out, out=out),
    )


@pnorm.backward("x")
def pnorm_grad_kernel(k: Any) -> Callable[[], Any]:
    xp, out, grad = k.xp, k["out"], k["out_grad"]
    shape = (*out.shape, k.attrs["group"])
    x, target = k["x"].reshape(shape), k["x_grad"].reshape(shape)
    ratio, zero = k.scratch(out.shape, out.dtype), k.scratch(out.shape, bool)
    one = out.dtype.type(1)

    def scales() -> None:
        xp.equal(out, out.dtype.type(0), out=zero)
        xp.copyto(ratio, out)
        xp.copyto(ratio, one, where=zero)
        xp.divide(grad, ratio, out=ratio)
        xp.multiply(x, ratio[..., None], out=target)

    return scales
