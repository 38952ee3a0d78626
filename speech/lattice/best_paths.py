"""The best paths of a lattice, one lattice each."""

from __future__ import annotations

import heapq
import itertools
import math

from ...framework.base.errors import OpscopeError
from ...kaldi.lattices.lattice import Arc, CompactLattice, top_sorted
from ...kaldi.lattices.unfold import check_lattice


def n_best(lattice: CompactLattice, count: int) -> list[CompactLattice]:
    """The paths of the least cost, best first; fewer where the lattice has fewer.

    In a deterministic lattice each has other words. States are followed in the order of the best
    path through them, so that no other path is looked at.

    Raises:
        OpscopeError: `count` is below 1.
        ShapeError: the lattice is empty or has a loop.
    """
    if count < 1:
        raise OpscopeError(f"{count} best paths were asked for: 1 at least is wanted")
    check_lattice(lattice)
    lattice = top_sorted(lattice)
    rest = [math.inf] * lattice.states
    for state in range(lattice.states - 1, -1, -1):
        end = lattice.final[state]
        least = math.inf if end is None else end.cost
        rest[state] = min([least, *(a.weight.cost + rest[a.target] for a in lattice.arcs[state])])
    order = itertools.count()
    # cost of the whole path, order, cost so far, state (-1: it has ended), the arcs to it
    queue = [(rest[lattice.start], next(order), 0.0, lattice.start, _Steps(None, None))]
    taken = [0] * lattice.states
    paths: list[CompactLattice] = []
    while queue and len(paths) < count:
        total, _, cost, state, steps = heapq.heappop(queue)
        if total == math.inf:
            break
        if state < 0:
            paths.append(_path(lattice, steps))
            continue
        taken[state] += 1
        if taken[state] > count:
            continue
        end = lattice.final[state]
        if end is not None:
            whole = cost + end.cost
            heapq.heappush(queue, (whole, next(order), whole, -1, steps.then(state)))
        for arc in lattice.arcs[state]:
            so_far = cost + arc.weight.cost
            item = (so_far + rest[arc.target], next(order), so_far, arc.target, steps.then(arc))
            heapq.heappush(queue, item)
    return paths


class _Steps:
    """The arcs of a path, from its last one back; the last item of a whole path is its state."""

    __slots__ = ("before", "item")

    def __init__(self, before: _Steps | None, item: Arc | int | None) -> None:
        self.before = before
        self.item = item

    def then(self, item: Arc | int) -> _Steps:
        return _Steps(self, item)


def _path(lattice: CompactLattice, steps: _Steps) -> CompactLattice:
    arcs: list[Arc] = []
    last = -1
    at: _Steps | None = steps
    while at is not None:
        if isinstance(at.item, Arc):
            arcs.append(at.item)
        elif at.item is not None:
            last = at.item
        at = at.before
    arcs.reverse()
    path = CompactLattice(0)
    for place, arc in enumerate(arcs):
        path.add_state()
        path.arcs[place].append(arc._replace(target=place + 1))
    path.add_state()
    path.final[-1] = lattice.final[last]
    return path
