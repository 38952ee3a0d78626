"""Symmetric matrices in Kaldi's files: lower triangles. Source: `matrix/packed-matrix.cc`."""

from __future__ import annotations

from functools import cache

import numpy as np

from .matrix_io import format_numbers, parse_numbers
from .tokens import TokenReader, TokenWriter

_FLOATS = {"FP": np.dtype("<f4"), "DP": np.dtype("<f8")}
_KINDS = {np.dtype(np.float32): "FP", np.dtype(np.float64): "DP"}


def read_packed(reader: TokenReader) -> np.ndarray:
    """The lower triangle of a matrix, row by row: float64, [dim * (dim + 1) / 2].

    Raises:
        FormatError: the bytes are something else, or are cut off.
    """
    start = reader.offset
    if reader.binary:
        dtype = _FLOATS[reader.expect_token("FP", "DP")]
        dim = reader.read_int32()
        if dim < 0:
            raise reader.error(f"no matrix has {dim} rows", start)
        return reader.read_array(dtype, dim * (dim + 1) // 2).astype(np.float64)
    reader.expect_token("[")
    end = reader.data.find(b"]", reader.offset)
    if end < 0:
        raise reader.error("a matrix without its closing bracket", start)
    values = parse_numbers(reader, reader.data[reader.offset : end], start, np.float64)
    if dim_of(values) * (dim_of(values) + 1) // 2 != len(values):
        raise reader.error(f"{len(values)} numbers are no lower triangle", start)
    reader.offset = end + 1
    return values


def write_packed(writer: TokenWriter, values: np.ndarray) -> None:
    """Write a lower triangle, float32 or float64, as Kaldi's SpMatrix or TpMatrix."""
    dim = dim_of(values)
    if writer.binary:
        kind = _KINDS[values.dtype]
        writer.write_token(kind)
        writer.write_int32(dim)
        writer.write_raw(np.asarray(values, _FLOATS[kind]).tobytes())
        return
    rows = np.split(values, np.cumsum(np.arange(1, dim)))
    writer.write_raw(b"[\n" + b"\n".join(map(format_numbers, rows)) + b"]\n")


def dim_of(values: np.ndarray) -> int:
    """How many rows a matrix has, by the numbers of its lower triangle."""
    return int((np.sqrt(8 * values.shape[-1] + 1) - 1) / 2)


def unpacked(values: np.ndarray) -> np.ndarray:
    """The whole symmetric matrix of each lower triangle: [..., dim, dim]."""
    return values[..., _places(dim_of(values))]


@cache
def _places(dim: int) -> np.ndarray:
    """Where each element of a symmetric matrix stands in its lower triangle: int64, [dim, dim]."""
    rows, columns = np.maximum(*np.indices((dim, dim))), np.minimum(*np.indices((dim, dim)))
    return rows * (rows + 1) // 2 + columns


def packed(matrices: np.ndarray) -> np.ndarray:
    """The lower triangle of each matrix, row by row: [..., dim * (dim + 1) / 2]."""
    rows, columns = np.tril_indices(matrices.shape[-1])
    return matrices[..., rows, columns]
