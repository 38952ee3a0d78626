"""Convolution over time and height, the layer of Kaldi's CNNs."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import numpy as np

from .affine import default_ranks
from .base import Properties, UpdatableComponent, key, normal, optional, required
from .fields import (
    BOOL,
    FLOAT,
    INT,
    INTS,
    MARK,
    MATRIX,
    PAIRS,
    VECTOR,
    Field,
)
from .summary import number, parameter_stats

_P = Properties
_HEIGHTS = ("num_filters_in", "num_filters_out", "height_in", "height_out", "height_subsample_out")
_PAIR = re.compile(r"\s*([+-]?\d{1,9})\s*,\s*([+-]?\d{1,9})\s*\Z")


class TimeHeightConvolutionComponent(UpdatableComponent):
    """A convolution over time (rows) and height; each row holds, for each height, the filters.

    `offsets`: (time, height) of each tap, sorted; output height h sees input height
    h * height_subsample_out + height offset, zero outside. `linear_params`
    [num_filters_out, offsets * num_filters_in], `bias_params` [num_filters_out]. Inputs at
    `required_time_offsets` must be there; others count as zero where they are not.
    """

    own_fields = (
        Field("<Model>", MARK),
        Field("<ConvolutionModel>", MARK),
        Field("<NumFiltersIn>", INT, "num_filters_in"),
        Field("<NumFiltersOut>", INT, "num_filters_out"),
        Field("<HeightIn>", INT, "height_in"),
        Field("<HeightOut>", INT, "height_out"),
        Field("<HeightSubsampleOut>", INT, "height_subsample_out"),
        Field("<Offsets>", PAIRS, "offsets"),
        Field("<RequiredTimeOffsets>", INTS, "required_time_offsets"),
        Field("</ConvolutionModel>", MARK),
        Field("<LinearParams>", MATRIX, "linear_params"),
        Field("<BiasParams>", VECTOR, "bias_params"),
        Field("<MaxMemoryMb>", FLOAT, "max_memory_mb"),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<NumMinibatchesHistory>", FLOAT, "num_minibatches_history"),
        Field("<AlphaInOut>", FLOAT, "alpha_in", "alpha_out"),
        Field("<RankInOut>", INT, "rank_in", "rank_out"),
    )
    own_keys = (
        *required(int, "num-filters-in", "num-filters-out", "height-in", "height-out"),
        *optional(int, height_subsample_out=1, rank_in=-1, rank_out=-1),
        *optional(str, offsets=None),
        key("height-offsets", "offsets", None),
        key("time-offsets", "offsets", None),
        key("required-time-offsets", "offsets", None),
        *optional(float, max_memory_mb=200.0, param_stddev=-1.0, bias_stddev=0.0),
        *optional(float, alpha_in=4.0, alpha_out=4.0, num_minibatches_history=4.0),
        *optional(bool, init_unit=False, use_natural_gradient=True),
    )
    trained = ("linear_params", "bias_params")
    flags = (
        _P.UPDATABLE
        | _P.REORDERS_INDEXES
        | _P.BACKPROP_ADDS
        | _P.BACKPROP_NEEDS_INPUT
        | _P.INPUT_CONTIGUOUS
        | _P.OUTPUT_CONTIGUOUS
    )

    @property
    def input_dim(self) -> int:
        return self.num_filters_in * self.height_in

    @property
    def output_dim(self) -> int:
        return self.num_filters_out * self.height_out

    @property
    def all_time_offsets(self) -> list[int]:
        """The time offsets, sorted, each once."""
        return sorted({t for t, _ in self.offsets})

    @property
    def time_offsets_modulus(self) -> int:
        """The greatest common divisor of the differences of time offsets (0: only one)."""
        times = self.all_time_offsets
        return math.gcd(*(b - a for a, b in zip(times, times[1:], strict=False)))

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        for name in _HEIGHTS:
            setattr(self, name, getattr(o, name))
        self.offsets = _parse_offsets(o)
        required_offsets = o.required_time_offsets
        if required_offsets is None:
            required_offsets = self.all_time_offsets
        self.required_time_offsets = required_offsets
        self.check_model()
        self.demand(o.max_memory_mb > 0, "max-memory-mb must be positive")
        shape = self.num_filters_out, self.num_filters_in * len(self.offsets)
        stddev = shape[1] ** -0.5 if o.param_stddev < 0 else o.param_stddev
        self.linear_params = self._unit(shape) if o.init_unit else normal(rng, shape, stddev)
        self.bias_params = normal(rng, self.num_filters_out, o.bias_stddev)
        default_ranks(o, shape[1] + 1, shape[0], most_in=80)
        for name in (
            "max_memory_mb",
            "use_natural_gradient",
            "num_minibatches_history",
            "alpha_in",
            "alpha_out",
            "rank_in",
            "rank_out",
        ):
            setattr(self, name, getattr(o, name))

    def _unit(self, shape: tuple[int, int]) -> np.ndarray:
        """Parameters that copy the input: a unit matrix at the offset (0, 0)."""
        self.demand(self.num_filters_in == self.num_filters_out, "init-unit wants as many filters")
        self.demand((0, 0) in self.offsets, "init-unit wants the offset 0,0")
        params = np.zeros(shape, np.float32)
        begin = self.offsets.index((0, 0)) * self.num_filters_in
        params[:, begin : begin + self.num_filters_in] = np.eye(self.num_filters_in)
        return params

    def check_model(self) -> None:
        """Refuse offsets that do not fit the heights, as Kaldi does."""
        for name in _HEIGHTS:
            self.demand(getattr(self, name) > 0, f"{name.replace('_', '-')} must be positive")
        offsets, times = self.offsets, self.all_time_offsets
        self.demand(
            len(offsets) > 0 and all(a < b for a, b in zip(offsets, offsets[1:], strict=False)),
            "offsets must be sorted, each once, and at least one",
        )
        needed = self.required_time_offsets
        self.demand(
            len(needed) > 0 and all(a < b for a, b in zip(needed, needed[1:], strict=False)),
            "required-time-offsets must be sorted, each once, and at least one",
        )
        self.demand(set(needed) <= set(times), "a required time offset is not among the offsets")
        seen = [(self._seeing(height), time, height) for time, height in offsets]
        for heights, time, height in seen:
            self.demand(len(heights) > 0, f"the offset {time},{height} is never used")
        covered = 0  # the output heights below see an input that is required
        for heights in sorted((h for h, time, _ in seen if time in needed), key=lambda h: h.start):
            if heights.start <= covered:
                covered = max(covered, heights.stop)
        self.demand(
            covered >= self.height_out, f"output height {covered} sees no input that is required"
        )

    def _seeing(self, offset: int) -> range:
        """The output heights for which the input height at a height offset is not padding."""
        step = self.height_subsample_out
        first = max(0, -(offset // step))
        return range(first, min(self.height_out - 1, (self.height_in - 1 - offset) // step) + 1)

    def check(self) -> None:
        self.check_model()
        super().check()
        shape = self.num_filters_out, self.num_filters_in * len(self.offsets)
        there = self.linear_params.shape
        self.demand(there == shape, f"linear parameters have shape {there}, not {shape}")
        size = self.bias_params.size
        self.demand(size == shape[0], f"{shape[0]} output filters, but {size} biases")

    def info(self) -> str:
        dims = ", ".join(f"{n.replace('_', '-')}={getattr(self, n)}" for n in _HEIGHTS)
        offsets = " ".join(f"{t},{h}" for t, h in self.offsets)
        needed = ",".join(map(str, self.required_time_offsets))
        text = (
            f"{super().info()} {dims}, {{time,height}}-offsets=[{offsets}]"
            f", required-time-offsets=[{needed}]"
            f", input-dim={self.input_dim}, output-dim={self.output_dim}"
            f"{parameter_stats('filter-params', self.linear_params)}"
            f"{parameter_stats('bias-params', self.bias_params, mean=True)}"
            f", num-params={self.num_parameters}, max-memory-mb={number(self.max_memory_mb)}"
            f", use-natural-gradient={int(self.use_natural_gradient)}"
        )
        if self.use_natural_gradient:
            text += (
                f", num-minibatches-history={number(self.num_minibatches_history)}"
                f", rank-in={self.rank_in}, rank-out={self.rank_out}"
                f", alpha={number(self.alpha_in)}"
            )
        return text


def _parse_offsets(o: SimpleNamespace) -> list[tuple[int, int]]:
    """(time, height) offsets from `offsets=t,h;t,h` or from time-offsets and height-offsets."""
    if o.offsets is not None:
        matches = [_PAIR.match(part) for part in o.offsets.split(";")]
        if not all(matches):
            raise ValueError(f"offsets={o.offsets}: pairs time,height;time,height are wanted")
        return sorted((int(m[1]), int(m[2])) for m in matches if m)
    if o.height_offsets is None or o.time_offsets is None:
        raise ValueError("wants offsets=, or height-offsets= and time-offsets=")
    for name, values in (("height", o.height_offsets), ("time", o.time_offsets)):
        if not values or sorted(set(values)) != values:
            raise ValueError(f"{name}-offsets must be sorted, each once, and at least one")
    return [(t, h) for t in o.time_offsets for h in o.height_offsets]
