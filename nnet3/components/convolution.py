"""Convolution and pooling over images that lie in one row, and TDNN layers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .affine import default_ranks
from .base import (
    Component,
    Properties,
    UpdatableComponent,
    key,
    normal,
    optional,
    read_matrix_file,
    required,
    split_bias,
)
from .fields import BOOL, FLOAT, INT, INTS, MATRIX, VECTOR, Field
from .summary import flag, number, parameter_stats

_P = Properties
_VECTORIZATIONS = ("yzx", "zyx")  # which dimension runs fastest; Kaldi's enum in this order
_IMAGE = ("input_x_dim", "input_y_dim", "input_z_dim")
_FILTER = ("filt_x_dim", "filt_y_dim", "filt_x_step", "filt_y_step")
_POOL = tuple(f"pool_{axis}_{what}" for what in ("size", "step") for axis in "xyz")


def _token(attr: str) -> str:
    """`<InputXDim>` for `input_x_dim`."""
    return "<" + "".join(part.capitalize() for part in attr.split("_")) + ">"


def _int_fields(*attrs: str) -> tuple[Field, ...]:
    return tuple(Field(_token(attr), INT, attr) for attr in attrs)


def _option(attr: str) -> str:
    return attr.replace("_", "-")


class ConvolutionComponent(UpdatableComponent):
    """A convolution over x and y of an image with z planes, which lies in one row.

    `filter_params` [filters, filt_x * filt_y * z], `bias_params` [filters]. The output holds, for
    each position (x slow, y fast), all filters.
    """

    own_fields = (
        *_int_fields(*_IMAGE, *_FILTER, "input_vectorization"),
        Field("<FilterParams>", MATRIX, "filter_params"),
        Field("<BiasParams>", VECTOR, "bias_params"),
        Field("<IsGradient>", BOOL, "is_gradient", default=False),
    )
    own_keys = (
        *required(int, *map(_option, _IMAGE + _FILTER)),
        *optional(int, num_filters=None),
        *optional(str, input_vectorization_order="zyx", matrix=None),
        *optional(float, param_stddev=None, bias_stddev=1.0),
    )
    trained = ("filter_params", "bias_params")
    flags = (
        _P.SIMPLE | _P.UPDATABLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_ADDS | _P.PROPAGATE_ADDS
    )

    @property
    def num_x_steps(self) -> int:
        """Positions of the filter along x."""
        return 1 + (self.input_x_dim - self.filt_x_dim) // self.filt_x_step

    @property
    def num_y_steps(self) -> int:
        """Positions of the filter along y."""
        return 1 + (self.input_y_dim - self.filt_y_dim) // self.filt_y_step

    @property
    def input_dim(self) -> int:
        return self.input_x_dim * self.input_y_dim * self.input_z_dim

    @property
    def output_dim(self) -> int:
        return self.num_x_steps * self.num_y_steps * self.filter_params.shape[0]

    @property
    def filter_dim(self) -> int:
        """Inputs of one filter."""
        return self.filt_x_dim * self.filt_y_dim * self.input_z_dim

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        for name in _IMAGE + _FILTER:
            setattr(self, name, getattr(o, name))
        self.check_image()
        order = o.input_vectorization_order
        self.demand(order in _VECTORIZATIONS, f"input-vectorization-order={order}: yzx or zyx")
        self.input_vectorization = _VECTORIZATIONS.index(order)
        if o.matrix is not None:
            self.demand(o.num_filters is None, "num-filters= does not go with matrix=")
            self.filter_params, self.bias_params = split_bias(read_matrix_file(o.matrix))
        else:
            self.demand(o.num_filters is not None, "wants num-filters= or matrix=")
            stddev = self.filter_dim**-0.5 if o.param_stddev is None else o.param_stddev
            self.filter_params = normal(rng, (o.num_filters, self.filter_dim), stddev)
            self.bias_params = normal(rng, o.num_filters, o.bias_stddev)

    def check_image(self) -> None:
        """Refuse filters that do not cover the image."""
        for name in _IMAGE + _FILTER:
            self.demand(getattr(self, name) > 0, f"{_option(name)} must be positive")
        for axis in "xy":
            image = getattr(self, f"input_{axis}_dim")
            size, step = getattr(self, f"filt_{axis}_dim"), getattr(self, f"filt_{axis}_step")
            self.demand(
                image >= size and (image - size) % step == 0,
                f"filters of {size} in steps of {step} do not cover input-{axis}-dim={image}",
            )

    def check(self) -> None:
        self.check_image()
        super().check()
        self.demand(self.input_vectorization in (0, 1), "unknown input-vectorization")
        filters, dim = self.filter_params.shape
        self.demand(dim == self.filter_dim, f"filters have {dim} inputs, not {self.filter_dim}")
        size = self.bias_params.size
        self.demand(size == filters, f"{filters} filters, but {size} biases")

    def info(self) -> str:
        text = super().info()
        for name in (*_IMAGE, *_FILTER, "input_vectorization"):
            text += f", {_option(name)}={getattr(self, name)}"
        text += f", num-filters={self.filter_params.shape[0]}"
        text += parameter_stats("filter-params", self.filter_params)
        return text + parameter_stats("bias-params", self.bias_params, mean=True)


class MaxpoolingComponent(Component):
    """The maximum over boxes of an x, y, z image that lies in one row (z fastest)."""

    fields = _int_fields(*_IMAGE, *_POOL)
    keys = required(int, *map(_option, _IMAGE + _POOL))
    flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_NEEDS_OUTPUT | _P.BACKPROP_ADDS

    def num_pools(self, axis: str) -> int:
        """Boxes along `x`, `y` or `z`."""
        size, step = getattr(self, f"pool_{axis}_size"), getattr(self, f"pool_{axis}_step")
        return 1 + (getattr(self, f"input_{axis}_dim") - size) // step

    @property
    def input_dim(self) -> int:
        return self.input_x_dim * self.input_y_dim * self.input_z_dim

    @property
    def output_dim(self) -> int:
        return self.num_pools("x") * self.num_pools("y") * self.num_pools("z")

    def check(self) -> None:
        for name in _IMAGE + _POOL:
            self.demand(getattr(self, name) > 0, f"{_option(name)} must be positive")
        for axis in "xyz":
            image = getattr(self, f"input_{axis}_dim")
            size, step = getattr(self, f"pool_{axis}_size"), getattr(self, f"pool_{axis}_step")
            self.demand(
                image >= size >= step and (image - size) % step == 0,
                f"pools of {size} in steps of {step} do not cover input-{axis}-dim={image}",
            )

    def info(self) -> str:
        dims = (f", {_option(name)}={getattr(self, name)}" for name in _IMAGE + _POOL)
        return self.type + "".join(dims)


class TdnnComponent(UpdatableComponent):
    """An affine transform of several frames side by side: y_t = sum_i x_{t+offset_i} W_i^T + b.

    `linear_params` [out, in * offsets], `bias_params` [out], empty if there is no bias.
    """

    own_fields = (
        Field("<TimeOffsets>", INTS, "time_offsets"),
        Field("<LinearParams>", MATRIX, "linear_params"),
        Field("<BiasParams>", VECTOR, "bias_params"),
        Field("<OrthonormalConstraint>", FLOAT, "orthonormal_constraint"),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<NumSamplesHistory>", FLOAT, "num_samples_history"),
        Field(
            "<AlphaInOut>",
            FLOAT,
            "alpha_in",
            "alpha_out",
            older=Field("<Alpha>", FLOAT, "alpha_in"),
        ),
        Field("<RankInOut>", INT, "rank_in", "rank_out"),
    )
    own_keys = (
        key("time-offsets", "offsets"),
        *required(int, "input-dim", "output-dim"),
        *optional(float, param_stddev=-1.0, bias_mean=0.0, bias_stddev=1.0),
        *optional(float, orthonormal_constraint=0.0, num_samples_history=2000.0),
        *optional(float, alpha_in=4.0, alpha_out=4.0),
        *optional(int, rank_in=-1, rank_out=-1),
        *optional(bool, use_bias=True, use_natural_gradient=True),
    )
    trained = ("linear_params", "bias_params")
    update_period = 4  # of the natural gradient; files do not hold it

    @property
    def properties(self) -> Properties:
        return (
            _P.UPDATABLE
            | _P.REORDERS_INDEXES
            | _P.BACKPROP_ADDS
            | _P.BACKPROP_NEEDS_INPUT
            | (_P(0) if self.bias_params.size else _P.PROPAGATE_ADDS)
        )

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1] // len(self.time_offsets)

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0]

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand(bool(o.time_offsets), "time-offsets is empty")
        self.demand(o.input_dim > 0 and o.output_dim > 0, "dimensions must be positive")
        spliced = o.input_dim * len(o.time_offsets)
        stddev = spliced**-0.5 if o.param_stddev < 0 else o.param_stddev
        self.time_offsets = o.time_offsets
        self.linear_params = normal(rng, (o.output_dim, spliced), stddev)
        self.bias_params = np.zeros(0, np.float32)
        if o.use_bias:
            self.bias_params = normal(rng, o.output_dim, o.bias_stddev, o.bias_mean)
        default_ranks(o, spliced, o.output_dim)
        for name in (
            "orthonormal_constraint",
            "use_natural_gradient",
            "num_samples_history",
            "alpha_in",
            "alpha_out",
            "rank_in",
            "rank_out",
        ):
            setattr(self, name, getattr(o, name))

    def after_read(self) -> None:
        super().after_read()
        if "alpha_out" not in self.__dict__:
            self.alpha_out = self.alpha_in

    def check(self) -> None:
        offsets, (rows, columns) = self.time_offsets, self.linear_params.shape
        self.demand(len(offsets) > 0, "time-offsets is empty")
        self.demand(len(set(offsets)) == len(offsets), "a time offset is given twice")
        self.demand(
            rows > 0 and columns > 0 and columns % len(offsets) == 0,
            f"linear parameters [{rows}, {columns}] do not fit {len(offsets)} time offsets",
        )
        size = self.bias_params.size
        self.demand(size in (0, rows), f"{rows} rows of linear parameters, but {size} biases")

    def info(self) -> str:
        text = super().info()
        if self.orthonormal_constraint != 0:
            text += f", orthonormal-constraint={number(self.orthonormal_constraint)}"
        text += f", time-offsets={','.join(map(str, self.time_offsets))}"
        text += parameter_stats("linear-params", self.linear_params, norms=True)
        if self.bias_params.size:
            text += parameter_stats("bias", self.bias_params, mean=True)
        else:
            text += f", has-bias={flag(False)}"
        if not self.use_natural_gradient:
            return text + ", use-natural-gradient=false"
        return (
            f"{text}, rank-in={self.rank_in}, rank-out={self.rank_out}"
            f", num-samples-history={number(self.num_samples_history)}"
            f", update-period={self.update_period}"
            f", alpha-in={number(self.alpha_in)}, alpha-out={number(self.alpha_out)}"
        )
