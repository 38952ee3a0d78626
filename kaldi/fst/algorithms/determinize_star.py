"""Transducers determinized, arcs without input labels removed in the same step.

States of the result are sets of states, each with a weight and output labels that are still to
come. Where more than one output label is to be written at once, arcs without input labels follow.
`acceptors.determinize` and `lattices.determinize` say why they are others.

Source: Kaldi's `fstext/determinize-star.h`; Mohri 1997, "Finite-state transducers in language and
speech processing".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np

from ....framework.base.errors import ShapeError
from ....native.constants import Undetermined
from ..fst import DELTA, Fst
from . import compiled

_MOST_TURNS = 1 << 20  # of a state in loops without labels whose probabilities add up
_MOST_WAITING = 2000  # output labels that are to come: words without end that are spelled alike
_SHOWN = 10  # labels in messages
_END = -1  # the target of what an end writes

Labels = tuple[int, ...]
Element = tuple[int, Labels, float]
"""A state, the output labels that are still to come, and the weight that is."""


def determinize_star(
    fst: Fst, delta: float = DELTA, most_states: int = -1, *, log: bool = False
) -> Fst:
    """With at most one arc of an input label from each state.

    Arcs without input labels are left only where several output labels are written at once, or
    some at an end: at most one leaves a state.

    Args:
        delta: sets whose weights differ by no more are one state.
        most_states: of the sets, and of steps through arcs without input labels at once; no
            limit if it is not above 0. Without one, weights that move ever further apart fill the
            memory.
        log: weights of paths with equal labels are added as probabilities; else the best one
            counts.

    Raises:
        ShapeError: the transducer is not functional, or has 2000 output labels still to come;
            it takes more states than `most_states`; or arcs without input labels form a loop whose
            weights have no sum.
    """
    functions = compiled.library("determinization")
    if functions is None or fst.start < 0:
        return _Determinizer(fst, delta, most_states, log).run()
    given = {"delta": delta, "limit": most_states, "log": log}
    given |= {"most_turns": _MOST_TURNS, "most_waiting": _MOST_WAITING}
    counted = ("reached", "one", "other")
    try:
        block = compiled.fst_block(functions, fst)
        return compiled.make(functions, "determinized", counted, fst=block, **given)
    except compiled.Failed as failed:
        labels = (each.tolist() for each in failed.labels)
        raise _error(failed.status, most_states, *labels) from None


def log_sum(one: float, other: float) -> float:
    """The negated logarithm of the sum of two probabilities."""
    low, high = (one, other) if one < other else (other, one)
    return low if high == math.inf else low - math.log1p(math.exp(low - high))


class _Determinizer:
    def __init__(self, fst: Fst, delta: float, most_states: int, log: bool) -> None:
        self._fst = fst
        self._delta = delta
        self._most = most_states
        self._log = log
        self._plus: Callable[[float, float], float] = log_sum if log else min
        self._begin = fst.begin.tolist()
        self._final = fst.final.tolist()
        silent = np.zeros(fst.states, bool)
        silent[fst.source()[fst.ilabel == 0]] = True
        self._silent = silent.tolist()
        self._sets: list[list[Element]] = []
        # states of the result by the states and output labels of their sets
        self._known: dict[tuple[tuple[int, Labels], ...], list[int]] = {}
        # input label, output labels, weight, target
        self._arcs: list[list[tuple[int, Labels, float, int]]] = []
        self._way: list[tuple[int, int]] = []  # the state and label that first led to each one

    def run(self) -> Fst:
        if self._fst.start >= 0:
            self._state_of([(self._fst.start, (), 0.0)], -1, 0)
        waiting = list(range(len(self._sets)))
        while waiting:
            state = waiting.pop()
            before = len(self._sets)
            self._expand(state)
            waiting += range(before, len(self._sets))
            if 0 < self._most < len(self._sets):
                raise self._error(Undetermined.MANY_SETS, state)
        return self._result()

    def _arcs_of(self, state: int) -> list[tuple[int, int, float, int]]:
        return self._fst.arcs[self._begin[state] : self._begin[state + 1]].tolist()

    def _expand(self, number: int) -> None:
        """The end and the arcs of a state of the result."""
        closed = self._closed(number)
        arcs = self._arcs[number]
        plus = self._plus
        end: tuple[Labels, float] | None = None
        groups: dict[int, dict[int, list[tuple[Labels, float]]]] = {}
        for state, outputs, weight in closed:
            whole = weight + self._final[state]
            if whole < math.inf:
                if end is not None and end[0] != outputs:
                    raise self._error(Undetermined.NOT_FUNCTIONAL, number, 0, end[0], outputs)
                end = outputs, whole if end is None else plus(end[1], whole)
            for label, output, more, target in self._arcs_of(state):
                whole = weight + more
                if not label or whole == math.inf:
                    continue
                longer = (*outputs, output) if output else outputs
                groups.setdefault(label, {}).setdefault(target, []).append((longer, whole))
        if end is not None:
            arcs.append((0, *end, _END))
        for label in sorted(groups):
            arcs.append(self._arc(number, label, groups[label]))

    def _arc(
        self, number: int, label: int, ways: dict[int, list[tuple[Labels, float]]]
    ) -> tuple[int, Labels, float, int]:
        """The arc to the set of all states that a label leads to; it has what these share."""
        group: dict[int, tuple[Labels, float]] = {}
        for state in sorted(ways):
            (outputs, weight), *others = ways[state]
            for other, more in others:
                if other != outputs:
                    raise self._error(Undetermined.NOT_FUNCTIONAL, number, label, outputs, other)
                weight = self._plus(weight, more)
            group[state] = outputs, weight
        common, total = None, math.inf
        for state in ways:  # a sum of logarithms depends on the order
            outputs, weight = group[state]
            common = outputs if common is None else _prefix(common, outputs)
            total = self._plus(total, weight)
        assert common is not None
        size = len(common)
        longest = max(len(outputs) for outputs, _ in group.values())
        if longest - size > _MOST_WAITING:
            raise self._error(Undetermined.STILL_OPEN, number, label)
        elements = [
            (state, outputs[size:], weight - total) for state, (outputs, weight) in group.items()
        ]
        return label, common, total, self._state_of(elements, number, label)

    def _state_of(self, elements: list[Element], source: int, label: int) -> int:
        """The state of a set, a new one where no known one has about these weights."""
        key = tuple((state, outputs) for state, outputs, _ in elements)
        group = self._known.setdefault(key, [])
        for number in group:
            pairs = zip(self._sets[number], elements, strict=True)
            if all(abs(one[2] - other[2]) <= self._delta for one, other in pairs):
                return number
        group.append(len(self._sets))
        self._sets.append(elements)
        self._arcs.append([])
        self._way.append((source, label))
        return len(self._sets) - 1

    def _closed(self, number: int) -> list[Element]:
        """A set with all that arcs without input labels lead to, sorted by state."""
        elements = self._sets[number]
        if not any(self._silent[state] for state, _, _ in elements):
            return elements
        # output labels; the weight that was passed on, and what came since then
        found: dict[int, list] = {s: [outputs, math.inf, w] for s, outputs, w in elements}
        queue = deque(found)
        queued = set(found)
        turns: dict[int, int] = {}
        steps = 0
        while queue:
            state = queue.popleft()
            queued.discard(state)
            steps += 1
            turns[state] = turns.get(state, 0) + 1
            self._check_turns(number, turns[state], len(found), steps)
            entry = found[state]
            outputs, passed, came = entry
            entry[1:] = self._plus(passed, came), math.inf
            if not self._silent[state]:
                continue
            for label, output, more, target in self._arcs_of(state):
                if label or more == math.inf:
                    continue
                longer = (*outputs, output) if output else outputs
                other = found.get(target)
                if other is None:
                    other = found[target] = [longer, math.inf, math.inf]
                elif other[0] != longer:
                    raise self._error(Undetermined.NOT_FUNCTIONAL, number, 0, other[0], longer)
                other[2] = self._plus(other[2], came + more)
                whole = self._plus(other[1], other[2])
                if target not in queued and other[1] - whole > self._delta:
                    queue.append(target)
                    queued.add(target)
        return [
            (state, outputs, self._plus(passed, came))
            for state, (outputs, passed, came) in sorted(found.items())
        ]

    def _check_turns(self, number: int, turns: int, found: int, steps: int) -> None:
        if turns > (_MOST_TURNS if self._log else found + 1):
            raise self._error(Undetermined.NO_SUM, number)
        if 0 < self._most < steps:
            raise self._error(Undetermined.MANY_STEPS, number)

    def _error(
        self, status: int, state: int, label: int = 0, one: Labels = (), other: Labels = ()
    ) -> ShapeError:
        """An error at a state of the result, and the label that follows."""
        labels = [label] if label else []
        while state > 0:
            state, label = self._way[state]
            labels.append(label)
        return _error(status, self._most, labels[::-1], one, other)

    # The result

    def _result(self) -> Fst:
        rows: list[tuple[int, int, int, float, int]] = []
        ends = [math.inf] * len(self._sets)
        for source, arcs in enumerate(self._arcs):
            for label, outputs, weight, target in arcs:
                here = source
                # an arc has one output label; an end has none
                for output in outputs if target == _END else outputs[:-1]:
                    rows.append((here, label, output, weight, len(ends)))
                    here, label, weight = len(ends), 0, 0.0
                    ends.append(math.inf)
                if target == _END:
                    ends[here] = weight
                else:
                    rows.append((here, label, outputs[-1] if outputs else 0, weight, target))
        columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0, int)] * 5
        source, ilabel, olabel, weight, target = columns
        start = 0 if ends else -1
        return Fst.of_arcs(source, ilabel, weight, target, np.array(ends), olabel, start)


def _prefix(one: Labels, other: Labels) -> Labels:
    """What both begin with."""
    if one == other:
        return one
    size = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        size += 1
    return one[:size]


def _error(
    status: int, most: int, reached: list[int], one: list[int] | Labels, other: list[int] | Labels
) -> ShapeError:
    """What went wrong after some input labels, with two outputs of them."""
    after = _shown("input", reached)
    why = Undetermined(status)
    texts = {
        why.NOT_FUNCTIONAL: f"the transducer is not functional: after {after} both"
        f" {_shown('output', one)} and {_shown('output', other)} are to be written",
        why.STILL_OPEN: f"after {after} it is still open which of several sequences of more than"
        f" {_MOST_WAITING} output labels to write; words that are spelled alike need"
        " disambiguation symbols",
        why.NO_SUM: "arcs without input labels form a loop whose weights have no sum, after"
        f" {after}",
        why.MANY_STEPS: f"more than {most} steps, the limit of states, through arcs without input"
        f" labels after {after}",
        why.MANY_SETS: f"the determinized FST has more than {most} states, the limit; {after} has"
        " been read",
    }
    return ShapeError(texts[why])


def _shown(side: str, labels: list[int] | Labels) -> str:
    """Labels as messages show them, the last ones where there are many."""
    if not labels:
        return f"no {side} label"
    dots = "... " if len(labels) > _SHOWN else ""
    return f"the {side} labels {dots}{' '.join(map(str, labels[-_SHOWN:]))}"
