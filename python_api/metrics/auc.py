"""The area under the ROC curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, RunError
from ...framework.base.sequence import bincount
from ..builder.var import Var
from .of_classes import OfClasses


class AUC(OfClasses):
    """Area under the ROC curve: how likely a sample of class 1 has a higher score than one of 0.

    Args:
        scores: variable of one score a sample, [N] or [N, 1].
        label: variable of the classes: 0, and any other number for 1.
        bins: 0: exact, which keeps all scores of the pass. Otherwise scores are counted in so many
            bins between low and high, and scores in one bin count as equal.
        low, high: where the first bin begins and the last one ends; scores outside count in these.
        ignore_index: label of samples that do not count.
        name: column of the history.

    The result without samples of both kinds is NaN.
    """

    def __init__(
        self,
        scores: Var | str,
        label: Var | str,
        *,
        bins: int = 0,
        low: float = 0.0,
        high: float = 1.0,
        ignore_index: int = -100,
        name: str = "auc",
    ) -> None:
        if bins < 0 or not low < high:
            raise AttributeTypeError(
                f"AUC: want bins >= 0 and low < high, not {bins}, {low}, {high}"
            )
        self.bins = bins
        self.low = low
        self.high = high
        super().__init__(name, (), scores, label, None, 0.5, ignore_index)

    def reset(self) -> None:
        self._counts = np.zeros((2, self.bins), np.int64)  # samples of 0 and of 1 in each bin
        self._scores: list[np.ndarray] = []
        self._positive: list[np.ndarray] = []

    def update(self, values: Mapping[str, np.ndarray], rows: int = 0) -> None:
        scores, truth = self.read(values)
        if scores.ndim != 1:
            raise RunError(
                f"metric {self.name!r}: {self.fetch[0]!r} holds {scores.shape[1]} scores a sample;"
                " AUC wants one, the column of class 1"
            )
        if np.isnan(scores).any():
            raise RunError(f"metric {self.name!r}: {self.fetch[0]!r} holds NaN")
        positive = truth != 0
        if not self.bins:
            self._scores.append(np.array(scores))
            self._positive.append(positive)
            return
        share = (scores.astype(np.float64) - self.low) / (self.high - self.low)
        place = np.floor(share.clip(0, 1) * self.bins).clip(0, self.bins - 1).astype(np.int64)
        for kind, chosen in enumerate((~positive, positive)):
            self._counts[kind] += bincount(place[chosen], minlength=self.bins)

    def result(self) -> float:
        if self.bins:
            negative, positive = self._counts
        elif self._scores:
            _, place = np.unique(np.concatenate(self._scores), return_inverse=True)
            chosen = np.concatenate(self._positive)
            size = int(place.max(initial=-1)) + 1
            negative, positive = (bincount(place[k], minlength=size) for k in (~chosen, chosen))
        else:
            return float("nan")
        pairs = float(negative.sum()) * float(positive.sum())
        below = negative.cumsum() - negative / 2  # equal scores count half
        return float(positive @ below) / pairs if pairs else float("nan")

    def state(self) -> dict[str, Any]:
        kept = {"counts": self._counts}
        if self._scores:
            kept["scores"] = np.concatenate(self._scores)
            kept["positive"] = np.concatenate(self._positive)
        return kept

    def restore(self, state: Mapping[str, Any]) -> None:
        self.reset()
        self._counts = np.array(state["counts"], np.int64).reshape(self._counts.shape)
        if "scores" in state:
            self._scores = [np.array(state["scores"])]
            self._positive = [np.array(state["positive"], bool)]
