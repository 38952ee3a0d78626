"""The server: Vosk's WebSocket protocol, recordings over HTTP, a page with a microphone, metrics.

No path of a client is opened: sound comes in messages and bodies, and the page is the package's.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from functools import cache, partial
from importlib import resources
from time import monotonic
from typing import Any, TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from ...framework.base.errors import OpscopeError
from .metrics import Metrics
from .options import MOST_ALTERNATIVES, ServerOptions
from .session import Reply
from .workers import EndedError, Task, WorkerError, Workers

_log = logging.getLogger(__name__)
Result = TypeVar("Result")
_HEARTBEAT = 30.0  # seconds from one ping to the next; who answers none is gone
_CLOSING = 10.0  # seconds that the end of a stream is waited for
_LINGERING = 1.0  # seconds for the rest of a request that is refused, and after the end
_FORMS = {
    "json": "application/json",
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
    "txt": "text/plain",
    "ctm": "text/plain",
    "textgrid": "text/plain",
}
_ACCEPTED = {
    "*/*": "json",
    "application/*": "json",
    "application/srt": "srt",
    "text/srt": "srt",
    "text/*": "txt",
    **{kind: form for form, kind in reversed(_FORMS.items())},
}
"""Types of answers that clients accept, and what they get."""


class RefusedError(Exception):
    """A request is not served: its status in HTTP, and the reason in a word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


Protocol = Callable[["Server", str], AbstractAsyncContextManager[str]]
"""Serves a further protocol at a host within its block, and says where."""


class Server:
    """Recognizes for many clients at once.

    Args:
        workers: who recognize. options: limits. name: of the model.

    Attributes:
        metrics: what it counts. silent: connections that have not asked for anything, and what
            will end them.
    """

    def __init__(self, workers: Workers, options: ServerOptions, name: str) -> None:
        self.workers = workers
        self.options = options
        self.name = name
        self._open = 0
        self._held = 0  # bytes of recordings
        self._end: asyncio.Future[None]
        self._empty = asyncio.Event()  # nothing is open, and the server ends
        self.silent: dict[Any, asyncio.TimerHandle] = {}
        self.metrics = Metrics()

    def application(self) -> web.Application:
        """What answers requests."""
        app = web.Application(middlewares=[self._answered])
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_post("/transcribe", self._transcribe)
        app.router.add_post("/transcribe.{form}", self._transcribe)
        app.router.add_get("/{path:.*}", self._page_or_stream)
        return app

    async def serve(
        self,
        host: str,
        port: int,
        ready: Callable[[Sequence[str]], None],
        protocols: Sequence[Protocol] = (),
    ) -> None:
        """Serve until SIGTERM or Ctrl-C; open streams then get their final results.

        Args:
            host, port: to listen at; port 0: any that is free. ready: is given the addresses.
            protocols: to be served besides.

        Raises:
            OpscopeError: nothing can listen there.
        """
        self._end = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.workers.running())
            listening = [
                await stack.enter_async_context(each(self, host))
                for each in (partial(_http, port=port), *protocols)
            ]
            _on_signals(ended.set)
            ready(listening)
            await ended.wait()
            self._end.set_result(None)
            if self._open:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._empty.wait(), self.options.grace)

    async def next_of(self, what: Coroutine[Any, Any, Result]) -> Result | None:
        """What comes next of a client; None: the server ends.

        Raises:
            TimeoutError: nothing comes for as long as a client may be silent.
        """
        coming = asyncio.ensure_future(what)
        try:
            done, _ = await asyncio.wait(
                (coming, self._end),
                timeout=self.options.idle,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if not coming.done():
                coming.cancel()
        if coming in done:
            return coming.result()
        await asyncio.wait((coming,))
        if not done:
            raise TimeoutError
        return None

    # Requests

    @web.middleware
    async def _answered(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Answers what is wrong as JSON."""
        if (timer := self.silent.pop(request.protocol, None)) is not None:
            timer.cancel()
        try:
            return await handler(request)
        except RefusedError as refused:
            status, reason, message = refused.status, refused.reason, str(refused)
        except web.HTTPException as error:
            status, reason, message = error.status, "request", error.reason
        except EndedError as ended:
            status, reason, message = 503, "ended", str(ended)
        except Exception:
            _log.exception("%s %s could not be answered", request.method, request.path)
            status, reason, message = 500, "failed", "the request could not be answered"
        self.metrics.add("refused_total", reason)
        headers = {"Retry-After": "1"} if status == 503 else {}
        # What is left of a body is not read.
        headers |= {"Connection": "close"} if request.can_read_body else {}
        return web.json_response({"error": message}, status=status, headers=headers)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        text = self.metrics.text(await self.workers.counts())
        return web.Response(text=text, content_type="text/plain")

    async def _page_or_stream(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._stream(request)
        if request.path not in ("/", "/index.html"):
            raise RefusedError(404, "path", "nothing is here; see / and POST /transcribe")
        text, policy = _page()
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        return web.Response(text=text, content_type="text/html", headers=headers)

    @asynccontextmanager
    async def admitted(self, kind: str) -> AsyncIterator[None]:
        """A stream or recording, where there is room for one."""
        if self._end.done():
            raise RefusedError(503, "ending", "the server is ending")
        if self._open >= self.options.streams:
            message = f"{self._open} streams are open, as many as there may be"
            raise RefusedError(503, "streams", message)
        self._open += 1
        self.metrics.add("streams", kind)
        self.metrics.add("streams_total", kind)
        try:
            yield
        finally:
            self._open -= 1
            self.metrics.add("streams", kind, -1)
            if self._end.done() and not self._open:
                self._empty.set()

    # Streams

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        own = {f"{scheme}://{request.host}" for scheme in ("http", "https")}
        if origin is not None and origin not in own | self.options.origins:
            message = f"a page of {origin} may not open streams; see opscope serve --origin"
            raise RefusedError(403, "origin", message)
        async with self.admitted("stream"):
            socket = web.WebSocketResponse(
                heartbeat=_HEARTBEAT,
                timeout=min(self.options.idle, _CLOSING),
                max_msg_size=self.options.message_bytes,
                compress=False,  # it would cost each stream the memory of a compressor
            )
            with self.workers.task("stream") as session:
                await socket.prepare(request)
                await _Stream(self, socket, session).run()
            return socket

    # Recordings

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        form = _form(request)
        asked = _asked(request)
        async with self.admitted("recording"):
            held = 0
            try:
                parts: list[bytes] = []
                async for part in self._body(request):
                    parts.append(part)
                    held += len(part)
                    self._hold(len(part))
                data = b"".join(parts)
                parts.clear()
                with self.workers.task("recording", **asked) as recording:
                    text = await self._transcript(request, recording, data, form)
            except OpscopeError as error:
                self.metrics.add("errors_total", "recording")
                raise RefusedError(400, "recording", str(error)) from None
            finally:
                self._held -= held
        return web.Response(text=text, content_type=_FORMS[form])

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self.options.uploads_bytes:
            raise RefusedError(503, "uploads", "too many recordings are open at this moment")

    async def _body(self, request: web.Request) -> AsyncIterator[bytes]:
        """The recording in a request: its body, or the first file of a form."""
        source: Any = request.content
        if request.content_type == "multipart/form-data":
            fields = await request.multipart()
            source = await self._soon(fields.next())
            while source is not None and getattr(source, "filename", None) is None:
                source = await self._soon(fields.next())
            if source is None:
                raise RefusedError(400, "recording", "the form has no file")
        read = source.readany if source is request.content else source.read_chunk
        size, most = 0, self.options.upload_bytes
        while part := await self._soon(read()):
            size += len(part)
            if size > most:
                raise RefusedError(413, "bytes", f"a recording of more than {most} bytes")
            yield part

    async def _soon(self, what: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await asyncio.wait_for(what, self.options.idle)
        except TimeoutError:
            raise RefusedError(408, "idle", "the recording does not come") from None

    async def _transcript(
        self, request: web.Request, recording: Task, data: bytes, form: str
    ) -> str:
        """What is said in a recording, piece by piece, so that streams get their turns between."""
        seconds = await recording.call("decode", data)
        most = self.options.session.seconds
        if seconds > most:
            message = f"{seconds:.1f} seconds of sound, where {most:g} are the most"
            raise RefusedError(413, "seconds", message)
        await recording.call("begin")
        while await recording.call("advance"):
            if request.transport is None or request.transport.is_closing():
                raise RefusedError(400, "gone", "the client has gone")
        self.metrics.add("audio_seconds_total", "recording", seconds)
        return await recording.call("written", form)


class _Stream:
    """A WebSocket and its session."""

    def __init__(self, server: Server, socket: web.WebSocketResponse, session: Task) -> None:
        self._server = server
        self._socket = socket
        self._session = session

    async def run(self) -> None:
        """Answer messages until the stream is over, or the server."""
        socket, idle = self._socket, self._server.options.idle
        while not socket.closed:
            try:
                message = await self._server.next_of(socket.receive())
            except TimeoutError:
                await self._close(
                    WSCloseCode.POLICY_VIOLATION, f"nothing came for {idle:g} seconds"
                )
                return
            if message is None:
                if (reply := await self._reply("end")) is not None:
                    with suppress(ConnectionError):
                        await socket.send_str(reply.text or "")
                    await self._close(WSCloseCode.GOING_AWAY, "the server is ending")
                return
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return  # closed, by the client, by us, or by what is wrong with its frames
            if not await self._answer(message.data, idle):
                return

    async def _answer(self, data: str | bytes, idle: float) -> bool:
        """Answer a message; False: the stream is over."""
        begin = monotonic()
        metrics = self._server.metrics
        reply = await self._reply("take", data)
        if reply is None:
            return False
        metrics.add("audio_seconds_total", "stream", reply.seconds)
        if reply.text is not None:
            if reply.is_error:
                metrics.add("errors_total", "stream")
            metrics.add("replies_total", "stream")
            metrics.add("reply_seconds_total", "stream", monotonic() - begin)
            try:
                await asyncio.wait_for(self._socket.send_str(reply.text), idle)
            except (TimeoutError, ConnectionError):
                self._socket.force_close()  # it does not take its answers
                return False
        if reply.is_last:
            code = WSCloseCode.POLICY_VIOLATION if reply.reason else WSCloseCode.OK
            await self._close(code, reply.reason)
        return not reply.is_last

    async def _reply(self, method: str, *values: str | bytes) -> Reply | None:
        """What the session says; None: it failed, and the stream is over."""
        try:
            return Reply(**await self._session.call(method, *values))
        except Exception as error:
            if not isinstance(error, WorkerError):  # else the worker has logged it
                _log.exception("a message could not be answered")
            self._server.metrics.add("errors_total", "stream")
            await self._close(WSCloseCode.INTERNAL_ERROR, "the message could not be answered")
            return None

    async def _close(self, code: WSCloseCode, reason: str) -> None:
        with suppress(ConnectionError):
            await self._socket.close(code=code, message=reason.encode()[:120])


def _form(request: web.Request) -> str:
    """The format of the answer, by the path or what the client accepts."""
    form = request.match_info.get("form")
    if form is not None:
        if form not in _FORMS:
            raise RefusedError(404, "path", f"no format {form!r}: want {', '.join(_FORMS)}")
        return form
    accepted = request.headers.get("Accept") or "*/*"
    for each in sorted(accepted.split(","), key=_quality, reverse=True):
        kind = each.partition(";")[0].strip().lower()
        if kind in _ACCEPTED:
            return _ACCEPTED[kind]
    kinds = ", ".join(dict.fromkeys(_FORMS.values()))
    raise RefusedError(406, "accept", f"Accept: {accepted}: the answers are {kinds}")


def _quality(accepted: str) -> float:
    found = re.search(r";\s*q=([0-9.]+)", accepted)
    try:
        return float(found[1]) if found else 1.0
    except ValueError:
        return 0.0


def _asked(request: web.Request) -> dict[str, Any]:
    """What the query asks of the words."""
    query = request.query
    unknown = set(query) - {"phrase", "alternatives", "phones"}
    if unknown:
        message = f"unknown in the query: {', '.join(sorted(unknown))}"
        raise RefusedError(400, "query", f"{message}; want phrase, alternatives, phones")
    try:
        alternatives = int(query.get("alternatives", 0))
    except ValueError:
        alternatives = -1
    if not 0 <= alternatives <= MOST_ALTERNATIVES:
        message = f"alternatives: want a number from 0 to {MOST_ALTERNATIVES}"
        raise RefusedError(400, "query", message)
    phones = query.get("phones", "0") not in ("0", "false", "")
    return {
        "grammar": query.getall("phrase", []) or None,
        "alternatives": alternatives,
        "phones": phones,
    }


async def opened(
    coming: Awaitable[asyncio.Server], scheme: str, host: str, port: int
) -> tuple[asyncio.Server, str]:
    """A socket that listens at a host and a port, and its address.

    Raises:
        OpscopeError: nothing can listen there.
    """
    try:
        listening = await coming
    except OSError as error:
        raise OpscopeError(f"cannot listen at {host}:{port}: {error.strerror}") from None
    address, bound = listening.sockets[0].getsockname()[:2]
    return listening, f"{scheme}://{f'[{address}]' if ':' in address else address}:{bound}"


@asynccontextmanager
async def _http(server: Server, host: str, port: int) -> AsyncIterator[str]:
    """HTTP and WebSocket."""
    idle, loop = server.options.idle, asyncio.get_running_loop()
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        keepalive_timeout=idle,
        lingering_time=_LINGERING,
        shutdown_timeout=_LINGERING,
    )
    await runner.setup()
    made = runner.server
    assert made is not None

    def connected() -> Any:
        protocol = made()
        server.silent[protocol] = loop.call_later(idle, end_silent, protocol)
        return protocol

    def end_silent(protocol: Any) -> None:
        """aiohttp waits for the first request of a connection as long as that is there."""
        del server.silent[protocol]
        if protocol.transport is not None:
            protocol.transport.close()

    try:
        coming = loop.create_server(connected, host, port)
        listening, address = await opened(coming, "http", host, port)
        yield address
        listening.close()
    finally:
        await runner.cleanup()


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy that lets nothing but its own style and script run."""
    text = (resources.files(str(__package__)) / "page.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("style", "script"):
        inner = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        hashes[tag] = f"'sha256-{digest}'"
    policy = (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']} blob:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _on_signals(end: Callable[[], None]) -> None:
    """Call this once at SIGTERM or Ctrl-C."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, end)
        except NotImplementedError:  # Windows
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(end))
