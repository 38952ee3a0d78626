"""Training an nnet3 network from features and targets to the final model, in one go.

    recipe = Nnet3Recipe(RecipeOptions(feats="ark:feats.ark", targets="ark:ali.ark",
                                       network="net.xconfig", dir="exp"))
    recipe.run()

The folder `exp` gets `egs/` (examples), `0.raw` (the initial network), `EPOCH.raw`, `final.raw`,
`history.csv`, `history.png`, and `train.checkpoint`, from which a run that was cut off goes on as
if nothing had happened. What is there already is not made again.
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

from ...framework.base.atomic import atomic_file, write_atomically
from ...framework.base.backend import Place
from ...framework.base.errors import AttributeTypeError, FormatError, OpscopeError, SaveError
from ...framework.files.tensor_file import TensorFile, write_tensors
from ...nnet3.egs.merging import ExampleMerger, MinibatchRule
from ...nnet3.files.examples import NnetExample
from ...nnet3.network import adjust
from ...nnet3.network.nnet import Nnet
from ...nnet3.training import NnetTrainer, NnetTrainerOptions
from ...nnet3.training.combination import combine
from ...nnet3.training.compute_prob import NnetComputeProb
from ...nnet3.training.progress import Log, number, ratio
from ..train.history import EVAL_PREFIX, History
from .nnet3_data import ExampleStore, make_examples, make_network

CHECKPOINT = "train.checkpoint"
_FORMAT = "1"
_STATS_MINIBATCHES = 50
"""Of the training, from which a mean of networks gets its statistics."""


@dataclass(frozen=True)
class RecipeOptions:
    """All settings of a training.

    Attributes:
        feats, targets: rspecifiers; targets are class ids, posteriors or matrices, by utterance.
        network: an xconfig, a config, or a raw network to go on training.
        dir: the folder of the experiment.
        ivectors, online_ivector_period: rspecifier of iVectors, and frames between two of them.
        num_frames: chunk lengths, as `--num-frames` of nnet3-get-egs.
        chunk_left_context, chunk_right_context: frames besides those that the network needs;
            recurrent networks learn from them.
        frame_subsampling_factor: input frames for one frame of targets.
        valid_utterances: how many utterances, drawn at random, are held out.
        epochs, minibatch: passes over the data; examples in a minibatch, as `--minibatch-size`.
        initial_lr, final_lr: the learning rate falls exponentially from one to the other.
        momentum, max_param_change, l2_regularize_factor: see `NnetTrainerOptions`.
        backstitch_training_scale, backstitch_training_interval: see there, too.
        dropout_schedule: `PROPORTION@SHARE,...`: the dropout proportion at shares of the training,
            linear between them; changed with each epoch.
        average_last: of how many epochs the models may be averaged at the end: as many of the last
            ones as do best on held-out examples.
        checkpoint_minutes: time between checkpoints, besides those after each epoch.
        seed: of all that is random.
        skip_nan: pass over utterances with NaN, in place of refusing.
    """

    feats: str
    targets: str
    network: str
    dir: str
    ivectors: str = ""
    online_ivector_period: int = 1
    num_frames: str = "8"
    chunk_left_context: int = 0
    chunk_right_context: int = 0
    frame_subsampling_factor: int = 1
    valid_utterances: int = 30
    epochs: int = 4
    minibatch: str = "64,1:32"
    initial_lr: float = 0.002
    final_lr: float = 0.002
    momentum: float = 0.0
    max_param_change: float = 2.0
    l2_regularize_factor: float = 1.0
    backstitch_training_scale: float = 0.0
    backstitch_training_interval: int = 1
    dropout_schedule: str = ""
    average_last: int = 2
    checkpoint_minutes: float = 5.0
    seed: int = 0
    skip_nan: bool = False

    def __post_init__(self) -> None:
        positive = ("epochs", "average_last", "online_ivector_period", "initial_lr", "final_lr")
        for name in positive:
            if not getattr(self, name) > 0:
                raise AttributeTypeError(f"{name}={getattr(self, name)} must be positive")
        MinibatchRule(self.minibatch)
        self.trainer()
        self.dropout(0.0)

    def trainer(self) -> NnetTrainerOptions:
        """The settings of the trainer."""
        names = {field.name for field in dataclasses.fields(NnetTrainerOptions)}
        given = {name: value for name, value in vars(self).items() if name in names}
        return NnetTrainerOptions(**given)

    def learning_rate(self, share: float) -> float:
        """The learning rate after a share of the training."""
        return self.initial_lr * (self.final_lr / self.initial_lr) ** share

    def dropout(self, share: float) -> float | None:
        """The dropout proportion after a share of the training; None = as in the network.

        Raises:
            AttributeTypeError: the schedule cannot be understood.
        """
        if not self.dropout_schedule:
            return None
        points = []
        for word in self.dropout_schedule.split(","):
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
        self.options, self.place, self.log, self.progress = options, place, log, progress
        self.history = History()
        self._seen = (0.0, 0.0)  # weight and objective of all epochs that are over

    def path(self, *names: str) -> str:
        """A file of the experiment."""
        return os.path.join(self.options.dir, *names)

    def run(self) -> Nnet:
        """Do all that is not done yet; returns the final network.

        Raises:
            OpscopeError: bad input; a file cannot be written; the folder holds another experiment.
        """
        self._begin()
        if os.path.exists(self.path("final.raw")):
            self.log(f"{self.path('final.raw')} is there already")
            return Nnet.read(self.path("final.raw"))
        make_network(self.options, self.path("0.raw"), self.path("lda.mat"), self.log)
        nnet = Nnet.read(self.path("0.raw"))
        make_examples(self.options, nnet, self.path("egs"), self.log)
        self._train(nnet)
        return self._finish()

    def _begin(self) -> None:
        """Print the settings, and compare them with those of a run before."""
        settings = dataclasses.asdict(self.options)
        for name, value in settings.items():
            self.log(f"  {name.replace('_', '-')}: {value}")
        text = json.dumps(settings, indent=1) + "\n"
        try:
            os.makedirs(self.path("egs"), exist_ok=True)
            with open(self.path("settings.json"), encoding="utf-8") as file:
                before = json.loads(file.read())
        except FileNotFoundError:
            write_atomically(self.path("settings.json"), text.encode())
            return
        except (OSError, ValueError) as error:
            raise SaveError(f"{self.path('settings.json')}: {error}") from None
        changed = [name for name, value in settings.items() if before.get(name) != value]
        if changed:
            listed = ", ".join(f"{name} (was {before.get(name)!r})" for name in changed)
            raise SaveError(f"{self.options.dir} holds a training with other settings: {listed}")

    # Training

    def _train(self, nnet: Nnet) -> None:
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
                if place < done:
                    continue
                share = (epoch + place / max(self._count(store), 1)) / options.epochs
                trainer.set_learning_rate(options.learning_rate(min(share, 1.0)))
                try:
                    trainer.train(example)
                except OpscopeError as error:
                    raise type(error)(f"epoch {epoch + 1}, minibatch {place}: {error}") from error
                if time.monotonic() - last_saved > 60 * options.checkpoint_minutes:
                    self._save(trainer, epoch, place + 1)
                    last_saved = time.monotonic()
            epoch, done = epoch + 1, 0
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
        """Write the model of an epoch, and what can be said of it."""
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
        try:
            state = json.loads(file.metadata["opscope.state"])
            self.history.rows = list(state["history"])
            self._seen = float(state["seen"][0]), float(state["seen"][1])
            position = int(state["epoch"]), int(state["done"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: damaged: {error!r}") from None
        trainer.restore(state["trainer"], {name: file.read(name) for name in file})
        self.log(f"Going on from {path}: epoch {position[0] + 1}, minibatch {position[1]}")
        return position

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
