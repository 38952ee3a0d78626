"""Non-simple components that look over time: statistics, truncation of backprop, attention."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .base import Component, KeepsDim, Properties, key, optional, required
from .fields import BOOL, DOUBLE, DOUBLE_MATRIX, DOUBLE_VECTOR, FLOAT, INT, Field
from .summary import flag, number

_P = Properties


class StatisticsExtractionComponent(Component):
    """Sums over `output_period` frames: how many, sum of x, and sum of squares if
    `include_variance`."""

    fields = (
        Field("<InputDim>", INT, "input_dim"),
        Field("<InputPeriod>", INT, "input_period"),
        Field("<OutputPeriod>", INT, "output_period"),
        Field("<IncludeVarinance>", BOOL, "include_variance"),  # Kaldi's spelling
    )
    keys = (
        key("input-dim", int),
        *optional(int, input_period=1, output_period=1),
        *optional(bool, include_variance=True),
    )

    @property
    def properties(self) -> Properties:
        needs_input = _P.BACKPROP_NEEDS_INPUT if self.include_variance else _P(0)
        return _P.PROPAGATE_ADDS | _P.REORDERS_INDEXES | needs_input

    @property
    def output_dim(self) -> int:
        return 1 + self.input_dim * (2 if self.include_variance else 1)

    def check(self) -> None:
        super().check()
        period, output = self.input_period, self.output_period
        self.demand(
            period > 0 and output > 0 and output % period == 0,
            f"input-period={period} does not divide output-period={output}",
        )


class StatisticsPoolingComponent(Component):
    """Means, and with `output_stddevs` deviations, from the sums of StatisticsExtractionComponent
    within a window of `left_context` and `right_context` frames; the log of the count first,
    `num_log_count_features` times."""

    fields = (
        Field("<InputDim>", INT, "input_dim"),
        Field("<InputPeriod>", INT, "input_period"),
        Field("<LeftContext>", INT, "left_context"),
        Field("<RightContext>", INT, "right_context"),
        Field("<NumLogCountFeatures>", INT, "num_log_count_features"),
        Field("<OutputStddevs>", BOOL, "output_stddevs"),
        Field("<VarianceFloor>", FLOAT, "variance_floor"),
    )
    keys = (
        key("input-dim", int),
        *optional(int, input_period=1, left_context=-1, right_context=-1),
        *optional(int, num_log_count_features=0),
        *optional(bool, output_stddevs=False),
        *optional(float, variance_floor=1e-10),
    )

    @property
    def properties(self) -> Properties:
        flags = _P.REORDERS_INDEXES | _P.BACKPROP_ADDS
        if self.output_stddevs or self.num_log_count_features > 0:
            flags |= _P.BACKPROP_NEEDS_OUTPUT
        if self.num_log_count_features == 0:
            flags |= _P.BACKPROP_NEEDS_INPUT
        return flags

    @property
    def output_dim(self) -> int:
        return self.input_dim + self.num_log_count_features - 1

    def check(self) -> None:
        super().check()
        left, right = self.left_context, self.right_context
        self.demand(
            left >= 0 and right >= 0 and left + right > 0,
            "left-context and right-context must not be negative, nor both zero",
        )
        self.demand(
            self.input_period > 0 and left % self.input_period == right % self.input_period == 0,
            f"input-period={self.input_period} does not divide the contexts {left} and {right}",
        )
        self.demand(self.num_log_count_features >= 0, "num-log-count-features is negative")
        self.demand(0 < self.variance_floor < 1, "variance-floor is not between 0 and 1")
        self.demand(
            not self.output_stddevs or self.input_dim % 2 == 1,
            f"output-stddevs wants an odd input-dim, not {self.input_dim}",
        )


class BackpropTruncationComponent(KeepsDim, Component):
    """y = x; derivatives are scaled, clipped by row norm, and zeroed at intervals of time where
    they have grown too large."""

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<Scale>", FLOAT, "scale", default=1.0),
        Field("<ClippingThreshold>", FLOAT, "clipping_threshold"),
        Field("<ZeroingThreshold>", FLOAT, "zeroing_threshold"),
        Field("<ZeroingInterval>", INT, "zeroing_interval"),
        Field("<RecurrenceInterval>", INT, "recurrence_interval"),
        Field("<NumElementsClipped>", DOUBLE, "num_clipped"),
        Field("<NumElementsZeroed>", DOUBLE, "num_zeroed"),
        Field("<NumElementsProcessed>", DOUBLE, "count"),
        Field("<NumZeroingBoundaries>", DOUBLE, "count_zeroing_boundaries"),
    )
    keys = (
        key("dim", int),
        *optional(float, scale=1.0, clipping_threshold=30.0, zeroing_threshold=15.0),
        *optional(int, zeroing_interval=20, recurrence_interval=1),
    )
    flags = _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget how much was clipped and zeroed."""
        self.num_clipped = self.num_zeroed = 0.0
        self.count = self.count_zeroing_boundaries = 0.0

    def check(self) -> None:
        super().check()
        self.demand(
            self.clipping_threshold >= 0 and self.zeroing_threshold >= 0,
            "clipping-threshold and zeroing-threshold must not be negative",
        )
        self.demand(
            self.scale > 0 and self.zeroing_interval > 0 and self.recurrence_interval > 0,
            "scale, zeroing-interval and recurrence-interval must be positive",
        )

    def info(self) -> str:
        clipped = self.num_clipped / self.count if self.count > 0 else 0
        boundaries = self.count_zeroing_boundaries
        zeroed = self.num_zeroed / boundaries if boundaries > 0 else 0
        return (
            f"{self.type}, dim={self.dim}, scale={number(self.scale)}"
            f", count={number(self.count, 3)}, recurrence-interval={self.recurrence_interval}"
            f", clipping-threshold={number(self.clipping_threshold)}"
            f", clipped-proportion={number(clipped)}"
            f", zeroing-threshold={number(self.zeroing_threshold)}"
            f", zeroing-interval={self.zeroing_interval}, zeroed-proportion={number(zeroed)}"
            f", count-zeroing-boundaries={int(boundaries)}"
        )


class RestrictedAttentionComponent(Component):
    """Attention over a fixed window of frames, with a position code, in `num_heads` heads.

    Input of each head: key (key_dim), value (value_dim), query (key_dim + context_dim); output:
    value (value_dim) and, with `output_context`, the weights (context_dim). Statistics:
    `entropy_stats` [heads] and `posterior_stats` [heads, context] are sums over `stats_count` rows.
    """

    fields = (
        Field("<NumHeads>", INT, "num_heads"),
        Field("<KeyDim>", INT, "key_dim"),
        Field("<ValueDim>", INT, "value_dim"),
        Field("<NumLeftInputs>", INT, "num_left_inputs"),
        Field("<NumRightInputs>", INT, "num_right_inputs"),
        Field("<TimeStride>", INT, "time_stride"),
        Field("<NumLeftInputsRequired>", INT, "num_left_inputs_required"),
        Field("<NumRightInputsRequired>", INT, "num_right_inputs_required"),
        Field("<OutputContext>", BOOL, "output_context"),
        Field("<KeyScale>", FLOAT, "key_scale"),
        Field("<StatsCount>", DOUBLE, "stats_count"),
        Field("<EntropyStats>", DOUBLE_VECTOR, "entropy_stats"),
        Field("<PosteriorStats>", DOUBLE_MATRIX, "posterior_stats"),
    )
    keys = (
        *required(int, "key-dim", "value-dim", "num-left-inputs", "num-right-inputs"),
        *optional(int, num_heads=1, time_stride=1),
        *optional(int, num_left_inputs_required=-1, num_right_inputs_required=-1),
        *optional(bool, output_context=True),
        *optional(float, key_scale=-1.0),
    )
    flags = (
        _P.REORDERS_INDEXES
        | _P.BACKPROP_NEEDS_INPUT
        | _P.PROPAGATE_ADDS
        | _P.BACKPROP_ADDS
        | _P.STORES_STATS
        | _P.USES_MEMO
    )

    @property
    def context_dim(self) -> int:
        """Frames of the window."""
        return self.num_left_inputs + 1 + self.num_right_inputs

    @property
    def query_dim(self) -> int:
        """Columns of the query of one head: for the key, and for the position."""
        return self.key_dim + self.context_dim

    @property
    def input_dim(self) -> int:
        return self.num_heads * (self.key_dim + self.value_dim + self.query_dim)

    @property
    def output_dim(self) -> int:
        return self.num_heads * (self.value_dim + (self.context_dim if self.output_context else 0))

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.demand(o.key_dim > 0, "key-dim must be positive")
        if o.key_scale < 0:
            self.key_scale = float(np.float32(o.key_dim**-0.5))
        for side in ("left", "right"):
            if getattr(o, f"num_{side}_inputs_required") < 0:
                needed = getattr(o, f"num_{side}_inputs")
                setattr(self, f"num_{side}_inputs_required", needed)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget all statistics."""
        self.stats_count = 0.0
        self.entropy_stats, self.posterior_stats = np.zeros(0), np.zeros((0, 0))

    def check(self) -> None:
        super().check()
        for name in ("num_heads", "key_dim", "value_dim", "time_stride"):
            self.demand(getattr(self, name) > 0, f"{name.replace('_', '-')} must be positive")
        for side in ("left", "right"):
            inputs = getattr(self, f"num_{side}_inputs")
            needed = getattr(self, f"num_{side}_inputs_required")
            self.demand(
                0 <= needed <= inputs, f"num-{side}-inputs-required={needed} of {inputs} inputs"
            )
        self.demand(self.context_dim > 1, "a window of one frame is no attention")
        self.demand(0 < self.key_scale <= 1, "key-scale is not in (0, 1]")
        self.demand(self.stats_count >= 0, "the count is negative")

    def info(self) -> str:
        text = (
            f"{super().info()}, num-heads={self.num_heads}, time-stride={self.time_stride}"
            f", key-dim={self.key_dim}, value-dim={self.value_dim}"
            f", num-left-inputs={self.num_left_inputs}, num-right-inputs={self.num_right_inputs}"
            f", context-dim={self.context_dim}"
            f", num-left-inputs-required={self.num_left_inputs_required}"
            f", num-right-inputs-required={self.num_right_inputs_required}"
            f", output-context={flag(self.output_context)}, key-scale={number(self.key_scale)}"
        )
        if self.stats_count != 0:
            averages = self.entropy_stats / self.stats_count
            text += ", entropy=" + "".join(f"{number(v)}," for v in averages)
            for i, row in enumerate(self.posterior_stats[:5] / self.stats_count):
                text += f" posterior-stats[{i}]=" + "".join(f"{number(v)}," for v in row)
            text += f" stats-count={number(self.stats_count)}"
        return text
