"""The optimizer pass: appends update operators, their state as variables of the net.

An optimizer is an operator with the slots `param`, `grad`, `lr` -> `param_out`. Every input slot
NAME that has an output slot `NAME_out` is state and becomes a STATE variable of the parameter's
shape, unless the attribute that it is `needed_by` is off; a slot `step` gets the shared step
counter. New optimizers therefore need no edit here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.dtypes import to_dtype
from ..base.errors import AttributeTypeError, GradientError, ShapeError, VariableError, nearest
from ..ir.desc import (
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    STATE,
    SlotMap,
    caller_location,
    make_op,
    make_var,
)
from ..ir.names import MERGE_OP, grad_name, rows_name, state_name
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.registry import OperatorDef, lookup, operator_types
from .mixed_precision import in_mixed_precision

STEP = "optimizer@STEP"
LEARNING_RATE = "optimizer@LEARNING_RATE"
_RATE_PREFIX = "lr_"


@dataclass(frozen=True)
class OptimizerAttrs:
    """The updates that `add_optimizer_ops` builds (`OptAttrs` of the design).

    Attributes:
        type: operator type: sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam, adamw, ...
        learning_rate: of a parameter whose `lr_factor` is 1.
        attrs: attributes of the optimizer's operator (`beta1`, `momentum`, `weight_decay`, ...).
        schedule: type of a schedule operator without its prefix `lr_` (`step_decay`, ...).
        schedule_attrs: its attributes.
        clip_value: gradients are clipped to [-clip_value, clip_value]; 0 = not.
        clip_norm: gradients are scaled so that their global norm is at most this; 0 = not.
        parameters: names to update; None = every parameter that has a gradient.
        master: whether parameters of half precision are updated in float32 copies, in which small
            updates are not lost; their states are float32, too.
    """

    type: str = "sgd"
    learning_rate: float = 0.01
    attrs: Mapping[str, Any] = field(default_factory=dict)
    schedule: str = ""
    schedule_attrs: Mapping[str, Any] = field(default_factory=dict)
    clip_value: float = 0.0
    clip_norm: float = 0.0
    parameters: Sequence[str] | None = None
    master: bool = True

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip_value", "clip_norm"):
            if not getattr(self, name) >= 0:
                raise AttributeTypeError(f"optimizer {self.type}: {name} must not be negative")


@dataclass
class OptimizerResult:
    """Operators and variables to append to the net."""

    ops: list[OpNode] = field(default_factory=list)
    vars: list[VarDecl] = field(default_factory=list)


def build_optimizer(net: OpList, attrs: OptimizerAttrs) -> OptimizerResult:
    """Update operators for the parameters of `net` that have gradients.

    Raises:
        GradientError: there are no gradients: run the backward pass first.
        VariableError: a parameter that the net does not have.
        ShapeError: a parameter of unknown shape.
    """
    entry = _optimizer_entry(attrs.type)
    declared = {var.name: var for var in net.vars}
    chosen = _parameters(declared, attrs)
    build = _Builder(declared, attrs, entry)
    grads = {var.name: grad_name(var.name) for var in chosen}
    rows = {name: rows_name(grad) for name, grad in grads.items() if rows_name(grad) in declared}
    build.learning_rate(net)
    if attrs.clip_value or attrs.clip_norm:
        for name in rows:  # what is clipped is the gradient of a row, not a part of it
            grads[name], rows[name] = build.merge(grads[name], rows[name])
    if attrs.clip_value:
        grads = build.clip_by_value(grads)
    scale = build.clip_by_norm(grads) if attrs.clip_norm else None
    for var in chosen:
        build.update(var, grads[var.name], scale, rows.get(var.name))
    made = build.result
    return OptimizerResult(*in_mixed_precision(declared, made.ops, made.vars, master=attrs.master))


def optimizer_types() -> list[str]:
    """Types that `OptimizerAttrs.type` can name."""
    return [
        name
        for name in operator_types()
        if {"param", "grad", "lr"} <= set(lookup(name).input_slots)
    ]


def _optimizer_entry(op_type: str) -> OperatorDef:
    known = optimizer_types()
    if op_type not in known:
        raise AttributeTypeError(
            f"{op_type!r} is no optimizer{nearest(op_type, known)}; known: {', '.join(known)}"
        )
    return lookup(op_type)


def _parameters(declared: Mapping[str, VarDecl], attrs: OptimizerAttrs) -> list[VarDecl]:
    if attrs.parameters is None:
        chosen = [
            var
            for var in declared.values()
            if var.kind == PARAMETER and grad_name(var.name) in declared
        ]
        if not chosen:
            raise GradientError("no parameter of the net has a gradient: add_backward_ops first")
        return chosen
    for name in attrs.parameters:
        if name not in declared:
            raise VariableError(f"the net has no variable {name!r}{nearest(name, declared)}")
        if grad_name(name) not in declared:
            raise GradientError(f"parameter {name!r} has no gradient: add_backward_ops first")
    return [declared[name] for name in attrs.parameters]


class _Builder:
    def __init__(
        self, declared: Mapping[str, VarDecl], attrs: OptimizerAttrs, entry: OperatorDef
    ) -> None:
        self.declared = declared
        self.attrs = attrs
        self.entry = entry
        self.source = caller_location()
        self.result = OptimizerResult()
        self._made: set[str] = set()

    def op(
        self,
        op_type: str,
        inputs: SlotMap,
        outputs: SlotMap,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        made = make_op(op_type, inputs, outputs, attrs, role=OPTIMIZE, source=self.source)
        self.result.ops.append(made)

    def state(self, name: str, shape: Sequence[int], dtype: Any, value: float) -> str:
        """A STATE variable that starts as `value`; the existing one where there is one."""
        if name not in self.declared and name not in self._made:
            fill = make_op(
                "fill_constant",
                {},
                {"out": name},
                {"shape": list(shape), "dtype": to_dtype(dtype), "value": float(value)},
            )
            var = make_var(name, shape, dtype, STATE, initializer=fill, source=self.source)
            self.result.vars.append(var)
            self._made.add(name)
        return name

    def learning_rate(self, net: OpList) -> None:
        """The learning rate as a variable: fixed, or computed from the step by a schedule."""
        base = self.attrs.learning_rate
        needs_step = bool(self.attrs.schedule) or "step" in self.entry.input_slots
        counted = any(STEP in op.output_names() for op in net.ops)
        if needs_step:
            self.state(STEP, (), "int64", 0)
            if not counted:
                self.op("increment", {"x": STEP}, {"out": STEP}, {"value": 1.0})
        if self.attrs.schedule:
            given = dict(self.attrs.schedule_attrs)
            given.setdefault("learning_rate", float(base))
            if LEARNING_RATE not in self.declared:
                self.result.vars.append(make_var(LEARNING_RATE, (), "float32", OUTPUT))
            self.op(
                _RATE_PREFIX + self.attrs.schedule, {"step": STEP}, {"out": LEARNING_RATE}, given
            )
        else:
            self.state(LEARNING_RATE, (), "float32", base)

    def merge(self, grad: str, rows: str) -> tuple[str, str]:
        """Sparse rows with each number once."""
        merged, numbers = f"{grad}@MERGED", f"{rows}@MERGED"
        self.op(MERGE_OP, {"x": grad, "rows": rows}, {"out": merged, "rows_out": numbers})
        return merged, numbers

    def clip_by_value(self, grads: Mapping[str, str]) -> dict[str, str]:
        bound = float(self.attrs.clip_value)
        clipped = {}
        for name, grad in grads.items():
            clipped[name] = f"{grad}@CLIP"
            self.op(
                "clip", {"x": grad}, {"out": clipped[name]}, {"minimum": -bound, "maximum": bound}
            )
        return clipped

    def clip_by_norm(self, grads: Mapping[str, str]) -> str:
        out = "optimizer@GRADIENT_SCALE"
        self.op(
            "global_norm_scale",
            {"x": list(grads.values())},
            {"scale": out},
            {"clip_norm": float(self.attrs.clip_norm)},
        )
        return out

    def _attribute(self, name: str) -> Any:
        """Value of one of the optimizer's attributes, given or default."""
        return self.attrs.attrs.get(name, self.entry.attr_specs[name].default)

    def update(self, var: VarDecl, grad: str, scale: str | None, rows: str | None) -> None:
        shape, dtype = var.shape, var.dtype
        if shape is None or any(dim < 0 for dim in shape):
            raise ShapeError(f"parameter {var.name!r} has no full shape, so it cannot be trained")
        inputs = {"param": var.name, "grad": grad, "lr": LEARNING_RATE}
        outputs = {"param_out": var.name}
        if rows is not None:
            inputs["rows"] = rows
        if scale is not None:
            inputs["grad_scale"] = scale
        if "step" in self.entry.input_slots:
            inputs["step"] = STEP
        for slot, declared in self.entry.input_slots.items():
            if slot != "param" and f"{slot}_out" in self.entry.output_slots:
                if declared.needed_by and not self._attribute(declared.needed_by):
                    continue
                name = self.state(
                    state_name(var.name, f"{self.attrs.type}_{slot}"), shape, dtype, 0.0
                )
                inputs[slot] = outputs[f"{slot}_out"] = name
        attrs = dict(self.attrs.attrs)
        if var.lr_factor is not None:
            attrs["lr_factor"] = var.lr_factor
        self.op(self.attrs.type, inputs, outputs, attrs)
