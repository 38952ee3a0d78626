"""The names of Vosk's Python package: what each gives, or the clear error that it gives here."""

from __future__ import annotations

import inspect
import io
import json
import logging
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import opscope.speech
from opscope.framework.base.errors import OpscopeError
from opscope.speech import (
    KaldiRecognizer,
    Model,
    SetLogLevel,
    read_audio,
)
from speech_data import reference, vosk_model
from speech_models import RATE, small_files, speech, write_files
from vosk_beside import skip_without_vosk


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("small")
    return Model(write_files(small_files(folder / "parts"), folder / "model"))


_INSIDE = {"open_dll", "tqdm", "urlretrieve"}
_DOWNLOADS = {
    *("get_model_path", "get_model_by_name", "get_model_by_lang"),
    *("download_model", "download_progress_hook"),
}
"""What `Model` of Vosk has to look for models and to download them; ours looks inside."""


_NAMES = """
import inspect, json, vosk
found = {
    name: {
        method: list(inspect.signature(function).parameters)
        for method, function in vars(value).items()
        if inspect.isclass(value) and not method.startswith("_")
    }
    for name, value in vars(vosk).items()
    if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == "vosk"
}
print(json.dumps(found))
"""
"""Public names of Vosk, methods of its classes and their parameters."""


def test_every_public_name_of_vosk_is_there() -> None:
    skip_without_vosk()
    told = subprocess.run([sys.executable, "-c", _NAMES], capture_output=True, check=True)
    names = json.loads(told.stdout)
    assert len(names.keys() - _INSIDE) >= 10
    assert [
        name for name in sorted(names.keys() - _INSIDE) if not hasattr(opscope.speech, name)
    ] == []
    for kind in ("Model", "KaldiRecognizer", "BatchModel", "BatchRecognizer"):
        ours, theirs = getattr(opscope.speech, kind), names[kind]
        assert len(theirs) > 1 or (kind, list(theirs)) == ("BatchModel", ["Wait"])
        for name in theirs.keys() - _DOWNLOADS:
            wanted = theirs[name]
            assert list(inspect.signature(getattr(ours, name)).parameters)[: len(wanted)] == wanted


def test_what_is_not_there_is_told(small: Model) -> None:
    module = opscope.speech
    for call in (module.list_models, module.list_languages):
        with pytest.raises(OpscopeError, match="nothing is downloaded here"):
            call()
    with pytest.raises(OpscopeError, match="Processor: .*not rewritten"):
        module.Processor("folder")
    with pytest.raises(TypeError, match="a grammar is a text"):
        KaldiRecognizer(small, RATE, 5)  # pyright: ignore


def test_log_level_and_gpus(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("opscope")
    before = logger.level
    try:
        for level, wanted in ((-1, logging.WARNING), (0, logging.INFO), (3, logging.DEBUG)):
            SetLogLevel(level)
            assert logger.level == wanted
    finally:
        logger.setLevel(before)
    opscope.speech.GpuInit()
    opscope.speech.GpuThreadInit()
    assert "recognizers compute on the CPU" in caplog.text


def test_subtitles_of_a_stream(small: Model) -> None:
    recognizer = KaldiRecognizer(small, RATE)
    audio = speech("ab c ba")
    with pytest.raises(OpscopeError, match=r"wants SetWords\(True\)"):
        recognizer.SrtResult(io.BytesIO(audio.tobytes()))
    recognizer.SetWords(True)
    with pytest.raises(OpscopeError, match="words_per_line=0"):
        recognizer.SrtResult(io.BytesIO(b""), 0)
    found = recognizer.SrtResult(io.BytesIO(audio.tobytes()), 2)
    lines = found.split("\n")
    assert (lines[0], lines[2:5]) == ("1", ["ab c", "", "2"])
    assert lines[1].startswith("00:00:00,") and lines[6:] == ["ba", "", ""]
    assert recognizer.SrtResult(io.BytesIO(b"")) == ""


def test_nlsml_is_xml(small: Model) -> None:
    recognizer = KaldiRecognizer(small, RATE)
    recognizer.SetNLSML(True)
    assert json.loads(recognizer.Result()) == {"text": ""}  # Vosk: only with alternatives
    recognizer.SetMaxAlternatives(2)
    tree = ElementTree.fromstring(recognizer.Result())
    assert tree.find("interpretation/input/noinput") is not None
    recognizer.AcceptWaveform(speech("ab c").tobytes())
    tree = ElementTree.fromstring(recognizer.FinalResult())
    assert tree.attrib == {"grammar": "default"}
    first = tree[0]
    assert first.findtext("input") == first.findtext("instance") == "ab c"
    assert float(first.attrib["confidence"]) < 1e9


_VOSK = """
import sys, vosk
vosk.SetLogLevel(-1)
model = vosk.Model(sys.argv[1])
recognizer = vosk.KaldiRecognizer(model, 16000)
recognizer.SetWords(True)
data = open(sys.argv[2], "rb").read()[44:]
import io
print(recognizer.SrtResult(io.BytesIO(data), 3), end="", flush=True)
print("======")
recognizer = vosk.KaldiRecognizer(model, 16000)
recognizer.SetMaxAlternatives(3)
recognizer.SetNLSML(True)
print(recognizer.Result(), end="")
recognizer.AcceptWaveform(data)
print(recognizer.FinalResult(), end="")
"""


def test_subtitles_and_nlsml_beside_vosk(tmp_path_factory: pytest.TempPathFactory) -> None:
    skip_without_vosk()
    folder = tmp_path_factory.mktemp("vosk")
    for path in sorted(vosk_model().rglob("*")):
        target = folder / path.relative_to(vosk_model())
        target.mkdir() if path.is_dir() else target.symlink_to(path)
    config = folder / "conf" / "mfcc.conf"
    text = config.read_text()
    config.unlink()
    config.write_text(f"{text}\n--dither=0\n")
    path = reference("u1.wav")
    call = [sys.executable, "-c", _VOSK, str(folder), str(path)]
    told = subprocess.run(call, capture_output=True, timeout=300, check=True).stdout.decode()
    subtitles, nlsml = told.split("======\n")
    model = Model(folder)
    recognizer = KaldiRecognizer(model, 16000)
    recognizer.SetWords(True)
    data = read_audio(path).channel().astype("<i2").tobytes()
    assert recognizer.SrtResult(io.BytesIO(data), 3) == subtitles
    assert subtitles.count("-->") == 2
    recognizer = KaldiRecognizer(model, 16000)
    recognizer.SetMaxAlternatives(3)
    recognizer.SetNLSML(True)
    made = recognizer.Result()
    recognizer.AcceptWaveform(data)
    made += recognizer.FinalResult()
    for ours, theirs in zip(made.splitlines(), nlsml.splitlines(), strict=True):
        mine, _, confidence = ours.partition(" confidence=")
        other, _, wanted = theirs.partition(" confidence=")
        assert mine == other
        if wanted:
            numbers = [float(each.strip('">')) for each in (confidence, wanted)]
            assert numbers[0] == pytest.approx(numbers[1], abs=3e-3)


def test_phones_in_results(small: Model) -> None:
    recognizer = KaldiRecognizer(small, RATE)
    with pytest.raises(OpscopeError, match="'letters': want 'words' or 'phones'"):
        recognizer.SetResultOptions("letters")
    plain = KaldiRecognizer(small, RATE)
    plain.SetResultOptions("words")
    recognizer.SetResultOptions("phones")
    data = speech("ab c ba").tobytes()
    results = []
    for each in (plain, recognizer):
        each.AcceptWaveform(data)
        results.append(json.loads(each.FinalResult()))
    words, phones = results
    assert words["text"] == phones["text"] == "ab c ba"
    spoken = [entry for entry in phones["result"] if entry["word"] != "<eps>"]
    assert [entry["phone_label"] for entry in spoken] == [["a_B", "b_E"], ["c_S"], ["b_B", "a_E"]]
    for one, other in zip(words["result"], spoken, strict=True):
        assert one["word"] == other["word"]
        for key in ("start", "end", "conf"):
            assert one[key] == pytest.approx(other[key], abs=0.05)
    silences = [entry for entry in phones["result"] if entry["word"] == "<eps>"]
    assert len(silences) == 4
    assert {label for entry in silences for label in entry["phone_label"]} == {"sil"}
    # Words and their phones follow each other without a gap.
    ends = 0.0
    for entry in phones["result"]:
        assert entry["start"] == pytest.approx(ends) == entry["phone_start"][0]
        assert entry["phone_end"][:-1] == entry["phone_start"][1:]
        ends = entry["end"]
        assert entry["phone_end"][-1] == ends
        assert 0 <= entry["conf"] <= 1


def test_a_grammar_of_unknown_words_gives_empty_results(
    small: Model, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        recognizer = KaldiRecognizer(small, RATE, '["xyzzy", "plugh xyzzy"]')
    assert "xyzzy" in caplog.text and "every result will be empty" in caplog.text
    recognizer.AcceptWaveform(speech("ab c").tobytes())
    assert json.loads(recognizer.PartialResult()) == {"partial": ""}
    assert json.loads(recognizer.FinalResult()) == {"text": ""}


@pytest.mark.parametrize("cut", [1, 100])
def test_floats_up_to_one_are_told(
    small: Model, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    audio = speech("ab c ba")
    for samples, wanted in ((audio / 32768, 1), (audio.astype(float), 0), (audio, 0)):
        caplog.clear()
        recognizer = KaldiRecognizer(small, RATE)
        with caplog.at_level(logging.WARNING):
            for at in range(0, len(samples), -(-len(samples) // cut)):
                recognizer.AcceptWaveform(samples[at : at + -(-len(samples) // cut)])
            recognizer.FinalResult()
        assert caplog.text.count("on the scale of 16-bit integers") == wanted
    quiet = np.float32(np.arange(20000) % 2)  # whole numbers: a recording of near silence
    with caplog.at_level(logging.WARNING):
        KaldiRecognizer(small, RATE).AcceptWaveform(quiet)
    assert "on the scale" not in caplog.text
