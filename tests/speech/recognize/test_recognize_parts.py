"""Endpoint rules, options of a model.conf, formats of transcripts: what needs no model."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.kaldi.fst.arcs import ARC
from opscope.kaldi.fst.fst import Fst
from opscope.speech import Model, Phone, Spoken, Transcript, Word
from opscope.speech.fst.graph import StaticGraph
from opscope.speech.recognize.config import ModelConfig
from opscope.speech.recognize.endpoint import (
    DEFAULT_RULES,
    EndpointOptions,
    EndpointRule,
    endpoint_detected,
    trailing_silence,
)
from opscope.speech.recognize.formats import FORMATS
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions


@pytest.mark.parametrize(
    ("silence", "cost", "length", "rules"),
    [
        (4.99, 0.0, 4.99, []),
        (5.0, math.inf, 5.0, [1]),
        (0.5, 2.0, 1.0, [2]),
        (0.5, 2.1, 1.0, []),
        (1.0, 8.0, 3.0, [3]),
        (1.0, 8.1, 3.0, []),
        (2.0, math.inf, 3.0, [4]),
        (2.0, math.inf, 2.0, []),
        (0.0, math.inf, 20.0, [5]),
    ],
)
def test_kaldis_rules(silence: float, cost: float, length: float, rules: list[int]) -> None:
    seconds = np.float32(silence), cost, np.float32(length)
    assert [n for n, rule in enumerate(DEFAULT_RULES, 1) if rule.holds(*seconds)] == rules


def decoder(frames: str) -> Decoder:
    """One that heard s(ilence) and w(ords)."""
    arcs = [(1, 0, 0.0, 0), (2, 1, 0.0, 0)]
    fst = Fst(0, np.zeros(1, np.float32), np.array([0, 2]), np.array(arcs, ARC))
    made = Decoder(StaticGraph.of(fst), np.array([-1, 0, 1]), SearchOptions(lattice_beam=2.0))
    if frames:
        rows = [[0.0, -9.0] if frame == "s" else [-9.0, 0.0] for frame in frames]
        made.accept(np.array(rows, np.float32))
    return made


def test_silence_at_the_end() -> None:
    phones = np.array([0, 7, 8])
    for frames, wanted in (("", 0), ("sss", 3), ("ssw", 0), ("swss", 2)):
        assert trailing_silence(decoder(frames), phones, [7]) == wanted
    options = EndpointOptions((7,), (EndpointRule(min_trailing_silence=0.02),))
    found = [endpoint_detected(decoder(f), phones, options, 0.01) for f in ("", "ss", "ws", "wss")]
    assert found == [False, False, False, True]
    with pytest.raises(OpscopeError, match="a phone twice"):
        EndpointOptions((1, 2, 1))


def test_a_path_that_continues() -> None:
    """It is the one that a decoder traces that was never asked before; tokens keep their names."""
    made, frames = decoder(""), "swsswws" * 30
    before = made.traced()
    assert made.traced() is before and not len(before.ids) and not len(before.words)
    for begin in range(0, len(frames), 70):
        for frame in frames[begin : begin + 70]:
            row = [0.0, -9.0] if frame == "s" else [-9.0, 0.0]
            made.accept(np.array([row], np.float32))
        path, whole = made.traced(), decoder(frames[: begin + 70]).traced()
        for name in ("ids", "tokens", "words"):
            assert np.array_equal(getattr(path, name), getattr(whole, name))
        assert np.array_equal(path.tokens[: len(before.tokens)], before.tokens)
        assert np.array_equal(path.ids, made.best_path(use_final=False).transition_ids)
        assert made.traced() is path
        before = path
    assert before.ids[-7:].tolist() == [1, 2, 1, 1, 2, 2, 1]
    made.reset()
    assert not len(made.traced().ids)


def test_a_model_conf(tmp_path, caplog) -> None:
    path = tmp_path / "model.conf"
    path.write_text(
        "--beam=10\n--endpoint.silence-phones=1:2:3\n--endpoint.rule2.min-trailing-silence=0.25\n"
        "--endpoint.rule1.must-contain-nonsilence=true\n--max-mem=1000\n"
    )
    found = ModelConfig.read(path)
    assert (found.search.beam, found.search.lattice_beam, found.search.max_active) == (
        *(10, 10),
        (1 << 31) - 1,
    )
    assert found.endpoint.silence_phones == (1, 2, 3)
    assert found.endpoint.rules[1].min_trailing_silence == 0.25
    assert found.endpoint.rules[0].must_contain_nonsilence
    assert found.endpoint.rules[2:] == DEFAULT_RULES[2:]
    assert found.network.acoustic_scale == pytest.approx(0.1)
    assert found.lattice.max_mem == 1000
    assert not caplog.text
    old = ModelConfig.of_old_layout()
    assert (old.search.beam, old.search.max_active, old.network.acoustic_scale) == (13, 7000, 1)
    path.write_text("--hash-ratio=3\n--optimization.optimize=false\n")
    with caplog.at_level(logging.WARNING):
        ModelConfig.read(path)
    assert "without effect here: --hash-ratio, --optimization.optimize" in caplog.text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--beam=x", "model.conf:1: --beam=x is no number"),
        ("--endpoint.rule6.min-trailing-silence=1", "invalid option"),
        ("--endpoint.silence-phones=1:x", "is no whole number"),
        ("--endpoint.silence-phones=1:1", "a phone twice"),
        ("--word-determinize=false", "--word-determinize must be true"),
        ("--frames-per-chunk=0", "frames_per_chunk is 0"),
        ("beam=3", "is no line like"),
    ],
)
def test_what_is_no_model_conf(line: str, told: str, tmp_path) -> None:
    path = tmp_path / "model.conf"
    path.write_text(line)
    with pytest.raises(OpscopeError, match=told):
        ModelConfig.read(path)


def test_what_is_no_folder(tmp_path, monkeypatch) -> None:
    with pytest.raises(FormatError, match="does not exist or is a file"):
        Model(tmp_path / "none")
    with pytest.raises(FormatError, match="looked for am/final.mdl and conf/model.conf, or final"):
        Model(tmp_path)
    with pytest.raises(OpscopeError, match="wants the path of a folder"):
        Model()
    monkeypatch.setenv("VOSK_MODEL_PATH", str(tmp_path))
    (tmp_path / "vosk-model-small-xy-0.1").mkdir()
    for given in ({"lang": "xy"}, {"model_name": "vosk-model-small-xy-0.1"}):
        with pytest.raises(FormatError, match="xy-0.1: no folder of a model"):
            Model(**given)
    with pytest.raises(FormatError, match="models are not downloaded"):
        Model(lang="xz")


WORDS = [Word("a&b", 0.5, 1.0, 0.75), Word('"c"', 1.0, 1.25, 1.0)]
LATER = [Word("d", 61.0, 61.5, 0.5), Word("e", 63.0, 63.4999, 0.125)]
PHONES = [Phone("1", 0.5, 0.75), Phone("2", 0.75, 1.25)]
TRANSCRIPT = Transcript(
    "some/two words.wav", 64.0, [Spoken(0.0, 1.5, WORDS, PHONES), Spoken(60.0, 64.0, LATER)]
)


def test_text_and_json() -> None:
    assert FORMATS["txt"](TRANSCRIPT) == 'a&b "c"\nd e\n'
    made = FORMATS["json"](TRANSCRIPT)
    assert made.count("\n") == 1
    found = json.loads(made)
    assert found["utterances"][0]["words"][0] == {
        **{"text": "a&b", "start": 0.5},
        **{"end": 1.0, "confidence": 0.75},
    }
    assert found["utterances"][0]["phones"][1] == {"text": "2", "start": 0.75, "end": 1.25}
    assert "phones" not in found["utterances"][1] and found["duration"] == 64.0


def test_subtitles() -> None:
    assert FORMATS["srt"](TRANSCRIPT) == (
        '1\n00:00:00,500 --> 00:00:01,250\na&b "c"\n\n'
        "2\n00:01:01,000 --> 00:01:01,500\nd\n\n"
        "3\n00:01:03,000 --> 00:01:03,500\ne\n"
    )
    vtt = FORMATS["vtt"](TRANSCRIPT)
    assert vtt.startswith('WEBVTT\n\n00:00:00.500 --> 00:00:01.250\na&amp;b "c"\n\n')
    many = [Word("word", at / 10, at / 10 + 0.1) for at in range(30)]
    lines = FORMATS["srt"](Transcript("x", 3, [Spoken(0, 3, many)])).split("\n")
    assert max(map(len, lines)) <= 42 and " ".join(lines).count("word") == 30


def test_ctm_and_textgrid() -> None:
    assert FORMATS["ctm"](TRANSCRIPT).splitlines()[:2] == [
        "two_words 1 0.50 0.50 a&b 0.75",
        'two_words 1 1.00 0.25 "c" 1.00',
    ]
    grid = FORMATS["textgrid"](TRANSCRIPT)
    assert 'text = """c"""' in grid and "size = 2" in grid
    for tier, count in (("words", 8), ("phones", 4)):
        part = grid[grid.index(f'name = "{tier}"') :]
        assert f"intervals: size = {count}" in part[:200]
        bounds = [float(line.split("=")[1]) for line in part.split("\n") if " xm" in line][2:]
        pairs = list(zip(bounds[::2], bounds[1::2], strict=False))[:count]
        assert all(one[1] == other[0] for one, other in zip(pairs, pairs[1:], strict=False))
        assert all(begin < end for begin, end in pairs)
    assert "size = 1" in FORMATS["textgrid"](Transcript("x", 1.0, []))
