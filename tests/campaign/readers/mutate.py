"""Damaged forms of a file: of bytes, of text, of protobuf messages, all from a seeded source."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

_INTEGERS = (-1, 0, 1, 2, 127, 128, 255, 32767, 65535, 1 << 20, 1 << 30, (1 << 31) - 1, -(1 << 31))
_LONG_INTEGERS = ((1 << 32) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
_WORDS = (
    *("-1", "0", "1", "2", "1e9", "1000000000", "99999999999", "18446744073709551616", "1e400"),
    *("nan", "inf", "-inf", "-0", "0x10", "1_000", "²", "٣", "true", "false", "F", "T", "none"),
    *("9" * 5000, "a" * 3000, "\0", "\x1b[31m", "é", "\ud800", "*a*a*a*a*a*a*b", "../../x", "/"),
    *("(", ")", "[", "]", "{", "}", "<", ">", '"', "'", "$", "$x$", "=", ";", ":", ",", "#", "\\"),
    *("(" * 2000, "[" * 2000, "{" * 2000, "Sum(" * 500, "-" * 1500, "|", "%d", "%s" * 20),
)
_TOKEN = re.compile(rb"[A-Za-z_][\w.\-]*|-?\d[\d.eE+\-]*|\s+|.", re.DOTALL)
_MOST = 1 << 18  # bytes of a damaged form; what grows is cut there

Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


def damaged(
    data: bytes, rng: random.Random, others: Sequence[bytes], kinds: Sequence[Mutation]
) -> bytes:
    """One damaged form: one to four mutations, each of one of the kinds."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        data = rng.choice(kinds)(data, rng, others)[:_MOST]
    return data


# Bytes


def flip(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A bit turned over, or a byte set."""
    if not data:
        return data
    changed = bytearray(data)
    place = rng.randrange(len(data))
    value = rng.choice((changed[place] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF, 0x20))
    changed[place] = value
    return bytes(changed)


def integer(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A number of 1, 2, 4 or 8 bytes put over what is there."""
    size = rng.choice((1, 2, 4, 4, 8))
    if len(data) < size:
        return data
    value = rng.choice((*_INTEGERS, *_LONG_INTEGERS)) & ((1 << 8 * size) - 1)
    place = rng.randrange(len(data) - size + 1)
    if rng.random() < 0.1:
        number = struct.pack(rng.choice("<>") + "d", rng.choice((float("nan"), 1e300, -1e9)))
        return data[:place] + number[:size] + data[place + size :]
    order = rng.choice(("little", "little", "big"))
    return data[:place] + value.to_bytes(size, order) + data[place + size :]


def cut(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """The end, the beginning or a piece left out."""
    begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice((data[:end], data[begin:], data[:begin] + data[end:]))


def repeat(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A piece several times."""
    begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[begin:end] * rng.choice((1, 1, 2, 50)) + data[end:]


def splice(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """The beginning of one file with the end of another."""
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


# Text


def word(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A word in another's place: an extreme, one of another place, or none."""
    tokens = _TOKEN.findall(data[:_MOST])
    if not tokens:
        return data
    place = rng.randrange(len(tokens))
    kind = rng.random()
    if kind < 0.5:
        tokens[place] = rng.choice(_WORDS).encode("utf-8", "surrogatepass")
    elif kind < 0.65:
        del tokens[place]
    elif kind < 0.8:
        tokens[place] = rng.choice(tokens)
    else:
        tokens.insert(place, rng.choice(_TOKEN.findall(rng.choice(others)[:_MOST]) or [b""]))
    return b"".join(tokens)


def line(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A line gone, doubled, moved, or of another file."""
    lines = data.split(b"\n")
    place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(other, lines[place])
    elif kind == 2:
        lines[place], lines[other] = lines[other], lines[place]
    else:
        lines.insert(place, rng.choice(rng.choice(others).split(b"\n")))
    return b"\n".join(lines)


BYTES: tuple[Mutation, ...] = (flip, flip, integer, integer, cut, repeat, splice)
TEXT: tuple[Mutation, ...] = (word, word, word, line, line, flip, cut, repeat, splice)


# Messages


def message(kind: type[Message]) -> Mutation:
    """A mutation of a serialized message: some field of it, at any depth."""

    def mutate(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
        found = kind()
        try:
            found.ParseFromString(data)
        except (DecodeError, RecursionError):
            return flip(data, rng, others)
        _mutate_message(found, rng)
        return found.SerializeToString()

    return mutate


def _mutate_message(found: Any, rng: random.Random) -> None:
    """Change one field; go down into what is there most of the time."""
    there = [field for field, _ in found.ListFields()]
    inside = [field for field in there if field.message_type is not None]
    if inside and rng.random() < 0.75:
        value = getattr(found, rng.choice(inside).name)
        items = _messages_of(value)
        if items:
            _mutate_message(rng.choice(items), rng)
            return
    fields = there if there and rng.random() < 0.7 else list(found.DESCRIPTOR.fields)
    _mutate_field(found, rng.choice(fields), rng)


def _messages_of(value: Any) -> list[Any]:
    if isinstance(value, Message):
        return [value]
    values = list(value.values()) if hasattr(value, "values") else list(value)
    return [item for item in values if isinstance(item, Message)]


def _mutate_field(found: Any, field: FieldDescriptor, rng: random.Random) -> None:
    value = getattr(found, field.name)
    if rng.random() < 0.2:
        found.ClearField(field.name)
    elif hasattr(value, "keys"):  # a map
        _mutate_map(value, rng)
    elif hasattr(value, "append") and not isinstance(value, (str, bytes)):
        _mutate_list(value, field, rng)
    elif isinstance(value, Message):
        value.SetInParent()
    else:
        setattr(found, field.name, _scalar(field, rng))


def _mutate_map(value: Any, rng: random.Random) -> None:
    keys = list(value)
    if keys and rng.random() < 0.5:
        del value[rng.choice(keys)]
    elif keys and isinstance(value[keys[0]], str):
        value[rng.choice(keys)] = _text(rng)


def _mutate_list(value: Any, field: FieldDescriptor, rng: random.Random) -> None:
    kind = rng.random()
    if len(value) and kind < 0.3:
        del value[rng.randrange(len(value))]
    elif len(value) and kind < 0.6:
        value.append(value[rng.randrange(len(value))])
    elif field.message_type is not None:
        value.add()
    elif len(value) and kind < 0.8:
        value[rng.randrange(len(value))] = _scalar(field, rng)
    else:
        value.extend(_scalar(field, rng) for _ in range(rng.choice((1, 2, 70))))


def _scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = _text(rng)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e30, 0.5))
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 99))
    value = rng.choice((*_INTEGERS, *_LONG_INTEGERS, 1_000_000_000, 3, 5, 7))
    unsigned = kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
    bits = 64 if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
    if unsigned:
        return value & ((1 << bits) - 1)
    return max(min(value, (1 << bits - 1) - 1), -(1 << bits - 1))


def _text(rng: random.Random) -> str:
    text = rng.choice((*_WORDS, "x", "y", "w", "", "input", "output", "relu", "gpu:99999999999"))
    return text.encode("utf-8", "replace").decode()
