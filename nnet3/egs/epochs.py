"""Training on stored examples, epoch after epoch; a killed training goes on bit for bit.

A folder gets `EPOCH.raw`, `history.csv`, and `train.checkpoint`: parameters, natural gradient,
random state and position.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import atomic_file
from ...framework.base.untrusted.records import AnyFloat, record
from ...framework.base.untrusted.values import INT32, in_range, json_value
from ...framework.files.tensor_file import TensorFile, write_tensors
from ...framework.training.ctrl_c import CtrlC
from ...framework.training.history import History
from ..training import NnetTrainer
from ..training.progress import Log, number, ratio
from .merging import ExampleMerger, MinibatchRule
from .store import ExampleStore

CHECKPOINT = "train.checkpoint"
_FORMAT, _BY_MINIBATCHES = "2", "1"
"""Of the checkpoint: learning rates go by the examples seen; in the older one by minibatches."""


@dataclass(frozen=True)
class _State:
    """What a checkpoint says of a training, but for arrays; see `EpochTraining._save`."""

    epoch: int
    done: int
    trainer: dict[str, Any]
    history: list[dict[str, AnyFloat]]
    seen: tuple[AnyFloat, AnyFloat]

    def __post_init__(self) -> None:
        in_range(self.epoch, "'epoch'", 0, INT32[1])
        in_range(self.done, "'done'", 0, INT32[1])


class EpochOptions(Protocol):
    """What the options of a training say: passes over the examples, their `--minibatch-size`,
    minutes between checkpoints, a seed, the learning rate after a share of the training."""

    @property
    def epochs(self) -> int: ...
    @property
    def minibatch(self) -> str: ...
    @property
    def checkpoint_minutes(self) -> float: ...
    @property
    def seed(self) -> int: ...
    def learning_rate(self, share: float) -> float: ...


class EpochTraining:
    """A training on examples; what is done before and after its epochs is in methods of their own.

    Args:
        trainer: of the network. examples: to train on. folder: gets the files.
        log: takes lines on what happens. progress: shows a bar on stderr.

    Attributes:
        merger: makes minibatches of such examples. history: a row for each epoch.
    """

    merger: type[ExampleMerger] = ExampleMerger

    def __init__(
        self,
        trainer: NnetTrainer,
        examples: ExampleStore,
        folder: str,
        options: EpochOptions,
        log: Log,
        progress: bool = False,
    ) -> None:
        self.trainer = trainer
        self.examples = examples
        self.log = log
        self.history = History()
        self._folder = folder
        self._options = options
        self._progress = progress
        self._seen = (0.0, 0.0)  # weight and objective of all epochs that are over
        sizes = next(iter(MinibatchRule(options.minibatch).rules.values()))
        self._count = math.ceil(len(examples) / sizes.largest)  # of minibatches, about

    def begin_epoch(self, share: float) -> None:
        """What is to be done before an epoch, after a share of the training."""

    def judged(self) -> dict[str, float]:
        """What is measured after an epoch, besides the loss, by the names of columns."""
        return {}

    def end_epoch(self) -> None:
        """What is to be done after an epoch, when its files are written."""

    def example(self, number: int, epoch: int) -> Any:
        """An example as an epoch gets it."""
        return self.examples[number]

    def minibatches(self, epoch: int) -> Iterator[Any]:
        """The minibatches of an epoch, in an order that depends on seed and epoch alone."""
        return self.merged(self.shuffled(epoch), self._options.minibatch)

    def shuffled(self, epoch: int) -> Iterator[Any]:
        """The examples of an epoch, in an order that depends on seed and epoch alone."""
        order = np.random.default_rng([self._options.seed, epoch]).permutation(len(self.examples))
        return (self.example(at, epoch) for at in order.tolist())

    def merged(self, examples: Iterable[Any], sizes: str) -> Iterator[Any]:
        """Minibatches of examples, of such sizes."""
        return (merged for _, merged in self.merger(MinibatchRule(sizes)).merge(examples))

    def path(self, *names: str) -> str:
        """A file in the folder."""
        return os.path.join(self._folder, *names)

    def run(self) -> None:
        """Train all epochs that are not done yet.

        Ctrl-C lets the minibatch under way finish and writes the checkpoint; again: ends at once.

        Raises:
            KeyboardInterrupt: after a Ctrl-C.
            OpscopeError: an example does not fit the network; a file cannot be written; the
                checkpoint is damaged.
        """
        with CtrlC() as ctrl_c:
            epoch, done = self._resume()
            while epoch < self._options.epochs:
                self._epoch(epoch, done, ctrl_c)
                epoch += 1
                done = 0
        for line in self.trainer.max_change.lines():
            self.log(line)

    def _epoch(self, epoch: int, done: int, ctrl_c: CtrlC) -> None:
        """The rest of an epoch of which so many minibatches are done."""
        options = self._options
        start = last_saved = time.monotonic()
        trained = seen = 0
        self.begin_epoch(epoch / options.epochs)
        for place, example in enumerate(self._shown(epoch)):
            # Counted in examples, since the sizes of minibatches differ.
            share = (epoch + min(seen / len(self.examples), 1.0)) / options.epochs
            seen += self.trainer.objective.count(example)
            # Also where nothing is left to do: the model of the epoch holds its last rate.
            self.trainer.set_learning_rate(options.learning_rate(share))
            if place < done:
                continue
            try:
                self.trainer.train(example)
            except OpscopeError as error:
                raise type(error)(f"epoch {epoch + 1}, minibatch {place}: {error}") from error
            trained += 1
            if ctrl_c.pressed or time.monotonic() - last_saved > 60 * options.checkpoint_minutes:
                self._save(epoch, place + 1)
                last_saved = time.monotonic()
            if ctrl_c.pressed:
                self.log(f"Wrote {self.path(CHECKPOINT)}: the same training resumes from there")
                raise KeyboardInterrupt
        self.trainer.store()
        seconds = time.monotonic() - start
        whole = seconds * (done + trained) / max(trained, 1)
        self._end(epoch + 1, seconds, whole)
        self._save(epoch + 1, 0)

    def _shown(self, epoch: int) -> Iterable[Any]:
        """The minibatches of an epoch, with a bar."""
        if not self._progress:
            return self.minibatches(epoch)
        from tqdm import tqdm

        title = f"epoch {epoch + 1}/{self._options.epochs}"
        batches = self.minibatches(epoch)
        return tqdm(batches, title, self._count, leave=False, dynamic_ncols=True)

    def _end(self, epoch: int, seconds: float, whole: float) -> None:
        """Write the model of an epoch, and log how good it is.

        Args:
            seconds: since the epoch began or was resumed. whole: what all of it takes.
        """
        info = self.trainer.objectives.get("output")
        row: dict[str, float] = {"epoch": epoch}
        if info is not None:
            weight, value = info.weight - self._seen[0], info.objective - self._seen[1]
            self._seen = info.weight, info.objective
            row["loss"] = -ratio(value, weight)
        row |= self.judged()
        row["seconds"] = round(seconds, 3)
        self.history.rows.append(row)
        self.trainer.nnet.write(self.path(f"{epoch}.raw"))
        shown = " ".join(f"{name} {number(value)}" for name, value in row.items())
        left = whole * (self._options.epochs - epoch)
        self.log(f"{shown}, about {left:.0f} s left" if left else shown)
        self.history.to_csv(self.path("history.csv"))
        self.end_epoch()

    def _save(self, epoch: int, done: int) -> None:
        """Write all that a resumed training needs, in place of what was there."""
        state = {
            "epoch": epoch,
            "done": done,
            "trainer": self.trainer.state(),
            "history": self.history.rows,
            "seen": self._seen,
        }
        metadata = {"opscope.nnet3": _FORMAT, "opscope.state": json.dumps(state)}
        with atomic_file(self.path(CHECKPOINT)) as file:
            write_tensors(file, self.trainer.arrays(), metadata)

    def _resume(self) -> tuple[int, int]:
        """Go on from a checkpoint, if there is one: the epoch, and how many of its minibatches are
        done."""
        path = self.path(CHECKPOINT)
        if not os.path.exists(path):
            return 0, 0
        file = TensorFile(path)
        written = file.metadata.get("opscope.nnet3")
        if written == _BY_MINIBATCHES:
            raise FormatError(
                f"{path}: an earlier version wrote this checkpoint, and its learning rates fell in"
                " another way: finish the training with that version, or remove the file and train"
                " from the first epoch"
            )
        if written != _FORMAT:
            raise FormatError(f"{path}: no checkpoint of this format")
        what = f"{path}: its state"
        state = record(json_value(file.metadata.get("opscope.state", ""), what), _State, what)
        self.history.rows = [dict[str, float](row) for row in state.history]
        self._seen = state.seen
        self.trainer.restore(state.trainer, {name: file.read(name) for name in file}, what)
        self.log(f"Going on from {path}: epoch {state.epoch + 1}, minibatch {state.done}")
        return state.epoch, state.done
