"""vosk-server's gRPC interface with a client of grpcio: words, what is wrong, limits, the end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from served_models import children, served
from speech_models import RATE, small_files, speech, tone, write_files

pytest.importorskip("aiohttp")
grpc = pytest.importorskip("grpc")

from opscope.speech.serving.stt_messages import Request, Response  # noqa: E402

METHOD = "/vosk.stt.v1.SttService/StreamingRecognize"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small")
    return write_files(small_files(place / "parts"), place / "model")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[list[str]]:
    limits = "--idle=2", "--message-bytes=100000", "--seconds=9", "--streams=2"
    with served(folder, "--grpc=0", *limits) as (found, _):
        yield found


@pytest.fixture
def channel(server: list[str]) -> Iterator[Any]:
    with grpc.insecure_channel(server[1].removeprefix("grpc://")) as made:
        yield made


def config(**spec: Any) -> Any:
    return Request(config={"specification": {"sample_rate_hertz": RATE, **spec}})


def samples(text: str, step: int = 4000) -> list[Any]:
    data = speech(text).tobytes()
    return [Request(audio_content=data[at : at + step]) for at in range(0, len(data), step)]


def stream(channel: Any, requests: Iterable[Any]) -> Any:
    call = channel.stream_stream(
        METHOD,
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )
    return call(iter(requests), timeout=60)


def chunks(channel: Any, requests: Iterable[Any]) -> list[Any]:
    return [chunk for response in stream(channel, requests) for chunk in response.chunks]


def text(found: list[Any]) -> str:
    return " ".join(each.alternatives[0].text for each in found if each.final).strip()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system has no /proc")
def test_a_process_that_takes_the_place_of_another_one(folder: Path) -> None:
    """It is forked amid gRPC's threads, and does not go on with them."""
    with served(folder, "--grpc=0", "--processes=2") as (found, process):
        ended = children(process)
        for each in ended:
            os.kill(each, signal.SIGKILL)
        end = time.monotonic() + 120
        while len(new := {*children(process)} - {*ended}) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)  # in which gRPC would have aborted them
        with grpc.insecure_channel(found[1].removeprefix("grpc://")) as channel:
            assert text(chunks(channel, [config(), *samples("ab")])) == "ab"
        assert {*children(process)} == new


def test_words_and_times(channel: Any) -> None:
    """Results have words with times and confidences where these are asked for, else texts."""
    found = chunks(channel, [config(enable_word_time_offsets=True), *samples("ab c ba")])
    assert text(found) == "ab c ba" and all(each.end_of_utterance for each in found)
    words = [word for each in found for word in each.alternatives[0].words]
    assert [word.word for word in words] == ["ab", "c", "ba"]
    starts = [word.start_time.seconds + word.start_time.nanos / 1e9 for word in words]
    assert starts == pytest.approx([0.2, 0.8, 1.2], abs=0.1)
    assert all(0 < word.confidence <= 1 for word in words)
    assert all(word.end_time.nanos % 1_000_000 == 0 for word in words)
    plain = chunks(channel, [config(audio_encoding=1), *samples("ab c ba")])
    assert text(plain) == "ab c ba"
    assert all(not each.alternatives[0].words for each in plain)
    assert plain[-1].alternatives[0].confidence == 1


def test_partial_results_and_alternatives(channel: Any) -> None:
    requests = [config(partial_results=True, max_alternatives=3), *samples("ab c ba", 1600)]
    found = chunks(channel, requests)
    partial = [each.alternatives[0].text for each in found if not each.final]
    assert "ab c ba".startswith(partial[0]) and "ab" in partial
    assert text(found) == "ab c ba"
    assert all(len(each.alternatives) <= 3 for each in found)


def test_one_utterance_alone(channel: Any) -> None:
    """With single_utterance the stream is over when the first utterance is."""
    quiet = tone("sil", 0.5).round().astype(np.int16).tobytes()
    silence = [Request(audio_content=quiet)] * 12
    requests = [config(single_utterance=True), *samples("ab"), *silence, *samples("c")]
    found = chunks(channel, requests)
    assert len(found) == 1 and text(found) == "ab"


def test_bytes_of_messages() -> None:
    """The numbers and types of fields on the wire, as the file of vosk-server has them."""
    request = config(partial_results=True, max_alternatives=2, enable_word_time_offsets=True)
    spec = b"\x10" + bytes([0x80 | (RATE & 0x7F), RATE >> 7]) + b"\x38\x01\x58\x02\x60\x01"
    wanted = b"\x0a" + bytes([len(spec) + 2]) + b"\x0a" + bytes([len(spec)]) + spec
    assert request.SerializeToString(deterministic=True) == wanted
    assert Request(audio_content=b"xy").SerializeToString() == b"\x12\x02xy"
    made = Response()
    chunk = made.chunks.add(final=True, end_of_utterance=True)
    alternative = chunk.alternatives.add(text="hi", confidence=0.5)
    info = alternative.words.add(word="h", confidence=0.5)
    info.start_time.seconds, info.end_time.nanos = 1, 5
    inner = b"\x0a\x02\x08\x01\x12\x02\x10\x05\x1a\x01h\x25\x00\x00\x00\x3f"
    best = b"\x0a\x02hi\x15\x00\x00\x00\x3f\x1a" + bytes([len(inner)]) + inner
    body = b"\x0a" + bytes([len(best)]) + best + b"\x10\x01\x18\x01"
    assert made.SerializeToString(deterministic=True) == b"\x0a" + bytes([len(body)]) + body


@pytest.mark.parametrize(
    ("requests", "code", "told"),
    [
        (samples("c"), "INVALID_ARGUMENT", "first message of a stream must have a config"),
        ([Request()], "INVALID_ARGUMENT", "first message"),
        ([config(), config()], "INVALID_ARGUMENT", "only be the first message"),
        ([config(audio_encoding=2)], "INVALID_ARGUMENT", "audio_encoding 2: want LINEAR16_PCM"),
        ([config(sample_rate_hertz=3)], "INVALID_ARGUMENT", "rate of 3: want 1000"),
        ([config(sample_rate_hertz=-1)], "INVALID_ARGUMENT", "rate of -1"),
        ([config(max_alternatives=1000)], "INVALID_ARGUMENT", "max_alternatives 1000: want"),
        ([config(), Request(audio_content=bytes(200_000))], "RESOURCE_EXHAUSTED", "larger than"),
        (
            [config(), *[Request(audio_content=bytes(90_000))] * 5],
            "RESOURCE_EXHAUSTED",
            "more than 9 seconds of sound",
        ),
    ],
)
def test_what_is_wrong(channel: Any, requests: list[Any], code: str, told: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        chunks(channel, requests)
    assert raised.value.code() == grpc.StatusCode[code]
    assert re.search(told, raised.value.details())
    assert text(chunks(channel, [config(), *samples("c")])) == "c"  # the server lives


def test_bytes_that_are_no_message(channel: Any) -> None:
    call = channel.stream_stream(METHOD)
    with pytest.raises(grpc.RpcError):
        list(call(iter([b"\xff\xff\xff"]), timeout=30))
    with pytest.raises(grpc.RpcError) as raised:
        list(channel.stream_stream("/vosk.stt.v1.SttService/Other")(iter([b""]), timeout=30))
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert text(chunks(channel, [config(), *samples("c")])) == "c"


def slowly(first: list[Any], seconds: float) -> Iterator[Any]:
    yield from first
    time.sleep(seconds)


def until(silence: threading.Event, seconds: float) -> Iterator[Any]:
    """Quiet sound from time to time until there shall be nothing, for some seconds."""
    yield config()
    while not silence.wait(0.2):
        yield Request(audio_content=bytes(20))
    time.sleep(seconds)


def test_limits_of_streams_and_silence(server: list[str], channel: Any) -> None:
    """A third stream is refused; silent ones end, and then there is room."""
    refused = threading.Event()
    silent = [stream(channel, until(refused, 5)) for _ in range(2)]
    opened = b'opscope_streams{kind="grpc"} 2'
    while opened not in urlopen(f"{server[0]}/metrics").read():
        time.sleep(0.01)
    with pytest.raises(grpc.RpcError) as raised:
        chunks(channel, [config(), *samples("c")])
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "as many as there may be" in raised.value.details()
    refused.set()
    for each in silent:
        with pytest.raises(grpc.RpcError) as raised:
            list(each)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "nothing came for 2 seconds" in raised.value.details()
    assert text(chunks(channel, [config(), *samples("c")])) == "c"


def wait_for_none(server: list[str]) -> None:
    """Wait until the server has no stream."""
    closed = b'opscope_streams{kind="grpc"} 0'
    until = time.monotonic() + 60
    while closed not in urlopen(f"{server[0]}/metrics").read():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_clients_that_vanish(server: list[str], channel: Any) -> None:
    for _ in range(5):
        call = stream(channel, slowly([config(partial_results=True), *samples("ab c")], 1))
        next(call)
        call.cancel()
        wait_for_none(server)  # else there may be no room for the next one
    with socket.create_connection(("127.0.0.1", int(server[1].rpartition(":")[2]))) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    wait_for_none(server)
    assert text(chunks(channel, [config(), *samples("c")])) == "c"


def test_the_end_of_the_server(folder: Path) -> None:
    """Open streams get what was heard, and a status that says why they end."""
    with served(folder, "--grpc=0") as (found, process):
        with grpc.insecure_channel(found[1].removeprefix("grpc://")) as channel:
            first = [config(partial_results=True), *samples("ab c")]
            call = stream(channel, slowly(first, 10))
            said = next(response.chunks[0] for response in call)
            process.send_signal(signal.SIGTERM)
            rest = [said]
            with pytest.raises(grpc.RpcError) as raised:
                rest += [response.chunks[0] for response in call]
                pytest.fail("the stream ends with a status")
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
            assert "the server is ending" in raised.value.details()
        assert process.wait(60) == 0


def test_a_port_that_is_taken(folder: Path, server: list[str]) -> None:
    port = server[1].rpartition(":")[2]
    command = [sys.executable, "-P", "-m", "opscope", "serve", str(folder), "--port=0"]
    run = subprocess.run([*command, f"--grpc={port}"], capture_output=True, text=True, timeout=60)
    assert run.returncode and f"cannot listen at 127.0.0.1:{port}" in run.stderr
    assert "Traceback" not in run.stderr
