"""HCLG.fst made anew: of what the old one has, new words and a grammar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.algorithms.symbols import add_self_loops, sort_by
from ...kaldi.fst.fst import Fst
from ..fst.graph import StaticGraph
from ..graph_making.steps import Expansion, static_graph
from ..lexicon.lexicon_fst import LabeledEntries, Silence, disambiguation, lexicon_fst
from ..pronunciation.known import spelled_words
from .addition import COMMON_SILENCE, Adapted, GraphModel, Spelled
from .contexts import Pair, graph_contexts
from .junctions import loop_scale

Row = tuple[int, tuple[int, ...]]
"""A word and its phones."""
_SILENCE = 0.5
"""The probability of silence between words that Kaldi's lexicons have where nothing else is said:
weights were pushed through the old graph, which does not tell its own."""


def remade(model: GraphModel, spelled: Spelled, grammar: Fst, backoff: int) -> tuple[Fst, Adapted]:
    """A static graph of a model's words and new ones.

    Args:
        model: its graph is static. grammar: of numbers of words. backoff: the label of its arcs to
            shorter histories.

    Returns:
        The graph, and what is new in it; the weight there is 0.

    Raises:
        FormatError: the phones of the model's words, or its contexts, cannot be seen; or the graph
            goes beyond the limit `graph`.
    """
    name = model.graph_folder / "HCLG.fst"
    assert isinstance(model.graph, StaticGraph)
    fst = model.graph.fst
    ids = model.transitions
    transitions = TransitionModel.read_from(Reader(str(model.network_path)))
    tree, seen = model_tree(model, transitions)
    words = sorted({*spelled_words(model), *spelled.rows})
    costs = {}
    for row, entry in zip(spelled.rows, spelled.entries, strict=True):
        if entry.silence is not None:
            raise FormatError(f"{entry.place}: {COMMON_SILENCE}")
        costs[row] = -math.log(entry.probability)
    free = max(ids.phone) + 1
    numbers = disambiguation([phones for _, phones in words])
    last = free + max(numbers, default=0) + 1
    silence = _silence(model, fst)
    lexicon = lexicon_fst(
        _labeled(words, [free + number if number else 0 for number in numbers], costs),
        Silence(silence, last, _SILENCE if silence else 0.0),
    )
    lexicon = sort_by(add_self_loops(lexicon, [free], [backoff]), "olabel")
    expansion = Expansion(tree, transitions, list(range(free, last + 1)))
    loops = np.flatnonzero(np.array(ids.is_loop)[fst.ilabel])
    expansion.self_loop_scale = loop_scale(
        fst.weight[loops], expansion.hmms.cost[fst.ilabel[loops]]
    )
    try:
        graph, _ = static_graph(lexicon, grammar, expansion)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error
    inside = {pair for _, phones in spelled.rows for pair in pairwise(phones)}
    return graph, spelled.adapted(sorted(inside - seen) if seen else [], 0.0)


def model_tree(
    model: GraphModel, transitions: TransitionModel
) -> tuple[ContextDependency, frozenset[Pair]]:
    """The decision tree, of a file or read back from the graph; the pairs of phones that it was
    read from.

    Raises:
        FormatError: there is no file, and the contexts in the graph are wider than one phone.
    """
    path = model.network_path.parent / "tree"
    if path.is_file():
        return ContextDependency.read(Reader(str(path))), frozenset()
    graph = model.graph
    fst, name = (
        (graph.fst, "HCLG.fst") if isinstance(graph, StaticGraph) else (graph.first, "HCLr.fst")
    )
    try:
        contexts = graph_contexts(fst, model.transitions, transitions)
    except FormatError as error:
        raise FormatError(
            f"{model.graph_folder / name}: {error}; {path}, which would tell them, is missing"
        ) from error
    return contexts.tree, contexts.seen


def _silence(model: GraphModel, fst: Fst) -> int:
    """The phone that may stand between words; 0: there is none."""
    lexicon = model.lexicon
    for phones in lexicon.words.get(0, ()) if lexicon is not None else ():
        if len(phones) == 1:
            return phones[0]
    if model.boundaries is None:
        return 0
    between = np.array([kind == "nonword" for kind in model.boundaries.kinds])
    phone = np.array(model.transitions.phone)[fst.ilabel]
    counts = bincount(phone[(fst.olabel == 0) & between[phone]], minlength=1)
    return int(counts.argmax()) if counts.any() else 0


def _labeled(
    words: Sequence[Row], symbols: Iterable[int], costs: Mapping[Row, float]
) -> LabeledEntries:
    """Pronunciations that end in a disambiguation symbol each, where it is above 0; those without
    costs have the probability 1."""
    rows = [
        (word, (*phones, symbol) if symbol else phones)
        for (word, phones), symbol in zip(words, symbols, strict=True)
    ]
    lengths = np.array([len(phones) for _, phones in rows], np.int64)
    return LabeledEntries(
        np.array([word for word, _ in rows], np.int64),
        np.array([phone for _, phones in rows for phone in phones], np.int64),
        lengths,
        np.array([costs.get(row, 0.0) for row in words]),
    )
