"""Scales, offsets and constants: one or two numbers for each dimension."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .base import (
    OLD_IS_GRADIENT,
    Component,
    KeepsDim,
    Properties,
    UpdatableComponent,
    key,
    normal,
    optional,
    read_vector_file,
    refuse_beside,
    required,
)
from .fields import BOOL, FLOAT, INT, VECTOR, Field
from .summary import flag, number, parameter_stats

_P = Properties
_IN_PLACE = _P.SIMPLE | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE
_BLOCKS = _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS


def check_block(dim: int, block: int) -> None:
    """Refuse a block size that does not divide the dimension."""
    Component.demand(
        dim > 0 and block > 0 and dim % block == 0, f"block-dim={block} does not divide dim={dim}"
    )


class PerElementScaleComponent(KeepsDim, UpdatableComponent):
    """y = x * scales."""

    own_fields = (Field("<Params>", VECTOR, "scales"), OLD_IS_GRADIENT)
    own_keys = (
        *optional(str, vector=None),
        *optional(int, dim=None),
        *optional(float, param_mean=None, param_stddev=None),
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


class NaturalGradientPerElementScaleComponent(PerElementScaleComponent):
    """As PerElementScaleComponent; its update is preconditioned (natural-gradient SGD)."""

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
        *optional(int, dim=None, rank=8, update_period=10),
        *optional(float, num_samples_history=2000.0, alpha=4.0),
        *optional(float, param_mean=None, param_stddev=None),
    )

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        o.vector = o.scales
        super().set_up(o, rng)
        self.rank, self.update_period = o.rank, o.update_period
        self.num_samples_history, self.alpha = o.num_samples_history, o.alpha

    def info(self) -> str:
        return (
            f"{super().info()}, rank={self.rank}, update-period={self.update_period}"
            f", num-samples-history={number(self.num_samples_history)}"
            f", alpha={number(self.alpha)}"
        )


class PerElementOffsetComponent(KeepsDim, UpdatableComponent):
    """y = x + offsets, which repeat where there are fewer than dimensions."""

    own_fields = (
        Field("<Offsets>", VECTOR, "offsets"),
        OLD_IS_GRADIENT,
        Field("<Dim>", INT, "dim", default=lambda c: c.offsets.size),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient", default=True),
    )
    own_keys = (
        *optional(str, vector=None),
        *optional(int, dim=None, block_dim=None),
        *optional(float, param_mean=None, param_stddev=None),
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


class ScaleAndOffsetComponent(KeepsDim, UpdatableComponent):
    """y = x * scales + offsets, which repeat where there are fewer than dimensions."""

    own_fields = (
        Field("<Dim>", INT, "dim"),
        Field("<Scales>", VECTOR, "scales"),
        Field("<Offsets>", VECTOR, "offsets"),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<Rank>", INT, "rank"),
    )
    own_keys = (
        key("dim", int),
        *optional(int, block_dim=None, rank=20),
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
        self.dim, self.rank = o.dim, o.rank
        self.scales, self.offsets = np.ones(block, np.float32), np.zeros(block, np.float32)
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


class FixedScaleComponent(KeepsDim, Component):
    """y = x * scales, with fixed scales."""

    fields = (Field("<Scales>", VECTOR, "scales"),)
    keys = (*optional(str, scales=None), *optional(int, dim=None), *optional(float, scale=None))
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


class FixedBiasComponent(KeepsDim, Component):
    """y = x + bias, with a fixed bias."""

    fields = (Field("<Bias>", VECTOR, "bias"),)
    keys = (*optional(str, bias=None), *optional(int, dim=None))
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


class _Constant(UpdatableComponent):
    """What components with a constant output share."""

    trained = ("output",)

    @property
    def output_dim(self) -> int:
        return self.output.size

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.output = normal(rng, o.output_dim, o.output_stddev, o.output_mean)
        self.is_updatable_ = o.is_updatable
        self.use_natural_gradient = o.use_natural_gradient

    @property
    def properties(self) -> Properties:
        return self.flags | (_P.UPDATABLE if self.is_updatable_ else _P(0))

    def _info(self, dims: str) -> str:
        return (
            f"{super().info()}, {self.type}, {dims}"
            f", is-updatable={flag(self.is_updatable_)}"
            f", use-natural-gradient={flag(self.use_natural_gradient)}"
            f"{parameter_stats('output', self.output, mean=True)}"
        )


_OUTPUT = (
    Field("<Output>", VECTOR, "output"),
    Field("<IsUpdatable>", BOOL, "is_updatable_"),
    Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
)
_OUTPUT_KEYS = (
    *optional(bool, is_updatable=True, use_natural_gradient=True),
    *optional(float, output_mean=0.0, output_stddev=0.0),
)


class ConstantFunctionComponent(_Constant):
    """A constant output of `output` [out] for each input row, whatever that holds."""

    own_fields = (Field("<InputDim>", INT, "input_dim"), *_OUTPUT)
    own_keys = (*required(int, "input-dim", "output-dim"), *_OUTPUT_KEYS)
    flags = _P.SIMPLE | _P.BACKPROP_ADDS

    @property
    def properties(self) -> Properties:
        same = self.input_dim == self.output_dim
        return super().properties | (_P.PROPAGATE_IN_PLACE if same else _P(0))

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.input_dim = o.input_dim
        super().set_up(o, rng)

    def info(self) -> str:
        return self._info(f"input-dim={self.input_dim}, output-dim={self.output_dim}")


class ConstantComponent(_Constant):
    """A constant output of `output` [out] that needs no input rows."""

    own_fields = _OUTPUT
    own_keys = (key("output-dim", int), *_OUTPUT_KEYS)

    @property
    def input_dim(self) -> int:
        return self.output.size

    def info(self) -> str:
        return self._info(f"output-dim={self.output_dim}")
