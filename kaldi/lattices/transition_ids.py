"""What lattices ask of transition-ids: phone, pdf, whether a loop or the last of its phone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ShapeError
from ..files.transition_model import TransitionModel


@dataclass(frozen=True)
class TransitionIds:
    """All transition-ids of a model, each list by number from 1 on.

    Attributes:
        state: transition states, from 1 on. phone, pdf: of each.
        is_loop: whether it stays in its HMM state.
        is_last: whether it leaves its phone.
        target: the HMM state that it leads to.
    """

    state: list[int]
    phone: list[int]
    pdf: list[int]
    is_loop: list[bool]
    is_last: list[bool]
    target: list[int]

    @classmethod
    def of(cls, model: TransitionModel) -> TransitionIds:
        """The transition-ids of a model.

        Raises:
            FormatError: the topology lacks one of its states.
        """
        known = model.transitions()
        target = [-1]
        last = [False]
        phone = [0]
        for row in model.tuples.tolist():
            states = model.entries[model.entry_of[row[0]]]
            for to, _ in states[row[1]].transitions:
                target.append(to)
                last.append(to + 1 == len(states))
                phone.append(row[0])
        columns = (known.state.tolist(), phone, known.pdf.tolist(), known.is_loop.tolist())
        return cls(*columns, last, target)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.state) - 1

    @property
    def num_pdfs(self) -> int:
        """How many outputs there are."""
        return int(np.max(self.pdf)) + 1

    def check(self, ids: Collection[int]) -> None:
        """Refuse numbers that are none.

        Raises:
            ShapeError: there is one.
        """
        if not ids or (min(ids) > 0 and max(ids) <= self.count):
            return
        for number in ids:
            if not 0 < number <= self.count:
                raise ShapeError(f"{number} is no transition-id: the model has 1 to {self.count}")

    def right(
        self,
        ids: np.ndarray,
        reference: np.ndarray,
        *,
        by_phone: bool,
        silence: Sequence[int],
        one_silence_class: bool,
    ) -> np.ndarray:
        """Whether each transition-id is right where another one is the reference, as MPFE and sMBR
        count it.

        Args:
            ids, reference: of the same shape; 0 among `ids` is no transition-id.
            by_phone: whether phones are compared (MPFE), or pdfs (sMBR).
            silence: phones that are never right, or with `one_silence_class` right for each other.
        """
        of_class = np.array(self.phone if by_phone else self.pdf)
        silent = np.isin(self.phone, silence)
        same = of_class[ids] == of_class[reference]
        if one_silence_class:
            return same | (silent[ids] & silent[reference])
        return same & ~silent[ids]
