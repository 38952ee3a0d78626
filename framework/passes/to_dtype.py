"""A net in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...proto import net_pb2 as pb
from ..ir.messages import as_op_list
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.registry import lookup

_SINGLE, _DOUBLE = np.dtype("float32"), np.dtype("float64")


@dataclass(frozen=True)
class ToFloat64:
    """float32 becomes float64: declared variables, arrays in attributes (so initial values), and
    the dtypes of results in attributes. Nested nets are included.

    What is fed must then be float64, too.
    """

    name: str = "to-float64"

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net in double precision; `net` itself stays as it is."""
        return _net_in_float64(as_op_list(net))


def _net_in_float64(net: OpList) -> OpList:
    out = net.copy()
    out.vars = [_var_in_float64(var) for var in net.vars]
    out.ops = [_op_in_float64(op) for op in net.ops]
    return out


def _var_in_float64(var: VarDecl) -> VarDecl:
    changes: dict[str, Any] = {}
    if var.dtype == _SINGLE:
        changes["dtype"] = _DOUBLE
    if var.initializer is not None:
        changes["initializer"] = _op_in_float64(var.initializer)
    return var.changed(**changes) if changes else var


def _op_in_float64(op: OpNode) -> OpNode:
    attrs = dict(op.attrs)
    for spec in lookup(op.type).attrs:
        if spec.type == "dtype" and spec.name not in attrs and _is_single(spec.default):
            attrs[spec.name] = _SINGLE
    for name, value in attrs.items():
        if isinstance(value, OpList):
            attrs[name] = _net_in_float64(value)
        elif _is_single(value):
            attrs[name] = _DOUBLE
        elif isinstance(value, np.ndarray) and value.dtype == _SINGLE:
            attrs[name] = value.astype(_DOUBLE)
            attrs[name].setflags(write=False)
    return op.changed(attrs=attrs)


def _is_single(value: Any) -> bool:
    return isinstance(value, np.dtype) and value == _SINGLE
