"""The header of a safetensors file: what is refused, as the format's own library refuses it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open

from opscope.framework.base.errors import FormatError
from opscope.framework.files.tensor_file import TensorFile

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
B = {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]}


def written(path: Path, header: Any, data: int = 11) -> Path:
    """A file with this header, as JSON unless it is bytes, and so many bytes of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(range(data)))
    return path


def test_arrays_and_texts(tmp_path: Path) -> None:
    odd = {"dtype": "F8_E4M3", "shape": [0, 4], "data_offsets": [8, 8]}
    header = {"__metadata__": {"k": "v"}, "a": A, "b": B, "none": odd}
    file = TensorFile(written(tmp_path / "t", header))
    assert (file.metadata, list(file)) == ({"k": "v"}, ["a", "b", "none"])
    assert file.specs["none"] == ((0, 4), "F8_E4M3")
    assert file.read("b").tolist() == [8, 9, 10]
    assert file.read("a").tolist() == np.arange(8, dtype=np.uint8).view(np.float32).tolist()


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (["a"], 11),
        ({"a": 3, "b": B}, 11),
        ({"a": {**A, "dtype": "F99"}, "b": B}, 11),
        ({"a": {**A, "dtype": ["F32"]}, "b": B}, 11),
        ({"a": {**A, "shape": [-2]}, "b": B}, 11),
        ({"a": {**A, "shape": [2.0]}, "b": B}, 11),
        ({"a": {**A, "shape": [True, 2]}, "b": B}, 11),
        ({"a": {**A, "shape": [3]}, "b": B}, 11),
        ({"a": {**A, "shape": [1 << 40]}, "b": B}, 11),
        ({"a": {**A, "data_offsets": [8, 0]}, "b": B}, 11),
        ({"a": {**A, "data_offsets": [0]}, "b": B}, 11),
        ({"a": A, "b": {**B, "data_offsets": [9, 12]}}, 12),
        ({"a": A, "b": {**B, "data_offsets": [7, 10]}}, 10),
        ({"a": A, "b": B}, 10),
        ({"a": A, "b": B}, 12),
        ({"a": A, "b": B, "__metadata__": {"k": 1}}, 11),
        ({"a": A, "b": B, "__metadata__": "k"}, 11),
        (b'{"a": ', 11),
        (b'{"\xff": {}}', 11),
        (b"", 11),
    ],
)
def test_damaged_headers(tmp_path: Path, header: Any, data: int) -> None:
    path = written(tmp_path / "t", header, data)
    with pytest.raises(FormatError, match="no whole safetensors file"):
        TensorFile(path)
    with pytest.raises(SafetensorError):
        safe_open(path, "numpy")


def test_a_header_that_is_longer_than_the_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    with pytest.raises(FormatError, match="no whole safetensors file"):
        TensorFile(tmp_path / "t")
