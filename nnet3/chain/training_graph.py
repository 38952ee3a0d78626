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

from ...framework.base.errors import FormatError
from ...framework.base.sequence import repeated
from ...framework.base.untrusted.limits import check_limit
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.acceptors import connect
from ...kaldi.fst.determinize_star import determinize_star
from ...kaldi.fst.fst import Fst
from ...kaldi.fst.local_epsilons import remove_epsilons_locally
from ...kaldi.fst.partition import minimize_unpushed
from ...kaldi.fst.symbols import remove_symbols
from .hmm_graph import PhoneHmms, Window

_BEYOND = -1  # stands after the last phone in the history of a state
_STEP = 1 / 1024  # weights that differ by less are equal
_WHAT = "the states of a training graph"
Arc = tuple[int, int, float, int]
"""Input label, output label, weight, next state."""
Key = TypeVar("Key")


class _Graph(NamedTuple):
    """The arcs of each state, from the start state 0 on, and the weights of ending."""

    arcs: list[list[Arc]]
    final: list[float]

    def fst(self) -> Fst:
        """The same as arrays, without states that are on no path."""
        flat = [arc for group in self.arcs for arc in group]
        columns = zip(*flat, strict=True) if flat else ((), (), (), ())
        ilabel, olabel, weight, target = (np.array(list(column)) for column in columns)
        source = repeated(np.arange(len(self.arcs)), [len(group) for group in self.arcs])
        final = np.array(self.final, np.float32)
        return connect(Fst.of_arcs(source, ilabel, weight, target, final, olabel))


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
        self_loop_scale: of those of staying in a state or leaving it.
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
        # after all transition-ids, as labels of the graph until it is determinized
        self._symbols = {symbol: self._hmms.count + at for at, symbol in enumerate(symbols)}
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
        context, windows = self._in_context(self._composed(grammar))
        graph = self._with_hmms(context, windows).fst()
        if not graph.states:
            return graph
        graph = determinize_star(graph, log=True)
        if self._symbols:
            graph = remove_symbols(graph, list(self._symbols.values()))
            if self._remove_epsilons:
                graph = remove_epsilons_locally(graph)
        graph = minimize_unpushed(graph, _STEP)
        add = _loops_after if self._reorder else _loops_before
        return add(graph, self._hmms, np.float32(self._loop_scale))

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

    def _in_context(self, graph: _Graph) -> tuple[_Graph, list[Window]]:
        """Each phone in the window that the tree wants. Labels are places in the list of windows;
        negative ones are disambiguation symbols."""
        width, central = self._tree.width, self._tree.central
        ahead = width - 1 - central  # phones of the window after the central one
        windows: list[Window] = [()]
        labels: dict[Window, int] = {}
        end = len(graph.arcs)

        def label_of(whole: Window) -> int:
            window = tuple(max(phone, 0) for phone in whole)
            if not window[central]:
                return 0
            label = labels.setdefault(window, len(windows))
            if label == len(windows):
                windows.append(window)
            return label

        def leaving(node: tuple[int, Window]) -> Iterable[tuple[int, int, float, tuple]]:
            state, history = node
            done = ahead > 0 and history[central] == _BEYOND
            for phone, word, weight, target in graph.arcs[state] if state < end else ():
                if phone == 0:
                    yield 0, word, weight, (target, history)
                elif phone in self._symbols:
                    yield -phone, word, weight, (target, history)
                else:
                    whole = (*history, phone)
                    yield label_of(whole), word, weight, (target, whole[1:])
            if ahead and not done and (state == end or graph.final[state] < np.inf):
                whole = (*history, _BEYOND)
                weight = graph.final[state] if state < end else 0.0
                yield label_of(whole), 0, weight, (end, whole[1:])

        def ending(node: tuple[int, Window]) -> float:
            if ahead:
                return 0.0 if node[1][central] == _BEYOND else np.inf
            return graph.final[node[0]]

        if not graph.arcs:
            return graph, windows
        return _explored((0, (0,) * (width - 1)), leaving, ending), windows

    def _with_hmms(self, context: _Graph, windows: list[Window]) -> _Graph:
        """The arcs of phones in context as copies of their HMMs without self-loops, which end where
        the arc does."""
        hmms = self._hmms.hmms
        chosen = [-1, *(self._hmms.of_window(window) for window in windows[1:])]
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
                if label > 0:
                    arcs[state] += moves(end, chosen[label], 0, word, weight)
                else:
                    ident = self._symbols[-label] if label else 0
                    arcs[state].append((ident, word, weight, end))
        for node in nodes:  # grows in the loop
            arcs.append(list(moves(*node)))
            check_limit("alternatives", len(arcs), _WHAT)
        final = [*context.final, *[np.inf] * len(nodes)]
        return _Graph(arcs, final)


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


def _loops_after(fst: Fst, hmms: PhoneHmms, scale: np.float32) -> Fst:
    """With the self-loop of the transition that leads into each state.

    A state that different transitions lead into gets a state before it for each of them.
    """
    entering = np.array(hmms.state_of)[fst.ilabel]
    target = fst.nextstate.astype(np.int64)
    mixed, only = _kinds(target, entering, np.arange(fst.states) == fst.start, len(hmms.loop))
    moved = np.flatnonzero(mixed[target] & (entering > 0))
    pairs = np.stack((target[moved], entering[moved]), axis=1)
    pairs, which = np.unique(pairs, axis=0, return_inverse=True)
    target[moved] = fst.states + which.ravel()
    state = np.concatenate((only, pairs[:, 1]))
    fst = _with_states(fst.with_columns(nextstate=target), pairs[:, 0])
    leave = scale * hmms.leaving[state]
    return _with_loops(fst, fst.weight + leave[fst.source()], fst.final + leave, state, hmms, scale)


def _loops_before(fst: Fst, hmms: PhoneHmms, scale: np.float32) -> Fst:
    """With the self-loop of the transition that leads out of each state.

    Where different transitions lead out of a state, or it is an end as well, each of them starts
    in a new state.
    """
    states = np.array(hmms.state_of)
    source, leaving = fst.source(), states[fst.ilabel]
    mixed, _ = _kinds(source, leaving, ~np.isinf(fst.final), len(hmms.loop))
    moved = np.flatnonzero(mixed[source] & (leaving > 0))
    labels, after = fst.ilabel[moved], fst.nextstate[moved]
    silent, target = fst.ilabel.copy(), fst.nextstate.copy()
    silent[moved], target[moved] = 0, fst.states + np.arange(len(moved))
    fst = _with_states(fst.with_columns(ilabel=silent, nextstate=target), after, labels)
    source, leaving = fst.source(), states[fst.ilabel]
    state = np.zeros(fst.states, np.int64)
    state[source] = leaving
    weight = fst.weight + scale * hmms.leaving[leaving]
    return _with_loops(fst, weight, fst.final, state, hmms, scale)


def _kinds(
    places: np.ndarray, kinds: np.ndarray, silent: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Whether the arcs of a state are of several kinds, and else of which (0: of none), [states].

    Args:
        places: the state of each arc. kinds: below `count`.
        silent: whether a state has one of kind 0 besides, [states].
    """
    least, most = np.where(silent, 0, count), np.where(silent, 0, -1)
    np.minimum.at(least, places, kinds)
    np.maximum.at(most, places, kinds)
    mixed = least < most
    return mixed, np.where(mixed, 0, np.maximum(most, 0))


def _with_states(fst: Fst, after: np.ndarray, ilabel: np.ndarray | None = None) -> Fst:
    """With new states, one arc without an output label from each of them to a state `after`."""
    count = len(after)
    zeros = np.zeros(count, np.int32)
    return Fst.of_arcs(
        np.concatenate((fst.source(), fst.states + np.arange(count))),
        np.concatenate((fst.ilabel, zeros if ilabel is None else ilabel)),
        np.concatenate((fst.weight, zeros)),
        np.concatenate((fst.nextstate, after)),
        np.concatenate((fst.final, np.full(count, np.inf, np.float32))),
        np.concatenate((fst.olabel, zeros)),
        fst.start,
    )


def _with_loops(
    fst: Fst,
    weight: np.ndarray,
    final: np.ndarray,
    state: np.ndarray,
    hmms: PhoneHmms,
    scale: np.float32,
) -> Fst:
    """With other weights, and at each state the self-loop of a transition state (0: none)."""
    loop = np.array(hmms.loop)[state]
    places = np.flatnonzero(loop)
    return Fst.of_arcs(
        np.concatenate((fst.source(), places)),
        np.concatenate((fst.ilabel, loop[places])),
        np.concatenate((weight, scale * hmms.cost[loop[places]])),
        np.concatenate((fst.nextstate, places)),
        final,
        np.concatenate((fst.olabel, np.zeros(len(places), np.int32))),
        fst.start,
    )
