"""The wire form of messages, where thousands of like ones are wanted.

Protobuf reads a list of messages several times faster than it makes them one by one. So what like
messages have in common is kept as bytes, what differs is put between, and all is read at once.

Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

_DELIMITED = 2
_MOST_KEPT = 1 << 12  # sizes
_MOST_FORMATS = 128


@lru_cache(maxsize=4096)
def varint(number: int) -> bytes:
    """A number from 0 on: seven bits a byte, the lowest first."""
    if number < 128:
        return bytes((number,))
    return bytes((number & 127 | 128,)) + varint(number >> 7)


class Heads(dict[int, bytes]):
    """By size of a string, bytes or a message what stands before it in field `number`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._key = varint(number << 3 | _DELIMITED)

    def __missing__(self, size: int) -> bytes:
        head = self._key + varint(size)
        if size < _MOST_KEPT:
            self[size] = head
        return head


def delimited(number: int, content: bytes) -> bytes:
    """A field that holds a string, bytes or a message."""
    return _heads(number)[len(content)] + content


@lru_cache(maxsize=256)
def _heads(number: int) -> Heads:
    return Heads(number)


@dataclass(frozen=True)
class Field:
    """A string or a message whose content is known in parts.

    Attributes:
        parts: bytes; further fields; ints, which stand for strings by their numbers.
    """

    number: int
    parts: tuple[bytes | int | Field, ...]


class Formats(dict[tuple[int, ...], bytes]):
    """Fields by the lengths of the strings in them, as what these are put into by %.

    All bytes between strings depend on how long the strings are, and on nothing else.
    """

    def __init__(self, fields: tuple[Field, ...]) -> None:
        super().__init__()
        self._fields = fields

    def __missing__(self, lengths: tuple[int, ...]) -> bytes:
        if len(self) >= _MOST_FORMATS:
            self.clear()
        found = self[lengths] = _written(self._fields, lengths)[0]
        return found


class Pattern:
    """The wire form of messages that are the same but for strings in them.

    Example:
        call = Pattern(Field(5, (Field(1, (0,)), Field(2, (1, b"/bias")))))
        call.fill((b"x", b"tdnn1"))

    Attributes:
        formats: takes the strings in the order in which they are written.
    """

    def __init__(self, *fields: Field) -> None:
        order = tuple(_strings(fields))
        self._order = itemgetter(*order) if order else _nothing
        self.formats = Formats(fields)

    def fill(self, strings: tuple[bytes, ...]) -> bytes:
        """The wire form with these strings."""
        return self.formats[tuple(map(len, strings))] % self._order(strings)


def _nothing(strings: tuple[bytes, ...]) -> tuple[()]:
    return ()


def _strings(parts: tuple[bytes | int | Field, ...]) -> Iterator[int]:
    """The numbers of the strings in the order in which they are written."""
    for part in parts:
        if isinstance(part, Field):
            yield from _strings(part.parts)
        elif isinstance(part, int):
            yield part


def _written(parts: tuple[bytes | int | Field, ...], lengths: tuple[int, ...]) -> tuple[bytes, int]:
    """What strings are put into by %, and how long it will be then."""
    text, size = b"", 0
    for part in parts:
        if isinstance(part, int):
            text += b"%b"
            size += lengths[part]
            continue
        known, inner = part, b""
        if isinstance(part, Field):
            inner, length = _written(part.parts, lengths)
            known = _heads(part.number)[length]
            size += length
        text += known.replace(b"%", b"%%") + inner
        size += len(known)
    return text, size
