"""Nonlinearities that keep the dimension: sigmoid, tanh, ReLU, softmax, log-softmax.

Sigmoid, tanh, ReLU and log-softmax are shared operators; softmax has one of its own, with a floor.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from .base.component import Component, KeepsDim, Properties
from .base.fields import DOUBLE, DOUBLE_VECTOR, FLOAT, INT, Averaged, Field
from .base.keys import Computed, key, optional
from .base.lowering import IN_DERIV, OUT, OUT_DERIV, Recipe, X
from .base.summary import number, summarize_vector

_P = Properties
_COMMON = _P.SIMPLE | _P.BACKPROP_NEEDS_OUTPUT | _P.STORES_STATS
UNSET_THRESHOLD: Final = -1000.0
_BY_TYPE: Final = Computed("by the type", UNSET_THRESHOLD)
SOFTMAX_FLOOR = 1e-20


class NonlinearComponent(KeepsDim, Component):
    """A nonlinearity that keeps the dimension, with statistics of its values and derivatives.

    `value_sum`, `deriv_sum` and `oderiv_sumsq` are sums over `count` (`oderiv_count`) rows, in
    float64; empty until there are some.
    """

    block_dim: int
    count: float
    oderiv_count: float
    num_dims_self_repaired: float
    num_dims_processed: float
    self_repair_lower_threshold: float
    self_repair_upper_threshold: float
    self_repair_scale: float

    abstract = True
    sums_values: ClassVar[bool] = True  # whether `value_sum` is collected
    repaired: ClassVar[tuple[float, float] | None] = None
    """Where there is self-repair: its default lower and upper threshold of the average slope."""

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
        key("block-dim", int, Computed("dim")),
        *optional(
            float,
            self_repair_lower_threshold=_BY_TYPE,
            self_repair_upper_threshold=_BY_TYPE,
            self_repair_scale=0.0,
        ),
    )

    @property
    def op_type(self) -> str:
        """The operator that computes it."""
        from ...operators.names import names_in  # not needed to read and write models

        return names_in("nnet3")[self.type][0].type

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

    def lower(self, recipe: Recipe) -> None:
        recipe.op(self.op_type, OUT, x=X)
        if recipe.statistics:
            self._collect_statistics(recipe)

    def _collect_statistics(self, recipe: Recipe) -> None:
        """Sums of values, slopes and squared output derivatives, and self-repair."""
        width = (self.dim,)
        if self.sums_values:
            count = recipe.state("count", self.count)
            total = recipe.state("value_sum", self.value_sum, width)
            recipe.collect("nnet3.column_sums", x=OUT, total=total, count=count)
            if self.repaired is not None:
                slopes = recipe.state("deriv_sum", self.deriv_sum, width)
                attrs = {"of": f"{self.op_type}_slope"}
                recipe.collect("nnet3.column_sums", attrs, x=OUT, total=slopes)
                if self.self_repair_scale:
                    self._self_repair(recipe, self.repaired, slopes, count)
        squares = recipe.state("oderiv_sumsq", self.oderiv_sumsq, width)
        rows = recipe.state("oderiv_count", self.oderiv_count)
        slots = {"x": OUT_DERIV, "total": squares, "count": rows}
        recipe.collect("nnet3.column_sums", {"of": "square"}, when="before", **slots)

    def _self_repair(
        self, recipe: Recipe, thresholds: tuple[float, float], slopes: str, count: str
    ) -> None:
        lower, upper = thresholds
        own = self.self_repair_lower_threshold, self.self_repair_upper_threshold
        recipe.collect(
            "nnet3.self_repair",
            {
                "kind": self.op_type,
                "lower": lower if own[0] == UNSET_THRESHOLD else float(own[0]),
                "upper": upper if own[1] == UNSET_THRESHOLD else float(own[1]),
                "scale": float(self.self_repair_scale),
                "block": int(self.block_dim),
            },
            when="after",
            grad=IN_DERIV,
            out=OUT,
            slopes=slopes,
            count=count,
            repaired=recipe.state("num_dims_self_repaired", self.num_dims_self_repaired),
            processed=recipe.state("num_dims_processed", self.num_dims_processed),
        )


def _root_mean(total: np.ndarray, count: float) -> np.ndarray:
    mean = total.astype(np.float32)
    if count != 0:
        mean *= np.float32(1.0 / count)
    return np.sqrt(np.maximum(mean, 0))


class SigmoidComponent(NonlinearComponent):
    """y = 1 / (1 + exp(-x))."""

    repaired = (0.05, 1.0)
    flags = _COMMON | _P.PROPAGATE_IN_PLACE


class TanhComponent(NonlinearComponent):
    """y = tanh(x)."""

    repaired = (0.2, 1.0)
    flags = _COMMON | _P.PROPAGATE_IN_PLACE


class RectifiedLinearComponent(NonlinearComponent):
    """y = max(x, 0)."""

    repaired = (0.05, 0.95)
    flags = _COMMON | _P.PROPAGATE_IN_PLACE

    @property
    def properties(self) -> Properties:
        return self.flags if self.block_dim == self.dim else self.flags | _P.INPUT_CONTIGUOUS


class SoftmaxComponent(NonlinearComponent):
    """y = exp(x) / sum(exp(x)) over each row."""

    flags = _COMMON | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE

    @property
    def op_type(self) -> str:
        return "nnet3.softmax"


class LogSoftmaxComponent(NonlinearComponent):
    """y = x - log(sum(exp(x))) over each row."""

    sums_values = False
    flags = _COMMON


softmax = operator(
    "nnet3.softmax",
    doc=(
        "Softmax of each row with the result floored at 1e-20: out = max(softmax(x), 1e-20);"
        " x [N, D] -> out [N, D]. The gradient is softmax's at out."
    ),
    inputs=[Slot("x", "[N, D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", inplace="x")],
    source="Kaldi: nnet3/nnet-simple-component.cc",
)


@softmax.shape_rule
def softmax_shape(s: ShapeArgs) -> None:
    rows, cols = s.rank("x", 2)
    if cols == 0:
        s.fail("x has no columns")
    s.set("out", ((rows, cols), s.floats("x")))


@softmax.kernel
def softmax_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    edge = k.scratch((x.shape[0], 1), x.dtype)
    return in_order(
        partial(xp.max, x, axis=1, keepdims=True, out=edge),
        partial(xp.subtract, x, edge, out),
        partial(xp.exp, out, out=out),
        partial(xp.sum, out, axis=1, keepdims=True, out=edge),
        partial(xp.divide, out, edge, out),
        partial(xp.maximum, out, out.dtype.type(SOFTMAX_FLOOR), out=out),
    )


@softmax.gradient_maker
def softmax_gradient(g: Any) -> list[Any]:
    reads = {"x": g.inputs("x"), "out": g.outputs("out"), "out_grad": g.output_grads("out")}
    return [g.op("softmax_grad", reads, {"x_grad": g.input_grads("x")}, {"axis": -1})]
