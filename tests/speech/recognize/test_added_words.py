"""Words that are added to a model in memory: `Model.add_words`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import ArgumentError, FormatError, OpscopeError
from opscope.kaldi.lattices.lattice import CompactLattice
from opscope.speech import Adapted, KaldiRecognizer, Model, adapt, transcribe
from opscope.speech.pronunciation.known import base_names
from speech_data import reference, vosk_model
from speech_models import RATE, heard, lexicon_lines, small_files, write_files

SAID = ("b_B a_E", "a_B a_E", "c_S", "a_B a_E", "b_B b_E")


def test_words_are_added_to_a_model(tmp_path: Path) -> None:
    files = small_files(tmp_path)
    files["graph/phones/align_lexicon.int"] = lexicon_lines()
    folder = write_files(files, tmp_path / "model")
    model = Model(folder)
    before = KaldiRecognizer(model, RATE)
    words = {"aa": None, "big": "b b"}
    added = model.add_words(words, weight=1.25)
    assert added == adapt(folder, tmp_path / "out", words, weight=1.25)
    assert added == Adapted([("aa", ("a", "a")), ("big", ("b", "b"))], [("a", "a")], 1.25)
    other = Model(tmp_path / "out")
    assert heard(model, *SAID) == heard(other, *SAID) == "ba aa c aa [unk]"
    listed = '["big aa"]'
    assert heard(model, *SAID, grammar=listed) == heard(other, *SAID, grammar=listed)
    assert "aa" in heard(model, *SAID, grammar=listed)
    graph, wanted = model.graph, other.graph
    for part in ("first", "second"):
        for one, two in ((getattr(each, part) for each in (graph, wanted)),):
            assert np.array_equal(one.arcs, two.arcs) and np.array_equal(one.begin, two.begin)
    assert model.lexicon is not None and other.lexicon is not None
    assert model.lexicon.words == other.lexicon.words
    before.AcceptWaveform(bytes(2 * RATE))
    before.FinalResult()
    # Words are added to those that were added before.
    assert model.add_words({"ca": "b a"}).words == [("ca", ("b", "a"))]
    assert heard(model, "a_B a_E", grammar='["aa"]') == "aa"


def test_recognizers_that_are_there_are_rescored_as_before(tmp_path: Path) -> None:
    model = Model(write_files(small_files(tmp_path), tmp_path / "model"))
    asked: list[CompactLattice] = []

    def rescored(lattice: CompactLattice) -> CompactLattice:
        asked.append(lattice)
        return lattice

    rescoring: Any = SimpleNamespace(rescored=rescored)
    model.rescoring = rescoring
    before = KaldiRecognizer(model, RATE)
    before.AcceptWaveform(bytes(2 * RATE))
    model.add_words({"aa": "a a"})
    before.FinalResult()
    assert len(asked) == 1
    assert heard(model, "a_B a_E") == "aa"
    assert len(asked) == 1


def test_what_is_refused(tmp_path: Path) -> None:
    model = Model(write_files(small_files(tmp_path), tmp_path / "model"))
    graph = model.graph
    for words, message in (
        ({"ab": "a b"}, "words: line 1: the model has the word ab with a b"),
        ({"a a": "a"}, "words: the word 'a a' is empty or has a space"),
        ({"aa": ["a a", "a q"]}, "words: line 2: the model has no phone q"),
        ({}, "words: there is no word"),
    ):
        with pytest.raises(FormatError, match=message):
            model.add_words(words)
    with pytest.raises(ArgumentError, match="weight is a number"):
        model.add_words({"aa": "a a"}, weight=float("nan"))
    assert model.graph is graph
    static = Model(write_files(small_files(tmp_path, static=True), tmp_path / "static"))
    with pytest.raises(OpscopeError, match="HCLG.fst, in which no words can be put"):
        static.add_words({"aa": "a a"})


def test_a_word_of_half_a_million() -> None:
    """A new word with the phones of another one, which costs less, stands in its place."""
    model = Model(vosk_model())
    found = transcribe(reference("u1.wav"), model, phones=True).utterances[0]
    word = found.words[0]
    assert model.boundaries is not None
    names = base_names(model, model.boundaries)
    spoken = [each for each in found.phones if word.start <= each.start < word.end - 0.01]
    phones = [names[int(each.text)] for each in spoken]
    made = model.add_words({"opscope": " ".join(phones)}, weight=0.0)
    assert made == Adapted([("opscope", tuple(phones))], [], 0.0)
    again = transcribe(reference("u1.wav"), model).utterances[0].words
    times = [(each.start, each.end) for each in again if each.text == "opscope"]
    assert any(each == pytest.approx((word.start, word.end), abs=0.05) for each in times)
