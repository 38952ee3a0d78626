"""Streams and recordings by a CTC model: the recognizer, and the server in all protocols."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctc_models import RATE, tone, write_tones
from opscope.framework.base.errors import OpscopeError
from opscope.speech import CtcModel, EndpointerMode, KaldiRecognizer, transcribe
from opscope.speech.recognize import transcript
from opscope.speech.recognize.ctc import ctc_utterance
from opscope.speech.serving.options import ServerOptions, SessionOptions
from opscope.speech.serving.worker import Worker
from served_models import served
from spoken_tones import write_recording

PAUSE = np.zeros(int(1.2 * RATE), np.float32)
LEXICON = "low l o\nhigh h i\n"
CONFIG: dict[str, Any] = {"sample_rate": RATE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_tones(tmp_path_factory.mktemp("ctc") / "model")
    (place / "lexicon.txt").write_text(LEXICON)
    return place


def heard(recognizer: KaldiRecognizer, samples: np.ndarray, step: int = 3200) -> list[str]:
    """Texts of utterances, in blocks; each partial text begins the text of its utterance."""
    texts = []
    partial = ""
    for at in range(0, len(samples), step):
        if recognizer.AcceptWaveform(samples[at : at + step]):
            texts.append(json.loads(recognizer.Result())["text"])
            assert texts[-1].startswith(partial)
        partial = json.loads(recognizer.PartialResult()).get("partial", "")
    return [*texts, json.loads(recognizer.FinalResult())["text"]]


def test_utterances_of_a_signal(folder: Path) -> None:
    """They end at pauses, times go on; words are those of whole recordings."""
    model = CtcModel(folder)
    signal = np.concatenate((tone("l o h i"), PAUSE, tone("h i"), PAUSE, tone("l o")))
    recognizer = KaldiRecognizer(model, RATE)
    recognizer.SetWords(True)
    assert heard(recognizer, signal) == ["low high", "high", "low"]
    assert transcribe(signal, model, rate=RATE).text == "low high high low"
    for at in range(0, len(signal), 3200):
        if recognizer.AcceptWaveform(signal[at : at + 3200]):
            last = json.loads(recognizer.Result())
    last = json.loads(recognizer.FinalResult())["result"]
    whole = transcribe(signal, model, rate=RATE).words[-1]
    begun = len(signal) / RATE  # the signal before
    assert last[0]["word"] == "low"
    assert last[0]["start"] - begun == pytest.approx(whole.start, abs=0.05)
    recognizer.SetEndpointerMode(EndpointerMode.VERY_LONG)
    assert heard(recognizer, signal) == ["low high high low"]
    recognizer.SetMaxAlternatives(2)
    recognizer.AcceptWaveform(signal[:8000])
    recognizer.Reset()
    recognizer.AcceptWaveform(tone("h i"))
    assert json.loads(recognizer.FinalResult())["alternatives"][0]["text"] == "high"
    assert json.loads(recognizer.FinalResult())["alternatives"][0]["text"] == ""


def test_phrases_have_words_of_their_own(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For one recognizer; tokens that do not spell a word leave it out."""
    model = CtcModel(folder)
    for phrases, wanted in ((["loo", "high"], "loo"), (["low"], "low low"), (["loo xyz"], "loo")):
        recognizer = KaldiRecognizer(model, RATE, json.dumps(phrases))
        assert heard(recognizer, tone("l o o")) == [wanted]
    assert "left out: xyz" in caplog.text
    assert model.words.find("loo") is None
    recognizer.SetGrammar('["high"]')
    assert heard(recognizer, tone("h i")) == ["high"]
    recognizer.AcceptWaveform(tone("h i"))
    with pytest.raises(OpscopeError, match="while an utterance is under way"):
        recognizer.SetGrammar("[]")
    (folder / "lexicon.txt").rename(folder / "words")
    try:
        without = CtcModel(folder)
    finally:
        (folder / "words").rename(folder / "lexicon.txt")
    assert without.joins_tokens
    assert heard(KaldiRecognizer(without, RATE), tone("l o h")) == ["l o h"]
    assert heard(KaldiRecognizer(without, RATE, '["hi", "lo"]'), tone("h i")) == ["hi"]


def test_a_server_without_speakers(folder: Path) -> None:
    speakers: Any = object()
    options = ServerOptions(SessionOptions(speakers=speakers))
    with pytest.raises(OpscopeError, match="a CTC model has no mode 'vosk' and no speakers"):
        Worker(CtcModel(folder), options, 1)


@pytest.mark.parametrize("kind", ["recording", "sound"])
def test_a_worker_tells_what_it_hears_at_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    worker = Worker(CtcModel(folder), ServerOptions(), 1)
    signal = np.concatenate((tone("l o h i"), PAUSE, PAUSE, tone("h i"))).astype("<i2")
    told: list[int] = []

    def heard(*arguments: Any) -> Any:
        told.append(worker.counts()["held"])
        return ctc_utterance(*arguments)

    monkeypatch.setattr(transcript, "ctc_utterance", heard)
    if kind == "recording":
        path = tmp_path / "said.wav"
        write_recording(path, signal, RATE)
        worker.open(0, kind, {})
        worker.call(0, "decode", path.read_bytes()).result(60)
        worker.call(0, "begin").result(60)
        while worker.call(0, "advance").result(60):
            assert not told
        assert worker.call(0, "written", "txt").result(60).split() == ["low", "high", "high"]
    else:
        worker.open(0, kind, {"rate": RATE, "channels": 1})
        worker.call(0, "begin").result(60)
        worker.call(0, "take", signal.tobytes()).result(60)
        assert worker.call(0, "finish").result(60) == "low high high"
    seconds = len(signal) / RATE
    assert len(told) == 1 and seconds - 0.5 <= told[0] <= seconds + 1
    assert worker.counts()["held"] == 0
    worker.close()


def test_the_server(folder: Path, tmp_path: Path) -> None:
    """WebSocket with phrases beside each other, HTTP, gRPC."""
    aiohttp = pytest.importorskip("aiohttp")
    signal = np.concatenate((tone("l o h i"), PAUSE, tone("h i"))).astype("<i2").tobytes()
    path = tmp_path / "said.wav"
    write_recording(path, np.frombuffer(signal, "<i2"), RATE)

    async def said(client: Any, data: bytes, **config: Any) -> list[dict[str, Any]]:
        async with client.ws_connect("/") as stream:
            await stream.send_str(json.dumps({"config": CONFIG | config}))
            found = []
            for at in range(0, len(data), 6400):
                await stream.send_bytes(data[at : at + 6400])
                found.append(await stream.receive_json())
            await stream.send_str('{"eof" : 1}')
            return [*found, await stream.receive_json()]

    def texts(found: list[dict[str, Any]]) -> list[str]:
        return [each["text"] for each in found if "text" in each]

    async def run(address: str) -> None:
        async with aiohttp.ClientSession(address) as client:
            loo = tone("l o o").astype("<i2").tobytes()
            results = await asyncio.gather(
                said(client, signal),
                said(client, loo, phrase_list=["loo"], words=False),
                said(client, signal),
                said(client, loo),
            )
            assert [texts(each) for each in results[::2]] == [["low high", "high"]] * 2
            assert texts(results[1]) == ["loo"] and "result" not in results[1][-1]
            assert "loo" not in texts(results[3])[0]
            assert any(each.get("partial") == "low high" for each in results[0])
            assert results[0][-1]["result"][0]["conf"] > 0.5
            async with client.post("/transcribe.txt", data=path.read_bytes()) as answer:
                assert await answer.text() == "low high high\n"
            route = "/transcribe.txt?phrase=high"
            async with client.post(route, data=path.read_bytes()) as answer:
                assert set((await answer.text()).split()) == {"high"}

    for processes in ("2", "1"):
        with served(folder, f"--processes={processes}") as (addresses, _):
            asyncio.run(run(addresses[0]))
