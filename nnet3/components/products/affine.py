"""Affine components, y = x W^T + b, and linear ones without b."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from ....framework.base.untrusted.values import check_fill
from ....kaldi.files.kaldi_io import Reader
from ..base.component import OLD_IS_GRADIENT, Component, Properties, UpdatableComponent
from ..base.fields import BOOL, DOUBLE, FLOAT, INT, MATRIX, VECTOR, Field
from ..base.initial import default_ranks, normal, read_matrix_file, refuse_beside, split_bias
from ..base.keys import Computed, optional
from ..base.lowered_op import Attrs, LoweredOp
from ..base.lowering import IN_DERIV, OUT, OUT_DERIV, Recipe, X, deriv_of
from ..base.preconditioning import (
    NATURAL_GRADIENT_KEYS,
    FisherEstimate,
    precondition_product,
)
from ..base.summary import flag, number, parameter_stats

_P = Properties
SIMPLE_UPDATABLE = _P.SIMPLE | _P.UPDATABLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_ADDS
LINEAR_FIELDS = (
    Field("<LinearParams>", MATRIX, "linear_params"),
    Field("<BiasParams>", VECTOR, "bias_params"),
)
_ORTHONORMAL = Field(
    "<OrthonormalConstraint>",
    FLOAT,
    "orthonormal_constraint",
    default=0.0,
    when=lambda c: c.orthonormal_constraint != 0,
)
_FILE_DIMS = optional(int, **dict.fromkeys(("input_dim", "output_dim"), Computed("of the matrix")))
_STDDEV = Computed("1 / sqrt(input-dim)")
_TRANSPOSED = Attrs.of({"transpose_y": True})


class AffineArrays(Component):
    """Base of affine components: `linear_params` [out, in], `bias_params` [out]."""

    linear_params: np.ndarray
    bias_params: np.ndarray

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1]

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0]

    def check(self) -> None:
        super().check()
        rows = self.linear_params.shape[0]
        size = self.bias_params.size
        self.demand(rows == size, f"{rows} rows of linear parameters, but {size} biases")


class AffineParameters(AffineArrays, UpdatableComponent):
    """Base of trained affine components."""

    trained = ("linear_params", "bias_params")
    flags = SIMPLE_UPDATABLE


class AffineComponent(AffineParameters):
    """y = x W^T + b; W `linear_params` [out, in], b `bias_params` [out]."""

    orthonormal_constraint: float

    own_fields = (*LINEAR_FIELDS, OLD_IS_GRADIENT, _ORTHONORMAL)
    own_keys = (
        *optional(str, matrix=None),
        *_FILE_DIMS,
        *optional(
            float, param_stddev=_STDDEV, bias_stddev=Computed("1"), orthonormal_constraint=0.0
        ),
    )

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        if o.matrix is not None:
            refuse_beside("matrix", o, "param_stddev", "bias_stddev", "bias_mean")
            self.linear_params, self.bias_params = split_bias(read_matrix_file(o.matrix))
            check_dims(self, o)
        else:
            self.demand(None not in (o.input_dim, o.output_dim), "wants input-dim= and output-dim=")
            self.demand(o.input_dim > 0, "input-dim must be positive")
            stddev = o.input_dim**-0.5 if o.param_stddev is None else o.param_stddev
            self.linear_params = normal(rng, (o.output_dim, o.input_dim), stddev)
            stddev = 1.0 if o.bias_stddev is None else o.bias_stddev
            self.bias_params = normal(
                rng, o.output_dim, stddev, getattr(o, "bias_mean", None) or 0.0
            )
        self.orthonormal_constraint = o.orthonormal_constraint

    def info(self) -> str:
        text = super().info()
        if self.orthonormal_constraint != 0:
            text += f", orthonormal-constraint={number(self.orthonormal_constraint)}"
        text += parameter_stats("linear-params", self.linear_params, norms=True)
        return text + parameter_stats("bias", self.bias_params, mean=True)

    def lower(self, recipe: Recipe) -> None:
        lower_affine(self, recipe, trainable=True)


def check_dims(component: Component, o: SimpleNamespace) -> None:
    """Refuse dimensions of a config line that the file it names does not have."""
    for name in ("input_dim", "output_dim"):
        key = name.replace("_", "-")
        wanted = getattr(o, name)
        actual = getattr(component, name)
        component.demand(wanted in (None, actual), f"{key}={wanted}, but the file has {actual}")


class NaturalGradientAffineComponent(AffineComponent):
    """As AffineComponent; its update is preconditioned (natural-gradient SGD)."""

    rank_in: int
    rank_out: int
    update_period: int
    num_samples_history: float
    alpha: float

    own_fields = (
        *LINEAR_FIELDS,
        Field("<RankIn>", INT, "rank_in"),
        Field("<RankOut>", INT, "rank_out"),
        _ORTHONORMAL,
        Field("<UpdatePeriod>", INT, "update_period"),
        Field("<NumSamplesHistory>", FLOAT, "num_samples_history"),
        Field("<Alpha>", FLOAT, "alpha"),
        Field("<MaxChangePerSample>", FLOAT, old=True),
        OLD_IS_GRADIENT,
        Field("<UpdateCount>", DOUBLE, old=True),
        Field("<ActiveScalingCount>", DOUBLE, old=True),
        Field("<MaxChangeScaleStats>", DOUBLE, old=True),
    )
    own_keys = (
        *AffineComponent.own_keys,
        *optional(float, bias_mean=Computed("0")),
        *NATURAL_GRADIENT_KEYS,
    )

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().set_up(o, rng)
        default_ranks(o, self.input_dim, self.output_dim)
        self.set_attributes(
            o, "rank_in", "rank_out", "update_period", "num_samples_history", "alpha"
        )

    def read_close(self, reader: Reader) -> None:
        # Kaldi also takes an opening token at the end, which some early versions wrote.
        self.closing = reader.expect_token(f"</{self.type}>", f"<{self.type}>")

    def info(self) -> str:
        return super().info() + preconditioner_info(self)

    def precondition(self, recipe: Recipe) -> None:
        settings = self.update_period, self.alpha, self.num_samples_history
        precondition_product(
            recipe,
            FisherEstimate(recipe, "in", self.rank_in, *settings),
            FisherEstimate(recipe, "out", self.rank_out, *settings),
            (self.output_dim, self.input_dim),
            ("linear_params", "bias_params"),
        )


def preconditioner_info(component: NaturalGradientAffineComponent | LinearComponent) -> str:
    """`, rank-in=...` and the other settings of the natural gradient."""
    c = component
    return (
        f", rank-in={c.rank_in}, rank-out={c.rank_out}"
        f", num-samples-history={number(c.num_samples_history)}"
        f", update-period={c.update_period}, alpha={number(c.alpha)}"
    )


class LinearComponent(UpdatableComponent):
    """y = x W^T; W `params` [out, in]."""

    params: np.ndarray
    orthonormal_constraint: float
    use_natural_gradient: bool
    rank_in: int
    rank_out: int
    alpha: float
    num_samples_history: float
    update_period: int

    own_fields = (
        Field("<Params>", MATRIX, "params"),
        _ORTHONORMAL,
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<RankInOut>", INT, "rank_in", "rank_out"),
        Field("<Alpha>", FLOAT, "alpha"),
        Field("<NumSamplesHistory>", FLOAT, "num_samples_history"),
        Field("<UpdatePeriod>", INT, "update_period"),
    )
    own_keys = (
        *optional(str, matrix=None),
        *_FILE_DIMS,
        *optional(float, param_stddev=_STDDEV, orthonormal_constraint=0.0),
        *optional(bool, use_natural_gradient=True),
        *NATURAL_GRADIENT_KEYS,
    )
    trained = ("params",)
    flags = SIMPLE_UPDATABLE | _P.PROPAGATE_ADDS

    @property
    def input_dim(self) -> int:
        return self.params.shape[1]

    @property
    def output_dim(self) -> int:
        return self.params.shape[0]

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        if o.matrix is not None:
            refuse_beside("matrix", o, "param_stddev")
            self.params = read_matrix_file(o.matrix)
            check_dims(self, o)
        else:
            self.demand(None not in (o.input_dim, o.output_dim), "wants input-dim= and output-dim=")
            self.demand(o.input_dim > 0, "input-dim must be positive")
            stddev = o.input_dim**-0.5 if o.param_stddev is None else o.param_stddev
            self.params = normal(rng, (o.output_dim, o.input_dim), stddev)
        default_ranks(o, self.input_dim, self.output_dim)
        self.set_attributes(
            o, "rank_in", "rank_out", "update_period", "num_samples_history", "alpha"
        )
        self.set_attributes(o, "use_natural_gradient", "orthonormal_constraint")

    def info(self) -> str:
        text = super().info() + parameter_stats("params", self.params, norms=True)
        if self.orthonormal_constraint != 0:
            text += f", orthonormal-constraint={number(self.orthonormal_constraint)}"
        return (
            f"{text}, use-natural-gradient={flag(self.use_natural_gradient)}"
            f"{preconditioner_info(self)}"
        )

    def lower(self, recipe: Recipe) -> None:
        w = recipe.parameter("params", self.params)
        recipe.op("matmul", OUT, attrs=_TRANSPOSED, x=X, y=w)

    def precondition(self, recipe: Recipe) -> None:
        settings = self.update_period, self.alpha, self.num_samples_history
        precondition_product(
            recipe,
            FisherEstimate(recipe, "in", self.rank_in, *settings),
            FisherEstimate(recipe, "out", self.rank_out, *settings),
            (self.output_dim, self.input_dim),
            ("params", None),
        )


class FixedAffineComponent(AffineArrays):
    """y = x W^T + b with fixed parameters."""

    fields = LINEAR_FIELDS
    keys = (*optional(str, matrix=None), *_FILE_DIMS)
    flags = _P.SIMPLE | _P.BACKPROP_ADDS

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        dims = o.input_dim, o.output_dim
        if o.matrix is not None:
            self.demand(dims == (None, None), "input-dim= and output-dim= do not go with matrix=")
            matrix = read_matrix_file(o.matrix)
        else:
            self.demand(None not in dims, "wants matrix=, or input-dim= and output-dim=")
            matrix = normal(rng, (o.output_dim, o.input_dim + 1))
            check_fill(matrix.shape, matrix.itemsize, "its matrix without bias")
        self.linear_params, self.bias_params = split_bias(matrix)

    @classmethod
    def from_affine(cls, affine: AffineComponent) -> FixedAffineComponent:
        """The parameters of an AffineComponent, frozen."""
        component = cls()
        component.linear_params = affine.linear_params.copy()
        component.bias_params = affine.bias_params.copy()
        return component

    def info(self) -> str:
        return (
            super().info()
            + parameter_stats("linear-params", self.linear_params)
            + parameter_stats("bias", self.bias_params, mean=True)
        )

    def lower(self, recipe: Recipe) -> None:
        lower_affine(self, recipe, trainable=False)


def lower_affine(
    component: AffineComponent | FixedAffineComponent, recipe: Recipe, trainable: bool
) -> None:
    """Operators of an affine component: a product of matrices, and a sum."""
    w = recipe.parameter("linear_params", component.linear_params, trainable)
    b = recipe.parameter("bias_params", component.bias_params, trainable)
    forward, backward = _affine_ops(w, b, recipe.temp(), trainable)
    recipe.forward += forward
    recipe.backward = [*backward]


@lru_cache
def _affine_ops(
    w: str, b: str, middle: str, trainable: bool
) -> tuple[list[LoweredOp], list[LoweredOp]]:
    """Forward and gradient operators; most components of a net have the same."""
    forward = [
        LoweredOp.of("matmul", {"x": X, "y": w}, {"out": middle}, _TRANSPOSED),
        LoweredOp.of("add", {"x": middle, "y": b}, {"out": OUT}),
    ]
    if not trainable:  # then the gradient needs no value of x
        return forward, [LoweredOp.of("matmul", {"x": OUT_DERIV, "y": w}, {"out": IN_DERIV})]
    # Both operators have the same gradient at their outputs; the registry's way would copy it.
    grad = {"out_grad": OUT_DERIV}
    both = {"x_grad": IN_DERIV, "y_grad": deriv_of(w)}
    return forward, [
        LoweredOp.of("add_grad", {"x": OUT_DERIV, "y": b, **grad}, {"y_grad": deriv_of(b)}),
        LoweredOp.of("matmul_grad", {"x": X, "y": w, **grad}, both, _TRANSPOSED),
    ]
