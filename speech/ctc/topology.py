"""The topology of CTC: which frames a sequence of tokens may have, as a transducer and as the
transition-ids of lattices.

A token has one frame or more, and blanks may follow it. Between two equal tokens there must be a
blank. Tokens are told apart by where in a word they stand, as Kaldi does it with phones, so that
lattices know where words begin and end: blanks after a token belong to it inside of a word, and
stand for themselves after a word's last token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.python.cached import cached_property
from ...kaldi.fst.fst import Fst
from ...kaldi.lattices.transition_ids import TransitionIds
from ..lattice.word_boundary import WordBoundaries

SINGLETON, BEGIN, INTERNAL, END = range(4)
_KINDS = "singleton", "begin", "internal", "end"
_FEW = 256
"""Tokens in words for which the arcs between all pairs are written; with more they go through
states that stand for several."""
_BLANK = 1  # the phone


@dataclass(frozen=True, eq=False)
class CtcTopology:
    """Phones, which are tokens at places in words, and their frames.

    Attributes:
        token: of each phone, int64, [phones + 1], from 1 on: the blank first. kind: where in a
            word it stands.
    """

    token: np.ndarray
    kind: np.ndarray

    @classmethod
    def of(cls, blank: int, pairs: list[tuple[int, int]]) -> CtcTopology:
        """The topology of these tokens at these places, besides the blank."""
        rows = np.array([(-1, -1), (blank, -1), *pairs], np.int64)
        return cls(rows[:, 0], rows[:, 1])

    @property
    def phones(self) -> int:
        """How many phones there are."""
        return len(self.token) - 1

    @cached_property
    def transitions(self) -> TransitionIds:
        """Frames as transition-ids: the first one of a phone, its later ones, and the blanks that
        belong to it. For `p`, these are 3p - 2, 3p - 1 and 3p; outputs are pdfs."""
        count = 3 * self.phones
        phone = np.append(0, np.repeat(np.arange(1, self.phones + 1), 3))
        place = np.append(0, np.tile(np.arange(3), self.phones))
        pdf = np.where(place == 2, self.token[_BLANK], self.token[phone])
        pdf[0] = -1
        later = place > 0
        number = np.arange(count + 1)
        first = ~later
        first[0] = False
        target = np.where(number > 0, 1, -1)
        states, phones, pdfs, targets = (column.tolist() for column in (number, phone, pdf, target))
        return TransitionIds(states, phones, pdfs, later.tolist(), first.tolist(), targets)

    @cached_property
    def starts(self) -> list[int]:
        """See `phone_starts`."""
        known = self.transitions
        return [
            phone if last else 0 for phone, last in zip(known.phone, known.is_last, strict=True)
        ]

    @cached_property
    def boundaries(self) -> WordBoundaries:
        """Which phones begin and end words."""
        names = [_KINDS[kind] for kind in self.kind[2:].tolist()]
        return WordBoundaries(("", "nonword", *names))

    def transducer(self) -> Fst:
        """T: from transition-ids to phones."""
        phones = np.arange(2, self.phones + 1)
        count = len(phones)
        inside = np.isin(self.kind[phones], (BEGIN, INTERNAL))
        start, quiet, states = 0, 1, 2
        here = states + np.arange(count)  # a token was last
        states += count
        after = np.where(inside, states + np.cumsum(inside) - 1, quiet)  # a blank after it was
        states += int(inside.sum())
        first, later, blank = 3 * phones - 2, 3 * phones - 1, 3 * phones
        rows = [
            (start, 3 * _BLANK - 2, quiet, 0),
            (quiet, 3 * _BLANK - 1, quiet, 0),
            (here, later, here, 0),
            (here, np.where(inside, blank, 3 * _BLANK - 2), after, 0),
            (after[inside], blank[inside], after[inside], 0),
        ]
        # All phones may follow a blank, and all of other tokens a token.
        free = np.concatenate(([start, quiet], after[inside]))
        token = self.token[phones]
        if count <= _FEW:
            source, target = np.repeat(free, count), np.tile(np.arange(count), len(free))
            rows.append((source, first[target], here[target], phones[target]))
            one, other = np.nonzero(token[:, None] != token[None, :])
            rows.append((here[one], first[other], here[other], phones[other]))
        else:
            states = self._grouped(rows, free, here, first, phones, states)
        columns = [np.broadcast_arrays(*map(np.atleast_1d, row)) for row in rows]
        source, ilabel, target, olabel = map(np.concatenate, zip(*columns, strict=True))
        final = np.full(states, np.inf, np.float32)
        final[[start, quiet, *here, *after]] = 0
        weight = np.zeros(len(source), np.float32)
        return Fst.of_arcs(source, ilabel, weight, target, final, olabel, start)

    def _grouped(
        self,
        rows: list[tuple[np.ndarray | int, ...]],
        free: np.ndarray,
        here: np.ndarray,
        first: np.ndarray,
        phones: np.ndarray,
        states: int,
    ) -> int:
        """Arcs to next tokens, through a state for each group of them: some n ** 1.5 arcs in place
        of n ** 2. Returns how many states there are."""
        token = self.token[phones]
        size = int(np.ceil(np.sqrt(len(phones))))
        different, rank = np.unique(token, return_inverse=True)
        group = rank // max(int(size * len(different) / len(phones)), 1)
        groups = int(group.max()) + 1
        entry = states + np.arange(groups)
        rows.append((np.repeat(free, groups), 0, np.tile(entry, len(free)), 0))
        rows.append((entry[group], first, here, phones))
        one, other = np.nonzero(group[:, None] != np.arange(groups)[None, :])
        rows.append((here[one], 0, entry[other], 0))
        for each in range(groups):  # tokens of the same group, but for the same one
            members = np.flatnonzero(group == each)
            a, b = np.nonzero(token[members][:, None] != token[members][None, :])
            one, other = members[a], members[b]
            rows.append((here[one], first[other], here[other], phones[other]))
        return states + groups
