"""Epsilons of transducers removed where that makes neither more arcs nor more states.

Two arcs in a row become one where at most one of them has an input label, and at most one has an
output label. This is done where the state between them has a single way in, or a single way out;
an end is a way out, the start a way in.

Source: Kaldi's `fstext/remove-eps-local.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....framework.base.sequence import bincount
from ..fst import Fst
from . import compiled
from .acceptors import connect
from .determinize_star import log_sum

Arc = tuple[int, int, float, int]
"""Input label, output label, weight, next state."""


def remove_epsilons_locally(fst: Fst, *, log: bool = False, sums_in_log: bool = True) -> Fst:
    """The same paths in fewer arcs.

    Args:
        log: ends that become one have the sum of their probabilities; else the better one counts.
        sums_in_log: where some ways out of a state are moved, the rest is weighed so that the
            probabilities of each state keep their sum; else so that the best one stays the same.
    """
    fst = connect(fst)
    if not fst.states:
        return fst
    functions = compiled.library("local_epsilons")
    if functions is not None:
        given = {"log": log, "sums_in_log": sums_in_log}
        block = compiled.fst_block(functions, fst)
        return connect(compiled.make(functions, "without_epsilons", fst=block, **given))
    return connect(_Remover(fst, log_sum if log else min, log_sum if sums_in_log else min).run())


def _joined(one: Arc, other: Arc) -> Arc | None:
    """The arc that stands for both, if there is one."""
    if (one[0] and other[0]) or (one[1] and other[1]):
        return None
    return one[0] or other[0], one[1] or other[1], one[2] + other[2], other[3]


class _Remover:
    """The arcs of each state; None stands for one that is removed.

    The FST must be connected: a state whose only way out is a loop would be joined without end.
    """

    def __init__(
        self,
        fst: Fst,
        plus: Callable[[float, float], float],
        weighed: Callable[[float, float], float],
    ) -> None:
        self._start = fst.start
        self._plus = plus
        self._weighed = weighed
        begin, rows = fst.begin.tolist(), fst.arcs.tolist()
        self._arcs: list[list[Arc | None]] = [
            rows[first:last] for first, last in zip(begin[:-1], begin[1:], strict=True)
        ]
        self._final: list[float] = fst.final.tolist()
        ends = ~np.isinf(fst.final)
        self._out: list[int] = (np.diff(fst.begin) + ends).tolist()
        self._in: list[int] = bincount(fst.nextstate, minlength=fst.states).tolist()
        self._in[fst.start] += 1

    def run(self) -> Fst:
        for state, arcs in enumerate(self._arcs):
            for place, arc in enumerate(arcs):  # which grow in the loop
                if arc is None or arc[3] == state:
                    continue
                after = arc[3]
                if self._in[after] == 1 < self._out[after]:
                    self._move_ways_out(state, place, arc)
                elif self._out[after] == 1:
                    self._follow_way_out(state, place, arc)
        rows = [
            (state, *arc)
            for state, arcs in enumerate(self._arcs)
            for arc in arcs
            if arc is not None
        ]
        columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0, int)] * 5
        source, ilabel, olabel, weight, target = columns
        final = np.array(self._final)
        return Fst.of_arcs(source, ilabel, weight, target, final, olabel, self._start)

    def _move_ways_out(self, state: int, place: int, arc: Arc) -> None:
        """Ways out of a state that only `arc` leads to start where `arc` does, if they can."""
        after = arc[3]
        moved = kept = math.inf
        for at, way in enumerate(self._arcs[after]):
            if way is None:
                continue
            joined = _joined(arc, way)
            if joined is None:
                kept = self._weighed(kept, way[2])
                continue
            moved = self._weighed(moved, way[2])
            self._remove(after, at, way)
            self._add(state, joined)
        if self._final[after] < math.inf:
            if arc[0] or arc[1]:
                kept = self._weighed(kept, self._final[after])
            else:
                moved = self._weighed(moved, self._final[after])
                self._end(state, arc[2] + self._final[after])
                self._final[after] = math.inf
                self._out[after] -= 1
        if moved == math.inf:
            return
        if kept == math.inf:
            self._remove(state, place, arc)
            return
        share = kept - self._weighed(moved, kept)
        self._arcs[state][place] = (*arc[:2], arc[2] + share, after)
        self._arcs[after] = [
            way and (*way[:2], way[2] - share, way[3]) for way in self._arcs[after]
        ]
        self._final[after] -= share

    def _follow_way_out(self, state: int, place: int, arc: Arc) -> None:
        """`arc` and the single way out of the state that it leads to become one, if they can."""
        after = arc[3]
        is_last = self._in[after] == 1  # no other arc needs that state
        if self._final[after] < math.inf:
            if arc[0] or arc[1]:
                return
            self._end(state, arc[2] + self._final[after])
            if is_last:
                self._final[after] = math.inf
                self._out[after] -= 1
        else:
            at, way = next((at, way) for at, way in enumerate(self._arcs[after]) if way is not None)
            joined = _joined(arc, way)
            if joined is None:
                return
            if is_last:
                self._remove(after, at, way)
            self._add(state, joined)
        self._remove(state, place, arc)

    def _add(self, state: int, arc: Arc) -> None:
        self._arcs[state].append(arc)
        self._out[state] += 1
        self._in[arc[3]] += 1

    def _remove(self, state: int, place: int, arc: Arc) -> None:
        self._arcs[state][place] = None
        self._out[state] -= 1
        self._in[arc[3]] -= 1

    def _end(self, state: int, weight: float) -> None:
        self._out[state] += self._final[state] == math.inf
        self._final[state] = self._plus(self._final[state], weight)
