"""Named arrays in one file: the safetensors format, written as a stream and read with suspicion.

Writing copies nothing: arrays go from their memory to the file, so that a disk that fills up is
seen as such and a large net needs no second copy of itself. When a file is opened the safetensors
library checks every size in it; arrays are then read and not mapped, since to touch a map of a file
that has become shorter ends the process.

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

from ..base.atomic import PathLike
from ..base.dtypes import to_dtype
from ..base.errors import FormatError, ShapeError
from ..base.untrusted.opener import open_file
from ..base.untrusted.roots import path_of
from ..base.untrusted.values import count_of, json_value

# NumPy dtype -> the format's name of it; read the other way round, too
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
_META = "__metadata__"


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


class TensorFile:
    """A safetensors file that has passed its first checks; arrays are read one by one.

    Attributes:
        metadata: its text entries. specs: name -> (shape, dtype name as the file has it).

    Raises:
        FormatError: no such file, truncated, damaged, or not of this format; `path` is named.
    """

    def __init__(self, path: PathLike) -> None:
        from safetensors import SafetensorError, safe_open

        # Unbuffered: arrays are read straight into their memory, and a buffer would be a second
        # copy.
        self._file = cast("FileIO", open_file(path, buffering=0))
        self.path = os.fspath(path)
        # Seeking and reading are two calls on one handle, which threads share.
        self._lock = Lock()
        self._errors = (SafetensorError, OSError, ValueError, LookupError, TypeError)
        try:
            # By the open handle: what the library checks is the file that is read later.
            with safe_open(path_of(self._file), "numpy") as checked:
                self.metadata: dict[str, str] = checked.metadata() or {}
                slices = {name: checked.get_slice(name) for name in checked.keys()}
                self.specs = {
                    name: (tuple(part.get_shape()), part.get_dtype())
                    for name, part in slices.items()
                }
            self._places = self._read_places()
        except self._errors as error:
            raise FormatError(f"{self.path}: no whole safetensors file: {error}") from None

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _read_places(self) -> dict[str, int]:
        """Where the bytes of each array begin."""
        (size,) = struct.unpack("<Q", self._bytes(0, 8).tobytes())
        # The library has checked the header of the file as it was; another program may have written
        # since.
        if size > os.fstat(self._file.fileno()).st_size:
            raise ValueError("the file has changed while it was opened")
        header = json_value(self._bytes(8, size).tobytes().decode(), self.path)
        return {name: 8 + size + int(header[name]["data_offsets"][0]) for name in self.specs}

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
            count = count_of(shape, dtype.itemsize, "it") * dtype.itemsize
            data = self._bytes(self._places[name], count).view(dtype).reshape(shape)
        except self._errors as error:
            raise FormatError(f"{self.path}: {name!r} cannot be read: {error}") from None
        return data if sys.byteorder == "little" else data.byteswap()

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __contains__(self, name: str) -> bool:
        return name in self.specs
