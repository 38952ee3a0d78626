"""Affine components that are repeated over blocks of columns, or have a block-diagonal W."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.backends.products.product_kernels import register_product_kernels
from ....operators.base.blocks import blocks_across
from ....operators.base.calls import reducing
from ....operators.linear.matmul import Product, as_rows, product
from ..base.component import OLD_IS_GRADIENT, Component, Properties
from ..base.fields import INT, Field
from ..base.initial import normal
from ..base.keys import Computed, Key, optional, required
from ..base.lowering import OUT, Recipe, X
from ..base.preconditioning import FisherEstimate, joined_gradients, split_gradients
from ..base.summary import parameter_stats
from .affine import LINEAR_FIELDS, SIMPLE_UPDATABLE, AffineParameters

_P = Properties
_SOURCE = "Kaldi: nnet3/nnet-simple-component.cc"


def _keys(*sizes: str, count: str, bias_stddev: float) -> tuple[Key, ...]:
    """The keys of a component with `count` blocks."""
    return (
        *required(int, *sizes),
        *optional(
            float,
            param_stddev=Computed(f"1 / sqrt(input-dim / {count})"),
            bias_mean=0.0,
            bias_stddev=bias_stddev,
        ),
    )


def _draw(
    c: AffineParameters, o: SimpleNamespace, rng: np.random.Generator, dim_in: int, dim_out: int
) -> None:
    """Random parameters of blocks [dim_out, dim_in]."""
    stddev = dim_in**-0.5 if o.param_stddev is None else o.param_stddev
    c.linear_params = normal(rng, (dim_out, dim_in), stddev)
    c.bias_params = normal(rng, dim_out, o.bias_stddev, o.bias_mean)


class RepeatedAffineComponent(AffineParameters):
    """The same affine transform applied to each of `num_repeats` blocks of columns."""

    num_repeats: int

    own_fields = (Field("<NumRepeats>", INT, "num_repeats"), *LINEAR_FIELDS, OLD_IS_GRADIENT)
    own_keys = _keys("num-repeats", "input-dim", "output-dim", count="num-repeats", bias_stddev=0.0)
    flags = SIMPLE_UPDATABLE | _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1] * self.num_repeats

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0] * self.num_repeats

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.num_repeats = check_blocks("num-repeats", o.num_repeats, o)
        _draw(self, o, rng, o.input_dim // self.num_repeats, o.output_dim // self.num_repeats)

    def check(self) -> None:
        super().check()
        self.demand(self.num_repeats > 0, "num-repeats must be positive")

    def info(self) -> str:
        return (
            f"{super().info()}, num-repeats={self.num_repeats}"
            f"{parameter_stats('linear-params', self.linear_params)}"
            f"{parameter_stats('bias', self.bias_params, mean=True)}"
        )

    def lower(self, recipe: Recipe) -> None:
        w = recipe.parameter("linear_params", self.linear_params)
        b = recipe.parameter("bias_params", self.bias_params)
        recipe.op("nnet3.repeated_affine", OUT, x=X, w=w, b=b)


class NaturalGradientRepeatedAffineComponent(RepeatedAffineComponent):
    """As RepeatedAffineComponent; its update is preconditioned (natural-gradient SGD)."""

    def precondition(self, recipe: Recipe) -> None:
        width = self.linear_params.shape[1]
        joined = joined_gradients(recipe)
        rank = max(1, min(40, width // 2))
        rows, scale = FisherEstimate(recipe, "in", rank, 4).apply(joined, width + 1, summed=True)
        split_gradients(recipe, rows, scale)


def check_blocks(name: str, count: int, o: SimpleNamespace) -> int:
    """`count`, which must be positive and divide both dimensions of the config line."""
    dims = o.input_dim, o.output_dim
    Component.demand(
        count > 0 and all(dim > 0 and dim % count == 0 for dim in dims),
        f"{name}={count} does not divide input-dim={dims[0]} and output-dim={dims[1]}",
    )
    return count


class BlockAffineComponent(AffineParameters):
    """An affine transform with a block-diagonal W, whose blocks lie one below another in
    `linear_params` [out, in / num_blocks]."""

    num_blocks: int

    own_fields = (Field("<NumBlocks>", INT, "num_blocks"), *LINEAR_FIELDS, OLD_IS_GRADIENT)
    own_keys = _keys("input-dim", "output-dim", "num-blocks", count="num-blocks", bias_stddev=1.0)

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1] * self.num_blocks

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.num_blocks = check_blocks("num-blocks", o.num_blocks, o)
        _draw(self, o, rng, o.input_dim // self.num_blocks, o.output_dim)

    def check(self) -> None:
        super().check()
        rows = self.linear_params.shape[0]
        self.demand(
            self.num_blocks > 0 and rows % self.num_blocks == 0,
            f"num-blocks={self.num_blocks} does not divide output-dim={rows}",
        )

    def info(self) -> str:
        return (
            f"{super().info()}, num-blocks={self.num_blocks}"
            f"{parameter_stats('linear-params', self.linear_params)}"
            f"{parameter_stats('bias', self.bias_params, mean=True)}"
        )

    def lower(self, recipe: Recipe) -> None:
        w = recipe.parameter("linear_params", self.linear_params)
        b = recipe.parameter("bias_params", self.bias_params)
        attrs = {"blocks": int(self.num_blocks)}
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
    blocks = blocks_across(s, cols, inputs, "the columns of w")
    s.set("out", ((rows, blocks * units if min(blocks, units) >= 0 else -1), dtype))


def _folded(k: KernelArgs, slot: str, width: int, write: bool = False) -> tuple[Any, list[Any]]:
    """A matrix with every block of `width` columns as a row of its own."""
    rows, cols = k.shape("x")
    return as_rows(k, k[slot], rows * cols // k["w"].shape[1], width, write=write)


@repeated_affine.kernel
def bind_repeated_affine(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.repeated_affine` on top of a product of two matrices."""
    w = k["w"]
    x, load = _folded(k, "x", w.shape[1])
    out, store = _folded(k, "out", w.shape[0], write=True)
    return in_order(*load, product(k.xp, x, w.T, out, bias=k["b"]), *store)


@repeated_affine.backward("x", "w", "b")
def bind_repeated_affine_grad(k: KernelArgs, product: Product = product) -> Call:
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
    dtype = s.floats("x", "w", "b")
    blocks = s.attrs["blocks"]
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
def block_affine_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    blocks = k.attrs["blocks"]
    out = k["out"]
    w = _rows(k["w"], blocks).swapaxes(1, 2)
    return in_order(
        partial(xp.matmul, _columns(k["x"], blocks), w, out=_columns(out, blocks)),
        partial(xp.add, out, k["b"], out),
    )


@block_affine.backward("x", "w", "b")
def block_affine_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    blocks = k.attrs["blocks"]
    calls = []
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


register_product_kernels("nnet3.repeated_affine", bind_repeated_affine)
register_product_kernels("nnet3.repeated_affine_grad", bind_repeated_affine_grad)
