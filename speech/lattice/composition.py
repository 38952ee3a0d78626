"""Lattices composed with language models: whole, or their best paths alone.

Source: Kaldi's `ComposeCompactLatticeDeterministic` in `lat/lattice-functions.cc`,
`lat/compose-lattice-pruned.cc`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option
from ...kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight, single, top_sorted
from ...kaldi.lattices.operations import connected
from ..language_model.automaton import Automaton, LanguageModel

_FIRST_ARCS = 100
"""Arcs of the first round."""
_DEPTH_FIRST = -1000.0
"""What each arc of the way to a state is worth until a first path has come to an end."""


def composed(lattice: CompactLattice, model: LanguageModel) -> CompactLattice:
    """The paths of a lattice with the costs of a model added to the graph costs.

    Args:
        model: gives a cost to each word, or several ways.

    Returns:
        The lattice, not determinized; empty where the model knows no path.
    """
    made = CompactLattice()
    if lattice.start < 0:
        return made
    made.start = made.add_state()
    pairs = [(lattice.start, model.start)]
    number = {pairs[0]: 0}
    for here, (state, history) in enumerate(pairs):  # which grows
        end = lattice.final[state]
        if end is not None:
            cost = model.final(history)
            if cost != math.inf:
                made.final[here] = _with_cost(end, cost)
        for said, weight, pair in _ways(lattice, model, state, history):
            if pair not in number:
                number[pair] = made.add_state()
                pairs.append(pair)
            made.arcs[here].append(Arc(said, weight, number[pair]))
    return connected(made)


def _ways(
    lattice: CompactLattice, model: LanguageModel, state: int, history: int
) -> Iterator[tuple[int, Weight, tuple[int, int]]]:
    """What is said, the weight, and the states after, of all arcs of two states."""
    for label, weight, target in lattice.arcs[state]:
        if not label:
            yield 0, weight, (target, history)
            continue
        for said, cost, after in model.arcs(history, label):
            yield said, _with_cost(weight, cost), (target, after)
    for said, cost, after in model.arcs(history, 0):
        yield said, _with_cost(ONE, cost), (state, after)


def _with_cost(weight: Weight, cost: float) -> Weight:
    return weight._replace(graph=single(weight.graph + cost))


@dataclass(frozen=True)
class ComposeOptions:
    """Limits of pruned composition, with Kaldi's names and defaults."""

    lattice_compose_beam: float = option(6.0, "Costs above the best path's that are followed")
    max_arcs: int = option(100_000, "Arcs of the result, once it has a path")
    growth_ratio: float = option(1.5, "How much it grows between two looks at all of its paths")

    def __post_init__(self) -> None:
        if not self.growth_ratio > 1:
            raise OpscopeError(f"growth_ratio={self.growth_ratio}: a number above 1 is wanted")
        if not self.lattice_compose_beam > 0:
            raise OpscopeError(
                f"lattice_compose_beam={self.lattice_compose_beam}: a number above 0 is wanted"
            )


def composed_pruned(
    lattice: CompactLattice, model: Automaton, options: ComposeOptions
) -> CompactLattice:
    """The same, the best paths first, until a beam or a number of arcs is reached.

    What a state may still cost is guessed from the lattice and from what the model added so far,
    so that the paths that are left out are not always the worst.

    Raises:
        ShapeError: the lattice has a loop.
    """
    lattice = top_sorted(connected(lattice))
    if lattice.start < 0:
        return CompactLattice()
    return _Composer(lattice, model, options).run()


class _State:
    """A state of the result.

    Attributes:
        source, history: the states of lattice and model. depth: arcs of the way to it.
        forward: the cost of the best way to it. rest: the cost of the best way on to an end.
        added: about what the model adds to the rest of the lattice's way.
        before: the state before it on the best way; -1: none. taken: choices that were followed.
    """

    __slots__ = ("added", "before", "depth", "forward", "history", "rest", "source", "taken")

    def __init__(self, source: int, history: int, depth: int, forward: float, added: float) -> None:
        self.source = source
        self.history = history
        self.depth = depth
        self.forward = forward
        self.rest = math.inf
        self.added = added
        self.before = -1
        self.taken = 0


class _Composer:
    def __init__(self, lattice: CompactLattice, model: Automaton, options: ComposeOptions) -> None:
        self._lattice = lattice
        self._model = model
        self._options = options
        self._rest, self._choices = _choices(lattice)
        self._best = self._rest[0]
        self._made = CompactLattice(0)
        self._states: list[_State] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._queue: list[tuple[float, int]] = []
        self._arcs = 0
        self._depth_value = _DEPTH_FIRST
        self._best_made = self._cutoff = math.inf

    def run(self) -> CompactLattice:
        self._add(_State(0, self._model.start, 0, 0.0, 0.0))
        while self._best_made == math.inf or self._arcs < self._options.max_arcs:
            self._review()
            limit = self._limit()
            while self._queue and self._arcs < limit:
                self._follow(heapq.heappop(self._queue)[1])
            if not self._queue:
                break
        return top_sorted(connected(self._made))

    def _limit(self) -> int:
        """Arcs after which all paths are looked at again."""
        if not self._arcs:
            return _FIRST_ARCS
        more = int(np.float32(self._arcs) * np.float32(self._options.growth_ratio))
        more = max(more, self._arcs + 1)
        return more if self._best_made == math.inf else min(more, self._options.max_arcs)

    def _add(self, state: _State) -> int:
        number = self._made.add_state()
        self._states.append(state)
        self._numbers[state.source, state.history] = number
        return number

    def _wait(self, number: int) -> None:
        """Queue a state by what its next choice is likely to lead to, if that is good enough."""
        guess = self._guess(self._states[number])
        if guess < self._cutoff:
            heapq.heappush(self._queue, (guess, number))

    def _guess(self, state: _State) -> float:
        """The cost of a whole path by the next choice, relative to the lattice's best one."""
        choices = self._choices[state.source]
        if state.taken == len(choices):
            return math.inf
        extra = choices[state.taken][0]
        rest = self._rest[state.source]
        return _rounded(state.forward + rest + state.added + extra - self._best)

    def _follow(self, number: int) -> None:
        """Follow the next choice of a state: an arc of the lattice, or its end."""
        state = self._states[number]
        choice = self._choices[state.source][state.taken][1]
        state.taken += 1
        self._wait(number)
        if choice < 0:
            self._end(number)
        else:
            self._go(number, self._lattice.arcs[state.source][choice])

    def _end(self, number: int) -> None:
        state = self._states[number]
        end = self._lattice.final[state.source]
        cost = self._model.final(state.history)
        if end is None or cost == math.inf:
            return
        end = self._made.final[number] = _with_cost(end, cost)
        state.rest = min(state.rest, end.cost)
        if self._depth_value:
            self._depth_value = 0.0
            self._review()

    def _go(self, number: int, arc: Arc) -> None:
        state = self._states[number]
        label, weight, source = arc
        after = self._model.arc(state.history, label) if label else (state.history, 0.0)
        if after is None:
            return
        history, cost = after
        target = self._numbers.get((source, history), -1)
        if target < 0:
            depth = state.depth + 1
            forward = state.forward + weight.cost + cost
            added = _rounded(state.added + depth * self._depth_value)
            target = self._add(_State(source, history, depth, forward, added))
            self._wait(target)
        self._made.arcs[number].append(Arc(label, _with_cost(weight, cost), target))
        self._arcs += 1

    def _review(self) -> None:
        """Look at all paths: costs from the start and to the ends, guesses, and the queue."""
        states = self._states
        order = sorted(range(len(states)), key=lambda number: states[number].source)
        self._look_forward(order)
        self._look_backward(order)
        self._queue = []
        for number in order:
            state = states[number]
            if state.rest < math.inf:
                rest = self._rest[state.source]
                state.added = _rounded(state.rest - rest + state.depth * self._depth_value)
            elif number:
                state.added = _rounded(states[state.before].added + self._depth_value)
            else:
                state.added = 0.0
            self._wait(number)

    def _look_forward(self, order: Sequence[int]) -> None:
        states = self._states
        for state in states[1:]:
            state.forward = math.inf
        for number in order:
            state = states[number]
            for _, weight, target in self._made.arcs[number]:
                cost = state.forward + weight.cost
                following = states[target]
                if cost < following.forward:
                    following.forward = cost
                    following.before = number
                    following.depth = state.depth + 1

    def _look_backward(self, order: Sequence[int]) -> None:
        states = self._states
        for number in reversed(order):
            end = self._made.final[number]
            least = math.inf if end is None else end.cost
            for _, weight, target in self._made.arcs[number]:
                least = min(least, weight.cost + states[target].rest)
            states[number].rest = least
        self._best_made = states[0].rest
        beam = self._options.lattice_compose_beam
        self._cutoff = _rounded(self._best_made - self._best + beam)


def _choices(lattice: CompactLattice) -> tuple[list[float], list[list[tuple[float, int]]]]:
    """Of each state of a lattice the least cost to an end, and its arcs (-1: to end here), the
    best ones first, with what they cost more than the best one."""
    rest = [math.inf] * lattice.states
    choices: list[list[tuple[float, int]]] = [[] for _ in lattice.arcs]
    for state in range(lattice.states - 1, -1, -1):
        end = lattice.final[state]
        ways = [] if end is None else [(end.cost, -1)]
        arcs = lattice.arcs[state]
        ways += [(rest[arc.target] + arc.weight.cost, at) for at, arc in enumerate(arcs)]
        ways.sort()
        rest[state] = ways[0][0]
        choices[state] = [(_rounded(cost - rest[state]), at) for cost, at in ways]
    return rest, choices


def _rounded(cost: float) -> float:
    """In single precision, in which Kaldi compares guesses."""
    return float(np.float32(cost))
