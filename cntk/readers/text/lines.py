"""CNTK's text format line by line: the way for chunks in which something is unusual.

Source: CNTK's `CNTKTextFormatReader/TextParser.cpp`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.limits import check_limit
from ....framework.base.untrusted.values import shown
from ..base.data import Samples, Stream

_log = logging.getLogger(__name__)

_ID = re.compile(rb"\d*")
_NAME = re.compile(rb"[^\x00- |]*")
_SPACE = re.compile(rb"[ \t]*")
_SKIP = re.compile(rb"[^|]*")
_COLUMN_SPACE = re.compile(rb"[\x00- ]*")
_NUMBER = re.compile(rb"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_INDEX = re.compile(rb"\d+")
_LARGEST_INDEX = 1 << 62
_SHOWN = 5  # warnings of a kind that are shown
_SHOWN_NAMES = 20  # names of streams that are shown


class Problems:
    """Counts what is wrong in a file; too much of it is an error.

    Args:
        path: of the file.
        allowed: how many errors may be passed over.
    """

    def __init__(self, path: str, allowed: int) -> None:
        self.path = path
        self.allowed = allowed
        self.errors = self.filled = 0
        self._others: set[bytes] = set()
        self._warned: dict[str, int] = {}

    def error(self, line: int, column: int, message: str) -> None:
        """One thing is wrong.

        Raises:
            FormatError: it is one too many.
        """
        self.errors += 1
        place = f"{self.path}:{line}:{column}"
        if self.errors > self.allowed:
            text = f"{place}: {message}"
            if self.allowed:
                text += f" (error {self.errors}; maxErrors is {self.allowed})"
            raise FormatError(text)
        _log.warning("%s: %s; passed over (%d of %d)", place, message, self.errors, self.allowed)

    def pass_over(self, name: bytes, known: Sequence[str], line: int, column: int) -> bool:
        """A stream that the config does not list; whether further names are of interest."""
        self._others.add(name)
        if len(self._others) > _SHOWN_NAMES:
            return False
        text = name.decode("utf-8", "backslashreplace")
        listed = ", ".join(known)
        more = "; further names are not shown" if len(self._others) == _SHOWN_NAMES else ""
        message = f"the stream {shown(text)} is none of those configured ({listed}); passed over"
        self.warn(line, column, text, message + more)
        return True

    def fill(self, size: int, line: int, name: str) -> None:
        """Zeros for samples that are too short take so many bytes.

        Raises:
            FormatError: the chunk's elements are beyond the limit `fill`.
        """
        self.filled += size
        check_limit("fill", self.filled, f"{self.path}:{line}: zeros for short samples of {name}")

    def warn(self, line: int, column: int, kind: str, message: str) -> None:
        """Something is odd but allowed."""
        count = self._warned[kind] = self._warned.get(kind, 0) + 1
        if count <= _SHOWN:
            more = "; further ones are not shown" if count == _SHOWN else ""
            _log.warning("%s:%d:%d: %s%s", self.path, line, column, message, more)


class _Bad(Exception):
    """A sample that cannot be taken: what is wrong, and where in the line."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def parse_lines(
    text: bytes,
    streams: Sequence[tuple[str, Stream]],
    lines: np.ndarray,
    first_line: int,
    problems: Problems,
) -> list[Samples]:
    """All samples of a chunk.

    Args:
        text: of the chunk.
        streams: those wanted, each with its name in the file.
        lines: how many lines each sequence has, [sequences].
        first_line: the number of the first line, for messages.
        problems: counts what is wrong.

    Raises:
        FormatError: too much is wrong.
    """
    numbers = {alias.encode(): i for i, (alias, _) in enumerate(streams)}
    longest = max(map(len, numbers))
    rows = text.split(b"\n")
    if not rows[-1]:
        rows.pop()
    elif len(rows) == lines.sum():
        problems.warn(first_line + len(rows) - 1, len(rows[-1]) + 1, "end", "the line has no end")
    parts: list[list[tuple[list[float], list[int]]]] = [[] for _ in streams]
    counts = np.zeros((len(streams), len(lines)), np.int64)
    at = 0
    for sequence, length in enumerate(lines.tolist()):
        for row in rows[at : at + length]:
            line = _Line(row, first_line + at, problems, numbers, longest)
            for number, values, indices in line.samples([s for _, s in streams]):
                parts[number].append((values, indices))
                counts[number, sequence] += 1
            at += 1
        have = counts[:, sequence]
        if have.max() != length:
            name = streams[int(have.argmax())][0]
            problems.error(
                first_line + at - length,
                1,
                f"the sequence has {length} lines, but {have.max()} samples of {name!r}",
            )
    for (_, stream), part in zip(streams, parts, strict=True):
        if not stream.sparse:
            missing = len(part) * stream.dim - sum(len(values) for values, _ in part)
            problems.fill(missing * stream.dtype.itemsize, first_line, stream.name)
    return [
        _joined(stream, part, count)
        for (_, stream), part, count in zip(streams, parts, counts, strict=True)
    ]


def _joined(
    stream: Stream, parts: list[tuple[list[float], list[int]]], counts: np.ndarray
) -> Samples:
    begin = np.concatenate([[0], np.cumsum(counts)])
    if not stream.sparse:
        rows = np.zeros((len(parts), stream.dim), stream.dtype)
        for row, (given, _) in zip(rows, parts, strict=True):
            row[: len(given)] = given
        return Samples(begin, rows)
    values = np.array([v for part, _ in parts for v in part], np.float64).astype(stream.dtype)
    indices = np.array([i for _, part in parts for i in part], np.int64)
    first = np.cumsum([0] + [len(part) for part, _ in parts])
    return Samples(begin, values, indices, first)


class _Line:
    """One line and the place in it."""

    def __init__(
        self, row: bytes, line: int, problems: Problems, numbers: dict[bytes, int], longest: int
    ) -> None:
        self.row = row
        self.line = line
        self.problems = problems
        self.numbers = numbers
        self.longest = longest
        self.at = self._past(_ID, 0)

    def _past(self, pattern: re.Pattern[bytes], at: int) -> int:
        match = pattern.match(self.row, at)
        return match.end() if match else at

    def samples(self, streams: Sequence[Stream]) -> list[tuple[int, list[float], list[int]]]:
        """The samples: number of the stream, values, indices (of a sparse one)."""
        samples = []
        good = 0
        while (at := self._past(_COLUMN_SPACE, self.at)) < len(self.row):
            self.at = at
            try:
                number = self._name()
                if number is not None:
                    sparse = streams[number].sparse
                    read = self._sparse_values if sparse else self._dense_values
                    samples.append((number, *read(streams[number])))
                    good += 1
                    continue
            except _Bad as bad:
                self.problems.error(self.line, bad.at + 1, str(bad))
            self.at = self._past(_SKIP, self.at)
        if not good:
            self.problems.error(self.line, 1, "the line has no sample")
        return samples

    def _name(self) -> int | None:
        """The number of the stream that is named here; None where the sample is passed over."""
        start = self.at
        if self.row[start : start + 1] != b"|":
            here = self.row[start : start + 1].decode("latin-1")
            raise _Bad(f"'|' and the name of a stream were expected, but this is {here!r}", start)
        self.at = start + 1
        if self.row[self.at : self.at + 1] == b"#":
            self.at += 1
            return None
        self.at = self._past(_NAME, self.at)
        name = self.row[start + 1 : self.at]
        if name in self.numbers:
            return self.numbers[name]
        known = sorted(n.decode() for n in self.numbers)
        if not name:
            raise _Bad("the name of a stream was expected after '|'", start + 1)
        if len(name) > self.longest:
            text = shown(name.decode("utf-8", "backslashreplace"))
            listed = ", ".join(known)
            raise _Bad(f"the stream {text} is none of those configured: {listed}", start + 1)
        self.problems.pass_over(name, known, self.line, start + 2)
        return None

    def _at_end(self) -> bool:
        """Passes over space; whether the sample ends here."""
        self.at = self._past(_SPACE, self.at)
        return self.at >= len(self.row) or self.row[self.at] < 32 or self.row[self.at] == ord("|")

    def _number(self) -> float:
        match = _NUMBER.match(self.row, self.at)
        if match is None:
            here = self.row[self.at : self.at + 1].decode("latin-1")
            raise _Bad(f"a number was expected, but this is {here!r}", self.at)
        self.at = match.end()
        return float(match.group())

    def _dense_values(self, stream: Stream) -> tuple[list[float], list[int]]:
        start = self.at
        values = []
        while not self._at_end():
            values.append(self._number())
        if len(values) > stream.dim:
            raise _Bad(
                f"a sample of {stream.name} has {len(values)} values; {stream.dim} were expected",
                start,
            )
        if len(values) < stream.dim:
            self.problems.warn(
                *(self.line, start + 1, f"short {stream.name}"),
                f"a sample of {stream.name} has {len(values)} of {stream.dim} values; the rest is "
                "taken for zeros",
            )
        return values, []

    def _sparse_values(self, stream: Stream) -> tuple[list[float], list[int]]:
        values, indices = [], []
        while not self._at_end():
            start = self.at
            match = _INDEX.match(self.row, start)
            if match is None:
                here = self.row[start : start + 1].decode("latin-1")
                raise _Bad(f"an index was expected, but this is {here!r}", start)
            index = int(match.group()[:20])
            if index >= min(stream.dim, _LARGEST_INDEX):
                raise _Bad(
                    f"the index {index} of {stream.name} is not below {stream.dim}, its dimension",
                    start,
                )
            self.at = match.end()
            if self.row[self.at : self.at + 1] != b":":
                raise _Bad("':' was expected after an index", self.at)
            self.at += 1
            values.append(self._number())
            indices.append(index)
        return values, indices
