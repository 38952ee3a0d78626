"""A real server: its protocols, what clients do wrong, those that vanish, its end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import Chromium, browser
from opscope.speech import Model, transcribe
from served_models import children, served
from speech_models import RATE, recording, small_files, speech, write_files

aiohttp = pytest.importorskip("aiohttp")

LIMITS = ("--idle=2", "--streams=6", "--seconds=20", "--message-bytes=100000")
UPLOAD = 2_000_000
CONFIG = json.dumps({"config": {"sample_rate": RATE}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small")
    return write_files(small_files(place / "parts"), place / "model")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder, *LIMITS, f"--upload-bytes={UPLOAD}") as (found, _):
        yield found[0]


async def said(socket: Any, text: str) -> str:
    """What a stream hears of a text, to its end."""
    data = speech(text).tobytes()
    found = []
    await socket.send_str(CONFIG)
    for at in range(0, len(data), 6400):
        await socket.send_bytes(data[at : at + 6400])
        found.append(await socket.receive_json())
    await socket.send_str('{"eof" : 1}')
    found.append(await socket.receive_json())
    closed = await socket.receive()
    assert closed.type == aiohttp.WSMsgType.CLOSE and closed.data == 1000
    return " ".join(each["text"] for each in found if each.get("text"))


async def words(address: str, text: str = "ab c ba") -> str:
    async with aiohttp.ClientSession() as client, client.ws_connect(address) as stream:
        return await said(stream, text)


async def counts(address: str) -> dict[str, float]:
    """The metrics of a server."""
    async with aiohttp.ClientSession() as client, client.get(f"{address}/metrics") as answer:
        assert answer.status == 200 and answer.content_type == "text/plain"
        lines = (await answer.text()).splitlines()
    assert any(line.startswith("# TYPE opscope_streams gauge") for line in lines)
    return {name: float(value) for name, value in (r.split(" ") for r in lines if r[0] != "#")}


def test_streams_beside_each_other(address: str) -> None:
    async def run() -> list[str]:
        return await asyncio.gather(*(words(address, text) for text in ("ab c ba", "c", "ba") * 2))

    assert asyncio.run(run()) == ["ab c ba", "c", "ba"] * 2


ANSWERS: dict[str, tuple[str, dict[str, str], str]] = {
    "json": ("/transcribe", {}, "application/json"),
    "json by path": ("/transcribe.json", {"Accept": "text/vtt"}, "application/json"),
    "srt": (
        "/transcribe",
        {"Accept": "text/html;q=0.9, application/x-subrip"},
        "application/x-subrip",
    ),
    "vtt": ("/transcribe", {"Accept": "text/*;q=0.5, text/vtt;q=0.6"}, "text/vtt"),
    "txt": ("/transcribe", {"Accept": "text/plain"}, "text/plain"),
    "ctm": ("/transcribe.ctm", {}, "text/plain"),
}


def test_recordings(address: str, folder: Path, tmp_path: Path) -> None:
    from opscope.speech.recognize.formats import FORMATS

    data = recording("ab c ba")
    path = tmp_path / "recording"
    path.write_bytes(data)
    wanted = transcribe(path, Model(folder))

    async def run() -> None:
        async with aiohttp.ClientSession(address) as client:
            for name, (route, headers, kind) in ANSWERS.items():
                async with client.post(route, data=data, headers=headers) as answer:
                    text = await answer.text()
                    assert (answer.status, answer.content_type) == (200, kind), (name, text)
                made = FORMATS[name.split()[0]](wanted)
                assert text.replace(str(path), "recording") == made.replace(str(path), "recording")
            form = aiohttp.FormData({"note": "x"})
            form.add_field("file", data, filename="../../etc/passwd")
            async with client.post("/transcribe.txt?phrase=c", data=form) as answer:
                assert (answer.status, set((await answer.text()).split())) == (200, {"c"})
            async with client.post("/transcribe?alternatives=2&phones=1", data=data) as answer:
                utterance = (await answer.json())["utterances"][0]
                assert utterance["phones"] and len(utterance["alternatives"]) == 2

    asyncio.run(run())


WAV = recording("c")
REFUSED: dict[str, tuple[str, str, bytes, dict[str, str], int, str]] = {
    "no recording": ("POST", "/transcribe", b"hello", {}, 400, "no WAV file|no audio"),
    "an empty one": ("POST", "/transcribe", b"", {}, 400, "the file is empty"),
    "cut off": ("POST", "/transcribe", WAV[:30], {}, 400, "recording"),
    "no format": ("POST", "/transcribe.mp3", WAV, {}, 404, "no format 'mp3'"),
    "no such answer": ("POST", "/transcribe", WAV, {"Accept": "image/png"}, 406, "image/png"),
    "a query": ("POST", "/transcribe?path=/etc/passwd", WAV, {}, 400, "unknown in the query: path"),
    "alternatives": ("POST", "/transcribe?alternatives=x", WAV, {}, 400, "from 0 to 100"),
    "too large": ("POST", "/transcribe", bytes(UPLOAD + 1), {}, 413, f"more than {UPLOAD} bytes"),
    "too long": ("POST", "/transcribe", recording("c", 16000, 21), {}, 413, "20 are the most"),
    "a path": ("GET", "/../../etc/passwd", b"", {}, 404, "nothing is here"),
    "a method": ("PUT", "/transcribe", WAV, {}, 405, "Method Not Allowed"),
    "a form without a file": (
        *(
            "POST",
            "/transcribe",
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--',
        ),
        *({"Content-Type": "multipart/form-data; boundary=x"}, 400, "the form has no file"),
    ),
}


def test_what_is_refused_is_told(address: str) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession(address) as client:
            for name, (method, route, data, headers, status, told) in REFUSED.items():
                async with client.request(method, route, data=data, headers=headers) as answer:
                    text = await answer.text()
                    assert answer.status == status, (name, text)
                assert re.search(told, json.loads(text)["error"]), (name, text)
        assert await words(address) == "ab c ba"

    asyncio.run(run())


def raw(address: str) -> socket.socket:
    """A connection to a server."""
    port = int(address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=30)


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def ended(connection: socket.socket) -> bytes:
    """All that still comes of a connection, which the server ends."""
    received = b""
    with connection:
        while data := connection.recv(1 << 16):
            received += data
    return received


def test_clients_that_do_other_things(address: str) -> None:
    """Half-open connections end, messages of 100 MB are refused, frames that are none as well."""
    waiting = {
        "nothing": b"",
        "half a request": UPGRADE[:40],
        "no request": b"\x16\x03\x01" * 100,
        "a stream that is silent": UPGRADE,
        "half a recording": b"POST /transcribe HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nR",
        "a frame of 100 MB": UPGRADE + b"\x82\xff" + (100 << 20).to_bytes(8, "big") + b"mask",
        "a frame that is none": UPGRADE + b"\xff\xff\xff\xff",
    }
    connections = {name: raw(address) for name in waiting}
    for name, data in waiting.items():
        connections[name].sendall(data)
    answers = {name: ended(each) for name, each in connections.items()}
    assert answers["nothing"] == b""
    assert b"400 Bad Request" in answers["no request"]
    assert b"nothing came for 2 seconds" in answers["a stream that is silent"]
    assert b"408" in answers["half a recording"] and b"does not come" in answers["half a recording"]
    assert (
        b"\x88" in answers["a frame of 100 MB"]
        and (1009).to_bytes(2, "big") in (answers["a frame of 100 MB"])
    )
    assert (1002).to_bytes(2, "big") in answers["a frame that is none"]
    assert asyncio.run(words(address)) == "ab c ba"


def test_streams_that_are_too_many(address: str) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession(address) as client:
            streams = [await client.ws_connect("/any/path") for _ in range(6)]
            for route, form in (("/", None), ("/transcribe", WAV)):
                method = client.ws_connect(route) if form is None else client.post(route, data=form)
                if form is None:
                    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                        await method
                    assert refused.value.status == 503
                else:
                    async with method as answer:
                        assert answer.status == 503 and answer.headers["Retry-After"]
                        assert "6 streams are open" in (await answer.json())["error"]
            for stream in streams:
                await stream.close()
        await gone(address)
        assert await words(address) == "ab c ba"

    asyncio.run(run())


async def gone(address: str) -> None:
    """Wait until no stream is open."""
    end = time.monotonic() + 30
    while (await counts(address)).get('opscope_streams{kind="stream"}', 0):
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


def test_pages_of_others_open_no_stream(address: str) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession(address) as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect("/", origin="https://example.org")
            assert refused.value.status == 403
            await (await client.ws_connect("/", origin=address)).close()

    asyncio.run(run())


def test_clients_that_vanish_or_do_not_read(address: str) -> None:
    """Others are answered meanwhile, and nothing of them stays."""

    async def run() -> None:
        killed = [raw(address) for _ in range(3)]
        for each in killed:
            each.sendall(UPGRADE + b"\x82\x7e\x20\x00" + bytes(300))
        deaf = raw(address)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        frame = b"\x82\xfe\x0c\x80" + bytes(4 + 3200)
        deaf.sendall(UPGRADE + frame * 20)
        assert await words(address) == "ab c ba"
        for each in killed:
            linger = b"\1\0\0\0\0\0\0\0"  # closed by a reset
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            each.close()
        deaf.close()
        await gone(address)
        found = await counts(address)
        assert found["opscope_work_waiting"] == 0
        assert found["opscope_network_chunks_total"] >= found["opscope_network_runs_total"] > 0

    asyncio.run(run())


def test_a_server_that_is_told_to_end(folder: Path) -> None:
    """Open streams get their final results, recordings are finished, nothing new is taken."""

    async def run(address: str, process: subprocess.Popen[str]) -> None:
        async with aiohttp.ClientSession(address) as client:
            stream = await client.ws_connect("/")
            await stream.send_str(CONFIG)
            await stream.send_bytes(speech("ab c").tobytes())
            assert "partial" in await stream.receive_json()
            asked = asyncio.ensure_future(client.post("/transcribe.txt", data=recording("c " * 30)))
            while not (await counts(address)).get('opscope_streams{kind="recording"}'):
                await asyncio.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            assert (await stream.receive_json())["text"] == "ab c"
            closed = await stream.receive()
            assert (closed.data, closed.extra) == (1001, "the server is ending")
            async with await asked as answer:
                assert (await answer.text()).split() == ["c"] * 30

    with served(folder) as (addresses, process):
        asyncio.run(run(addresses[0], process))
        assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system has no /proc")
def test_processes_that_end(folder: Path) -> None:
    """Streams of one that is killed are closed, the others continue, another one takes its place;
    the server takes all with it."""

    async def run(address: str, process: subprocess.Popen[str]) -> list[int]:
        first, second = children(process)
        async with aiohttp.ClientSession(address) as client:
            streams = [await client.ws_connect("/") for _ in range(2)]
            for stream in streams:
                await stream.send_str(CONFIG)
                await stream.send_bytes(speech("ab").tobytes())
                assert "partial" in await stream.receive_json()
            os.kill(first, signal.SIGKILL)
            await streams[0].send_bytes(bytes(3200))
            closed = await streams[0].receive()
            assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1011)
            await streams[1].send_str('{"eof" : 1}')
            assert (await streams[1].receive_json())["text"] == "ab"
            assert await words(address) == "ab c ba"
            assert (await counts(address))["opscope_network_runs_total"] > 0
        while len(found := children(process)) < 2:
            await asyncio.sleep(0.05)
        assert second in found and first not in found
        assert await asyncio.gather(*(words(address, each) for each in ("c", "ba"))) == ["c", "ba"]
        process.kill()
        return found

    command = [sys.executable, "-P", "-m", "opscope", "serve", str(folder), "--port=0"]
    command.append("--processes=2")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        found = asyncio.run(asyncio.wait_for(run(address, process), 60))
    end = time.monotonic() + 30
    while any(Path(f"/proc/{each}").exists() for each in found) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{each}").exists() for each in found)


def test_a_server_without_other_processes(folder: Path) -> None:
    with served(folder, "--processes=1") as (addresses, process):
        assert asyncio.run(words(addresses[0])) == "ab c ba"
        assert process.poll() is None and len(asyncio.run(counts(addresses[0]))) > 3


def test_a_port_that_is_taken(folder: Path, address: str) -> None:
    port = address.rpartition(":")[2]
    command = [sys.executable, "-P", "-m", "opscope", "serve", str(folder), f"--port={port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot listen at 127.0.0.1:{port}: ")


def test_the_page_in_a_browser(folder: Path, tmp_path: Path) -> None:
    """Its microphone, which hears a file here."""
    if browser() is None:
        pytest.skip("no Chromium on this machine")
    sound = tmp_path / "said.wav"
    sound.write_bytes(recording("ab c ba", seconds=5))
    flags = (
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={sound}%noloop",
    )
    shown = "[...document.querySelectorAll('#text p')].map(each => each.textContent).join(' ')"
    with served(folder) as (addresses, _), Chromium(500, 700, flags) as page:
        page.open(addresses[0])
        page.run("document.getElementById('microphone').click()")
        end = time.monotonic() + 30
        partial = "document.getElementById('partial').textContent"
        while "c" not in page.run(partial).split() and time.monotonic() < end:
            time.sleep(0.05)
        page.run("document.getElementById('microphone').click()")
        while page.run("document.getElementById('microphone').textContent") == "Stop":
            time.sleep(0.05)
        # A busy browser leaves out parts of what its microphone hears.
        assert "c" in page.run(shown).split() and page.run(partial) == ""
        assert page.run("document.getElementById('status').textContent") == ""
        assert page.complaints() == []
