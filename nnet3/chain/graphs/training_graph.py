"""Graphs of what was said: from a lexicon and words to transducers from transition-ids to words.

The lexicon is composed with a grammar of an utterance, phones get their contexts and HMMs, the
result is determinized, minimized and given self-loops. `hmm_graph` makes graphs of phones alone,
each path of which counts; here words come out, and of equal paths one is left.

Source: Kaldi's `decoder/training-graph-compiler.cc`, `fstext/context-fst.cc`, `hmm/hmm-utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.limits import check_limit
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.algorithms.acceptors import connect
from ....kaldi.fst.algorithms.determinize_star import determinize_star
from ....kaldi.fst.algorithms.local_epsilons import remove_epsilons_locally
from ....kaldi.fst.algorithms.partition import minimize_unpushed
from ....kaldi.fst.algorithms.symbols import remove_symbols
from ....kaldi.fst.arcs import Arc
from ....kaldi.fst.fst import Fst
from ....kaldi.graphs.context import BEYOND, Context, is_symbol
from ....kaldi.graphs.hmms import PhoneHmms
from ....kaldi.graphs.self_loops import add_self_loops

_STEP = 1 / 1024  # weights that differ by less are equal
_WHAT = "the states of a training graph"
Key = TypeVar("Key")


class _Graph(NamedTuple):
    """The arcs of each state, from the start state 0 on, and the weights of ending."""

    arcs: list[list[Arc]]
    final: list[float]

    def fst(self) -> Fst:
        """The same as arrays, without states that are on no path."""
        return connect(Fst.of_lists(self.arcs, self.final))


class _Lexicon:
    """The arcs of a lexicon, looked up by word: it is large, and each utterance needs little."""

    def __init__(self, fst: Fst) -> None:
        self._fst = fst.ordered(fst.olabel)
        self._begin = fst.begin.tolist()
        self.final = fst.final
        self.start = fst.start
        self._known: dict[tuple[int, int], list[Arc]] = {}

    def arcs(self, state: int, word: int) -> list[Arc]:
        """The arcs of a state that have a word."""
        key = state, word
        if key not in self._known:
            low, high = self._begin[state : state + 2]
            span = self._fst.olabel[low:high]
            first, last = (low + np.searchsorted(span, word, side) for side in ("left", "right"))
            self._known[key] = self._fst.arcs[first:last].tolist()
        return self._known[key]


def linear(words: Sequence[int]) -> Fst:
    """The acceptor of one sequence of words."""
    count = len(words)
    final = np.full(count + 1, np.inf, np.float32)
    final[count] = 0
    places = np.arange(count)
    return Fst.of_arcs(places, np.asarray(words, np.int64), np.zeros(count), places + 1, final)


class TrainingGraphCompiler:
    """Makes graphs of utterances.

    Args:
        lexicon: a transducer from phones to words.
        disambiguation: symbols of the lexicon that are no phones, which the graphs lose.
        transition_scale: of the probabilities of transitions that leave their state.
        self_loop_scale: of the probabilities of staying in a state or leaving it.
        remove_epsilons: as many as can go locally where symbols have left them.
        reorder: self-loops stand after the transition that leaves their state, else before it.

    Raises:
        FormatError: the lexicon has labels that are neither phones nor symbols, a symbol is a
            phone, or the model is damaged.
    """

    def __init__(
        self,
        tree: ContextDependency,
        model: TransitionModel,
        lexicon: Fst,
        disambiguation: Iterable[int] = (),
        *,
        transition_scale: float = 0.0,
        self_loop_scale: float = 0.0,
        remove_epsilons: bool = False,
        reorder: bool = True,
    ) -> None:
        symbols = sorted(set(disambiguation))
        both = sorted(set(symbols) & set(model.phones))
        if both:
            raise FormatError(f"the disambiguation symbol {both[0]} is also a phone")
        strange = sorted(set(lexicon.ilabel.tolist()) - {0, *symbols, *model.phones})
        if strange:
            raise FormatError(
                f"the lexicon has the label {strange[0]}, which is neither a phone of the model nor"
                " a disambiguation symbol"
            )
        if lexicon.start < 0:
            raise FormatError("the lexicon is empty")
        self._lexicon = _Lexicon(lexicon)
        self._tree = tree
        self._hmms = PhoneHmms(tree, model)
        self._context = Context(symbols, tree.width, tree.central)
        self._chosen: list[tuple[bool, int]] = []
        # after all transition-ids, as labels of the graph until it is determinized; 0 is the symbol
        # before the first phone
        self._symbols = {symbol: self._hmms.count + at for at, symbol in enumerate((0, *symbols))}
        self._scale = transition_scale
        self._loop_scale = self_loop_scale
        self._remove_epsilons = remove_epsilons
        self._reorder = reorder

    def compile(self, grammar: Fst) -> Fst:
        """The graph of an utterance from transition-ids to words, empty where the lexicon has no
        path of the grammar.

        Args:
            grammar: an acceptor of words, or a transducer.

        Raises:
            FormatError: the tree has no output for a phone in context, or the model no such state.
            ShapeError: the graph cannot be determinized; it wants disambiguation symbols.
        """
        graph = self._with_hmms(self._in_context(self._composed(grammar))).fst()
        if not graph.states:
            return graph
        graph = determinize_star(graph, log=True)
        if len(self._symbols) > 1:
            graph = remove_symbols(graph, list(self._symbols.values()))
            if self._remove_epsilons:
                graph = remove_epsilons_locally(graph)
        graph = minimize_unpushed(graph, _STEP)
        return add_self_loops(graph, self._hmms, self._loop_scale, reorder=self._reorder)

    def _composed(self, grammar: Fst) -> _Graph:
        """The paths of the lexicon whose words the grammar has.

        Where both can move without a word, the lexicon does first: probabilities of paths are added
        later, so that no path may be there twice.
        """
        begin = grammar.begin.tolist()
        arcs = grammar.arcs.tolist()
        lexicon = self._lexicon

        def leaving(state: tuple[int, int, bool]) -> Iterable[tuple[int, int, float, tuple]]:
            here, there, over = state
            if not over:
                for phone, _, weight, target in lexicon.arcs(here, 0):
                    yield phone, 0, weight, (target, there, False)
            for word, output, cost, after in arcs[begin[there] : begin[there + 1]]:
                if word == 0:
                    yield 0, output, cost, (here, after, True)
                    continue
                for phone, _, weight, target in lexicon.arcs(here, word):
                    yield phone, output, weight + cost, (target, after, False)

        def ending(state: tuple[int, int, bool]) -> float:
            return float(lexicon.final[state[0]] + grammar.final[state[1]])

        if grammar.start < 0:
            return _Graph([], [])
        return _explored((lexicon.start, grammar.start, False), leaving, ending)

    def _in_context(self, graph: _Graph) -> _Graph:
        """Each phone in the window that the tree wants; labels are the context's."""
        context = self._context
        end = len(graph.arcs)

        def leaving(node: tuple[int, int]) -> Iterable[tuple[int, int, float, tuple]]:
            state, here = node
            for phone, word, weight, target in graph.arcs[state] if state < end else ():
                step = context.step(here, phone) if phone else (0, here)
                if step:
                    yield step[0], word, weight, (target, step[1])
            if context.looks_ahead and (state == end or graph.final[state] < np.inf):
                step = context.step(here, BEYOND)
                if step:
                    yield step[0], 0, graph.final[state] if state < end else 0.0, (end, step[1])

        def ending(node: tuple[int, int]) -> float:
            state, here = node
            if not context.ends(here):
                return np.inf
            return graph.final[state] if state < end else 0.0

        return _explored((0, 0), leaving, ending) if graph.arcs else graph

    def _with_hmms(self, context: _Graph) -> _Graph:
        """The arcs of phones in context as copies of their HMMs without self-loops, which end where
        the arc does."""
        hmms = self._hmms.hmms
        scale = self._scale
        number: dict[tuple[int, int, int], int] = {}
        arcs: list[list[Arc]] = [[] for _ in context.arcs]
        nodes: list[tuple[int, int, int]] = []

        def moves(
            end: int, hmm: int, place: int, word: int = 0, more: float = 0.0
        ) -> Iterable[Arc]:
            """The arcs of a state of an HMM."""
            for ident, cost, target in hmms[hmm][place]:
                key = end, hmm, target
                after = end
                if target < len(hmms[hmm]) - 1:
                    after = number.setdefault(key, len(context.arcs) + len(nodes))
                    if after == len(context.arcs) + len(nodes):
                        nodes.append(key)
                yield ident, word, scale * float(cost) + more, after

        for state, group in enumerate(context.arcs):
            for label, word, weight, end in group:
                is_single, chosen = self._stands_for(label)
                if is_single:
                    arcs[state].append((chosen, word, weight, end))
                else:
                    arcs[state] += moves(end, chosen, 0, word, weight)
        for node in nodes:  # grows in the loop
            arcs.append(list(moves(*node)))
            check_limit("alternatives", len(arcs), _WHAT)
        final = [*context.final, *[np.inf] * len(nodes)]
        return _Graph(arcs, final)

    def _stands_for(self, label: int) -> tuple[bool, int]:
        """Whether a label of a phone in context is a label of the graph as well, and which; else
        the number of its HMM."""
        chosen = self._chosen
        for window in self._context.windows[len(chosen) :]:
            if not window or is_symbol(window):
                chosen.append((True, self._symbols[-window[0]] if window else 0))
            else:
                chosen.append((False, self._hmms.of_window(window)))
        return chosen[label]


def _explored(
    start: Key,
    leaving: Callable[[Key], Iterable[tuple[int, int, float, Key]]],
    ending: Callable[[Key], float],
) -> _Graph:
    """The graph of all states that can be reached from one."""
    number = {start: 0}
    waiting = [start]
    arcs: list[list[Arc]] = []
    for state in waiting:  # grows in the loop
        outgoing: list[Arc] = []
        for ilabel, olabel, weight, target in leaving(state):
            if target not in number:
                number[target] = len(waiting)
                waiting.append(target)
                check_limit("alternatives", len(waiting), _WHAT)
            outgoing.append((ilabel, olabel, weight, number[target]))
        arcs.append(outgoing)
    return _Graph(arcs, [ending(state) for state in waiting])
