"""The text form of a net: stable, one line an operator; equal nets give equal text.

net "digits" PLAIN version 1
vars
  input      image  float32[?, 64]
  parameter  fc.w   float32[64, 10]  init=uniform(minimum=-0.1)
  temporary  h      float32[?, 10]
ops
  %0 matmul(x=image, y=fc.w) -> out=h  {transpose_y=false}  #forward @train.py:12
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping

from ...proto import net_pb2 as pb
from ..base.errors import OpscopeError, format_shape
from .desc import FORMAT_VERSION, decode_attr, format_location, inner_nets, var_dtype, var_shape

_PLAIN_NAME = re.compile(r"[^\s\"'(),=\[\]{}#%]+")
_SHOWN_ELEMENTS = 8  # of a tensor attribute; larger ones show their checksum
_INDENT = "  "


def net_text(desc: pb.NetDesc, *, locations: bool = False, variables: bool = True) -> str:
    """A net as text, with nested and step nets indented below.

    Args:
        locations: add `@file:line` where a thing was written; left out, the text of a net does not
            depend on where it was built.
        variables: list the variables, too.
    """
    return "\n".join(_net_lines(desc, locations, variables)) + "\n"


def op_text(op: pb.OpDesc, index: int = -1, *, locations: bool = False) -> str:
    """One operator as one line; nested nets show by name only."""
    number = f"%{index} " if index >= 0 else ""
    line = f"{number}{_name(op.type)}({_slots(op.inputs)}) -> {_slots(op.outputs) or '()'}"
    if op.attrs:
        line += f"  {{{_attrs(op.attrs)}}}"
    line += f"  #{_enum(pb.OpDesc.Role, op.role).lower().lstrip('#')}"
    if op.device:
        line += f" on {op.device}"
    return line + _location(op.source, locations)


def var_text(var: pb.VarDesc, *, locations: bool = False) -> str:
    """One variable as one line: kind, name, type and flags, two spaces between them."""
    kind = _enum(pb.VarDesc.Kind, var.kind).lower()
    flags = _flags(var) + _location(var.source, locations)
    return f"{kind}  {_name(var.name)}  {type_text(var)}{flags}"


def _net_lines(desc: pb.NetDesc, locations: bool, variables: bool) -> Iterator[str]:
    kind = _enum(pb.NetDesc.Type, desc.type)
    yield f"net {json.dumps(desc.name)} {kind} version {desc.format_version or FORMAT_VERSION}"
    for key in sorted(desc.metadata):
        yield f"{_INDENT}{_name(key)} = {json.dumps(desc.metadata[key])}"
    if variables and desc.vars:
        yield "vars"
        yield from _indented(_var_lines(desc.vars, locations))
    if desc.ops:
        yield "ops"
    for index, op in enumerate(desc.ops):
        yield _INDENT + op_text(op, index, locations=locations)
        for name, inner in inner_nets(op):
            yield f"{_INDENT * 2}{_name(name)}:"
            yield from _indented(_net_lines(inner, locations, variables), _INDENT * 3)
    for number, step in enumerate(desc.steps):
        yield f"step {number}" + _step_options(step)
        yield from _indented(step_lines(step))
        yield from _indented(_net_lines(step.net, locations, variables))
        if step.HasField("child_net"):
            yield f"child net of step {number}"
            yield from _indented(_net_lines(step.child_net, locations, variables))


def _indented(lines: Iterable[str], by: str = _INDENT) -> Iterator[str]:
    for line in lines:
        yield by + line


def _var_lines(variables: Iterable[pb.VarDesc], locations: bool) -> Iterator[str]:
    rows = [
        (_enum(pb.VarDesc.Kind, var.kind).lower(), _name(var.name), type_text(var), var)
        for var in variables
    ]
    kind_width = max(len(row[0]) for row in rows)
    name_width = max(len(row[1]) for row in rows)
    for kind, name, held, var in rows:
        line = f"{kind:{kind_width}}  {name:{name_width}}  {held}"
        yield line + _flags(var) + _location(var.source, locations)


def type_text(var: pb.VarDesc) -> str:
    """`float32[?, 64]`; `?` and `[...]` for what is unknown."""
    try:
        dtype = var_dtype(var)
    except OpscopeError:  # a file may hold any number
        return f"dtype#{var.dtype}{format_shape(var_shape(var))}"
    return f"{dtype if dtype is not None else '?'}{format_shape(var_shape(var))}"


def _flags(var: pb.VarDesc) -> str:
    flags = []
    if var.sequence_levels:
        flags.append(f"sequence_levels={var.sequence_levels}")
    if var.HasField("view"):
        view = var.view
        rows = _range(view.row_begin, view.row_end)
        cols = _range(view.col_begin, view.col_end)
        flags.append(f"view={_name(view.base)}[{rows}, {cols}]")
    if var.stop_gradient:
        flags.append("stop_gradient")
    if var.HasField("lr_factor"):
        flags.append(f"lr_factor={var.lr_factor!r}")
    if var.initializer.type:
        init = var.initializer
        given = [_slots(init.inputs), _attrs(init.attrs)]
        flags.append(f"init={_name(init.type)}({', '.join(part for part in given if part)})")
    return "".join(f"  {flag}" for flag in flags)


def _range(begin: int, end: int) -> str:
    return f"{begin or ''}:{end if end >= 0 else ''}"


def _slots(slots: Iterable[pb.OpDesc.Slot]) -> str:
    parts = []
    for slot in slots:
        names = [_name(name) for name in slot.vars]
        held = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
        parts.append(f"{_name(slot.name)}={held}")
    return ", ".join(parts)


def _attrs(attrs: Mapping[str, pb.Attr]) -> str:
    return ", ".join(f"{_name(name)}={_value(attrs[name])}" for name in sorted(attrs))


def _value(attr: pb.Attr) -> str:
    field = attr.WhichOneof("value")
    if field == "net":
        return f"<net {json.dumps(attr.net.name)}>"
    if field == "tensor":
        return _tensor(attr.tensor)
    try:
        value = decode_attr(attr)
    except OpscopeError:  # unset, or a dtype that this version does not know
        return "<nothing>" if field is None else f"<dtype#{attr.dtype}>"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value) if not isinstance(value, float) else repr(value)


def _tensor(tensor: pb.Tensor) -> str:
    kind = f"{_enum(pb.DataType, tensor.dtype).lower()}{list(tensor.dims)}"
    attr = pb.Attr(tensor=tensor)
    try:
        array = decode_attr(attr)
    except OpscopeError:
        return f"<damaged tensor {kind}>"
    if array.size <= _SHOWN_ELEMENTS:
        return f"<tensor {kind}: {', '.join(map(str, array.ravel().tolist()))}>"
    return f"<tensor {kind} crc32 {zlib.crc32(tensor.data):08x}>"


def _step_options(step: pb.StepDesc) -> str:
    flags = ["reverse"] if step.reverse else []
    if step.arity:
        flags.append(f"arity={step.arity}")
    return "".join(f"  {flag}" for flag in flags)


def step_lines(step: pb.StepDesc) -> Iterator[str]:
    """Links and memories of a step net, one a line."""
    for word, links in (("in", step.in_links), ("static", step.static_links)):
        for link in links:
            yield f"{word} {_name(link.outer)} -> {_name(link.inner)}"
    for link in step.out_links:
        yield f"out {_name(link.inner)} -> {_name(link.outer)}"
    for link in step.child_links:
        yield f"child {_name(link.outer)} -> {_name(link.inner)}"
    for word, name in (("parents", step.parents), ("positions", step.positions)):
        if name:
            yield f"{word} {_name(name)}"
    for memory in step.memories:
        boot = _name(memory.boot) if memory.boot else repr(memory.boot_value)
        pair = f"{_name(memory.state)} -> {_name(memory.previous)}"
        which = f"delay={memory.delay or 1}"
        if step.parents:
            which = f"child={memory.child}" if step.arity else "sum"
        yield f"memory {pair} {which} boot={boot}"


def _name(name: str) -> str:
    """A name as it is, or quoted where it would not read back as one word."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def _enum(enum: object, value: int) -> str:
    """Name of an enum's value; files of other versions may hold numbers without a name."""
    known = enum.DESCRIPTOR.values_by_number  # type: ignore[attr-defined]
    return known[value].name if value in known else f"#{value}"


def _location(source: pb.SourceLocation, wanted: bool) -> str:
    shown = format_location(source) if wanted else ""
    return f" @{shown}" if shown else ""
