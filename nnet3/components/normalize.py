"""Normalisation: of each row to a given root mean square, or of each column over the batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from .base import Component, KeepsDim, Properties, key, optional
from .elementwise import check_block
from .fields import BOOL, DOUBLE, DOUBLE_VECTOR, FLOAT, INT, VECTOR, Averaged, Field
from .summary import flag, number, summarize_vector

_P = Properties
_BLOCKS = _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS
_IN_PLACE = _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE
_BATCH_NORM = _P.SIMPLE | _P.BACKPROP_NEEDS_OUTPUT | _IN_PLACE
_BATCH_NORM_TRAINED = _BATCH_NORM | _P.USES_MEMO | _P.STORES_STATS


class NormalizeComponent(Component):
    """Each block of `block_dim` columns of a row scaled to the root mean square `target_rms`; if
    `add_log_stddev`, the log of the root mean square found is appended."""

    fields = (
        Field("<InputDim>", INT, "input_dim", older=Field("<Dim>", INT, "input_dim")),
        Field(
            "<BlockDim>",
            INT,
            "block_dim",
            default=lambda c: c.input_dim,
            when=lambda c: c.block_dim != c.input_dim,
        ),
        Field("<TargetRms>", FLOAT, "target_rms", default=1.0),
        Field("<AddLogStddev>", BOOL, "add_log_stddev", default=False),
        # Early versions were nonlinear components, with statistics that nobody reads.
        Field("<ValueAvg>", VECTOR, old=True),
        Field("<DerivAvg>", VECTOR, old=True),
        Field("<Count>", DOUBLE, old=True),
    )
    keys = (
        *optional(int, dim=None, input_dim=None, block_dim=None),
        *optional(float, target_rms=1.0),
        *optional(bool, add_log_stddev=False),
    )

    @property
    def properties(self) -> Properties:
        flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_ADDS
        if not self.add_log_stddev:
            flags |= _IN_PLACE
        return flags | (_BLOCKS if self.block_dim != self.input_dim else _P(0))

    @property
    def output_dim(self) -> int:
        extra = self.input_dim // self.block_dim if self.add_log_stddev else 0
        return self.input_dim + extra

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand((o.dim is None) != (o.input_dim is None), "wants either dim= or input-dim=")
        self.input_dim = o.input_dim if o.dim is None else o.dim
        self.block_dim = self.input_dim if o.block_dim is None else o.block_dim
        self.target_rms, self.add_log_stddev = o.target_rms, o.add_log_stddev

    def check(self) -> None:
        check_block(self.input_dim, self.block_dim)
        self.demand(self.target_rms > 0, "target-rms must be positive")

    def info(self) -> str:
        text = f"{super().info()}, target-rms={number(self.target_rms)}"
        text += f", add-log-stddev={flag(self.add_log_stddev)}"
        if self.block_dim != self.input_dim:
            text += f", block-dim={self.block_dim}"
        return text


def _variance(component: Any, total: np.ndarray, count: float) -> np.ndarray:
    variance = total.astype(np.float32)
    if count != 0:
        mean = type(component).stats_mean.compute(component)
        variance = variance * np.float32(1.0 / count) - mean * mean
    return variance


def _sum_of_squares(component: Any, variance: np.ndarray, count: float) -> np.ndarray:
    mean = component.stats_sum / (count or 1.0)
    return (variance + mean * mean) * count


class BatchNormComponent(KeepsDim, Component):
    """Each column minus its mean, scaled to the deviation `target_rms`, over the rows of the batch;
    in test mode by the statistics `stats_sum` and `stats_sumsq` (float64) over `count` rows."""

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<BlockDim>", INT, "block_dim"),
        Field("<Epsilon>", FLOAT, "epsilon"),
        Field("<TargetRms>", FLOAT, "target_rms"),
        Field("<TestMode>", BOOL, "test_mode"),
        Field("<Count>", DOUBLE, "count"),
        Field("<StatsMean>", DOUBLE_VECTOR, "stats_mean"),
        Field("<StatsVar>", DOUBLE_VECTOR, "stats_var"),
    )
    keys = (
        key("dim", int),
        key("block-dim", int, None),
        *optional(float, epsilon=1e-3, target_rms=1.0),
        *optional(bool, test_mode=False),
    )

    stats_mean = Averaged("stats_sum")
    stats_var = Averaged("stats_sumsq", lambda c: c.count, _variance, _sum_of_squares)

    @property
    def properties(self) -> Properties:
        flags = _BATCH_NORM if self.test_mode else _BATCH_NORM_TRAINED
        return flags | _BLOCKS if self.block_dim < self.dim else flags

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.epsilon = float(np.float32(o.epsilon))
        self.block_dim = o.dim if o.block_dim in (None, -1) else o.block_dim
        check_block(self.dim, self.block_dim)
        self._forget()

    def zero_stats(self) -> None:
        """Forget all statistics, except in test mode, in which they are the transform."""
        if not self.test_mode:
            self._forget()

    def _forget(self) -> None:
        self.count = 0.0
        self.stats_sum, self.stats_sumsq = np.zeros(self.block_dim), np.zeros(self.block_dim)

    def check(self) -> None:
        check_block(self.dim, self.block_dim)
        self.demand(self.epsilon > 0 and self.target_rms > 0, "epsilon, target-rms must be > 0")
        for name in ("stats_sum", "stats_sumsq"):
            size = getattr(self, name).size
            self.demand(size == self.block_dim, f"{name} has {size}, not {self.block_dim} values")

    def info(self) -> str:
        text = (
            f"{self.type}, dim={self.dim}, block-dim={self.block_dim}"
            f", epsilon={number(self.epsilon)}, target-rms={number(self.target_rms)}"
            f", count={number(self.count)}, test-mode={flag(self.test_mode)}"
        )
        if self.count > 0:
            scale = np.float32(1.0 / self.count)
            mean = self.stats_sum.astype(np.float32) * scale
            variance = self.stats_sumsq.astype(np.float32) * scale - mean * mean
            text += f", data-mean={summarize_vector(mean)}"
            text += f", data-stddev={summarize_vector(np.sqrt(np.maximum(variance, 0)))}"
        return text
