"""Tables of numbers and labels in text: a record is a line, its columns are words.

Source: CNTK's `UCIFastReader/UCIParser.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.files.atomic import PathLike
from ....framework.base.sequence import bincount, repeated
from ....framework.base.untrusted.opener import open_file, read_file
from ..text.arrays import parse_numbers

BLOCK = 8 << 20
"""About so many bytes are parsed at a time."""

_SPACE, _NEWLINE = 32, 10
_PADDED = 16  # bytes that words of one length may take for each byte of the text
_BLANKS = bytes(range(33))
_NUMBER = re.compile(rb"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Columns:
    """Columns `start` to `start + count` of a table.

    Attributes:
        name: for messages.
        words: whether they are taken as text, not as numbers.
    """

    name: str
    start: int
    count: int
    words: bool = False


def read_table(
    path: PathLike, columns: Sequence[Columns], *, delimiter: str = "", point: str = ""
) -> list[np.ndarray]:
    """The columns that are wanted, [records, count]: float64, or bytes for words.

    Args:
        path: of the file. Blank lines are passed over.
        columns: may overlap.
        delimiter: a character that separates words, besides white space.
        point: the decimal point, if it is another one.

    Raises:
        FormatError: a line has too few columns, or a word that is no number where one is needed:
            file, line and column.
    """
    data = np.frombuffer(bytearray(read_file(path)), np.uint8)
    for letter, ordinary in ((delimiter, _SPACE), (point, ord("."))):
        if letter:
            data[data == ord(letter)] = ordinary
    if len(data) and data[-1] != _NEWLINE:
        data = np.append(data, np.uint8(_NEWLINE))
    ends = np.flatnonzero(data == _NEWLINE) + 1
    parts: list[list[np.ndarray]] = []
    line = 0
    while line < len(ends):
        begin = int(ends[line - 1]) if line else 0
        last = max(int(np.searchsorted(ends, begin + BLOCK, side="right")), line + 1)
        block = data[begin : ends[last - 1]]
        parts.append(_block(path, block, ends[line:last] - begin, line + 1, columns))
        line = last
    if not parts or not len(parts[0][0]):
        raise FormatError(f"{path}: the file has no records")
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def line_of(path: PathLike, record: int) -> int:
    """The number of the line of a record, both counted from 1."""
    with open_file(path) as file:
        lines = (number for number, line in enumerate(file, 1) if line.strip(_BLANKS))
        return next(islice(lines, record - 1, None), 0)


def _block(
    path: PathLike,
    data: np.ndarray,
    ends: np.ndarray,
    first_line: int,
    columns: Sequence[Columns],
) -> list[np.ndarray]:
    inside = np.concatenate([[False], data > _SPACE])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    begin = edges[::2]
    end = edges[1::2]
    line = np.searchsorted(ends, begin, side="right")
    counts = bincount(line, minlength=len(ends))
    needed = max(part.start + part.count for part in columns)
    short = np.flatnonzero((counts > 0) & (counts < needed))
    if len(short):
        place = int(short[0])
        raise FormatError(
            f"{path}:{first_line + place}: {counts[place]} columns; at least {needed} were expected"
        )
    column = np.arange(len(begin)) - repeated(np.cumsum(counts) - counts, counts)
    blocks = []
    for part in columns:
        mine = (column >= part.start) & (column < part.start + part.count)
        if part.words:
            values = _words(data, begin[mine], end[mine])
        else:
            values = _numbers(data, begin[mine], end[mine])
            if values is None:
                starts = np.concatenate([[0], ends[:-1]])
                raise _no_number(path, data, begin[mine], end[mine], starts, first_line, part)
        blocks.append(values.reshape(-1, part.count))
    return blocks


def _numbers(data: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray | None:
    """The numbers from `begin` to `end`; None where one is no number."""
    steps = np.zeros(len(data) + 1, np.int8)
    steps[begin], steps[end] = 1, -1
    chosen = np.flatnonzero(np.cumsum(steps, dtype=np.int8))
    text = np.full(len(data) + 1, _SPACE, np.uint8)
    text[chosen] = data[chosen]
    return parse_numbers(text, begin)


def _words(data: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The words from `begin` to `end`, bytes or objects of bytes, [words]."""
    lengths = end - begin
    longest = int(lengths.max(initial=1))
    if longest * len(begin) > _PADDED * len(data):  # a few are much longer than the others
        text = data.tobytes()
        words = np.empty(len(begin), object)
        words[:] = [text[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        return words
    letters = np.zeros((len(begin), longest), np.uint8)
    for place in range(longest):
        there = lengths > place
        letters[there, place] = data[begin[there] + place]
    return letters.reshape(-1).view(f"S{longest}")


def _no_number(
    path: PathLike,
    data: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    starts: np.ndarray,
    first_line: int,
    part: Columns,
) -> FormatError:
    for first, last in zip(begin.tolist(), end.tolist(), strict=True):
        word = data[first:last].tobytes()
        if not _NUMBER.fullmatch(word):
            line = int(np.searchsorted(starts, first, side="right")) - 1
            place = f"{first_line + line}:{first - starts[line] + 1}"
            shown = word[:40].decode("utf-8", "backslashreplace")
            return FormatError(
                f"{path}:{place}: a number was expected for {part.name}, not {shown!r}"
            )
    return FormatError(f"{path}:{first_line}: a number was expected for {part.name}")
