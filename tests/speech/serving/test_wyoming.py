"""Wyoming's events over TCP: words, what the server is, events that are none, the end."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from served_models import served
from speech_models import RATE, small_files, speech, write_files

pytest.importorskip("aiohttp")

SOUND = {"rate": RATE, "width": 2, "channels": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small")
    return write_files(small_files(place / "parts"), place / "model")


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with served(folder, "--wyoming-port=0", "--idle=2", "--message-bytes=100000") as (found, _):
        yield int(found[1].rpartition(":")[2])


def event(kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> bytes:
    text = json.dumps(data or {}).encode()
    head = {"type": kind, "data_length": len(text), "payload_length": len(payload)}
    return json.dumps(head).encode() + b"\n" + text + payload


def spoken(text: str, **sound: Any) -> bytes:
    data = speech(text).tobytes()
    chunks = [data[at : at + 5001] for at in range(0, len(data), 5001)]
    start, *rest = (
        event("audio-start", SOUND | sound),
        *(event("audio-chunk", SOUND, c) for c in chunks),
    )
    return b"".join((start, *rest, event("audio-stop")))


def answers(port: int, data: bytes, count: int = 1) -> list[dict[str, Any]]:
    """So many events of the server; None of them may come before all was sent."""
    found = []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        file = connection.makefile("rb")
        for _ in range(count):
            head = json.loads(file.readline() or b"{}")
            if head:
                head["data"] = json.loads(file.read(head["data_length"]))
            found.append(head)
    return found


def test_streams_one_after_the_other(port: int) -> None:
    data = event("transcribe", {"language": "en"}) + spoken("ab c ba") + spoken("c")
    inline = b'{"type": "ping", "data": {"text": "x"}}\n'
    found = answers(port, inline + data, 3)
    assert [each["type"] for each in found] == ["pong", "transcript", "transcript"]
    assert [each["data"]["text"] for each in found] == ["x", "ab c ba", "c"]


def test_what_the_server_is(port: int) -> None:
    (found,) = answers(port, event("describe"))
    (program,) = found["data"]["asr"]
    assert found["type"] == "info" and program["installed"]
    assert program["models"][0]["name"] == "model"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"hello\n", "no JSON object"),
        (b"[" * 60_000 + b"\n", "no JSON object"),
        (b"x" * 100_000, "more than 65536 bytes"),
        (b'{"type": 5}\n', "wants a type"),
        (b'{"type": "audio-chunk", "payload_length": 104857600}\n', "want 100000 at most"),
        (b'{"type": "audio-chunk", "payload_length": -1}\n', "want 100000 at most"),
        (event("audio-start", {"rate": 0, "width": 2, "channels": 1}), "a rate and channels"),
        (event("audio-start", SOUND | {"width": 4}), "width 2"),
        (event("audio-start", SOUND | {"rate": 3}), "rate of 3: want 1000"),
    ],
)
def test_events_that_are_none(port: int, data: bytes, told: str) -> None:
    found, after = answers(port, data, 2)
    assert found["type"] == "error" and re.search(told, found["data"]["text"])
    assert after == {}
    assert answers(port, spoken("c"))[0]["data"]["text"] == "c"


def test_clients_that_are_silent_or_vanish(port: int) -> None:
    assert answers(port, event("audio-start", SOUND)) == [{}]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(spoken("c")[:3000])
    assert answers(port, spoken("c"))[0]["data"]["text"] == "c"


def test_the_end_of_the_server(folder: Path) -> None:
    with served(folder, "--wyoming-port=0") as (found, process):
        port = int(found[1].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(spoken("ab c")[: -len(event("audio-stop"))])
            file = connection.makefile("rb")
            opened = b'opscope_streams{kind="wyoming"} 1'
            while opened not in urlopen(f"{found[0]}/metrics").read():
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            head = json.loads(file.readline())
            said = json.loads(file.read(head["data_length"]))["text"]
            assert "ab c".startswith(said)  # what had been taken by then
        assert process.wait(60) == 0
