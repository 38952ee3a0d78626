"""Training an nnet3 network from features and targets to the final model, in one go.

    recipe = Nnet3Recipe(RecipeOptions(feats="ark:feats.ark", targets="ark:ali.ark",
                                       network="net.xconfig", dir="exp"))
    recipe.run()

The folder `exp` gets `egs/` (examples), `0.raw` (the initial network), `EPOCH.raw`, `final.raw`,
`history.csv`, `history.png`, and `train.checkpoint`, from which an interrupted run resumes as if
nothing had happened. What is there already is not made again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.atomic import atomic_file
from ...framework.base.backend import Place
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.records import AnyFloat, record
from ...framework.base.untrusted.values import INT32, in_range, json_value
from ...framework.files.tensor_file import TensorFile, write_tensors
from ...framework.training.ctrl_c import CtrlC
from ...framework.training.folder_lock import folder_lock
from ...framework.training.history import EVAL_PREFIX, History
from ...nnet3.egs.merging import ExampleMerger, MinibatchRule
from ...nnet3.egs.store import ExampleStore
from ...nnet3.files.examples import NnetExample
from ...nnet3.network import adjust
from ...nnet3.network.nnet import Nnet
from ...nnet3.training import NnetTrainer
from ...nnet3.training.combination import combine
from ...nnet3.training.compute_prob import NnetComputeProb
from ...nnet3.training.progress import Log, number, ratio
from .experiment import keep_settings, make_folder
from .nnet3_data import make_examples, make_network
from .nnet3_options import RecipeOptions

CHECKPOINT = "train.checkpoint"
_FORMAT = "1"
_STATS_MINIBATCHES = 50
"""Of the training, from which a mean of networks gets its statistics."""


@dataclass(frozen=True)
class _State:
    """What a checkpoint says of a training, but for arrays; see `Nnet3Recipe._save`."""

    epoch: int
    done: int
    trainer: dict[str, Any]
    history: list[dict[str, AnyFloat]]
    seen: tuple[AnyFloat, AnyFloat]

    def __post_init__(self) -> None:
        in_range(self.epoch, "'epoch'", 0, INT32[1])
        in_range(self.done, "'done'", 0, INT32[1])


class Nnet3Recipe:
    """One training; see the text of this module.

    Args:
        place: where to compute; the CPU by default.
        log: takes lines on what happens.
        progress: shows a bar on stderr.
    """

    def __init__(
        self,
        options: RecipeOptions,
        place: Place | None = None,
        log: Log = print,
        progress: bool = False,
    ) -> None:
        self.options = options
        self.place = place
        self.log = log
        self.progress = progress
        self.history = History()
        self._seen = (0.0, 0.0)  # weight and objective of all epochs that are over

    def path(self, *names: str) -> str:
        """A file of the experiment."""
        return os.path.join(self.options.dir, *names)

    def run(self) -> Nnet:
        """Do all that is not done yet; returns the final network.

        Ctrl-C lets the minibatch under way finish and writes the checkpoint; again: ends at once.

        Raises:
            KeyboardInterrupt: after a Ctrl-C.
            OpscopeError: bad input; a file cannot be written; the folder holds another experiment,
                or another run is under way there.
        """
        make_folder(self.options.dir)
        with folder_lock(self.options.dir):
            return self._run()

    def _run(self) -> Nnet:
        self._begin()
        if os.path.exists(self.path("final.raw")):
            self.log(f"{self.path('final.raw')} is there already")
            return Nnet.read(self.path("final.raw"))
        make_network(self.options, self.path("0.raw"), self.path("lda.mat"), self.log)
        nnet = Nnet.read(self.path("0.raw"))
        make_examples(self.options, nnet, self.path("egs"), self.log)
        with CtrlC() as ctrl_c:
            self._train(nnet, ctrl_c)
        return self._finish()

    def _begin(self) -> None:
        """Print the settings, and compare them with those of a run before."""
        settings = dataclasses.asdict(self.options)
        for name, value in settings.items():
            self.log(f"  {name.replace('_', '-')}: {value}")
        keep_settings(self.options.dir, settings)

    # Training

    def _train(self, nnet: Nnet, ctrl_c: CtrlC) -> None:
        options = self.options
        store = ExampleStore(self.path("egs"), "train")
        trainer = NnetTrainer(options.trainer(), nnet, self.place, options.seed, self.log)
        epoch, done = self._resume(trainer)
        last_saved = time.monotonic()
        while epoch < options.epochs:
            start = time.monotonic()
            self._set_dropout(trainer, epoch / options.epochs)
            batches = self._minibatches(store, epoch, self.progress)
            for place, example in enumerate(batches):
                share = (epoch + place / max(self._count(store), 1)) / options.epochs
                # Also where nothing is left to do: the model of the epoch holds its last rate.
                trainer.set_learning_rate(options.learning_rate(min(share, 1.0)))
                if place < done:
                    continue
                try:
                    trainer.train(example)
                except OpscopeError as error:
                    raise type(error)(f"epoch {epoch + 1}, minibatch {place}: {error}") from error
                if (
                    ctrl_c.pressed
                    or time.monotonic() - last_saved > 60 * options.checkpoint_minutes
                ):
                    self._save(trainer, epoch, place + 1)
                    last_saved = time.monotonic()
                if ctrl_c.pressed:
                    self.log(f"Wrote {self.path(CHECKPOINT)}: the same training goes on from there")
                    raise KeyboardInterrupt
            epoch = epoch + 1
            done = 0
            trainer.store()
            self._end_epoch(trainer, epoch, time.monotonic() - start)
            self._save(trainer, epoch, 0)
            last_saved = time.monotonic()
        for line in trainer.max_change.lines():
            self.log(line)

    def _count(self, store: ExampleStore) -> int:
        """About how many minibatches an epoch has."""
        sizes = next(iter(MinibatchRule(self.options.minibatch).rules.values()))
        return math.ceil(len(store) / sizes.largest)

    def _minibatches(
        self, store: ExampleStore, epoch: int, shown: bool = False
    ) -> Iterator[NnetExample]:
        """The minibatches of an epoch, in an order that depends on seed and epoch alone."""
        order = np.random.default_rng([self.options.seed, epoch]).permutation(len(store))
        merger = ExampleMerger(MinibatchRule(self.options.minibatch))
        merged = merger.merge(store[number] for number in order.tolist())
        entries: Any = merged
        if shown:
            from tqdm import tqdm

            title = f"epoch {epoch + 1}/{self.options.epochs}"
            entries = tqdm(merged, title, self._count(store), leave=False, dynamic_ncols=True)
        for _, example in entries:
            yield example

    def _set_dropout(self, trainer: NnetTrainer, share: float) -> None:
        proportion = self.options.dropout(share)
        if proportion is not None:
            trainer.set_dropout_proportion(proportion)

    def _end_epoch(self, trainer: NnetTrainer, epoch: int, seconds: float) -> None:
        """Write the model of an epoch, and log how good it is."""
        info = trainer.objectives.get("output")
        row: dict[str, float] = {"epoch": epoch}
        if info is not None:
            weight, value = info.weight - self._seen[0], info.objective - self._seen[1]
            self._seen = info.weight, info.objective
            row["loss"] = -ratio(value, weight)
        for part, prefix in (("diagnostic", ""), ("valid", EVAL_PREFIX)):
            if ExampleStore.is_there(self.path("egs"), part):
                prob = self._judge(trainer.nnet, part)
                if prefix:
                    row[f"{prefix}loss"] = -prob.objective_per_frame()
                row[f"{prefix}accuracy"] = prob.accuracy_of()
        row["seconds"] = round(seconds, 3)
        self.history.rows.append(row)
        trainer.nnet.write(self.path(f"{epoch}.raw"))
        self.log(" ".join(f"{name} {number(value)}" for name, value in row.items()))
        self.history.to_csv(self.path("history.csv"))
        try:
            self.history.plot(self.path("history.png"))
        except OpscopeError as error:
            if "matplotlib" not in str(error):
                raise

    def _judge(self, nnet: Nnet, part: str) -> NnetComputeProb:
        """Objective and accuracy on held-out examples or some of the training."""
        nnet = nnet.copy()
        adjust.set_batchnorm_test_mode(nnet, True)
        adjust.set_dropout_test_mode(nnet, True)
        prob = NnetComputeProb(nnet, place=self.place)
        for example in self._examples(part):
            prob.compute(example)
        return prob

    def _examples(self, part: str) -> list[NnetExample]:
        """All examples of a part, in minibatches."""
        store = ExampleStore(self.path("egs"), part)
        merger = ExampleMerger(MinibatchRule("1:64"))
        return [merged for _, merged in merger.merge(store[i] for i in range(len(store)))]

    # Checkpoints

    def _save(self, trainer: NnetTrainer, epoch: int, done: int) -> None:
        """Write all that a resumed training needs, in place of what was there."""
        state = {
            "epoch": epoch,
            "done": done,
            "trainer": trainer.state(),
            "history": self.history.rows,
            "seen": self._seen,
        }
        metadata = {"opscope.nnet3": _FORMAT, "opscope.state": json.dumps(state)}
        with atomic_file(self.path(CHECKPOINT)) as file:
            write_tensors(file, trainer.arrays(), metadata)

    def _resume(self, trainer: NnetTrainer) -> tuple[int, int]:
        """Go on from a checkpoint, if there is one: the epoch, and how many of its minibatches are
        done."""
        path = self.path(CHECKPOINT)
        if not os.path.exists(path):
            return 0, 0
        file = TensorFile(path)
        if file.metadata.get("opscope.nnet3") != _FORMAT:
            raise FormatError(f"{path}: no checkpoint of this format")
        what = f"{path}: its state"
        state = record(json_value(file.metadata.get("opscope.state", ""), what), _State, what)
        self.history.rows = [dict[str, float](row) for row in state.history]
        self._seen = state.seen
        trainer.restore(state.trainer, {name: file.read(name) for name in file}, what)
        self.log(f"Going on from {path}: epoch {state.epoch + 1}, minibatch {state.done}")
        return state.epoch, state.done

    # End

    def _finish(self) -> Nnet:
        """The final network: the mean of the last epochs' that does best."""
        options = self.options
        count = min(options.average_last, options.epochs)
        names = [self.path(f"{options.epochs - i}.raw") for i in range(count)]
        part = "valid" if ExampleStore.is_there(self.path("egs"), "valid") else "diagnostic"
        if count > 1:
            store = ExampleStore(self.path("egs"), "train")
            some = itertools.islice(self._minibatches(store, options.epochs), _STATS_MINIBATCHES)
            models = (Nnet.read(name) for name in names)
            valid = self._examples(part)
            nnet = combine(models, count, valid, self.log, stats_examples=some)
        else:
            nnet = Nnet.read(names[0])
        nnet.write(self.path("final.raw"))
        prob = self._judge(nnet, part)
        prob.print_total_stats(self.log)
        self.log(f"Wrote {self.path('final.raw')}")
        return nnet
