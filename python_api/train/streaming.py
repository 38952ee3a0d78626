"""Metrics that are counted over a whole pass: `opscope.metrics`.

    history = opscope.train(b, data, ..., metrics=[opscope.metrics.F1("scores", "label", "macro")])

    f1 = opscope.metrics.F1("scores", "label", "macro")          # or by hand
    for batch in batches:
        f1.update(b.run(scope, feed=batch, fetch=f1.fetch, need_backward=False))
    f1.result()

They keep counts, not means over minibatches, so they are right whatever the sizes of these are.
Predictions are classes (integers), or scores [..., C] of which the highest counts, the lower class
of equal ones, or one score a sample, which stands for class 1 where it is above the threshold.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, RunError
from ..builder.var import Var
from .metrics import Mean, Measure, Metric

AVERAGES = ("binary", "macro", "micro", "weighted", "none")


class _OfClasses(Metric):
    """What metrics of predictions against labels share.

    Args:
        name, keys: see `Metric`.
        scores: variable of the predictions; see the module.
        label: variable of the true classes [...], whole numbers.
        classes: how many there are; None: as many as come up.
        threshold: of one score a sample.
        ignore_index: label of samples that do not count.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[str],
        scores: Var | str,
        label: Var | str,
        classes: int | None,
        threshold: float,
        ignore_index: int,
    ) -> None:
        super().__init__(name, [scores, label], keys)
        self.classes, self.threshold, self.ignore_index = classes, threshold, ignore_index
        self.reset()

    def _read(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The predictions [samples] or scores [samples, C], and labels, of samples that count.

        Raises:
            RunError: they do not belong together, or a label is no class.
        """
        name, label = self.fetch
        scores = np.asarray(values[name])
        truth = self._whole(label, np.asarray(values[label]))
        shape = scores.shape
        if scores.size == truth.size:
            scores = scores.reshape(-1)
        elif scores.dtype.kind == "f" and shape and scores.size == truth.size * shape[-1]:
            scores = scores.reshape(len(truth), -1)
            self._check(label, truth, shape[-1])
        else:
            raise RunError(
                f"metric {self.name!r}: {name!r} {list(shape)} {scores.dtype} holds no prediction"
                f" for each label of {label!r} {list(np.shape(values[label]))}"
            )
        self._check(label, truth, self.classes)
        counted = truth != self.ignore_index
        return scores[counted], truth[counted]

    def _whole(self, name: str, given: np.ndarray) -> np.ndarray:
        """A flat array of whole numbers as int64."""
        flat = given.reshape(-1)
        if flat.dtype.kind not in "biuf" or (flat.dtype.kind == "f" and (flat % 1 != 0).any()):
            raise RunError(f"metric {self.name!r}: {name!r} holds no classes, which are 0, 1, ...")
        return flat.astype(np.int64)

    def _check(self, name: str, held: np.ndarray, classes: int | None) -> None:
        wrong = held < 0
        if classes is not None:
            wrong |= held >= classes
        wrong &= held != self.ignore_index
        if wrong.any():
            wanted = "" if classes is None else f" .. {classes - 1}"
            found = int(held[wrong][0])
            raise RunError(
                f"metric {self.name!r}: {name!r} holds the class {found}, want 0{wanted}"
            )

    def _pairs(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The predicted and the true classes of the samples that count."""
        scores, truth = self._read(values)
        if scores.ndim == 2:
            return scores.argmax(1), truth
        if scores.dtype.kind == "f":
            return (scores > self.threshold).astype(np.int64), truth
        predicted = scores.astype(np.int64)
        self._check(self.fetch[0], predicted, self.classes)
        return predicted, truth


def class_names(title: str, classes: int | Sequence[str] | None) -> list[str]:
    """Names of the classes: as given, or their numbers.

    Raises:
        AttributeTypeError: neither names nor a number.
    """
    if isinstance(classes, int) and classes > 0:
        return [str(number) for number in range(classes)]
    if classes is None or isinstance(classes, (int, str)) or not len(classes):
        raise AttributeTypeError(
            f"{title} wants the number of classes or their names, as classes=3, not {classes!r}"
        )
    return list(map(str, classes))


class ClassRatio(_OfClasses):
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

    Numbers are those of `sklearn.metrics` with zero_division=0: a class without samples to divide
    by gives 0.
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
        self.average, self.positive = average, positive
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
        predicted, truth = self._pairs(values)
        kinds = (truth[predicted == truth], predicted, truth)
        size = max(self._counts.shape[1], *(int(kind.max(initial=0)) + 1 for kind in kinds))
        if self.average == "binary" and size > 2:
            raise RunError(
                f"metric {self.name!r}: average='binary' is for the classes 0 and 1, and there are"
                f" {size}; choose one of {', '.join(AVERAGES[1:])}"
            )
        added = np.stack([np.bincount(kind, minlength=size) for kind in kinds])
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


class ConfusionMatrix(_OfClasses):
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
        predicted, truth = self._pairs(values)
        self._check(self.fetch[0], predicted, self.classes)
        size = len(self.matrix)
        self.matrix += np.bincount(truth * size + predicted, minlength=size**2).reshape(size, size)

    def result(self) -> Mapping[str, float]:
        return dict(zip(self.keys, map(float, self.matrix.reshape(-1)), strict=True))

    def state(self) -> dict[str, Any]:
        return {"matrix": self.matrix}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.matrix = np.array(state["matrix"], np.int64).reshape(self.matrix.shape)


class Accuracy(_OfClasses):
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
            predicted, truth = self._pairs(values)
            right = predicted == truth
        else:
            scores, truth = self._read(values)
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
        self._right, self._total = int(state["right"]), int(state["total"])


class AUC(_OfClasses):
    """Area under the ROC curve: how likely a sample of class 1 has a higher score than one of 0.

    Args:
        scores: variable of one score a sample, [N] or [N, 1].
        label: variable of the classes: 0, and any other number for 1.
        bins: 0: exact, which keeps all scores of the pass. Otherwise scores are counted in so many
            bins between low and high, and those of one bin count as equal.
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
        self.bins, self.low, self.high = bins, low, high
        super().__init__(name, (), scores, label, None, 0.5, ignore_index)

    def reset(self) -> None:
        self._counts = np.zeros((2, self.bins), np.int64)  # samples of 0 and of 1 in each bin
        self._scores: list[np.ndarray] = []
        self._positive: list[np.ndarray] = []

    def update(self, values: Mapping[str, np.ndarray], rows: int = 0) -> None:
        scores, truth = self._read(values)
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
            self._counts[kind] += np.bincount(place[chosen], minlength=self.bins)

    def result(self) -> float:
        if self.bins:
            negative, positive = self._counts
        elif self._scores:
            _, place = np.unique(np.concatenate(self._scores), return_inverse=True)
            chosen = np.concatenate(self._positive)
            size = int(place.max(initial=-1)) + 1
            negative, positive = (np.bincount(place[k], minlength=size) for k in (~chosen, chosen))
        else:
            return float("nan")
        pairs = float(negative.sum()) * float(positive.sum())
        below = negative.cumsum() - negative / 2  # those of the same score count half
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


__all__ = [
    "AUC",
    "F1",
    "Accuracy",
    "ConfusionMatrix",
    "Mean",
    "Measure",
    "Metric",
    "Precision",
    "Recall",
]
