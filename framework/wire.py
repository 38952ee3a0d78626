"""The wire form of messages, where thousands of like ones are wanted.

Protobuf reads a list of messages several times faster than it makes them one by one. So what like
messages have in common is kept as bytes, what differs is put between, and all is read at once.

Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter

_DELIMITED = 2
_MOST_KEPT = 1 << 12


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


class Pattern:
    """The wire form of messages that are the same but for strings in them.

    Example:
        call = Pattern(Field(5, (Field(1, (0,)), Field(2, (1, b"/bias")))))
        call.fill((b"x", b"tdnn1"))

    Args:
        fields: at least one string is wanted.
    """

    def __init__(self, *fields: Field) -> None:
        self._order = itemgetter(*_strings(fields))
        # With strings of the same lengths all bytes between them are the same.
        self._format = lru_cache(maxsize=256)(partial(_format, fields))

    def fill(self, strings: tuple[bytes, ...]) -> bytes:
        """The wire form with these strings."""
        return self._format(*map(len, strings)) % self._order(strings)


def _strings(parts: tuple[bytes | int | Field, ...]) -> Iterator[int]:
    """The numbers of the strings in the order in which they are written."""
    for part in parts:
        if isinstance(part, Field):
            yield from _strings(part.parts)
        elif isinstance(part, int):
            yield part


def _format(parts: tuple[bytes | int | Field, ...], *lengths: int) -> bytes:
    """What the strings are to be put into by %."""
    return _written(parts, lengths)[0]


def _written(parts: tuple[bytes | int | Field, ...], lengths: tuple[int, ...]) -> tuple[bytes, int]:
    """As `_format`, and how long it will be."""
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
