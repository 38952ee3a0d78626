"""What the aligners of words and of phones share: paths followed with what no arc has yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ...framework.base.errors import ShapeError
from ...framework.base.untrusted.limits import check_limit
from .lattice import NO_PATH, Arc, CompactLattice, Weight, topological_order
from .operations import connected, without_epsilons
from .transition_ids import TransitionIds

Pending = TypeVar("Pending", bound=Hashable)

SILENCE = -1
PARTIAL = -2
"""Labels of arcs that have no word, while arcs of label 0 are taken out."""


class TooManyStates(ShapeError):
    """A lattice unfolds to more states than its caller allows."""


class Unfolding(Generic[Pending]):
    """A lattice in the making, with a state for each place in another one and what is pending.

    Args:
        unit: what the new lattice is aligned with, for errors.
        warn: takes what is wrong with a lattice; only the first fault is reported.
        most: states of the new lattice at most; by default the limit `lattice`.
    """

    def __init__(self, unit: str, warn: Callable[[str], None], most: int | None = None) -> None:
        self.unfolded = CompactLattice()
        self.failed = False
        self._unit = unit
        self._warn = warn
        self._most = most
        self._number: dict[Pending, int] = {}
        self._stack: list[Pending] = []

    def fail(self, message: str) -> None:
        """Report what is wrong, if it is the first fault."""
        if not self.failed:
            self._warn(message)
        self.failed = True

    def place(self, pending: Pending) -> int:
        """The state of what is pending; a new one is to be followed."""
        number = self._number.get(pending)
        if number is None:
            number = self._number[pending] = self.unfolded.add_state()
            if self._most is None:
                what = f"the states of the {self._unit}-aligned lattice"
                check_limit("lattice", number + 1, what)
            elif number >= self._most:
                raise TooManyStates(
                    f"the {self._unit}-aligned lattice has more than {self._most} states: do"
                    " lattice, model and lexicon belong together?"
                )
            self._stack.append(pending)
        return number

    def add(self, source: int, label: int, weight: Weight, then: Pending) -> None:
        """An arc to the state of what is pending after it."""
        self.unfolded.arcs[source].append(Arc(label, weight, self.place(then)))

    def follow(self, first: Pending, step: Callable[[int, Pending], None]) -> None:
        """Call `step` with the state and the pending part of everything that is reached."""
        self.unfolded.start = self.place(first)
        self.follow_rest(step)

    def follow_rest(self, step: Callable[[int, Pending], None]) -> None:
        """Call `step` with all that was reached since."""
        while self._stack:
            pending = self._stack.pop()
            step(self._number[pending], pending)

    def finished(self, labels: dict[int, int]) -> CompactLattice:
        """Without empty arcs and dead ends, and with the labels SILENCE and PARTIAL replaced."""
        lattice = self.unfolded
        if lattice.states:
            lattice = without_epsilons(connected(lattice))
        return relabeled(lattice, labels)


def relabeled(lattice: CompactLattice, labels: dict[int, int]) -> CompactLattice:
    """With some labels replaced by others."""
    return CompactLattice(
        lattice.start,
        [
            [arc._replace(label=labels.get(arc.label, arc.label)) for arc in group]
            for group in lattice.arcs
        ],
        lattice.final,
    )


def check_lattice(lattice: CompactLattice, transitions: TransitionIds | None = None) -> None:
    """Refuse a lattice without a path or without an end to its paths, and one with a loop, an
    infinite cost, or ids that the model lacks.

    Raises:
        ShapeError: it is such a one.
    """
    if not 0 <= lattice.start < lattice.states or all(end is None for end in lattice.final):
        raise ShapeError(NO_PATH)
    for state, group in enumerate(lattice.arcs):
        for label, weight, target in group:
            if label < 0 or not 0 <= target < lattice.states:
                raise ShapeError(
                    f"state {state} of the lattice has an arc of label {label} to state {target},"
                    f" of {lattice.states}"
                )
            _check_costs(state, weight)
            if transitions is not None:
                transitions.check(weight.ids)
    for state, end in enumerate(lattice.final):
        if end is not None:
            _check_costs(state, end)
    if transitions is not None:
        for end in lattice.final:
            transitions.check(end.ids if end else ())
    if topological_order(lattice) is None:
        raise ShapeError("the lattice has a loop")


def _check_costs(state: int, weight: Weight) -> None:
    if not math.isfinite(weight.cost):
        raise ShapeError(
            f"state {state} of the lattice has costs {weight.graph:g} and {weight.acoustic:g}"
        )
