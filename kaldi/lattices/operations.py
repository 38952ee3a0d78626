"""Operations on lattices: connected, without empty arcs, pruned, cut to the best path, timed.

States and arcs have the same order as in OpenFst and Kaldi.

Source: OpenFst's `connect.h`, `rmepsilon.h`; Kaldi's `lat/lattice-functions.cc`.
"""

from __future__ import annotations

import math

from ...framework.base.errors import ShapeError
from .lattice import (
    ONE,
    Arc,
    CompactLattice,
    Weight,
    is_top_sorted,
    renumbered,
    single,
    top_sorted,
    topological_order,
)

_SHORTEST_STEP = 1e-6
"""Costs that differ by less are equal in the search for shortest distances."""


def connected(lattice: CompactLattice) -> CompactLattice:
    """Without the states that are on no path from the start to an end."""
    before: list[list[int]] = [[] for _ in lattice.arcs]
    for state, group in enumerate(lattice.arcs):
        for arc in group:
            before[arc.target].append(state)
    after = [[arc.target for arc in group] for group in lattice.arcs]
    ends = [state for state, end in enumerate(lattice.final) if end is not None]
    starts = [lattice.start] if lattice.start >= 0 else []
    kept = _reached(after, starts) & _reached(before, ends)
    if len(kept) == lattice.states:
        return lattice
    return renumbered(lattice, sorted(kept))


def _reached(following: list[list[int]], first: list[int]) -> set[int]:
    seen = set(first)
    stack = list(first)
    while stack:
        for state in following[stack.pop()]:
            if state not in seen:
                seen.add(state)
                stack.append(state)
    return seen


def with_one_end(lattice: CompactLattice) -> CompactLattice:
    """With a last state of its own that all paths end in, by an arc with the weight of ending;
    unchanged if there is one end already, without arcs and weight."""
    ends = [state for state, end in enumerate(lattice.final) if end is not None]
    if len(ends) == 1 and lattice.final[ends[0]] == ONE and not lattice.arcs[ends[0]]:
        return lattice
    last = lattice.states
    arcs = [list(group) for group in lattice.arcs] + [[]]
    for state in ends:
        arcs[state].append(Arc(0, lattice.final[state] or ONE, last))
    return CompactLattice(lattice.start, arcs, [None] * last + [ONE])


def without_epsilons(lattice: CompactLattice) -> CompactLattice:
    """The same paths without arcs of label 0; costs and ids of these go to the arcs after.

    Raises:
        ShapeError: such arcs form a loop.
    """
    empty = [[arc.target for arc in group if not arc.label] for group in lattice.arcs]
    order = topological_order(lattice, empty)
    if order is None:
        raise ShapeError("the lattice has a loop of arcs without labels")
    kept = {arc.target for group in lattice.arcs for arc in group if arc.label}
    kept.add(lattice.start)
    result = CompactLattice(lattice.start, list(lattice.arcs), list(lattice.final))
    for state in reversed(order):
        if state in kept:
            result.arcs[state], result.final[state] = _closed(result, state)
    return connected(result)


def _closed(lattice: CompactLattice, source: int) -> tuple[list[Arc], Weight | None]:
    """The arcs with labels that can be reached from a state without any, the last ones first."""
    distance = {source: ONE}
    for state in _empty_order(lattice, source):
        for label, weight, target in lattice.arcs[state]:
            if label:
                continue
            way = distance[state].times(weight)
            known = distance.get(target)
            if known is None or not _about_equal(known, known.plus(way)):
                distance[target] = way if known is None else known.plus(way)
    weights: dict[tuple[int, int], Weight] = {}
    final: Weight | None = None
    seen: set[int] = set()
    stack = [source]
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        so_far = distance[state]
        for label, weight, target in lattice.arcs[state]:
            if not label:
                stack.append(target)
                continue
            total = so_far.times(weight)
            known = weights.get((label, target))
            weights[label, target] = total if known is None else known.plus(total)
        end = lattice.final[state]
        if end is not None:
            total = so_far.times(end)
            final = total if final is None else final.plus(total)
    arcs = [Arc(label, weight, target) for (label, target), weight in weights.items()]
    return arcs[::-1], final


def _about_equal(weight: Weight, other: Weight) -> bool:
    """Whether OpenFst takes two distances for one: of ways of about one cost the first counts."""
    difference = single(single(weight.cost) - single(other.cost))
    return weight.ids == other.ids and abs(difference) < _SHORTEST_STEP


def _empty_order(lattice: CompactLattice, source: int) -> list[int]:
    """The states that arcs without labels lead to, each after those that lead to it."""
    finished: list[int] = []
    entered = {source}
    stack = [(source, iter(lattice.arcs[source]))]
    while stack:
        state, more = stack[-1]
        arc = next(more, None)
        if arc is None:
            finished.append(state)
            stack.pop()
        elif not arc.label and arc.target not in entered:
            entered.add(arc.target)
            stack.append((arc.target, iter(lattice.arcs[arc.target])))
    return finished[::-1]


def state_times(lattice: CompactLattice) -> tuple[list[int], int]:
    """The frames before each state (-1: no path leads there), and in the whole lattice.

    Raises:
        ShapeError: it is not sorted, does not start in state 0, has no end, or paths differ in
            length.
    """
    if lattice.start != 0 or not is_top_sorted(lattice):
        raise ShapeError("the states of the lattice are not in topological order from state 0 on")
    times = [-1] * lattice.states
    times[0] = 0
    lengths: set[int] = set()
    for state, group in enumerate(lattice.arcs):
        if times[state] < 0:
            continue
        for _, weight, target in group:
            time = times[state] + len(weight.ids)
            if times[target] not in (-1, time):
                raise ShapeError(
                    f"paths to state {target} of the lattice have {times[target]} and {time} frames"
                )
            times[target] = time
        end = lattice.final[state]
        if end is not None:
            lengths.add(times[state] + len(end.ids))
    if len(lengths) != 1:
        actual = f"paths of {sorted(lengths)} frames" if lengths else "no end"
        raise ShapeError(f"the lattice has {actual}: one length was expected")
    return times, lengths.pop()


def pruned(lattice: CompactLattice, beam: float) -> CompactLattice:
    """Without the arcs on no path whose cost is within `beam` of the best path's.

    Raises:
        ShapeError: it has a loop.
    """
    lattice = top_sorted(lattice)
    if lattice.start < 0:
        return lattice
    forward = [math.inf] * lattice.states
    forward[lattice.start] = 0.0
    best = math.inf
    for state, group in enumerate(lattice.arcs):
        for _, weight, target in group:
            forward[target] = min(forward[target], forward[state] + weight.cost)
        end = lattice.final[state]
        if end is not None:
            best = min(best, forward[state] + end.cost)
    most = best + beam
    backward = [math.inf] * lattice.states
    arcs: list[list[Arc]] = [[] for _ in lattice.arcs]
    final = list(lattice.final)
    for state in range(lattice.states - 1, -1, -1):
        end = final[state]
        if end is not None:
            backward[state] = end.cost
            if forward[state] + end.cost > most:
                final[state] = None
        for arc in lattice.arcs[state]:
            rest = arc.weight.cost + backward[arc.target]
            backward[state] = min(backward[state], rest)
            if forward[state] + rest <= most:
                arcs[state].append(arc)
    return connected(CompactLattice(lattice.start, arcs, final))


def best_path(lattice: CompactLattice) -> CompactLattice:
    """The path of the least cost, as a lattice; empty where no path has a finite cost.

    Raises:
        ShapeError: it has a loop.
    """
    lattice = top_sorted(lattice)
    if lattice.start < 0:
        return CompactLattice()
    cost = [math.inf] * lattice.states
    cost[lattice.start] = 0.0
    before: dict[int, int] = {}
    best = math.inf
    last = -1
    for state, group in enumerate(lattice.arcs):
        for _, weight, target in group:
            if cost[state] + weight.cost < cost[target]:
                cost[target], before[target] = cost[state] + weight.cost, state
        end = lattice.final[state]
        if end is not None and cost[state] + end.cost < best:
            best = cost[state] + end.cost
            last = state
    if last < 0:
        return CompactLattice()
    path = [last]
    while path[-1] != lattice.start:
        path.append(before[path[-1]])
    path.reverse()
    linear = CompactLattice(0)
    for place, state in enumerate(path):
        linear.add_state()
        if place + 1 < len(path):
            ways = [arc for arc in lattice.arcs[state] if arc.target == path[place + 1]]
            arc = min(ways, key=lambda arc: arc.weight.cost)
            linear.arcs[place].append(arc._replace(target=place + 1))
    linear.final[-1] = lattice.final[last]
    return linear
