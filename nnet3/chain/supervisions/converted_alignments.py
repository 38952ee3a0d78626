"""Alignments of one model as alignments of another: other phones, trees, frame rates, orders.

Source: `ConvertAlignment` in Kaldi's `hmm/hmm-utils.cc`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from operator import itemgetter

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.phone_segments import PhoneSplitter
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.graphs.hmms import PhoneHmms
from ....kaldi.lattices.transition_ids import TransitionIds

Move = tuple[int, int]
"""From one HMM state of a phone to another one, or to itself."""


class AlignmentConverter:
    """Converts alignments, transition-ids for frames, from one model to another.

    A phone whose topology or number of frames changes gets a path through its new HMM drawn at
    random: where its states begin is not known then. The draws are the same in every run.

    Args:
        tree: of the new model.
        phone_map: the new phone of each old one; phones stay if it is None.
        reorder: self-loops stand after the transition that leaves their state, else before it.

    Raises:
        FormatError: a model is damaged.
    """

    def __init__(
        self,
        old: TransitionModel,
        new: TransitionModel,
        tree: ContextDependency,
        phone_map: Mapping[int, int] | None = None,
        *,
        reorder: bool = True,
    ) -> None:
        self._old, self._new, self._tree = old, new, tree
        self._map = phone_map
        self._reorder = reorder
        self._splitter = PhoneSplitter(old)
        ids = TransitionIds.of(old)
        place = [0, *old.tuples[:, 1].tolist()]
        self._moves: list[Move] = [
            (place[state], target) for state, target in zip(ids.state, ids.target, strict=True)
        ]
        self._hmms = PhoneHmms(tree, new)
        self._ids = TransitionIds.of(new)
        self._known: dict[int, dict[Move, int]] = {}
        self._random = np.random.default_rng(0)

    def convert(self, ids: np.ndarray, factor: int = 1, *, repeat: bool = False) -> np.ndarray:
        """The alignment of the new model, int32.

        Args:
            ids: the alignment, [frames].
            factor: one frame is left of this many, [frames // factor + ...] as `subsample-feats`
                leaves them.
            repeat: give an alignment for every frame nevertheless: one alignment for each of
                `factor` shifts of the frames that are left, one after the other.

        Raises:
            ShapeError: the alignment is cut off, or too short for its phones.
            FormatError: it is none of the old model's; a phone is not mapped; the tree and the new
                model have no such phone.
        """
        segments = self._splitter.split(ids)
        if not segments.whole:
            raise ShapeError("it begins or ends within a phone")
        phones = [self._mapped(phone) for phone in segments.phones.tolist()]
        frames = segments.frames.tolist()
        ends = list(itertools.accumulate(frames))
        pieces = [ids[end - count : end].tolist() for end, count in zip(ends, frames, strict=True)]
        hmms = [self._hmms.of_window(window) for window in self._windows(phones)]
        same = [
            self._states(self._old, phone) == self._states(self._new, mapped)
            for phone, mapped in zip(segments.phones.tolist(), phones, strict=True)
        ]
        shifts = range(factor - 1, -1, -1) if repeat else (factor - 1,)
        shifted = [self._shifted(pieces, hmms, same, factor, shift) for shift in shifts]
        found = [
            one for column in itertools.zip_longest(*shifted) for one in column if one is not None
        ]
        return np.array(found, np.int32)

    def _mapped(self, phone: int) -> int:
        if self._map is not None:
            if phone not in self._map:
                raise FormatError(f"phone {phone} is not in the phone map")
            phone = self._map[phone]
        if not 0 <= phone < len(self._new.entry_of) or self._new.entry_of[phone] < 0:
            raise FormatError(f"the new model has no phone {phone}")
        return phone

    @staticmethod
    def _states(model: TransitionModel, phone: int) -> list:
        return model.entries[model.entry_of[phone]]

    def _windows(self, phones: list[int]) -> list[tuple[int, ...]]:
        """Each phone with those around it."""
        width, central = self._tree.width, self._tree.central
        padded = [0] * central + phones + [0] * (width - 1 - central)
        return [tuple(padded[at : at + width]) for at in range(len(phones))]

    def _shifted(
        self, pieces: list[list[int]], hmms: list[int], same: list[bool], factor: int, shift: int
    ) -> list[int]:
        """The alignment of the frames that are left with this shift."""
        ends = [0, *itertools.accumulate(len(piece) for piece in pieces)]
        left = [(end + shift) // factor for end in ends]
        wanted = [after - before for before, after in itertools.pairwise(left)]
        least = [_least(self._hmms.hmms[hmm]) for hmm in hmms]
        lengths = _lengthened(wanted, least)
        ids: list[int] = []
        for piece, hmm, alike, length in zip(pieces, hmms, same, lengths, strict=True):
            moves = self._by_move(hmm)
            if alike and length == len(piece):
                found = [moves[self._moves[one]] for one in piece]
            else:
                found = self._drawn(hmm, length)
            for _, run in itertools.groupby(found, self._ids.state.__getitem__):
                loops_last = self._ids.is_loop.__getitem__
                ids += sorted(run, key=loops_last, reverse=not self._reorder)
        return ids

    def _by_move(self, hmm: int) -> dict[Move, int]:
        """The transition-ids of an HMM; 0 for a move without one."""
        if hmm not in self._known:
            moves: dict[Move, int] = {}
            for place, arcs in enumerate(self._hmms.hmms[hmm]):
                for ident, _, target in arcs:
                    moves[place, target] = ident
                    loop = self._hmms.loop[self._hmms.state_of[ident]] if ident else 0
                    if loop:
                        moves[place, place] = loop
            self._known[hmm] = moves
        return self._known[hmm]

    def _drawn(self, hmm: int, length: int) -> list[int]:
        """A path through an HMM in so many frames; all arcs that can be part of one are as likely.

        Raises:
            ShapeError: there is none.
        """
        moves = sorted(self._by_move(hmm).items())
        end = len(self._hmms.hmms[hmm]) - 1
        reaching: list[set[int]] = []  # the states from which the end is so many frames away
        for left in range(length + 1):
            states = set() if left else {end}
            count = -1
            while count < len(states):  # moves without a frame, one after the other
                count = len(states)
                for (place, target), ident in moves:
                    if target in (reaching[left - 1] if ident and left else ()) or (
                        not ident and target in states
                    ):
                        states.add(place)
            reaching.append(states)
        if 0 not in reaching[length]:
            raise ShapeError(f"no path through a phone has {length} frames")
        ids: list[int] = []
        state = 0
        while len(ids) < length or state != end:
            left = length - len(ids)
            ways = [
                (target, ident)
                for (place, target), ident in moves
                if place == state and left >= bool(ident) and target in reaching[left - bool(ident)]
            ]
            state, ident = ways[self._random.integers(len(ways))]
            if ident:
                ids.append(ident)
        return ids


def _least(hmm: list) -> int:
    """The fewest frames of a path through an HMM."""
    end = len(hmm) - 1
    front = {0}
    seen = set(front)
    frames = 0
    while True:
        silent = list(front)
        for place in silent:  # grows in the loop
            for ident, _, target in hmm[place]:
                if not ident and target not in seen:
                    seen.add(target)
                    silent.append(target)
        if end in silent:
            return frames
        front = {target for place in silent for ident, _, target in hmm[place] if ident} - seen
        if not front:
            raise FormatError("no path leads through the HMM of a phone")
        seen |= front
        frames += 1


def _lengthened(wanted: list[int], least: list[int]) -> list[int]:
    """Numbers of frames with the same sum, none below its least: each phone that is too short
    takes one frame after the other from the nearest one that has more than it needs, in turn.

    Raises:
        ShapeError: there are too few frames.
    """
    lengths = list(wanted)
    if sum(lengths) < sum(least):
        raise ShapeError(f"{sum(lengths)} frames are too few for {len(least)} phones")
    while any(short := [have < need for have, need in zip(lengths, least, strict=True)]):
        for at in itertools.compress(range(len(lengths)), short):
            _move_a_frame(lengths, least, at)
    return lengths


def _move_a_frame(lengths: list[int], least: list[int], at: int) -> None:
    """Give a phone a frame of the nearest one that can spare it; of equals, of the one before."""
    nearest: list[tuple[int, int]] = []
    for others in (range(at - 1, -1, -1), range(at + 1, len(lengths))):
        between = 0
        for other in others:
            if lengths[other] > least[other]:
                nearest.append((between, other))
                break
            between += lengths[other]
    _, giver = min(nearest, key=itemgetter(0))
    lengths[giver] -= 1
    lengths[at] += 1
