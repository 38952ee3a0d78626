"""Deserializers of other packages: what they give is checked, their faults name them."""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import RunError, ShapeError
from ...framework.base.options.plugins import call_plugin
from .base.data import ChunkInfo, Deserializer, Samples
from .base.minibatches import check_samples, streams_of


class ForeignDeserializer(Deserializer):
    """A deserializer of another package.

    Args:
        owner: who it belongs to, for errors.
        source: the deserializer.

    Raises:
        RunError: its streams or chunks are no lists of such.
    """

    def __init__(self, owner: str, source: Deserializer) -> None:
        self._owner = owner
        self._source = source
        self.streams = list(streams_of(owner, source).values())
        self.chunks = list(call_plugin(owner, iter, source.chunks))
        for number, chunk in enumerate(self.chunks):
            lengths = getattr(chunk, "lengths", None)
            if not isinstance(chunk, ChunkInfo) or not isinstance(lengths, np.ndarray):
                raise RunError(f"{owner}: chunk {number} is no ChunkInfo with an array of lengths")
            if chunk.keys is not None and len(chunk.keys) != len(lengths):
                raise ShapeError(
                    f"{owner}: chunk {number} has {len(chunk.keys)} keys for {len(lengths)}"
                    " sequences"
                )

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        parts = call_plugin(self._owner, self._source.read_chunk, number)
        where = f"{self._owner}: chunk {number}"
        if not isinstance(parts, list) or len(parts) != len(self.streams):
            raise RunError(f"{where} is no list of {len(self.streams)} Samples, one a stream")
        count = len(self.chunks[number].lengths)
        for samples, stream in zip(parts, self.streams, strict=True):
            check_samples(f"{where}: the stream {stream.name!r}", samples, stream)
            if len(samples.lengths) != count:
                raise ShapeError(
                    f"{where}: the stream {stream.name!r} has {len(samples.lengths)} sequences,"
                    f" the chunk {count}"
                )
        return parts

    def start_epoch(self, epoch: int) -> None:
        """See `Deserializer.start_epoch`."""
        call_plugin(self._owner, self._source.start_epoch, epoch)

    def close(self) -> None:
        """See `Deserializer.close`."""
        call_plugin(self._owner, self._source.close)
