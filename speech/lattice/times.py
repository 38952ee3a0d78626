"""When words and phones were spoken, and CTM, the table of words by time.

Source: `CompactLatticeToWordAlignment` in Kaldi's `lat/lattice-functions.cc`;
`latbin/lattice-to-ctm-conf.cc`, `latbin/nbest-to-ctm.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...kaldi.files.phone_segments import PhoneSplitter
from ...kaldi.lattices.lattice import Arc, CompactLattice
from ...kaldi.lattices.unfold import check_lattice
from .bayes_risk import TimedWord


class TimedPhone(NamedTuple):
    """A phone, its begin and its end in frames of the lattice."""

    phone: int
    begin: int
    end: int


def single_path(lattice: CompactLattice) -> list[Arc]:
    """The arcs of a lattice of one path.

    Raises:
        ShapeError: the lattice has no path, or more than one.
    """
    check_lattice(lattice)
    arcs: list[Arc] = []
    state = lattice.start
    while lattice.final[state] is None or lattice.arcs[state]:
        if len(lattice.arcs[state]) != 1 or lattice.final[state] is not None:
            raise ShapeError(f"the lattice has several ways from state {state}: one path is wanted")
        arcs.append(lattice.arcs[state][0])
        state = arcs[-1].target
    return arcs


def timed_words(
    lattice: CompactLattice, confidence: float = 1.0, *, keep_silence: bool = False
) -> tuple[list[TimedWord], float]:
    """The words of a word-aligned lattice of one path, and its cost.

    Args:
        confidence: what the words get, as a path of its own shows nothing of it.
        keep_silence: keep arcs without a word.

    Raises:
        ShapeError: the lattice has no path, or more than one.
    """
    words: list[TimedWord] = []
    time = 0
    cost = 0.0
    arcs = single_path(lattice)
    for label, weight, _ in arcs:
        end = time + len(weight.ids)
        if label or keep_silence:
            words.append(TimedWord(label, time, end, confidence))
        time = end
        cost = cost + weight.cost
    ends = lattice.final[arcs[-1].target if arcs else lattice.start]
    return words, cost + (ends.cost if ends is not None else 0.0)


def timed_phones(lattice: CompactLattice, splitter: PhoneSplitter) -> list[TimedPhone]:
    """The phones of a lattice of one path; the last may be cut off.

    Raises:
        ShapeError: the lattice has no path, or more than one.
        FormatError: its transition-ids do not belong to the model.
    """
    arcs = single_path(lattice)
    last = lattice.final[arcs[-1].target if arcs else lattice.start]
    ids = [number for arc in arcs for number in arc.weight.ids]
    ids += last.ids if last is not None else ()
    segments = splitter.split(np.array(ids, np.int64))
    ends = np.cumsum(segments.frames)
    columns = (segments.phones, ends - segments.frames, ends)
    return [TimedPhone(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def ctm_lines(
    utterance: str,
    words: Iterable[TimedWord],
    text: Callable[[int], str],
    frame_shift: float,
    *,
    channel: str = "1",
    begin: float = 0.0,
    digits: int = 2,
) -> list[str]:
    """A line of CTM for each word: utterance, channel, begin, duration, word, confidence.

    Args:
        text: of a label. frame_shift: seconds of a frame of the lattice.
        begin: seconds that the utterance begins at in its recording.
        digits: after the point, of all numbers.

    Raises:
        FormatError: a name or a word is empty or has a space in it.
    """
    if frame_shift <= 0 or digits < 0:
        raise OpscopeError(f"a frame of {frame_shift} s with {digits} digits cannot be written")
    lines: list[str] = []
    for word in words:
        names = (utterance, channel, text(word.label))
        for name in names:
            if len(name.split()) != 1 or name.strip() != name:
                raise FormatError(f"CTM cannot hold {name!r}: a name without spaces is wanted")
        start = begin + frame_shift * word.begin
        long = frame_shift * (word.end - word.begin)
        lines.append(
            f"{utterance} {channel} {start:.{digits}f} {long:.{digits}f} {names[2]}"
            f" {word.confidence:.{digits}f}\n"
        )
    return lines
