"""A net in another precision: its floats become float64, or float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....proto import net_pb2 as pb
from ...base.dtypes import DOUBLE, HALVES, SINGLE
from ...base.errors import GradientError, ShapeError, VariableError, nearest
from ...base.sizes.shape import ArraySpec
from ...ir.desc import FORWARD, INPUT, PARAMETER, STATE, make_op, make_var
from ...ir.infer import declared_spec, infer_one
from ...ir.messages import as_op_list
from ...ir.names import CAST_OP, single_name
from ...ir.op_list import OpList, OpNode, VarDecl
from ...ir.operation import Operator
from ...ir.registry import lookup
from ..lowering import lower

_GIVEN = (INPUT, PARAMETER, STATE)


@dataclass(frozen=True)
class ToFloat64:
    """float32 becomes float64: declared variables, arrays in attributes (so initial values), and
    the dtypes of results in attributes. Nested nets are included.

    What is fed must then also be float64.
    """

    name: str = "to-float64"

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net in double precision; `net` itself stays as it is."""
        return _converted(as_op_list(net), DOUBLE, frozenset())


@dataclass(frozen=True)
class ToHalf:
    """float32 becomes float16 or bfloat16, as `ToFloat64` makes it float64.

    Running statistics of normalizations stay float32, and losses are float32 by the operators' own
    rules. Where an operator wants one dtype for a float32 and a half, the half is cast to float32.

    Attributes:
        dtype: float16 or bfloat16.
        keep: variables that stay float32; what is computed from them is then also float32.
    """

    dtype: np.dtype
    keep: frozenset[str] = frozenset()
    name: str = "to-half"

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net in half precision; `net` itself stays as it is.

        Raises:
            ShapeError: `dtype` is no half.
            VariableError: `keep` names a variable that the net does not have.
            GradientError: the net has gradient or update operators: these are made afterwards.
        """
        whole = lower(as_op_list(net))  # in the steps of a loop, too, halves are cast
        if self.dtype not in HALVES:
            names = " or ".join(map(str, HALVES))
            raise ShapeError(f"{self.dtype} is no half precision: want {names}")
        known = {var.name for inner in _nets(whole) for var in inner.vars}
        for name in self.keep - known:
            raise VariableError(f"the net has no variable {name!r}{nearest(name, known)}")
        if any(op.role != FORWARD for op in whole.ops):
            raise GradientError(
                "the net has gradient or update operators: convert the forward net, as"
                " NetBuilder.from_desc gives it, then add them"
            )
        return _settled(_converted(whole, self.dtype, self.keep | _statistics(whole)))


def _nets(net: OpList) -> list[OpList]:
    """A net and all nets inside it."""
    inner = [step.net for step in net.steps]
    inner += [step.child_net for step in net.steps if step.child_net is not None]
    inner += [one for op in net.ops for _, one in op.inner_nets()]
    return [net, *(deeper for one in inner for deeper in _nets(one))]


def _statistics(whole: OpList) -> frozenset[str]:
    """States that operators move on beside their results: running means and variances."""
    statistics: set[str] = set()
    for net in _nets(whole):
        states = {var.name for var in net.vars if var.kind == STATE}
        for op in net.ops:
            for slot in lookup(op.type).outputs:
                # As `mean_out` of batch_norm: no result, but an input that is written anew.
                if slot.intermediate and slot.inplace:
                    statistics.update(states.intersection(op.inputs.get(slot.inplace, ())))
    return frozenset(statistics)


# -- declarations and attributes ---------------------------------------------------------------


def _converted(net: OpList, dtype: np.dtype, keep: frozenset[str]) -> OpList:
    """The net with `dtype` for float32, but for the variables of `keep`."""
    out = net.copy()
    out.vars = [_var(var, dtype, keep) for var in net.vars]
    out.ops = [_op(op, dtype, keep) for op in net.ops]
    for step in out.steps:
        step.net = _converted(step.net, dtype, keep)
        if step.child_net is not None:
            step.child_net = _converted(step.child_net, dtype, keep)
    return out


def _var(var: VarDecl, dtype: np.dtype, keep: frozenset[str]) -> VarDecl:
    if var.name in keep:
        return var
    changes: dict[str, Any] = {}
    if var.dtype == SINGLE:
        changes["dtype"] = dtype
    if var.initializer is not None:
        changes["initializer"] = _op(var.initializer, dtype, keep)
    return var.changed(**changes) if changes else var


def _op(op: OpNode, dtype: np.dtype, keep: frozenset[str]) -> OpNode:
    attrs = dict(op.attrs)
    for spec in lookup(op.type).attrs:
        # A default is written out, as it is float32 for every precision.
        if spec.type == "dtype" and spec.name not in attrs and _is_single(spec.default):
            attrs[spec.name] = SINGLE
    # What writes a variable that stays float32 must go on producing float32.
    fixed = not keep.isdisjoint(op.output_names())
    for name, value in attrs.items():
        if isinstance(value, OpList):
            attrs[name] = _converted(value, dtype, keep)
        elif fixed:
            continue
        elif _is_single(value):
            attrs[name] = dtype
        elif isinstance(value, np.ndarray) and value.dtype == SINGLE:
            attrs[name] = value.astype(dtype)
            # Read-only, as arrays in attributes are wherever they come from.
            attrs[name].setflags(write=False)
    return op.changed(attrs=attrs)


def _is_single(value: Any) -> bool:
    return isinstance(value, np.dtype) and value == SINGLE


# -- dtypes of results -------------------------------------------------------------------------


def _settled(net: OpList) -> OpList:
    """The net with the dtypes that its operators give, and casts where these do not fit together.

    Where an operator's inputs are not known before a run, so are the dtypes of its results.
    """
    given = {var.name: var for var in net.vars if var.kind in _GIVEN}
    specs: dict[str, ArraySpec] = {}
    for name, var in given.items():
        spec = declared_spec(var)
        if spec is not None:
            specs[name] = spec
    ops: list[OpNode] = []
    dtypes: dict[str, np.dtype | None] = {}
    cast: dict[str, str] = {}
    for op in net.ops:
        attrs = {name: _settled(one) for name, one in op.inner_nets()}
        node = op.changed(attrs={**op.attrs, **attrs}) if attrs else op
        results = None
        if all(name in specs for name in Operator(node).input_vars()):
            results = _results(node, specs, given)
            if results is None:
                node = _with_casts(node, specs, cast, ops, dtypes)
                results = infer_one(Operator(node, len(ops)), specs, given)
        ops.append(node)
        for name in node.output_names():
            spec = (results or {}).get(name)
            dtypes[name] = None if spec is None else spec[1]
            # The variable has a new value: the cast of the former one is no longer its own.
            cast.pop(name, None)
            # What is fed or stored keeps its declared dtype, whatever an operator writes to it.
            if spec is not None and name not in given:
                specs[name] = spec
    net.ops = ops
    net.vars = [
        var.changed(dtype=dtypes[var.name]) if var.name in dtypes and var.name not in given else var
        for var in net.vars
    ]
    known = {var.name for var in net.vars}
    net.vars += [make_var(out, *specs[out]) for out in dtypes if out in specs and out not in known]
    for step in net.steps:
        step.net = _settled(step.net)
        if step.child_net is not None:
            step.child_net = _settled(step.child_net)
    return net


def _results(
    op: OpNode, specs: dict[str, ArraySpec], given: Mapping[str, VarDecl]
) -> dict[str, ArraySpec] | None:
    """Shapes and dtypes of an operator's results; None where it refuses halves beside float32."""
    try:
        return infer_one(Operator(op), specs, given)
    except ShapeError:
        # Casts mend a mixture of halves and float32 alone: other refusals are faults of the net.
        dtypes = {specs[name][1] for name in op.input_names()}
        if SINGLE in dtypes and not dtypes.isdisjoint(HALVES):
            return None
        raise


def _with_casts(
    op: OpNode,
    specs: dict[str, ArraySpec],
    cast: dict[str, str],
    ops: list[OpNode],
    dtypes: dict[str, np.dtype | None],
) -> OpNode:
    """The operator with its inputs of half precision in float32; casts are appended to `ops`."""
    for name in op.input_names():
        if specs[name][1] in HALVES and name not in cast:
            out = cast[name] = single_name(name)
            dtype = {"dtype": SINGLE}
            ops.append(make_op(CAST_OP, {"x": name}, {"out": out}, dtype, source=op.source))
            specs[out] = specs[name][0], SINGLE
            dtypes[out] = SINGLE
    inputs = {
        slot: tuple([cast.get(name, name) for name in names]) for slot, names in op.inputs.items()
    }
    return op.changed(inputs=inputs)
