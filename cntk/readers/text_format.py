"""CNTK's text format: lines `id |name values |name index:value ...`.

Lines of one sequence follow each other and begin with its number; without numbers each line is a
sequence. A dense sample that is too short ends in zeros. `|#` begins a comment, which ends at the
next `|`. Names that nobody asked for are passed over. Source: CNTK's
`CNTKTextFormatReader/TextParser.cpp` and `ReaderLib/Indexer.cpp`.

A chunk is parsed as a whole by `text_arrays`. If anything in it is unusual, `text_lines` goes
through it again line by line, which finds out what and where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.atomic import PathLike
from ...framework.errors import FormatError
from .data import ChunkInfo, Deserializer, Samples, Stream
from .text_arrays import parse_arrays
from .text_lines import Problems, parse_lines

CHUNK_SIZE = 32 << 20
"""Bytes of a chunk, unless a single sequence is longer."""

_NEWLINE = 10
_DIGITS = range(48, 58)
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextStream:
    """A stream and what the file calls it."""

    stream: Stream
    alias: str


@dataclass(eq=False)
class _Chunk:
    """Bytes of a chunk, its lines (from 1) and the lines of each of its sequences."""

    begin: int
    end: int
    first_line: int
    lines: np.ndarray


class TextFormat(Deserializer):
    """A file in CNTK's text format.

    Args:
        path: of the file.
        streams: those wanted, with the names that they have in the file.
        skip_ids: whether each line is a sequence even if lines have numbers.
        max_errors: how many samples and lines may be broken; they are left out.
        chunk_size: bytes of a chunk.

    Raises:
        FormatError: the file cannot be read, is empty, or does not begin with a number or a `|`.
    """

    def __init__(
        self,
        path: PathLike,
        streams: Sequence[TextStream],
        *,
        skip_ids: bool = False,
        max_errors: int = 0,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        self.path = str(path)
        self.streams = [text.stream for text in streams]
        self._texts = list(streams)
        self._problems = Problems(self.path, max_errors)
        try:
            self._data = np.memmap(self.path, np.uint8, "r")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "the file is empty"
            raise FormatError(f"{self.path}: {why}") from error
        self._index(skip_ids, chunk_size)

    def _index(self, skip_ids: bool, chunk_size: int) -> None:
        """Finds lines, sequences and chunks."""
        start = bytes(self._data[:4])
        if start[:2] in _UTF16_MARKS:
            raise FormatError(f"{self.path}:1:1: the file is in UTF-16; UTF-8 was expected")
        origin = 3 if start[:3] == _UTF8_MARK else 0
        ends = np.flatnonzero(self._data == _NEWLINE) + 1
        begins = np.concatenate([[origin], ends])
        if begins[-1] == len(self._data):
            begins = begins[:-1]
        else:  # the last line has no end
            ends = np.append(ends, len(self._data))
        if not len(begins):
            raise FormatError(f"{self.path}: the file is empty")
        first = int(self._data[origin])
        if skip_ids or first == ord("|"):
            changes = np.arange(len(begins))
            self._keys = [str(number) for number in range(len(begins))]
        else:
            if first not in _DIGITS:
                raise FormatError(
                    f"{self.path}:1:1: the number of a sequence or '|' was expected, but this is "
                    f"{chr(first)!r}"
                )
            numbers = _leading_numbers(self._data, begins)
            changes = np.flatnonzero(np.diff(numbers, prepend=-1))
            self._keys = [str(number) for number in numbers[changes].tolist()]
        bounds = np.append(changes, len(begins))
        self._chunks: list[_Chunk] = []
        self.chunks = []
        sequence = 0
        while sequence < len(changes):
            limit = begins[bounds[sequence]] + chunk_size
            stop = int(np.searchsorted(ends[bounds[1:] - 1], limit, side="right"))
            stop = max(stop, sequence + 1)
            low, high = bounds[sequence], bounds[stop]
            lines = np.diff(bounds[sequence : stop + 1])
            self._chunks.append(_Chunk(int(begins[low]), int(ends[high - 1]), int(low) + 1, lines))
            self.chunks.append(ChunkInfo(lines, self._keys[sequence:stop]))
            sequence = stop

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`.

        Raises:
            FormatError: more samples or lines are broken than are allowed, or a sequence has no
                sample of a stream.
        """
        chunk = self._chunks[number]
        data = np.array(self._data[chunk.begin : chunk.end])
        wanted = [(text.alias, text.stream) for text in self._texts]
        found = parse_arrays(data, wanted, chunk.lines, chunk.first_line, self._problems)
        if found is None:
            text = data.tobytes()
            found = parse_lines(text, wanted, chunk.lines, chunk.first_line, self._problems)
        for stream, samples in zip(self.streams, found, strict=True):
            empty = np.flatnonzero(samples.lengths == 0)
            if len(empty):
                place = int(empty[0])
                line = chunk.first_line + int(chunk.lines[:place].sum())
                raise FormatError(
                    f"{self.path}:{line}: sequence {self.chunks[number].keys[place]} has no "
                    f"sample of {stream.name}"
                )
        return found


def _leading_numbers(data: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The number at the beginning of each line; that of the line before where there is none."""
    numbers = np.zeros(len(begins), np.int64)
    found = np.zeros(len(begins), bool)
    active = np.arange(len(begins))
    for place in range(19):
        at = begins[active] + place
        active = active[at < len(data)]
        digit = data[begins[active] + place].astype(np.int64) - _DIGITS[0]
        is_digit = (digit >= 0) & (digit <= 9)
        active = active[is_digit]
        if not len(active):
            break
        numbers[active] = numbers[active] * 10 + digit[is_digit]
        found[active] = True
    last = np.maximum.accumulate(np.where(found, np.arange(len(begins)), 0))
    return numbers[last]
