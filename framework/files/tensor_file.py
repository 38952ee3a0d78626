"""Named arrays in one file: the safetensors format, written as a stream and read with suspicion.

Writing copies nothing: arrays go from their memory to the file, so that a disk that fills up is
seen as such and a large net needs no second copy of itself. Reading goes through the safetensors
library, which checks every size before anything is allocated.

Source: https://github.com/huggingface/safetensors (the format's own description).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from ..base.atomic import PathLike
from ..base.dtypes import to_dtype
from ..base.errors import FormatError, ShapeError
from ..base.untrusted.roots import path_of
from ..base.untrusted.values import open_file

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
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in tensors.values():
        file.write(_bytes_of(array))


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of an array, row-major and little-endian; a copy only where it is neither."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def digest(tensors: Mapping[str, np.ndarray]) -> str:
    """A hash of names, dtypes, shapes and contents: the mark that two files belong together."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in ordered(tensors).items():
        found.update(f"{name}\0{array.dtype.name}\0{array.shape}\0".encode())
        found.update(_bytes_of(array))
    return found.hexdigest()


class TensorFile:
    """A safetensors file that has passed its first checks; arrays are read one by one.

    Attributes:
        metadata: its text entries. specs: name -> (shape, dtype name as the file has it).

    Raises:
        FormatError: no such file, truncated, damaged, or not of this format; `path` is named.
    """

    def __init__(self, path: PathLike) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = os.fspath(path)
        self._errors = (SafetensorError, OSError, ValueError)
        try:
            if os.path.isdir(self.path):
                raise FormatError(f"{self.path}: it is a folder, not a safetensors file")
            with open_file(self.path) as file:
                self._file = safe_open(path_of(file), "numpy")
            self.metadata: dict[str, str] = self._file.metadata() or {}
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}
        except FileNotFoundError:
            raise FormatError(f"{self.path}: no such file") from None
        except self._errors as error:
            raise FormatError(f"{self.path}: no whole safetensors file: {error}") from None
        self.specs = {
            name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()
        }

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
        """One array, in memory of its own."""
        try:
            return np.asarray(self._file.get_tensor(name), order="C")
        except self._errors as error:
            raise FormatError(f"{self.path}: {name!r} cannot be read: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __contains__(self, name: str) -> bool:
        return name in self.specs
