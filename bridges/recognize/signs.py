"""What the first bytes of a binary file tell, and the outer fields of a protobuf message."""

from __future__ import annotations

import re
import struct
from typing import BinaryIO

_MOST_FIELDS = 1 << 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_TOKEN = re.compile(rb"<?[A-Za-z][A-Za-z0-9]*>?(?=\s)")

_KALDI = {
    b"<Nnet3>": "nnet3",
    b"<TransitionModel>": "acoustic model",
    b"ContextDependency": "tree",
    b"<Topology>": "topology",
}


def kaldi_token(head: bytes) -> str:
    """The kind that Kaldi's opening token tells, in binary or text; or ""."""
    match = _TOKEN.match(head.removeprefix(b"\0B").lstrip())
    return _KALDI.get(match[0], "") if match else ""


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file begins with the length of a header and a JSON object."""
    if len(head) < 10:
        return False
    (length,) = struct.unpack_from("<Q", head)
    return 2 <= length <= size - 8 and head[8:9] == b"{"


def _varint(file: BinaryIO) -> int | None:
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return value
        if shift > 63:
            return None
    return None


def message_fields(file: BinaryIO, size: int) -> dict[int, int]:
    """Field number -> wire type of the outer fields of a message, as far as they can be read."""
    file.seek(0)
    wires: dict[int, int] = {}
    for _ in range(_MOST_FIELDS):
        tag = _varint(file)
        if not tag:
            break
        number = tag >> 3
        wire = tag & 7
        if wire not in (_VARINT, _BYTES, *_SIZES) or wires.setdefault(number, wire) != wire:
            break
        skipped = 0
        if wire == _VARINT:
            if _varint(file) is None:
                break
        else:
            length = _SIZES.get(wire) or _varint(file)
            skipped = length or 0
        if file.tell() + skipped > size:
            break
        file.seek(skipped, 1)
    return wires


_NET = {1: _VARINT, 2: _BYTES, 3: _VARINT, 4: _BYTES, 5: _BYTES, 6: _BYTES, 7: _BYTES}


def kind_of_message(fields: dict[int, int], named: str) -> str:
    """`onnx` or `net`, by the outer fields of a message; or "".

    Args:
        fields: see `message_fields`.
        named: the kind by the name of the file; it decides where both kinds have the fields:
            a net that has neither variables nor operators, a model without operator sets.
    """
    if fields.get(1) != _VARINT:
        return ""
    if fields.get(7) == _BYTES and fields.get(8) == _BYTES:
        return "onnx"
    parts = fields.get(4) == _BYTES or fields.get(5) == _BYTES
    if fields.get(7) == _BYTES and not parts and named == "onnx":
        return "onnx"
    is_net = parts or fields.get(7) == _BYTES
    return "net" if is_net and fields.items() <= _NET.items() else ""
