"""The optimizer pass: appends update operators, their state as variables of the net.

An optimizer is an operator with the slots `param`, `grad`, `lr` -> `param_out`. New ones need no
edit here; what an operator gets follows from its slots:

- An input slot NAME that has an output slot `NAME_out` is state and becomes a STATE variable of the
  parameter's shape, unless the attribute that it is `needed_by` is off. `OperatorDef.state_rule`
  gives states of other shapes.
- `step` gets the optimizer's step counter.
- Any other input slot NAME gets a number that the operator `TYPE_NAME` computes once for all
  parameters, as its output `out`; where it has a slot `previous`, the number is a state.
- Where `param` is duplicable, one operator updates all parameters.
- Without a slot `rows`, sparse gradients are made dense before.

Each optimizer of a net has a learning rate and a step counter of its own, so that one that comes
later counts from 1: `optimizer@LEARNING_RATE` and `optimizer@STEP` belong to the first,
`optimizer@LEARNING_RATE@2` and `optimizer@STEP@2` to the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.dtypes import to_dtype
from ..base.errors import (
    AttributeTypeError,
    GradientError,
    ShapeError,
    VariableError,
    doubled,
    nearest,
    spelled,
)
from ..base.sizes.shape import ArraySpec, Shape
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
from ..ir.names import (
    COMMIT_OP,
    DENSE_OP,
    MERGE_OP,
    STORE_OP,
    grad_name,
    optimizer_name,
    rows_name,
    state_name,
)
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.registry import OperatorDef, lookup, operator_types
from .precision.mixed_precision import in_mixed_precision
from .schedules import ARGUMENTS, RATE_PREFIX, schedule_type, schedule_types

REST = "rest"
"""In place of parameters: all that have a gradient and that no earlier optimizer updates."""

_OWN_SLOTS = frozenset(("param", "grad", "lr", "rows", "grad_scale", "step"))
_COPIED = {STORE_OP: "x", COMMIT_OP: "new"}
"""Operators that pass on what an optimizer has computed, and the slot of it."""


@dataclass(frozen=True)
class OptimizerAttrs:
    """The updates that `add_optimizer_ops` builds (`OptAttrs` of the design).

    Attributes:
        type: operator type: sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam, adamw,
            adamax, nadam, radam, lion, lamb, lars, lbfgs, and types of plug-ins; in any case, as
            `AdamW`.
        learning_rate: of a parameter whose `lr_factor` is 1.
        attrs: attributes of the optimizer's operator (`beta1`, `momentum`, `weight_decay`, ...).
        schedule: type of a schedule operator without its prefix `lr_` (`step_decay`, ...).
        schedule_attrs: its attributes, without the rate that it begins with.
        clip_value: gradients are clipped to [-clip_value, clip_value]; 0 = not.
        clip_norm: gradients are scaled so that their global norm is at most this; 0 = not. It is
            the norm over the parameters of this optimizer.
        parameters: names to update, or one name; None = every parameter that has a gradient,
            "rest" = the ones that no earlier optimizer of the net updates.
        master: whether parameters of half precision are updated in float32 copies, in which small
            updates are not lost; their states are also float32.

    Raises:
        AttributeTypeError: a number is negative or none; attributes of a schedule without one.
    """

    type: str = "sgd"
    learning_rate: float = 0.01
    attrs: Mapping[str, Any] = field(default_factory=dict)
    schedule: str = ""
    schedule_attrs: Mapping[str, Any] = field(default_factory=dict)
    clip_value: float = 0.0
    clip_norm: float = 0.0
    parameters: Sequence[str] | str | None = None
    master: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.type, str):
            raise AttributeTypeError(
                f"an optimizer's type is a name such as 'adam', not {self.type!r}; it comes first:"
                " OptimizerAttrs('adam', 0.001)"
            )
        for name in ("learning_rate", "clip_value", "clip_norm"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise AttributeTypeError(
                    f"optimizer {self.type}: {name} must be a number, not {value!r}"
                )
            if not value >= 0:
                raise AttributeTypeError(f"optimizer {self.type}: {name} must not be negative")
        if not isinstance(self.schedule, str):
            raise AttributeTypeError(
                f"optimizer {self.type}: schedule is the name of one, not {self.schedule!r}; there"
                f" are {', '.join(schedule_types())}"
            )
        if not isinstance(self.schedule_attrs, Mapping):
            raise AttributeTypeError(
                f"optimizer {self.type}: schedule_attrs is a dict such as {{'total_steps': 1000}},"
                f" not {self.schedule_attrs!r}"
            )
        if self.schedule_attrs and not self.schedule:
            raise AttributeTypeError(
                f"optimizer {self.type}: schedule_attrs without a schedule; there are"
                f" {', '.join(schedule_types())}"
            )
        if "learning_rate" in self.schedule_attrs:
            raise AttributeTypeError(
                f"optimizer {self.type}: the rate that the schedule begins with is learning_rate of"
                " the optimizer, not one of schedule_attrs"
            )


@dataclass
class OptimizerResult:
    """Operators and variables to append to the net."""

    ops: list[OpNode] = field(default_factory=list)
    vars: list[VarDecl] = field(default_factory=list)


def build_optimizer(net: OpList, attrs: OptimizerAttrs) -> OptimizerResult:
    """Update operators for the parameters of `net` that have gradients.

    Raises:
        GradientError: there are no gradients: run the backward pass first.
        VariableError: a parameter that the net does not have, that is named twice, or that another
            optimizer of the net updates.
        ShapeError: a parameter of unknown shape.
        AttributeTypeError: no such optimizer, schedule or attribute.
    """
    if not isinstance(attrs, OptimizerAttrs):
        raise AttributeTypeError(f"want OptimizerAttrs('adam', 0.001), not {attrs!r}")
    entry = _optimizer_entry(attrs.type)
    # In the registered spelling, which the names of states contain: `AdamW` finds `adamw`'s states.
    attrs = replace(attrs, type=entry.type, schedule=schedule_type(attrs.type, attrs.schedule))
    build = _Builder(net, attrs, entry)
    declared = build.declared
    chosen = _parameters(net, declared, attrs)
    for var in chosen:
        # States get the parameter's shape and first values here, before any data are seen.
        if var.shape is None or any(dim < 0 for dim in var.shape):
            raise ShapeError(f"parameter {var.name!r} has no full shape, so it cannot be trained")
    grads = {var.name: grad_name(var.name) for var in chosen}
    rows = {name: rows_name(grad) for name, grad in grads.items() if rows_name(grad) in declared}
    build.learning_rate()
    build.shared_numbers()
    if "rows" not in entry.input_slots:
        for name, numbers in rows.items():
            grads[name] = build.dense(name, grads[name], numbers)
        rows = {}
    if attrs.clip_value or attrs.clip_norm:
        for name in rows:  # what is clipped is the gradient of a row, not a part of it
            grads[name], rows[name] = build.merge(grads[name], rows[name])
    # By value first, so that the norm is computed of what is applied.
    if attrs.clip_value:
        grads = build.clip_by_value(grads)
    scale = build.clip_by_norm(grads) if attrs.clip_norm else None
    if entry.input_slots["param"].duplicable:
        build.update_together(chosen, grads, scale)
    else:
        for var in chosen:
            build.update(var, grads[var.name], scale, rows.get(var.name))
    result = build.result
    return OptimizerResult(
        *in_mixed_precision(declared, result.ops, result.vars, master=attrs.master)
    )


def optimizer_types() -> list[str]:
    """Types that `OptimizerAttrs.type` can name."""
    return [
        name
        for name in operator_types()
        if {"param", "grad", "lr"} <= set(lookup(name).input_slots)
    ]


def constant_rates(net: OpList) -> dict[str, float]:
    """The learning rates that are variables of a net and not computed: name -> first value."""
    used = {name for op in net.ops if op.role == OPTIMIZE for name in op.inputs.get("lr", ())}
    return {
        var.name: float(var.initializer.attrs["value"])
        for var in net.vars
        if var.name in used
        and var.kind == STATE
        and var.initializer is not None
        and var.initializer.type == "fill_constant"
    }


def updated_parameters(net: OpList) -> dict[str, str]:
    """The variables that the optimizers of a net write -> types of the operators that do so."""
    updated: dict[str, str] = {}
    for op in net.ops:
        if op.role == OPTIMIZE:
            # What mixed_precision.py copies from elsewhere was computed by an operator before.
            source = op.inputs[_COPIED[op.type]][0] if op.type in _COPIED else ""
            updated |= {name: updated.get(source, op.type) for name in op.output_names()}
    return updated


def _optimizer_entry(op_type: str) -> OperatorDef:
    known = optimizer_types()
    name = spelled(op_type, known)
    if name not in known:
        raise AttributeTypeError(
            f"{op_type!r} is no optimizer{nearest(op_type, known)}; known: {', '.join(known)}"
        )
    return lookup(name)


def _parameters(
    net: OpList, declared: Mapping[str, VarDecl], attrs: OptimizerAttrs
) -> list[VarDecl]:
    updated = updated_parameters(net)
    wanted = attrs.parameters
    if wanted is None or wanted == REST:
        chosen = [
            var
            for var in declared.values()
            if var.kind == PARAMETER and grad_name(var.name) in declared
        ]
        if not chosen:
            raise GradientError("no parameter of the net has a gradient: add_backward_ops first")
        if wanted == REST:
            chosen = [var for var in chosen if var.name not in updated]
            if not chosen:
                raise GradientError(
                    f"parameters={REST!r}: no parameter is left for {attrs.type}; others update all"
                    " that have a gradient"
                )
    else:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        if not names:
            raise VariableError(f"optimizer {attrs.type}: no parameters are named")
        twice = doubled(names)
        for name in names:
            if name not in declared:
                raise VariableError(f"the net has no variable {name!r}{nearest(name, declared)}")
            if name in twice:
                raise VariableError(f"optimizer {attrs.type}: parameter {name!r} is named twice")
            if grad_name(name) not in declared:
                why = " (it is not trainable)" if declared[name].stop_gradient else ""
                raise GradientError(
                    f"parameter {name!r} has no gradient{why}: add_backward_ops first"
                )
        chosen = [declared[name] for name in names]
    for var in chosen:
        if var.name in updated:
            raise VariableError(
                f"parameter {var.name!r} would be updated by two optimizers, {updated[var.name]}"
                f" and {attrs.type}: name the parameters of each, or say parameters={REST!r} for"
                " those that no earlier one updates"
            )
    return chosen


class _Builder:
    def __init__(self, net: OpList, attrs: OptimizerAttrs, entry: OperatorDef) -> None:
        self.declared = {var.name: var for var in net.vars}
        self.attrs = attrs
        self.entry = entry
        self.source = caller_location()
        self.result = OptimizerResult()
        self._added: set[str] = set()
        self._number = _free_number(net)
        self._rate = self._own("learning_rate")
        self._step = self._own("step")
        self._numbers: dict[str, str] = {}
        self._check_attributes()

    def _own(self, what: str) -> str:
        return optimizer_name(what, self._number)

    def _shared(self) -> dict[str, OperatorDef]:
        """Slots of numbers that are computed once for all parameters, and the operators for it."""
        slots = self.entry.input_slots
        return {
            slot: lookup(f"{self.attrs.type}_{slot}")
            for slot in slots
            if slot not in _OWN_SLOTS and f"{slot}_out" not in self.entry.output_slots
        }

    def _check_attributes(self) -> None:
        known = dict(self.entry.attr_specs)
        for entry in self._shared().values():
            known |= entry.attr_specs
        for name in self.attrs.attrs:
            if name not in known:
                hint = nearest(name, known)
                if name == "momentum" and self.attrs.type == "sgd":
                    hint = " (the types 'momentum' and 'nesterov' have one)"
                elif name in ARGUMENTS:
                    hint = f" (here it is {ARGUMENTS[name]})"
                raise AttributeTypeError(
                    f"optimizer {self.attrs.type} has no attribute {name!r}{hint};"
                    f" it has {', '.join(known)}"
                )

    def op(
        self,
        op_type: str,
        inputs: SlotMap,
        outputs: SlotMap,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        node = make_op(op_type, inputs, outputs, attrs, role=OPTIMIZE, source=self.source)
        self.result.ops.append(node)

    def state(self, name: str, shape: Sequence[int], dtype: Any, value: float) -> str:
        """A STATE variable that starts as `value`; the existing one where there is one."""
        if name not in self.declared and name not in self._added:
            fill = make_op(
                "fill_constant",
                {},
                {"out": name},
                {"shape": list(shape), "dtype": to_dtype(dtype), "value": float(value)},
            )
            var = make_var(name, shape, dtype, STATE, initializer=fill, source=self.source)
            self.result.vars.append(var)
            self._added.add(name)
        return name

    # -- what all parameters share -------------------------------------------------------------

    def learning_rate(self) -> None:
        """The learning rate as a variable: fixed, or computed from the step by a schedule."""
        base = float(self.attrs.learning_rate)
        needs_step = bool(self.attrs.schedule) or any(
            "step" in entry.input_slots for entry in (self.entry, *self._shared().values())
        )
        # One counter for the optimizer, raised before the updates: bias corrections count from 1.
        if needs_step:
            step = self.state(self._step, (), "int64", 0)
            self.op("increment", {"x": step}, {"out": step}, {"value": 1.0})
        if self.attrs.schedule:
            if self._rate not in self.declared:
                self.result.vars.append(make_var(self._rate, (), "float32", OUTPUT))
            given = {**self.attrs.schedule_attrs, "learning_rate": base}
            schedule = RATE_PREFIX + self.attrs.schedule
            self.op(schedule, {"step": self._step}, {"out": self._rate}, given)
        else:
            self.state(self._rate, (), "float32", base)

    def shared_numbers(self) -> None:
        """Numbers that the updates read, by operators that run once for all parameters."""
        for slot, entry in self._shared().items():
            name = self._numbers[slot] = self._own(entry.type)
            inputs = {"step": self._step} if "step" in entry.input_slots else {}
            if "previous" in entry.input_slots:
                inputs["previous"] = self.state(name, (), "float64", 0.0)
            self.op(entry.type, inputs, {"out": name}, self._attributes_of(entry))

    def dense(self, name: str, grad: str, rows: str) -> str:
        """A sparse gradient as one of the parameter's shape."""
        out = f"{grad}@DENSE"
        self.op(DENSE_OP, {"x": grad, "rows": rows, "like": name}, {"out": out})
        return out

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
        out = self._own("gradient_scale")
        self.op(
            "global_norm_scale",
            {"x": list(grads.values())},
            {"scale": out},
            {"clip_norm": float(self.attrs.clip_norm)},
        )
        return out

    # -- updates -------------------------------------------------------------------------------

    def _attribute(self, name: str) -> Any:
        """Value of one of the optimizer's attributes, given or default."""
        return self.attrs.attrs.get(name, self.entry.attr_specs[name].default)

    def _attributes_of(self, entry: OperatorDef) -> dict[str, Any]:
        """The given attributes that an operator has."""
        return {name: v for name, v in self.attrs.attrs.items() if name in entry.attr_specs}

    def _inputs(self, scale: str | None) -> dict[str, str | list[str]]:
        """Inputs that all updates have in common."""
        inputs: dict[str, str | list[str]] = {"lr": self._rate}
        if scale is not None:
            inputs["grad_scale"] = scale
        if "step" in self.entry.input_slots:
            inputs["step"] = self._step
        return inputs | self._numbers

    def _states(self) -> list[str]:
        """The slots of states that there must be."""
        return [
            slot
            for slot, declared in self.entry.input_slots.items()
            if slot != "param"
            and f"{slot}_out" in self.entry.output_slots
            and (not declared.needed_by or self._attribute(declared.needed_by))
        ]

    def _state_specs(self, variables: Sequence[VarDecl]) -> Mapping[str, ArraySpec]:
        """Shape and dtype of each state."""
        shapes: list[Shape] = [var.shape or () for var in variables]
        dtype = variables[0].dtype or np.dtype("float32")
        if self.entry.state_rule is None:
            return dict.fromkeys(self._states(), (shapes[0], dtype))
        attrs = {name: self._attribute(name) for name in self.entry.attr_specs}
        return self.entry.state_rule(shapes, dtype, attrs)

    def update(self, var: VarDecl, grad: str, scale: str | None, rows: str | None) -> None:
        """The operator that updates one parameter."""
        inputs = {"param": var.name, "grad": grad, **self._inputs(scale)}
        outputs: dict[str, str | list[str]] = {"param_out": var.name}
        if rows is not None:
            inputs["rows"] = rows
        specs = self._state_specs([var])
        for slot in self._states():
            name = state_name(var.name, f"{self.attrs.type}_{slot}")
            inputs[slot] = outputs[f"{slot}_out"] = self.state(name, *specs[slot], 0.0)
        attrs = self._attributes_of(self.entry)
        if var.lr_factor is not None:
            attrs["lr_factor"] = var.lr_factor * attrs.get("lr_factor", 1.0)
        self.op(self.attrs.type, inputs, outputs, attrs)

    def update_together(
        self, variables: Sequence[VarDecl], grads: Mapping[str, str], scale: str | None
    ) -> None:
        """The one operator that updates all parameters."""
        names = [var.name for var in variables]
        inputs = {"param": names, "grad": [grads[name] for name in names], **self._inputs(scale)}
        outputs: dict[str, str | list[str]] = {"param_out": names}
        specs = self._state_specs(variables)
        for slot in self._states():
            name = self._own(f"{self.attrs.type}_{slot}")
            inputs[slot] = outputs[f"{slot}_out"] = self.state(name, *specs[slot], 0.0)
        attrs = self._attributes_of(self.entry)
        if any(var.lr_factor is not None for var in variables):
            factors = (1.0 if var.lr_factor is None else var.lr_factor for var in variables)
            attrs["lr_factors"] = tuple(factors)
        self.op(self.attrs.type, inputs, outputs, attrs)


def _free_number(net: OpList) -> int:
    """The number of the next optimizer of a net: the first whose learning rate none reads."""
    used = {name for op in net.ops if op.role == OPTIMIZE for name in op.inputs.get("lr", ())}
    number = 1
    while optimizer_name("learning_rate", number) in used:
        number += 1
    return number
