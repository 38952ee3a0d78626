"""Making and looking into operators and variables of nets in memory; see `op_list.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import DTYPES, to_dtype
from ..base.errors import AttributeTypeError, FormatError
from .messages import attr_value
from .op_list import OpList, OpNode, SlotNames, SourceLocation, StepDecl, VarDecl, View

if TYPE_CHECKING:
    NetDesc = pb.NetDesc

FORWARD, BACKWARD, OPTIMIZE = 0, 1, 2  # OpDesc.Role
TEMPORARY, INPUT, PARAMETER, STATE, OUTPUT = 0, 1, 2, 3, 4  # VarDesc.Kind
PLAIN, RECURRENT, RECURSIVE = 0, 1, 2  # NetDesc.Type

ROLE_NAMES = ("FORWARD", "BACKWARD", "OPTIMIZE")
KIND_NAMES = ("TEMPORARY", "INPUT", "PARAMETER", "STATE", "OUTPUT")
TYPE_NAMES = ("PLAIN", "RECURRENT", "RECURSIVE")

SlotMap = Mapping[str, str | Sequence[str]]


def __getattr__(name: str) -> Any:
    if name == "NetDesc":  # the message, which is loaded where one is made or read
        return pb.NetDesc
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enum_name(names: Sequence[str], value: int) -> str:
    """The name of a role, kind or type; files of other versions may hold numbers without one."""
    return names[value] if 0 <= value < len(names) else f"#{value}"


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
    source: SourceLocation | None = None,
) -> OpNode:
    """An operator from plain Python values. Slots without variables are left out.

    Args:
        attrs: see `attr_value`; those that are None are left out.

    Raises:
        AttributeTypeError: no attribute can hold a value.
    """
    return OpNode(
        op_type,
        _slots(inputs),
        _slots(outputs),
        attr_values(attrs) if attrs else {},
        role,
        device,
        source,
    )


def attr_values(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as a net in memory holds them, without those that are None.

    Raises:
        AttributeTypeError: they are not given by name, or no attribute can hold one.
    """
    if type(attrs) is not dict and not isinstance(attrs, Mapping):
        raise AttributeTypeError(f"attributes go by name, {{'scale': 2.0}}, not {attrs!r}")
    return {name: attr_value(value) for name, value in attrs.items() if value is not None}


def _slots(given: SlotMap) -> SlotNames:
    """The slots that hold something."""
    slots = {}
    for slot, names in given.items():
        if type(names) is str:
            slots[slot] = (names,)
        elif names:
            slots[slot] = tuple([_plain_name(name) for name in as_names(names)])
    return slots


def _plain_name(name: str) -> str:
    """A name that is a `str` and no subclass of it."""
    if type(name) is str:
        return name
    if isinstance(name, str):
        # A handle of a builder is a `str` with its builder: in a node it would keep that alive.
        return str(name)
    raise TypeError(f"a variable is named by a str, not by {name!r}")


def make_var(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: object = "float32",
    kind: int = TEMPORARY,
    *,
    initializer: OpNode | None = None,
    source: SourceLocation | None = None,
    lr_factor: float | None = None,
    stop_gradient: bool = False,
    view: View | None = None,
    sequence_levels: int = 0,
) -> VarDecl:
    """A variable; `shape` None means that even the rank is unknown, -1 an unknown dimension.

    Raises:
        ShapeError: `dtype` names none that a net can hold.
    """
    if isinstance(dtype, np.dtype) and dtype in DTYPES:
        held: np.dtype | None = dtype
    else:
        held = None if dtype is None else to_dtype(dtype)
    return VarDecl(
        name,
        None if shape is None else tuple([int(dim) for dim in shape]),
        held,
        kind,
        initializer,
        lr_factor,
        stop_gradient,
        view,
        sequence_levels,
        source,
    )


def the_step(net: OpList, kind: int, title: str) -> StepDecl:
    """The step net of a net of type `kind`. Raises FormatError: another type, or not one step."""
    if net.type != kind or len(net.steps) != 1:
        wanted, actual = (enum_name(TYPE_NAMES, one) for one in (kind, net.type))
        raise FormatError(
            f"{title}: wants a {wanted} net with 1 step net, not {actual} with {len(net.steps)}"
        )
    return net.steps[0]


_PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# Listed one by one: examples and tests lie in the same folder, and what they write is a user's.
_PACKAGE_PARTS = tuple(
    _PACKAGE_DIR + part + os.sep
    for part in ("framework", "operators", "python_api", "scale", "nnet3", "cntk", "testing")
)


def caller_location() -> SourceLocation:
    """The innermost Python line outside the package: where a user wrote the call."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE_PARTS):
        frame = frame.f_back
    if frame is None:
        return SourceLocation()
    global _last
    file, line = frame.f_code.co_filename, frame.f_lineno
    last = _last  # another thread may replace it
    if last.line != line or last.file != file:
        last = _last = SourceLocation(file, line)
    return last


_last = SourceLocation()
"""What was found last: a layer is one line, and all that it appends shares its location."""


def format_location(source: SourceLocation | None) -> str:
    """`file:line:column` with the parts that are known; "" when none is."""
    if source is None:
        return ""
    parts = [source.file] + [str(n) for n in (source.line, source.column) if n]
    return ":".join(parts) if source.file else ""
