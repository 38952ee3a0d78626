"""The verifier finds every mistake in a net that can be seen without data.

`problems` lists all of it; `verify` raises the first error as the package's own exception type. The
rules run over one description at a time and go down into nested nets and step nets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ....proto import net_pb2 as pb
from ...base.backend import parse_place
from ...base.dtypes import NAMES
from ...base.errors import (
    AttributeTypeError,
    DeviceError,
    OpscopeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    doubled,
    format_shape,
    nearest,
    one_list,
)
from ...base.sizes.shape import ArraySpec, fits
from ...base.untrusted.values import MAX_RANK
from ...ir.desc import (
    BACKWARD,
    FORWARD,
    KIND_NAMES,
    OPTIMIZE,
    ROLE_NAMES,
    enum_name,
    format_location,
)
from ...ir.infer import declared_spec, infer_specs, view_shape
from ...ir.messages import as_op_list
from ...ir.names import EMPTY, stage_of_device
from ...ir.nesting import check_inner_nets
from ...ir.op_list import OpList, OpNode, RepeatedSlots, VarDecl
from ...ir.operation import Operator
from ...ir.packages import missing_packages
from .net_check import ERROR, KINDS, NetCheck, Problem
from .steps import nested, step_nets
from .values import definitions, double_writes, unused

_KIND_OF = {
    UnknownOperatorError: "unknown-operator",
    SlotError: "slot",
    AttributeTypeError: "attribute",
    DeviceError: "device",
    ShapeError: "shape",
}


def verify(desc: OpList | pb.NetDesc, stage: str = "", *, undeclared: bool = False) -> None:
    """Check a net; warnings do not count.

    Args:
        stage: what has just happened to the net (`after pass fuse`), for the message.
        undeclared: whether it may read variables that it does not declare, from the scope.

    Raises:
        OpscopeError: the first error, as the type that `KINDS` tells; others follow in its text.
    """
    net = as_op_list(desc)
    errors = [
        problem
        for problem in problems(net)
        if problem.severity == ERROR and not (undeclared and problem.kind == "undefined")
    ]
    if not errors:
        return
    title = f"net {net.name!r}" if net.name else "net"
    prefix = f"{title} {stage}".rstrip()
    more = "".join(f"\n  also: {problem.message}" for problem in errors[1:])
    raise KINDS[errors[0].kind](f"{prefix}: {errors[0].message}{more}")


@one_list()
def problems(desc: OpList | pb.NetDesc) -> list[Problem]:
    """All that is wrong or suspicious: errors first, each group in the order of operators."""
    net = check_inner_nets(as_op_list(desc))
    found = NetCheck(net, _RULES).run()
    missing = missing_packages(net.metadata) if found else {}
    listed = [_with_package(problem, missing) for problem in found]
    return sorted(listed, key=lambda problem: (problem.severity != ERROR, problem.op))


def _with_package(problem: Problem, missing: Mapping[str, str]) -> Problem:
    """The problem of an operator that is not there, with the package that the net had it from."""
    if problem.kind != "unknown-operator":
        return problem
    told = [
        f"; the net has it from {package}, which is not installed here"
        for op_type, package in missing.items()
        if repr(op_type) in problem.message
    ]
    return replace(problem, message="".join([problem.message, *told]))


def _declarations(net: NetCheck) -> None:
    """Variables have names, one each, and sizes."""
    seen = set()
    for var in net.desc.vars:
        where = format_location(var.source)
        at = f" at {where}" if where else ""
        if not var.name or var.name == EMPTY:
            net.add("declaration", f"a variable{at} is named {var.name!r}")
        elif var.name in seen:
            net.add("doubly-defined", f"variable {var.name!r}{at} is declared twice")
        seen.add(var.name)
        if var.shape is not None and any(dim < -1 for dim in var.shape):
            net.add("shape", f"variable {var.name!r}{at} has the dims {list(var.shape)}")
        for fault in _field_faults(var):
            net.add("declaration", f"variable {var.name!r}{at} {fault}")
        if var.initializer is not None and var.initializer.type:
            _initializer(net, var.name, var.initializer)


def _field_faults(var: VarDecl) -> Iterator[str]:
    """What no variable has: values that only a damaged file, or one of a later format, can give."""
    if not 0 <= var.kind < len(KIND_NAMES):
        yield f"is of kind {var.kind}; there are {', '.join(KIND_NAMES)}"
    if var.shape is not None and len(var.shape) > MAX_RANK:
        yield f"has {len(var.shape)} dimensions; {MAX_RANK} is the most"
    if var.sequence_levels and var.shape == ():
        yield "holds sequences, and is a single number"
    if var.sequence_levels > MAX_RANK:
        yield f"has {var.sequence_levels} levels of sequences; {MAX_RANK} is the most"
    if var.lr_factor is not None and not math.isfinite(var.lr_factor):
        yield f"has the learning rate factor {var.lr_factor}"


def _initializer(net: NetCheck, name: str, fill: OpNode) -> None:
    prefix = f"the initializer of {name!r}"
    op = _decode(net, fill, -1, f"{prefix}: ")
    if op is not None and op.output_vars() != [name]:
        written = ", ".join(op.output_vars()) or "nothing"
        net.add("slot", f"{prefix}: {op.title()} writes {written}, not {name}")


def _views(net: NetCheck) -> None:
    """Views are rectangles of variables that are none."""
    for name, base in net.root.items():
        why = _view_fault(net, net.vars[name], base)
        if why:
            net.add("view", why)
            net.unsound.add(name)


def _view_fault(net: NetCheck, var: VarDecl, base: str) -> str:
    title = f"view {var.name!r}"
    if base not in net.vars:
        return f"{title}: its base {base!r} is not declared{nearest(base, net.vars)}"
    if base in net.root:
        root = net.root[base]
        return f"{title}: its base {base!r} is itself a view; take a rectangle of {root!r}"
    target = net.vars[base]
    own, other = var.dtype, target.dtype
    if own is not None and other is not None and own != other:
        return f"{title}: it is {NAMES[own]} and its base {base!r} {NAMES[other]}"
    if target.shape is None or var.view is None:
        return ""
    try:
        extents = view_shape(var.name, var.view, target.shape)
    except ShapeError as error:
        return str(error)
    if var.shape is not None and not fits(var.shape, extents):
        declared = format_shape(var.shape)
        cut = format_shape(extents)
        return f"view {var.name!r}: it is declared {declared} and its ranges make {cut}"
    return ""


def _operators(net: NetCheck) -> None:
    """Operators are registered; their slots, attributes and devices are theirs."""
    for index, desc in enumerate(net.ops):
        op = _decode(net, desc, index)
        if op is not None:
            net.operators[index] = op


def _decode(net: NetCheck, desc: OpNode, index: int, prefix: str = "") -> Operator | None:
    try:
        op = Operator(desc, index)
        if desc.device and stage_of_device(desc.device) is None:
            parse_place(desc.device)
    except OpscopeError as error:
        net.add(_KIND_OF.get(type(error), "attribute"), f"{prefix}{error}", index)
        return None
    for kind, slots in (("input", desc.inputs), ("output", desc.outputs)):
        if not isinstance(slots, RepeatedSlots):
            continue
        for name in doubled(name for name, _ in slots.listed):
            net.add("slot", f"{prefix}{op.title()}: {kind} slot {name!r} comes twice", index)
    return op


def _roles(net: NetCheck) -> None:
    """Forward operators come first, then backward ones, then updates."""
    order = (FORWARD, BACKWARD, OPTIMIZE)
    latest: int | None = None
    for index, op in enumerate(net.ops):
        if op.role not in order:
            roles = ", ".join(enum_name(ROLE_NAMES, role) for role in order)
            net.add("role", f"{net.title(index)} has the role {op.role}; there are {roles}", index)
            continue
        # Compared with the furthest stage so far: what comes too late is blamed, and not the
        # operators of later stages that follow it.
        rank = order.index(op.role)
        if latest is not None and rank < order.index(net.ops[latest].role):
            name = enum_name(ROLE_NAMES, op.role)
            before = enum_name(ROLE_NAMES, net.ops[latest].role)
            net.add(
                "role",
                f"{net.title(index)} is {name} and stands after {net.title(latest)},"
                f" which is {before}",
                index,
            )
        else:
            latest = index


def _shapes(net: NetCheck) -> None:
    """The first contradiction only: what follows from it would not be news."""
    known: dict[str, ArraySpec] = {}
    for name, var in net.vars.items():
        spec = declared_spec(var)
        if spec is not None and name not in net.root and net.has_value(name):
            known[name] = spec
    taken = [-1]  # the last one is at fault where the inference ends in an error

    def in_turn() -> Iterator[Operator]:
        for index, op in net.operators.items():
            if op.entry.shape is not None or op.entry.expand is not None:
                taken.append(index)
                yield op

    # A view that is no rectangle of its base was reported: its shape would be a second message.
    sound = {name: var for name, var in net.vars.items() if name not in net.unsound}
    try:
        specs = infer_specs(in_turn(), known, sound, partial=True)
    except OpscopeError as error:
        net.add(_KIND_OF.get(type(error), "shape"), str(error), taken[-1])
        return
    for name, var in net.vars.items():
        shape, dtype = specs.get(name, (None, None))
        writer = net.writers.get(name, [-1])[-1]
        if shape is None or writer < 0:
            continue
        at_fault = var.shape is not None and not fits(shape, var.shape)
        declared = declared_spec(var)
        if at_fault or (declared is not None and declared[1] != dtype):
            known_dtype = "dtype_unknown" if var.dtype is None else NAMES[var.dtype]
            wanted = f"{known_dtype}{format_shape(var.shape)}"
            net.add(
                "shape",
                f"{net.title(writer)} writes {dtype}{format_shape(shape)} to {name!r},"
                f" which is declared {wanted}",
                writer,
            )


_RULES: tuple[Callable[[NetCheck], None], ...] = (
    _declarations,
    _views,
    _operators,
    _roles,
    definitions,
    double_writes,
    step_nets,
    nested,
    unused,
    _shapes,
)
