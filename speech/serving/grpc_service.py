"""vosk-server's gRPC interface: a stream of samples comes, a stream of results goes.

Source: `grpc/stt_server.py` and `stt_service.proto` of vosk-server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, NoReturn

import grpc
from grpc import aio

from ...framework.base.errors import OpscopeError
from .server import RefusedError, Server
from .session import Reply
from .stt_messages import LINEAR16_PCM, METHOD, SERVICE, Request, Response
from .workers import EndedError, Task, WorkerError

_ENDING = 1.0  # seconds
_PING = 30.0  # seconds from one ping to the next; who answers none is gone
_ANSWER = 10.0  # seconds
_ROOM = 1 << 10  # bytes of a message besides its samples
_EOF: Any = vars(aio)["EOF"]  # which the package's stubs lack
_STATUS = {503: grpc.StatusCode.RESOURCE_EXHAUSTED}


@asynccontextmanager
async def grpc_service(server: Server, host: str, port: int) -> AsyncIterator[str]:
    """The service SttService; see `Protocol`.

    Raises:
        OpscopeError: nothing can listen there.
    """
    options = server.options
    made = aio.server(
        options=[
            ("grpc.so_reuseport", 0),  # else two servers would share a port
            ("grpc.max_receive_message_length", options.message_bytes + _ROOM),
            ("grpc.max_connection_idle_ms", int(options.idle * 1000)),
            ("grpc.keepalive_time_ms", int(_PING * 1000)),
            ("grpc.keepalive_timeout_ms", int(_ANSWER * 1000)),
        ]
    )
    method = grpc.stream_stream_rpc_method_handler(
        _Service(server).recognize,
        request_deserializer=Request.FromString,
        response_serializer=Response.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})
    made.add_generic_rpc_handlers((handlers,))
    named = f"[{host}]" if ":" in host else host
    try:
        bound = made.add_insecure_port(f"{named}:{port}")
    except RuntimeError:  # gRPC has written to stderr why
        bound = 0
    if not bound:
        raise OpscopeError(f"cannot listen at {host}:{port}: the address cannot be used")
    await made.start()
    try:
        yield f"grpc://{named}:{bound}"
    finally:
        await made.stop(_ENDING)


class _Service:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def recognize(self, requests: Any, context: Any) -> None:
        """StreamingRecognize: a config comes first, then samples."""
        server = self._server
        try:
            async with server.admitted("grpc"):
                await self._stream(context)
        except RefusedError as refused:
            server.metrics.add("refused_total", refused.reason)
            ends = refused.reason == "ending"
            code = grpc.StatusCode.UNAVAILABLE if ends else _STATUS[refused.status]
            await context.abort(code, str(refused))
        except WorkerError as error:
            server.metrics.add("errors_total", "grpc")
            ended = isinstance(error, EndedError)
            code = grpc.StatusCode.UNAVAILABLE if ended else grpc.StatusCode.INTERNAL
            await context.abort(code, str(error))

    async def _stream(self, context: Any) -> None:
        request = await self._next(context)
        if request is None or request is _EOF:
            return
        if request.WhichOneof("streaming_request") != "config":
            await self._wrong(context, "the first message of a stream must have a config")
        spec = request.config.specification
        if spec.audio_encoding not in (0, LINEAR16_PCM):
            known = f"want LINEAR16_PCM ({LINEAR16_PCM})"
            await self._wrong(context, f"audio_encoding {spec.audio_encoding}: {known}")
        partial = bool(spec.partial_results)
        with self._server.workers.task("stream", partial_results=partial) as session:
            reply = Reply(**await session.call("take", _config(spec)))
            if reply.is_error:
                await self._wrong(context, json.loads(reply.text or "")["error"])
            await self._answers(context, session, bool(spec.single_utterance))

    async def _answers(self, context: Any, session: Task, single: bool) -> None:
        """Answer samples until the stream is over, or the server."""
        server = self._server
        while True:
            request = await self._next(context)
            if request is None or request is _EOF:
                await self._send(context, Reply(**await session.call("end")))
                if request is None:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is ending")
                return
            if request.WhichOneof("streaming_request") == "config":
                await self._wrong(context, "a config may only be the first message of a stream")
            begin = monotonic()
            reply = Reply(**await session.call("take", request.audio_content))
            server.metrics.add("audio_seconds_total", "grpc", reply.seconds)
            if reply.is_error:
                await self._wrong(context, json.loads(reply.text or "")["error"])
            if reply.text is None:
                continue
            server.metrics.add("replies_total", "grpc")
            server.metrics.add("reply_seconds_total", "grpc", monotonic() - begin)
            is_over = await self._send(context, reply)
            if reply.is_last:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reply.reason)
            if single and is_over:
                return

    async def _next(self, context: Any) -> Any:
        """The next request; `EOF`: the client sends no more; None: the server ends."""
        idle = self._server.options.idle
        try:
            return await self._server.next_of(context.read())
        except TimeoutError:
            message = f"nothing came for {idle:g} seconds"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, message)

    async def _send(self, context: Any, reply: Reply) -> bool:
        """Send an answer; whether it ends an utterance."""
        response, is_over = _response(json.loads(reply.text or "{}"))
        idle = self._server.options.idle
        try:
            await asyncio.wait_for(context.write(response), idle)
        except TimeoutError:
            message = f"an answer was not taken for {idle:g} seconds"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, message)
        return is_over

    async def _wrong(self, context: Any, message: str) -> NoReturn:
        self._server.metrics.add("errors_total", "grpc")
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        raise AssertionError("abort raises")


def _config(spec: Any) -> str:
    """A specification as the config of a session."""
    config = {
        "max_alternatives": spec.max_alternatives,
        "words": spec.enable_word_time_offsets,
    }
    if spec.sample_rate_hertz:
        config["sample_rate"] = spec.sample_rate_hertz
    return json.dumps({"config": config})


def _response(result: dict[str, Any]) -> tuple[Any, bool]:
    """A result as a message, and whether it ends an utterance."""
    response = Response()
    chunk = response.chunks.add()
    if "partial" in result:
        chunk.alternatives.add(text=result["partial"])
        return response, False
    chunk.final = chunk.end_of_utterance = True
    for each in result.get("alternatives", [result]):
        words = each.get("result", [])
        alternative = chunk.alternatives.add(text=each["text"])
        for word in words:
            alternative.words.add(
                start_time=_duration(word["start"]),
                end_time=_duration(word["end"]),
                word=word["word"],
                confidence=word.get("conf", 1.0),
            )
        if "confidence" in each:
            alternative.confidence = each["confidence"]
        elif words:
            alternative.confidence = sum(w.confidence for w in alternative.words) / len(words)
        else:
            alternative.confidence = 1.0
    return response, True


def _duration(time: float) -> dict[str, int]:
    """The fields of a duration of so many seconds, whole thousandths as vosk-server has them."""
    seconds, thousandths = divmod(int(time * 1000), 1000)
    return {"seconds": seconds, "nanos": thousandths * 1_000_000}
