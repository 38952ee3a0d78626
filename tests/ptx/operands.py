"""Registers and literals of PTX as expressions of Python, with NumPy's dtypes."""

from __future__ import annotations

import re
import struct

NAME = re.compile(r"%?[A-Za-z_$][\w$.@]*")
DTYPES = {
    **{f"{kind}{8 * n}": f"u{n}" for kind in "bu" for n in (1, 2, 4, 8)},
    **{f"s{8 * n}": f"i{n}" for n in (1, 2, 4, 8)},
    **{f"f{8 * n}": f"f{n}" for n in (2, 4, 8)},
    "bf16": "u2",
    "pred": "?",
}
"""Dtypes by types of PTX; bits are unsigned integers."""


def size_of(kind: str) -> int:
    """Bytes of a type of PTX."""
    return int(DTYPES[kind][1:])


def as_dtype(text: str, own: str, dtype: str) -> str:
    """A register of the dtype `own` as another: the same bits, or the lower ones."""
    if own == dtype:
        return text
    if own[1:] == dtype[1:]:
        return f"{text}.view({dtype})"
    if "f" in (own[0], dtype[0]):
        raise ValueError(f"{own} as {dtype}")
    return f"({text}).astype({dtype})"


def widened(text: str, dtype: str, own: str) -> str:
    """A value for a register of the dtype `own`: the same bits, with a sign extended."""
    if dtype == own:
        return text
    if "?" in (dtype, own):
        raise ValueError(f"{dtype} as {own}")
    if dtype[1:] == own[1:]:
        return f"({text}).view({own})"
    if dtype[0] == "i":
        return f"({text}).astype(i{own[1:]}).view({own})"
    return f"({text}).view(u{dtype[1:]}).astype({own})"


def literal(text: str, dtype: str) -> str:
    """A literal."""
    if text[:2] in ("0f", "0F", "0d", "0D"):
        bits = bytes.fromhex(text[2:])
        (value,) = struct.unpack(">f" if text[1] in "fF" else ">d", bits)
        if dtype[0] == "f":
            return f"{dtype}('{value!r}')"
        return f"u{len(bits)}({int.from_bytes(bits, 'big')}).view({dtype})"
    value = int(text.rstrip("U"), 0)
    if dtype == "?":
        return f"np.bool_({bool(value)})"
    if dtype[0] == "f":
        return f"{dtype}({value})"
    size = 8 * int(dtype[1:])
    value %= 1 << size
    if dtype[0] == "i" and value >> (size - 1):
        value -= 1 << size
    return f"{dtype}({value})"
