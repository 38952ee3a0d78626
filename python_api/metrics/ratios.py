"""Precision, recall and F1."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, RunError
from ...framework.base.sequence import bincount
from ..builder.var import Var
from .of_classes import OfClasses, class_names

AVERAGES = ("binary", "macro", "micro", "weighted", "none")


class ClassRatio(OfClasses):
    """Precision, recall and F1: ratios of how often each class was right, predicted and true.

    Args:
        scores: variable of the predictions; see the module.
        label: variable of the true classes [...].
        average: "binary": of the class `positive` alone; "macro": the mean over the classes that
            were predicted or true; "weighted": the same, weighed by how often each was true;
            "micro": of all samples together; "none": a number for each class, for which `classes`
            must be given.
        classes: how many classes there are, or their names; None: as many as come up.
        positive: the class that counts with "binary".
        threshold: of one score a sample.
        ignore_index: label of samples that do not count.
        name: column of the history; "": the metric's.

    Numbers are the same as in `sklearn.metrics` with zero_division=0: a class without samples to
    divide by gives 0.
    """

    def __init__(
        self,
        scores: Var | str,
        label: Var | str,
        average: str = "binary",
        *,
        classes: int | Sequence[str] | None = None,
        positive: int = 1,
        threshold: float = 0.5,
        ignore_index: int = -100,
        name: str = "",
    ) -> None:
        title = type(self).__name__
        if average not in AVERAGES:
            raise AttributeTypeError(
                f"{title}: average is one of {', '.join(AVERAGES)}, not {average!r}"
            )
        names: list[str] = []
        if classes is not None or average == "none":
            names = class_names(f"{title}: average={average!r}", classes)
        self.average = average
        self.positive = positive
        super().__init__(
            name or title.lower(),
            names if average == "none" else (),
            scores,
            label,
            len(names) or None,
            threshold,
            ignore_index,
        )

    def reset(self) -> None:
        self._counts = np.zeros((3, self.classes or 2), np.int64)  # right, predicted, true

    def update(self, values: Mapping[str, np.ndarray], rows: int = 0) -> None:
        predicted, truth = self.pairs(values)
        kinds = (truth[predicted == truth], predicted, truth)
        size = max(self._counts.shape[1], *(int(kind.max(initial=0)) + 1 for kind in kinds))
        if self.average == "binary" and size > 2:
            raise RunError(
                f"metric {self.name!r}: average='binary' is for the classes 0 and 1, and there are"
                f" {size}; choose one of {', '.join(AVERAGES[1:])}"
            )
        added = np.stack([bincount(kind, minlength=size) for kind in kinds])
        added[:, : self._counts.shape[1]] += self._counts
        self._counts = added

    def result(self) -> float | Mapping[str, float]:
        counts = self._counts
        if self.average == "micro":
            return float(self._ratio(*counts.sum(1)))
        ratios = self._ratio(*counts)
        if self.average == "none":
            return dict(zip(self.keys, map(float, ratios), strict=True))
        if self.average == "binary":
            return float(ratios[self.positive])
        weights = counts[2] if self.average == "weighted" else (counts[1] + counts[2] > 0)
        return float(_divided((ratios * weights).sum(), weights.sum()))

    @staticmethod
    @abstractmethod
    def _ratio(right: Any, predicted: Any, true: Any) -> np.ndarray:
        """The metric of some classes by their counts."""

    def state(self) -> dict[str, Any]:
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        counts = np.array(state["counts"], np.int64)
        if counts.ndim != 2 or len(counts) != 3:
            raise ValueError(f"{list(counts.shape)} counts of {self.name!r}")
        self._counts = counts


def _divided(above: Any, below: Any) -> np.ndarray:
    """above / below, 0 where that is nothing."""
    return np.where(below > 0, above / np.maximum(below, 1), 0.0)


class Precision(ClassRatio):
    """How many of the samples that were predicted as a class are of it; see `ClassRatio`."""

    @staticmethod
    def _ratio(right: Any, predicted: Any, true: Any) -> np.ndarray:
        return _divided(right, predicted)


class Recall(ClassRatio):
    """How many of the samples of a class were predicted as it; see `ClassRatio`."""

    @staticmethod
    def _ratio(right: Any, predicted: Any, true: Any) -> np.ndarray:
        return _divided(right, true)


class F1(ClassRatio):
    """The harmonic mean of precision and recall; see `ClassRatio`."""

    @staticmethod
    def _ratio(right: Any, predicted: Any, true: Any) -> np.ndarray:
        return _divided(2 * right, predicted + true)
