"""The reports of a trainer: averages of objectives, and how often changes were bounded.

The lines are Kaldi's, so that scripts which read its logs read these.
Source: `ObjectiveFunctionInfo` in Kaldi's `nnet3/nnet-training.cc`, `MaxChangeStats` in
`nnet3/nnet-utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Log = Callable[[str], None]


def number(value: float) -> str:
    """A number as C++ prints it: six digits."""
    return f"{value:g}"


def ratio(total: float, weight: float) -> float:
    """total / weight; NaN where nothing was weighed."""
    return float(np.float64(total) / weight) if weight else float("nan")


@dataclass
class ObjectiveInfo:
    """Sums of one output's objective, over all minibatches and since the last report.

    Attributes:
        weight, objective, auxiliary: sums over all minibatches; the auxiliary objective is the
            regularization, where there is any.
    """

    weight: float = 0.0
    objective: float = 0.0
    auxiliary: float = 0.0
    phase: int = 0
    minibatches_this_phase: int = 0
    weight_this_phase: float = 0.0
    objective_this_phase: float = 0.0
    auxiliary_this_phase: float = 0.0

    def update(
        self,
        name: str,
        per_phase: int,
        minibatch: int,
        weight: float,
        objective: float,
        auxiliary: float = 0.0,
        log: Log | None = None,
    ) -> None:
        """Add a minibatch; the first of a new phase of `per_phase` minibatches reports the old."""
        phase = minibatch // per_phase
        if phase != self.phase:
            if log is not None:
                log(self._phase_line(name, per_phase, phase))
            self.phase = phase
            self.minibatches_this_phase = 0
            self.weight_this_phase = self.objective_this_phase = self.auxiliary_this_phase = 0.0
        self.minibatches_this_phase += 1
        self.weight_this_phase += weight
        self.objective_this_phase += objective
        self.auxiliary_this_phase += auxiliary
        self.weight += weight
        self.objective += objective
        self.auxiliary += auxiliary

    def _phase_line(self, name: str, per_phase: int, phase: int) -> str:
        first = self.phase * per_phase
        last = phase * per_phase - 1
        weight, auxiliary = self.weight_this_phase, self.auxiliary_this_phase
        if self.minibatches_this_phase == per_phase:
            which = f"' for minibatches {first}-{last}"
        else:  # Kaldi's own punctuation
            quote, space = ("'", " ") if auxiliary else ("", "")
            which = (
                f"{quote} using {self.minibatches_this_phase} minibatches in {space}minibatch range"
                f" {first}-{last}"
            )
        average = averages(self.objective_this_phase, auxiliary, weight)
        return (
            f"Average objective function for '{name}{which} is {average} over"
            f" {number(weight)} frames."
        )

    def total_lines(self, name: str) -> list[str]:
        """The two lines at the end of training."""
        average = averages(self.objective, self.auxiliary, self.weight)
        each = ratio(self.objective, self.weight)
        return [
            f"Overall average objective function for '{name}' is {average} over"
            f" {number(self.weight)} frames.",
            f"[this line is to be parsed by a script:] log-prob-per-frame={number(each)}",
        ]


def averages(objective: float, auxiliary: float, weight: float) -> str:
    """An average objective, with its parts where there are two."""
    each = ratio(objective, weight)
    if auxiliary == 0:
        return number(each)
    other = ratio(auxiliary, weight)
    return f"{number(each)} + {number(other)} = {number(each + other)}"


@dataclass
class MaxChangeStats:
    """How often changes were bounded.

    Attributes:
        names: of the updatable components. bounds: their own. applied: counts of theirs.
    """

    names: Sequence[str]
    bounds: Sequence[float]
    applied: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    applied_globally: int = 0
    minibatches: int = 0

    def __post_init__(self) -> None:
        if not len(self.applied):
            self.applied = np.zeros(len(self.names), np.int64)

    def add(
        self,
        factors: np.ndarray,
        change: float,
        bound: float,
        bound_scale: float,
        kept: bool,
        log: Log,
    ) -> None:
        """Take note of one update, and report it where something was bounded.

        Args:
            factors: of the components. change: norm of the whole change after these.
            bound: on that norm; 0 = any. bound_scale: of all bounds in this update.
            kept: whether it was finite, and applied.
        """
        self.minibatches += 1
        bounded = factors < 1
        self.applied += bounded
        most = bound * bound_scale
        globally = bool(most) and change > most and kept
        self.applied_globally += globally
        if not kept:
            log("Infinite parameter change, will not apply.")
            return
        text = ""
        if bounded.any():
            least = int(np.argmin(factors))
            text = (
                f"Per-component max-change active on {int(bounded.sum())} / {len(factors)}"
                f" Updatable Components. (Smallest factor={number(factors[least])} on"
                f" {self.names[least]} with max-change={number(self.bounds[least])}). "
            )
        if globally:
            text += (
                f"Global max-change factor was {number(most / change)} with"
                f" max-change={number(bound)}."
            )
        if text:
            log(text)

    def lines(self) -> list[str]:
        """The lines at the end of training."""
        share = 100.0 / max(self.minibatches, 1)
        lines = [
            f"For {name}, per-component max-change was enforced {number(count * share)} % of the"
            " time."
            for name, count in zip(self.names, self.applied.tolist(), strict=True)
            if count
        ]
        if self.applied_globally:
            lines.append(
                f"The global max-change was enforced {number(self.applied_globally * share)} % of"
                " the time."
            )
        return lines


def plain(info: Any) -> dict[str, Any]:
    """The numbers of an `ObjectiveInfo` or `MaxChangeStats`, for a training state."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(info).items()
    }
