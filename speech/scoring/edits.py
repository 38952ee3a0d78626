"""How a hypothesis differs from a reference: insertions, deletions and substitutions of words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from ...framework.base.untrusted.limits import check_limit

Word = TypeVar("Word", str, int)

Kind = Literal["substitution", "deletion", "insertion", "correct"]

COUNTED: tuple[Kind, ...] = ("insertion", "deletion", "substitution")
SHOWN: tuple[Kind, ...] = ("substitution", "deletion", "insertion")
"""Which edit is taken where several lead to the least number of errors: Kaldi's `compute-wer` and
its `align-text` differ in that, so that their counts of the three kinds do, too."""

_BITS: dict[Kind, int] = {"substitution": 1, "deletion": 2, "insertion": 4}


class Edit(NamedTuple, Generic[Word]):
    """A word of the reference and the one of the hypothesis in its place; None: there is none."""

    reference: Word | None
    hypothesis: Word | None

    @property
    def kind(self) -> Kind:
        """What was done to the reference."""
        if self.reference is None:
            return "insertion"
        if self.hypothesis is None:
            return "deletion"
        return "correct" if self.reference == self.hypothesis else "substitution"


def alignment(
    reference: Sequence[str], hypothesis: Sequence[str], ties: Sequence[Kind] = COUNTED
) -> list[Edit[str]]:
    """The edits of an alignment with the least number of errors, in order.

    Args:
        ties: which kind is taken first where several are as good, from the end on.

    Raises:
        FormatError: the sentences are so long that it needs more than the limit `fill`.
    """
    ways = _ways(reference, hypothesis)
    edits: list[Edit[str]] = []
    m, n = len(reference), len(hypothesis)
    while m or n:
        if m and n:
            kind = next(kind for kind in ties if ways[m, n] & _BITS[kind])
        else:
            kind = "deletion" if m else "insertion"
        m -= kind != "insertion"
        n -= kind != "deletion"
        edits.append(
            Edit(
                None if kind == "insertion" else reference[m],
                None if kind == "deletion" else hypothesis[n],
            )
        )
    return edits[::-1]


def _ways(reference: Sequence[str], hypothesis: Sequence[str]) -> np.ndarray:
    """For each pair of beginnings, the bits of the edits that the best alignments end with."""
    shape = len(reference) + 1, len(hypothesis) + 1
    check_limit("fill", shape[0] * shape[1], "the alignment of a sentence with its reference")
    numbers: dict[str, int] = {}
    target, words = (
        np.array([numbers.setdefault(word, len(numbers)) for word in each], np.int64)
        for each in (reference, hypothesis)
    )
    ways = np.zeros(shape, np.uint8)
    place = np.arange(shape[1])
    row = place
    for m, word in enumerate(target, 1):
        matched = row[:-1] + (words != word)
        deleted = row + 1
        best = deleted.copy()
        np.minimum(best[1:], matched, out=best[1:])
        # Insertions lead along the row: the least of all earlier columns, plus one a step.
        row = np.minimum.accumulate(best - place) + place
        inner = ways[m, 1:]
        inner += (matched == row[1:]).astype(np.uint8) * _BITS["substitution"]
        inner += (deleted == row)[1:].astype(np.uint8) * _BITS["deletion"]
        inner += (row[:-1] + 1 == row[1:]).astype(np.uint8) * _BITS["insertion"]
    return ways


@dataclass
class ErrorCounts:
    """Errors of sentences, which `add` sums up; `absent`: sentences without a hypothesis."""

    words: int = 0
    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    sentences: int = 0
    wrong_sentences: int = 0
    absent: int = 0

    @property
    def errors(self) -> int:
        """Errors of all kinds."""
        return self.insertions + self.deletions + self.substitutions

    @property
    def word_error_rate(self) -> float:
        """Errors of 100 words of the references, in single precision as Kaldi has it."""
        return _percent(self.errors, self.words)

    @property
    def sentence_error_rate(self) -> float:
        """Wrong ones of 100 sentences."""
        return _percent(self.wrong_sentences, self.sentences)

    def add(self, edits: Sequence[Edit]) -> None:
        """Count a sentence."""
        kinds = [edit.kind for edit in edits]
        self.insertions += kinds.count("insertion")
        self.deletions += kinds.count("deletion")
        self.substitutions += kinds.count("substitution")
        self.words += sum(edit.reference is not None for edit in edits)
        self.sentences += 1
        self.wrong_sentences += any(kind != "correct" for kind in kinds)

    def lines(self) -> list[str]:
        """The three lines of Kaldi's `compute-wer`."""
        return [
            f"%WER {fixed(self.word_error_rate)} [ {self.errors} / {self.words},"
            f" {self.insertions} ins, {self.deletions} del, {self.substitutions} sub ]"
            + " [PARTIAL]"
            * bool(self.absent),
            f"%SER {fixed(self.sentence_error_rate)} [ {self.wrong_sentences} / {self.sentences} ]",
            f"Scored {self.sentences} sentences, {self.absent} not present in hyp.",
        ]


def _percent(part: int, whole: int) -> float:
    if not whole:
        return math.inf if part else math.nan
    return float(np.float32(100.0 * float(np.float32(part)) / float(np.float32(whole))))


def fixed(value: float | np.floating) -> str:
    """A number as C++ prints it with two digits; 0 of 0, which is no number, has a sign there."""
    return "-nan" if math.isnan(value) else f"{value:.2f}"
