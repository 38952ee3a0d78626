"""Matrix products: `matmul` for any ranks, and `affine`, the fused layer x w + b."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import OperatorView, Shape, ShapeArgs, count
from ...framework.fusion.compiled.arguments import made_array
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import ArraySpecs, rows_of
from ..base.calls import row_sums, stacked

Product = Callable[..., Call]
"""Something called as `product` below."""
OF_ONE_FACTOR: dict[Product, Callable[[], Product]] = {}
"""Products of libraries that convert factors -> what makes one that converts the first once."""


def of_one_factor(product: Product) -> Product:
    """The product for several with one first factor, which nothing writes to in between."""
    make = OF_ONE_FACTOR.get(product)
    return product if make is None else make()


_left_rows = rows_of("x", but=("y", "w", "b"), rank=2)


def _product_rows(op: OperatorView, specs: ArraySpecs, rows: Collection[str]) -> bool:
    # The result has the rows of x unless y is a stack whose axes meet the first axis of x.
    x, y = (len(specs[op.inputs[slot][0]][0]) for slot in "xy")
    return _left_rows(op, specs, rows) and not op.attrs["transpose_x"] and (y < 3 or y < x)


def _affine_rows(op: OperatorView, specs: ArraySpecs, rows: Collection[str]) -> bool:
    return _left_rows(op, specs, rows) and op.attrs["num_flatten_dims"] != 0


matmul = operator(
    "matmul",
    doc=(
        "Matrix product: out = alpha * op(x) op(y), where op may transpose the last two axes"
        " to. 2-D: [M, K] and [K, N] -> [M, N]. A 1-D x is a row and a 1-D y a column; that axis is"
        " left out of the result, and the transposes do not touch it. More axes in front are"
        " batches and broadcast as in NumPy: [B, M, K] and [K, N] -> [B, M, N]."
    ),
    inputs=[Slot("x", "[..., M, K] or [K]"), Slot("y", "[..., K, N] or [K]")],
    outputs=[Slot("out", "[..., M, N]", not_in_gradient=True)],
    attrs=[
        AttrSpec("transpose_x", "bool", "x is stored as [..., K, M]", False),
        AttrSpec("transpose_y", "bool", "y is stored as [..., N, K]", False),
        AttrSpec("alpha", "float", "factor of the product", 1.0),
    ],
    source="Paddle: paddle/operators/matmul_op.cc",
    rows=_product_rows,
    accumulates=True,
    takes_halves=("gpu",),
)


@matmul.shape_rule
def matmul_shape(s: ShapeArgs) -> None:
    x, y = s["x"], s["y"]
    dtype = s.floats("x", "y")
    if not x or not y:
        s.fail("x and y want at least 1 dimension")
    rows, inner_x = _sides(x, (1, x[0]), s.attrs["transpose_x"])
    inner_y, cols = _sides(y, (y[0], 1), s.attrs["transpose_y"])
    s.same("the inner dimensions (columns of x and rows of y)", inner_x, inner_y)
    out = s.broadcast(x[:-2], y[:-2])
    out += () if len(x) == 1 else (rows,)
    out += () if len(y) == 1 else (cols,)
    s.set("out", (out, dtype))


def _sides(shape: Shape, as_vector: Shape, transposed: bool) -> Shape:
    if len(shape) == 1:
        return as_vector
    return (shape[-1], shape[-2]) if transposed else shape[-2:]


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """A call that writes alpha * a b, plus `bias` in every row, for two 2-D arrays.

    With `by`, scratch memory like `out`, it adds the product to `out` instead.

    `dot` costs less per call than `matmul` but writes to C-contiguous memory only, and takes a
    factor of one zero for a reason not to read the other: NaN and infinities would be lost.
    """
    if xp is not np and alpha == 1.0:
        from ...framework.fusion.cuda import device_lists  # without a GPU it is not needed

        work = device_lists.RowProduct(a, b, out, bias, by is not None)
        return device_lists.product_call(_product(xp, a, b, out, alpha, bias, by), work)
    return _product(xp, a, b, out, alpha, bias, by)


def _product(xp: Any, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any) -> Call:
    own = out if by is None else by
    if own.flags.c_contiguous and a.size != 1 and b.size != 1:
        calls: list[Call] = [partial(xp.dot, a, b, own)]
    else:
        calls = [partial(xp.matmul, a, b, out=own)]
    if alpha != 1.0:
        calls.append(_scaling(xp, own, alpha))
    if bias is not None:
        calls.append(partial(xp.add, own, bias, own))
    if by is not None:
        calls.append(partial(xp.add, out, by, out))
    return in_order(*calls)


def _scaling(xp: Any, out: Any, alpha: float) -> Call:
    return partial(xp.multiply, out, out.dtype.type(alpha), out=out)


@matmul.kernel
def bind_matmul(k: KernelArgs, product: Product = product, stacked: Product = stacked) -> Call:
    """Kernel of `matmul` on top of products of two matrices, and of two stacks of them."""
    x, y = _matrices(k, k["x"], k["y"])
    out = _as_matrices(k, k["out"])
    alpha = k.attrs["alpha"]
    if x.ndim == y.ndim == 2:
        # `dot` cannot add to its result, so the product goes to memory of its own first.
        by = k.scratch(out.shape, out.dtype) if k.accumulate else None
        return product(k.xp, x, y, out, alpha=alpha, by=by)
    if y.ndim == 2 and _contiguous(x, out):  # one large product for all batches
        return product(k.xp, _flat(x), y, _flat(out), alpha=alpha)
    return _scaled(k, stacked(k.xp, x, y, out), out, alpha)


@matmul.backward("x", "y")
def bind_matmul_grad(k: KernelArgs, product: Product = product, stacked: Product = stacked) -> Call:
    """Kernel of `matmul_grad` on top of products of two matrices, and of two stacks of them."""
    x, y = _matrices(k, k["x"], k["y"])
    grad = _as_matrices(k, k["out_grad"])
    calls = []
    for slot, shape, transposed, left, right in (
        ("x", k.shape("x"), k.attrs["transpose_x"], grad, y.swapaxes(-1, -2)),
        ("y", k.shape("y"), k.attrs["transpose_y"], x.swapaxes(-1, -2), grad),
    ):
        target = k.get(f"{slot}_grad")
        if target is None:
            continue
        if len(shape) == 1:
            target = target[None, :] if slot == "x" else target[:, None]
        elif transposed:  # the gradient of the matrix as it is stored
            left, right = right.swapaxes(-1, -2), left.swapaxes(-1, -2)
        calls.append(_gradient(k, product, stacked, left, right, target))
    return in_order(*calls)


def _gradient(
    k: KernelArgs, product: Product, stacked: Product, left: Any, right: Any, target: Any
) -> Call:
    """target = alpha * left right, summed over the batches that `target` was broadcast along."""
    xp = k.xp
    alpha = k.attrs["alpha"]
    if left.ndim == right.ndim == 2:
        return product(xp, left, right, target, alpha=alpha)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    full = target[(None,) * (len(batch) + 2 - target.ndim)]
    axes = tuple(axis for axis, size in enumerate(batch) if full.shape[axis] != size)
    if not axes:
        return _scaled(k, stacked(xp, left, right, full), target, alpha)
    if target.ndim == 2 and _rows_stacked(left, right):
        # Of a matrix shared by all batches: the sum over batches is one more inner dimension.
        left = _flat(left.swapaxes(-1, -2)).T
        right = _flat(right)
        return product(xp, left, right, target, alpha=alpha)
    whole = k.scratch((*batch, *target.shape[-2:]), target.dtype)
    multiply = stacked(xp, left, right, whole)
    add = partial(xp.sum, whole, axis=axes, keepdims=True, out=full)
    return _scaled(k, in_order(multiply, add), target, alpha)


def _rows_stacked(left: Any, right: Any) -> bool:
    """Whether both factors have the same batches and can be seen as one tall matrix each."""
    return left.shape[:-2] == right.shape[:-2] and _contiguous(left.swapaxes(-1, -2), right)


def _matrices(k: KernelArgs, x: Any, y: Any) -> tuple[Any, Any]:
    """x and y as (batches of) matrices whose plain product is wanted."""
    if x.ndim == 1:
        x = x[None, :]
    elif k.attrs["transpose_x"]:
        x = x.swapaxes(-1, -2)
    if y.ndim == 1:
        y = y[:, None]
    elif k.attrs["transpose_y"]:
        y = y.swapaxes(-1, -2)
    return x, y


def _as_matrices(k: KernelArgs, out: Any) -> Any:
    """`out` or its gradient with the axes that 1-D operands leave out put back."""
    if len(k.shape("y")) == 1:
        out = out[..., None]
    if len(k.shape("x")) == 1:
        out = out[..., None, :]
    return out


def _contiguous(*arrays: Any) -> bool:
    return all(array.flags.c_contiguous for array in arrays)


def _flat(array: Any) -> Any:
    return array.reshape(count(array.shape[:-1]), array.shape[-1])


def _scaled(k: KernelArgs, multiply: Call, out: Any, alpha: float) -> Call:
    if alpha == 1.0:
        return multiply
    return in_order(multiply, _scaling(k.xp, out, alpha))


NUM_FLATTEN_DIMS = AttrSpec(
    "num_flatten_dims",
    "int",
    "number of axes of x that count rows; -1 = all but the last",
    -1,
    minimum=-1,
)

affine = operator(
    "affine",
    doc=(
        "Fully connected layer: out = x w + b. The axes of x before `num_flatten_dims` are rows,"
        " the others are flattened to K columns; by default only the last axis is columns."
        " x [..., K], w [K, N], b [N] -> out [..., N]."
    ),
    inputs=[
        Slot("x", "[..., K]"),
        Slot("w", "[K, N]"),
        Slot("b", "[N]", optional=True, not_in_gradient=True),
    ],
    outputs=[Slot("out", "[..., N]", not_in_gradient=True)],
    attrs=[NUM_FLATTEN_DIMS],
    source="Paddle: python/paddle/v2/framework/layers.py (fc)",
    rows=_affine_rows,
    takes_halves=("gpu",),
)


@affine.shape_rule
def affine_shape_rule(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b") if s.has("b") else s.floats("x", "w")
    s.set("out", (affine_shape(s, s["x"], s["w"]), dtype))


@affine.epilogue
def affine_epilogue(op: OperatorView) -> list[OpNode]:
    """The product, and the bias as an addition."""
    if "b" not in op.inputs:
        return []
    out = op.outputs["out"]
    product_of = {"x": op.inputs["x"], "w": op.inputs["w"]}
    sum_of = {"x": out, "y": op.inputs["b"]}
    return [
        OpNode("affine", product_of, {"out": out}, op.attrs, op.role, op.device),
        OpNode("add", sum_of, {"out": out}, {}, op.role, op.device),
    ]


def affine_shape(s: ShapeArgs, x: Shape, w: Shape) -> Shape:
    """Shape of x w + b for one x and w of an operator that may have several."""
    if not x:
        s.fail("x wants at least 1 dimension")
    if len(w) != 2:
        s.fail(f"w wants 2 dimensions and has {len(w)}")
    split = s.attrs["num_flatten_dims"]
    if split >= len(x):
        s.fail(f"num_flatten_dims {split} leaves no columns of x")
    # -1 fits here as it is: all axes but the last.
    lead = x[:split]
    s.same("the columns of x and the rows of w", count(x[len(lead) :]), w[0])
    cols = w[1]
    if s.has("b"):
        cols = s.same("the columns of w and the length of b", cols, s.rank("b", 1)[0])
    return (*lead, cols)


@affine.kernel
def bind_affine(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `affine` on top of a product of two matrices."""
    xp = k.xp
    w = k["w"]
    out = k["out"]
    rows = count(out.shape[:-1])
    x, load = as_rows(k, k["x"], rows, w.shape[0])
    out, store = as_rows(k, out, rows, w.shape[1], write=True)
    return in_order(*load, product(xp, x, w, out, bias=k.get("b")), *store)


@affine.backward("x", "w", "b")
def bind_affine_grad(k: KernelArgs, product: Product = product, sums: Any = None) -> Call:
    """Kernel of `affine_grad` on top of a product of two matrices.

    Args:
        sums: of rows, in place of `sum_of_rows`.
    """
    xp = k.xp
    w = k["w"]
    rows = count(k.shape("out_grad")[:-1])
    grad, calls = as_rows(k, k["out_grad"], rows, w.shape[1])
    if k.get("w_grad") is not None:
        x, load = as_rows(k, k["x"], rows, w.shape[0])
        # The transpose is a view: BLAS reads a matrix in either order.
        calls += [*load, product(xp, x.T, grad, k["w_grad"])]
    if k.get("b_grad") is not None:
        calls.append((sums or partial(sum_of_rows, multiply=product))(k, grad, k["b_grad"]))
    if k.get("x_grad") is not None:
        x_grad, store = as_rows(k, k["x_grad"], rows, w.shape[0], write=True)
        calls += [product(xp, grad, w.T, x_grad), *store]
    return in_order(*calls)


_CHUNK = 1 << 18
"""Elements up to which OpenBLAS multiplies a vector and a matrix in the calling thread."""


def sum_of_rows(k: KernelArgs, grad: Any, target: Any, multiply: Product = product) -> Call:
    """target = grad summed over its rows.

    A product with a vector of ones: BLAS is 3 to 5 times as fast as `add.reduce` at every size
    tried (32x32 to 256x512). float16 has no BLAS. Larger ones are products like others, which
    threads share. NumPy's go in chunks: for these OpenBLAS would wake its threads.
    """
    if grad.dtype == "float16" or not target.flags.c_contiguous:
        return partial(k.xp.sum, grad, axis=0, out=target)
    rows, cols = grad.shape
    most = max(_CHUNK // max(cols, 1), 1)
    if k.xp is not np:
        return row_sums(k.xp, grad, target)
    ones = made_array(partial(np.ones, dtype=grad.dtype), grad.dtype, rows, rows)
    if rows <= most:
        return partial(np.dot, ones, grad, target)
    if multiply is not product:
        return multiply(k.xp, ones[None], grad, target[None])
    sums = k.scratch((-(-rows // most), cols), grad.dtype)
    chunks = [grad[begin : begin + most] for begin in range(0, rows, most)]
    calls = [
        partial(np.dot, ones[: len(chunk)], chunk, out)
        for chunk, out in zip(chunks, sums, strict=True)
    ]
    return in_order(*calls, partial(np.add.reduce, sums, 0, None, target))


def as_rows(
    k: KernelArgs, array: Any, rows: int, cols: int, *, write: bool = False
) -> tuple[Any, list[Call]]:
    """`array` as a matrix [rows, cols], and the calls that bring its values there.

    That is a view and no call; a strided array that has no such view goes through scratch memory,
    with one call to fill it or, for `write`, to empty it into `array` afterwards.
    """
    if array.flags.c_contiguous or array.shape == (rows, cols):
        return array.reshape(rows, cols), []
    buffer = k.scratch(array.shape, array.dtype)
    source, target = (buffer, array) if write else (array, buffer)
    return buffer.reshape(rows, cols), [partial(k.xp.copyto, target, source)]
