"""Fewer states: costs and ids pushed to the front, and states with the same ways onward made one.

Source: Kaldi's `lat/push-lattice.cc`, `lat/minimize-lattice.cc`.
"""

from __future__ import annotations

from .lattice import CompactLattice, Weight, single, top_sorted
from .operations import connected


def weights_pushed(lattice: CompactLattice) -> CompactLattice:
    """The same paths at the same costs, with the best way onward from each state but the first at
    no cost.

    Raises:
        ShapeError: it has a loop.
    """
    lattice = connected(top_sorted(lattice))
    rest: list[tuple[float, float]] = [(0.0, 0.0)] * lattice.states  # whole and graph cost
    for state in range(lattice.states - 1, -1, -1):
        if state == lattice.start:
            continue
        ways = [
            (arc.weight.cost + rest[arc.target][0], arc.weight.graph + rest[arc.target][1])
            for arc in lattice.arcs[state]
        ]
        end = lattice.final[state]
        if end is not None:
            ways.append((end.cost, end.graph))
        rest[state] = min(ways)

    def moved(weight: Weight, to: tuple[float, float], state: int) -> Weight:
        cost, graph = (to[side] - rest[state][side] for side in (0, 1))
        acoustic = weight.acoustic + cost - graph
        return Weight(single(weight.graph + graph), single(acoustic), weight.ids)

    pushed = CompactLattice(lattice.start)
    for state, group in enumerate(lattice.arcs):
        pushed.arcs.append(
            [arc._replace(weight=moved(arc.weight, rest[arc.target], state)) for arc in group]
        )
        end = lattice.final[state]
        pushed.final.append(None if end is None else moved(end, (0.0, 0.0), state))
    return pushed


def minimized(lattice: CompactLattice, delta: float = 1 / 1024) -> CompactLattice:
    """With one state for all that have the same arcs onward, with costs equal up to `delta`.

    Raises:
        ShapeError: it has a loop.
    """
    lattice = top_sorted(lattice)
    kept = list(range(lattice.states))
    known: dict[object, list[int]] = {}
    costs: list[list[float]] = [[] for _ in lattice.arcs]
    for state in range(lattice.states - 1, -1, -1):
        end = lattice.final[state]
        ways = sorted(
            (arc.label, kept[arc.target], arc.weight.ids, arc.weight.cost)
            for arc in lattice.arcs[state]
        )
        form = (None if end is None else end.ids, tuple(way[:3] for way in ways))
        costs[state] = [way[3] for way in ways] + ([] if end is None else [end.cost])
        group = known.setdefault(form, [])
        for other in group:
            pairs = zip(costs[state], costs[other], strict=True)
            if all(abs(ours - theirs) <= delta for ours, theirs in pairs):
                kept[state] = other
                break
        else:
            group.append(state)
    arcs = [
        [arc._replace(target=kept[arc.target]) for arc in group] if kept[state] == state else []
        for state, group in enumerate(lattice.arcs)
    ]
    final = [end if kept[state] == state else None for state, end in enumerate(lattice.final)]
    start = kept[lattice.start] if lattice.start >= 0 else -1
    return connected(CompactLattice(start, arcs, final))


def strings_pushed(lattice: CompactLattice) -> CompactLattice:
    """The same paths, with ids on the first arcs that can have them.

    Raises:
        ShapeError: it has a loop.
    """
    lattice = top_sorted(lattice)
    common: list[tuple[int, ...]] = [()] * lattice.states
    for state in range(lattice.states - 1, -1, -1):
        if state == lattice.start:
            continue
        ways = [arc.weight.ids + common[arc.target] for arc in lattice.arcs[state]]
        end = lattice.final[state]
        if end is not None:
            ways.append(end.ids)
        common[state] = _prefix(ways)
    pushed = CompactLattice(lattice.start)
    for state, group in enumerate(lattice.arcs):
        cut = len(common[state])
        arcs = [
            arc._replace(
                weight=arc.weight._replace(ids=(arc.weight.ids + common[arc.target])[cut:])
            )
            for arc in group
        ]
        pushed.arcs.append(arcs)
        end = lattice.final[state]
        pushed.final.append(None if end is None else end._replace(ids=end.ids[cut:]))
    return pushed


def _prefix(ways: list[tuple[int, ...]]) -> tuple[int, ...]:
    if not ways:
        return ()
    first = min(ways)
    last = max(ways)
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:place]
    return first[: len(last)]
