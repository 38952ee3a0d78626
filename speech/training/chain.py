"""What both passes of LF-MMI share: outputs and denominator graph, epochs, the acoustic model."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...framework.base.files.atomic import make_folder_of, write_atomically
from ...framework.base.untrusted.opener import read_text
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.algorithms.acceptors import Matcher
from ...kaldi.fst.files.fst_io import read_fst
from ...kaldi.fst.fst import Fst
from ...kaldi.tables.specifiers import WriteSpecifier
from ...kaldi.tables.tables import TableWriter, read_table
from ...nnet3.chain.denominator import DenominatorGraph
from ...nnet3.chain.graphs.denominator_fst import denominator_fst, normalization_fst
from ...nnet3.chain.graphs.phone_lm import PhoneLanguageModel, PhoneLmOptions
from ...nnet3.chain.objective import ChainOptions
from ...nnet3.egs.chain_changes import ChainExampleMerger, selected, shifted
from ...nnet3.egs.epochs import EpochTraining
from ...nnet3.egs.merging import MinibatchRule
from ...nnet3.egs.selecting import span
from ...nnet3.egs.store import ExampleStore
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ...nnet3.programs.base.graphs import save_fst
from ...nnet3.programs.base.saving import write_model
from ...nnet3.training import NnetTrainer, NnetTrainerOptions
from ...nnet3.training.chain_objectives import ChainObjectives
from ...nnet3.training.chain_prob import NnetChainComputeProb
from ...nnet3.training.chain_request import XENT
from ...nnet3.training.combination import combine
from ...nnet3.training.progress import Log
from ...nnet3.training.schedule import halved
from .checking import Recorded
from .networks import XENT_SCALE
from .options import SUBSAMPLING, RecognizerOptions
from .preparing import copy_key

SHIFTS = (-1, 0, 1)
"""Frames by which the input of an example is shifted: over three epochs a network sees all of
them, though it computes an output for every third one."""
_KIND = "chain_example"
_PART = "train"
_OBJECTIVE = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=5e-5)
_FIRST_FRAMES = 1_000_000
"""Frames of features that a network from nothing reads, in its first epoch, in smaller steps."""
_JUDGED = 200  # examples over which models are compared


def write_outputs(
    tree: ContextDependency,
    model: TransitionModel,
    sequences: Iterable[Iterable[int]],
    folder: str,
    log: Log,
) -> None:
    """Write `tree`, `transitions.mdl`, `den.fst` and `normalization.fst`.

    Args:
        sequences: the phones of utterances, of which the language model of phones is made.

    Raises:
        SaveError: a file cannot be written.
    """
    lm = PhoneLanguageModel(PhoneLmOptions(num_extra_lm_states=2000), log)
    for sequence in sequences:
        lm.add(sequence)
    quiet: list[str] = []
    den = denominator_fst(tree, model, lm.estimate(), log, quiet.append)
    outputs = model.transitions().num_pdfs
    log(f"{outputs} outputs, {len(quiet)} of them not in training")
    write_model(tree, os.path.join(folder, "tree"), True)
    write_model(model, os.path.join(folder, "transitions.mdl"), True)
    save_fst(den, os.path.join(folder, "den.fst"))
    save_fst(normalization_fst(den, outputs), os.path.join(folder, "normalization.fst"))


def read_transitions(graphs: str) -> TransitionModel:
    """The transition model of `write_outputs`."""
    return TransitionModel.read_from(Reader(os.path.join(graphs, "transitions.mdl")))


def read_tree(graphs: str) -> ContextDependency:
    """The tree of `write_outputs`."""
    return ContextDependency.read(Reader(os.path.join(graphs, "tree")))


def read_normalization(graphs: str) -> Matcher:
    """The normalization FST of `write_outputs`."""
    return Matcher(_graph_in(graphs, "normalization.fst"))


def _graph_in(folder: str, name: str) -> Fst:
    return read_fst(Reader(os.path.join(folder, name), binary=None))


def graph_of_texts(graphs: str) -> dict[str, Fst]:
    """The graph of transition-ids of each text, see `flat_start.write_graphs`."""
    texts = read_text(os.path.join(graphs, "texts.txt")).splitlines()
    fsts = dict(read_table(f"ark:{os.path.join(graphs, 'graphs.ark')}", "fst"))
    return {text: fsts[str(number)] for number, text in enumerate(texts)}


def text_of_copies(utterances: Sequence[Recorded], copies: int) -> dict[str, str]:
    """The text of each copy of the utterances, by its key."""
    return {copy_key(each.key, copy): each.text for each in utterances for copy in range(copies)}


def example_writer(folder: str) -> TableWriter:
    """Writes `train.ark` and `train.scp`, the examples of a folder."""
    ark, scp = (os.path.join(folder, f"{_PART}.{ending}") for ending in ("ark", "scp"))
    return TableWriter(WriteSpecifier(ark, scp), _KIND)


class ChainTraining(EpochTraining):
    """Trains a network by LF-MMI, with cross-entropy where it has a branch for that.

    Args:
        examples: folder of them. graphs: that of `write_outputs`. network: the first one.
            They have as many frames of context besides those that it reads as `SHIFTS` takes.
        folder: gets the models.
    """

    merger = ChainExampleMerger

    def __init__(
        self,
        examples: str,
        graphs: str,
        network: str,
        folder: str,
        options: RecognizerOptions,
        log: Log,
    ) -> None:
        nnet = Nnet.read(network)
        den = _graph_in(graphs, "den.fst")
        self._graph = DenominatorGraph.of_fst(den, nnet.output_dim("output"))
        has_xent = any(node.name.endswith(XENT) for node in nnet.outputs())
        self._objective = replace(_OBJECTIVE, xent_regularize=XENT_SCALE if has_xent else 0.0)
        self._average = min(options.average_last, options.epochs)
        self._context = nnet.context()
        self._sizes = options.minibatch
        self._from_nothing = not options.base
        settings = NnetTrainerOptions()
        self._bound = settings.max_param_change
        trainer = NnetTrainer(
            settings,
            nnet,
            seed=options.seed,
            log=lambda line: None,
            objective=ChainObjectives(self._graph, self._objective, apply_deriv_weights=False),
        )
        store = ExampleStore(examples, _PART, _KIND)
        # The first stream is that of the epochs' orders.
        mixed, judged = (np.random.default_rng([options.seed, 0, stream]) for stream in (1, 2))
        # Examples lie in turns of their copies: shifts in the same turns would go by the copy.
        self._turns = mixed.permutation(len(store)).tolist()
        self._judged = sorted(judged.permutation(len(store))[:_JUDGED].tolist())
        super().__init__(trainer, store, folder, options, log, sys.stderr.isatty())

    def example(self, number: int, epoch: int) -> Any:
        """See `EpochTraining`. Each epoch has all of the shifts, each example has another one in
        each epoch: were all examples of the last epoch shifted alike, so would the network be.
        Which one does not depend on which copy of an utterance it is."""
        moved = shifted(self.examples[number], SHIFTS[(self._turns[number] + epoch) % len(SHIFTS)])
        # Without more context than the network reads, all shifts are one computation.
        return selected(moved, *self._context)

    def minibatches(self, epoch: int) -> Iterator[Any]:
        """See `EpochTraining`. A network that begins with nothing changes fast at first: until it
        has read `_FIRST_FRAMES`, minibatches have half their size and it may change by less.

        Source: `train_one_iteration` in Kaldi's `chain_objf/acoustic_model.py`.
        """
        sizes = self._sizes
        examples = self.shuffled(epoch)
        if not epoch and self._from_nothing:
            self.trainer.set_max_param_change(self._bound / math.sqrt(2))
            yield from self.merged(_first(examples, _FIRST_FRAMES), halved(sizes))
        self.trainer.set_max_param_change(self._bound)
        yield from self.merged(examples, sizes)

    def combined(self) -> Nnet:
        """The mean of the last epochs' networks that does best."""
        last = len(self.history)
        models = (Nnet.read(self.path(f"{last - i}.raw")) for i in range(self._average))
        merger = ChainExampleMerger(MinibatchRule("16,8,4,2,1"))
        examples = [each for _, each in merger.merge(self.example(i, 0) for i in self._judged)]

        def prob(nnet: Nnet, store_component_stats: bool) -> NnetChainComputeProb:
            return NnetChainComputeProb(
                nnet, self._graph, self._objective, store_component_stats=store_component_stats
            )

        return combine(models, self._average, examples, self.log, make_prob=prob)


def _first(examples: Iterator[Any], frames: int) -> Iterator[Any]:
    """Examples until so many frames of `input` were taken; `examples` has the others then."""
    for example in examples:
        yield example
        first, last = span(example.inputs, "input")
        frames -= last - first + 1
        if frames <= 0:
            return


def write_acoustic_model(nnet: Nnet, graphs: str, folder: str) -> None:
    """Write `final.mdl`, `tree` and `frame_subsampling_factor`, as Kaldi's folders have them."""
    make_folder_of(os.path.join(folder, "tree"))
    transitions = Writer(True, header=False)
    read_transitions(graphs).write_to(transitions)
    model = AmNnetSimple(nnet, transitions.getvalue())
    model.set_context()
    model.write(os.path.join(folder, "final.mdl"))
    write_model(read_tree(graphs), os.path.join(folder, "tree"), True)
    write_atomically(os.path.join(folder, "frame_subsampling_factor"), f"{SUBSAMPLING}\n".encode())
