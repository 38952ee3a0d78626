"""A net in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import to_pb
from ..ir.desc import clone, decode_attr, encode_attr, var_dtype
from ..ir.registry import lookup

_SINGLE, _DOUBLE = np.dtype("float32"), np.dtype("float64")


@dataclass(frozen=True)
class WidenFloats:
    """float32 becomes float64: declared variables, arrays in attributes (so initial values), and
    the dtypes that operators are told to give. Nested nets are included.

    What is fed must then be float64, too.
    """

    name: str = "widen-floats"

    def apply(self, net: pb.NetDesc) -> pb.NetDesc:
        net = clone(net)
        _widen(net)
        return net


def _widen(net: pb.NetDesc) -> None:
    for var in net.vars:
        if var_dtype(var) == _SINGLE:
            var.dtype = to_pb(_DOUBLE)
        if var.HasField("initializer"):
            _widen_op(var.initializer)
    for op in net.ops:
        _widen_op(op)


def _widen_op(op: pb.OpDesc) -> None:
    for spec in lookup(op.type).attrs:
        if spec.type == "dtype" and spec.name not in op.attrs and _is_single(spec.default):
            op.attrs[spec.name].CopyFrom(encode_attr(_SINGLE))
    for attr in op.attrs.values():
        field = attr.WhichOneof("value")
        if field == "net":
            _widen(attr.net)
        elif field == "dtype" and _is_single(decode_attr(attr)):
            attr.CopyFrom(encode_attr(_DOUBLE))
        elif field == "tensor" and attr.tensor.dtype == to_pb(_SINGLE):
            attr.CopyFrom(encode_attr(decode_attr(attr).astype(_DOUBLE)))


def _is_single(value: Any) -> bool:
    return isinstance(value, np.dtype) and value == _SINGLE
