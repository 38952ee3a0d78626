"""Affine components, y = x W^T + b, and their relatives with repeated or block-diagonal W."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..files.kaldi_io import Reader
from .base import (
    OLD_IS_GRADIENT,
    Component,
    Properties,
    UpdatableComponent,
    normal,
    optional,
    read_matrix_file,
    refuse_beside,
    required,
    split_bias,
)
from .fields import BOOL, DOUBLE, FLOAT, INT, MATRIX, VECTOR, Field
from .summary import flag, number, parameter_stats

_P = Properties
_SIMPLE_UPDATABLE = _P.SIMPLE | _P.UPDATABLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_ADDS
_LINEAR = (
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
NATURAL_GRADIENT_KEYS = (
    *optional(float, num_samples_history=2000.0, alpha=4.0),
    *optional(int, rank_in=-1, rank_out=-1, update_period=4),
)


def default_ranks(o: SimpleNamespace, dim_in: int, dim_out: int, most_in: int = 20) -> None:
    """Ranks of the natural gradient that a config line leaves open, from the dimensions."""
    if o.rank_in < 0:
        o.rank_in = min(most_in, (dim_in + 1) // 2)
    if o.rank_out < 0:
        o.rank_out = min(80, (dim_out + 1) // 2)


def set_attributes(component: Component, o: SimpleNamespace, *names: str) -> None:
    """Copy values of a config line to attributes."""
    for name in names:
        setattr(component, name, getattr(o, name))


class _Affine(UpdatableComponent):
    """What `linear_params` [out, in] and `bias_params` [out] make of any affine component."""

    trained = ("linear_params", "bias_params")
    flags = _SIMPLE_UPDATABLE

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1]

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0]

    def check(self) -> None:
        super().check()
        rows, size = self.linear_params.shape[0], self.bias_params.size
        self.demand(rows == size, f"{rows} rows of linear parameters, but {size} biases")


class AffineComponent(_Affine):
    """y = x W^T + b; W `linear_params` [out, in], b `bias_params` [out]."""

    own_fields = (*_LINEAR, OLD_IS_GRADIENT, _ORTHONORMAL)
    own_keys = (
        *optional(str, matrix=None),
        *optional(int, input_dim=None, output_dim=None),
        *optional(float, param_stddev=None, bias_stddev=None, orthonormal_constraint=0.0),
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


def check_dims(component: Component, o: SimpleNamespace) -> None:
    """Refuse dimensions of a config line that the file it names does not have."""
    for name in ("input_dim", "output_dim"):
        given, there = getattr(o, name), getattr(component, name)
        component.demand(
            given in (None, there), f"{name.replace('_', '-')}={given}, but the file has {there}"
        )


class NaturalGradientAffineComponent(AffineComponent):
    """As AffineComponent; its update is preconditioned (natural-gradient SGD)."""

    own_fields = (
        *_LINEAR,
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
        *optional(float, bias_mean=None),
        *NATURAL_GRADIENT_KEYS,
    )

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().set_up(o, rng)
        default_ranks(o, self.input_dim, self.output_dim)
        set_attributes(
            self, o, "rank_in", "rank_out", "update_period", "num_samples_history", "alpha"
        )

    def read_close(self, reader: Reader) -> None:
        # Kaldi also takes an opening token at the end, which some early versions wrote.
        self.closing = reader.expect_token(f"</{self.type}>", f"<{self.type}>")

    def info(self) -> str:
        return super().info() + preconditioner_info(self)


def preconditioner_info(component: Component) -> str:
    """`, rank-in=...` and what else configures the natural gradient."""
    c = component
    return (
        f", rank-in={c.rank_in}, rank-out={c.rank_out}"
        f", num-samples-history={number(c.num_samples_history)}"
        f", update-period={c.update_period}, alpha={number(c.alpha)}"
    )


class LinearComponent(UpdatableComponent):
    """y = x W^T; W `params` [out, in]."""

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
        *optional(int, input_dim=None, output_dim=None),
        *optional(float, param_stddev=None, orthonormal_constraint=0.0),
        *optional(bool, use_natural_gradient=True),
        *NATURAL_GRADIENT_KEYS,
    )
    trained = ("params",)
    flags = _SIMPLE_UPDATABLE | _P.PROPAGATE_ADDS

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
        set_attributes(
            self, o, "rank_in", "rank_out", "update_period", "num_samples_history", "alpha"
        )
        set_attributes(self, o, "use_natural_gradient", "orthonormal_constraint")

    def info(self) -> str:
        text = super().info() + parameter_stats("params", self.params, norms=True)
        if self.orthonormal_constraint != 0:
            text += f", orthonormal-constraint={number(self.orthonormal_constraint)}"
        return (
            f"{text}, use-natural-gradient={flag(self.use_natural_gradient)}"
            f"{preconditioner_info(self)}"
        )


class RepeatedAffineComponent(_Affine):
    """The same affine transform applied to each of `num_repeats` blocks of columns."""

    own_fields = (Field("<NumRepeats>", INT, "num_repeats"), *_LINEAR, OLD_IS_GRADIENT)
    own_keys = (
        *required(int, "num-repeats", "input-dim", "output-dim"),
        *optional(float, param_stddev=None, bias_mean=0.0, bias_stddev=0.0),
    )
    flags = _SIMPLE_UPDATABLE | _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1] * self.num_repeats

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0] * self.num_repeats

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.num_repeats = check_blocks("num-repeats", o.num_repeats, o)
        dim_in, dim_out = o.input_dim // o.num_repeats, o.output_dim // o.num_repeats
        stddev = dim_in**-0.5 if o.param_stddev is None else o.param_stddev
        self.linear_params = normal(rng, (dim_out, dim_in), stddev)
        self.bias_params = normal(rng, dim_out, o.bias_stddev, o.bias_mean)

    def check(self) -> None:
        super().check()
        self.demand(self.num_repeats > 0, "num-repeats must be positive")

    def info(self) -> str:
        return (
            f"{super().info()}, num-repeats={self.num_repeats}"
            f"{parameter_stats('linear-params', self.linear_params)}"
            f"{parameter_stats('bias', self.bias_params, mean=True)}"
        )


class NaturalGradientRepeatedAffineComponent(RepeatedAffineComponent):
    """As RepeatedAffineComponent; its update is preconditioned (natural-gradient SGD)."""


def check_blocks(name: str, count: int, o: SimpleNamespace) -> int:
    """`count`, which must be positive and divide both dimensions of the config line."""
    dims = o.input_dim, o.output_dim
    Component.demand(
        count > 0 and all(dim > 0 and dim % count == 0 for dim in dims),
        f"{name}={count} does not divide input-dim={dims[0]} and output-dim={dims[1]}",
    )
    return count


class BlockAffineComponent(_Affine):
    """An affine transform with a block-diagonal W, whose blocks lie one below another in
    `linear_params` [out, in / num_blocks]."""

    own_fields = (Field("<NumBlocks>", INT, "num_blocks"), *_LINEAR, OLD_IS_GRADIENT)
    own_keys = (
        *required(int, "input-dim", "output-dim", "num-blocks"),
        *optional(float, param_stddev=None, bias_mean=0.0, bias_stddev=1.0),
    )

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1] * self.num_blocks

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.num_blocks = check_blocks("num-blocks", o.num_blocks, o)
        dim_in = o.input_dim // o.num_blocks
        stddev = dim_in**-0.5 if o.param_stddev is None else o.param_stddev
        self.linear_params = normal(rng, (o.output_dim, dim_in), stddev)
        self.bias_params = normal(rng, o.output_dim, o.bias_stddev, o.bias_mean)

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


class FixedAffineComponent(Component):
    """y = x W^T + b with fixed parameters."""

    fields = _LINEAR
    keys = (*optional(str, matrix=None), *optional(int, input_dim=None, output_dim=None))
    flags = _P.SIMPLE | _P.BACKPROP_ADDS

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1]

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0]

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        dims = o.input_dim, o.output_dim
        if o.matrix is not None:
            self.demand(dims == (None, None), "input-dim= and output-dim= do not go with matrix=")
            matrix = read_matrix_file(o.matrix)
        else:
            self.demand(None not in dims, "wants matrix=, or input-dim= and output-dim=")
            matrix = normal(rng, (o.output_dim, o.input_dim + 1))
        self.linear_params, self.bias_params = split_bias(matrix)

    @classmethod
    def from_affine(cls, affine: AffineComponent) -> FixedAffineComponent:
        """The parameters of an AffineComponent, frozen."""
        component = cls()
        component.linear_params = affine.linear_params.copy()
        component.bias_params = affine.bias_params.copy()
        return component

    def check(self) -> None:
        super().check()
        rows, size = self.linear_params.shape[0], self.bias_params.size
        self.demand(rows == size, f"{rows} rows of linear parameters, but {size} biases")

    def info(self) -> str:
        return (
            super().info()
            + parameter_stats("linear-params", self.linear_params)
            + parameter_stats("bias", self.bias_params, mean=True)
        )
