"""Limits of the server, and what streams have whose clients say nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..recognize.speaker_model import SpkModel

MOST_ALTERNATIVES = 100
UPLOADS = 16  # recordings of the largest size that may be open
_MIB = 1 << 20


@dataclass(frozen=True)
class SessionOptions:
    """What a stream has where its client says nothing else, and what it may have.

    Attributes:
        rate: of the samples, in Hz; vosk-server's. words: whether results list words.
        alternatives: how many of them results list. speakers: tells utterances' speakers.
        seconds: of sound, at most.
    """

    rate: float = 8000.0
    words: bool = True
    alternatives: int = 0
    speakers: SpkModel | None = None
    seconds: float = math.inf


@dataclass(frozen=True)
class ServerOptions:
    """Limits of a server.

    Attributes:
        session: of streams over WebSocket. streams: streams and recordings at a time.
        message_bytes: of a message of a stream. upload_bytes: of a recording.
        idle: seconds that a client may be silent, or not take its answer.
        grace: seconds for open streams when the server ends.
        batch: chunks of streams in one run of the network.
        origins: addresses of pages, besides the server's own, that may open streams.
    """

    session: SessionOptions = field(default_factory=SessionOptions)
    streams: int = 1000
    message_bytes: int = _MIB
    upload_bytes: int = 64 * _MIB
    idle: float = 300.0
    grace: float = 10.0
    batch: int = 32
    origins: frozenset[str] = frozenset()

    @property
    def uploads_bytes(self) -> int:
        """Of all recordings that are open."""
        return UPLOADS * self.upload_bytes
