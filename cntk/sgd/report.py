"""Criteria summed over samples, and the lines of CNTK's log.

Source: CNTK's `SGDLib/Criterion.h`, `SGD.cpp`, `SimpleEvaluator.h`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

Say: TypeAlias = Callable[[str], None]


def to_stderr(text: str) -> None:
    """Where CNTK writes its log."""
    sys.stderr.write(text)
    sys.stderr.flush()


class Total(NamedTuple):
    """A criterion summed over samples, and their number."""

    value: float = 0.0
    samples: int = 0

    @property
    def average(self) -> float:
        return self.value / self.samples if self.samples > 0 else 0.0

    def since(self, earlier: Total) -> Total:
        """The difference to an earlier total."""
        return Total(self.value - earlier.value, self.samples - earlier.samples)

    def text(self, name: str) -> str:
        """`ce = 0.12345678 * 100`; as percentage where the name is a plural (`errs`)."""
        if name.endswith("s"):
            shown = f"{number_text(100 * self.average, 2, 3)}%"
        else:
            shown = number_text(self.average, 0, 8)
        return f"{name} = {shown} * {self.samples}"


class Totals:
    """Running totals of several criteria, added in the precision of the network."""

    def __init__(self, count: int, dtype: np.dtype) -> None:
        self._type = np.dtype(dtype).type
        self._values = [self._type(0)] * count
        self._samples = [0] * count

    def add(self, values: Iterable[tuple[float, int]], accumulated: Sequence[bool]) -> None:
        """Add the values of a minibatch.

        Args:
            values: value and number of samples of each node.
            accumulated: whether a node has added up its values itself: then its last value counts,
                as one sample.
        """
        for number, (value, samples) in enumerate(values):
            if not samples:
                continue
            if accumulated[number]:
                self._values[number], self._samples[number] = self._type(value), 1
            else:
                self._values[number] = self._values[number] + self._type(value)
                self._samples[number] += samples

    def totals(self) -> list[Total]:
        return [Total(float(v), n) for v, n in zip(self._values, self._samples, strict=True)]


def number_text(value: float, width: int, digits: int) -> str:
    """A number with a fixed point; with an exponent where `%g` would show one."""
    kind = "e" if "e" in f"{value:.{digits}g}" else "f"
    return f"{value:{width}.{digits}{kind}}"


def general(value: float, digits: int = 8) -> str:
    """C's `%.8g`."""
    return f"{value:.{digits}g}"


def percent_digits(minibatches: float, step: int) -> int:
    """Digits of the progress in percent, so that neighboring lines differ."""
    if minibatches <= 0 or not math.isfinite(minibatches):
        return 2
    return max(math.ceil(math.log10(minibatches / max(step, 1))) - 2, 2)


def totals_text(totals: Sequence[Total], names: Sequence[str]) -> str:
    """Several criteria on one line, each with a semicolon after it."""
    return "".join(total.text(name) + "; " for total, name in zip(totals, names, strict=True))
