"""Nets in memory from and to the messages of net.proto: the one place that knows their fields.

`to_message` and `from_message` lose nothing: a message that is read and written again is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import DTYPES, to_dtype, to_pb
from ..base.errors import AttributeTypeError, FormatError, OpscopeError
from ..base.untrusted.values import shown
from .attributes.tensors import decode_tensor, set_tensor
from .nesting import check_inner_nets
from .op_list import (
    Link,
    MemoryDecl,
    OpList,
    OpNode,
    RepeatedSlots,
    SlotNames,
    SourceLocation,
    StepDecl,
    VarDecl,
    View,
)
from .sources import make_sources_relative

FORMAT_VERSION = 1

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
_LIST_FIELDS = {bool: "bools", int: "ints", float: "floats", str: "strings"}
_LISTS = frozenset(_LIST_FIELDS.values())
_LEAST_INT = -(1 << 63)
_GREATEST_INT = (1 << 63) - 1


class EmptyList(tuple[Any, ...]):
    """An empty list that keeps its type; () itself is an empty list of bools, as ever.

    Attributes:
        field: of the one-of.
    """

    field: str

    def __new__(cls, field: str) -> EmptyList:
        self = super().__new__(cls)
        self.field = field
        return self


_EMPTY = {field: EmptyList(field) for field in _LISTS if field != "bools"} | {"bools": ()}


# -- attributes --------------------------------------------------------------------------------


def is_attr(value: Any) -> bool:
    """Whether a value is an `Attr`; protobuf, slow to load, is not loaded to know that."""
    return type(value).__name__ == "Attr" and isinstance(value, pb.Attr)


def attr_value(value: Any, type_name: str | None = None) -> Any:
    """The value of an attribute as a net in memory holds it.

    That is a bool, int, float or str; a tuple of one of these; a read-only array; an OpList; a
    dtype; or an `Attr` that cannot be decoded, as it came from a file.

    Args:
        value: the same, or an equivalent: NumPy's scalars, lists, a NetDesc, an `Attr`.
        type_name: the declared type; without it the type follows the value's own.

    Raises:
        AttributeTypeError: no attribute can hold it.
    """
    if type_name is None:
        kind = type(value)
        if kind is float or kind is bool or kind is OpList:
            return value
        if kind is int and _LEAST_INT <= value <= _GREATEST_INT:
            return value
        # Other text may hold half of a surrogate pair; encoding it below finds that.
        if kind is str and value.isascii():
            return value
        # What nearly every attribute is; all others go through a message and back, which is slow.
        if (kind is list or kind is tuple) and value:
            item = type(value[0])
            if item is not str and item in _LIST_FIELDS and all(type(one) is item for one in value):
                if item is not int or (min(value) >= _LEAST_INT and max(value) <= _GREATEST_INT):
                    return tuple(value)
        if kind is EmptyList:
            return value
        if kind is np.ndarray and value.dtype in DTYPES:
            return _frozen(value)
        if isinstance(value, np.dtype) and value in DTYPES:
            return value
        if is_attr(value):
            return _lenient_value(cast(Any, value))
    elif type_name == "net" and isinstance(value, OpList):
        return value
    return decode_attr(encode_attr(value, type_name))


def _frozen(array: np.ndarray) -> np.ndarray:
    """The array itself if it is read-only, else a copy."""
    # A read-only view is not enough: its base may still be written to.
    if array.flags.writeable or array.base is not None or not array.flags.c_contiguous:
        array = array.copy()
        array.setflags(write=False)
    return array


def attr_type(value: Any) -> str:
    """`int`, `floats`, ...: the declared name of the type of what `attr_value` gave.

    An `Attr` that holds nothing has "".
    """
    if is_attr(value):
        field = value.WhichOneof("value")
        return _FIELD_TYPES[field] if field else ""
    return _FIELD_TYPES[_field_of(value)]


def _field_of(value: Any) -> str:
    """The field of the one-of for a value."""
    kind = type(value)
    field = _SCALAR_FIELDS.get(kind)
    if field is not None:
        return field
    if kind is tuple and value:
        item = type(value[0])
        if item in _LIST_FIELDS and all(type(one) is item for one in value):
            return _LIST_FIELDS[item]
    if isinstance(value, EmptyList):
        return value.field
    if isinstance(value, OpList) or (kind is not np.ndarray and isinstance(value, pb.NetDesc)):
        return "net"
    return _guess_field(value)


def _guess_field(value: Any) -> str:
    """The field for a value that is not yet as nets hold it."""
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
    if isinstance(value, (list, tuple)):
        # bool first: it is an int to Python.
        for kind, field in (((bool, np.bool_), "bools"), ((int, np.integer), "ints")):
            if all(isinstance(item, kind) for item in value):
                return field
        if all(isinstance(item, str) for item in value):
            return "strings"
        return "floats"
    raise AttributeTypeError(f"an attribute cannot hold a {type(value).__name__}: {value!r}")


def encode_attr(value: Any, type_name: str | None = None) -> pb.Attr:
    """A Python value as an `Attr`; without `type_name` the field follows the value's own type.

    Raises:
        AttributeTypeError: no `Attr` can hold it.
    """
    attr = pb.Attr()
    _encode(attr, value, type_name)
    return attr


def _encode(attr: pb.Attr, value: Any, type_name: str | None = None) -> None:
    """Fill an `Attr` that holds nothing."""
    field = ATTR_FIELDS[type_name] if type_name else _field_of(value)
    try:
        if field in _LISTS:
            # An empty list must be set as well, or the attribute would hold nothing.
            getattr(attr, field).SetInParent()
            getattr(attr, field).values.extend(value)
        elif field == "tensor":
            set_tensor(attr.tensor, np.asarray(value))
        elif field == "net":
            attr.net.CopyFrom(to_message(value) if isinstance(value, OpList) else value)
        elif field == "dtype":
            attr.dtype = to_pb(value)  # type: ignore[assignment]  the enum's stub knows no ints
        else:
            setattr(attr, field, value)
    except (TypeError, ValueError) as error:
        raise AttributeTypeError(f"{value!r} is no {_FIELD_TYPES[field]}: {error}") from None


def decode_attr(attr: pb.Attr) -> Any:
    """The value of an `Attr`: a scalar, a tuple, an array, an OpList or a dtype.

    Raises:
        FormatError: it holds nothing, or a damaged array.
        ShapeError: it holds an unknown dtype.
    """
    field = attr.WhichOneof("value")
    if field is None:
        raise FormatError("an attribute of the net holds no value")
    value = getattr(attr, field)
    if field in _LISTS:
        return tuple(value.values) or _EMPTY[field]
    if field == "tensor":
        return decode_tensor(value)
    if field == "dtype":
        return to_dtype(value)
    if field == "net":
        return from_message(value)
    return value


def undamaged(value: Any) -> Any:
    """The value of an attribute in memory; one that was damaged in its file is still an `Attr`.

    Raises:
        FormatError, ShapeError: it is damaged.
    """
    return decode_attr(value) if is_attr(value) else value


def _lenient_value(attr: pb.Attr) -> Any:
    """As `decode_attr`; a damaged `Attr` stays as it is and is refused when it is used."""
    try:
        return decode_attr(attr)
    except OpscopeError:
        return attr


# -- to messages -------------------------------------------------------------------------------


def to_message(net: OpList) -> pb.NetDesc:
    """The NetDesc of a net.

    Raises:
        FormatError: a name is no text in UTF-8.
    """
    desc = pb.NetDesc()
    try:
        _fill_net(desc, net)
    except UnicodeEncodeError as error:
        raise FormatError(f"{shown(error.object)} is no text in UTF-8") from None
    return desc


def _fill_net(desc: pb.NetDesc, net: OpList) -> None:
    desc.format_version, desc.name, desc.type = net.format_version, net.name, net.type  # type: ignore[assignment]
    for var in net.vars:
        _fill_var(desc.vars.add(), var)
    for op in net.ops:
        _fill_op(desc.ops.add(), op)
    for step in net.steps:
        _fill_step(desc.steps.add(), step)
    desc.metadata.update(net.metadata)


def _fill_op(desc: pb.OpDesc, op: OpNode) -> None:
    desc.type, desc.role, desc.device = op.type, op.role, op.device  # type: ignore[assignment]
    for target, slots in ((desc.inputs, op.inputs), (desc.outputs, op.outputs)):
        for name, variables in listed_slots(slots):
            target.add(name=name, vars=variables)
    for name, value in op.attrs.items():
        if is_attr(value):
            desc.attrs[name].CopyFrom(value)
        else:
            _encode(desc.attrs[name], value)
    if op.source is not None:
        _fill_source(desc.source, op.source)


def listed_slots(slots: SlotNames) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The slots one by one, also where a file gives one of them twice."""
    return slots.listed if isinstance(slots, RepeatedSlots) else slots.items()


def _fill_source(desc: pb.SourceLocation, source: SourceLocation) -> None:
    desc.SetInParent()
    desc.file, desc.line, desc.column = source


def _fill_var(desc: pb.VarDesc, var: VarDecl) -> None:
    desc.name, desc.kind = var.name, var.kind  # type: ignore[assignment]
    if var.unknown_dtype:
        desc.dtype = var.unknown_dtype  # type: ignore[assignment]
    elif var.dtype is not None:
        desc.dtype = to_pb(var.dtype)  # type: ignore[assignment]
    if var.shape is not None:
        desc.dims.extend(var.shape)
        # A scalar has no dims either; the flag tells it from an unknown rank.
        desc.has_dims = True
    if var.initializer is not None:
        desc.initializer.SetInParent()
        _fill_op(desc.initializer, var.initializer)
    if var.lr_factor is not None:
        desc.lr_factor = var.lr_factor
    desc.stop_gradient = var.stop_gradient
    if var.view is not None:
        desc.view.SetInParent()
        desc.view.base, desc.view.row_begin, desc.view.row_end = var.view[:3]
        desc.view.col_begin, desc.view.col_end = var.view[3:]
    desc.sequence_levels = var.sequence_levels
    if var.source is not None:
        _fill_source(desc.source, var.source)


_LINKS = ("in_links", "out_links", "static_links", "sum_links", "child_links")
_MEMORY = ("state", "previous", "boot", "boot_value", "delay", "final", "child")
_STEP = ("reverse", "arity", "parents", "positions")


def _fill_step(desc: pb.StepDesc, step: StepDecl) -> None:
    # An empty inner net stays unset, so that a message read and written again has the same bytes.
    if step.net.vars or step.net.ops or step.net.steps or step.net.name or step.net.metadata:
        _fill_net(desc.net, step.net)
    for field in _LINKS:
        links = getattr(desc, field)
        for link in getattr(step, field):
            links.add(outer=link.outer, inner=link.inner)
    for memory in step.memories:
        desc.memories.add(**{name: getattr(memory, name) for name in _MEMORY})
    for field in _STEP:
        setattr(desc, field, getattr(step, field))
    if step.child_net is not None:
        desc.child_net.SetInParent()
        _fill_net(desc.child_net, step.child_net)


# -- from messages -----------------------------------------------------------------------------


def from_message(desc: pb.NetDesc) -> OpList:
    """The net that a NetDesc describes. What is wrong with it is left to who uses it."""
    return OpList(
        desc.name,
        desc.type,
        [var_from_message(var) for var in desc.vars],
        [op_from_message(op) for op in desc.ops],
        [_read_step(step) for step in desc.steps],
        dict(desc.metadata),
        desc.format_version,
    )


def as_op_list(net: OpList | pb.NetDesc) -> OpList:
    """The net itself, or the net of a NetDesc.

    Raises:
        OpscopeError: it is neither.
    """
    if isinstance(net, OpList):
        return net
    if not isinstance(net, pb.NetDesc):
        raise OpscopeError(f"want a NetDesc, such as the `desc` of a net, not {net!r}")
    return from_message(net)


def op_from_message(desc: pb.OpDesc) -> OpNode:
    """The operator that an OpDesc describes."""
    attrs: Mapping[str, pb.Attr] = desc.attrs
    return OpNode(
        desc.type,
        _read_slots(desc.inputs),
        _read_slots(desc.outputs),
        # Sorted: the order of a protobuf map differs from process to process.
        {name: _lenient_value(attrs[name]) for name in sorted(attrs)} if attrs else {},
        desc.role,
        desc.device,
        _read_source(desc.source) if desc.HasField("source") else None,
    )


def _read_slots(slots: Iterable[pb.OpDesc.Slot]) -> SlotNames:
    listed = [(slot.name, tuple(slot.vars)) for slot in slots]
    by_name = dict(listed)
    return by_name if len(by_name) == len(listed) else RepeatedSlots(listed)


def _read_source(source: pb.SourceLocation) -> SourceLocation:
    return SourceLocation(source.file, source.line, source.column)


def var_from_message(desc: pb.VarDesc) -> VarDecl:
    """The variable that a VarDesc describes."""
    return VarDecl(
        desc.name,
        tuple(desc.dims) if desc.has_dims else None,
        _read_dtype(desc.dtype),
        desc.kind,
        op_from_message(desc.initializer) if desc.HasField("initializer") else None,
        desc.lr_factor if desc.HasField("lr_factor") else None,
        desc.stop_gradient,
        _read_view(desc.view) if desc.HasField("view") else None,
        desc.sequence_levels,
        _read_source(desc.source) if desc.HasField("source") else None,
    )


def _read_dtype(number: int) -> np.dtype | int | None:
    """The dtype, or the number where no dtype has it."""
    if not number:
        return None
    try:
        return to_dtype(number)
    except OpscopeError:
        return number


def _read_view(view: pb.VarDesc.View) -> View:
    return View(view.base, view.row_begin, view.row_end, view.col_begin, view.col_end)


def _read_step(desc: pb.StepDesc) -> StepDecl:
    step = StepDecl(from_message(desc.net))
    for field in _LINKS:
        setattr(step, field, [Link(link.outer, link.inner) for link in getattr(desc, field)])
    for memory in desc.memories:
        step.memories.append(MemoryDecl(*[getattr(memory, name) for name in _MEMORY]))
    for field in _STEP:
        setattr(step, field, getattr(desc, field))
    if desc.HasField("child_net"):
        step.child_net = from_message(desc.child_net)
    return step


# -- files -------------------------------------------------------------------------------------


def parse_net(data: bytes, where: str = "net") -> pb.NetDesc:
    """A NetDesc from its wire form.

    Raises:
        FormatError: the bytes are no NetDesc, or one of a newer format; `where` names their origin.
    """
    net = pb.NetDesc()
    try:
        net.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        why = _other_kind(data) or error
        raise FormatError(f"{where}: {len(data)} bytes are no NetDesc: {why}") from None
    if net.format_version > FORMAT_VERSION:
        raise FormatError(
            f"{where}: format version {net.format_version} is newer than {FORMAT_VERSION},"
            " the newest that this opscope reads; upgrade opscope"
        )
    # Proto3 reads almost any short bytes as an empty message; the version is never 0 in a saved
    # net.
    if net.format_version < 1:
        why = _other_kind(data)
        raise FormatError(
            f"{where}: holds no format version, so it is no saved net{why and ': '}{why}"
        )
    return net


def _other_kind(data: bytes) -> str:
    from ..base.untrusted.other_kinds import other_kind  # few files are no nets

    return other_kind(data)


def serialize_net(net: OpList | pb.NetDesc, *, absolute_sources: bool = False) -> bytes:
    """The wire form; equal nets give equal bytes. See `sources.py` for paths of source files."""
    if isinstance(net, OpList):
        desc = to_message(check_inner_nets(net))
    else:
        desc = pb.NetDesc()
        desc.CopyFrom(net)
    # Whatever it was read as: what is written has this version's fields.
    desc.format_version = FORMAT_VERSION
    if not absolute_sources:
        make_sources_relative(desc)
    return desc.SerializeToString(deterministic=True)
