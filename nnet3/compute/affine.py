"""Matrix products: affine and linear components, plain, repeated over blocks and block-diagonal."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order, reducing
from ...operators.linear.matmul import Product, as_rows, product
from .lowering import IN_DERIV, OUT, OUT_DERIV, Recipe, X, deriv_of, lowers
from .step import Attrs, Step

_SOURCE = "Kaldi: nnet3/nnet-simple-component.cc"
_TRANSPOSED = Attrs.of({"transpose_y": True})


@lowers("AffineComponent", "NaturalGradientAffineComponent", "FixedAffineComponent")
def lower_affine_component(component: Any, recipe: Recipe) -> None:
    trainable = component.type != "FixedAffineComponent"
    w = recipe.parameter("linear_params", component.linear_params, trainable)
    b = recipe.parameter("bias_params", component.bias_params, trainable)
    forward, backward = _affine(w, b, recipe.temp(), trainable)
    recipe.steps += forward
    recipe.backward = [*backward]


@lru_cache
def _affine(w: str, b: str, middle: str, trainable: bool) -> tuple[list[Step], list[Step]]:
    """Forward and gradient steps; most components of a net have the same."""
    forward = [
        Step.of("matmul", {"x": X, "y": w}, {"out": middle}, _TRANSPOSED),
        Step.of("add", {"x": middle, "y": b}, {"out": OUT}),
    ]
    if not trainable:  # then the gradient needs no value of x
        return forward, [Step.of("matmul", {"x": OUT_DERIV, "y": w}, {"out": IN_DERIV})]
    # Both operators have the same gradient at their outputs; the registry's way would copy it.
    grad = {"out_grad": OUT_DERIV}
    both = {"x_grad": IN_DERIV, "y_grad": deriv_of(w)}
    return forward, [
        Step.of("add_grad", {"x": OUT_DERIV, "y": b, **grad}, {"y_grad": deriv_of(b)}),
        Step.of("matmul_grad", {"x": X, "y": w, **grad}, both, _TRANSPOSED),
    ]


@lowers("LinearComponent")
def lower_linear_component(component: Any, recipe: Recipe) -> None:
    w = recipe.parameter("params", component.params)
    recipe.op("matmul", OUT, attrs=_TRANSPOSED, x=X, y=w)


@lowers("RepeatedAffineComponent", "NaturalGradientRepeatedAffineComponent")
def lower_repeated_affine_component(component: Any, recipe: Recipe) -> None:
    w = recipe.parameter("linear_params", component.linear_params)
    b = recipe.parameter("bias_params", component.bias_params)
    recipe.op("nnet3.repeated_affine", OUT, x=X, w=w, b=b)


@lowers("BlockAffineComponent")
def lower_block_affine_component(component: Any, recipe: Recipe) -> None:
    w = recipe.parameter("linear_params", component.linear_params)
    b = recipe.parameter("bias_params", component.bias_params)
    attrs = {"blocks": int(component.num_blocks)}
    recipe.op("nnet3.block_affine", OUT, attrs=attrs, x=X, w=w, b=b)


repeated_affine = operator(
    "nnet3.repeated_affine",
    doc=(
        "The same affine map of every block of columns: out[:, r] = x[:, r] w' + b for the R blocks"
        " r of K columns in x [N, R*K]; w [M, K], b [M] -> out [N, R*M]."
    ),
    inputs=[
        Slot("x", "[N, R*K]"),
        Slot("w", "[M, K]"),
        Slot("b", "[M]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, R*M]", not_in_gradient=True)],
    source=_SOURCE,
)


@repeated_affine.shape_rule
def repeated_affine_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b")
    rows, cols = s.rank("x", 2)
    units, inputs = s.rank("w", 2)
    s.same("the rows of w and the length of b", units, s.rank("b", 1)[0])
    if cols >= 0 and inputs >= 0 and (inputs == 0 or cols % inputs):
        s.fail(f"the {cols} columns of x are no multiple of the {inputs} columns of w")
    known = min(cols, inputs, units) >= 0
    s.set("out", ((rows, cols // inputs * units if known else -1), dtype))


def _folded(k: Any, slot: str, width: int, write: bool = False) -> tuple[Any, list[Any]]:
    """A matrix with every block of `width` columns as a row of its own."""
    array = k[slot]
    return as_rows(k, array, array.size // max(width, 1), width, write=write)


@repeated_affine.kernel
def bind_repeated_affine(k: Any, product: Product = product) -> Callable[[], Any]:
    """Kernel of `nnet3.repeated_affine` on top of a product of two matrices."""
    w = k["w"]
    x, load = _folded(k, "x", w.shape[1])
    out, store = _folded(k, "out", w.shape[0], write=True)
    return in_order(*load, product(k.xp, x, w.T, out, bias=k["b"]), *store)


@repeated_affine.backward("x", "w", "b")
def bind_repeated_affine_grad(k: Any, product: Product = product) -> Callable[[], Any]:
    """Kernel of `nnet3.repeated_affine_grad` on top of a product of two matrices."""
    w = k["w"]
    grad, calls = _folded(k, "out_grad", w.shape[0])
    if k.get("w_grad") is not None:
        x, load = _folded(k, "x", w.shape[1])
        calls += [*load, product(k.xp, grad.T, x, k["w_grad"])]
    if k.get("b_grad") is not None:
        calls.append(reducing(k.xp, grad, k["b_grad"]))
    if k.get("x_grad") is not None:
        x_grad, store = _folded(k, "x_grad", w.shape[1], write=True)
        calls += [product(k.xp, grad, w, x_grad), *store]
    return in_order(*calls)


block_affine = operator(
    "nnet3.block_affine",
    doc=(
        "Affine map with a block-diagonal matrix: block i of the columns of x [N, B*K] is mapped by"
        " rows i*M to (i+1)*M of w [B*M, K] to block i of out [N, B*M]; b [B*M] is added."
    ),
    inputs=[
        Slot("x", "[N, B*K]"),
        Slot("w", "[B*M, K]"),
        Slot("b", "[B*M]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, B*M]", not_in_gradient=True)],
    attrs=[AttrSpec("blocks", "int", "number of blocks, B", minimum=1)],
    source=_SOURCE,
)


@block_affine.shape_rule
def block_affine_shape(s: ShapeArgs) -> None:
    dtype, blocks = s.floats("x", "w", "b"), s.attrs["blocks"]
    rows, cols = s.rank("x", 2)
    units, inputs = s.rank("w", 2)
    units = s.same("the rows of w and the length of b", units, s.rank("b", 1)[0])
    if units > 0 and units % blocks:
        s.fail(f"the {units} rows of w do not fall into {blocks} blocks")
    wanted = inputs * blocks if inputs >= 0 else -1
    s.same("the columns of x and the blocks of w", cols, wanted)
    s.set("out", ((rows, units), dtype))


def _columns(array: Any, blocks: int) -> Any:
    """[N, B*K] as [B, N, K], a view."""
    rows, cols = array.shape
    return array.reshape(rows, blocks, cols // blocks).swapaxes(0, 1)


def _rows(array: Any, blocks: int) -> Any:
    """[B*M, K] as [B, M, K], a view."""
    return array.reshape(blocks, array.shape[0] // blocks, array.shape[1])


@block_affine.kernel
def block_affine_kernel(k: Any) -> Callable[[], Any]:
    xp, blocks, out = k.xp, k.attrs["blocks"], k["out"]
    w = _rows(k["w"], blocks).swapaxes(1, 2)
    return in_order(
        partial(xp.matmul, _columns(k["x"], blocks), w, out=_columns(out, blocks)),
        partial(xp.add, out, k["b"], out),
    )


@block_affine.backward("x", "w", "b")
def block_affine_grad_kernel(k: Any) -> Callable[[], Any]:
    xp, blocks, calls = k.xp, k.attrs["blocks"], []
    grad = _columns(k["out_grad"], blocks)
    if k.get("w_grad") is not None:
        w_grad = _rows(k["w_grad"], blocks)
        x = _columns(k["x"], blocks)
        calls.append(partial(xp.matmul, grad.swapaxes(1, 2), x, out=w_grad))
    if k.get("b_grad") is not None:
        calls.append(reducing(xp, k["out_grad"], k["b_grad"]))
    if k.get("x_grad") is not None:
        x_grad = _columns(k["x_grad"], blocks)
        calls.append(partial(xp.matmul, grad, _rows(k["w"], blocks), out=x_grad))
    return in_order(*calls)
