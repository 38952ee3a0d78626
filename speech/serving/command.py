"""The command `opscope serve`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial

import click

from ...framework.base.cpu.cores import usable_cores
from ...framework.base.errors import OpscopeError
from ..recognize.speaker_model import SpkModel
from ..recognize.transcript import opened_model
from .options import MOST_ALTERNATIVES, UPLOADS, ServerOptions, SessionOptions
from .worker import Worker
from .workers import Workers, process_count

_EXTRA = {"aiohttp": "aiohttp", "grpc": "grpcio"}
"""Modules of the extra `serve`, and the packages that bring them."""


@click.command()
@click.argument("model", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=2700,
    show_default=True,
    help="Port to listen at; 0: any that is free.",
)
@click.option(
    "--wyoming-port",
    type=click.IntRange(0, 65535),
    help="Also serve Wyoming's protocol, for home assistants, at this port (they use 10300).",
)
@click.option(
    "--grpc",
    "grpc_port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Also serve vosk-server's gRPC interface at this port (it uses 5001).",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=SessionOptions.rate,
    show_default=True,
    help="Of samples of streams whose clients name none, in Hz.",
)
@click.option(
    "--words/--no-words",
    default=SessionOptions.words,
    help="Whether results of streams list words, where clients do not say it.  [default: words]",
)
@click.option(
    "--alternatives",
    type=click.IntRange(0, MOST_ALTERNATIVES),
    default=SessionOptions.alternatives,
    show_default=True,
    help="How many of them results of streams list, where clients do not say it.",
)
@click.option("--speakers", type=click.Path(), metavar="FOLDER", help="A speaker model of Vosk's.")
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=ServerOptions.streams,
    show_default=True,
    help="Streams and recordings at a time; further ones are refused.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=14400.0,
    show_default=True,
    help="Of sound in a stream or recording.",
)
@click.option(
    "--message-bytes",
    type=click.IntRange(1),
    default=ServerOptions.message_bytes,
    show_default=True,
    help="Of a message of a stream.",
)
@click.option(
    "--upload-bytes",
    type=click.IntRange(1),
    default=ServerOptions.upload_bytes,
    show_default=True,
    help=f"Of a recording; of all that are open, {UPLOADS} times as many.",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=0.1),
    default=ServerOptions.idle,
    show_default=True,
    help="Seconds that a client may be silent, or leave its answer.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=ServerOptions.grace,
    show_default=True,
    help="Seconds that open streams and recordings have when the server ends.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 256),
    default=ServerOptions.batch,
    show_default=True,
    help="Streams whose chunks one run of the network computes, at most.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    help="Processes that compute; 1: threads of the server itself.  [default: one for each core]",
)
@click.option(
    "--origin",
    multiple=True,
    help="Pages of this address may also open streams, e.g. https://example.org.",
)
def serve(
    model: str,
    host: str,
    port: int,
    wyoming_port: int | None,
    grpc_port: int | None,
    rate: float,
    words: bool,
    alternatives: int,
    speakers: str | None,
    streams: int,
    seconds: float,
    message_bytes: int,
    upload_bytes: int,
    idle: float,
    grace: float,
    batch: int,
    processes: int | None,
    origin: tuple[str, ...],
) -> None:
    """Recognize speech for clients over WebSocket and HTTP until SIGTERM or Ctrl-C.

    MODEL is the folder of a Vosk model, or an ONNX file of a CTC model, or a folder with one.
    Streams speak the protocol of vosk-server. POST a recording to /transcribe for JSON, subtitles
    or text; / is a page with a microphone, /metrics has counts.
    """
    protocols = []
    try:
        from .server import Server
        from .wyoming import wyoming

        if wyoming_port is not None:
            protocols.append(partial(wyoming, port=wyoming_port))
        if grpc_port is not None:
            # A process that takes another one's place closes what gRPC would go on with, and abort.
            os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
            from .grpc_service import grpc_service

            protocols.append(partial(grpc_service, port=grpc_port))
    except ImportError as error:
        if error.name not in _EXTRA:
            raise
        wanted = _EXTRA[error.name]
        raise OpscopeError(f"serve wants {wanted}: pip install opscope[serve]") from None
    known = None if speakers is None else SpkModel(speakers)
    options = ServerOptions(
        SessionOptions(rate, words, alternatives, known, seconds),
        streams=streams,
        message_bytes=message_bytes,
        upload_bytes=upload_bytes,
        idle=idle,
        grace=grace,
        batch=batch,
        origins=frozenset(origin),
    )
    cores = usable_cores()
    processes = process_count(processes, cores)
    opened = opened_model(model)
    worker = Worker(opened, options, cores if processes == 1 else 1)
    server = Server(Workers(worker, processes), options, opened.path.name)

    def listening(addresses: Sequence[str]) -> None:
        click.echo(f"listening at {', '.join(addresses)}")

    asyncio.run(server.serve(host, port, listening, protocols))
