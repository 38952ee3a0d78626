"""What metrics of predicted against true classes share: how they read their two variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, RunError
from ...framework.base.sequence import Sequences
from ...framework.training.metric import Metric
from ..builder.var import Var


class OfClasses(Metric):
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
        self.classes = classes
        self.threshold = threshold
        self.ignore_index = ignore_index
        self.reset()

    def read(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The predictions [samples] or scores [samples, C], and labels, of samples that count.

        Raises:
            RunError: they do not belong together, or a label is no class.
        """
        name, label = self.fetch
        scores, given = _array(values[name]), _array(values[label])
        truth = self._whole(label, given)
        shape = scores.shape
        classes = shape[-1] if shape and scores.dtype.kind == "f" else 1
        if classes > 1 and math.prod(shape[:-1]) == truth.size:
            scores = scores.reshape(-1, classes)
            self.check(label, truth, classes)
        elif scores.size == truth.size:
            scores = scores.reshape(-1)
        else:
            raise RunError(
                f"metric {self.name!r}: {name!r} {list(shape)} {scores.dtype} holds no prediction"
                f" for each label of {label!r} {list(given.shape)}"
            )
        self.check(label, truth, self.classes)
        counted = truth != self.ignore_index
        return scores[counted], truth[counted]

    def _whole(self, name: str, given: np.ndarray) -> np.ndarray:
        """A flat array of whole numbers as int64."""
        flat = given.reshape(-1)
        if flat.dtype.kind not in "biuf" or (flat.dtype.kind == "f" and (flat % 1 != 0).any()):
            raise RunError(f"metric {self.name!r}: {name!r} holds no classes, which are 0, 1, ...")
        return flat.astype(np.int64)

    def check(self, name: str, held: np.ndarray, classes: int | None) -> None:
        """Refuse classes that there are not.

        Raises:
            RunError: one is below 0, or not below `classes`.
        """
        wrong = held < 0
        if classes is not None:
            wrong |= held >= classes
        wrong &= held != self.ignore_index
        if wrong.any():
            wanted = "" if classes is None else f" .. {classes - 1}"
            label = int(held[wrong][0])
            raise RunError(
                f"metric {self.name!r}: {name!r} holds the class {label}, want 0{wanted}"
            )

    def pairs(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The predicted and the true classes of the samples that count."""
        scores, truth = self.read(values)
        if scores.ndim == 2:
            return scores.argmax(1), truth
        if scores.dtype.kind == "f":
            return (scores > self.threshold).astype(np.int64), truth
        predicted = scores.astype(np.int64)
        self.check(self.fetch[0], predicted, self.classes)
        return predicted, truth


def _array(value: Any) -> np.ndarray:
    """What a variable holds; of sequences the rows."""
    return np.asarray(value.data if isinstance(value, Sequences) else value)


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
