"""SwishComponent: the nonlinearity y = x * sigmoid(beta * x), whose beta is trained.

A large beta makes it a rectifier, beta = 0 the line x / 2; each column learns its own.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np

from opscope.framework.base.sizes.shape import ShapeArgs
from opscope.framework.fusion.team import in_order
from opscope.framework.ir.kernel_args import Call, KernelArgs
from opscope.framework.ir.registry import Slot, operator
from opscope.nnet3.components.base.component import KeepsDim, Properties, UpdatableComponent
from opscope.nnet3.components.base.fields import VECTOR, Field
from opscope.nnet3.components.base.keys import key
from opscope.nnet3.components.base.lowering import OUT, Recipe, X
from opscope.nnet3.components.base.summary import parameter_stats
from opscope.operators.base.calls import reducing


class SwishComponent(KeepsDim, UpdatableComponent):
    """y = x * sigmoid(betas * x); `betas` [dim]."""

    betas: np.ndarray

    own_fields = (Field("<Betas>", VECTOR, "betas"),)
    own_keys = (
        key("dim", int),
        key("initial-beta", float, 1.0, "the beta of all columns before training"),
    )
    trained = ("betas",)
    flags = Properties.SIMPLE | Properties.UPDATABLE | Properties.BACKPROP_NEEDS_INPUT

    @property
    def dim(self) -> int:
        """Columns of input and output."""
        return self.betas.size

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand(o.dim > 0, "dim must be positive")
        self.betas = np.full(o.dim, o.initial_beta, np.float32)

    def info(self) -> str:
        return super().info() + parameter_stats("betas", self.betas, mean=True)

    def lower(self, recipe: Recipe) -> None:
        betas = recipe.parameter("betas", self.betas)
        recipe.op("trained_swish", OUT, x=X, betas=betas)


trained_swish = operator(
    "trained_swish",
    doc="Swish with a steepness for each column: out = x * sigmoid(betas * x).",
    inputs=[Slot("x", "[N, D]"), Slot("betas", "[D]")],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    source="Ramachandran et al. 2017, Searching for activation functions",
)


@trained_swish.shape_rule
def trained_swish_shape(s: ShapeArgs) -> None:
    rows, cols = s.rank("x", 2)
    cols = s.same("the columns of x and the length of betas", cols, s.rank("betas", 1)[0])
    s.set("out", ((rows, cols), s.floats("x", "betas")))


def gate(k: KernelArgs, out: np.ndarray) -> list[Call]:
    """Calls for out = sigmoid(betas * x), as (1 + tanh(betas * x / 2)) / 2: no overflow."""
    xp = k.xp
    half = out.dtype.type(0.5)
    one = out.dtype.type(1)
    return [
        partial(xp.multiply, k["x"], k["betas"], out),
        partial(xp.multiply, out, half, out),
        partial(xp.tanh, out, out),
        partial(xp.add, out, one, out),
        partial(xp.multiply, out, half, out),
    ]


@trained_swish.kernel
def trained_swish_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    sigmoid = k.scratch(x.shape, x.dtype)
    return in_order(*gate(k, sigmoid), partial(k.xp.multiply, x, sigmoid, out))


@trained_swish.backward("x", "betas")
def trained_swish_grad_kernel(k: KernelArgs) -> Call:
    """With s the sigmoid: by x it is s + betas * x * s * (1 - s), by betas x^2 * s * (1 - s)."""
    xp = k.xp
    x = k["x"]
    grad = k["out_grad"]
    sigmoid, product = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    calls = [
        *gate(k, sigmoid),
        partial(xp.subtract, x.dtype.type(1), sigmoid, product),
        partial(xp.multiply, product, sigmoid, product),
        partial(xp.multiply, product, x, product),  # x * s * (1 - s)
    ]
    if k.get("betas_grad") is not None:
        rows = k.scratch(x.shape, x.dtype)
        calls += [
            partial(xp.multiply, product, x, rows),
            partial(xp.multiply, rows, grad, rows),
            reducing(xp, rows, k["betas_grad"]),
        ]
    if k.get("x_grad") is not None:
        calls += [
            partial(xp.multiply, product, k["betas"], product),
            partial(xp.add, product, sigmoid, product),
            partial(xp.multiply, product, grad, k["x_grad"]),
        ]
    return in_order(*calls)
