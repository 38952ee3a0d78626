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

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import NAMES
from ..base.errors import format_shape
from .attributes.tensors import tensor_bytes
from .desc import KIND_NAMES, ROLE_NAMES, TYPE_NAMES, enum_name, format_location
from .messages import (
    FORMAT_VERSION,
    as_op_list,
    listed_slots,
    op_from_message,
    var_from_message,
)
from .nesting import check_inner_nets
from .op_list import OpList, OpNode, SlotNames, SourceLocation, StepDecl, VarDecl

_PLAIN_NAME = re.compile(r"[^\s\"'(),=\[\]{}#%]+")
_SHOWN_ELEMENTS = 8  # of a tensor attribute; larger ones show their checksum
_INDENT = "  "


def net_text(desc: OpList | pb.NetDesc, *, locations: bool = False, variables: bool = True) -> str:
    """A net as text, with nested and step nets indented below.

    Args:
        locations: add `@file:line` where a thing was written; left out, the text of a net does not
            depend on where it was built.
        variables: also list the variables.
    """
    return "\n".join(_net_lines(check_inner_nets(as_op_list(desc)), locations, variables)) + "\n"


def op_text(op: OpNode | pb.OpDesc, index: int = -1, *, locations: bool = False) -> str:
    """One operator as one line; nested nets show by name only."""
    if isinstance(op, pb.OpDesc):
        op = op_from_message(op)
    number = f"%{index} " if index >= 0 else ""
    line = f"{number}{_name(op.type)}({_slots(op.inputs)}) -> {_slots(op.outputs) or '()'}"
    if op.attrs:
        line += f"  {{{_attrs(op.attrs)}}}"
    line += f"  #{enum_name(ROLE_NAMES, op.role).lower().lstrip('#')}"
    if op.device:
        line += f" on {op.device}"
    return line + _location(op.source, locations)


def var_text(var: VarDecl | pb.VarDesc, *, locations: bool = False) -> str:
    """One variable as one line: kind, name, type and flags, two spaces between them."""
    if isinstance(var, pb.VarDesc):
        var = var_from_message(var)
    kind = enum_name(KIND_NAMES, var.kind).lower()
    flags = _flags(var) + _location(var.source, locations)
    return f"{kind}  {_name(var.name)}  {type_text(var)}{flags}"


def _net_lines(desc: OpList, locations: bool, variables: bool) -> Iterator[str]:
    kind = enum_name(TYPE_NAMES, desc.type)
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
        for name, inner in op.inner_nets():
            yield f"{_INDENT * 2}{_name(name)}:"
            yield from _indented(_net_lines(inner, locations, variables), _INDENT * 3)
    for number, step in enumerate(desc.steps):
        yield f"step {number}" + _step_options(step)
        yield from _indented(step_lines(step))
        yield from _indented(_net_lines(step.net, locations, variables))
        if step.child_net is not None:
            yield f"child net of step {number}"
            yield from _indented(_net_lines(step.child_net, locations, variables))


def _indented(lines: Iterable[str], by: str = _INDENT) -> Iterator[str]:
    for line in lines:
        yield by + line


def _var_lines(variables: Iterable[VarDecl], locations: bool) -> Iterator[str]:
    rows = [
        (enum_name(KIND_NAMES, var.kind).lower(), _name(var.name), type_text(var), var)
        for var in variables
    ]
    kind_width = max(len(row[0]) for row in rows)
    name_width = max(len(row[1]) for row in rows)
    for kind, name, shown, var in rows:
        line = f"{kind:{kind_width}}  {name:{name_width}}  {shown}"
        yield line + _flags(var) + _location(var.source, locations)


def type_text(var: VarDecl) -> str:
    """`float32[?, 64]`; `?` and `[...]` for what is unknown."""
    if var.unknown_dtype:  # a file may hold any number
        return f"dtype#{var.unknown_dtype}{format_shape(var.shape)}"
    return f"{var.dtype if var.dtype is not None else '?'}{format_shape(var.shape)}"


def _flags(var: VarDecl) -> str:
    flags = []
    if var.sequence_levels:
        flags.append(f"sequence_levels={var.sequence_levels}")
    view = var.view
    if view is not None:
        rows = _range(view.row_begin, view.row_end)
        cols = _range(view.col_begin, view.col_end)
        flags.append(f"view={_name(view.base)}[{rows}, {cols}]")
    if var.stop_gradient:
        flags.append("stop_gradient")
    if var.lr_factor is not None:
        flags.append(f"lr_factor={var.lr_factor!r}")
    init = var.initializer
    if init is not None and init.type:
        given = [_slots(init.inputs), _attrs(init.attrs)]
        flags.append(f"init={_name(init.type)}({', '.join(part for part in given if part)})")
    return "".join(f"  {flag}" for flag in flags)


def _range(begin: int, end: int) -> str:
    return f"{begin or ''}:{end if end >= 0 else ''}"


def _slots(slots: SlotNames) -> str:
    parts = []
    for slot, variables in listed_slots(slots):
        names = [_name(name) for name in variables]
        shown = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
        parts.append(f"{_name(slot)}={shown}")
    return ", ".join(parts)


def _attrs(attrs: Mapping[str, object]) -> str:
    return ", ".join(f"{_name(name)}={_value(attrs[name])}" for name in sorted(attrs))


def _value(value: object) -> str:
    if isinstance(value, OpList):
        return f"<net {json.dumps(value.name)}>"
    if isinstance(value, np.ndarray):
        return _tensor(value)
    if isinstance(value, pb.Attr):
        return _damaged(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    # Before numbers: True is an int and would print as 1 or True.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    # repr gives the shortest text that reads back as the same number.
    return str(value) if not isinstance(value, float) else repr(value)


def _tensor(array: np.ndarray) -> str:
    kind = f"{NAMES[array.dtype]}{list(array.shape)}"
    if array.size <= _SHOWN_ELEMENTS:
        return f"<tensor {kind}: {', '.join(map(str, array.ravel().tolist()))}>"
    # The checksum makes golden texts notice a changed constant without holding it.
    return f"<tensor {kind} crc32 {zlib.crc32(tensor_bytes(array)):08x}>"


def _damaged(attr: pb.Attr) -> str:
    """The text of an attribute that cannot be decoded: an unset one, a damaged array or dtype."""
    field = attr.WhichOneof("value")
    if field == "tensor":
        known = pb.DataType.DESCRIPTOR.values_by_number
        number = attr.tensor.dtype
        dtype = known[number].name.lower() if number in known else f"#{number}"
        return f"<damaged tensor {dtype}{list(attr.tensor.dims)}>"
    return "<nothing>" if field is None else f"<dtype#{attr.dtype}>"


def _step_options(step: StepDecl) -> str:
    flags = ["reverse"] if step.reverse else []
    if step.arity:
        flags.append(f"arity={step.arity}")
    return "".join(f"  {flag}" for flag in flags)


def step_lines(step: StepDecl) -> Iterator[str]:
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


def _location(source: SourceLocation | None, wanted: bool) -> str:
    shown = format_location(source) if wanted else ""
    return f" @{shown}" if shown else ""
