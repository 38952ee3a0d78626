"""CNTK's text format: lines `id |name values |name index:value ...`.

Lines of one sequence follow each other and begin with its number; without numbers each line is a
sequence. A dense sample that is too short ends in zeros. `|#` begins a comment, which ends at the
next `|`. Names that the config does not list are skipped. Source: CNTK's
`CNTKTextFormatReader/TextParser.cpp` and `ReaderLib/Indexer.cpp`.

`arrays` parses a chunk as a whole. If anything in it is unusual, `lines` parses it again line by
line, and finds the places of errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.files.atomic import PathLike
from ....framework.base.untrusted.values import INT64
from ..base.data import ChunkInfo, Deserializer, Samples, Stream, join
from ..base.steady_file import SteadyFile
from .arrays import parse_arrays
from .lines import Problems, parse_lines

CHUNK_SIZE = 32 << 20
"""Bytes of a chunk, unless a single sequence is longer."""

_BLOCK = 64 << 20  # bytes in which lines are looked for at a time
_PIECE = 1 << 18  # bytes that are parsed at a time
_LONGEST_NUMBER = 20  # digits that are looked at; a number with so many is too large
_TOO_LARGE = INT64[1]

_NEWLINE = 10
_DIGITS = range(48, 58)
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextStream:
    """A stream and its name in the file."""

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
        self._file = SteadyFile(path)
        try:
            self._index(skip_ids, chunk_size)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `Deserializer.close`."""
        self._file.close()

    def _index(self, skip_ids: bool, chunk_size: int) -> None:
        """Finds lines, sequences and chunks."""
        start = self._file.read(0, min(4, self._file.size)).tobytes()
        if start[:2] in _UTF16_MARKS:
            raise FormatError(f"{self.path}:1:1: the file is in UTF-16; UTF-8 was expected")
        origin = 3 if start[:3] == _UTF8_MARK else 0
        if origin == self._file.size:
            raise FormatError(f"{self.path}: the file is empty")
        first = start[origin]
        numbered = not skip_ids and first != ord("|")
        if numbered and first not in _DIGITS:
            raise FormatError(
                f"{self.path}:1:1: the number of a sequence or '|' was expected, but this is "
                f"{chr(first)!r}"
            )
        begins, numbers = self._lines(origin, numbered)
        ends = np.append(begins[1:], self._file.size)
        changes = np.arange(len(begins))
        if numbered:
            changes = np.flatnonzero(np.diff(numbers, prepend=-1))
        keys = _Numbers(numbers[changes] if numbered else changes)
        bounds = np.append(changes, len(begins))
        self._chunks: list[_Chunk] = []
        self.chunks = []
        last_byte = ends[bounds[1:] - 1]
        sequence = 0
        while sequence < len(changes):
            limit = begins[bounds[sequence]] + chunk_size
            stop = int(np.searchsorted(last_byte, limit, side="right"))
            stop = max(stop, sequence + 1)
            low, high = bounds[sequence], bounds[stop]
            lines = np.diff(bounds[sequence : stop + 1])
            self._chunks.append(_Chunk(int(begins[low]), int(ends[high - 1]), int(low) + 1, lines))
            self.chunks.append(ChunkInfo(lines, keys[sequence:stop]))
            sequence = stop

    def _lines(self, origin: int, numbered: bool) -> tuple[np.ndarray, np.ndarray]:
        """Where lines begin, and the number that each begins with, or else the line before;
        int64, [lines]."""
        size = self._file.size
        begins = [np.array([origin])]
        numbers = []
        for first in range(0, size, _BLOCK):
            last = min(first + _BLOCK, size)
            data = self._file.read(first, min(last + _LONGEST_NUMBER, size))
            begins.append(np.flatnonzero(data[: last - first] == _NEWLINE) + (first + 1))
            if numbered:
                here = begins[-1] if first else np.concatenate(begins)
                block = _leading_numbers(data, here - first)
                self._check_numbers(block, sum(map(len, numbers)))
                numbers.append(block)
        starts = np.concatenate(begins)
        whole = starts < size  # a newline at the end begins no line
        if not numbered:
            return starts[whole], np.zeros(0, np.int64)
        sequence = np.concatenate(numbers)[whole]
        place = np.maximum.accumulate(np.where(sequence >= 0, np.arange(len(sequence)), 0))
        return starts[whole], sequence[place]

    def _check_numbers(self, numbers: np.ndarray, lines: int) -> None:
        """That none of the numbers of some lines, after `lines` others, is too large to be
        distinguished from another one."""
        large = np.flatnonzero(numbers == _TOO_LARGE)
        if len(large):
            raise FormatError(
                f"{self.path}:{lines + int(large[0]) + 1}:1: the number of the sequence is "
                f"too large ({_LONGEST_NUMBER} digits, or {_TOO_LARGE} and more)"
            )

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`.

        Raises:
            FormatError: more samples or lines are broken than are allowed, or a sequence has no
                sample of a stream.
        """
        chunk = self._chunks[number]
        data = self._file.read(chunk.begin, chunk.end)
        wanted = [(text.alias, text.stream) for text in self._texts]
        parts = []
        self._problems.filled = 0
        for piece, lines, first in _pieces(data, chunk):
            part = parse_arrays(piece, wanted, lines, first, self._problems)
            if part is None:
                part = parse_lines(piece.tobytes(), wanted, lines, first, self._problems)
            parts.append(part)
        joined = [join(streams) for streams in zip(*parts, strict=True)]
        for stream, samples in zip(self.streams, joined, strict=True):
            empty = np.flatnonzero(samples.lengths == 0)
            if len(empty):
                place = int(empty[0])
                line = chunk.first_line + int(chunk.lines[:place].sum())
                keys = self.chunks[number].keys
                assert keys is not None
                raise FormatError(
                    f"{self.path}:{line}: sequence {keys[place]} has no sample of {stream.name}"
                )
        return joined


def _pieces(data: np.ndarray, chunk: _Chunk) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """The bytes of a chunk in pieces that fit into the processor's cache: whole sequences, with
    their lines and the number of the first."""
    lines = chunk.lines
    line = chunk.first_line
    first = 0
    begin = 0
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if len(ends) < lines.sum():  # the last line has no end
        ends = np.append(ends, len(data))
    ends = ends[np.cumsum(lines) - 1]
    while first < len(lines):
        stop = max(int(np.searchsorted(ends, begin + _PIECE, side="right")), first + 1)
        end = int(ends[stop - 1])
        yield data[begin:end], lines[first:stop], line
        line += int(lines[first:stop].sum())
        first, begin = stop, end


def _leading_numbers(data: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The number at the beginning of each line; -1 where there is none, and `_TOO_LARGE` where it
    is so."""
    numbers = np.zeros(len(begins), np.int64)
    has_number = np.zeros(len(begins), bool)
    active = np.arange(len(begins))
    for place in range(_LONGEST_NUMBER):
        at = begins[active] + place
        active = active[at < len(data)]
        digit = data[begins[active] + place].astype(np.int64) - _DIGITS[0]
        is_digit = (digit >= 0) & (digit <= 9)
        active = active[is_digit]
        if not len(active):
            break
        digit = digit[is_digit]
        large = numbers[active] > (_TOO_LARGE - 1 - digit) // 10
        large |= place == _LONGEST_NUMBER - 1
        numbers[active[large]] = _TOO_LARGE
        active, digit = active[~large], digit[~large]
        numbers[active] = numbers[active] * 10 + digit
        has_number[active] = True
    return np.where(has_number, numbers, -1)


class _Numbers(Sequence[str]):
    """Numbers as names of sequences; texts are made on demand."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> _Numbers: ...

    def __getitem__(self, place: int | slice) -> str | _Numbers:
        chosen = self._numbers[place]
        return _Numbers(chosen) if isinstance(place, slice) else str(chosen)

    def __iter__(self) -> Iterator[str]:
        return map(str, self._numbers.tolist())
