"""Accuracy and the confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, RunError
from ...framework.base.sequence import bincount
from ..builder.var import Var
from .of_classes import OfClasses, class_names


class ConfusionMatrix(OfClasses):
    """How often each class was predicted as each: in the history a column `name.true.predicted`.

    Args:
        scores: variable of the predictions; see the module.
        label: variable of the true classes [...].
        classes: how many classes there are, or their names.
        threshold: of one score a sample.
        ignore_index: label of samples that do not count.
        name: of the columns.

    Attributes:
        matrix: [classes, classes] counts, the true class first.
    """

    def __init__(
        self,
        scores: Var | str,
        label: Var | str,
        classes: int | Sequence[str],
        *,
        threshold: float = 0.5,
        ignore_index: int = -100,
        name: str = "confusion",
    ) -> None:
        names = class_names("ConfusionMatrix", classes)
        self.matrix = np.zeros((len(names), len(names)), np.int64)
        keys = [f"{true}.{predicted}" for true in names for predicted in names]
        super().__init__(name, keys, scores, label, len(names), threshold, ignore_index)

    def reset(self) -> None:
        self.matrix = np.zeros_like(self.matrix)

    def update(self, values: Mapping[str, np.ndarray], rows: int = 0) -> None:
        predicted, truth = self.pairs(values)
        self.check(self.fetch[0], predicted, self.classes)
        size = len(self.matrix)
        self.matrix += bincount(truth * size + predicted, minlength=size**2).reshape(size, size)

    def result(self) -> Mapping[str, float]:
        return dict(zip(self.keys, map(float, self.matrix.reshape(-1)), strict=True))

    def state(self) -> dict[str, Any]:
        return {"matrix": self.matrix}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.matrix = np.array(state["matrix"], np.int64).reshape(self.matrix.shape)


class Accuracy(OfClasses):
    """Share of the samples whose class is predicted, or is among the k highest scores.

    Args:
        scores: variable of the predictions; see the module.
        label: variable of the true classes [...].
        k: how many scores count as chosen; of equal ones the lower class counts as the higher.
        threshold: of one score a sample.
        ignore_index: label of samples that do not count.
        name: column of the history; "": accuracy, or top_k_accuracy with the number k.

    The result without samples is NaN.
    """

    def __init__(
        self,
        scores: Var | str,
        label: Var | str,
        k: int = 1,
        *,
        threshold: float = 0.5,
        ignore_index: int = -100,
        name: str = "",
    ) -> None:
        if k < 1:
            raise AttributeTypeError(f"Accuracy: k is at least 1, not {k}")
        self.k = k
        name = name or ("accuracy" if k == 1 else f"top_{k}_accuracy")
        super().__init__(name, (), scores, label, None, threshold, ignore_index)

    def reset(self) -> None:
        self._right = self._total = 0

    def update(self, values: Mapping[str, np.ndarray], rows: int = 0) -> None:
        if self.k == 1:
            predicted, truth = self.pairs(values)
            right = predicted == truth
        else:
            scores, truth = self.read(values)
            if scores.ndim != 2:
                raise RunError(f"metric {self.name!r}: k={self.k} wants scores [..., C]")
            own = scores[np.arange(len(truth)), truth][:, None]
            lower = np.arange(scores.shape[1]) < truth[:, None]
            before = (scores > own) | ((scores == own) & lower)
            right = (before.sum(1) < self.k) & ~np.isnan(own[:, 0])
        self._right += int(right.sum())
        self._total += len(truth)

    def result(self) -> float:
        return self._right / self._total if self._total else float("nan")

    def state(self) -> dict[str, Any]:
        return {"right": self._right, "total": self._total}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._right = int(state["right"])
        self._total = int(state["total"])
