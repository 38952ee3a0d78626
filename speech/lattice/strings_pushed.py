"""Transition-ids moved to the front: what all ways from a state begin with goes to the arcs before.

Source: Kaldi's `lat/push-lattice.cc`.
"""

from __future__ import annotations

from ...nnet3.lattices.lattice import CompactLattice, top_sorted


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
    made = CompactLattice(lattice.start)
    for state, group in enumerate(lattice.arcs):
        cut = len(common[state])
        arcs = [
            arc._replace(
                weight=arc.weight._replace(ids=(arc.weight.ids + common[arc.target])[cut:])
            )
            for arc in group
        ]
        made.arcs.append(arcs)
        end = lattice.final[state]
        made.final.append(None if end is None else end._replace(ids=end.ids[cut:]))
    return made


def _prefix(ways: list[tuple[int, ...]]) -> tuple[int, ...]:
    if not ways:
        return ()
    first, last = min(ways), max(ways)
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:place]
    return first[: len(last)]
