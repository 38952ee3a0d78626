"""Forced alignment: words of tones whose times are known, and Vosk's times for its own words."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.speech import AlignOptions, Audio, Decoder, Model, SearchOptions, align
from opscope.speech.alignment.graph import linear, text_graph
from opscope.speech.fst.graph import LookaheadGraph, StaticGraph
from opscope.speech.search import compiled
from speech_data import SENTENCES, korean_model, reference
from speech_graphs import lookahead_file, random_first, random_grammar
from speech_models import PHONE, RATE, lexicon_lines, small_files, speech, write_files

TEXT = "ab ba c ab"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return small_files(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def model(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_files(files, tmp_path_factory.mktemp("model")))


def test_words_phones_and_times(model: Model) -> None:
    found = align(speech(TEXT), TEXT, model)
    assert found.text == TEXT and found.duration == pytest.approx(12 * PHONE)
    assert found.confidence > 0.95 and all(word.confidence > 0.9 for word in found.words)
    begin = PHONE
    for word in found.words:
        end = begin + PHONE * len(word.phones)
        assert (word.start, word.end) == pytest.approx((begin, end), abs=0.0251)
        assert [word.start, word.end] == [word.phones[0].start, word.phones[-1].end]
        begin = end + PHONE
    names = "sil a_B b_E sil b_B a_E sil c_S sil a_B b_E sil"
    assert " ".join(phone.text for phone in found.phones) == names
    gaps = zip(found.phones, found.phones[1:], strict=False)
    assert all(one.end == other.start for one, other in gaps)
    assert found.phones[0].start == 0


@pytest.mark.parametrize("case", ["static", "lexicon", "words", "audio", "rate"])
def test_the_same_alignment_another_way(case, files, model, tmp_path) -> None:
    text: str | list[str] = TEXT
    source, rate = speech(TEXT), None
    wanted = align(source, TEXT, model)
    if case == "static":
        parts = small_files(tmp_path / "parts", static=True)
        model = Model(write_files(parts, tmp_path / "model"))
    elif case == "lexicon":
        parts = {k: v for k, v in files.items() if not k.endswith("word_boundary.int")}
        parts["graph/phones/align_lexicon.int"] = lexicon_lines()
        model = Model(write_files(parts, tmp_path / "model"))
    elif case == "words":
        text = TEXT.split()
    elif case == "audio":
        source = Audio(np.stack((source, 0 * source)).astype(np.float32), RATE)
    else:
        rate = RATE
    found = align(source, text, model, rate=rate)
    assert found.words == wanted.words and found.phones == wanted.phones
    if case in ("static", "lexicon"):
        assert found.log_likelihood == pytest.approx(wanted.log_likelihood, abs=1e-4)


def test_lines_and_transcripts(model: Model) -> None:
    found = align(speech(TEXT), "ab ba\r\n\n  c\nab\n", model)
    assert found.text == "ab ba\nc\nab"
    spoken = found.transcript().utterances
    assert [each.text for each in spoken] == ["ab ba", "c", "ab"]
    assert [phone.text for phone in spoken[1].phones] == ["sil", "c_S"]
    assert sum((each.phones for each in spoken), []) == found.transcript().phones
    assert len(found.transcript().phones) == len(found.phones)


def test_words_that_the_model_lacks(model: Model) -> None:
    audio = speech("ab [unk] c")
    told = (
        r"text: not in the model: 'Ab' \(line 1, word 1\), which the model knows as 'ab';"
        r" 'x' \(line 2, word 1\); 'c,' \(line 2, word 2\), which the model knows as 'c'"
        r" \(unknown='\[unk\]' lets one stand for them\)"
    )
    with pytest.raises(OpscopeError, match=told):
        align(audio, "Ab\nx c,", model)
    with pytest.raises(OpscopeError, match=r"and 3 more"):
        align(audio, "x " * 8, model)
    found = align(audio, "ab xyz c", model, unknown="[unk]")
    assert found.text == "ab xyz c"
    assert [phone.text for phone in found.words[1].phones] == ["b_B", "b_E"]
    with pytest.raises(OpscopeError, match=r"'qq' is no word of the model \(the model has \[unk\]"):
        align(audio, "ab", model, unknown="qq")
    with pytest.raises(
        OpscopeError, match=r"without a pronunciation in its graph: 'mute' \(line 1"
    ):
        align(audio, "ab mute", model)
    for empty in ("", " \n ", "\ufeff", []):
        with pytest.raises(OpscopeError, match="no word to be aligned"):
            align(audio, empty, model)
    with pytest.raises(OpscopeError, match="'a b' in a list of words is no word"):
        align(audio, ["a b"], model)


def test_text_that_does_not_fit(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        OpscopeError,
        match=r"samples: did not reach a final state of the text, with beam 10 and with 40: the"
        r" recording of 0.60 s is over before word \d+ of 99, 'ab' \(line 1, word \d+ of text\)",
    ):
        align(speech("c"), "ab " * 99, model)
    with pytest.raises(OpscopeError, match="with beam 5: the recording of 0.03 s is over"):
        align(speech("c")[:400], "ab", model, options=AlignOptions(5, 0))
    with pytest.raises(OpscopeError, match="too short for a frame"):
        align(np.zeros(0, np.int16), "ab", model)
    with caplog.at_level(logging.WARNING):
        assert align(speech("ab ab"), "c c", model).confidence < 0.1
    assert "the text fits the recording badly, with a confidence of 0.0" in caplog.text
    with pytest.raises(OpscopeError, match="NaN"):
        align(np.full(9000, np.nan), "ab", model)
    with pytest.raises(OpscopeError, match="sampl"):
        align(speech("ab"), "ab", model, rate=22050.5)


@pytest.mark.parametrize("beams", [(0, 40), (10, 10), (10, 5), (float("nan"), 0), (1, -2)])
def test_beams_that_make_no_sense(beams: tuple[float, float]) -> None:
    with pytest.raises(OpscopeError, match="retry_beam"):
        AlignOptions(*beams)


def test_folders_that_do_not_tell_what_words_are(files, tmp_path) -> None:
    parts = {k: v for k, v in files.items() if not k.endswith("word_boundary.int")}
    made = Model(write_files(parts, tmp_path))
    with pytest.raises(FormatError, match="phones/word_boundary.int and .*align_lexicon.int"):
        align(speech("ab"), "ab", made)
    lexicon = tmp_path / "graph" / "phones" / "align_lexicon.int"
    lexicon.parent.mkdir()
    lexicon.write_bytes(lexicon_lines().replace(b"2 5", b"2 77"))
    with pytest.raises(FormatError, match="phone 77 of word 1 is not in the network's model"):
        align(speech("ab"), "ab", Model(tmp_path))
    lexicon.write_bytes(lexicon_lines((2, 3, 4)))
    with pytest.raises(OpscopeError, match=r"align_lexicon.int: there is no word 1 \('ab'\)"):
        align(speech("ab"), "ab", Model(tmp_path))


def test_a_lexicon_with_a_word_of_no_phones(files, tmp_path) -> None:
    parts = {k: v for k, v in files.items() if not k.endswith("word_boundary.int")}
    lexicon = lexicon_lines((1, 2, 4)) + b"3 3\n0 0 6\n"
    model = Model(write_files({**parts, "graph/phones/align_lexicon.int": lexicon}, tmp_path))
    found = align(speech("ab c"), "ab c", model)
    assert found.words[1].phones == [] and found.words[1].start == found.words[1].end
    assert found.words[1].confidence == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_static_graphs_of_texts(seed: int) -> None:
    """The paths of a static graph that say a text cost what a composition says."""
    rng = np.random.default_rng(seed)
    words, labels = 6, 8
    first = random_first(rng, words, labels)
    text = rng.integers(1, words + 1, 3).tolist()
    likes = rng.normal(0, 3, (30, labels)).astype(np.float32)
    pdfs = np.arange(labels + 1) - 1
    options = SearchOptions(beam=1000.0, lattice_beam=5.0)
    static = text_graph(StaticGraph.of(first), text)
    lazy = LookaheadGraph.of(lookahead_file(first, 99), random_grammar(rng, words))
    made = []
    for graph in (static, text_graph(lazy, text)):
        decoder = Decoder(graph, pdfs, options)
        decoder.accept(likes)
        decoder.finalize()
        made.append(decoder.best_path())
    one, other = made
    assert one.words.tolist() == text == other.words.tolist()
    assert one.final and other.final
    costs = [path.graph_cost + path.acoustic_cost for path in made]
    assert costs[0] == pytest.approx(costs[1], abs=1e-2)  # costs looked ahead are rounded


def test_what_no_path_of_a_graph_says() -> None:
    rng = np.random.default_rng(0)
    graph = StaticGraph.of(random_first(rng, 4, 5))
    with pytest.raises(OpscopeError, match="no path leads to word 2 of 3 there"):
        text_graph(graph, [1, 99, 2])
    closed = replace(graph.fst, final=np.full(graph.fst.states, np.inf, np.float32))
    with pytest.raises(OpscopeError, match="no path leads to the end there"):
        text_graph(replace(graph, fst=closed), [1])
    fst = linear([3, 5])
    assert fst.arcs["ilabel"].tolist() == [3, 5] and fst.final[2] == 0


needs_compiler = pytest.mark.skipif(not compiled.available(), reason="no compiler")


@pytest.fixture(scope="module")
def korean() -> Model:
    return korean_model()


@needs_compiler
def test_times_of_vosks_words(korean: Model) -> None:
    exact = total = 0
    for name in SENTENCES:
        wanted = json.loads(reference(f"{name}.whole.json").read_text())[0]
        found = align(reference(f"{name}.wav"), wanted["text"], korean)
        assert found.beam == 10 and found.confidence > 0.5
        assert [word.text for word in found.words] == [each["word"] for each in wanted["result"]]
        for word, each in zip(found.words, wanted["result"], strict=True):
            # Vosk's are expected times over its lattice: some lie between frames
            distance = max(abs(word.start - each["start"]), abs(word.end - each["end"]))
            assert distance < korean.frame_shift * 1.1
            exact, total = exact + (distance < 1e-6), total + 1
    assert (exact, total) == (22, 27)


@needs_compiler
def test_a_wider_beam_helps(korean: Model) -> None:
    text = json.loads(reference("u3.whole.json").read_text())[0]["text"]
    path = reference("u2.wav")
    with pytest.raises(OpscopeError, match="with beam 10: the recording of 2.88 s is over"):
        align(path, text, korean, options=AlignOptions(10, 0))
    found = align(path, text, korean)
    assert found.beam == 40 and found.confidence < 0.4
