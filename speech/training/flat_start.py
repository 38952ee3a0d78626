"""Training from nothing but texts: end-to-end LF-MMI over the graphs of whole utterances.

Source: Kaldi's `steps/nnet3/chain/e2e/prepare_e2e.sh`, `get_egs_e2e.sh`, `train_e2e.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.files.atomic import write_atomically
from ...kaldi.files.context_dependency import ContextDependency, new_transition_model
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.fst.files.fst_io import read_fst
from ...kaldi.tables.tables import TableWriter
from ...nnet3.chain.graphs.training_graph import TrainingGraphCompiler, linear
from ...nnet3.chain.supervisions.chunks import normalized
from ...nnet3.chain.supervisions.supervision import Supervision
from ...nnet3.egs.chain_end_to_end import least_supervision, whole_example
from ...nnet3.egs.splitting import ExampleGenerationOptions
from ...nnet3.network.nnet import Nnet
from ...nnet3.programs.base.options import shown as progress
from ...nnet3.training.progress import Log
from ..fst.graph_folder import read_labels
from ..fst.words import Words
from ..lattice.align_lexicon import AlignLexicon
from ..trees.questions import read_phone_sets
from ..trees.stubs import PhoneCounts, biphone_tree, monophone_tree
from . import chain
from .checking import Recorded
from .options import SUBSAMPLING, RecognizerOptions
from .preparing import read_features

_CLASSES = 2  # of outputs of a phone: its first frame, and the others
_MANY = 1  # count above which a phone's rare pairs share outputs of its own
_SILENCE_INSIDE, _SILENCE_AT_EDGES = 0.1, 0.8
_KEPT = 1000  # supervisions, which recordings of one text share, whatever their lengths


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
    """Write what `chain.write_outputs` does, and `graphs.ark` with a graph for each different text,
    whose key is its number in `texts.txt`.

    Raises:
        FormatError: a word has no pronunciation. SaveError: a file cannot be written.
    """
    phones = Phones(lang)
    texts = list(dict.fromkeys(each.text for each in utterances))
    labels = {text: phones.labels(text.split()) for text in texts}
    rng = np.random.default_rng(options.seed)
    sequences = [
        phones.drawn(labels[each.text], rng) for _ in range(options.copies) for each in utterances
    ]
    tree = _tree(phones, sequences[: len(utterances)], options)
    topology = Reader(os.path.join(lang, "topo"), binary=False)
    model = new_transition_model(tree, topology)
    chain.write_outputs(tree, model, sequences, folder, log)
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
        (),
        left_context=left + max(chain.SHIFTS),
        right_context=right - min(chain.SHIFTS),
        frame_subsampling_factor=SUBSAMPLING,
    )
    transitions = chain.read_transitions(graphs).transitions()
    graph_of = chain.graph_of_texts(graphs)
    weights = chain.read_normalization(graphs)

    @lru_cache(_KEPT)
    def supervision(text: str) -> Supervision | None:
        """Of as few output frames as the text has room in. None: no path is left of it."""
        try:
            return normalized(least_supervision(graph_of[text], transitions), weights)
        except ShapeError:
            return None

    text_of = chain.text_of_copies(utterances, copies)
    failed = 0
    with chain.example_writer(folder) as writer:
        for key, matrix in progress(read_features(features), "examples", "utterances"):
            frames = matrix.shape[0]
            count = frames // SUBSAMPLING
            known = supervision(text_of[key])
            if known is None or known.frames_per_sequence > count:
                log(f"{key}: no path of its text fits into {frames} frames")
                failed += 1
                continue
            known = replace(known, frames_per_sequence=count)
            writer.write(key, whole_example(matrix, known, cutting, frames))
        done = writer.count
    if not done:
        raise ShapeError("no utterance is long enough for its text")
    log(f"{done} examples; {failed} utterances are too short for their texts")
