"""Scales and offsets: one or two numbers for each dimension, or each block of dimensions.

`nnet3.scale_offset` reads its output for the gradient, as Kaldi does, so that it may run in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.blocks import blocks_across, blocks_of
from ...operators.base.calls import reducing
from .base.checks import check_block
from .base.component import OLD_IS_GRADIENT, Component, KeepsDim, Properties, UpdatableComponent
from .base.fields import BOOL, FLOAT, INT, VECTOR, Field
from .base.initial import normal, read_vector_file, refuse_beside
from .base.keys import Computed, key, optional
from .base.lowering import OUT, OUT_DERIV, Recipe, X, scale_by
from .base.preconditioning import FisherEstimate, add_natural, precondition_sum
from .base.summary import flag, number, parameter_stats

_P = Properties
_IN_PLACE = _P.SIMPLE | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE
_BLOCKS = _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS
_SOURCE = "Kaldi: nnet3/nnet-simple-component.cc"
SCALE_EPSILON = 1e-4
"""Scales of a ScaleAndOffsetComponent closer to 0 are taken for this."""


class PerElementScaleComponent(KeepsDim, UpdatableComponent):
    """y = x * scales."""

    scales: np.ndarray

    own_fields = (Field("<Params>", VECTOR, "scales"), OLD_IS_GRADIENT)
    own_keys = (
        *optional(str, vector=None),
        *optional(int, dim=Computed("of the file")),
        *optional(float, param_mean=Computed("1"), param_stddev=Computed("0")),
    )
    trained = ("scales",)
    flags = _IN_PLACE | _P.UPDATABLE | _P.BACKPROP_NEEDS_INPUT

    @property
    def dim(self) -> int:
        """Columns of input and output."""
        return self.scales.size

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        if o.vector is not None:
            name = "scales" if hasattr(o, "scales") else "vector"
            refuse_beside(name, o, "param_mean", "param_stddev")
            self.scales = read_vector_file(o.vector)
            self.demand(o.dim in (None, self.dim), f"dim={o.dim}, but the file has {self.dim}")
        else:
            self.demand(o.dim is not None, "wants dim=")
            mean = 1.0 if o.param_mean is None else o.param_mean
            self.scales = normal(rng, o.dim, o.param_stddev or 0.0, mean)

    def info(self) -> str:
        return (
            f"{super().info()}, scales-min={number(self.scales.min())}"
            f", scales-max={number(self.scales.max())}"
            f"{parameter_stats('scales', self.scales, mean=True)}"
        )

    def lower(self, recipe: Recipe) -> None:
        recipe.op("mul", OUT, x=X, y=recipe.parameter("scales", self.scales))


class NaturalGradientPerElementScaleComponent(PerElementScaleComponent):
    """As PerElementScaleComponent; its update is preconditioned (natural-gradient SGD)."""

    rank: int
    update_period: int
    num_samples_history: float
    alpha: float

    own_fields = (
        Field("<Params>", VECTOR, "scales"),
        Field("<IsGradient>", BOOL, "is_gradient"),
        Field("<Rank>", INT, "rank"),
        Field("<UpdatePeriod>", INT, "update_period"),
        Field("<NumSamplesHistory>", FLOAT, "num_samples_history"),
        Field("<Alpha>", FLOAT, "alpha"),
        Field("<MaxChangePerMinibatch>", FLOAT, old=True),
    )
    own_keys = (
        *optional(str, scales=None),
        *optional(int, dim=Computed("of the file"), rank=8, update_period=10),
        *optional(float, num_samples_history=2000.0, alpha=4.0),
        *optional(float, param_mean=Computed("1"), param_stddev=Computed("0")),
    )

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        o.vector = o.scales
        super().set_up(o, rng)
        self.rank = o.rank
        self.update_period = o.update_period
        self.num_samples_history = o.num_samples_history
        self.alpha = o.alpha

    def info(self) -> str:
        return (
            f"{super().info()}, rank={self.rank}, update-period={self.update_period}"
            f", num-samples-history={number(self.num_samples_history)}"
            f", alpha={number(self.alpha)}"
        )

    def precondition(self, recipe: Recipe) -> None:
        product = recipe.temp()
        add_natural(recipe, "mul", {"x": X, "y": OUT_DERIV}, {"out": product})
        settings = self.rank, self.update_period, self.alpha, self.num_samples_history
        estimate = FisherEstimate(recipe, "scale", *settings)
        precondition_sum(recipe, estimate, product, len(self.scales), "scales")


class PerElementOffsetComponent(KeepsDim, UpdatableComponent):
    """y = x + offsets, which repeat where there are fewer than dimensions."""

    offsets: np.ndarray
    use_natural_gradient: bool

    own_fields = (
        Field("<Offsets>", VECTOR, "offsets"),
        OLD_IS_GRADIENT,
        Field("<Dim>", INT, "dim", default=lambda c: c.offsets.size),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient", default=True),
    )
    own_keys = (
        *optional(str, vector=None),
        *optional(int, dim=Computed("of the file"), block_dim=Computed("dim")),
        *optional(float, param_mean=Computed("0"), param_stddev=Computed("0")),
        *optional(bool, use_natural_gradient=True),
    )
    trained = ("offsets",)
    flags = _IN_PLACE | _P.UPDATABLE

    @property
    def properties(self) -> Properties:
        blocks = self.dim != self.offsets.size
        return self.flags | (_P.OUTPUT_CONTIGUOUS if blocks else _P(0))

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        if o.vector is not None:
            refuse_beside("vector", o, "block_dim", "param_mean", "param_stddev")
            self.offsets = read_vector_file(o.vector)
            self.dim = self.offsets.size if o.dim is None else o.dim
        else:
            self.demand(o.dim is not None, "wants dim=")
            self.dim = o.dim
            block = o.dim if o.block_dim is None else o.block_dim
            check_block(o.dim, block)
            self.offsets = normal(rng, block, o.param_stddev or 0.0, o.param_mean or 0.0)
        self.use_natural_gradient = o.use_natural_gradient

    def check(self) -> None:
        check_block(self.dim, self.offsets.size)

    def info(self) -> str:
        return (
            f"{super().info()}, offsets-min={number(self.offsets.min())}"
            f", offsets-max={number(self.offsets.max())}, block-dim={self.offsets.size}"
            f", use-natural-gradient={flag(self.use_natural_gradient)}"
            f"{parameter_stats('offsets', self.offsets, mean=True)}"
        )

    def lower(self, recipe: Recipe) -> None:
        b = recipe.parameter("offsets", self.offsets)
        blocked = len(self.offsets) != self.dim
        recipe.op("nnet3.block_offset" if blocked else "add", OUT, x=X, y=b)

    def precondition(self, recipe: Recipe) -> None:
        if self.use_natural_gradient:
            estimate = FisherEstimate(recipe, "offset", 20, 4)
            precondition_sum(recipe, estimate, OUT_DERIV, len(self.offsets), "offsets")


class ScaleAndOffsetComponent(KeepsDim, UpdatableComponent):
    """y = x * scales + offsets, which repeat where there are fewer than dimensions."""

    scales: np.ndarray
    offsets: np.ndarray
    use_natural_gradient: bool
    rank: int

    own_fields = (
        Field("<Dim>", INT, "dim"),
        Field("<Scales>", VECTOR, "scales"),
        Field("<Offsets>", VECTOR, "offsets"),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<Rank>", INT, "rank"),
    )
    own_keys = (
        key("dim", int),
        *optional(int, block_dim=Computed("dim"), rank=20),
        *optional(bool, use_natural_gradient=True),
    )
    trained = ("scales", "offsets")
    flags = _IN_PLACE | _P.UPDATABLE | _P.BACKPROP_NEEDS_OUTPUT

    @property
    def properties(self) -> Properties:
        return self.flags | (_BLOCKS if self.dim != self.scales.size else _P(0))

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        block = o.dim if o.block_dim is None else o.block_dim
        check_block(o.dim, block)
        self.dim = o.dim
        self.rank = o.rank
        self.scales = np.ones(block, np.float32)
        self.offsets = np.zeros(block, np.float32)
        self.use_natural_gradient = o.use_natural_gradient

    def check(self) -> None:
        check_block(self.dim, self.scales.size)
        self.demand(self.scales.size == self.offsets.size, "as many scales as offsets are wanted")

    def info(self) -> str:
        text = f"{super().info()}, rank={self.rank}"
        if self.dim != self.scales.size:
            text += f", block-size={self.scales.size}"
        text += parameter_stats("scales", self.scales, mean=True)
        return text + parameter_stats("offsets", self.offsets, mean=True)

    def lower(self, recipe: Recipe) -> None:
        scale = recipe.parameter("scales", self.scales)
        offset = recipe.parameter("offsets", self.offsets)
        attrs = {"epsilon": SCALE_EPSILON}
        recipe.op("nnet3.scale_offset", OUT, attrs=attrs, x=X, scale=scale, offset=offset)

    def precondition(self, recipe: Recipe) -> None:
        if not self.use_natural_gradient:
            return
        (op,) = recipe.forward  # its input follows from its output, as in the plain gradient
        product = recipe.temp()
        read = dict(op.inputs)
        inputs = {"out": OUT, "grad": OUT_DERIV, "scale": read["scale"], "offset": read["offset"]}
        add_natural(recipe, "nnet3.scale_offset_terms", inputs, {"terms": product}, op.attrs)
        width = len(self.scales)
        offsets, scales = (FisherEstimate(recipe, of, self.rank, 4) for of in ("offset", "scale"))
        precondition_sum(recipe, offsets, OUT_DERIV, width, "offsets")
        precondition_sum(recipe, scales, product, width, "scales")


class FixedScaleComponent(KeepsDim, Component):
    """y = x * scales, with fixed scales."""

    scales: np.ndarray

    fields = (Field("<Scales>", VECTOR, "scales"),)
    keys = (
        *optional(str, scales=None),
        *optional(int, dim=Computed("of the file")),
        *optional(float, scale=Computed("random scales")),
    )
    flags = _IN_PLACE

    @property
    def dim(self) -> int:
        """Columns of input and output."""
        return self.scales.size

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        if o.scales is not None:
            self.demand(o.dim is o.scale is None, "dim= and scale= do not go with scales=")
            self.scales = read_vector_file(o.scales)
        else:
            self.demand(o.dim is not None, "wants scales= or dim=")
            self.scales = normal(rng, o.dim)
            if o.scale is not None:
                self.scales[:] = o.scale

    def info(self) -> str:
        return super().info() + parameter_stats("scales", self.scales, mean=True)

    def lower(self, recipe: Recipe) -> None:
        scale_by(recipe, recipe.parameter("scales", self.scales, trainable=False))


class FixedBiasComponent(KeepsDim, Component):
    """y = x + bias, with a fixed bias."""

    bias: np.ndarray

    fields = (Field("<Bias>", VECTOR, "bias"),)
    keys = (*optional(str, bias=None), *optional(int, dim=Computed("of the file")))
    flags = _IN_PLACE

    @property
    def dim(self) -> int:
        """Columns of input and output."""
        return self.bias.size

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand((o.bias is None) != (o.dim is None), "wants either bias= or dim=")
        self.bias = normal(rng, o.dim) if o.bias is None else read_vector_file(o.bias)

    def info(self) -> str:
        return super().info() + parameter_stats("bias", self.bias, mean=True)

    def lower(self, recipe: Recipe) -> None:
        recipe.op("add", OUT, x=X, y=recipe.parameter("bias", self.bias, trainable=False))


def _block_rule(*vectors: str) -> Callable[[ShapeArgs], None]:
    def rule(s: ShapeArgs) -> None:
        dtype = s.floats("x", *vectors)
        cols = s.rank("x", 2)[1]
        widths = [s.rank(slot, 1)[0] for slot in vectors]
        width = s.same(f"the lengths of {' and '.join(vectors)}", *widths)
        blocks_across(s, cols, width, f"the length of {vectors[0]}")
        s.set("out", (s["x"], dtype))

    return rule


block_offset = operator(
    "nnet3.block_offset",
    doc="Offset of every block of columns: out[:, i] = x[:, i] + y[i % D]; x [N, B*D], y [D].",
    inputs=[
        Slot("x", "[N, B*D]", not_in_gradient=True),
        Slot("y", "[D]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, B*D]", inplace="x", not_in_gradient=True)],
    source=_SOURCE,
    shape=_block_rule("y"),
)


@block_offset.kernel
def block_offset_kernel(k: KernelArgs) -> Call:
    y = k["y"]
    return partial(k.xp.add, blocks_of(k["x"], len(y)), y, blocks_of(k["out"], len(y)))


@block_offset.backward("x", "y", inplace={"x_grad": "out_grad"})
def block_offset_grad_kernel(k: KernelArgs) -> Call:
    calls = []
    grad = k["out_grad"]
    if k.get("y_grad") is not None:
        calls.append(reducing(k.xp, blocks_of(grad, len(k["y_grad"])), k["y_grad"]))
    if k.get("x_grad") is not None:
        calls.append(reducing(k.xp, grad, k["x_grad"]))
    return in_order(*calls)


scale_offset = operator(
    "nnet3.scale_offset",
    doc=(
        "Scale and offset of every block of columns: out[:, i] = s[i % D] x[:, i] + offset[i % D],"
        " where s is `scale` with elements between -epsilon and epsilon moved away from 0 to"
        " these bounds. x [N, B*D], scale [D], offset [D]. The gradient reads out, not x."
    ),
    inputs=[
        Slot("x", "[N, B*D]", not_in_gradient=True),
        Slot("scale", "[D]"),
        Slot("offset", "[D]"),
    ],
    outputs=[Slot("out", "[N, B*D]", inplace="x")],
    attrs=[AttrSpec("epsilon", "float", "least magnitude of a scale", 0.0, minimum=0.0)],
    source=_SOURCE,
    shape=_block_rule("scale", "offset"),
    scalar=(
        "x * (scale >= 0 ? (scale < epsilon ? epsilon : scale)"
        " : (scale > -epsilon ? -epsilon : scale)) + offset"
    ),
)


def _away_from_zero(k: KernelArgs, scale: Any) -> tuple[Any, Call | None]:
    """The scales used, and the call that computes them."""
    epsilon = k.attrs["epsilon"]
    if not epsilon:
        return scale, None
    xp = k.xp
    real = scale.dtype.type
    used, positive, small = (k.scratch(scale.shape, d) for d in (scale.dtype, bool, bool))
    bound = k.scratch(scale.shape, scale.dtype)

    def compute() -> None:
        xp.greater_equal(scale, real(0), out=positive)
        xp.multiply(positive, real(2 * epsilon), out=bound)
        xp.subtract(bound, real(epsilon), out=bound)
        xp.copyto(used, scale)
        xp.absolute(scale, out=used)
        xp.less(used, real(epsilon), out=small)
        xp.copyto(used, scale)
        xp.copyto(used, bound, where=small)

    return used, compute


@scale_offset.kernel
def scale_offset_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    width = len(k["scale"])
    scale, prepare = _away_from_zero(k, k["scale"])
    x, out = blocks_of(k["x"], width), blocks_of(k["out"], width)
    return in_order(
        prepare,
        partial(xp.multiply, x, scale, out),
        partial(xp.add, out, k["offset"], out),
    )


@scale_offset.backward("x", "scale", "offset", inplace={"x_grad": "out_grad"})
def scale_offset_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    width = len(k["scale"])
    grad = k["out_grad"]
    scale, prepare = _away_from_zero(k, k["scale"])
    grad = blocks_of(grad, width)
    out = blocks_of(k["out"], width)
    calls = [prepare]
    if k.get("offset_grad") is not None:
        calls.append(reducing(xp, grad, k["offset_grad"]))
    if k.get("scale_grad") is not None:
        x = k.scratch(out.shape, out.dtype)
        calls += [
            partial(xp.subtract, out, k["offset"], x),
            partial(xp.divide, x, scale, x),
            partial(xp.multiply, x, grad, x),
            reducing(xp, x, k["scale_grad"]),
        ]
    if k.get("x_grad") is not None:
        calls.append(partial(xp.multiply, grad, scale, blocks_of(k["x_grad"], width)))
    return in_order(*calls)


scale_offset_terms = operator(
    "nnet3.scale_offset_terms",
    doc=(
        "The terms whose sum over rows and blocks is the gradient of the scales of"
        " nnet3.scale_offset: terms = x * grad, with x recovered from out. out, grad and"
        " terms [N, B*D]; scale, offset [D]."
    ),
    inputs=[
        Slot("out", "[N, B*D]"),
        Slot("grad", "[N, B*D]"),
        Slot("scale", "[D]"),
        Slot("offset", "[D]"),
    ],
    outputs=[Slot("terms", "[N, B*D]")],
    attrs=[AttrSpec("epsilon", "float", "least magnitude of a scale", 0.0, minimum=0.0)],
    source=_SOURCE,
    no_gradient="it serves updates of parameters",
)


@scale_offset_terms.shape_rule
def scale_offset_terms_shape(s: ShapeArgs) -> None:
    shape = s.same_shape("out and grad", s["out"], s["grad"])
    (width,) = s.same_shape("scale and offset", s.rank("scale", 1), s["offset"])
    blocks_across(s, s.rank("out", 2)[1], width, "the length of scale", "out")
    s.set("terms", (shape, s.floats("out", "grad", "scale", "offset")))


@scale_offset_terms.kernel
def scale_offset_terms_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    width = len(k["scale"])
    scale, prepare = _away_from_zero(k, k["scale"])
    terms = blocks_of(k["terms"], width)
    return in_order(
        prepare,
        partial(xp.subtract, blocks_of(k["out"], width), k["offset"], terms),
        partial(xp.divide, terms, scale, terms),
        partial(xp.multiply, terms, blocks_of(k["grad"], width), terms),
    )
