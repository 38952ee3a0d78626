"""Plain lattices as acceptors of transition-ids: projected, reversed, determinized, joined.

Every arc has its transition-id as its label; of paths with the same transition-ids the best one
counts. What these functions give is what OpenFst gives with Kaldi's weights, to the order of states
and arcs and to the rounding of costs left over in determinization, multiples of 1/1024.

Source: OpenFst's `project.h`, `reverse.h`, `determinize.h`, `concat.h`; `LatticeWeightTpl` in
Kaldi's `fstext/lattice-weight.h`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...framework.base.errors import ShapeError
from .lattice import ONE, Arc, CompactLattice, Weight, renumbered, single, topological_order

_RESIDUAL_STEP = 1 / 1024


def depth_sorted(lattice: CompactLattice) -> CompactLattice:
    """With states in the topological order of a depth-first search, even if they are in one.

    Raises:
        ShapeError: it has a loop.
    """
    order = topological_order(lattice)
    if order is None:
        raise ShapeError("the lattice has a loop")
    return renumbered(lattice, order)


def projected(lattice: CompactLattice) -> CompactLattice:
    """With the transition-id of each arc as its label, 0 where it has none."""
    arcs = [[arc._replace(label=sum(arc.weight.ids)) for arc in group] for group in lattice.arcs]
    return CompactLattice(lattice.start, arcs, list(lattice.final))


def reversed_lattice(lattice: CompactLattice) -> CompactLattice:
    """The paths from their ends to the start. State 0 is new: arcs of label 0 lead to the ends."""
    result = CompactLattice(0)
    for _ in range(lattice.states + 1):
        result.add_state()
    for state, group in enumerate(lattice.arcs):
        end = lattice.final[state]
        if end is not None:
            result.arcs[0].append(Arc(0, end, state + 1))
        for label, weight, target in group:
            result.arcs[target + 1].append(Arc(label, weight, state + 1))
    if lattice.start >= 0:
        result.final[lattice.start + 1] = ONE
    return result


def determinized_acceptor(lattice: CompactLattice) -> CompactLattice:
    """With one arc of a label from each state; 0 is a label like any other."""
    if lattice.start < 0:
        return CompactLattice()
    first = ((lattice.start, ONE),)
    number: dict[tuple[tuple[int, Weight], ...], int] = {first: 0}
    subsets: list[tuple[tuple[int, Weight], ...]] = [first]
    result = CompactLattice(0)
    for place, subset in enumerate(subsets):  # grows in the loop
        result.add_state()
        reached: dict[int, dict[int, Weight]] = {}
        end: Weight | None = None
        for state, left in subset:
            ending = lattice.final[state]
            if ending is not None:
                way = left.times(ending)
                end = way if end is None else end.plus(way)
            for label, weight, target in lattice.arcs[state]:
                group = reached.setdefault(label, {})
                way = left.times(weight._replace(ids=()))
                group[target] = group[target].plus(way) if target in group else way
        result.final[place] = end
        for label in sorted(reached):
            group = reached[label]
            best = None
            for weight in group.values():
                best = weight if best is None else best.plus(weight)
            assert best is not None
            key = tuple(
                (state, _left_over(weight, best)) for state, weight in sorted(group.items())
            )
            if key not in number:
                number[key] = len(subsets)
                subsets.append(key)
            ids = (label,) if label else ()
            result.arcs[place].append(Arc(label, best._replace(ids=ids), number[key]))
    return result


def _left_over(weight: Weight, best: Weight) -> Weight:
    """The costs of a path less the costs of the best one."""
    return Weight(_rounded(weight.graph - best.graph), _rounded(weight.acoustic - best.acoustic))


def _rounded(cost: float) -> float:
    return math.floor(single(cost) / _RESIDUAL_STEP + 0.5) * _RESIDUAL_STEP


def concatenated(lattices: Sequence[CompactLattice]) -> CompactLattice:
    """The paths through all of them, one after the other.

    Raises:
        ShapeError: one has a loop.
    """
    *before, last = lattices
    result = CompactLattice(last.start, [list(group) for group in last.arcs], list(last.final))
    for lattice in reversed(before):
        offset, start = result.states, result.start
        for state, group in enumerate(lattice.arcs):
            new = result.add_state()
            end = lattice.final[state]
            if end is not None:
                result.arcs[new].append(Arc(0, end, start))
            result.arcs[new] += [arc._replace(target=arc.target + offset) for arc in group]
        result.start = lattice.start + offset
    return depth_sorted(result)
