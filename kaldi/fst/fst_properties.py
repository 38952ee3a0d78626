"""The properties that OpenFst's files state of an FST, computed from its arrays.

Each is a pair of bits: it holds, or it does not. Source: OpenFst's `properties.h`,
`test-properties.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...framework.base.algorithms.strongly_connected import strongly_connected
from ...framework.base.sequence import bincount
from .fst import EXPANDED, MUTABLE, Fst

# place of the bit that says yes; the next one says no
_ACCEPTOR = 16
_DETERMINISTIC = {"ilabel": 18, "olabel": 20}
_EPSILONS = 22  # on both sides of an arc
_EPSILONS_OF = {"ilabel": 24, "olabel": 26}
_SORTED = {"ilabel": 28, "olabel": 30}
_WEIGHTED, _CYCLIC, _INITIAL_CYCLIC, _TOP_SORTED = 32, 34, 36, 38
_ACCESSIBLE, _COACCESSIBLE, _STRING, _WEIGHTED_CYCLES = 40, 42, 44, 46


def label_properties(fst: Fst) -> int:
    """The properties that follow from the labels and weights of single states."""
    source = fst.source()
    same = source[1:] == source[:-1]
    final = fst.final[~np.isinf(fst.final)]
    properties = {
        _ACCEPTOR: np.array_equal(fst.ilabel, fst.olabel),
        _EPSILONS: bool(((fst.ilabel == 0) & (fst.olabel == 0)).any()),
        _WEIGHTED: bool(_weighted(fst).any() or (final != 0).any()),
    }
    for side, bit in _SORTED.items():
        label = fst.arcs[side]
        rises = not (same & (label[1:] < label[:-1])).any()
        keys = source * (1 << 32) + label
        keys = keys if rises else np.sort(keys)
        properties[bit] = rises
        properties[_DETERMINISTIC[side]] = not (keys[1:] == keys[:-1]).any()
        properties[_EPSILONS_OF[side]] = bool((label == 0).any())
    return _bits(properties)


def acceptor_properties(fst: Fst) -> int:
    """All properties of an acceptor: labels out are labels in."""
    source = fst.source()
    target = fst.nextstate
    final = ~np.isinf(fst.final)
    forward = bool((target > source).all())
    loops = np.zeros(0, np.int64) if forward else _in_loops(fst)
    in_loop = np.isin(source, loops) & np.isin(target, loops)
    reached = reachable(source, target, fst.states, [fst.start] if fst.start >= 0 else [])
    ending = reachable(target, source, fst.states, np.flatnonzero(final).tolist())
    ends = np.flatnonzero(final)
    counts = np.diff(fst.begin)
    is_string = (
        fst.start in (-1, 0)
        and bool((target == source + 1).all())
        and bool((counts[~final] == 1).all())
        and (not len(ends) or int(ends[0]) == fst.states - 1)
    )
    properties = {
        _CYCLIC: bool(len(loops)),
        _INITIAL_CYCLIC: fst.start in loops,
        _TOP_SORTED: forward,
        _ACCESSIBLE: bool(reached.all()),
        _COACCESSIBLE: bool(ending.all()),
        _STRING: is_string,
        _WEIGHTED_CYCLES: bool((_weighted(fst) & in_loop).any()),
    }
    return EXPANDED | label_properties(fst) | _bits(properties)


def simple_properties(fst: Fst) -> int:
    """What OpenFst knows of an FST once its arcs were added, state by state and one by one."""
    forward = bool((fst.nextstate > fst.source()).all())
    properties = {_TOP_SORTED: forward}
    if forward:
        properties |= {_CYCLIC: False, _INITIAL_CYCLIC: False}
    known = label_properties(fst) & ~sum(3 << bit for bit in _DETERMINISTIC.values())
    return EXPANDED | MUTABLE | known | _bits(properties)


def sorted_properties(fst: Fst, other: str) -> int:
    """The same of an FST that was sorted by its labels of one side.

    Whether those of the `other` side are in order, too, OpenFst only knows of an acceptor.
    """
    known = simple_properties(fst)
    return known if known >> _ACCEPTOR & 1 else known & ~(3 << _SORTED[other])


def _weighted(fst: Fst) -> np.ndarray:
    return (fst.weight != 0) & ~np.isinf(fst.weight)


def _bits(properties: dict[int, bool]) -> int:
    return sum(1 << (bit if holds else bit + 1) for bit, holds in properties.items())


def reachable(
    source: np.ndarray, target: np.ndarray, states: int, first: Sequence[int]
) -> np.ndarray:
    """Whether arcs lead from the `first` states to each state: bool, [states]."""
    order = np.argsort(source, kind="stable")
    begin = np.concatenate(([0], np.cumsum(bincount(source, minlength=states)))).tolist()
    following = target[order].tolist()
    seen = [False] * states
    for state in first:
        seen[state] = True
    stack = list(first)
    while stack:
        state = stack.pop()
        for other in following[begin[state] : begin[state + 1]]:
            if not seen[other]:
                seen[other] = True
                stack.append(other)
    return np.array(seen, bool)


def _in_loops(fst: Fst) -> np.ndarray:
    """The states that are on a loop."""
    begin, target = fst.begin.tolist(), fst.nextstate.tolist()
    following = [target[a:b] for a, b in zip(begin[:-1], begin[1:], strict=True)]
    loops = [
        state
        for members in strongly_connected(following)
        for state in members
        if len(members) > 1 or state in following[state]
    ]
    return np.array(sorted(loops), np.int64)
