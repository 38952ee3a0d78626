"""Making and reading the messages of net.proto: the only place that knows how they are laid out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import to_dtype, to_pb
from ..base.errors import AttributeTypeError, FormatError
from .wire import Heads

FORMAT_VERSION = 1

NetDesc = pb.NetDesc
OpDesc = pb.OpDesc
VarDesc = pb.VarDesc

FORWARD, BACKWARD, OPTIMIZE = pb.OpDesc.FORWARD, pb.OpDesc.BACKWARD, pb.OpDesc.OPTIMIZE
TEMPORARY, INPUT, PARAMETER, STATE, OUTPUT = (
    pb.VarDesc.TEMPORARY,
    pb.VarDesc.INPUT,
    pb.VarDesc.PARAMETER,
    pb.VarDesc.STATE,
    pb.VarDesc.OUTPUT,
)
PLAIN, RECURRENT, RECURSIVE = pb.NetDesc.PLAIN, pb.NetDesc.RECURRENT, pb.NetDesc.RECURSIVE

SlotMap = Mapping[str, str | Sequence[str]]

# Attribute types as operators declare them: name -> field of the one-of.
ATTR_FIELDS = {
    "bool": "b",
    "int": "i",
    "float": "f",
    "string": "s",
    "ints": "ints",
    "floats": "floats",
    "strings": "strings",
    "bools": "bools",
    "tensor": "tensor",
    "net": "net",
    "dtype": "dtype",
}
_FIELD_TYPES = {field: name for name, field in ATTR_FIELDS.items()}
_SCALAR_FIELDS = {bool: "b", int: "i", float: "f", str: "s"}
_LIST_FIELDS = frozenset({"ints", "floats", "strings", "bools"})
_MAX_TENSOR_BYTES = 1 << 30
_TENSOR = Heads(pb.Attr.TENSOR_FIELD_NUMBER)
_DATA = Heads(pb.Tensor.DATA_FIELD_NUMBER)


def encode_attr(value: Any, type_name: str | None = None) -> pb.Attr:
    """A Python value as an `Attr`; without `type_name` the field follows the value's own type."""
    attr = pb.Attr()
    _encode(attr, value, type_name)
    return attr


def _encode(attr: pb.Attr, value: Any, type_name: str | None = None) -> None:
    """Fill an `Attr` that holds nothing."""
    if type_name:
        field = ATTR_FIELDS[type_name]
    else:
        field = _SCALAR_FIELDS.get(type(value)) or _guess_field(value)
    try:
        if field in _LIST_FIELDS:
            getattr(attr, field).SetInParent()
            getattr(attr, field).values.extend(value)
        elif field == "tensor":
            _set_tensor(attr.tensor, np.asarray(value))
        elif field == "net":
            attr.net.CopyFrom(value)
        elif field == "dtype":
            attr.dtype = to_pb(value)
        else:
            setattr(attr, field, value)
    except (TypeError, ValueError) as error:
        raise AttributeTypeError(f"{value!r} is no {_FIELD_TYPES[field]}: {error}") from None


def _set_tensor(tensor: pb.Tensor, array: np.ndarray) -> None:
    """Write an array into a `Tensor`."""
    tensor.dtype = to_pb(array.dtype)
    tensor.dims[:] = array.shape
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    tensor.data = array.tobytes()


def attr_bytes(value: Any) -> bytes:
    """The wire form of an `Attr` that holds a Python value."""
    if not isinstance(value, np.ndarray) or sys.byteorder == "big":
        return encode_attr(value).SerializeToString()
    known, data = _tensor_head(value.dtype, value.shape), value.tobytes()
    head = _DATA[len(data)]
    return b"".join((_TENSOR[len(known) + len(head) + len(data)], known, head, data))


@lru_cache(maxsize=1024)
def _tensor_head(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The wire form of a `Tensor` without its data."""
    return pb.Tensor(dtype=to_pb(dtype), dims=shape).SerializeToString()


def _guess_field(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "b"
    if isinstance(value, (int, np.integer)):
        return "i"
    if isinstance(value, (float, np.floating)):
        return "f"
    if isinstance(value, str):
        return "s"
    if isinstance(value, np.dtype):
        return "dtype"
    if isinstance(value, np.ndarray):
        return "tensor"
    if isinstance(value, pb.NetDesc):
        return "net"
    if isinstance(value, (list, tuple)):
        for kind, field in (((bool, np.bool_), "bools"), ((int, np.integer), "ints")):
            if all(isinstance(item, kind) for item in value):
                return field
        if all(isinstance(item, str) for item in value):
            return "strings"
        return "floats"
    raise AttributeTypeError(f"an attribute cannot hold a {type(value).__name__}: {value!r}")


def attr_type(attr: pb.Attr) -> str:
    """`int`, `floats`, ...: the declared name of what an `Attr` holds; "" when it is unset."""
    field = attr.WhichOneof("value")
    return _FIELD_TYPES[field] if field else ""


def decode_attr(attr: pb.Attr) -> Any:
    """The Python value of an `Attr`: a scalar, a tuple, an array, a NetDesc or a dtype."""
    field = attr.WhichOneof("value")
    if field is None:
        raise FormatError("an attribute of the net holds no value")
    value = getattr(attr, field)
    if field in _LIST_FIELDS:
        return tuple(value.values)
    if field == "tensor":
        return _decode_tensor(value)
    if field == "dtype":
        return to_dtype(value)
    return value


def _decode_tensor(tensor: pb.Tensor) -> np.ndarray:
    dtype = to_dtype(tensor.dtype)
    count = 1
    for dim in tensor.dims:
        count *= dim
    wanted = count * dtype.itemsize
    if any(dim < 0 for dim in tensor.dims) or wanted > _MAX_TENSOR_BYTES:
        raise FormatError(f"a tensor attribute has the dims {list(tensor.dims)}")
    if wanted != len(tensor.data):
        raise FormatError(
            f"a tensor attribute of dims {list(tensor.dims)} and dtype {dtype} wants {wanted} bytes"
            f" and holds {len(tensor.data)}"
        )
    return np.frombuffer(tensor.data, dtype.newbyteorder("<")).astype(dtype).reshape(tensor.dims)


def as_names(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def make_op(
    op_type: str,
    inputs: SlotMap,
    outputs: SlotMap,
    attrs: Mapping[str, Any] | None = None,
    *,
    role: int = FORWARD,
    device: str = "",
    source: pb.SourceLocation | None = None,
) -> pb.OpDesc:
    """An OpDesc from plain Python values. Slots without variables are left out."""
    op = pb.OpDesc(
        type=op_type, role=role, device=device, inputs=_slots(inputs), outputs=_slots(outputs)
    )
    if attrs:
        set_attrs(op, attrs)
    if source is not None:
        op.source.CopyFrom(source)
    return op


def set_attrs(op: pb.OpDesc, attrs: Mapping[str, Any]) -> None:
    """Write attributes from plain Python values; None leaves one as it is."""
    encoded = op.attrs
    for name, value in attrs.items():
        if isinstance(value, pb.Attr):
            encoded[name].CopyFrom(value)
        elif value is not None:
            _encode(encoded[name], value)


def _slots(given: SlotMap) -> list[dict[str, Any]]:
    """The fields of the slots that hold something."""
    return [
        {"name": slot, "vars": listed}
        for slot, names in given.items()
        if (listed := as_names(names))
    ]


def make_var(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: object = "float32",
    kind: int = TEMPORARY,
    *,
    initializer: pb.OpDesc | None = None,
    source: pb.SourceLocation | None = None,
    **fields: Any,
) -> pb.VarDesc:
    """A VarDesc; `shape` None means that even the rank is unknown, -1 an unknown dimension."""
    if dtype is not None:
        fields["dtype"] = to_pb(dtype)
    if shape is not None:
        fields["dims"], fields["has_dims"] = [int(dim) for dim in shape], True
    var = pb.VarDesc(name=name, kind=kind, **fields)
    if initializer is not None:
        var.initializer.CopyFrom(initializer)
    if source is not None:
        var.source.CopyFrom(source)
    return var


def var_shape(var: pb.VarDesc) -> tuple[int, ...] | None:
    return tuple(var.dims) if var.has_dims else None


def var_dtype(var: pb.VarDesc) -> np.dtype | None:
    return to_dtype(var.dtype) if var.dtype else None


def slot_map(slots: Iterable[pb.OpDesc.Slot]) -> dict[str, list[str]]:
    return {slot.name: list(slot.vars) for slot in slots}


def input_names(op: pb.OpDesc) -> Iterator[str]:
    for slot in op.inputs:
        yield from slot.vars


def output_names(op: pb.OpDesc) -> Iterator[str]:
    for slot in op.outputs:
        yield from slot.vars


def inner_nets(op: pb.OpDesc) -> Iterator[tuple[str, pb.NetDesc]]:
    """Attributes that are nets, by name."""
    for name in sorted(op.attrs):
        if op.attrs[name].WhichOneof("value") == "net":
            yield name, op.attrs[name].net


def the_step(desc: pb.NetDesc, kind: int, title: str) -> pb.StepDesc:
    """The step net of a net of type `kind`. Raises FormatError: another type, or not one step."""
    if desc.type != kind or len(desc.steps) != 1:
        wanted, found = (pb.NetDesc.Type.Name(one) for one in (kind, desc.type))
        raise FormatError(
            f"{title}: wants a {wanted} net with 1 step net, not {found} with {len(desc.steps)}"
        )
    return desc.steps[0]


def rename_vars(op: pb.OpDesc, mapping: Mapping[str, str]) -> pb.OpDesc:
    """A copy of `op` whose variables are renamed."""
    copy = pb.OpDesc()
    copy.CopyFrom(op)
    for slots in (copy.inputs, copy.outputs):
        for slot in slots:
            slot.vars[:] = [mapping.get(name, name) for name in slot.vars]
    return copy


def clone(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


_PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_PACKAGE_PARTS = tuple(
    _PACKAGE_DIR + part + os.sep
    for part in ("framework", "operators", "python_api", "nnet3", "cntk")
)


def caller_location() -> pb.SourceLocation:
    """The innermost Python line outside the package: where a user wrote the call."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE_PARTS):
        frame = frame.f_back
    if frame is None:
        return pb.SourceLocation()
    return pb.SourceLocation(file=frame.f_code.co_filename, line=frame.f_lineno)


def format_location(source: pb.SourceLocation) -> str:
    """`file:line:column` with the parts that are known; "" when none is."""
    parts = [source.file] + [str(n) for n in (source.line, source.column) if n]
    return ":".join(parts) if source.file else ""


def parse_net(data: bytes, where: str = "net") -> pb.NetDesc:
    """A NetDesc from its wire form.

    Raises:
        FormatError: the bytes are no NetDesc, or one of a newer format; `where` names their origin.
    """
    net = pb.NetDesc()
    try:
        net.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        raise FormatError(f"{where}: {len(data)} bytes are no NetDesc: {error}") from None
    if net.format_version > FORMAT_VERSION:
        raise FormatError(
            f"{where}: format version {net.format_version} is newer than {FORMAT_VERSION},"
            " the newest that this opscope reads; upgrade opscope"
        )
    if net.format_version < 1:
        raise FormatError(f"{where}: holds no format version, so it is no saved net")
    return net


def serialize_net(net: pb.NetDesc) -> bytes:
    """The wire form; equal nets give equal bytes."""
    copy = clone(net)
    copy.format_version = FORMAT_VERSION
    return copy.SerializeToString(deterministic=True)
