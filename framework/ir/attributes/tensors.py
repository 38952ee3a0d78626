"""Constant arrays in messages: a `Tensor` of net.proto from an array, and back with suspicion."""

from __future__ import annotations

import sys

import numpy as np

from ....proto import net_pb2 as pb
from ...base.dtypes import to_dtype, to_pb
from ...base.errors import FormatError
from ...base.untrusted.values import count_of


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
    """The array of a `Tensor`, which is read-only.

    Raises:
        FormatError: its dims are none of an array, or do not fit its data.
        ShapeError: it is of an unknown dtype.
    """
    dtype = to_dtype(tensor.dtype)
    wanted = count_of(tensor.dims, dtype.itemsize, "a tensor attribute") * dtype.itemsize
    if wanted != len(tensor.data):
        raise FormatError(
            f"a tensor attribute of dims {list(tensor.dims)} and dtype {dtype} wants {wanted} bytes"
            f" and holds {len(tensor.data)}"
        )
    # A copy: the view would keep the whole message alive.
    flat = np.frombuffer(tensor.data, dtype.newbyteorder("<")).astype(dtype)
    flat.shape = tuple(tensor.dims)
    flat.setflags(write=False)
    return flat
