"""The page of word errors."""

from opscope.speech.scoring.edits import ErrorCounts, alignment
from opscope.speech.scoring.page import MOST_SENTENCES, page
from opscope.speech.scoring.sentences import Sentence


def made(pairs):
    counts = ErrorCounts()
    wrong = [
        Sentence(key, alignment(reference.split(), hypothesis.split()))
        for key, reference, hypothesis in pairs
    ]
    for sentence in wrong:
        counts.add(sentence.edits)
    return page("<hyp> beside ref", counts, wrong)


def test_errors_stand_in_their_context():
    far = " ".join(f"far{n}" for n in range(20))
    text = made([("u1", f"{far} <a> b", f"{far} x b"), ("u2", "c d", "e"), ("u3", "g", "g h")])
    assert "<h1>&lt;hyp&gt; beside ref</h1>" in text and "@@" not in text
    assert '<span class="substitution"><i>&lt;a&gt;</i><i>x</i></span>' in text
    assert "far14<" in text and "far13<" not in text and "<i>…</i><i>…</i>" in text
    assert text.index(">u2 <") < text.index(">u1 <")  # the one with more errors first
    assert '<a href="#s1">&lt;a&gt; → x</a>' in text and "Insertions: 1" in text


def test_a_page_has_a_bound():
    text = made((f"u{n}", f"a{n}", "b") for n in range(MOST_SENTENCES + 7))
    assert text.count("<section") == MOST_SENTENCES
    assert "7 sentences with fewer errors left out" in text
    assert f"Substitutions: {MOST_SENTENCES + 7}" in text
