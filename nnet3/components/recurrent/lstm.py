"""LstmNonlinearityComponent: the fused nonlinearity of LSTM cells."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..base.component import Properties, UpdatableComponent
from ..base.fields import (
    BOOL,
    DOUBLE,
    DOUBLE_MATRIX,
    DOUBLE_VECTOR,
    MATRIX,
    VECTOR,
    Averaged,
    Field,
)
from ..base.initial import normal
from ..base.keys import key, optional
from ..base.lowering import OUT, Recipe, X
from ..base.preconditioning import FisherEstimate, add_natural, own_gradients, parameter_deriv
from ..base.summary import flag, number, parameter_stats, summarize_vector

_P = Properties
_FLAGS = _P.SIMPLE | _P.UPDATABLE | _P.BACKPROP_NEEDS_INPUT
_LSTM_PARTS = ("i_t_sigmoid", "f_t_sigmoid", "c_t_tanh", "o_t_sigmoid", "m_t_tanh")


class LstmNonlinearityComponent(UpdatableComponent):
    """The nonlinear part of an LSTM cell with peepholes.

    Input: i, f, c, o before their nonlinearities and the last cell state, `cell_dim` columns each
    (with dropout: three mask columns more). Output: cell state c and cell output m. `params`
    [3, cell_dim] are the peephole weights w_ic, w_fc, w_oc. Statistics `value_sum`, `deriv_sum`
    [5, cell_dim] and `self_repair_total` [5] are float64 sums over `count` rows.
    """

    params: np.ndarray
    self_repair_config: np.ndarray
    use_dropout: bool
    count: float

    own_fields = (
        Field("<Params>", MATRIX, "params"),
        Field("<ValueAvg>", DOUBLE_MATRIX, "value_avg"),
        Field("<DerivAvg>", DOUBLE_MATRIX, "deriv_avg"),
        Field("<SelfRepairConfig>", VECTOR, "self_repair_config"),
        Field("<SelfRepairProb>", DOUBLE_VECTOR, "self_repair_prob"),
        Field("<UseDropout>", BOOL, "use_dropout", default=False, when=lambda c: c.use_dropout),
        Field("<Count>", DOUBLE, "count"),
    )
    own_keys = (
        key("cell-dim", int),
        *optional(bool, use_dropout=False),
        *optional(
            float,
            param_stddev=1.0,
            tanh_self_repair_threshold=0.2,
            sigmoid_self_repair_threshold=0.05,
            self_repair_scale=1e-5,
        ),
    )
    trained = ("params",)
    flags = _FLAGS

    value_avg = Averaged("value_sum")
    deriv_avg = Averaged("deriv_sum")
    self_repair_prob = Averaged("self_repair_total", lambda c: c.count * c.cell_dim)

    @property
    def cell_dim(self) -> int:
        """Columns of the cell state."""
        return self.params.shape[1]

    @property
    def input_dim(self) -> int:
        return 5 * self.cell_dim + (3 if self.use_dropout else 0)

    @property
    def output_dim(self) -> int:
        return 2 * self.cell_dim

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand(
            0 <= o.tanh_self_repair_threshold <= 1
            and 0 <= o.sigmoid_self_repair_threshold <= 0.25
            and 0 <= o.self_repair_scale <= np.float32(0.1),
            "a self-repair threshold or scale is out of its range",
        )
        self.use_dropout = o.use_dropout
        self.params = normal(rng, (3, o.cell_dim), o.param_stddev)
        sigmoid, tanh = o.sigmoid_self_repair_threshold, o.tanh_self_repair_threshold
        thresholds = [sigmoid, sigmoid, tanh, sigmoid, tanh]
        config = [*thresholds, *[o.self_repair_scale] * 5]
        self.self_repair_config = np.array(config, np.float32)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget all statistics."""
        self.count = 0.0
        self.value_sum = np.zeros((5, self.cell_dim))
        self.deriv_sum = np.zeros((5, self.cell_dim))
        self.self_repair_total = np.zeros(5)

    def check(self) -> None:
        super().check()
        shapes = {
            "params": (3, self.cell_dim),
            "value_sum": (5, self.cell_dim),
            "deriv_sum": (5, self.cell_dim),
            "self_repair_config": (10,),
            "self_repair_total": (5,),
        }
        for name, shape in shapes.items():
            there = getattr(self, name).shape
            self.demand(there == shape, f"{name} has shape {there}, not {shape}")

    def info(self) -> str:
        text = f"{super().info()}, cell-dim={self.cell_dim}, use-dropout={flag(self.use_dropout)}"
        for name, row in zip(("w_ic", "w_fc", "w_oc"), self.params, strict=True):
            text += parameter_stats(name, row)
        if self.count > 0:
            text += f", count={number(self.count, 3)}"
        for i, name in enumerate(_LSTM_PARTS):
            text += (
                f", {name}={{ self-repair-lower-threshold={number(self.self_repair_config[i])}"
                f", self-repair-scale={number(self.self_repair_config[i + 5])}"
            )
            if self.count != 0:
                proportion = np.float32(self.self_repair_total[i] / (self.count * self.cell_dim))
                text += (
                    f", self-repaired-proportion={number(proportion)}"
                    f", value-avg={summarize_vector(self.value_sum[i] / self.count)}"
                    f", deriv-avg={summarize_vector(self.deriv_sum[i] / self.count)}"
                )
            text += " }"
        return text

    def lower(self, recipe: Recipe) -> None:
        lower, scale = self.self_repair_config.reshape(2, 5)
        inputs = {"x": X, "w": recipe.parameter("params", self.params)}
        repair = {}
        if scale.any():
            slopes = self.deriv_sum / (1.0 + self.count)
            push = np.where(slopes < lower[:, None], scale[:, None], 0).astype(np.float32)
            repair["repair"] = recipe.parameter("self_repair", push, trainable=False)
        recipe.op("nnet3.lstm", OUT, **inputs, **repair)
        shape = (5, self.cell_dim)
        totals = {
            "values": recipe.state("value_sum", self.value_sum, shape),
            "slopes": recipe.state("deriv_sum", self.deriv_sum, shape),
            "count": recipe.state("count", self.count),
            "repaired": recipe.state("self_repair_total", self.self_repair_total, (5,)),
        }
        attrs = {"lower": lower.tolist(), "scale": scale.tolist()}
        recipe.collect("nnet3.lstm_statistics", attrs, when="after", **inputs, **totals, **repair)

    def precondition(self, recipe: Recipe) -> None:
        (plain,) = own_gradients(recipe, "params")
        estimate = FisherEstimate(recipe, "params", 20, 2, samples=1000.0)
        rows, scale = estimate.apply(plain, self.params.shape[1], summed=True)
        outputs = {"w_grad": parameter_deriv(recipe, "params")}
        add_natural(recipe, "nnet3.scaled_parts", {"x": rows, "scale": scale}, outputs)
