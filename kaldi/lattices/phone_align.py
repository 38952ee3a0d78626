"""Lattices whose arcs are phones, each with the transition-ids of that phone.

Source: Kaldi's `lat/phone-align-lattice.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...framework.base.errors import ShapeError
from ...framework.base.options.option_fields import option
from .lattice import ONE, CompactLattice, Weight, topological_order
from .operations import with_one_end, without_epsilons
from .transition_ids import TransitionIds
from .unfold import Unfolding


@dataclass(frozen=True)
class PhoneAlignOptions:
    """How lattices are aligned."""

    reorder: bool = option(True, "Self-loops stand after the transition that leaves their state")
    remove_epsilon: bool = option(
        True,
        "Join arcs without labels with those after; an arc of words may then have several phones",
    )
    replace_output_symbols: bool = option(False, "Labels are phones in place of words")


class _Pending(NamedTuple):
    """What a path brought so far and no arc has yet."""

    state: int
    ids: tuple[int, ...] = ()
    words: tuple[int, ...] = ()


def phone_aligned(
    lattice: CompactLattice,
    transitions: TransitionIds,
    options: PhoneAlignOptions,
    warn: Callable[[str], None],
) -> tuple[CompactLattice, bool]:
    """The phone-aligned lattice, and whether it is right; what is wrong is reported once.

    Raises:
        ShapeError: the lattice has a loop, or a transition-id that the model lacks.
    """
    aligner = _Aligner(with_one_end(lattice), transitions, options, warn)
    return aligner.run(), not aligner.failed


class _Aligner(Unfolding[_Pending]):
    """Follows all paths of a lattice; what is pending becomes an arc when a phone has ended."""

    def __init__(
        self,
        lattice: CompactLattice,
        transitions: TransitionIds,
        options: PhoneAlignOptions,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__("phone", warn)
        self._lattice = lattice
        self._transitions = transitions
        self._options = options

    def run(self) -> CompactLattice:
        """The aligned lattice."""
        if self._lattice.start < 0:
            self.fail("Trying to word-align empty lattice.")
            return self.unfolded
        if topological_order(self._lattice) is None:
            raise ShapeError("the lattice has a loop")
        for group in self._lattice.arcs:
            for arc in group:
                self._transitions.check(arc.weight.ids)
        self.follow(_Pending(self._lattice.start), self._follow)
        return without_epsilons(self.unfolded) if self._options.remove_epsilon else self.unfolded

    def _follow(self, here: int, pending: _Pending) -> None:
        count = self._phone_length(pending.ids)
        if count:
            self._put_out(here, pending, count)
            return
        if len(pending.words) > 1:  # too many words wait
            self.add(here, pending.words[0], ONE, pending._replace(words=pending.words[1:]))
            return
        if self._lattice.final[pending.state] is not None:
            if pending.ids or pending.words:
                self._check_rest(pending.ids)
                self._put_out(here, pending, len(pending.ids))
            else:
                self.unfolded.final[here] = ONE
        keep = not self._options.replace_output_symbols
        for label, weight, target in self._lattice.arcs[pending.state]:
            words = (*pending.words, label) if label and keep else pending.words
            then = _Pending(target, pending.ids + weight.ids, words)
            self.add(here, 0, weight._replace(ids=()), then)

    def _put_out(self, here: int, pending: _Pending, count: int) -> None:
        """An arc of the first `count` ids, and the first word that waits or their phone."""
        ids, words = pending.ids, pending.words
        label = words[0] if words else 0
        if self._options.replace_output_symbols:
            label = self._transitions.phone[ids[0]]
        rest = _Pending(pending.state, ids[count:], words[1:])
        self.add(here, label, Weight(ids=ids[:count]), rest)

    def _phone_length(self, ids: tuple[int, ...]) -> int:
        """How many ids the first phone has; 0 where it may go on."""
        known = self._transitions
        for place, number in enumerate(ids):
            if known.phone[number] != known.phone[ids[0]]:
                self.fail(
                    "Phone changed before final transition-id found [broken lattice or"
                    " mismatched model or wrong --reorder option?]"
                )
            if known.is_last[number]:
                end = place + 1
                while self._options.reorder and end < len(ids) and known.is_loop[ids[end]]:
                    end += 1
                return end if end < len(ids) else 0
        return 0

    def _check_rest(self, ids: tuple[int, ...]) -> None:
        """What waits at the end must be one whole phone."""
        known = self._transitions
        if any(known.phone[number] != known.phone[ids[0]] for number in ids):
            self.fail("Mismatch in phone: error in lattice or mismatched transition model?")
        last = sum(known.is_last[number] for number in ids)
        if ids and last != 1:
            self.fail(
                f"Problem phone-aligning lattice: saw {last} final-states in last phone in"
                " lattice (forced out?) Producing partial lattice."
            )
