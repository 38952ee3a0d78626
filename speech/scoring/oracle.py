"""The path of a lattice with the fewest errors beside a reference.

Source: Kaldi's `latbin/lattice-oracle.cc`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ...framework.base.untrusted.limits import check_limit
from ...kaldi.lattices.lattice import CompactLattice, top_sorted
from ...kaldi.lattices.operations import best_path, connected
from ...kaldi.lattices.unfold import Unfolding, check_lattice
from .edits import Edit

_FAR = 1 << 29


def oracle(
    lattice: CompactLattice, reference: Sequence[int], wildcards: Collection[int] = ()
) -> list[Edit[int]]:
    """The edits that make the words of a path of the reference, as few as there can be.

    Args:
        wildcards: labels that do not count, in the lattice and the reference; nor does 0.

    Raises:
        ShapeError: the lattice is empty or has a loop.
        FormatError: it and the reference are so large that it needs more than the limit `fill`.
    """
    lattice = top_sorted(connected(lattice))
    check_lattice(lattice)
    free = {0, *wildcards}
    words = np.array([word for word in reference if word not in free], np.int64)
    last = len(words)
    check_limit("fill", 4 * lattice.states * (last + 1), "the edit distances of a lattice")
    place = np.arange(last + 1, dtype=np.int32)
    # of each state and number of words of the reference, the fewest errors on the way there
    errors = np.full((lattice.states, last + 1), _FAR, np.int32)
    errors[lattice.start] = place
    arrivals: list[list[tuple[int, int]]] = [[] for _ in lattice.arcs]
    for state, group in enumerate(lattice.arcs):
        # Deletions lead along the row: the least of all earlier columns, plus one a step.
        row = errors[state] = np.minimum.accumulate(errors[state] - place) + place
        for label, _, target in group:
            after = row if label in free else row + 1
            if label not in free:
                np.minimum(after[1:], row[:-1] + (words != label), out=after[1:])
            np.minimum(errors[target], after, out=errors[target])
            arrivals[target].append((state, label))
    ends = [state for state, end in enumerate(lattice.final) if end is not None]
    at = min(ends, key=lambda state: int(errors[state, last])), last
    edits: list[Edit[int]] = []
    while at != (lattice.start, 0):
        at, edit = _step_back(errors, arrivals[at[0]], words, free, at)
        if edit is not None:
            edits.append(edit)
    return edits[::-1]


def _step_back(
    errors: np.ndarray,
    arrivals: list[tuple[int, int]],
    words: np.ndarray,
    free: Collection[int],
    at: tuple[int, int],
) -> tuple[tuple[int, int], Edit[int] | None]:
    """Where a best way to a state and a place of the reference comes from, and the edit there.

    Of several, arcs without a word come first, then words that are right, substitutions, deletions.
    """
    state, place = at
    cost = int(errors[state, place])
    word = int(words[place - 1]) if place else None
    for source, label in arrivals:
        if label in free and errors[source, place] == cost:
            return (source, place), None
    for source, label in sorted(arrivals, key=lambda arrival: arrival[1] != word):
        if place and label not in free and errors[source, place - 1] + (label != word) == cost:
            return (source, place - 1), Edit(word, label)
    if place and errors[state, place - 1] + 1 == cost:
        return (state, place - 1), Edit(word, None)
    source, label = next(
        (source, label)
        for source, label in arrivals
        if label not in free and errors[source, place] + 1 == cost
    )
    return (source, place), Edit(None, label)


class _Place(NamedTuple):
    """A state of the lattice, and how many of the words the way there has."""

    state: int
    words: int


def path_of(
    lattice: CompactLattice, words: Sequence[int], wildcards: Collection[int] = ()
) -> CompactLattice:
    """The path of the least cost among those that have these words, besides wildcards.

    Raises:
        ShapeError: the lattice has a loop.
    """
    free = {0, *wildcards}
    unfolding: Unfolding[_Place] = Unfolding("reference", lambda _: None)

    def step(here: int, at: _Place) -> None:
        if at.words == len(words):
            unfolding.unfolded.final[here] = lattice.final[at.state]
        for label, weight, target in lattice.arcs[at.state]:
            if label in free:
                unfolding.add(here, label, weight, _Place(target, at.words))
            elif at.words < len(words) and label == words[at.words]:
                unfolding.add(here, label, weight, _Place(target, at.words + 1))

    unfolding.follow(_Place(lattice.start, 0), step)
    return best_path(connected(unfolding.unfolded))
