"""The history of a training: one row of numbers for each epoch, as CSV and as curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..base.errors import VariableError, nearest
from ..base.files.atomic import PathLike, write_atomically
from .metric import Metric
from .resuming import Resumed

EVAL_PREFIX = "eval_"
"""Before the names of what is measured on held-out data."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes that a training takes on one rank, where its scope is.

    Attributes:
        parameters: of the net. states: of optimizers and of layers.
        run: values, gradients and parts on their way in a step, as its plan lays them out.
    """

    parameters: int
    states: int
    run: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.parameters + self.states + self.run


@dataclass(frozen=True)
class PipelineRun:
    """How ranks have run the stages of a net.

    Attributes:
        stages: how many there are. replicas: ranks with the same stage.
        schedule: "1f1b" or "gpipe". minibatches: of an update.
        bubble: the share of the time in which a stage waits for others while minibatches enter and
            leave the pipeline, if all stages take equally long.
        waited: the share in which each rank has waited, by rank.
    """

    stages: int
    replicas: int
    schedule: str
    minibatches: int
    bubble: float
    waited: tuple[float, ...]

    def __str__(self) -> str:
        each = f", {self.replicas} ranks each" if self.replicas > 1 else ""
        waited = ", ".join(f"{share:.0%}" for share in self.waited)
        return (
            f"pipeline of {self.stages} stages{each}, {self.schedule}, {self.minibatches}"
            f" minibatches an update: bubble {self.bubble:.0%}, ranks waited {waited}"
        )


@dataclass(repr=False)
class History:
    """The course of a training.

    Attributes:
        rows: one mapping for each epoch that was finished: `epoch` (from 1), the loss and the
            metrics by their names, the same on held-out data with the prefix `eval_`, `seconds`.
        interrupted: ended within an epoch, by Ctrl-C or a callback.
        stopped_early: ended by the early stop.
        best_epoch: the epoch whose parameters the scope holds, where there was an early stop.
        metrics: what measured the last epoch, by name; on held-out data with the prefix `eval_`.
            So a metric that knows more than its numbers, a confusion matrix, can be asked.
        rank: which of the ranks this is that have trained together; 0 leads. The others have the
            rows, but nothing in `metrics`.
        resumed: what was taken over from the checkpoint of another net (`resume="weights"`).
        memory: what the training took on each rank, by rank.
        pipeline: how ranks have run the stages of the net, where they had one each.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False
    stopped_early: bool = False
    best_epoch: int = 0
    metrics: dict[str, Metric] = field(default_factory=dict)
    resumed: Resumed | None = None
    rank: int = 0
    memory: list[RankMemory] = field(default_factory=list)
    pipeline: PipelineRun | None = None

    def __repr__(self) -> str:
        numbers = {
            key: value for key, value in self.last.items() if key not in ("epoch", "seconds")
        }
        shown = [f"{key} {value:.4g}" for key, value in numbers.items()]
        said = ("interrupted", "stopped_early")
        shown += [flag.replace("_", " ") for flag in said if getattr(self, flag)]
        epochs = f"{len(self.rows)} epoch{'' if len(self.rows) == 1 else 's'}"
        return f"<History of {epochs}: {', '.join(shown)}>" if shown else f"<History of {epochs}>"

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in the order in which they came up."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, column: str) -> list[float]:
        """A column, epoch by epoch.

        Raises:
            VariableError: there is none of this name.
        """
        if column not in self.columns:
            hint = nearest(column, self.columns)
            raise VariableError(f"the history has no column {column!r}{hint}")
        return [row.get(column, float("nan")) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last(self) -> Mapping[str, float]:
        """The latest epoch's row; empty before the first is over."""
        return self.rows[-1] if self.rows else {}

    def to_csv(self, path: PathLike) -> None:
        """Write all rows with a header line.

        Raises:
            SaveError: the file cannot be written.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomically(path, text.getvalue().encode())

    def plot(self, path: PathLike) -> None:
        """Draw the curves as a PNG; see `plot.plot_history`."""
        from .plot import plot_history

        columns = {name: self[name] for name in self.columns}
        plot_history(columns, self.best_epoch, EVAL_PREFIX, path)
