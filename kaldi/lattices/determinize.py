"""Determinization: for each sequence of words the best path, and only those within a beam.

States of the result are sets of states with costs and transition-ids that are still to come. Arcs
are made in the order of the best path through them, so that an early end leaves the best part.
`native/lattices.c` does the same where it is there, and gives the same states, arcs and costs.

`fst.acceptors.determinize` is no special case of it: that one goes breadth first, has no beam and
no ids, and rounds left-over weights to multiples of 1/1024, as OpenFst does. One function for both
would have to ask at each of these steps which of the two it is.

Source: Kaldi's `lat/determinize-lattice-pruned.cc`; Povey and others, "Generating exact lattices in
the WFST framework", 2012.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option
from .id_strings import IdStrings
from .plain import PlainLattice, pruned, sorted_states

ARC_BYTES, ELEMENT_BYTES, STRING_BYTES = 32, 24, 32
"""What Kaldi counts for an arc, an element of a set, and a sequence of transition-ids."""
LEAST_ROOM = 0.8
"""Of the memory, what cleaning up must leave."""
_ROUNDS = 10

Element = tuple[int, int, float, float]
"""A state, the ids that are still to come, whole and graph cost that are."""


@dataclass(frozen=True)
class DeterminiseOptions:
    """Limits, with Kaldi's names and defaults.

    Attributes:
        max_mem: bytes of the sets, arcs and sequences of ids as Kaldi counts them; Python needs
            several times as much. 0: no limit.
        max_arcs: arcs of the result. 0: no limit.
        retry_cutoff: where a limit leaves less than this part of the beam, the lattice is pruned
            and done again.
        phone_determinize: this pass keeps the sets small.
    """

    delta: float = option(1 / 1024, "Tolerance of costs in determinization")
    max_mem: int = option(50_000_000, "About how much memory determinization may use, in bytes")
    max_arcs: int = 0
    retry_cutoff: float = 0.5
    phone_determinize: bool = option(True, "Determinize by phones and words first")
    word_determinize: bool = option(True, "Determinize by words alone")
    minimize: bool = option(False, "Push and minimize after determinization")

    def __post_init__(self) -> None:
        if not 0 <= self.delta < math.inf:
            raise OpscopeError(f"delta={self.delta}: a number from 0 on is wanted")
        if not 0 <= self.retry_cutoff < 1:
            raise OpscopeError(f"retry_cutoff={self.retry_cutoff}: from 0 to below 1 is wanted")
        for name in ("max_mem", "max_arcs"):
            if getattr(self, name) < 0:
                raise OpscopeError(f"{name}={getattr(self, name)}: a number from 0 on is wanted")


@dataclass(eq=False)
class Result:
    """A deterministic lattice.

    Attributes:
        lattice: with the ids of each arc. end_ids: ids of ending in each state.
        beam: that was reached. complete: whether no limit ended it early.
    """

    lattice: PlainLattice
    end_ids: list[tuple[int, ...]]
    beam: float
    complete: bool


def determinize(lattice: PlainLattice, beam: float, options: DeterminiseOptions) -> Result:
    """Determinize; where limits leave too little of the beam, above 0, again with a smaller one."""
    asked = beam
    for left in range(_ROUNDS - 1, -1, -1):
        result = _Determinizer(lattice, beam, options).run()
        if not left or asked == math.inf or result.beam >= beam * options.retry_cutoff:
            break
        beam *= max(0.5, math.sqrt(max(result.beam, 0.0) / beam))
        lattice = pruned(lattice, beam)
        result.complete = False
    else:
        raise AssertionError("the last round ends the loop")
    result.complete = result.complete and beam == asked
    return result


class _State:
    """A state of the result: its set, the least cost to it, and the arcs that were made."""

    __slots__ = ("arcs", "cost", "elements", "end")

    def __init__(self, elements: list[Element], cost: float) -> None:
        self.elements = elements
        self.cost = cost
        # label, target, ids, whole and graph cost
        self.arcs: list[tuple[int, int, int, float, float]] = []
        self.end: tuple[int, float, float] | None = None  # ids, whole and graph cost


class _Determinizer:
    def __init__(self, lattice: PlainLattice, beam: float, options: DeterminiseOptions) -> None:
        self._lattice = lattice
        self._options = options
        self._beam = beam
        self._empty = [[arc for arc in group if not arc[0]] for group in lattice.arcs]
        self._worded = [[arc for arc in group if arc[0]] for group in lattice.arcs]
        self._rest = lattice.rest()
        self._best = self._rest[0] if self._rest else math.inf
        self._cutoff = self._best + beam
        self._strings = IdStrings()
        self._states: list[_State] = []
        self._arc_count = self._element_count = 0
        # states of the result by the states and ids of their sets, whose costs may differ a little
        self._minimal: dict[tuple[int, ...], list[int]] = {}
        # the same for sets before empty arcs are followed: also ids and costs of the way there
        self._initial: dict[
            tuple[int, ...], list[tuple[list[Element], int, int, float, float]]
        ] = {}
        # priority, order, state, label and set of each arc to be made
        self._queue: list[tuple[float, int, int, int, list[Element]]] = []
        self._tasks = 0

    def run(self) -> Result:
        complete = True
        if self._best < math.inf:
            self._add_state(self._closed([(0, 0, 0.0, 0.0)]), 0.0)
        while self._queue:
            if self._is_full():
                complete = False
                break
            _, _, state, label, elements = heapq.heappop(self._queue)
            self._make_arc(state, label, elements)
        beam = self._beam if complete else self._queue[0][0] - self._best
        lattice, end_ids = self._result()
        return Result(lattice, end_ids, beam, complete)

    def _is_full(self) -> bool:
        most = self._options.max_arcs
        if most and self._arc_count > most:
            return True
        most = self._options.max_mem
        if not most or len(self._states) % 10 or self._bytes() <= most:
            return False
        self._strings.keep(self._needed())
        return self._bytes() > LEAST_ROOM * most

    def _bytes(self) -> int:
        strings = STRING_BYTES * len(self._strings)
        arcs = ARC_BYTES * self._arc_count
        return strings + arcs + ELEMENT_BYTES * self._element_count

    def _needed(self) -> set[int]:
        """The sequences of ids that are still in use."""
        needed = {arc[2] for state in self._states for arc in state.arcs}
        needed |= {state.end[0] for state in self._states if state.end}
        needed |= {element[1] for state in self._states for element in state.elements}
        needed |= {element[1] for task in self._queue for element in task[4]}
        for group in self._initial.values():
            for elements, _, string, _, _ in group:
                needed.add(string)
                needed |= {element[1] for element in elements}
        return needed

    # States

    def _closed(self, elements: list[Element]) -> list[Element]:
        """What empty arcs reach from a set, those with words or ends only, sorted."""
        best = {element[0]: element for element in elements}
        waiting = list(best)
        heapq.heapify(waiting)
        extended = self._strings.extended
        while waiting:
            # all ways to a state come from smaller ones, so that it is done when its turn comes
            state = heapq.heappop(waiting)
            _, string, cost, graph = best[state]
            for _, target, ids, more, part in self._empty[state]:
                total = cost + more
                known = best.get(target)
                if known is None:
                    heapq.heappush(waiting, target)
                elif total > known[2]:
                    continue
                new = (target, extended(string, ids), total, graph + part)
                if known is None or self._is_better(new, known):
                    best[target] = new
        final = self._lattice.final
        return [
            best[state] for state in sorted(best) if self._worded[state] or final[state] is not None
        ]

    def _is_better(self, new: Element, known: Element) -> bool:
        """Whether it costs less; then less of the graph, fewer ids, or greater ones."""
        if new[2:] != known[2:]:
            return new[2:] < known[2:]
        if new[1] == known[1]:
            return False
        ours, theirs = self._strings.ids(new[1]), self._strings.ids(known[1])
        return len(ours) < len(theirs) or (len(ours) == len(theirs) and ours > theirs)

    def _normalized(self, elements: list[Element]) -> tuple[list[Element], int, float, float]:
        """A set without what all have in common, and this: ids, whole and graph cost."""
        cost, graph = min(element[2:] for element in elements)
        strings = self._strings
        common = elements[0][1]
        for element in elements:
            if element[1] != common:
                common = strings.prefix(common, element[1])
        rest = [(s, strings.without(t, common), c - cost, g - graph) for s, t, c, g in elements]
        return rest, common, cost, graph

    def _equal(self, first: list[Element], second: list[Element]) -> bool:
        """Whether the costs of two sets of the same states and ids are about the same."""
        delta = self._options.delta
        return all(
            abs(one[2] - other[2]) <= delta for one, other in zip(first, second, strict=True)
        )

    def _state_of(self, elements: list[Element], cost: float) -> tuple[int, int, float, float]:
        """The state of a set as arcs lead to it, and ids and costs that belong to the arc."""
        key = _key(elements)
        group = self._initial.setdefault(key, [])
        for known, state, string, more, graph in group:
            if self._equal(elements, known):
                return state, string, more, graph
        rest, string, more, graph = self._normalized(self._closed(elements))
        cost += more
        state = -1
        for number in self._minimal.get(_key(rest), ()):
            if self._equal(rest, self._states[number].elements):
                state = number
                break
        if state < 0:
            state = self._add_state(rest, cost)
        group.append((elements, state, string, more, graph))
        self._element_count += len(elements)
        return state, string, more, graph

    def _add_state(self, elements: list[Element], cost: float) -> int:
        """A new state; its end and the arcs that it will have, if within the beam."""
        number = len(self._states)
        new_state = _State(elements, cost)
        self._states.append(new_state)
        self._minimal.setdefault(_key(elements), []).append(number)
        self._element_count += len(elements)
        end: Element | None = None
        for state, string, so_far, graph in elements:
            final = self._lattice.final[state]
            if final is not None:
                new = (state, string, so_far + final[0], graph + final[1])
                if end is None or self._is_better(new, end):
                    end = new
        if end is not None and end[2] + cost <= self._cutoff:
            new_state.end = end[1:]
            self._arc_count += 1
        self._add_tasks(number, new_state)
        return number

    def _add_tasks(self, number: int, new_state: _State) -> None:
        rest = self._rest
        ways: dict[int, list[tuple[int, int, tuple[int, ...], float, float]]] = {}
        least: dict[int, float] = {}
        for state, string, cost, graph in new_state.elements:
            for label, target, ids, more, part in self._worded[state]:
                whole = cost + more
                ways.setdefault(label, []).append((target, string, ids, whole, graph + part))
                whole += rest[target]
                if whole < least.get(label, math.inf):
                    least[label] = whole
        for label in sorted(least):
            priority = least[label] + new_state.cost
            if priority <= self._cutoff:
                elements = self._joined(ways[label])
                heapq.heappush(self._queue, (priority, self._tasks, number, label, elements))
                self._tasks += 1

    def _joined(self, ways: list[tuple[int, int, tuple[int, ...], float, float]]) -> list[Element]:
        """The set that arcs of one label lead to: of each state the best way there.

        Args:
            ways: target, ids before the arc and on it, whole and graph cost after it.
        """
        best: dict[int, Element] = {}
        for target, string, ids, cost, graph in ways:
            known = best.get(target)
            if known is None or cost <= known[2]:
                new = (target, self._strings.extended(string, ids), cost, graph)
                if known is None or self._is_better(new, known):
                    best[target] = new
        return [best[target] for target in sorted(best)]

    def _make_arc(self, source: int, label: int, elements: list[Element]) -> None:
        rest, string, cost, graph = self._normalized(elements)
        reached = self._states[source].cost + cost
        target, more_ids, more, more_graph = self._state_of(rest, reached)
        whole = self._strings.extended(string, self._strings.ids(more_ids))
        arc = (label, target, whole, cost + more, graph + more_graph)
        self._states[source].arcs.append(arc)
        self._arc_count += 1

    # The result

    def _result(self) -> tuple[PlainLattice, list[tuple[int, ...]]]:
        """All states, in the topological order that OpenFst finds: where ways tie, it counts."""
        order = sorted_states([[arc[1] for arc in state.arcs] for state in self._states])
        place = {state: number for number, state in enumerate(order)}
        result = PlainLattice()
        end_ids = []
        for state in order:
            known = self._states[state]
            here = result.add_state()
            result.arcs[here] = [
                (label, place[target], self._strings.ids(string), cost, graph)
                for label, target, string, cost, graph in known.arcs
            ]
            end_ids.append(())
            if known.end is not None:
                string, cost, graph = known.end
                result.final[here] = (cost, graph)
                end_ids[here] = self._strings.ids(string)
        return result, end_ids


def _key(elements: list[Element]) -> tuple[int, ...]:
    """States and ids of a set, without its costs."""
    return tuple(part for element in elements for part in element[:2])
