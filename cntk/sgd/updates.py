"""The pass that appends updates of parameters, and the states which they keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, RunError
from ...framework.base.scope import Scope
from ...framework.ir.desc import INPUT, OPTIMIZE, STATE, make_op, make_var
from ...framework.ir.names import DENSE_OP, MERGE_OP, grad_name, rows_name, state_name
from ...framework.ir.op_list import OpList
from ...framework.ir.registry import lookup
from ..models.checkpoint import Checkpoint
from ..network.network import Network
from ..network.nodes import rules
from ..network.nodes.node import Node
from ..operators.updates.learning import Learner, find_learner
from .options import SgdOptions

CONTROL = {"rate": "sgd@RATE", "momentum": "sgd@MOMENTUM", "columns": "sgd@COLUMNS"}
"""What updates read, by slot: rate per sample, momentum, and columns of the minibatch."""


@dataclass(eq=False)
class Updates:
    """Updates of some parameters of a network.

    Attributes:
        options: learner, penalties, clipping, noise.
        parameters: that learn, in CNTK's order (by name).
        plain: parameters without penalties.
    """

    options: SgdOptions
    parameters: list[Node]
    dtype: np.dtype
    plain: frozenset[Node] = frozenset()
    learner: Learner = field(init=False)

    def __post_init__(self) -> None:
        learner = find_learner(self.options.learner)
        if learner is None:
            raise RunError(f"there is no learner {self.options.learner!r}")
        self.learner = learner

    # -- operators -----------------------------------------------------------------------------

    def extend(self, net: OpList) -> OpList:
        """The net with updates of the parameters that have gradients."""
        out = net.copy()
        builder = _Builder(self, out)
        for node in self.parameters:
            if builder.has(grad_name(node.name)):
                builder.update(node, grad_name(node.name))
        return out

    # -- states --------------------------------------------------------------------------------

    def reset(self, scope: Scope) -> None:
        """Give all states their first values."""
        self.control(scope, 0.0, 0.0, 0)
        for node in self.parameters:
            shape = tuple(reversed(node.shape or ()))
            for name in self.learner.states:
                first = self.learner.initial.get(name, 0.0)
                scope.var(state_name(node.name, name)).set(np.full(shape, first, self.dtype))
            if self.learner.counted:
                scope.var(state_name(node.name, "count")).set(np.zeros(()))

    def control(self, scope: Scope, rate: float, momentum: float, columns: float) -> None:
        """Tell the updates rate per sample, momentum and columns of a minibatch.

        CNTK rounds the momentum before it takes 1 - m.
        """
        values = rate, float(self.dtype.type(momentum)), columns
        for name, value in zip(CONTROL.values(), values, strict=True):
            scope.var(name).set(np.array(value, np.float64))

    def save(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Put the states into a checkpoint, as CNTK's matrices of them."""
        checkpoint.gradients = []
        checkpoint.counts = []
        for node in self.parameters:
            parts = [self._matrix(scope, node, name) for name in self.learner.states]
            count = 0.0
            if self.learner.counted:
                count = float(scope.numpy(state_name(node.name, "count")))
                if count == 0 and self.learner.grows:
                    parts = [np.zeros_like(parts[0])]
            parts = parts or [np.zeros((rules.matrix(node)[0], 0), self.dtype)]
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
            checkpoint.gradients.append(whole)
            checkpoint.counts.append(count if self.learner.counts else 0.0)

    def _matrix(self, scope: Scope, node: Node, name: str) -> np.ndarray:
        rows, columns = rules.matrix(node)
        value = scope.numpy(state_name(node.name, name)).transpose()
        return value.reshape((rows, columns), order="F")

    def load(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Take the states of a checkpoint.

        Raises:
            FormatError: it is not one of this network and learner.
        """
        self.reset(scope)
        if len(checkpoint.gradients) != len(self.parameters):
            raise FormatError(
                f"the checkpoint holds the states of {len(checkpoint.gradients)} parameters, the "
                f"network has {len(self.parameters)} that learn"
            )
        counts = checkpoint.counts or [float(checkpoint.minibatch or 0)] * len(self.parameters)
        for node, saved, count in zip(self.parameters, checkpoint.gradients, counts, strict=True):
            rows, columns = rules.matrix(node)
            states = self.learner.states
            if saved.shape == (rows, columns) and self.learner.grows:
                continue  # nothing was learned yet
            if saved.shape != (rows, columns * len(states)):
                raise FormatError(
                    f"the checkpoint holds a matrix of {saved.shape[0]} x {saved.shape[1]} for the "
                    f"parameter {node.name}, {rows} x {columns * len(states)} expected"
                )
            for number, name in enumerate(states):
                part = saved[:, number * columns : (number + 1) * columns]
                value = part.reshape(node.shape, order="F").transpose()
                scope.var(state_name(node.name, name)).set(
                    np.ascontiguousarray(value, dtype=self.dtype)
                )
            if self.learner.counted:
                seen = count if self.learner.counts else 1.0
                scope.var(state_name(node.name, "count")).set(np.array(seen))


class _Builder:
    """Appends the operators of updates to a net."""

    def __init__(self, updates: Updates, net: OpList) -> None:
        self.updates = updates
        self.options = updates.options
        self.op_list = net
        self._declared = {var.name for var in net.vars}
        self._known = self._declared | {name for op in net.ops for name in op.output_names()}
        for name in CONTROL.values():
            self._declare(name, (), np.float64, INPUT)

    def has(self, name: str) -> bool:
        """Whether the net has a variable."""
        return name in self._known

    def _declare(self, name: str, shape: Sequence[int], dtype: Any, kind: Any) -> str:
        if name not in self._declared:
            self._declared.add(name)
            self.op_list.vars.append(make_var(name, shape, dtype, kind))
        return name

    def _op(self, op_type: str, inputs: Any, outputs: Any, attrs: Any = None) -> None:
        slots = lookup(op_type).input_slots
        inputs = {**inputs, **{slot: CONTROL[slot] for slot in CONTROL if slot in slots}}
        self.op_list.ops.append(make_op(op_type, inputs, outputs, attrs, role=OPTIMIZE))

    def update(self, node: Node, grad: str) -> None:
        """Clip, L2, learner, noise, L1, in this order."""
        options, name = self.options, node.name
        rows = rows_name(grad) if self.has(rows_name(grad)) else None
        penalty = 0.0 if node in self.updates.plain else 1.0
        if np.isfinite(options.clip):
            if rows:  # the gradient of a whole row is clipped, not a part of it
                merged = {"out": f"{grad}@MERGED", "rows_out": f"{grad}@MERGED_ROWS"}
                self._op(MERGE_OP, {"x": grad, "rows": rows}, merged)
                grad, rows = merged["out"], merged["rows_out"]
            clipped = f"{grad}@CLIP"
            attrs = {"threshold": options.clip, "norm": options.clip_norm}
            self._op("cntk.clip_gradient", {"grad": grad}, {"out": clipped}, attrs)
            grad = clipped
        if options.l2 * penalty > 0:
            if rows:
                dense = f"{grad}@DENSE"
                reads = {"x": grad, "rows": rows, "like": name}
                self._op(DENSE_OP, reads, {"out": dense})
                grad = dense
                rows = None
            reads = {"grad": grad, "param": name}
            out = f"{grad}@L2"
            self._op("cntk.l2_gradient", reads, {"out": out}, {"weight": options.l2})
            grad = out
        rate = {"rate_factor": float(node.learning_rate)}
        self._learn(node, grad, rows, rate)
        if options.noise > 0:
            attrs = {"deviation": options.noise}
            reads = {"param": name}
            if rows:
                reads["rows"] = rows
            self._op("cntk.weight_noise", reads, {"param_out": name}, attrs)
        if options.l1 * penalty > 0:
            attrs = {"weight": options.l1, **rate}
            self._op("cntk.soft_threshold", {"param": name}, {"param_out": name}, attrs)

    def _learn(self, node: Node, grad: str, rows: str | None, rate: dict[str, Any]) -> None:
        learner = self.updates.learner
        reads = {"param": node.name, "grad": grad}
        writes = {"param_out": node.name}
        if rows:
            reads["rows"] = rows
        shape = tuple(reversed(node.shape or ()))
        for state in learner.states:
            name = state_name(node.name, state)
            reads[state] = writes[f"{state}_out"] = self._declare(
                name, shape, self.updates.dtype, STATE
            )
        if learner.counted:
            name = state_name(node.name, "count")
            reads["count"] = writes["count_out"] = self._declare(name, (), np.float64, STATE)
        self._op(learner.type, reads, writes, {**rate, **self.options.learner_attrs})


def learning_parameters(network: Network, criterion: Node) -> list[Node]:
    """The parameters that learn below a criterion, by name; not those below statistics that have
    been computed."""
    parameters: set[Node] = set()
    seen: set[Node] = set()
    waiting = [criterion]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.is_parameter:
            if node.learning_rate != 0:
                parameters.add(node)
        elif not (node.kind.precompute and node.attributes.get("hasComputed")):
            waiting += [child for child in node.inputs if child is not None]
    return sorted(parameters, key=lambda node: node.name)


def without_penalty(network: Network) -> frozenset[Node]:
    """Scale and bias of batch normalization."""
    return frozenset(
        child
        for node in network.nodes.values()
        if node.operation == "BatchNormalization"
        for child in node.inputs[1:3]
        if child is not None
    )
