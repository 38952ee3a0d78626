"""What words cost in a look-ahead graph, read back from their paths."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount, repeated
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.graphs.hmms import PhoneHmms
from ..fst.graph import LookaheadGraph, NextLabels
from ..lexicon.entries import Entry
from ..pronunciation.graph_lexicon import word_paths
from ..pronunciation.known import base_names
from .addition import GraphModel
from .contexts import graph_contexts
from .grammar import Unigrams
from .junctions import Junctions


def own_entries(model: GraphModel, words: Collection[str]) -> list[Entry]:
    """The pronunciations of some of a model's words, with the probabilities that they have there.

    Words of a graph whose words share one probability of silence have no `silence`; elsewhere only
    the products of `probability` and the corrections are what the graph tells. Words that
    were joined to the graph later are not told from those that share it.

    Raises:
        FormatError: the graph has one part, or where words begin and end in it cannot be seen.
    """
    boundaries, ids = model.boundaries, model.transitions
    if boundaries is None or not isinstance(model.graph, LookaheadGraph):
        raise FormatError(f"{model.path}: HCLr.fst and {model.word_files[0]} are wanted")
    first = model.graph.first
    unigrams = Unigrams(model.graph.second, str(model.graph_folder / "Gr.fst"))
    texts = {unigrams.label(model.words.find(word) or 0): word for word in words}
    transitions = TransitionModel.read_from(Reader(str(model.network_path)))
    contexts = graph_contexts(first, ids, transitions)
    hmms = PhoneHmms(contexts.tree, transitions)
    parts = Junctions(first, ids, transitions, hmms, boundaries, contexts)
    names = base_names(model, boundaries)
    costs = first.weight - parts.leave[contexts.source] - parts.inside[contexts.label]
    labels = np.array([label for label in texts if label])
    only = labels, _leads_to(model.graph.following, labels)
    found: list[dict[tuple[int, ...], tuple[float, int]]] = []
    for silent in (False, True):
        known: dict[tuple[int, ...], tuple[float, int]] = {}
        at = np.flatnonzero(parts.after_silence == silent)
        if len(at):
            begin = int(parts.entries[at[0]])
            base = parts.base[at[0]] - parts.leave[begin]
            paths = word_paths(first, ids, boundaries, begin, costs, only)
            rows = paths.rows().tolist()
            for row, cost, state in zip(rows, paths.cost, paths.state, strict=True):
                least = known.get(tuple(row), (np.inf, 0))
                known[tuple(row)] = min(least, (float(cost - base), int(state)))
        found.append(known)
    loud, quiet = found
    entries = []
    for row, (cost, state) in (loud or quiet).items():
        label, *phones = row
        after = quiet.get(row, (cost, state))[0]
        silence = parts.silence_after(state)
        probability = min(1.0, float(np.exp(-cost)))
        quietly, loudly = (float(np.exp(-each)) / probability for each in (after, cost))
        spelled = tuple(names[phone] for phone in phones if phone)
        own = None if silence is None else (silence, quietly, loudly)
        entries.append(Entry(texts[label], spelled, str(model.graph_folder), probability, own))
    return entries


def _leads_to(following: NextLabels, labels: np.ndarray) -> np.ndarray:
    """Whether one of some labels can come next from each state."""
    sets, begin, intervals = following
    first, end = np.searchsorted(np.sort(labels), intervals.T)
    owner = repeated(np.arange(len(begin) - 1), np.diff(begin))
    return (bincount(owner[first < end], minlength=len(begin) - 1) > 0)[sets]
