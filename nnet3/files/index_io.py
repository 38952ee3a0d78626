"""Vectors of Indexes (n, t, x) in Kaldi's files, as int32 arrays [count, 3].

Binary: one byte for an Index that differs from the one before (first: from zero) in t alone, and by
less than 125; otherwise the byte 127 and three sized integers. Format: Kaldi's
`nnet3/nnet-common.cc`.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from ...kaldi.files import matrix_io
from ...kaldi.files.kaldi_io import Reader, Writer

_NEAR = 125  # a step of t from here on takes the long form
_ESCAPE = 127
_LONG = np.dtype(
    [("escape", "u1"), ("a", "u1"), ("n", "<i4"), ("b", "u1"), ("t", "<i4"), ("c", "u1")]
    + [("x", "<i4")]
)
_TEXT = re.compile(rb"(?:\s*<I1>(?:\s+[+-]?\d+){3}(?=\s))*+")
_FEW = 1024
_SHORTEST_TEXT = len("<I1> 0 0 0")


def read_indexes(reader: Reader) -> np.ndarray:
    """A vector of Indexes, int32, [count, 3], columns n, t, x.

    Raises:
        FormatError: the bytes are something else, are cut off, or t leaves 32 bits.
    """
    start = reader.offset
    reader.expect_token("<I1V>")
    count = reader.read_int32()
    least = 1 if reader.binary else _SHORTEST_TEXT
    if count < 0 or count * least > reader.remaining():
        raise reader.error(f"a vector of {count} Indexes cannot stand here", start)
    return _read_binary(reader, count) if reader.binary else _read_text(reader, count)


def write_indexes(writer: Writer, indexes: np.ndarray) -> None:
    """A vector of Indexes, [count, 3], columns n, t, x."""
    indexes = np.asarray(indexes, np.int32).reshape(-1, 3)
    writer.write_token("<I1V>")
    writer.write_int32(len(indexes))
    if writer.binary:
        few = len(indexes) <= _FEW
        writer.write_raw(_few_to_binary(indexes.tobytes()) if few else _to_binary(indexes))
    else:
        text = b"<I1> %d %d %d " * len(indexes) % tuple(indexes.ravel().tolist())
        writer.write_raw(text)


def _read_text(reader: Reader, count: int) -> np.ndarray:
    match = _TEXT.match(reader.data, reader.offset)
    assert match is not None
    words = match.group().split()
    if len(words) != 4 * count:
        raise reader.error(f"{count} Indexes were expected, but there are {len(words) // 4}")
    del words[::4]
    text = b" ".join(words)
    indexes = matrix_io.parse_integers(reader, text, reader.offset, 4).reshape(-1, 3)
    reader.offset = match.end()
    return indexes


def _read_binary(reader: Reader, count: int) -> np.ndarray:
    """Runs of short forms and runs of long forms, each at once."""
    if count <= _FEW:
        run = bytes(reader.data[reader.offset : reader.offset + count])
        known = _few_of_steps(run) if len(run) == count else None
        if known is not None:
            reader.offset += count
            return known.copy()
    indexes = np.zeros((count, 3), np.int64)
    done = 0
    while done < count:
        if reader.offset >= reader.size:
            raise reader.error(f"{count} Indexes were expected, but the file ends after {done}")
        if reader.data[reader.offset] == _ESCAPE:
            done += _read_long(reader, indexes[done:])
        else:
            before = indexes[done - 1] if done else np.zeros(3, np.int64)
            done += _read_short(reader, indexes[done:], before)
    if np.any(np.abs(indexes[:, 1] + 0.5) > 1 << 31):
        raise reader.error("the t of an Index leaves 32 bits")
    return indexes.astype(np.int32)


@functools.lru_cache(maxsize=256)
def _few_of_steps(steps: bytes) -> np.ndarray | None:
    """The Indexes of so many short forms: most examples of a table have the same few. None where
    other bytes are among them."""
    found = np.frombuffer(steps, "i1")
    if np.any((found >= _NEAR) | (found <= -_NEAR)):
        return None
    indexes = np.zeros((len(found), 3), np.int32)
    np.cumsum(found, out=indexes[:, 1])
    return indexes


def _read_long(reader: Reader, indexes: np.ndarray) -> int:
    """Read the long forms that stand here, into the first of `indexes`; how many they are."""
    most = min(len(indexes), reader.remaining() // _LONG.itemsize)
    count = 0
    window = 8
    while count < most:
        start = reader.offset + count * _LONG.itemsize
        part = np.frombuffer(reader.data, _LONG, min(window, most - count), start)
        others = np.flatnonzero(part["escape"] != _ESCAPE)
        length = int(others[0]) if others.size else len(part)
        part = part[:length]
        if np.any((part["a"] != 4) | (part["b"] != 4) | (part["c"] != 4)):
            raise reader.error("an Index of three integers of 4 bytes was expected here", start)
        for column, name in enumerate("ntx"):
            indexes[count : count + length, column] = part[name]
        count += length
        if others.size:
            break
        window *= 2
    if not count:
        raise reader.error("the file ends within an Index")
    reader.offset += count * _LONG.itemsize
    return count


def _read_short(reader: Reader, indexes: np.ndarray, before: np.ndarray) -> int:
    """Read the short forms that stand here, into the first of `indexes`; how many they are."""
    start = reader.offset
    stop = min(start + len(indexes), reader.size)
    escape = reader.data.find(bytes([_ESCAPE]), start, stop)
    stop = stop if escape < 0 else escape
    steps = np.frombuffer(reader.data, "i1", stop - start, start)
    wrong = np.flatnonzero((steps >= _NEAR) | (steps <= -_NEAR))
    if wrong.size:
        byte = int(steps[wrong[0]]) & 255
        raise reader.error(f"the byte {byte} begins no Index", start + int(wrong[0]))
    indexes[: len(steps)] = before
    indexes[: len(steps), 1] += np.cumsum(steps, dtype=np.int64)
    reader.offset = stop
    return len(steps)


@functools.lru_cache(maxsize=256)
def _few_to_binary(indexes: bytes) -> bytes:
    """`_to_binary` for bytes of an array: most examples of a table have the same few Indexes."""
    return _to_binary(np.frombuffer(indexes, np.int32).reshape(-1, 3))


def _to_binary(indexes: np.ndarray) -> bytes:
    steps = np.diff(indexes.astype(np.int64), axis=0, prepend=0)
    short = (steps[:, 0] == 0) & (steps[:, 2] == 0) & (np.abs(steps[:, 1]) < _NEAR)
    lengths = np.where(short, 1, _LONG.itemsize)
    offsets = np.cumsum(lengths) - lengths
    data = np.empty(int(lengths.sum()), np.uint8)
    data[offsets[short]] = steps[short, 1].astype(np.int8).view(np.uint8)
    long = np.empty(int(np.count_nonzero(~short)), _LONG)
    long["escape"] = _ESCAPE
    long["a"] = long["b"] = long["c"] = 4
    for column, name in enumerate("ntx"):
        long[name] = indexes[~short, column]
    places = offsets[~short, None] + np.arange(_LONG.itemsize)
    data[places] = long.view(np.uint8).reshape(-1, _LONG.itemsize)
    return data.tobytes()
