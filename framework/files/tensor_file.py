"""Named arrays in one file: the safetensors format, written as a stream and read with suspicion.

Writing copies nothing: arrays go from their memory to the file, so that a disk that fills up is
seen as such and a large net needs no second copy of itself. When a file is opened every size in its
header is checked. Arrays are read and not mapped: a process that touches the map of a file which
has become shorter is killed. The safetensors library is not used: it maps the header, and does not
exist for WebAssembly.

Source: https://github.com/huggingface/safetensors (the format's own description).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from io import FileIO
from threading import Lock
from typing import Any, BinaryIO, cast

import numpy as np

from ..base.dtypes import to_dtype
from ..base.errors import FormatError, ShapeError
from ..base.files.atomic import PathLike
from ..base.untrusted.opener import open_file
from ..base.untrusted.values import count_of, json_value

# NumPy dtype -> the format's name of it; also read the other way round
_DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
_DTYPE_OF = {name: dtype for dtype, name in _DTYPES.items()}
_BITS = {
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""The format's dtypes, with the size of an element; arrays of some of them are only listed."""
_META = "__metadata__"
_MOST_HEADER = 100_000_000
"""Bytes of a header; the format allows no more."""


def ordered(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """In the order in which they are written: wide elements first, so that all are aligned."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    return {name: tensors[name] for name in names}


def write_tensors(
    file: BinaryIO, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write arrays and text metadata to an open file. Equal input gives equal bytes."""
    header: dict[str, Any] = {_META: dict(sorted(metadata.items()))}
    offset = 0
    tensors = ordered(tensors)
    for name, array in tensors.items():
        header[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # The format wants its data to begin at a multiple of 8.
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in tensors.values():
        file.write(array_bytes(array))


def array_bytes(array: np.ndarray) -> memoryview:
    """The memory of an array, row-major and little-endian; a copy only where it is neither."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def digest(tensors: Mapping[str, np.ndarray]) -> str:
    """A hash of names, dtypes, shapes and contents: the mark that two files belong together."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, array in ordered(tensors).items():
        # Names and shapes too: equal bytes under exchanged names are another net.
        hasher.update(f"{name}\0{array.dtype.name}\0{array.shape}\0".encode())
        hasher.update(array_bytes(array))
    return hasher.hexdigest()


_DAMAGED = "no whole safetensors file"


class TensorFile:
    """A safetensors file that has passed its first checks; arrays are read one by one.

    Attributes:
        metadata: its text entries. specs: name -> (shape, dtype name as the file has it).

    Raises:
        FormatError: no such file, truncated, damaged, or not of this format; `path` is named.
    """

    def __init__(self, path: PathLike) -> None:
        # Unbuffered: arrays are read straight into their memory, and a buffer would be a second
        # copy.
        self._file = cast("FileIO", open_file(path, buffering=0))
        self.path = os.fspath(path)
        # Seeking and reading are two calls on one handle, which threads share.
        self._lock = Lock()
        self.metadata: dict[str, str] = {}
        self.specs: dict[str, tuple[tuple[int, ...], str]] = {}
        self._spans: dict[str, tuple[int, int]] = {}
        try:
            self._read_header()
        except (OSError, ValueError) as error:
            raise FormatError(f"{self.path}: {_DAMAGED}: {error}") from None

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _read_header(self) -> None:
        """Read and check everything except the arrays.

        Raises:
            ValueError: the header is damaged, or the file is not as long as the arrays make it.
        """
        (size,) = struct.unpack("<Q", self._bytes(0, 8).tobytes())
        left = os.fstat(self._file.fileno()).st_size - 8 - size
        if left < 0 or size > _MOST_HEADER:
            raise ValueError(f"its header of {size} bytes is longer than the file, or too long")
        text = self._bytes(8, size).tobytes().decode()
        header = json_value(text, f"{self.path}: {_DAMAGED}: its header")
        if not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
        metadata = header.pop(_META, None) or {}
        if not (isinstance(metadata, dict) and all(isinstance(t, str) for t in metadata.values())):
            raise ValueError(f"{_META} holds more than texts")
        self.metadata = metadata
        spans = []
        for name, entry in header.items():
            self.specs[name], (first, last) = _described(name, entry)
            self._spans[name] = 8 + size + first, last - first
            spans.append((first, last))
        end = 0
        for first, last in sorted(spans):
            if first != end:
                raise ValueError(f"no array holds byte {end} of the data, or several do")
            end = last
        if end != left:
            raise ValueError(f"its arrays have {end} bytes, its data {left}")

    def _bytes(self, begin: int, count: int) -> np.ndarray:
        """So many bytes from a place on.

        Raises:
            ValueError: the file ends before.
        """
        data = np.empty(count, np.uint8)
        left = data.data
        with self._lock:
            self._file.seek(begin)
            # One call may return less than was asked for, and Linux reads at most 2 GiB at once.
            while len(left) and (got := self._file.readinto(left)):
                left = left[got:]
        if len(left):
            raise ValueError(f"the file ends at byte {begin + count - len(left)}")
        return data

    def spec(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of an array.

        Raises:
            FormatError: its dtype is none of a net's, or it is bfloat16 and ml_dtypes, which has
                it for NumPy, is not installed.
        """
        shape, kind = self.specs[name]
        if kind not in _DTYPE_OF:
            known = ", ".join(_DTYPE_OF)
            raise FormatError(f"{self.path}: {name!r} is of dtype {kind}; a net holds {known}")
        try:
            return shape, to_dtype(_DTYPE_OF[kind])
        except ShapeError as error:
            raise FormatError(f"{self.path}: {name!r}: {error}") from None

    def read(self, name: str) -> np.ndarray:
        """One array, in memory of its own.

        Raises:
            FormatError: as `spec`; or the file cannot be read, or has become shorter.
        """
        shape, dtype = self.spec(name)
        try:
            data = self._bytes(*self._spans[name]).view(dtype).reshape(shape)
        except (OSError, ValueError) as error:
            raise FormatError(f"{self.path}: {name!r} cannot be read: {error}") from None
        return data if sys.byteorder == "little" else data.byteswap()

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __contains__(self, name: str) -> bool:
        return name in self.specs


def _described(name: str, entry: Any) -> tuple[tuple[tuple[int, ...], str], tuple[int, int]]:
    """Shape and dtype of an array, and where its bytes begin and end.

    Raises:
        ValueError: its entry in the header is damaged. FormatError: no array has its shape.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"{name!r} is described by no JSON object")
    kind, shape, span = entry.get("dtype"), _sizes(entry, "shape"), _sizes(entry, "data_offsets")
    if not isinstance(kind, str) or kind not in _BITS or len(span) != 2:
        raise ValueError(f"{name!r} has no dtype and place that are known")
    first, last = span
    if count_of(shape, 1, f"{name!r}") * _BITS[kind] != 8 * (last - first):
        raise ValueError(f"{name!r}: {kind}{list(shape)} does not take {last - first} bytes")
    return (shape, kind), (first, last)


def _sizes(entry: Mapping[str, Any], key: str) -> tuple[int, ...]:
    given = entry.get(key)
    if not isinstance(given, list) or any(type(size) is not int or size < 0 for size in given):
        raise ValueError(f"{key} is no list of sizes")
    return tuple(given)
