"""Alignments cut into phones: which frames belong to which phone.

An alignment is a transition-id for each frame. Source: `SplitToPhones` in Kaldi's
`hmm/hmm-utils.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from .transition_model import TransitionModel


@dataclass(frozen=True, eq=False)
class Segments:
    """The phones of an alignment in order.

    Attributes:
        phones: int32, [phones]. frames: how many frames each one has, int64, [phones].
        whole: false where a phone does not begin in its first state or does not end.
    """

    phones: np.ndarray
    frames: np.ndarray
    whole: bool


class PhoneSplitter:
    """Cuts alignments of a model into phones.

    Raises:
        FormatError: the model has states that its topology does not have.
    """

    def __init__(self, model: TransitionModel) -> None:
        transitions = model.transitions()
        self.count = len(transitions.state)
        self._state = transitions.state
        self._loop = transitions.is_loop
        phone = [0]
        last = [False]
        first = [False]
        for number, place, *_ in model.tuples.tolist():
            entry = model.entries[model.entry_of[number]]
            # a phone whose first state has no output begins in any state
            begins = place == 0 or entry[0].forward < 0
            for target, _ in entry[place].transitions:
                phone.append(number)
                last.append(target + 1 == len(entry))
                first.append(begins)
        self._phone = np.array(phone, np.int32)
        self._final = np.array(last)
        self._first = np.array(first)

    def split(self, ids: np.ndarray) -> Segments:
        """The phones of an alignment, transition-ids, [frames].

        Self-loops may stand before the transition that leaves a state or after it, which the
        alignment itself tells.

        Raises:
            FormatError: an id is none of the model's, or self-loops follow that are of another
                state.
        """
        if not len(ids):
            return Segments(np.zeros(0, np.int32), np.zeros(0, np.int64), True)
        if not 0 < ids.min() <= ids.max() < self.count:
            raise FormatError(f"a transition-id is none of 1 to {self.count - 1}")
        state, loop, phone, final = (
            column[ids] for column in (self._state, self._loop, self._phone, self._final)
        )
        broken = np.ones(len(ids), bool)
        broken[:-1] = (state[:-1] != state[1:]) & (phone[:-1] != phone[1:])
        broken &= ~final
        ends = final | broken
        if _loops_last(state, loop):
            # Loops after a transition that ends a phone still belong to it.
            frames = np.arange(len(ids))
            before = np.maximum.accumulate(np.where(loop, -1, frames))
            after = loop & (before >= 0) & final[before]
            if np.any(after[1:] & (state[1:] != state[:-1])):
                raise FormatError("a self-loop follows that belongs to another state")
            broken &= ~after
            ends = np.where(after | final, np.append(~after[1:], True), broken)
        stops = np.flatnonzero(ends) + 1
        starts = np.concatenate(([0], stops[:-1]))
        whole = not broken.any() and bool(self._first[ids[starts]].all())
        return Segments(phone[starts], np.diff(np.append(0, stops)), whole)


def _loops_last(state: np.ndarray, loop: np.ndarray) -> bool:
    """Whether self-loops stand after the transition that leaves their state."""
    changes = np.flatnonzero(state[:-1] != state[1:])
    ahead = loop[changes]
    after = loop[changes + 1]
    looping = np.flatnonzero(ahead | after)
    if len(looping):
        if ahead[looping[0]] and after[looping[0]]:
            raise FormatError("two self-loops of different states follow each other")
        return bool(ahead[looping[0]])
    return not loop[0] and bool(loop[-1])
