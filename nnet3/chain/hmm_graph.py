"""From acceptors over phones to acceptors over transition-ids: phones in context, HMMs, self-loops.

Self-loops stand after the transition that leaves their state, as chain models have them.

Source: Kaldi's `fstext/context-fst.cc`, `hmm/hmm-utils.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.limits import check_limit
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.acceptors import Arc, States, acceptor
from ...kaldi.fst.fst import Fst

Window = tuple[int, ...]
"""A phone with those around it; 0 beyond either end of the utterance."""

_NO_PDF = -1
_BEYOND = -1  # stands after the last phone in the history of a state
_WIDEST = 32
_CERTAIN = 1e-4  # log-probabilities are rounded
_NEARLY_NEVER = 1e-10  # probability of leaving a state whose self-loop takes all


def in_context(lm: Fst, tree: ContextDependency, phones: list[int]) -> tuple[Fst, list[Window]]:
    """The paths of an acceptor over phones, each phone in the window that a tree wants.

    Args:
        lm: labels are phones; 0 is no phone.
        phones: all that may occur.

    Returns:
        an acceptor whose labels are places in the list of windows; label 0 is none.

    Raises:
        FormatError: a label of `lm` is no phone, or there are too many windows.
    """
    strange = sorted(set(lm.ilabel.tolist()) - {0, *phones})
    if strange:
        raise FormatError(f"phone {strange[0]} of the phone language model is none of the model's")
    if tree.width > _WIDEST:
        raise FormatError(f"the tree's window has {tree.width} phones, at most {_WIDEST} are known")
    states = States(lm)
    end = lm.states
    ahead = tree.width - 1 - tree.central  # phones of the window after the central one
    windows: list[Window] = [()]
    labels: dict[Window, int] = {}
    first = (lm.start, (0,) * (tree.width - 1))
    number = {first: 0}
    waiting = [first]
    arcs: list[list[Arc]] = []
    final: list[float] = []

    def leaving(state: int) -> Iterator[Arc]:
        """The arcs of a state; where the window looks ahead, after the end as well."""
        if state < end:
            yield from states.arcs[state]
            if ahead and lm.final[state] < np.inf:
                yield _BEYOND, lm.final[state], end
        else:
            yield _BEYOND, np.float32(0), end

    for state, history in waiting:  # grows in the loop
        outgoing: list[Arc] = []
        done = ahead > 0 and history[tree.central] == _BEYOND
        if ahead:
            final.append(0.0 if done else np.inf)
        else:
            final.append(float(lm.final[state]))
        for phone, weight, target in () if done else leaving(state):
            following = history
            label = 0
            if phone:
                whole = (*history, phone)
                following = whole[1:]
                window = tuple(max(one, 0) for one in whole)
                if window[tree.central]:
                    label = labels.setdefault(window, len(windows))
                    if label == len(windows):
                        windows.append(window)
            key = target, following
            if key not in number:
                number[key] = len(waiting)
                waiting.append(key)
                check_limit("alternatives", len(waiting), "the phones in context of the graph")
            outgoing.append((label, weight, number[key]))
        arcs.append(outgoing)
    return acceptor(arcs, final), windows


class PhoneHmms:
    """The HMMs of phones in context, as a tree and a transition model give them.

    Raises:
        FormatError: the model is damaged.
    """

    def __init__(self, tree: ContextDependency, model: TransitionModel) -> None:
        self._tree = tree
        self._model = model
        transitions = model.transitions()
        self.pdf = transitions.pdf
        self.count = len(transitions.pdf)
        self.state_of = transitions.state.tolist()
        if len(model.log_probs) != self.count:
            raise FormatError(
                f"the transition model has {len(model.log_probs) - 1} probabilities for "
                f"{self.count - 1} transitions"
            )
        if not np.all(model.log_probs[1:] <= _CERTAIN) or not np.isfinite(model.log_probs).all():
            raise FormatError("the transition model has log-probabilities that are none")
        self._rows = {tuple(row): number for number, row in enumerate(model.tuples.tolist(), 1)}
        states = np.arange(len(model.tuples) + 2)
        self._first = np.searchsorted(transitions.state, states).tolist()
        self.loop = [0] * (len(model.tuples) + 1)
        for ident in np.flatnonzero(transitions.is_loop).tolist():
            self.loop[self.state_of[ident]] = ident
        self.cost = -model.log_probs
        self.leaving = np.zeros(len(self.loop), np.float32)
        """-log probability of not taking the self-loop, of each transition state."""
        for state, ident in enumerate(self.loop):
            if ident:
                stay = np.exp(model.log_probs[ident])
                leave = np.float32(1) - stay
                self.leaving[state] = -np.log(leave if leave > 0 else np.float32(_NEARLY_NEVER))
        self._known: dict[tuple[int, ...], int] = {}
        self.hmms: list[list[list[Arc]]] = []
        """The arcs of each state of each HMM, without self-loops; labels are transition-ids."""

    def of_window(self, window: Window) -> int:
        """The number of the HMM of a phone in context.

        Raises:
            FormatError: the tree has no output for it, or the model none of its states.
        """
        phone = window[self._tree.central]
        entry = self._model.entries[self._model.entry_of[phone]]
        classes = {one for state in entry for one in (state.forward, state.self_loop)}
        places = dict(enumerate(window))
        pdfs: dict[int, int] = {}
        for number in sorted(classes - {_NO_PDF}):
            outputs = self._tree.outputs(places, number)
            if len(outputs) != 1:
                raise FormatError(f"the tree has no output for class {number} of phones {window}")
            pdfs[number] = outputs.pop()
        key = (phone, *pdfs.values())
        if key not in self._known:
            self._known[key] = len(self.hmms)
            self.hmms.append(self._hmm(phone, pdfs))
        return self._known[key]

    def _hmm(self, phone: int, pdfs: dict[int, int]) -> list[list[Arc]]:
        """The HMM of a phone whose classes of outputs are these pdfs."""
        entry = self._model.entries[self._model.entry_of[phone]]
        hmm: list[list[Arc]] = []
        for place, state in enumerate(entry):
            if (state.forward == _NO_PDF) != (state.self_loop == _NO_PDF):
                raise FormatError(
                    f"state {place} of phone {phone} has the classes {state.forward} and"
                    f" {state.self_loop}, of which one is none"
                )
            arcs: list[Arc] = []
            for index, (target, probability) in enumerate(state.transitions):
                if not 0 <= target < len(entry):
                    raise FormatError(f"phone {phone} has no state {target} in the topology")
                if target == place:
                    continue
                if state.forward == _NO_PDF:
                    arcs.append((0, np.float32(-np.log(np.float32(probability))), target))
                    continue
                row = self._row(phone, place, pdfs[state.forward], pdfs[state.self_loop])
                ident = self._first[row] + index
                arcs.append((ident, self.cost[ident] - self.leaving[row], target))
            hmm.append(arcs)
        return hmm

    def _row(self, phone: int, place: int, forward: int, stay: int) -> int:
        """The transition state of an HMM state with its outputs."""
        key = (phone, place, forward, stay)
        row = self._rows.get(key if self._model.opening == "<Tuples>" else key[:3])
        if row is None:
            raise FormatError(
                f"the transition model has no state {place} of phone {phone} with outputs "
                f"{forward} and {stay}, which the tree gives it: they do not belong together"
            )
        return row


def with_hmms(context: Fst, windows: list[Window], hmms: PhoneHmms) -> Fst:
    """The acceptor over transition-ids of one over windows of phones, self-loops included.

    Each phone becomes a copy of its HMM that ends where the phone's arc does; a state is copied for
    each transition state that it may be entered from, since the self-loop after belongs to that.
    """
    chosen = [-1, *(hmms.of_window(window) for window in windows[1:])]
    number: dict[tuple[int, int, int, int], int] = {}
    arcs: list[list[Arc]] = [[] for _ in range(context.states)]
    nodes: list[tuple[int, int, int, int]] = []

    def enter(end: int, hmm: int, arc: Arc, more: np.float32) -> Arc:
        """The arc that a transition becomes: it leads to the copy of the state it enters, or where
        the phone ends and no self-loop follows, to what is after."""
        ident, weight, place = arc
        if place == len(hmms.hmms[hmm]) - 1 and not hmms.loop[hmms.state_of[ident]]:
            return ident, weight + more, end
        key = end, hmm, place, hmms.state_of[ident]
        if key not in number:
            number[key] = context.states + len(nodes)
            nodes.append(key)
        return ident, weight + more, number[key]

    for state, group in enumerate(States(context).arcs):
        for label, weight, end in group:
            if label == 0:
                arcs[state].append((0, weight, end))
                continue
            hmm = chosen[label]
            arcs[state].extend(enter(end, hmm, arc, weight) for arc in hmms.hmms[hmm][0])
    for here, (end, hmm, place, entered) in enumerate(nodes, context.states):  # grows in the loop
        leave = hmms.leaving[entered]
        outgoing: list[Arc] = [enter(end, hmm, arc, leave) for arc in hmms.hmms[hmm][place]]
        if place == len(hmms.hmms[hmm]) - 1:
            outgoing.append((0, leave, end))
        if hmms.loop[entered]:
            ident = hmms.loop[entered]
            outgoing.append((ident, hmms.cost[ident], here))
        arcs.append(outgoing)
    final = np.full(len(arcs), np.inf, np.float32)
    final[: context.states] = context.final
    return acceptor(arcs, final, context.start)
