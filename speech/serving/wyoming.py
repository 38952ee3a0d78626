"""Wyoming's protocol, by which home assistants ask for words: events over TCP.

An event is a line of JSON, then its data as JSON and its payload, of the lengths that the line has.
Source: the description of the protocol in the package wyoming.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ... import __version__
from ...framework.base.errors import FormatError, OpscopeError
from .server import RefusedError, Server, opened
from .session import check_rate
from .workers import Task, WorkerError

_NAME = "opscope"
_LINE = 1 << 16  # bytes
_ENDING = 1.0  # seconds


@dataclass
class _Event:
    """What is said: its type, data, and bytes."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    @classmethod
    async def read(cls, reader: asyncio.StreamReader, most: int) -> _Event | None:
        """The next event; None: there is none.

        Raises:
            FormatError: it is no event, or has more than `most` bytes.
        """
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise FormatError("an event is cut off") from None
            return None
        except asyncio.LimitOverrunError:
            raise FormatError(f"the line of an event has more than {_LINE} bytes") from None
        head = _object(line)
        kind, data = head.get("type"), head.get("data") or {}
        sizes = head.get("data_length") or 0, head.get("payload_length") or 0
        if not isinstance(kind, str) or not isinstance(data, dict):
            raise FormatError("an event wants a type, and an object as its data")
        if not all(isinstance(size, int) and 0 <= size <= most for size in sizes):
            raise FormatError(f"an event of {sizes[0]} and {sizes[1]} bytes: want {most} at most")
        try:
            if sizes[0]:
                data |= _object(await reader.readexactly(sizes[0]))
            return cls(kind, data, await reader.readexactly(sizes[1]))
        except asyncio.IncompleteReadError:
            raise FormatError("an event is cut off") from None

    def written(self) -> bytes:
        """Its bytes."""
        data = json.dumps(self.data, ensure_ascii=False).encode()
        head = {"type": self.type, "data_length": len(data), "payload_length": len(self.payload)}
        return json.dumps(head).encode() + b"\n" + data + self.payload


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FormatError("an event is no JSON object")
    return value


@asynccontextmanager
async def wyoming(server: Server, host: str, port: int) -> AsyncIterator[str]:
    """Speech to text by Wyoming's events; see `Protocol`.

    Raises:
        OpscopeError: nothing can listen there.
    """
    clients: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        clients[task] = writer
        try:
            await _Client(server, reader, writer).run()
        finally:
            del clients[task]
            writer.close()

    coming = asyncio.start_server(connected, host, port, limit=_LINE)
    listening, address = await opened(coming, "tcp", host, port)
    try:
        yield address
    finally:
        listening.close()
        if clients:  # which have seen that the server ends
            _, late = await asyncio.wait(list(clients), timeout=_ENDING)
            for task in late:
                clients[task].transport.abort()


class _Client:
    """A connection, which may have several streams one after the other."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    async def run(self) -> None:
        """Answer events until the client has gone, or the server ends."""
        try:
            while (event := await self._next()) is not None:
                if event.type == "describe":
                    await self._send(_Event("info", _info(self._server)))
                elif event.type == "ping":
                    await self._send(_Event("pong", event.data))
                elif event.type == "audio-start":
                    async with self._server.admitted("wyoming"):
                        await self._send(_Event("transcript", {"text": await self._heard(event)}))
        except (OpscopeError, RefusedError, WorkerError) as error:
            self._server.metrics.add("errors_total", "wyoming")
            with suppress(ConnectionError, TimeoutError):
                await self._send(_Event("error", {"text": str(error), "code": "refused"}))
        except (ConnectionError, TimeoutError):
            return  # it has gone, or is silent

    async def _heard(self, start: _Event) -> str:
        """The words up to the end of the sound, or of the server."""
        rate, channels = start.data.get("rate"), start.data.get("channels", 1)
        if start.data.get("width", 2) != 2 or not _positive(rate) or not _positive(channels):
            raise FormatError(
                f"sound of {start.data}: want 16-bit samples (width 2), a rate and channels"
            )
        check_rate(rate)
        with self._server.workers.task("sound", rate=rate, channels=channels) as sound:
            await sound.call("begin")
            return await self._taken(sound, rate * channels)

    async def _taken(self, sound: Task, samples: int) -> str:
        """The words of sound that comes now, so many samples in a second."""
        server = self._server
        most = server.options.session.seconds
        total = 0.0
        while (event := await self._next()) is not None and event.type != "audio-stop":
            if event.type != "audio-chunk":
                continue
            seconds = len(event.payload) / 2 / samples
            total += seconds
            if total > most:
                raise RefusedError(413, "seconds", f"more than {most:g} seconds of sound")
            server.metrics.add("audio_seconds_total", "wyoming", seconds)
            await sound.call("take", event.payload)
        return await sound.call("finish")

    async def _next(self) -> _Event | None:
        most = self._server.options.message_bytes
        return await self._server.next_of(_Event.read(self._reader, most))

    async def _send(self, event: _Event) -> None:
        self._writer.write(event.written())
        await asyncio.wait_for(self._writer.drain(), self._server.options.idle)


def _positive(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20


def _info(server: Server) -> dict[str, Any]:
    """What the server does, in Wyoming's words."""
    about = {"attribution": {"name": _NAME, "url": ""}, "installed": True, "version": __version__}
    name = server.name
    model = {"name": name, "description": name, "languages": [], **about}
    program = {"name": _NAME, "description": "Speech to text", "models": [model], **about}
    return {"asr": [program], "tts": [], "handle": [], "intent": [], "wake": []}
