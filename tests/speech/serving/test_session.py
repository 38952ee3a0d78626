"""Messages of a stream, each with its answer: Vosk's protocol, and what is wrong with messages."""

from __future__ import annotations

import gc
import json
import math
import re
import weakref
from pathlib import Path

import pytest

from opscope.speech import KaldiRecognizer, Model
from opscope.speech.serving.options import SessionOptions
from opscope.speech.serving.session import Session
from speech_models import RATE, small_files, speech, write_files

CONFIG = json.dumps({"config": {"sample_rate": RATE}})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    place = tmp_path_factory.mktemp("small")
    return Model(write_files(small_files(place / "parts"), place / "model"))


def session(model: Model, seconds: float = math.inf) -> Session:
    return Session(model, SessionOptions(seconds=seconds))


def blocks(text: str, size: int = 3200) -> list[bytes]:
    data = speech(text).tobytes()
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"words": False},
        {"words": 0, "max_alternatives": 2},
        {"max_alternatives": "1"},
        {"phrase_list": ["ba c", "[unk]"]},
        {"phrase_list": [], "unknown": [1]},
        {"sample_rate": str(RATE)},
    ],
    ids=json.dumps,
)
def test_answers_are_those_of_vosks_server(model: Model, config: dict) -> None:
    config = {"sample_rate": RATE} | config
    phrases = config.get("phrase_list")
    beside = KaldiRecognizer(model, RATE, *([json.dumps(phrases)] if phrases else []))
    beside.SetWords(bool(config.get("words", True)))
    beside.SetMaxAlternatives(int(config.get("max_alternatives", 0)))
    served = session(model)
    assert served.take(json.dumps({"config": config})).text is None
    for block in blocks("ab c ba"):
        over = beside.AcceptWaveform(block)
        wanted = beside.Result() if over else beside.PartialResult()
        assert served.take(block).text == wanted
    last = served.take('{"eof" : 1}')
    assert last.text == beside.FinalResult() and last.is_last and not last.reason


WRONG = {
    "text": ("hello", "samples are binary messages; this is 'hello'"),
    "a list": ("[1]", 'is {"config"'),
    "deep": ("[" * 100_000, "samples are binary messages"),
    "a number for a config": ('{"config": 5}', "config: want an object, not 5"),
    "no rate": ('{"config": {"sample_rate": "fast"}}', "sample_rate 'fast' .* must be numbers"),
    "infinite rate": ('{"config": {"sample_rate": 1e999}}', "rate of inf: want 1000 to 1e.06 Hz"),
    "no number": ('{"config": {"sample_rate": NaN}}', "rate of nan: want 1000"),
    "rate 3": ('{"config": {"sample_rate": 3}}', "rate of 3: want 1000"),
    "rate null": ('{"config": {"sample_rate": null}}', "must be numbers"),
    "alternatives": ('{"config": {"max_alternatives": -1}}', "want 0 to 100"),
    "infinite alternatives": ('{"config": {"max_alternatives": 1e999}}', "must be numbers"),
    "phrases": ('{"config": {"phrase_list": "one"}}', "phrase_list: want a list of texts"),
    "phrases of numbers": ('{"config": {"phrase_list": [1]}}', "want a list of texts"),
}


def test_what_is_wrong_is_told_and_changes_nothing(model: Model) -> None:
    wanted = session(model)
    wanted.take(CONFIG)
    served = session(model)
    served.take(CONFIG)
    messages = list(WRONG.values())
    for number, block in enumerate(blocks("ab c ba")):
        text, told = messages[number % len(messages)]
        reply = served.take(text)
        assert reply.is_error and not reply.is_last
        assert re.search(told, json.loads(reply.text or "")["error"]), text
        assert served.take(block).text == wanted.take(block).text
    assert served.end().text == wanted.end().text


def test_a_recognizer_that_cannot_be_made(tmp_path: Path) -> None:
    files = small_files(tmp_path / "parts")
    files["conf/mfcc.conf"] = files["conf/mfcc.conf"].replace(b"--allow-upsample=true\n", b"")
    served = session(Model(write_files(files, tmp_path / "model")))
    served.take('{"config": {"sample_rate": 8000}}')
    reply = served.take(bytes(100))
    assert reply.is_error and "8000 Hz" in (reply.text or "") and not reply.is_last
    served.take(CONFIG)  # it can still be corrected
    assert json.loads(served.take(bytes(100)).text or "") == {"partial": ""}


def test_half_samples_are_kept(model: Model) -> None:
    served = session(model)
    served.take(CONFIG)
    data = speech("ab c").tobytes()
    for at in range(0, len(data), 3201):
        served.take(data[at : at + 3201])
    assert json.loads(served.end().text or "")["text"] == "ab c"


def test_a_stream_that_is_too_long_gets_its_result(model: Model) -> None:
    served = session(model, seconds=0.5)
    served.take(CONFIG)
    replies = [served.take(block) for block in blocks("c c")]
    last = next(each for each in replies if each.is_last)
    assert last.reason == "more than 0.5 seconds of sound"
    assert json.loads(last.text or "")["text"] == "c"


def test_an_end_without_sound(model: Model) -> None:
    assert json.loads(session(model).end().text or "") == {"text": ""}


def test_nothing_of_a_session_waits_for_the_collector_of_garbage(model: Model) -> None:
    stream = session(model)
    for data in blocks("ab c ba"):
        stream.take(data)
    recognizer = stream._heard()._recognizer
    parts = [weakref.ref(each) for each in (recognizer._decoder, recognizer._lattice)]
    gc.collect()
    gc.disable()
    try:
        del stream, recognizer
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()
