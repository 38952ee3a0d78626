"""Nonlinearities that keep the dimension: sigmoid, tanh, ReLU, softmax, log-softmax."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

import numpy as np

from .base import Component, KeepsDim, Properties, key, optional
from .fields import DOUBLE, DOUBLE_VECTOR, FLOAT, INT, Averaged, Field
from .summary import number, summarize_vector

_P = Properties
_COMMON = _P.SIMPLE | _P.BACKPROP_NEEDS_OUTPUT | _P.STORES_STATS


UNSET_THRESHOLD: Final = -1000.0


class NonlinearComponent(KeepsDim, Component):
    """A nonlinearity that keeps the dimension, with statistics of its values and derivatives.

    `value_sum`, `deriv_sum` and `oderiv_sumsq` are sums over `count` (`oderiv_count`) rows, in
    float64; empty until there are some.
    """

    abstract = True
    fields = (
        Field("<Dim>", INT, "dim"),
        Field(
            "<BlockDim>",
            INT,
            "block_dim",
            default=lambda c: c.dim,
            when=lambda c: c.block_dim != c.dim,
        ),
        Field("<ValueAvg>", DOUBLE_VECTOR, "value_avg"),
        Field("<DerivAvg>", DOUBLE_VECTOR, "deriv_avg"),
        Field("<Count>", DOUBLE, "count"),
        Field(
            "<OderivRms>", DOUBLE_VECTOR, "oderiv_rms", default=lambda c: np.zeros(0, np.float32)
        ),
        Field("<OderivCount>", DOUBLE, "oderiv_count", default=0.0),
        Field("<NumDimsSelfRepaired>", DOUBLE, "num_dims_self_repaired", default=0.0),
        Field("<NumDimsProcessed>", DOUBLE, "num_dims_processed", default=0.0),
        Field(
            "<SelfRepairLowerThreshold>",
            FLOAT,
            "self_repair_lower_threshold",
            default=UNSET_THRESHOLD,
            when=lambda c: c.self_repair_lower_threshold != UNSET_THRESHOLD,
        ),
        Field(
            "<SelfRepairUpperThreshold>",
            FLOAT,
            "self_repair_upper_threshold",
            default=UNSET_THRESHOLD,
            when=lambda c: c.self_repair_upper_threshold != UNSET_THRESHOLD,
        ),
        Field(
            "<SelfRepairScale>",
            FLOAT,
            "self_repair_scale",
            default=0.0,
            when=lambda c: c.self_repair_scale != 0,
        ),
    )
    keys = (
        key("dim", int),
        key("block-dim", int, None),
        *optional(
            float,
            self_repair_lower_threshold=UNSET_THRESHOLD,
            self_repair_upper_threshold=UNSET_THRESHOLD,
            self_repair_scale=0.0,
        ),
    )

    value_avg = Averaged("value_sum")
    deriv_avg = Averaged("deriv_sum")
    oderiv_rms = Averaged(
        "oderiv_sumsq",
        lambda c: c.oderiv_count,
        lambda c, total, count: _root_mean(total, count),
        lambda c, rms, count: np.square(rms) * count,
    )

    def __init__(self) -> None:
        super().__init__()
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget all statistics."""
        self.value_sum = np.zeros(0)
        self.deriv_sum = np.zeros(0)
        self.oderiv_sumsq = np.zeros(0)
        self.count = 0.0
        self.oderiv_count = 0.0
        self.num_dims_self_repaired = 0.0
        self.num_dims_processed = 0.0

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.block_dim = o.dim if o.block_dim is None else o.block_dim

    def check(self) -> None:
        super().check()
        self.demand(
            self.block_dim > 0 and self.dim % self.block_dim == 0,
            f"block-dim={self.block_dim} does not divide dim={self.dim}",
        )
        for name in ("value_sum", "deriv_sum", "oderiv_sumsq"):
            size = getattr(self, name).size
            self.demand(size in (0, self.dim), f"{name} has {size} values, dim is {self.dim}")

    def info(self) -> str:
        text = f"{self.type}, dim={self.dim}"
        if self.block_dim != self.dim:
            text += f", block-dim={self.block_dim}"
        for end in ("lower", "upper"):
            threshold = getattr(self, f"self_repair_{end}_threshold")
            if threshold != UNSET_THRESHOLD:
                text += f", self-repair-{end}-threshold={number(threshold)}"
        if self.self_repair_scale != 0:
            text += f", self-repair-scale={number(self.self_repair_scale)}"
        if self.count > 0 and self.value_sum.size == self.dim:
            repaired, processed = self.num_dims_self_repaired, self.num_dims_processed
            proportion = repaired / processed if processed > 0 else 0
            text += (
                f", count={number(self.count, 3)}, self-repaired-proportion={number(proportion)}"
            )
            text += f", value-avg={summarize_vector(self.value_sum / self.count)}"
            if self.deriv_sum.size == self.dim:
                text += f", deriv-avg={summarize_vector(self.deriv_sum / self.count)}"
        if self.oderiv_count > 0 and self.oderiv_sumsq.size == self.dim:
            rms = np.sqrt(np.maximum(self.oderiv_sumsq / self.oderiv_count, 0))
            text += f", oderiv-rms={summarize_vector(rms)}"
            text += f", oderiv-count={number(self.oderiv_count)}"
        return text


def _root_mean(total: np.ndarray, count: float) -> np.ndarray:
    mean = total.astype(np.float32)
    if count != 0:
        mean *= np.float32(1.0 / count)
    return np.sqrt(np.maximum(mean, 0))


class SigmoidComponent(NonlinearComponent):
    """y = 1 / (1 + exp(-x))."""

    flags = _COMMON | _P.PROPAGATE_IN_PLACE


class TanhComponent(NonlinearComponent):
    """y = tanh(x)."""

    flags = _COMMON | _P.PROPAGATE_IN_PLACE


class RectifiedLinearComponent(NonlinearComponent):
    """y = max(x, 0)."""

    flags = _COMMON | _P.PROPAGATE_IN_PLACE

    @property
    def properties(self) -> Properties:
        return self.flags if self.block_dim == self.dim else self.flags | _P.INPUT_CONTIGUOUS


class SoftmaxComponent(NonlinearComponent):
    """y = exp(x) / sum(exp(x)) over each row."""

    flags = _COMMON | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE


class LogSoftmaxComponent(NonlinearComponent):
    """y = x - log(sum(exp(x))) over each row."""

    flags = _COMMON
