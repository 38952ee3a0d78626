"""Constant arrays in messages: a `Tensor` of net.proto from an array, and back with suspicion."""

from __future__ import annotations

import sys

import numpy as np

from ....proto import net_pb2 as pb
from ...base.dtypes import to_dtype, to_pb
from ...base.errors import FormatError

MAX_RANK = 64
"""Dimensions that an array has at most: as many as NumPy's."""
_MAX_TENSOR_BYTES = 1 << 30


def set_tensor(tensor: pb.Tensor, array: np.ndarray) -> None:
    """Write an array into a `Tensor`."""
    tensor.dtype = to_pb(array.dtype)  # type: ignore[assignment]
    tensor.dims[:] = array.shape
    tensor.data = tensor_bytes(array)


def tensor_bytes(array: np.ndarray) -> bytes:
    """The elements of an array as a `Tensor` holds them: row-major, little-endian."""
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


def decode_tensor(tensor: pb.Tensor) -> np.ndarray:
    """The array of a `Tensor`, which nobody may write to.

    Raises:
        FormatError: its dims are none of an array, or do not fit its data.
        ShapeError: it is of a dtype that nobody knows.
    """
    dtype = to_dtype(tensor.dtype)
    if len(tensor.dims) > MAX_RANK:
        raise FormatError(f"a tensor attribute of rank {len(tensor.dims)}; {MAX_RANK} is the most")
    wanted = dtype.itemsize
    for dim in tensor.dims:
        wanted *= max(dim, 1)
    if any(dim < 0 for dim in tensor.dims) or wanted > _MAX_TENSOR_BYTES:
        raise FormatError(f"a tensor attribute has the dims {list(tensor.dims)}")
    wanted = 0 if 0 in tensor.dims else wanted
    if wanted != len(tensor.data):
        raise FormatError(
            f"a tensor attribute of dims {list(tensor.dims)} and dtype {dtype} wants {wanted} bytes"
            f" and holds {len(tensor.data)}"
        )
    flat = np.frombuffer(tensor.data, dtype.newbyteorder("<")).astype(dtype)
    flat.shape = tuple(tensor.dims)
    flat.setflags(write=False)
    return flat
