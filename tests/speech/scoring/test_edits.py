"""Alignments and counts of word errors."""

import itertools
import math

import pytest

from opscope.framework.base.errors import FormatError
from opscope.speech.scoring.edits import COUNTED, SHOWN, Edit, ErrorCounts, alignment


def counted(reference, hypothesis, ties):
    counts = ErrorCounts()
    counts.add(alignment(reference.split(), hypothesis.split(), ties))
    return counts.insertions, counts.deletions, counts.substitutions


# From Kaldi's util/edit-distance-inl.h: LevenshteinEditDistance, LevenshteinAlignment.
@pytest.mark.parametrize(
    ("reference", "hypothesis", "by_counts", "by_alignment"),
    [
        ("", "", (0, 0, 0), (0, 0, 0)),
        ("a b", "", (0, 2, 0), (0, 2, 0)),
        ("", "a b", (2, 0, 0), (2, 0, 0)),
        ("a b", "b c", (1, 1, 0), (0, 0, 2)),
        ("a b c d", "b x d e", (1, 1, 1), (1, 1, 1)),
    ],
)
def test_ties_are_kaldi_s(reference, hypothesis, by_counts, by_alignment):
    assert counted(reference, hypothesis, COUNTED) == by_counts
    assert counted(reference, hypothesis, SHOWN) == by_alignment


def test_alignments_are_whole_and_as_short_as_the_recursion_says():
    def distance(a, b):
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            last, row[0] = row[0], i
            for j, y in enumerate(b, 1):
                last, row[j] = row[j], min(last + (x != y), row[j] + 1, row[j - 1] + 1)
        return row[-1]

    texts = ["".join(t) for n in range(5) for t in itertools.product("ab", repeat=n)]
    for a, b in itertools.product(texts, texts):
        for ties in (COUNTED, SHOWN):
            edits = alignment(a, b, ties)
            assert "".join(e.reference or "" for e in edits) == a
            assert "".join(e.hypothesis or "" for e in edits) == b
            assert sum(e.kind != "correct" for e in edits) == distance(a, b)


def test_rates():
    counts = ErrorCounts()
    assert counts.lines()[0] == "%WER -nan [ 0 / 0, 0 ins, 0 del, 0 sub ]"
    counts.add([Edit(None, "a")])
    assert math.isinf(counts.word_error_rate) and counts.sentence_error_rate == 100
    counts.add([Edit("a", "a"), Edit("b", None), Edit("c", "d")])
    counts.absent = 1
    assert counts.lines() == [
        "%WER 100.00 [ 3 / 3, 1 ins, 1 del, 1 sub ] [PARTIAL]",
        "%SER 100.00 [ 2 / 2 ]",
        "Scored 2 sentences, 1 not present in hyp.",
    ]


def test_long_sentences_are_refused(monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=100")
    with pytest.raises(FormatError, match="the alignment of a sentence with its reference"):
        alignment("a" * 10, "b" * 10)
