"""`EarlyStop`: when a training no longer gets better."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...framework.base.dtypes import is_whole
from ...framework.base.errors import OpscopeError, VariableError, nearest
from ...framework.training.history import EVAL_PREFIX


@dataclasses.dataclass(frozen=True)
class EarlyStop:
    """Ends a training that no longer gets better, and brings back its best parameters.

    Attributes:
        patience: epochs without a better value until the end.
        metric: column of the history; "" means the loss, on held-out data where there are any.
        mode: "min" or "max": which values are better.
        min_delta: by how much a value must be better to count.
    """

    patience: int = 5
    metric: str = ""
    mode: str = "min"
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        patient = is_whole(self.patience) and self.patience >= 1
        enough = isinstance(self.min_delta, (int, float, np.number)) and self.min_delta >= 0
        if not patient or self.mode not in ("min", "max") or not enough:
            raise OpscopeError(
                f"early stop: want patience >= 1, mode min or max, min_delta >= 0, not {self}"
            )

    def is_better(self, value: float, best: float | None) -> bool:
        if best is None or np.isnan(best):
            return not np.isnan(value)
        gain = best - value if self.mode == "min" else value - best
        return gain > self.min_delta

    def watching(self, columns: Sequence[str], loss: str, held_out: bool) -> EarlyStop:
        """The same stop with the column that it watches filled in.

        Raises:
            VariableError: there is no such column.
        """
        metric = self.metric or (EVAL_PREFIX if held_out else "") + loss
        if metric not in columns:
            hint = nearest(metric, columns)
            raise VariableError(f"early stop: no column {metric!r} to watch{hint}")
        return dataclasses.replace(self, metric=metric)
