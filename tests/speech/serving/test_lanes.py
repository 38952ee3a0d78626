"""Streams in lanes: the words of each alone, errors where they belong, an end of all threads."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import NotFiniteError, OpscopeError
from opscope.speech import BatchModel, BatchRecognizer, KaldiRecognizer, Model
from opscope.speech.serving.lanes import Lanes
from opscope.speech.serving.options import ServerOptions
from opscope.speech.serving.worker import Worker
from speech_models import RATE, small_files, speech, write_files

TEXTS = ("ab c ba", "c", "ba ba", "c ab c ab", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("small")
    return write_files(small_files(place / "parts"), place / "model")


def text_of(recognizer: KaldiRecognizer, samples: bytes, step: int) -> str:
    """What a recognizer hears, block by block."""
    found = []
    for at in range(0, len(samples), step):
        if recognizer.AcceptWaveform(samples[at : at + step]):
            found.append(json.loads(recognizer.Result())["text"])
    return " ".join([*found, json.loads(recognizer.FinalResult())["text"]]).strip()


@pytest.mark.parametrize("cores", [1, 3])
def test_words_are_those_of_each_stream_alone(folder, cores: int) -> None:
    sounds = [speech(text).tobytes() for text in TEXTS]
    alone = Model(folder)
    wanted = [text_of(KaldiRecognizer(alone, RATE), each, 3000) for each in sounds]
    assert wanted[0] == "ab c ba"
    model = Model(folder)
    lanes = Lanes(model.network, cores=cores, most=8)
    futures: list[Future[str]] = [
        lanes.submit(partial(text_of, KaldiRecognizer(model, RATE), each, 3000))
        for each in sounds * 2
    ]
    assert [each.result(60) for each in futures] == wanted * 2
    assert lanes.chunks > lanes.runs > 0
    # What does not run in a lane computes its network by itself.
    assert text_of(KaldiRecognizer(model, RATE), sounds[0], 3000) == wanted[0]
    threads = [one for one in threading.enumerate() if getattr(one, "lanes", None) is lanes]
    assert threads
    lanes.close()
    with pytest.raises(OpscopeError, match="closed"):
        lanes.submit(int)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_urgent_work_comes_first(folder) -> None:
    lanes = Lanes(Model(folder).network, cores=1)
    begun, gate = threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        begun.set()
        gate.wait(60)

    holding = lanes.submit(hold)
    assert begun.wait(60)
    futures = [
        lanes.submit(partial(order.append, name), urgent=name.startswith("end"))
        for name in ("samples 1", "samples 2", "end 1", "samples 3", "end 2")
    ]
    assert lanes.waiting == 5
    gate.set()
    for each in (holding, *futures):
        each.result(60)
    assert order == ["end 1", "end 2", "samples 1", "samples 2", "samples 3"]
    lanes.close()


def test_urgent_chunks_wait_for_no_others(folder) -> None:
    """An urgent stream gets its words while others' work, which came before, has not begun."""
    model = Model(folder)
    lanes = Lanes(model.network, cores=1)
    begun, gate = threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        gate.wait(60)

    def heard(name: str, recognizer: KaldiRecognizer) -> str:
        text = text_of(recognizer, speech("c").tobytes(), 3000)
        done.append(name)
        return text

    holding = lanes.submit(hold)
    assert begun.wait(60)
    names = ("one", "other", "urgent")
    futures = [
        lanes.submit(partial(heard, name, KaldiRecognizer(model, RATE)), urgent=name == "urgent")
        for name in names
    ]
    gate.set()
    assert [each.result(60) for each in futures] == ["c"] * 3
    assert done[0] == "urgent" and lanes.chunks > 0
    holding.result(60)
    lanes.close()


def test_other_work_has_a_turn_after_some_urgent_ones() -> None:
    lanes = Lanes(None, cores=1)
    ends = threading.Event()
    turns = []

    def again(_: object = None) -> None:
        if not ends.is_set():
            lanes.submit(partial(turns.append, "urgent"), urgent=True).add_done_callback(again)

    for _ in range(3):
        again()
    try:
        for _ in range(5):
            lanes.submit(partial(turns.append, "other")).result(60)
    finally:
        ends.set()
        lanes.close()
    found = [at for at, turn in enumerate(turns) if turn == "other"]
    assert len(found) == 5 and "urgent" in turns


class GatedNetwork:
    """Runs of a network that end when they are let."""

    def __init__(self, runs: int) -> None:
        self.gates = [threading.Event() for _ in range(runs)]
        self.begun = [threading.Event() for _ in range(runs)]
        self.sizes: list[int] = []

    def compute(self, chunks: list[object]) -> list[object]:
        run = len(self.sizes)
        self.sizes.append(len(chunks))
        self.begun[run].set()
        assert self.gates[run].wait(60)
        return chunks


def test_no_core_is_idle_while_urgent_work_waits_for_room() -> None:
    """Lanes that have got their output go on, while all chunks that there may be wait."""
    lanes: Any = Lanes(None, cores=2, most=2)
    network = lanes._batch = GatedNetwork(4)
    holds = [threading.Event() for _ in range(2)]

    def submitted(urgent: bool) -> Future[Any]:
        return lanes.submit(partial(lanes.compute, None), urgent=urgent)

    for each in holds:
        lanes.submit(partial(each.wait, 60))
    others = [submitted(urgent=False) for _ in range(2)]
    holds[0].set()
    assert network.begun[0].wait(60)  # with the chunks of both
    urgent = [submitted(urgent=True) for _ in range(5)]
    holds[1].set()
    while lanes.waiting > 3 or lanes.running > 1:  # two of them wait for the network
        time.sleep(0.001)
    network.gates[0].set()
    assert network.begun[1].wait(60)
    for each in others:
        assert each.result(60) is None  # though the second run has not ended
    assert not network.gates[1].is_set() and network.sizes == [2, 2]
    for gate in network.gates:
        gate.set()
    assert [each.result(60) for each in urgent] == [None] * 5
    lanes.close()


def test_what_is_urgent(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a stream or of sound; not every text."""
    worker: Any = Worker(Model(folder), ServerOptions(), 1)
    asked: list[bool] = []
    monkeypatch.setattr(worker._lanes, "submit", lambda work, urgent: asked.append(urgent))
    calls = (
        ("take", '{"eof" : 1}'),
        ("end",),
        ("finish",),
        ("take", b'{"eof" : 1}'),
        ("take", '{"config": {"phrase_list": ["eof"]}}'),
        ("take", '{"config": {}, "eof": 1}'),
        ("take", '["eof"]'),
        ("take", '{"eof"'),
        ("written", "json"),
        ("advance",),
    )
    for each in calls:
        worker.call(0, *each)
    assert asked == [True] * 3 + [False] * 7
    worker.close()


def test_what_fails_fails_alone(folder) -> None:
    model = Model(folder)
    lanes = Lanes(model.network, cores=2)
    wrong = KaldiRecognizer(model, RATE)
    broken = np.full(RATE, np.nan, np.float32)
    futures = [
        lanes.submit(partial(wrong.AcceptWaveform, broken)),
        lanes.submit(partial(text_of, KaldiRecognizer(model, RATE), speech("c").tobytes(), 3000)),
    ]
    assert isinstance(futures[0].exception(60), (NotFiniteError, OpscopeError))
    assert futures[1].result(60) == "c"
    lanes.close()


def test_vosks_batches(folder) -> None:
    model = BatchModel(folder)
    recognizers = [BatchRecognizer(model, RATE) for _ in TEXTS]
    for recognizer, text in zip(recognizers, TEXTS, strict=True):
        data = speech(text).tobytes()
        for at in range(0, len(data), 8000):
            recognizer.AcceptWaveform(data[at : at + 8000])
        recognizer.FinishStream()
    model.Wait()
    for recognizer, text in zip(recognizers, TEXTS, strict=True):
        assert recognizer.GetPendingChunks() == 0
        results = []
        while result := recognizer.Result():
            results.append(json.loads(result))
        assert " ".join(each["text"] for each in results).split() == text.split()
        words = [word["word"] for each in results for word in each.get("result", [])]
        assert words == text.split()
