"""The pass that makes a training step of a compiled computation.

Between forward and backward operators it puts the objectives of the outputs, and after them the
updates of the parameters: each component's change, the bounds on changes, the new parameters, the
orthonormal constraint, and the fading of batch normalization's statistics. What differs from step
to step (`SCALARS`), the learning rates and the changes that momentum keeps are variables [1] of the
net that all computations of a trainer share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...framework.ir.desc import (
    BACKWARD,
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
    make_op,
    make_var,
)
from ...framework.ir.names import grad_name, state_name
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ..components import Component, UpdatableComponent
from ..components.composite import CompositeComponent
from ..network.nnet import Nnet
from .objectives import Objective
from .options import NnetTrainerOptions

SCALARS: Mapping[str, float] = {
    "scale": 1.0,  # of the changes
    "bound_scale": 1.0,  # of the bounds on changes
    "l2_scale": 0.0,  # of the L2 regularization
    "batchnorm_scale": 1.0,  # of statistics, after the step
    "constrain": 1.0,  # whether orthonormal constraints may be enforced
    "kept": 1.0,  # whether the last change was applied
}
"""The settings of a step, with their usual values."""
FACTORS, CHANGE = state_name("trainer", "factors"), state_name("trainer", "change")
"""Variables that `nnet3.max_change` writes: a factor for each component, and the whole norm."""
_SCALES = state_name("trainer", "scales")


def scalar_name(name: str) -> str:
    """The variable of one of `SCALARS`."""
    return state_name("trainer", name)


def rate_name(component: str) -> str:
    """The variable of a component's learning rate."""
    return state_name(component, "learning_rate")


def updatable(nnet: Nnet) -> dict[str, UpdatableComponent]:
    """The components with parameters, in order."""
    return {
        name: component
        for name, component in nnet.components.items()
        if isinstance(component, UpdatableComponent) and component.is_updatable
    }


def parts(
    name: str, component: UpdatableComponent
) -> Iterator[tuple[str, UpdatableComponent, list[str]]]:
    """A component, or every updatable part of a composite one.

    Yields:
        Its name, itself, and the names of the variables of its parameters.
    """
    if isinstance(component, CompositeComponent):
        for number, part in enumerate(component.components):
            if isinstance(part, UpdatableComponent) and part.is_updatable:
                path = f"{name}/{number}"
                yield path, part, [f"{path}.{field}" for field in _fields(part)]
    else:
        yield name, component, [f"{name}/{field}" for field in _fields(component)]


def _fields(component: Component) -> list[str]:
    return [field for field in component.trained if getattr(component, field).size]


def training_net(
    net: OpList, nnet: Nnet, options: NnetTrainerOptions, objective: Objective
) -> OpList:
    """A whole step of training from the lowered computation of a request with derivatives.

    Args:
        net: with natural gradient, where that is to be used; it is not changed.
        nnet: whose settings (bounds, regularization, objectives) hold.
        objective: gives the derivatives at the outputs.
    """
    return _Pass(net, nnet, options, objective).net


def with_common_estimates(net: OpList) -> OpList:
    """The net with the natural gradient of all ranks' samples in place of a rank's own, so that all
    ranks have the same estimates of Fisher matrices; `net` itself stays as it is.

    Ranks must meet these operators in the same order.
    """
    common_net = net.copy()
    common = "nnet3.precondition_ranks"
    common_net.ops = [
        replace(op, type=common, checked=None) if op.type == "nnet3.precondition" else op
        for op in common_net.ops
    ]
    return common_net


class _Pass:
    def __init__(
        self, net: OpList, nnet: Nnet, options: NnetTrainerOptions, objective: Objective
    ) -> None:
        self.net = net.copy()
        self.nnet = nnet
        self.options = options
        self.vars = {var.name: var for var in self.net.vars}
        self.ops: list[OpNode] = []
        self._parameter_of: dict[str, str] = {}  # change -> its parameter
        for name, value in SCALARS.items():
            self._state(scalar_name(name), (1,), value)
        self._insert_objective(objective)
        self._updates()
        self.net.vars = list(self.vars.values())

    # Helpers

    def op(self, op_type: str, inputs: Any, outputs: Any, attrs: Any, role: int) -> None:
        present = {slot: names for slot, names in inputs.items() if names}
        self.ops.append(make_op(op_type, present, outputs, attrs, role=role))

    def declare(self, name: str, shape: Any, dtype: str, kind: int, value: Any = None) -> str:
        if name not in self.vars:
            self.vars[name] = make_var(name, shape, dtype, kind, initializer=value)
        return name

    def _state(self, name: str, shape: Any, value: float) -> str:
        start = make_op("constant", {}, {"out": name}, {"value": np.full(shape, value, np.float32)})
        return self.declare(name, shape, "float32", STATE, start)

    def variable(self, name: str) -> VarDecl | None:
        """A variable of the step."""
        return self.vars.get(name)

    def make_temporary(self, name: str) -> None:
        """Make a variable of the step one that operators write and nothing outside reads."""
        self.vars[name] = self.vars[name].changed(kind=TEMPORARY)

    def _insert_objective(self, objective: Objective) -> None:
        """The operators of the objective come before the backward ones."""
        objective.build(self, self.nnet)
        roles = [op.role for op in self.net.ops]
        middle = roles.index(BACKWARD) if BACKWARD in roles else len(roles)
        self.net.ops[middle:middle] = self.ops
        self.ops = []

    # Updates

    def _updates(self) -> None:
        options = self.options
        deltas: list[list[str]] = []
        bounds: list[float] = []
        for name, component in updatable(self.nnet).items():
            of_parts = [
                self._delta(path, part, fields, component)
                for path, part, fields in parts(name, component)
            ]
            deltas.append([delta for group in of_parts for delta in group])
            bounds.append(float(component.max_change) if options.component_limits else 0.0)
        flat = [delta for group in deltas for delta in group]
        if flat:
            inputs = {
                "delta": flat,
                "scale": scalar_name("scale"),
                "bound_scale": scalar_name("bound_scale"),
            }
            outputs = {
                "scales": self.declare(_SCALES, (len(deltas),), "float32", TEMPORARY),
                "factors": self.declare(FACTORS, (len(deltas),), "float32", OUTPUT),
                "change": self.declare(CHANGE, (1,), "float32", OUTPUT),
                "kept": scalar_name("kept"),
            }
            attrs = {
                "arrays": [len(group) for group in deltas],
                "bounds": bounds,
                "total": float(options.max_param_change),
            }
            self.op("nnet3.max_change", inputs, outputs, attrs, OPTIMIZE)
        for index, group in enumerate(deltas):
            if group:
                fields = [self._parameter_of[delta] for delta in group]
                inputs = {"param": fields, "delta": group, "scales": _SCALES}
                self.op(
                    "nnet3.apply_change", inputs, {"param_out": fields}, {"index": index}, OPTIMIZE
                )
        self._constraints()
        self._fade_statistics()
        self.net.ops += self.ops

    def _delta(self, path: str, part: Any, fields: list[str], component: Any) -> list[str]:
        """The operator that finds the change of one part; the variables of the changes."""
        momentum = float(self.options.momentum)
        l2 = float(component.l2_regularize) if self.options.component_limits else 0.0
        grads = [grad_name(field) for field in fields]
        has_grads = all(grad in self.vars for grad in grads)
        if not has_grads and not momentum and not l2:
            return []
        deltas = []
        for field in fields:
            shape = self._shape(field, part)
            delta = state_name(field, "delta")
            if momentum:
                self._state(delta, shape, 0.0)
            else:
                self.declare(delta, shape, "float32", TEMPORARY)
            self._parameter_of[delta] = field
            deltas.append(delta)
        for grad in grads if has_grads else ():
            self.make_temporary(grad)
        inputs = {
            "param": fields,
            "grad": grads if has_grads else [],
            "delta": deltas if momentum else [],
            "rate": self._state(rate_name(path), (1,), part.learning_rate),
            "l2_scale": scalar_name("l2_scale"),
            "kept": scalar_name("kept") if momentum else "",
        }
        attrs = {"l2": l2, "momentum": momentum}
        self.op("nnet3.parameter_delta", inputs, {"delta_out": deltas}, attrs, OPTIMIZE)
        return deltas

    def _shape(self, field: str, part: Any) -> tuple[int, ...]:
        """Of a parameter; one that this computation does not use is declared."""
        shape = getattr(part, field.rpartition("/")[2].rpartition(".")[2]).shape
        self.declare(field, shape, "float32", PARAMETER)
        return shape

    def _constraints(self) -> None:
        for name, component in self.nnet.components.items():
            wanted = getattr(component, "orthonormal_constraint", 0.0)
            field = f"{name}/{component.trained[0]}" if component.trained else ""
            if wanted and field in self.vars and self.options.component_limits:
                inputs = {"w": field, "wanted": scalar_name("constrain")}
                attrs = {"scale": float(wanted)}
                self.op("nnet3.constrain_orthonormal", inputs, {"w_out": field}, attrs, OPTIMIZE)

    def _fade_statistics(self) -> None:
        names = [
            f"{name}/{field}"
            for name, component in self.nnet.components.items()
            if component.type == "BatchNormComponent"
            for field in ("stats_sum", "stats_sumsq", "count")
            if f"{name}/{field}" in self.vars
        ]
        if names and self.options.batchnorm_stats_scale != 1:
            inputs = {"x": names, "factor": scalar_name("batchnorm_scale")}
            self.op("nnet3.scale_states", inputs, {"x_out": names}, {}, OPTIMIZE)
