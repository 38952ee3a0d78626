"""The fused nonlinearities of LSTM and GRU cells."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .base import Properties, UpdatableComponent, key, normal, optional
from .fields import (
    BOOL,
    DOUBLE,
    DOUBLE_MATRIX,
    DOUBLE_VECTOR,
    FLOAT,
    INT,
    MATRIX,
    VECTOR,
    Averaged,
    Field,
)
from .summary import flag, number, parameter_stats, summarize_vector

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
        self.value_sum, self.deriv_sum = np.zeros((5, self.cell_dim)), np.zeros((5, self.cell_dim))
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
    """What the two GRU nonlinearities share: the parameters `w_h`, statistics of the tanh."""

    trained = ("w_h",)
    flags = _FLAGS | _P.BACKPROP_NEEDS_OUTPUT | _P.BACKPROP_ADDS

    value_avg = Averaged("value_sum")
    deriv_avg = Averaged("deriv_sum")

    @property
    def output_dim(self) -> int:
        return 2 * self.cell_dim

    def zero_stats(self) -> None:
        """Forget all statistics."""
        self.count = self.self_repair_total = 0.0
        self.value_sum, self.deriv_sum = np.zeros(self.cell_dim), np.zeros(self.cell_dim)

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


class GruNonlinearityComponent(_Gru):
    """The nonlinear part of a (projected) GRU cell.

    Input: z_t, r_t (recurrent_dim), the part of h_t from the input, c_{t-1} and, where
    recurrent_dim is less than cell_dim, s_{t-1}; output: h_t and c_t, cell_dim columns each.
    `w_h` [cell_dim, recurrent_dim].
    """

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
        *optional(float, param_stddev=None),
        *optional(int, recurrent_dim=-1, rank_in=20, rank_out=80, update_period=4),
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


class OutputGruNonlinearityComponent(_Gru):
    """The nonlinear part of an output-gate GRU cell.

    Input: z_t, the part of h_t from the input, c_{t-1}; output: h_t and c_t, cell_dim columns
    each. `w_h` [cell_dim].
    """

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
