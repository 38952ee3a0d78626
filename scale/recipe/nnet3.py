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
import os
import time

from ...framework.base.backend import Place
from ...framework.base.errors import OpscopeError
from ...framework.training.folder_lock import folder_lock
from ...framework.training.history import EVAL_PREFIX, History
from ...nnet3.egs.epochs import EpochTraining
from ...nnet3.egs.merging import ExampleMerger, MinibatchRule
from ...nnet3.egs.store import ExampleStore
from ...nnet3.files.examples import NnetExample
from ...nnet3.network import adjust
from ...nnet3.network.nnet import Nnet
from ...nnet3.training import NnetTrainer
from ...nnet3.training.combination import combine
from ...nnet3.training.compute_prob import NnetComputeProb
from ...nnet3.training.progress import Log
from .experiment import keep_settings, make_folder
from .nnet3_data import make_examples, make_network
from .nnet3_options import RecipeOptions

_DRAWN_EVERY = 20.0
"""Seconds between two pictures of a history: drawing one takes as long as a small epoch."""
_STATS_MINIBATCHES = 50
"""Of the training, from which a mean of networks gets its statistics."""


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
        training = _Epochs(self, nnet)
        self.history = training.history
        training.run()
        return self._finish(training)

    def _begin(self) -> None:
        """Print the settings, and compare them with the settings of a run before."""
        settings = dataclasses.asdict(self.options)
        for name, value in settings.items():
            self.log(f"  {name.replace('_', '-')}: {value}")
        keep_settings(self.options.dir, settings)

    def judge(self, nnet: Nnet, part: str) -> NnetComputeProb:
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

    # End

    def _finish(self, training: EpochTraining) -> Nnet:
        """The final network: the mean of the last epochs' that does best."""
        options = self.options
        count = min(options.average_last, options.epochs)
        names = [self.path(f"{options.epochs - i}.raw") for i in range(count)]
        part = "valid" if ExampleStore.is_there(self.path("egs"), "valid") else "diagnostic"
        if count > 1:
            some = itertools.islice(training.minibatches(options.epochs), _STATS_MINIBATCHES)
            models = (Nnet.read(name) for name in names)
            valid = self._examples(part)
            nnet = combine(models, count, valid, self.log, stats_examples=some)
        else:
            nnet = Nnet.read(names[0])
        nnet.write(self.path("final.raw"))
        prob = self.judge(nnet, part)
        prob.print_total_stats(self.log)
        self.log(f"Wrote {self.path('final.raw')}")
        return nnet


class _Epochs(EpochTraining):
    """The epochs of a recipe."""

    def __init__(self, recipe: Nnet3Recipe, nnet: Nnet) -> None:
        options = recipe.options
        store = ExampleStore(recipe.path("egs"), "train")
        trainer = NnetTrainer(options.trainer(), nnet, recipe.place, options.seed, recipe.log)
        super().__init__(trainer, store, options.dir, options, recipe.log, recipe.progress)
        self._recipe = recipe
        self._drawn = time.monotonic()

    def begin_epoch(self, share: float) -> None:
        """See `EpochTraining`."""
        proportion = self._recipe.options.dropout(share)
        if proportion is not None:
            self.trainer.set_dropout_proportion(proportion)

    def judged(self) -> dict[str, float]:
        """See `EpochTraining`."""
        row = {}
        for part, prefix in (("diagnostic", ""), ("valid", EVAL_PREFIX)):
            if ExampleStore.is_there(self._recipe.path("egs"), part):
                prob = self._recipe.judge(self.trainer.nnet, part)
                if prefix:
                    row[f"{prefix}loss"] = -prob.objective_per_frame()
                row[f"{prefix}accuracy"] = prob.accuracy_of()
        return row

    def end_epoch(self) -> None:
        """See `EpochTraining`."""
        now = time.monotonic()
        is_last = len(self.history.rows) >= self._options.epochs
        if not is_last and now - self._drawn < _DRAWN_EVERY:
            return
        self._drawn = now
        try:
            self.history.plot(self.path("history.png"))
        except OpscopeError as error:
            if "matplotlib" not in str(error):
                raise
