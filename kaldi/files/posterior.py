"""Posteriors: for each frame, pairs of an id and a weight. Format: Kaldi's `hmm/posterior.cc`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .kaldi_io import Reader, Writer
from .sparse import parse_pairs, read_pairs, write_pairs

_FRAME = re.compile(rb"\s*(\[)([^\[\]]*)\]")
_REST = re.compile(rb"\s*\Z")


@dataclass(frozen=True, eq=False)
class Posterior:
    """Ids and weights of all frames, one frame after the other.

    Attributes:
        starts: where each frame begins, int64, [frames + 1].
        ids: int32, [pairs].
        weights: float32, [pairs].
    """

    starts: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and weights of one frame."""
        if not -len(self) <= frame < len(self):
            raise IndexError(f"frame {frame} of {len(self)}")
        start = self.starts[:-1][frame]
        stop = self.starts[1:][frame]
        return self.ids[start:stop], self.weights[start:stop]

    @classmethod
    def from_frames(cls, frames: Iterable[Sequence[tuple[int, float]]]) -> Posterior:
        """From a list of frames that are lists of pairs (id, weight)."""
        frames = list(frames)
        pairs = [pair for frame in frames for pair in frame]
        starts = np.cumsum([0] + [len(frame) for frame in frames], dtype=np.int64)
        ids = np.array([pair[0] for pair in pairs], np.int32)
        return cls(starts, ids, np.array([pair[1] for pair in pairs], np.float32))

    @classmethod
    def read(cls, reader: Reader) -> Posterior:
        """Read one; in text it takes up the whole line.

        Raises:
            FormatError: the bytes are something else, or are cut off.
        """
        parts = _read_binary(reader) if reader.binary else _read_text(reader)
        starts = np.cumsum([0] + [len(ids) for ids, _ in parts], dtype=np.int64)
        empty = (np.zeros(0, np.int32), np.zeros(0, np.float32))
        ids, weights = (np.concatenate(part) for part in zip(empty, *parts, strict=True))
        return cls(starts, ids, weights)

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        if writer.binary:
            writer.write_int32(len(self))
        for ids, weights in (self[frame] for frame in range(len(self))):
            if writer.binary:
                writer.write_int32(len(ids))
                write_pairs(writer, ids, weights)
            else:
                writer.write_raw("[ ")
                write_pairs(writer, ids, weights)
                writer.write_raw("] ")
        if not writer.binary:
            writer.write_raw("\n")


def _read_binary(reader: Reader) -> list[tuple[np.ndarray, np.ndarray]]:
    start = reader.offset
    frames = reader.read_int32()
    if frames < 0 or frames * 5 > reader.remaining():
        raise reader.error(f"a posterior of {frames} frames cannot stand here", start)
    return [read_pairs(reader, reader.read_int32()) for _ in range(frames)]


def _read_text(reader: Reader) -> list[tuple[np.ndarray, np.ndarray]]:
    start = reader.offset
    line = reader.read_line().encode("utf-8", "surrogateescape")
    parts = []
    end = 0
    while not _REST.match(line, end):
        match = _FRAME.match(line, end)
        if match is None:
            raise reader.error("a frame, '[ id weight ... ]', was expected here", start + end)
        parts.append(parse_pairs(reader, match.group(2), start + match.start(2)))
        end = match.end()
    return parts
