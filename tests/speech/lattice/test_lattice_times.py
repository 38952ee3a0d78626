"""Times of words and phones on one path, and CTM."""

from __future__ import annotations

import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.phone_segments import PhoneSplitter
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight
from opscope.kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from opscope.speech.lattice.bayes_risk import TimedWord
from opscope.speech.lattice.best_paths import n_best
from opscope.speech.lattice.times import (
    ctm_lines,
    single_path,
    timed_phones,
    timed_words,
)
from speech_data import SENTENCES, vosk_model
from vosk_lattices import vosk_ids, vosk_lattice


def two_words() -> CompactLattice:
    made = CompactLattice(0, [[] for _ in range(4)], [None, None, None, Weight(0.5, 0.0)])
    made.arcs[0].append(Arc(7, Weight(1.0, 2.0, (3, 4)), 1))
    made.arcs[1].append(Arc(0, Weight(0.0, 0.5, (1, 2, 2)), 2))
    made.arcs[2].append(Arc(8, Weight(1.0, 0.0, (5,)), 3))
    return made


def test_words() -> None:
    words, cost = timed_words(two_words(), 0.5)
    assert words == [TimedWord(7, 0, 2, 0.5), TimedWord(8, 5, 6, 0.5)]
    assert cost == 5.0
    words, _ = timed_words(two_words(), keep_silence=True)
    assert words[1] == TimedWord(0, 2, 5, 1.0)
    assert timed_words(CompactLattice(0, [[]], [Weight(3.0, 1.0)])) == ([], 4.0)


@pytest.mark.parametrize("name", SENTENCES)
def test_phones_are_those_of_the_phone_aligned_lattice(name: str) -> None:
    model = TransitionModel.read_from(Reader(str(vosk_model("am", "final.mdl"))))
    (path,) = n_best(vosk_lattice(name), 1)
    phones = timed_phones(path, PhoneSplitter(model))
    options = PhoneAlignOptions(replace_output_symbols=True)
    lattice, right = phone_aligned(path, vosk_ids(), options, pytest.fail)
    arcs = single_path(lattice)
    assert right
    assert [(each.phone, each.end - each.begin) for each in phones] == [
        (arc.label, len(arc.weight.ids)) for arc in arcs
    ]
    assert phones[0].begin == 0
    assert [each.end for each in phones[:-1]] == [each.begin for each in phones[1:]]


def test_several_ways_are_refused() -> None:
    lattice = two_words()
    lattice.arcs[1].append(Arc(9, ONE, 2))
    for function in (timed_words, single_path):
        with pytest.raises(ShapeError, match="several ways from state 1: one path is wanted"):
            function(lattice)
    lattice = two_words()
    lattice.final[1] = ONE
    with pytest.raises(ShapeError, match="several ways from state 1"):
        timed_words(lattice)


def test_ctm() -> None:
    words = [TimedWord(7, 1, 2.5, 1.0), TimedWord(8, 5, 6, 0.256)]
    text = {7: "wo", 8: "da"}.__getitem__
    assert ctm_lines("utt-1", words, text, 0.03) == [
        "utt-1 1 0.03 0.04 wo 1.00\n",
        "utt-1 1 0.15 0.03 da 0.26\n",
    ]
    later = ctm_lines("utt", words[1:], text, 0.03, channel="B", begin=10, digits=3)
    assert later == ["utt B 10.150 0.030 da 0.256\n"]
    for names in ({"utterance": "two words"}, {"utterance": ""}, {"channel": "a b"}):
        with pytest.raises(FormatError, match="CTM cannot hold"):
            ctm_lines(**{"utterance": "u", "words": words, "text": text, "frame_shift": 1, **names})
    with pytest.raises(FormatError, match="CTM cannot hold 'a b'"):
        ctm_lines("u", words, lambda label: "a b", 0.03)
    with pytest.raises(OpscopeError, match="a frame of 0 s with 2 digits"):
        ctm_lines("u", words, text, 0)
