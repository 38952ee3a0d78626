"""Lattices whose arcs are whole words: label and transition-ids belong together.

The positions of phones in words show where words begin and end. Source: Kaldi's
`lat/word-align-lattice.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...kaldi.lattices.lattice import ONE, CompactLattice, Weight
from ...kaldi.lattices.operations import with_one_end
from ...kaldi.lattices.transition_ids import TransitionIds
from ...kaldi.lattices.unfold import PARTIAL, SILENCE, Unfolding, check_lattice
from .word_boundary import WordBoundaries


class _Pending(NamedTuple):
    """A state of the lattice, and what the way there brought and no arc has yet."""

    state: int
    ids: tuple[int, ...] = ()
    words: tuple[int, ...] = ()


def word_aligned(
    lattice: CompactLattice,
    transitions: TransitionIds,
    boundaries: WordBoundaries,
    warn: Callable[[str], None],
    *,
    unfinished: bool = False,
    most: int | None = None,
) -> tuple[CompactLattice, bool]:
    """The word-aligned lattice, and whether it is right; what is wrong is reported once.

    Words that were cut off at the end, as in an interrupted utterance, are put out as far as they
    go, and the lattice is not right then.

    Args:
        unfinished: the utterance continues. Then words that are cut off have the label of parts of
            words, and nothing is wrong with them.
        most: states of the new lattice at most; by default the limit `lattice`.

    Raises:
        ShapeError: the lattice is empty or has a loop, a transition-id that the model lacks or a
            phone that the boundaries lack.
        TooManyStates: it unfolds to more than `most` states.
        FormatError: it unfolds to too many states, see the limit `lattice`.
    """
    check_lattice(lattice, transitions)
    return _Aligner(lattice, transitions, boundaries, warn, unfinished, most).run()


class _Aligner:
    def __init__(
        self,
        lattice: CompactLattice,
        transitions: TransitionIds,
        boundaries: WordBoundaries,
        warn: Callable[[str], None],
        unfinished: bool,
        most: int | None,
    ) -> None:
        self._lattice = with_one_end(lattice)
        self._known = transitions
        self._unfinished = unfinished
        self._boundaries = boundaries
        self._out: Unfolding[_Pending] = Unfolding("word", warn, most)

    def run(self) -> tuple[CompactLattice, bool]:
        self._out.follow(_Pending(self._lattice.start), self._step)
        labels = {
            SILENCE: self._boundaries.silence_label,
            PARTIAL: self._boundaries.partial_label,
        }
        return self._out.finished(labels), not self._out.failed

    def _step(self, here: int, pending: _Pending) -> None:
        state, ids, words = pending
        label, count = self._whole(ids, words)
        if count:
            rest = words if label == SILENCE else words[1:]
            self._out.add(here, label, Weight(ids=ids[:count]), _Pending(state, ids[count:], rest))
            return
        if self._lattice.final[state] is not None:
            if ids or words:
                self._force(here, pending)
            else:
                self._out.unfolded.final[here] = ONE
        for label, weight, target in self._lattice.arcs[state]:
            more = (*words, label) if label else words
            then = _Pending(target, ids + weight.ids, more)
            self._out.add(here, 0, weight._replace(ids=()), then)

    def _whole(self, ids: tuple[int, ...], words: tuple[int, ...]) -> tuple[int, int]:
        """The label of the first word or silence and how many ids it has; 0: it may go on."""
        if not ids:
            return 0, 0
        kind = self._boundaries.kind(self._known.phone[ids[0]])
        if kind == "nonword":
            return SILENCE, self._phone_end(ids, 0)
        if not words:
            return 0, 0
        if kind == "singleton":
            return words[0], self._phone_end(ids, 0)
        if kind != "begin":
            return 0, 0
        place = self._phone_end(ids, 0)
        if not place:
            return 0, 0
        while place < len(ids):
            phone = self._known.phone[ids[place]]
            inside = self._boundaries.kind(phone)
            if inside == "end":
                return words[0], self._phone_end(ids, place)
            if inside != "internal":
                self._out.fail(f"phone {phone}, which is '{inside}', stands inside of a word")
            place += 1
        return 0, 0

    def _phone_end(self, ids: tuple[int, ...], begin: int) -> int:
        """Where the phone ends that begins at `begin`; 0: at the end, or it is not known yet."""
        known = self._known
        phone = known.phone[ids[begin]]
        end = begin
        while end < len(ids) and not known.is_last[ids[end]]:
            end += 1
        end += 1
        if self._boundaries.reorder:
            while end < len(ids) and known.is_loop[ids[end]]:
                end += 1
        if any(known.phone[number] != phone for number in ids[begin : min(end, len(ids))]):
            self._out.fail(
                f"another phone follows phone {phone} before it has ended: the lattice is broken,"
                " or belongs to another model or another order of self-loops"
            )
        return end if end < len(ids) else 0

    def _force(self, here: int, pending: _Pending) -> None:
        """Put out what waits at the end: the last word or silence, whole or cut off."""
        state, ids, words = pending
        if not ids:
            self._tell(f"words without frames at the end are dropped: {words}")
            self._out.add(here, 0, ONE, _Pending(state))
            return
        label = words[0] if words else PARTIAL
        rest = words[1:]
        first = self._boundaries.kind(self._known.phone[ids[0]])
        last = self._boundaries.kind(self._known.phone[ids[-1]])
        if words:
            whole = (first, last) in (("begin", "end"), ("singleton", "singleton"))
            if not whole or not self._ends(ids):
                self._tell("the last word of the lattice is cut off")
                if self._unfinished:
                    label = PARTIAL
                    rest = ()
        elif first == "nonword":
            label = SILENCE
            if not self._ends(ids):
                self._tell("the silence at the end of the lattice is cut off")
        else:
            self._tell("the lattice ends with a part of a word that is not known")
        self._out.add(here, label, Weight(ids=ids), _Pending(state, (), rest))

    def _tell(self, message: str) -> None:
        """A fault, unless the end is to be one only for now."""
        if not self._unfinished:
            self._out.fail(message)

    def _ends(self, ids: tuple[int, ...]) -> bool:
        """Whether the last phone has ended."""
        place = len(ids) - 1
        if self._boundaries.reorder:
            while place and self._known.is_loop[ids[place]]:
                place -= 1
        return self._known.is_last[ids[place]]
