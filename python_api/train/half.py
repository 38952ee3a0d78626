"""Nets that were built in float32, in half precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from numpy.typing import DTypeLike

from ...framework.base.dtypes import SINGLE, to_dtype
from ...framework.base.scope import Scope
from ...framework.files.saved import op_list_of
from ...framework.ir.desc import NetDesc
from ...framework.ir.messages import to_message
from ...framework.ir.names import state_name
from ...framework.ir.op_list import OpList
from ...framework.passes.precision.to_dtype import ToHalf
from ...framework.runtime.initialize import persistent_vars
from ...framework.runtime.plain_net import PlainNet
from ..builder import NetBuilder

_Net = TypeVar("_Net", NetBuilder, PlainNet, OpList, NetDesc)


def to_half(
    net: _Net,
    dtype: DTypeLike = "float16",
    *,
    keep: Iterable[str] = (),
    scope: Scope | None = None,
) -> _Net:
    """A float32 net in half precision; `net` itself stays as it is.

    Inputs, parameters and results become `dtype`. Running statistics of normalizations stay
    float32, losses are float32, and halves are cast where they meet float32. The new builder also
    gets the gradients and optimizers that the NetBuilder was asked for.

    Args:
        net: a NetBuilder, or a net without gradient and update operators.
        dtype: "float16" or "bfloat16".
        keep: variables that stay float32; values computed from them are also float32.
        scope: holds values of the net: they are converted. Masters begin as the float32 values.

    Raises:
        ShapeError: `dtype` is no half precision.
        VariableError: `keep` names a variable that the net does not have, or `net` is no net.
        GradientError: the net has gradient or update operators.
    """
    convert = ToHalf(to_dtype(dtype), frozenset(str(name) for name in keep))
    if isinstance(net, NetBuilder):
        half = NetBuilder(net.name, convert.dtype)
        half.switch_to(PlainNet(convert.apply(net.forward_net.op_list), check=False))
        half.set_objective(net.objective)
        whole = half.op_list
        result = half
    else:
        whole = convert.apply(op_list_of(net))
        result = whole
        if isinstance(net, PlainNet):
            result = PlainNet(whole, check=False)
        elif isinstance(net, NetDesc):
            result = to_message(whole)
    if scope is not None:
        _convert_values(whole, scope)
    return result  # pyright: ignore[reportReturnType]  of the kind that was given


def _convert_values(net: OpList, scope: Scope) -> None:
    """Give the variables of `scope` the dtypes that `net` declares."""
    declared = {var.name: var for var in persistent_vars(net)}
    for name, var in declared.items():
        variable = scope.find(name)
        if variable is None or variable.array is None or variable.array.dtype != SINGLE:
            continue
        if var.dtype != SINGLE:
            given = variable.array
            variable.bind(given.astype(var.dtype))
            master = state_name(name, "master")
            if master in declared:
                scope.var(master).bind(given)
