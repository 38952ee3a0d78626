"""From a lexicon and a grammar to decoding graphs: the steps of Kaldi's mkgraph scripts.

Source: Kaldi's `utils/mkgraph.sh`, `utils/mkgraph_lookahead.sh`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.untrusted.limits import limit
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.algorithms.compose import compose
from ...kaldi.fst.algorithms.determinize_star import determinize_star
from ...kaldi.fst.algorithms.label_reachability import make_look_ahead
from ...kaldi.fst.algorithms.local_epsilons import remove_epsilons_locally
from ...kaldi.fst.algorithms.partition import minimize_unpushed
from ...kaldi.fst.algorithms.pushing import push_special
from ...kaldi.fst.algorithms.symbols import SIDES, changed, remove_symbols, sort_by
from ...kaldi.fst.fst import DELTA, Fst
from ...kaldi.graphs.context import Context, GrammarContext, compose_context
from ...kaldi.graphs.h_transducer import h_transducer
from ...kaldi.graphs.hmms import PhoneHmms
from ...kaldi.graphs.self_loops import add_self_loops
from ..fst.grammar_making import prepared

_STATE_BYTES = 256  # that a state takes while a graph is determinized


@dataclass(eq=False)
class Expansion:
    """What turns phones into transitions.

    Attributes:
        tree, model: of the acoustic model. symbols: disambiguation symbols among phones.
        transition_scale: of the probabilities of transitions that leave their state.
        self_loop_scale: of the probabilities of staying in a state or leaving it.
        offset: the phone `#nonterm_bos` of graphs that call each other; 0: there is none.

    Raises:
        FormatError: such graphs want contexts of one phone to the left.
    """

    tree: ContextDependency
    model: TransitionModel
    symbols: list[int]
    transition_scale: float = 1.0
    self_loop_scale: float = 0.1
    offset: int = 0

    def __post_init__(self) -> None:
        if self.offset and (self.tree.width, self.tree.central) != (2, 1):
            raise FormatError(
                "graphs that call each other want a tree for a phone and the one before it, not"
                f" for {self.tree.width} phones, place {self.tree.central}"
            )
        self.hmms = PhoneHmms(self.tree, self.model)

    def check(self, lexicon: Fst, name: str) -> None:
        """Raises FormatError: the lexicon reads labels that are neither phones nor symbols."""
        known = [0, *self.symbols, *self.model.phones]
        strange = np.setdiff1d(lexicon.ilabel, known)
        if self.offset:
            strange = strange[strange < self.offset]
        if len(strange):
            raise FormatError(
                f"{name}: the label {strange[0]} is neither a phone of the model nor a"
                " disambiguation symbol"
            )

    def context(self) -> Context:
        """The contexts of phones, none of which has come up yet."""
        if self.offset:
            return GrammarContext(self.symbols, self.offset)
        return Context(self.symbols, self.tree.width, self.tree.central)

    def transducer(self, context: Context) -> tuple[Fst, list[int]]:
        """H of the contexts that have come up; its disambiguation symbols."""
        scale, offset = self.transition_scale, self.offset
        return h_transducer(context.windows, self.hmms, scale=scale, offset=offset)


def static_graph(lexicon: Fst, grammar: Fst, expansion: Expansion) -> tuple[Fst, list[int]]:
    """HCLG, and the labels that its disambiguation symbols had.

    Raises:
        FormatError: a step goes beyond the limit `graph`, or pronunciations cannot be told apart.
    """
    # Each graph has the same name: none outlives the step that reads it.
    graph = lexicon_and_grammar(lexicon, grammar)
    context = expansion.context()
    graph = compose_context(context, graph)
    hmms, symbols = expansion.transducer(context)
    graph = compose(hmms, graph)
    graph = _determinized(graph, "HCLG", log=True)
    graph = remove_symbols(graph, symbols)
    graph = remove_epsilons_locally(graph)
    graph = minimize_unpushed(graph, DELTA)
    graph = add_self_loops(graph, expansion.hmms, expansion.self_loop_scale)
    return prepared(graph, expansion.offset, "HCLG") if expansion.offset else graph, symbols


def lexicon_and_grammar(lexicon: Fst, grammar: Fst) -> Fst:
    """LG, determinized, minimized, its weights pushed. Raises FormatError: as `static_graph`."""
    graph = compose(lexicon, grammar)
    graph = _determinized(graph, "LG", log=True)
    graph = minimize_unpushed(graph, DELTA)
    graph, _ = push_special(graph, DELTA)
    return graph


def look_ahead_graphs(
    lexicon: Fst, grammar: Fst, expansion: Expansion, words: int
) -> tuple[Fst, Fst, np.ndarray, list[int]]:
    """HCLr, whose words a search looks ahead for, and Gr, both with new numbers of words; the new
    number of each word, [words], and the disambiguation symbols that HCLr reads.

    Args:
        words: how many there are.

    Raises:
        FormatError: as `static_graph`.
    """
    context = expansion.context()
    graph = compose_context(context, _determinized(lexicon, "L", log=False))
    hmms, symbols = expansion.transducer(context)
    graph = _determinized(compose(hmms, graph), "HCL", log=False)
    graph = add_self_loops(graph, expansion.hmms, expansion.self_loop_scale, symbols)
    there = np.unique(graph.olabel)
    first, pairs = make_look_ahead(sort_by(graph, "olabel"))
    pairs = pairs[np.isin(pairs[:, 0], there)]
    numbers = np.zeros(words, np.int32)
    numbers[pairs[:, 0]] = pairs[:, 1]
    reached = first.header.reachability
    assert reached is not None  # it was made for looking ahead
    absent = np.flatnonzero(numbers == 0)[1:]
    numbers[absent] = 1 + max(int(numbers.max()), reached.final_label) + np.arange(len(absent))
    labels = {side: numbers[grammar.arcs[side]] for side in SIDES}
    return first, sort_by(changed(grammar, **labels), "ilabel"), numbers, symbols


def _determinized(fst: Fst, what: str, *, log: bool) -> Fst:
    try:
        return determinize_star(fst, most_states=max(limit("graph") // _STATE_BYTES, 1), log=log)
    except ShapeError as error:
        raise FormatError(f"{what} cannot be determinized: {error}") from error
