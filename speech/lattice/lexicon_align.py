"""Lattices whose arcs are whole words, for models whose phones do not show where words end.

A word is any run of phones that the lexicon has for it; what has several readings stays so. Source:
Kaldi's `lat/word-align-lattice-lexicon.cc`, from which the order of steps is that puts each reading
out once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...framework.base.errors import OpscopeError, ShapeError
from ...kaldi.lattices.lattice import ONE, CompactLattice, Weight
from ...kaldi.lattices.operations import with_one_end
from ...kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from ...kaldi.lattices.transition_ids import TransitionIds
from ...kaldi.lattices.unfold import PARTIAL, SILENCE, Unfolding, check_lattice
from .align_lexicon import AlignLexicon

_OLD, _LAST_NEW, _ALL_NEW = 0, 1, 2
_ROOM = 1000  # states that small lattices may have beyond max_expand


@dataclass(frozen=True)
class LexiconAlignOptions:
    """How lattices are aligned, with Kaldi's names.

    Attributes:
        reorder: self-loops stand after the transition that leaves their state.
        partial_word_label: label of arcs of phones at the end whose word is not known.
        max_expand: how many times as many states as the phone-aligned lattice the result may have
            while it is made. 0: as many as the limit `lattice` allows.
    """

    reorder: bool = True
    partial_word_label: int = 0
    max_expand: float = 0.0

    def __post_init__(self) -> None:
        if not self.max_expand >= 0 or self.partial_word_label < 0:
            raise OpscopeError(
                f"max_expand={self.max_expand}, partial_word_label={self.partial_word_label}:"
                " numbers from 0 on are wanted"
            )


class _Pending(NamedTuple):
    """A state of the phone-aligned lattice, and what the way there brought and no arc has yet.

    Attributes:
        phones: the ids of each. words: labels.
        new_phones: which runs of phones from the first on were not tried yet: none, the longest,
            or all. new_word: whether the first word was not tried yet.
    """

    state: int
    phones: tuple[tuple[int, ...], ...] = ()
    words: tuple[int, ...] = ()
    new_phones: int = _OLD
    new_word: bool = False


def lexicon_aligned(
    lattice: CompactLattice,
    transitions: TransitionIds,
    lexicon: AlignLexicon,
    warn: Callable[[str], None],
    options: LexiconAlignOptions | None = None,
) -> tuple[CompactLattice, bool]:
    """The word-aligned lattice, and whether it is right; what is wrong is reported.

    Raises:
        ShapeError: the lattice is empty or has a loop, a transition-id that the model lacks or a
            word that the lexicon lacks; or no path fits the lexicon; or it unfolds to too many
            states.
        FormatError: it unfolds to more states than the limit `lattice`.
    """
    options = options or LexiconAlignOptions()
    check_lattice(lattice, transitions)
    how = PhoneAlignOptions(reorder=options.reorder, remove_epsilon=False)
    phones, right = phone_aligned(lattice, transitions, how, warn)
    aligner = _Aligner(with_one_end(phones), transitions, lexicon, options, warn)
    return aligner.run(), right and not aligner.out.failed


class _Aligner:
    def __init__(
        self,
        lattice: CompactLattice,
        transitions: TransitionIds,
        lexicon: AlignLexicon,
        options: LexiconAlignOptions,
        warn: Callable[[str], None],
    ) -> None:
        self._lattice = lattice
        self._phone = transitions.phone
        self._lexicon = lexicon
        self._options = options
        most = int(_ROOM + options.max_expand * lattice.states) if options.max_expand else None
        self.out: Unfolding[_Pending] = Unfolding("word", warn, most)
        self._ends: list[tuple[int, _Pending]] = []

    def run(self) -> CompactLattice:
        unfolded = self.out.unfolded
        self.out.follow(_Pending(self._lattice.start), self._step)
        for here, pending in self._ends:
            if not pending.phones and not pending.words:
                unfolded.final[here] = ONE
        if all(end is None for end in unfolded.final):
            self.out.fail("the lattice ends within a word: its last word is cut off")
            self._force()
        aligned = self.out.finished({SILENCE: 0, PARTIAL: self._options.partial_word_label})
        if aligned.start < 0:
            raise ShapeError("no path of the lattice fits the lexicon")
        return aligned

    def _step(self, here: int, pending: _Pending) -> None:
        known = self._lexicon
        if pending.new_phones:
            self._try(here, pending, 0, *known.lengths(0))
        if pending.words:
            word = pending.words[0]
            if word not in known.words:
                raise ShapeError(f"word {word} of the lattice is not in the lexicon")
            if pending.new_word or pending.new_phones:
                every = pending._replace(new_phones=_ALL_NEW) if pending.new_word else pending
                self._try(here, every, word, *known.lengths(word))
        if self._may_go_on(pending):
            for label, weight, target in self._lattice.arcs[pending.state]:
                words = (*pending.words, label) if label else pending.words
                phones = (*pending.phones, weight.ids) if weight.ids else pending.phones
                then = _Pending(
                    target,
                    phones,
                    words,
                    _LAST_NEW if weight.ids else _OLD,
                    bool(label) and len(words) == 1,
                )
                self.out.add(here, 0, weight._replace(ids=()), then)
        if self._lattice.final[pending.state] is not None:
            self._ends.append((here, pending))

    def _phones(self, pending: _Pending, count: int) -> tuple[int, ...]:
        return tuple(self._phone[ids[0]] for ids in pending.phones[:count])

    def _try(self, here: int, pending: _Pending, word: int, least: int, most: int) -> None:
        """Arcs of a word, or of what stands between words, with each fitting number of phones."""
        ready = len(pending.phones)
        counts = range(least, min(most, ready) + 1)
        if pending.new_phones == _LAST_NEW:
            counts = range(ready, ready + (least <= ready <= most))
        for count in counts:
            written = self._lexicon.words[word].get(self._phones(pending, count))
            if written is None:
                continue
            phones = pending.phones[count:]
            words = pending.words[1:] if word else pending.words
            # a word without phones leaves the phones to what stands between words
            new = _ALL_NEW if phones and (count or word) else _OLD
            ids = tuple(number for each in pending.phones[:count] for number in each)
            then = _Pending(pending.state, phones, words, new, bool(word and words))
            self.out.add(here, written or SILENCE, Weight(ids=ids), then)

    def _may_go_on(self, pending: _Pending) -> bool:
        """Whether more phones can make a word or a silence of those that wait."""
        if not pending.phones or not pending.words:
            return True
        phones = self._phones(pending, len(pending.phones))
        return any(self._lexicon.begins(word, phones) for word in (0, pending.words[0]))

    def _force(self) -> None:
        """Put out what waits at the ends, where it is not put out in another way."""
        unfolded = self.out.unfolded
        for here, pending in self._ends:
            if any(arc.label or arc.weight.ids for arc in unfolded.arcs[here]):
                continue
            label = pending.words[0] if pending.words else PARTIAL
            ids = tuple(number for each in pending.phones for number in each)
            done = _Pending(pending.state)
            self.out.add(here, label, Weight(ids=ids), done)
            unfolded.final[self.out.place(done)] = ONE
