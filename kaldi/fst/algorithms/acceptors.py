"""Operations on acceptors over the tropical semiring: composed, determinized, minimized, cut.

They make the supervision of chain examples, so what they give is what OpenFst gives, to the order
of states and arcs and to the rounding of weights: left-over weights of determinization are
multiples of 1/1024, pushed weights of 1e-6. Weights of alternative paths are not added: the better
one counts. `lattices.determinize` says why lattices have a determinizer of their own.

There are three minimizers, since their sources decide differently which states are equal:
`minimize` after weights were pushed, for supervisions, whose loops have one state; `partition`'s
with weights where they stand, for graphs with any loops, on whole arrays; `lattices.minimize`'s up
to a difference of costs, which is no equality that classes of states could be made of.

Source: OpenFst's `determinize.h`, `minimize.h`, `push.h`; Mohri 1997, "Finite-state
transducers in language and speech processing".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from ....framework.base.algorithms.strongly_connected import depth_first
from ....framework.base.errors import ShapeError
from ....framework.base.sequence import repeated
from ..fst import Fst
from ..fst_properties import reachable

_RESIDUAL_STEP = np.float32(1 / 1024)
_PUSHED_STEP = np.float32(1e-6)
_HALF = np.float32(0.5)
INFINITY = np.float32(np.inf)
_END = 0
"""The label of the arcs that final weights become."""

Arc = tuple[int, np.float32, int]
"""Label, weight, next state."""


class States:
    """The arcs of each state as Python lists, which these algorithms go through one by one."""

    def __init__(self, fst: Fst) -> None:
        arcs = list(zip(fst.ilabel.tolist(), fst.weight, fst.nextstate.tolist(), strict=True))
        begin = fst.begin.tolist()
        self.arcs: list[list[Arc]] = [arcs[a:b] for a, b in zip(begin[:-1], begin[1:], strict=True)]
        self.final = fst.final


def acceptor(arcs: list[list[Arc]], final: Iterable[float], start: int = 0) -> Fst:
    """The acceptor of each state's arcs."""
    final = np.array(list(final), np.float32)
    flat = [arc for group in arcs for arc in group]
    label, weight, nextstate = zip(*flat, strict=True) if flat else ((), (), ())
    source = repeated(np.arange(len(arcs)), [len(group) for group in arcs])
    columns = source, np.array(label, np.int32), np.array(weight, np.float32)
    start = start if len(final) else -1
    return Fst.of_arcs(*columns, np.array(nextstate, np.int32), final, start=start)


def connect(fst: Fst) -> Fst:
    """Without the states that are on no path from the start to an end; others keep their order."""
    from . import compiled  # programs that train load this module, and connect nothing

    functions = compiled.library()
    kept = _kept_states(fst) if functions is None else compiled.kept_states(functions, fst)
    if kept.all():
        return fst
    number = np.cumsum(kept, dtype=np.int32) - 1
    used = kept[fst.nextstate] & repeated(kept, np.diff(fst.begin))
    arcs = fst.arcs[used]
    arcs["nextstate"] = number[arcs["nextstate"]]
    begin = np.concatenate([[0], np.cumsum(used)])[fst.begin]
    begin = np.append(begin[:-1][kept], len(arcs))
    start = int(number[fst.start]) if kept.any() else -1
    return Fst.of_states(fst.final[kept], begin, arcs, start)


def _kept_states(fst: Fst) -> np.ndarray:
    """Whether each state is on a path from the start to an end: bool, [states]."""
    source, target = fst.source(), fst.nextstate
    if fst.start < 0:
        return np.zeros(fst.states, bool)
    ends = np.flatnonzero(~np.isinf(fst.final)).tolist()
    return reachable(source, target, fst.states, [fst.start]) & reachable(
        target, source, fst.states, ends
    )


class Matcher:
    """The arcs of an acceptor by state and label, listed when they are first needed.

    One matcher serves any number of compositions with the same acceptor.
    """

    def __init__(self, fst: Fst) -> None:
        self.start = fst.start
        self.final = fst.final
        self._fst = fst
        self._known: dict[int, dict[int, list[tuple[np.float32, int]]]] = {}

    def arcs(self, state: int) -> dict[int, list[tuple[np.float32, int]]]:
        """For each label the weights and next states of arcs that leave a state."""
        by_label = self._known.get(state)
        if by_label is None:
            by_label = self._known[state] = {}
            arcs = slice(int(self._fst.begin[state]), int(self._fst.begin[state + 1]))
            columns = self._fst.weight[arcs], self._fst.nextstate[arcs].tolist()
            for label, *rest in zip(self._fst.ilabel[arcs].tolist(), *columns, strict=True):
                by_label.setdefault(label, []).append(tuple(rest))
        return by_label


def compose(fst: Fst, other: Matcher | Fst) -> Fst:
    """The paths that both acceptors have; weights are added. Neither may have arcs of label 0."""
    left = States(fst)
    right = other if isinstance(other, Matcher) else Matcher(other)
    if fst.start < 0 or right.start < 0:
        return acceptor([], [])
    number = {(fst.start, right.start): 0}
    pairs = [(fst.start, right.start)]
    arcs: list[list[Arc]] = []
    for a, b in pairs:  # grows in the loop
        matching = right.arcs(b)
        outgoing: list[Arc] = []
        for label, weight, target in left.arcs[a]:
            for more, second in matching.get(label, ()):
                pair = target, second
                if pair not in number:
                    number[pair] = len(pairs)
                    pairs.append(pair)
                outgoing.append((label, weight + more, number[pair]))
        arcs.append(outgoing)
    firsts, seconds = np.array(pairs).T
    return connect(acceptor(arcs, fst.final[firsts] + right.final[seconds]))


def determinize(fst: Fst, most_states: int | None = None) -> Fst | None:
    """With one arc of a label from each state; None where that takes `most_states` states or more.

    The acceptor must have no arcs of label 0.
    """
    states = States(fst)
    zero = np.float32(0)
    first = ((fst.start, zero),)
    number: dict[tuple[tuple[int, np.floating], ...], int] = {first: 0}
    subsets: list[tuple[tuple[int, np.floating], ...]] = [first]
    arcs: list[list[Arc]] = []
    final = []
    for subset in subsets:  # grows in the loop
        reached: dict[int, dict[int, np.float32]] = {}
        end = INFINITY
        for state, left in subset:
            end = min(end, left + states.final[state])
            for label, weight, target in states.arcs[state]:
                group = reached.setdefault(label, {})
                group[target] = min(group.get(target, INFINITY), left + weight)
        final.append(end)
        outgoing: list[Arc] = []
        for label in sorted(reached):
            group = reached[label]
            best = min(group.values())
            key: tuple[tuple[int, np.floating], ...]
            if len(group) == 1:
                key = ((next(iter(group)), zero),)
            else:
                key = tuple(
                    (state, _rounded(weight - best, _RESIDUAL_STEP))
                    for state, weight in sorted(group.items())
                )
            if key not in number:
                if most_states is not None and len(number) >= most_states:
                    return None
                number[key] = len(subsets)
                subsets.append(key)
            outgoing.append((label, best, number[key]))
        arcs.append(outgoing)
    return acceptor(arcs, final)


def _rounded(weight: np.float32, step: np.float32) -> np.float32:
    return np.float32(np.floor(weight / step + _HALF) * step)


def minimize(fst: Fst) -> Fst:
    """With as few states as possible, weights as early on each path as they can stand.

    Args:
        fst: deterministic, without loops of more than one state, every state on a path to an end.

    Raises:
        ShapeError: there is such a loop.
    """
    if not fst.states:
        return fst
    order = _backwards(fst)
    states = _push(fst, order)
    codes: dict[tuple[int, np.float32], int] = {}
    coded: list[list[tuple[int, int]]] = []
    for state, group in enumerate(states.arcs):
        entries = [
            (codes.setdefault((label, weight), len(codes)), target)
            for label, weight, target in group
        ]
        if not np.isinf(states.final[state]):
            key = _END, states.final[state]
            entries.append((codes.setdefault(key, len(codes)), -1))
        coded.append(entries)
    member = _classes(coded, order)
    labels = list(codes)
    kept = {}
    for state in range(fst.states):
        kept.setdefault(member[state], state)
    number = {member[state]: i for i, state in enumerate(sorted(kept.values()))}
    arcs: list[list[Arc]] = []
    final = []
    for state in sorted(kept.values()):
        group = []
        end = INFINITY
        for code, target in sorted(set(coded[state])):
            label, weight = labels[code]
            if target < 0:
                end = weight
            else:
                group.append((label, weight, number[member[target]]))
        arcs.append(group)
        final.append(end)
    return acceptor(arcs, final)


def _classes(coded: list[list[tuple[int, int]]], order: list[int]) -> list[int]:
    """A number for each state; those with the same arcs to states of the same number share it."""
    member = [-1] * len(coded)
    if not any(target == state for state, group in enumerate(coded) for _, target in group):
        known: dict[frozenset[tuple[int, int]], int] = {}
        for state in order:  # seen from the ends of paths
            key = frozenset(
                (code, member[target] if target >= 0 else -1) for code, target in coded[state]
            )
            member[state] = known.setdefault(key, len(known))
        return member
    count = 1
    member = [0] * len(coded)
    while True:  # refined until nothing differs any more (Moore)
        split: dict[tuple[int, frozenset[tuple[int, int]]], int] = {}
        finer = []
        for state, group in enumerate(coded):
            arcs = frozenset(
                (code, member[target] if target >= 0 else -1) for code, target in group
            )
            finer.append(split.setdefault((member[state], arcs), len(split)))
        if len(split) == count:
            return member
        count = len(split)
        member = finer


def _backwards(fst: Fst) -> list[int]:
    """The states, each after all others that its arcs lead to."""
    begin, following = fst.begin.tolist(), fst.nextstate.tolist()
    others = [
        [target for target in following[first:end] if target != state]
        for state, (first, end) in enumerate(itertools.pairwise(begin))
    ]
    order = depth_first(others, range(fst.states))
    if order is None:
        raise ShapeError("an FST that is to be minimized has a loop")
    return order


def _push(fst: Fst, order: list[int]) -> States:
    """Weights moved towards the start: the best way on from any state but the start is then 0."""
    states = States(fst)
    rest = np.empty(fst.states, np.float32)
    for state in order:
        ways = [w + rest[target] for _, w, target in states.arcs[state] if target != state]
        rest[state] = min([states.final[state], *ways])
    final = np.empty(fst.states, np.float32)
    for state, group in enumerate(states.arcs):
        moved = np.float32(0) if state == fst.start else rest[state]
        whole = rest[state]
        pushed = []
        for label, weight, target in group:
            weight = (weight + rest[target]) - whole
            if state == fst.start:
                weight = whole + weight
            pushed.append((label, _rounded(weight, _PUSHED_STEP), target))
        states.arcs[state] = pushed
        final[state] = states.final[state] - moved
        if not np.isinf(final[state]):
            final[state] = _rounded(final[state], _PUSHED_STEP)
    states.final = final
    return states
