"""Arrays of ONNX files: from a message or a range of another file, and back.

Source: onnx/onnx-ml.proto (TensorProto) of the ONNX project.
"""

from __future__ import annotations

import os

import numpy as np

from ....framework.base.dtypes import DTYPES, to_dtype
from ....framework.base.errors import FormatError
from ....framework.base.untrusted.opener import open_file
from ....framework.base.untrusted.roots import in_folder_of
from ....framework.base.untrusted.values import count_of, in_range, shown, whole_number
from ....framework.files.tensor_file import array_bytes
from ....proto import onnx_pb2 as pb

_TYPES = pb.TensorProto.DataType
_PLAIN: dict[int, str] = {
    _TYPES.FLOAT: "float32",
    _TYPES.UINT8: "uint8",
    _TYPES.INT8: "int8",
    _TYPES.UINT16: "uint16",
    _TYPES.INT16: "int16",
    _TYPES.INT32: "int32",
    _TYPES.INT64: "int64",
    _TYPES.BOOL: "bool",
    _TYPES.FLOAT16: "float16",
    _TYPES.DOUBLE: "float64",
    _TYPES.UINT32: "uint32",
    _TYPES.UINT64: "uint64",
    _TYPES.COMPLEX64: "complex64",
    _TYPES.COMPLEX128: "complex128",
}
"""Types whose elements NumPy has itself."""
_NUMBERS = {np.dtype(name): number for number, name in _PLAIN.items()}
_FOUR_BITS: dict[int, str] = {_TYPES.UINT4: "uint8", _TYPES.INT4: "int8"}
"""Two elements a byte, the first one in the lower half."""
_OBJECT = np.dtype(object).itemsize


def type_name(number: int) -> str:
    """The name of an element type in ONNX, as `FLOAT`; its number where there is none."""
    return _TYPES.Name(number) if number in _TYPES.values() else str(number)


def dtype_of(number: int, what: str) -> np.dtype:
    """The NumPy dtype of an element type; for 4-bit integers a byte's.

    Args:
        number: `TensorProto.DataType`. what: names the value in errors.

    Raises:
        FormatError: strings, floats of 8 bits and less, and numbers that are no type.
    """
    if number in _PLAIN:
        return np.dtype(_PLAIN[number])
    if number in _FOUR_BITS:
        return np.dtype(_FOUR_BITS[number])
    if number == _TYPES.BFLOAT16:
        return to_dtype("bfloat16")
    raise FormatError(f"{what}: elements of type {type_name(number)} are not supported")


def number_of(dtype: np.dtype) -> int:
    """The element type of a dtype.

    Raises:
        FormatError: ONNX has none.
    """
    if dtype in _NUMBERS:
        return _NUMBERS[dtype]
    if dtype in DTYPES and dtype.name == "bfloat16":
        return _TYPES.BFLOAT16
    raise FormatError(f"ONNX has no elements of type {dtype}")


def to_array(tensor: pb.TensorProto, folder: str, what: str) -> np.ndarray:
    """The array of a message.

    Args:
        tensor: it.
        folder: where external data must lie: the model's own.
        what: names the array in errors: the file and the place in it.

    Returns:
        An array that may be written to; strings as an array of `str` objects.

    Raises:
        FormatError: too few or too many elements, an unknown type, or external data that is
            missing, too short, or outside of `folder`.
    """
    what = f"{what}: tensor {shown(tensor.name)}" if tensor.name else what
    dims = tuple(tensor.dims)
    if tensor.data_type == _TYPES.STRING:
        return _strings(tensor, dims, count_of(dims, _OBJECT, what), what)
    dtype = dtype_of(tensor.data_type, what)
    count = count_of(dims, dtype.itemsize, what)
    packed = tensor.data_type in _FOUR_BITS
    wanted = (count + 1) // 2 if packed else count * dtype.itemsize
    if tensor.data_location == pb.TensorProto.EXTERNAL:
        data = _external(tensor, folder, wanted, what)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        return _listed(tensor, dtype, dims, count, what)
    if len(data) != wanted:
        raise FormatError(
            f"{what} has {len(data)} bytes; {wanted} are wanted for {list(dims)} of"
            f" {type_name(tensor.data_type)}"
        )
    if packed:
        return _unpacked(np.frombuffer(data, np.uint8), dtype, count).reshape(dims)
    little = np.frombuffer(data, dtype.newbyteorder("<"))
    return little.reshape(dims).astype(dtype)  # memory of its own, which scopes take as it is


def _strings(tensor: pb.TensorProto, dims: tuple[int, ...], count: int, what: str) -> np.ndarray:
    if len(tensor.string_data) != count:
        raise FormatError(f"{what} has {len(tensor.string_data)} strings, {count} are wanted")
    try:
        texts = [text.decode() for text in tensor.string_data]
    except UnicodeDecodeError:
        raise FormatError(f"{what} has a string that is not UTF-8") from None
    array = np.empty(count, object)
    array[:] = texts
    return array.reshape(dims)


def _listed(
    tensor: pb.TensorProto, dtype: np.dtype, dims: tuple[int, ...], count: int, what: str
) -> np.ndarray:
    """An array from the field of its type: halves as their bits, 8 and 16 bits as int32."""
    kind = tensor.data_type
    numbers = tensor.int32_data
    wanted = count
    if kind in (_TYPES.FLOAT, _TYPES.COMPLEX64):
        numbers = tensor.float_data
    elif kind in (_TYPES.DOUBLE, _TYPES.COMPLEX128):
        numbers = tensor.double_data
    elif kind == _TYPES.INT64:
        numbers = tensor.int64_data
    elif kind in (_TYPES.UINT32, _TYPES.UINT64):
        numbers = tensor.uint64_data
    if dtype.kind == "c":
        wanted = 2 * count
    elif kind in _FOUR_BITS:
        wanted = (count + 1) // 2
    if len(numbers) != wanted:
        raise FormatError(f"{what} has {len(numbers)} numbers, {wanted} are wanted")
    array = np.array(numbers)
    if kind in _FOUR_BITS:
        return _unpacked(array.astype(np.uint8), dtype, count).reshape(dims)
    if dtype.itemsize == 2 and dtype.kind not in "iu":  # halves
        return array.astype(np.uint16).view(dtype).reshape(dims)
    if dtype.kind == "c":
        real = np.float32 if kind == _TYPES.COMPLEX64 else np.float64
        return array.astype(real).view(dtype).reshape(dims)
    return array.astype(dtype).reshape(dims)


def _unpacked(data: np.ndarray, dtype: np.dtype, count: int) -> np.ndarray:
    halves = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[:count]
    if dtype.kind == "i":
        return ((halves.astype(np.int8) ^ 8) - 8).astype(dtype)
    return halves.astype(dtype)


def _external(tensor: pb.TensorProto, folder: str, wanted: int, what: str) -> bytes:
    """A range of a file beside the model."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if not location:
        raise FormatError(f"{what}: its data is said to be external, without a location")
    offset = whole_number(fields.get("offset", "0"), f"{what}: offset", 0, 1 << 62)
    length = whole_number(fields.get("length", str(wanted)), f"{what}: length", 0, 1 << 62)
    in_range(length, f"{what}: length of its external data", wanted, wanted)
    if os.path.isabs(location):
        raise FormatError(f"{what}: its data lies in {shown(location)}, outside of the folder")
    path = os.path.join(folder, location)
    try:
        with (
            in_folder_of(os.path.join(folder, "model")),
            open_file(path) as file,
        ):
            size = os.fstat(file.fileno()).st_size
            if offset + length > size:
                raise FormatError(
                    f"bytes {offset} to {offset + length} of {shown(location)} are wanted, which"
                    f" has {size}"
                )
            file.seek(offset)
            return file.read(length)
    except FormatError as error:
        raise type(error)(f"{what}: external data: {error}") from None
    except OSError as error:
        raise FormatError(f"{what}: external data: {path}: {error.strerror}") from None


def from_array(
    array: np.ndarray,
    name: str = "",
    *,
    data: bool = True,
    nibbles: tuple[int, ...] | None = None,
) -> pb.TensorProto:
    """A message of an array.

    Args:
        array: numbers, or an object array of `str`.
        name: of the tensor.
        nibbles: the shape of numbers of 4 bits, of which each byte of the array holds two.
        data: whether the bytes go into the message; False leaves them to `external_data`.

    Raises:
        FormatError: ONNX has no such elements.
    """
    tensor = pb.TensorProto(name=name, dims=array.shape if nibbles is None else nibbles)
    if array.dtype == object:
        tensor.data_type = _TYPES.STRING
        tensor.string_data.extend(str(text).encode() for text in array.reshape(-1))
        return tensor
    tensor.data_type = number_of(array.dtype) if nibbles is None else _TYPES.UINT4
    if data:
        tensor.raw_data = bytes(array_bytes(array))
    return tensor
