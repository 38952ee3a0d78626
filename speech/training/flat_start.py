"""Training from nothing but texts: end-to-end LF-MMI over the graphs of whole utterances.

Source: Kaldi's `steps/nnet3/chain/e2e/prepare_e2e.sh`, `get_egs_e2e.sh`, `train_e2e.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...framework.base.atomic import make_folder_of, write_atomically
from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.untrusted.opener import read_text
from ...kaldi.files.context_dependency import ContextDependency, new_transition_model
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.acceptors import Matcher
from ...kaldi.fst.fst_io import read_fst
from ...kaldi.tables.tables import TableWriter, read_table
from ...nnet3.chain.chunks import normalized
from ...nnet3.chain.denominator import DenominatorGraph
from ...nnet3.chain.denominator_fst import denominator_fst, normalization_fst
from ...nnet3.chain.objective import ChainOptions
from ...nnet3.chain.phone_lm import PhoneLanguageModel, PhoneLmOptions
from ...nnet3.chain.training_graph import TrainingGraphCompiler, linear
from ...nnet3.egs.chain_changes import ChainExampleMerger
from ...nnet3.egs.chain_end_to_end import graph_supervision, whole_example
from ...nnet3.egs.epochs import EpochTraining
from ...nnet3.egs.merging import MinibatchRule
from ...nnet3.egs.splitting import ExampleGenerationOptions
from ...nnet3.egs.store import ExampleStore
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ...nnet3.programs.base.graphs import save_fst
from ...nnet3.programs.base.options import shown as progress
from ...nnet3.programs.base.saving import write_model
from ...nnet3.training import NnetTrainer, NnetTrainerOptions
from ...nnet3.training.chain_objectives import ChainObjectives
from ...nnet3.training.chain_prob import NnetChainComputeProb
from ...nnet3.training.combination import combine
from ...nnet3.training.progress import Log
from ...nnet3.xconfig import xconfig_to_config
from ..fst.graph_folder import read_labels
from ..fst.words import Words
from ..lattice.align_lexicon import AlignLexicon
from ..trees.questions import read_phone_sets
from ..trees.stubs import PhoneCounts, biphone_tree, monophone_tree
from .checking import SUBSAMPLING, Recorded
from .options import RecognizerOptions
from .preparing import MOMENTS

KIND = "chain_example"
_CLASSES = 2  # of outputs of a phone: its first frame, and the others
_MANY = 1  # count above which a phone's rare pairs share outputs of its own
_SILENCE_INSIDE, _SILENCE_AT_EDGES = 0.2, 0.8
_OBJECTIVE = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=5e-5)
_JUDGED = 200  # examples over which models are compared
_KEPT = 1000  # supervisions, which recordings of one text and length share
_SIZES = ((1, 256, 15), (10, 512, 10), (100, 1024, 6), (np.inf, 1536, 4))
"""Up to so many hours, with copies: columns of layers and epochs."""


class Phones:
    """Pronunciations of words as phones of a lang folder.

    Args:
        lang: the folder.
    """

    def __init__(self, lang: str) -> None:
        self.words = Words.read(os.path.join(lang, "words.txt"))
        phones = os.path.join(lang, "phones")
        self.silence = read_labels(os.path.join(phones, "optional_silence.int"))[0]
        self.context_free = read_labels(os.path.join(phones, "silence.int"))
        self.sets = read_phone_sets(os.path.join(phones, "sets.int"))
        lexicon = AlignLexicon.read(os.path.join(phones, "align_lexicon.int"))
        self._ways = {word: sorted(ways) for word, ways in lexicon.words.items()}

    def labels(self, words: Sequence[str]) -> list[int]:
        """The labels of words. Raises FormatError: a word has none."""
        found = []
        for word in words:
            label = self.words.find(word)
            if not label:
                raise FormatError(f"the lang folder has no word {word}")
            found.append(label)
        return found

    def drawn(self, labels: Sequence[int], rng: np.random.Generator) -> list[int]:
        """The phones of words, with pronunciations and silences between words drawn at random."""
        phones: list[int] = []
        for at, label in enumerate(labels):
            if rng.random() < (_SILENCE_INSIDE if at else _SILENCE_AT_EDGES):
                phones.append(self.silence)
            ways = self._ways[label]
            phones += ways[int(rng.integers(len(ways)))]
        if rng.random() < _SILENCE_AT_EDGES:
            phones.append(self.silence)
        return phones


def write_graphs(
    utterances: Sequence[Recorded], lang: str, options: RecognizerOptions, folder: str, log: Log
) -> None:
    """Write what LF-MMI is trained with: `tree`, `transitions.mdl`, `den.fst`, `normalization.fst`,
    and `graphs.ark` with a graph for each different text, whose key is its number in `texts.txt`.

    Raises:
        FormatError: a word has no pronunciation. SaveError: a file cannot be written.
    """
    phones = Phones(lang)
    texts = list(dict.fromkeys(each.text for each in utterances))
    labels = {text: phones.labels(text.split()) for text in texts}
    rng = np.random.default_rng(options.seed)
    sequences = [phones.drawn(labels[each.text], rng) for each in utterances]
    tree = _tree(phones, sequences, options)
    topology = Reader(os.path.join(lang, "topo"), binary=False)
    model = new_transition_model(tree, topology)
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
    compiler = TrainingGraphCompiler(
        tree, model, read_fst(Reader(os.path.join(lang, "L.fst"), binary=None))
    )
    with TableWriter(f"ark:{os.path.join(folder, 'graphs.ark')}", "fst") as writer:
        for number, text in enumerate(progress(texts, "graphs", "texts")):
            writer.write(str(number), compiler.compile(linear(labels[text])))
    write_atomically(
        os.path.join(folder, "texts.txt"), "".join(f"{text}\n" for text in texts).encode()
    )


def _tree(
    phones: Phones, sequences: Sequence[Sequence[int]], options: RecognizerOptions
) -> ContextDependency:
    """The tree of monophones, or of pairs of phones that occur often enough."""
    if options.context == "none":
        every = {phone: _CLASSES for group in phones.sets for phone in group}
        return monophone_tree(phones.sets, every)
    alone = set(phones.context_free)
    sets = [left for group in phones.sets if (left := [p for p in group if p not in alone])]
    first = {phone: group[0] for group in phones.sets for phone in group}
    single: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for sequence in sequences:
        mapped = [first[phone] for phone in sequence]
        single.update(mapped)
        pairs.update(zip(mapped, mapped[1:], strict=False))
    counts = PhoneCounts(single, pairs, _MANY, options.min_pairs)
    return biphone_tree(sets, phones.context_free, _CLASSES, counts)


# The network


def write_network(
    graphs: str, features: str, hours: float, options: RecognizerOptions, folder: str
) -> None:
    """Write `0.raw`, the network at the start; its input is brought to mean 0 and deviation 1.

    Raises:
        FormatError: the xconfig of the options is damaged, or its output has another width.
    """
    mean, deviation = Reader(os.path.join(features, MOMENTS)).read_matrix(np.float64)
    scale = np.hstack([np.diag(1 / deviation), (-mean / deviation)[:, None]])
    outputs = _transitions(graphs).transitions().num_pdfs
    if options.network:
        layers = read_text(options.network)
    else:
        layers = _layers(options.width or size_for(hours)[0])
        layers += f"output-layer name=output dim={outputs} include-log-softmax=false\n"
    # A line of an xconfig refuses characters that the name of the user's folder may have.
    with tempfile.TemporaryDirectory() as place:
        matrix = Path(place, "scale.mat").as_posix()
        writer = Writer(True)
        writer.write_matrix(scale.astype(np.float32))
        writer.save(matrix)
        text = (
            f"input dim={len(mean)} name=input\n"
            f"fixed-affine-layer name=scaled affine-transform-file={matrix}\n"
        )
        nnet = Nnet.from_config_text(xconfig_to_config(text + layers), options.seed)
    if nnet.output_dim("output") != outputs:
        raise FormatError(
            f"{options.network}: an output of {nnet.output_dim('output')} columns, {outputs} are"
            " wanted"
        )
    nnet.write(os.path.join(folder, "0.raw"))


def size_for(hours: float) -> tuple[int, int]:
    """Columns of the layers, and epochs, for so many hours."""
    return next((width, epochs) for most, width, epochs in _SIZES if hours <= most)


def _layers(width: int) -> str:
    """A TDNN that looks 14 frames to each side."""
    inputs = ["Append(-1,0,1)", "Append(-1,0,1)", *["Append(-3,0,3)"] * 4]
    return "".join(
        f"relu-batchnorm-layer name=tdnn{number} dim={width} input={each}\n"
        for number, each in enumerate(inputs, 1)
    )


def _transitions(graphs: str) -> TransitionModel:
    return TransitionModel.read_from(Reader(os.path.join(graphs, "transitions.mdl")))


# Examples


def write_examples(
    utterances: Sequence[Recorded],
    graphs: str,
    features: str,
    network: str,
    folder: str,
    log: Log,
    copies: int,
) -> None:
    """Write `train.ark` and `train.scp`: an example for each copy of an utterance.

    Raises:
        ShapeError: no utterance is long enough for its text. SaveError: a file cannot be written.
    """
    left, right = Nnet.read(os.path.join(network, "0.raw")).context()
    cutting = ExampleGenerationOptions(
        (), left_context=left, right_context=right, frame_subsampling_factor=SUBSAMPLING
    )
    transitions = _transitions(graphs).transitions()
    texts = read_text(os.path.join(graphs, "texts.txt")).splitlines()
    fsts = dict(read_table(f"ark:{os.path.join(graphs, 'graphs.ark')}", "fst"))
    graph_of = {text: fsts[str(number)] for number, text in enumerate(texts)}
    weights = Matcher(read_fst(Reader(os.path.join(graphs, "normalization.fst"), binary=None)))

    @lru_cache(_KEPT)
    def supervision(text: str, frames: int) -> Any:
        """None: so many output frames are too few for the text."""
        try:
            return normalized(graph_supervision(graph_of[text], transitions, frames), weights)
        except ShapeError:
            return None

    text_of = {f"{each.key}-{copy + 1}": each.text for each in utterances for copy in range(copies)}
    failed = 0
    table = f"ark,scp:{os.path.join(folder, 'train.ark')},{os.path.join(folder, 'train.scp')}"
    source = read_table(f"ark:{os.path.join(features, 'feats.ark')}", "general_matrix")
    with TableWriter(table, KIND) as writer:
        for key, matrix in progress(source, "examples", "utterances"):
            frames = matrix.shape[0]
            known = supervision(text_of[key], frames // SUBSAMPLING)
            if known is None:
                log(f"{key}: no path of its text fits into {frames} frames")
                failed += 1
                continue
            writer.write(key, whole_example(matrix, known, cutting, frames))
        done = writer.count
    if not done:
        raise ShapeError("no utterance is long enough for its text")
    log(f"{done} examples; {failed} utterances are too short for their texts")


# Training


class FlatStart(EpochTraining):
    """Trains a network on whole utterances.

    Args:
        examples: folder of them. graphs: that of `write_graphs`. network: the first one.
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
        den = read_fst(Reader(os.path.join(graphs, "den.fst"), binary=None))
        self._graph = DenominatorGraph.of_fst(den, nnet.output_dim("output"))
        self._average = min(options.average_last, options.epochs)
        trainer = NnetTrainer(
            NnetTrainerOptions(),
            nnet,
            seed=options.seed,
            log=lambda line: None,
            objective=ChainObjectives(self._graph, _OBJECTIVE, apply_deriv_weights=False),
        )
        store = ExampleStore(examples, "train", KIND)
        super().__init__(trainer, store, folder, options, log, sys.stderr.isatty())

    def combined(self) -> Nnet:
        """The mean of the last epochs' networks that does best."""
        last = len(self.history)
        models = (Nnet.read(self.path(f"{last - i}.raw")) for i in range(self._average))
        some = range(0, len(self.examples), max(len(self.examples) // _JUDGED, 1))
        merger = ChainExampleMerger(MinibatchRule("16,8,4,2,1"))
        examples = [each for _, each in merger.merge(self.examples[i] for i in some)]

        def prob(nnet: Nnet, store_component_stats: bool) -> NnetChainComputeProb:
            return NnetChainComputeProb(
                nnet, self._graph, _OBJECTIVE, store_component_stats=store_component_stats
            )

        return combine(models, self._average, examples, self.log, make_prob=prob)


def write_acoustic_model(nnet: Nnet, graphs: str, folder: str) -> None:
    """Write `final.mdl`, `tree` and `frame_subsampling_factor`, as Kaldi's folders have them."""
    make_folder_of(os.path.join(folder, "tree"))
    transitions = Writer(True, header=False)
    _transitions(graphs).write_to(transitions)
    model = AmNnetSimple(nnet, transitions.getvalue())
    model.set_context()
    model.write(os.path.join(folder, "final.mdl"))
    tree = ContextDependency.read(Reader(os.path.join(graphs, "tree")))
    write_model(tree, os.path.join(folder, "tree"), True)
    write_atomically(os.path.join(folder, "frame_subsampling_factor"), f"{SUBSAMPLING}\n".encode())
