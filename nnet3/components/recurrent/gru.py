"""The fused nonlinearities of GRU cells, and of output-gate GRU cells."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..base.component import Properties, UpdatableComponent
from ..base.fields import DOUBLE, DOUBLE_VECTOR, FLOAT, INT, MATRIX, VECTOR, Averaged, Field
from ..base.initial import normal
from ..base.keys import Computed, key, optional
from ..base.lowered_op import LoweredOp
from ..base.lowering import OUT, OUT_DERIV, Recipe, X
from ..base.preconditioning import FisherEstimate, add_natural, parameter_deriv, precondition_sum
from ..base.summary import number, parameter_stats, summarize_vector

_P = Properties
_ZERO = {"value": 0.0}
_GRU_STATISTICS = (
    Field("<ValueAvg>", DOUBLE_VECTOR, "value_avg"),
    Field("<DerivAvg>", DOUBLE_VECTOR, "deriv_avg"),
    Field("<SelfRepairTotal>", DOUBLE, "self_repair_total"),
    Field("<Count>", DOUBLE, "count"),
    Field("<SelfRepairThreshold>", FLOAT, "self_repair_threshold"),
    Field("<SelfRepairScale>", FLOAT, "self_repair_scale"),
    Field("<Alpha>", FLOAT, "alpha"),
)
_GRU_KEYS = (
    key("cell-dim", int),
    *optional(float, self_repair_threshold=0.2, self_repair_scale=1e-5, alpha=4.0),
)


class _Gru(UpdatableComponent):
    """Base of the two GRU nonlinearities: the parameters `w_h`, statistics of the tanh."""

    cell_dim: int
    w_h: np.ndarray
    self_repair_threshold: float
    self_repair_scale: float
    alpha: float
    count: float
    self_repair_total: float
    update_period: int

    trained = ("w_h",)
    flags = (
        _P.SIMPLE
        | _P.UPDATABLE
        | _P.BACKPROP_NEEDS_INPUT
        | _P.BACKPROP_NEEDS_OUTPUT
        | _P.BACKPROP_ADDS
    )

    value_avg = Averaged("value_sum")
    deriv_avg = Averaged("deriv_sum")

    @property
    def output_dim(self) -> int:
        return 2 * self.cell_dim

    def zero_stats(self) -> None:
        """Forget all statistics."""
        self.count = self.self_repair_total = 0.0
        self.value_sum = np.zeros(self.cell_dim)
        self.deriv_sum = np.zeros(self.cell_dim)

    def check(self) -> None:
        super().check()
        self.demand(
            self.self_repair_threshold >= 0 and self.self_repair_scale >= 0,
            "self-repair-threshold and self-repair-scale must not be negative",
        )
        for name in ("value_sum", "deriv_sum"):
            size = getattr(self, name).size
            self.demand(size == self.cell_dim, f"{name} has {size}, not {self.cell_dim} values")

    def _info(self, dims: str, preconditioner: str) -> str:
        text = (
            f"{super().info()}, cell-dim={self.cell_dim}{dims}{parameter_stats('w_h', self.w_h)}"
            f", self-repair-threshold={number(self.self_repair_threshold)}"
            f", self-repair-scale={number(self.self_repair_scale)}"
        )
        if self.count > 0:
            proportion = self.self_repair_total / (self.count * self.cell_dim)
            text += (
                f", count={number(self.count, 3)}, self-repaired-proportion={number(proportion)}"
                f", value-avg={summarize_vector(self.value_sum / self.count)}"
                f", deriv-avg={summarize_vector(self.deriv_sum / self.count)}"
            )
        return (
            f"{text}, alpha={number(self.alpha)}{preconditioner}"
            f", update-period={self.update_period}"
        )

    def _tanh_statistics(self, recipe: Recipe) -> dict[str, str]:
        """Sums of h, which is the first part of the output, and of its slopes; the repair of h.

        Kaldi repairs by the statistics with the batch at hand, so they come before the gradient.
        """
        width = (self.cell_dim,)
        count = recipe.state("count", self.count)
        total = recipe.state("value_sum", self.value_sum, width)
        slopes = recipe.state("deriv_sum", self.deriv_sum, width)
        recipe.collect("nnet3.column_sums", when="before", x=OUT, total=total, count=count)
        recipe.collect(
            "nnet3.column_sums", {"of": "tanh_slope"}, when="before", x=OUT, total=slopes
        )
        if not self.self_repair_scale:
            return {}
        off = np.zeros(self.cell_dim, np.float32)
        repair = recipe.parameter("self_repair", off, trainable=False)
        recipe.collect(
            "nnet3.draw_repair",
            {
                "lower": float(self.self_repair_threshold),
                "scale": float(self.self_repair_scale),
            },
            when="before",
            slopes=slopes,
            count=count,
            repair=repair,
            repaired=recipe.state("self_repair_total", self.self_repair_total),
        )
        # No other backprop is pushed: neither one of another batch, nor one without statistics.
        if recipe.statistics:
            clear = LoweredOp.of("fill_like", {"x": repair}, {"out": repair}, _ZERO)
            recipe.stats_after.append(clear)
        return {"repair": repair}


class GruNonlinearityComponent(_Gru):
    """The nonlinear part of a (projected) GRU cell.

    Input: z_t, r_t (recurrent_dim), the part of h_t from the input, c_{t-1} and, where
    recurrent_dim is less than cell_dim, s_{t-1}; output: h_t and c_t, cell_dim columns each.
    `w_h` [cell_dim, recurrent_dim].
    """

    recurrent_dim: int
    rank_in: int
    rank_out: int

    own_fields = (
        Field("<CellDim>", INT, "cell_dim"),
        Field("<RecurrentDim>", INT, "recurrent_dim"),
        Field("<w_h>", MATRIX, "w_h"),
        *_GRU_STATISTICS,
        Field("<RankInOut>", INT, "rank_in", "rank_out"),
        Field("<UpdatePeriod>", INT, "update_period"),
    )
    own_keys = (
        *_GRU_KEYS,
        *optional(float, param_stddev=Computed("1 / sqrt(cell-dim)")),
        *optional(
            int, recurrent_dim=Computed("cell-dim", -1), rank_in=20, rank_out=80, update_period=4
        ),
    )

    @property
    def input_dim(self) -> int:
        if self.recurrent_dim == self.cell_dim:
            return 4 * self.cell_dim
        return 3 * self.cell_dim + 2 * self.recurrent_dim

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand(o.cell_dim > 0, "cell-dim must be positive")
        stddev = o.cell_dim**-0.5 if o.param_stddev is None else o.param_stddev
        if o.recurrent_dim < 0:
            o.recurrent_dim = o.cell_dim
        self.w_h = normal(rng, (o.cell_dim, o.recurrent_dim), stddev)
        del o.param_stddev
        super().set_up(o, rng)
        self.zero_stats()

    def check(self) -> None:
        super().check()
        self.demand(
            0 < self.recurrent_dim <= self.cell_dim, "recurrent-dim is not in 1 .. cell-dim"
        )
        shape = self.cell_dim, self.recurrent_dim
        self.demand(self.w_h.shape == shape, f"w_h has shape {self.w_h.shape}, not {shape}")

    def info(self) -> str:
        return self._info(
            f", recurrent-dim={self.recurrent_dim}",
            f", rank-in={self.rank_in}, rank-out={self.rank_out}",
        )

    def lower(self, recipe: Recipe) -> None:
        w = recipe.parameter("w_h", self.w_h)
        recipe.op("nnet3.gru", OUT, x=X, w=w, **self._tanh_statistics(recipe))

    def precondition(self, recipe: Recipe) -> None:
        value, grad = factors(recipe)
        units, width = self.w_h.shape
        settings = (self.update_period, self.alpha)
        before = FisherEstimate(recipe, "in", self.rank_in, *settings)
        after = FisherEstimate(recipe, "out", self.rank_out, *settings)
        x, scale_in = before.apply(value, width)
        delta, scale_out = after.apply(grad, units)
        inputs = {"x": x, "grad": delta, "scale": scale_in + scale_out}
        outputs = {"w_grad": parameter_deriv(recipe, "w_h")}
        add_natural(recipe, "nnet3.scaled_product", inputs, outputs)


class OutputGruNonlinearityComponent(_Gru):
    """The nonlinear part of an output-gate GRU cell.

    Input: z_t, the part of h_t from the input, c_{t-1}; output: h_t and c_t, cell_dim columns
    each. `w_h` [cell_dim].
    """

    rank: int

    own_fields = (
        Field("<CellDim>", INT, "cell_dim"),
        Field("<w_h>", VECTOR, "w_h"),
        *_GRU_STATISTICS,
        Field("<Rank>", INT, "rank"),
        Field("<UpdatePeriod>", INT, "update_period"),
    )
    own_keys = (
        *_GRU_KEYS,
        *optional(float, param_mean=0.0, param_stddev=1.0),
        *optional(int, rank=8, update_period=10),
    )

    @property
    def input_dim(self) -> int:
        return 3 * self.cell_dim

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.w_h = normal(rng, o.cell_dim, o.param_stddev, o.param_mean)
        del o.param_mean, o.param_stddev
        super().set_up(o, rng)
        self.zero_stats()

    def check(self) -> None:
        super().check()
        self.demand(self.w_h.size == self.cell_dim, f"w_h has {self.w_h.size} values")

    def info(self) -> str:
        return self._info("", f", rank={self.rank}")

    def lower(self, recipe: Recipe) -> None:
        w = recipe.parameter("w_h", self.w_h)
        recipe.op("nnet3.output_gru", OUT, x=X, w=w, **self._tanh_statistics(recipe))

    def precondition(self, recipe: Recipe) -> None:
        value, grad = factors(recipe)
        product = recipe.temp()
        add_natural(recipe, "mul", {"x": value, "y": grad}, {"out": product})
        estimate = FisherEstimate(recipe, "w_h", self.rank, self.update_period, self.alpha)
        precondition_sum(recipe, estimate, product, len(self.w_h), "w_h")


def factors(recipe: Recipe) -> tuple[str, str]:
    """The variables of the factors whose product is the gradient of `w_h`."""
    op = recipe.forward[-1]
    inputs = {"out_grad": OUT_DERIV, "out": OUT} | dict(op.inputs)
    value, grad = recipe.temp(), recipe.temp()
    add_natural(recipe, f"{op.type}_factors", inputs, {"value": value, "delta": grad})
    return value, grad
