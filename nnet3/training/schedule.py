"""The rules of Kaldi's parallel training: jobs, rates, archives and models of each iteration.

An iteration trains as many networks as it has jobs, each on one archive, and averages them.
Archives are counted through all iterations: the numbers of jobs of earlier iterations sum up to how
many were processed.

Source: Kaldi's `steps/libs/nnet3/train/common.py`, `frame_level_objf/common.py`,
`chain_objf/acoustic_model.py`, `dropout_schedule.py` and `steps/nnet3/get_saturation.pl`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, FormatError
from ..components.base.component import Component
from ..components.base.summary import printed_mean

NO_OBJECTIVE = -100000.0
"""What a job counts for that reports no objective."""
_LAGGING = 1.0
"""A network whose objective is worse than the best one by more than this is not averaged."""


@dataclass(frozen=True)
class Schedule:
    """The iterations of a training.

    Attributes:
        epochs: passes over the archives. archives: how many there are.
        copies: how often an epoch sees each archive: once for each frame of an example where jobs
            train on single frames, once for each frame shift with chain examples, else 1.
        jobs_initial, jobs_final, jobs_step: their number at the start and at the end; above
            `jobs_step` it is a multiple of that.
        initial_rate, final_rate: effective learning rates. A job's is its multiple by the number
            of jobs, since averaging divides the changes by that.
    """

    epochs: float
    archives: int
    copies: int
    jobs_initial: int
    jobs_final: int
    jobs_step: int
    initial_rate: float
    final_rate: float

    def __post_init__(self) -> None:
        counts = ("archives", "copies", "jobs_initial", "jobs_final", "jobs_step")
        for name in (*counts, "epochs", "initial_rate", "final_rate"):
            if not getattr(self, name) > 0:
                raise AttributeTypeError(f"{name}={getattr(self, name)} must be positive")
        if self.jobs_final > self.archives * self.copies:
            raise AttributeTypeError(
                f"jobs_final={self.jobs_final} is more than the {self.archives * self.copies}"
                " archives of an epoch"
            )
        if not self.iterations:
            raise AttributeTypeError(
                f"{self.to_process} archives are not enough for one iteration of"
                f" {self.jobs_initial} to {self.jobs_final} jobs"
            )

    @property
    def to_process(self) -> int:
        """Archives that all jobs of all iterations see."""
        return int(self.epochs * self.archives * self.copies)

    @property
    def iterations(self) -> int:
        """How many there are, so that archives and jobs come out as evenly as can be."""
        return int(self.to_process * 2 / (self.jobs_initial + self.jobs_final))

    def jobs(self, iteration: int) -> int:
        """The number of jobs: it rises evenly."""
        start = float(self.jobs_initial)
        end = self.jobs_final
        ideal = start + (end - start) * float(iteration) / self.iterations
        if ideal < self.jobs_step:
            return int(0.5 + ideal)
        return int(0.5 + ideal / self.jobs_step) * self.jobs_step

    def processed(self, iteration: int) -> int:
        """How many archives were processed before an iteration."""
        return sum(self.jobs(earlier) for earlier in range(iteration))

    def share(self, iteration: int) -> float:
        """The share of the training that is done before an iteration."""
        return self.processed(iteration) / self.to_process

    def learning_rate(self, iteration: int) -> float:
        """The rate of each job: it falls exponentially with the archives processed."""
        effective = self.final_rate
        if iteration + 1 < self.iterations:
            fall = math.log(self.final_rate / self.initial_rate) / self.to_process
            effective = self.initial_rate * math.exp(self.processed(iteration) * fall)
        return self.jobs(iteration) * effective

    def place(self, iteration: int, job: int) -> tuple[int, int]:
        """The archive of a job, both counted from 1, and which pass over the archives it is."""
        k = self.processed(iteration) + job - 1
        return k % self.archives + 1, k // self.archives

    def turn(self, iteration: int, job: int) -> int:
        """Which of the `copies` of its archive a job sees: the frame of each example, or the frames
        by which it is shifted."""
        archive, nth = self.place(iteration, job)
        return (nth + archive) % self.copies

    def combined(self, most: int) -> list[int]:
        """The iterations whose networks are combined at the end: from the last half epoch, at most
        half of all; where these are more than `most`, every so many-th."""
        iterations = self.iterations
        per_epoch = self.archives * self.copies / self.jobs_final
        first = min(int(per_epoch / 2) + 1, iterations // 2)
        if first > most:
            step = int(first / most)
            return sorted({*range(iterations - first + 1, iterations + 1, step), iterations})
        count = min(most, iterations // 2)
        return sorted({*range(iterations - count + 1, iterations + 1), iterations})


def halved(minibatch: str) -> str:
    """A `--minibatch-size` with all sizes of minibatches halved, but none below 1."""

    def half(sizes: str) -> str:
        return re.sub(r"\d+", lambda match: str(max(1, int(match[0]) // 2)), sizes)

    rules = [rule.rpartition("=") for rule in minibatch.split("/")]
    return "/".join(f"{head}{equals}{half(sizes)}" for head, equals, sizes in rules)


def kept_jobs(objectives: Sequence[float]) -> tuple[list[int], int]:
    """The jobs, counted from 1, whose networks keep up with the best one, and the best one."""
    best = int(np.argmax(objectives))
    kept = [job for job, value in enumerate(objectives, 1) if objectives[best] - value <= _LAGGING]
    return kept, best + 1


def proportion_at(schedule: str, share: float) -> float:
    """The dropout proportion after a share of the training; straight lines between the points.

    Args:
        schedule: `PROPORTION@SHARE,...`, as `0,0.2@0.25,0`.

    Raises:
        AttributeTypeError: it cannot be understood.
    """
    points = []
    for word in schedule.split(","):
        value, _, place = word.partition("@")
        try:
            points.append((float(place) if place else None, float(value)))
        except ValueError:
            raise AttributeTypeError(f"dropout-schedule: {word!r} is no VALUE@SHARE") from None
    last = max(len(points) - 1, 1)
    ends = {0: 0.0, len(points) - 1: 1.0}
    shares = [ends.get(i, i / last) if p is None else p for i, (p, _) in enumerate(points)]
    if sorted(shares) != shares:
        raise AttributeTypeError("dropout-schedule: the shares must rise")
    return float(np.interp(share, shares, [value for _, value in points]))


def dropout_edits(schedule: str, share: float) -> str:
    """Edit directives that set dropout proportions; empty without a schedule.

    Args:
        schedule: a schedule for all components, or `PATTERN=SCHEDULE` with spaces between.
    """
    edits = []
    for word in schedule.split():
        pattern, _, points = word.rpartition("=")
        proportion = proportion_at(points, min(share, 1.0))
        edits.append(f"set-dropout-proportion name={pattern or '*'} proportion={proportion!r}")
    return "; ".join(edits)


_LARGEST = {
    "SigmoidComponent": (0.25,),
    "TanhComponent": (1.0,),
    "LstmNonlinearityComponent": (0.25, 0.25, 1.0, 0.25, 1.0),
    "GruNonlinearityComponent": (1.0,),
    "OutputGruNonlinearityComponent": (1.0,),
}
"""By component type, the largest derivative of each function whose derivatives it sums up."""


def saturation(components: Iterable[Component]) -> float:
    """How saturated the sigmoids and hyperbolic tangents of a network are, from 0 to 1: one minus
    their mean derivative over its largest value, on average; 0 where there are none.

    Kaldi's rule reads the text of nnet3-info, so means have the digits that it prints, and
    functions of so few values that it lists them all do not count.

    Raises:
        FormatError: the derivatives are beyond what these functions have.
    """
    saturations: list[float] = []
    for component in components:
        statistics: Any = component
        if component.type not in _LARGEST or statistics.count <= 0:
            continue
        sums = np.atleast_2d(statistics.deriv_sum)
        for largest, row in zip(_LARGEST[component.type], sums, strict=True):
            if (mean := printed_mean(row / statistics.count)) is not None:
                saturations.append(1.0 - mean / largest)
    value = sum(saturations) / len(saturations) if saturations else 0.0
    if not 0.0 <= value <= 1.0:
        raise FormatError(f"the nonlinearities' saturation is {value:g}, which is not in 0 to 1")
    return value
