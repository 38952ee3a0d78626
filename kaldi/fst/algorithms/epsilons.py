"""Arcs without labels removed from acceptors over the tropical semiring.

Source: OpenFst's `rmepsilon.h`; Mohri 2002, "Generic epsilon-removal and input
epsilon-normalization algorithms for weighted transducers".
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ....framework.base.errors import ShapeError
from ..fst import Fst
from .acceptors import INFINITY, Arc, States, acceptor, connect


def remove_epsilons(fst: Fst) -> Fst:
    """The same paths without arcs of label 0; states on no path are gone.

    Of two arcs with one label to one state the better one is kept.

    Raises:
        ShapeError: arcs of label 0 form a loop whose weight is negative, so that no path is best.
    """
    if not len(fst.arcs) or fst.ilabel.min() > 0:
        return fst
    states = States(fst)
    final = fst.final.copy()
    arcs: list[list[Arc]] = []
    for state in range(fst.states):
        weights = _weights_of_closure(states, state)
        best: dict[tuple[int, int], np.float32] = {}
        for reached in _in_order(states, state):
            before = weights[reached[0]]
            label, weight, target = reached[1]
            key = label, target
            best[key] = min(best.get(key, INFINITY), before + weight)
        if len(weights) > 1:
            final[state] = min(weight + fst.final[other] for other, weight in weights.items())
        arcs.append([(label, weight, target) for (label, target), weight in best.items()])
    return connect(acceptor(arcs, final, fst.start))


def _weights_of_closure(states: States, state: int) -> dict[int, np.float32]:
    """The states that arcs of label 0 lead to, with the weight of the best way to each."""
    best = {state: np.float32(0)}
    if all(label for label, _, _ in states.arcs[state]):
        return best
    queue = deque([state])
    waiting = {state}
    turns: dict[int, int] = {}
    while queue:
        current = queue.popleft()
        waiting.discard(current)
        turns[current] = turns.get(current, 0) + 1
        if turns[current] > len(best) + 1:
            raise ShapeError("arcs without labels form a loop whose weight is negative")
        for label, weight, target in states.arcs[current]:
            way = best[current] + weight
            if label == 0 and way < best.get(target, INFINITY):
                best[target] = way
                if target not in waiting:
                    waiting.add(target)
                    queue.append(target)
    return best


def _in_order(states: States, state: int) -> list[tuple[int, Arc]]:
    """The labeled arcs of a state and, at the place of each arc of label 0, those after it; with
    each arc the state it leaves."""
    ordered: list[tuple[int, Arc]] = []
    seen = {state}
    stack = [(state, iter(states.arcs[state]))]
    while stack:
        current, rest = stack[-1]
        for arc in rest:
            label, weight, target = arc
            if label:
                ordered.append((current, arc))
            elif target not in seen and weight < INFINITY:
                seen.add(target)
                stack.append((target, iter(states.arcs[target])))
                break
        else:
            stack.pop()
    return ordered
