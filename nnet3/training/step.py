"""A compiled step of training: its net, its scope, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.desc import BACKWARD, INPUT
from ...framework.ir.op_list import OpList
from ...framework.runtime.executor import bound_bytes
from ...framework.runtime.plain_net import PlainNet
from ...framework.runtime.plans.memory import WorkspaceOwner
from ..lower.spans import CommandSpans


@dataclass(frozen=True)
class TracedParts:
    """The parts of a step whose commands are reported.

    Attributes:
        spans: of the commands, in the net of the step.
        objective: the range of the operators of the objective.
        updates: the number of the first operator of the updates.
        say: takes lines.
        parameters: gives the root mean square of a component's parameters.
    """

    spans: CommandSpans
    objective: tuple[int, int]
    updates: int
    say: Callable[[str], None]
    parameters: Callable[[str], float]

    @classmethod
    def of(
        cls,
        lowered: OpList,
        net: OpList,
        spans: CommandSpans,
        say: Callable[[str], None],
        parameters: Callable[[str], float],
    ) -> TracedParts:
        """The parts of what `training_net` made of a lowered computation."""
        roles = [op.role for op in lowered.ops]
        middle = roles.index(BACKWARD) if BACKWARD in roles else len(roles)
        # `training_net` puts the objective before the first backward operator.
        inserted = 0
        if middle < len(roles):
            inserted = next(i for i, op in enumerate(net.ops) if op is lowered.ops[middle]) - middle
        objective = middle, middle + inserted
        return cls(spans.moved(middle, inserted), objective, len(roles) + inserted, say, parameters)


class Step:
    """A compiled training step with a scope of its own under the trainer's.

    Args:
        traced: where its commands are reported as they are run.
        owner: of all steps, of which one runs at a time.
    """

    def __init__(
        self, net: OpList, shared: Scope, traced: TracedParts | None, owner: WorkspaceOwner
    ) -> None:
        self.net = PlainNet(net, check=False)
        self.scope = owner.lend(Scope(None, parent=shared))
        self._input_dtypes = {var.name: var.dtype for var in net.vars if var.kind == INPUT}
        self._traced = traced
        if traced is not None:
            from ..run.trace import CommandTrace  # few trainings report their commands

            self._trace = CommandTrace(self.net, traced.spans, traced.say, traced.parameters)

    def nbytes(self) -> int:
        """The memory that goes with the step, without what all steps share."""
        return bound_bytes(self.net.operators, self.scope)

    def release(self) -> None:
        """Let go of what is bound: nothing uses the step any more."""
        self.scope.dissolve()

    def feed(self, values: Mapping[str, np.ndarray]) -> None:
        """Put values where the step reads them; what no operator reads is left out."""
        for name in self._input_dtypes.keys() & values.keys():
            value = values[name]
            dtype = self._input_dtypes[name]
            self.scope.var(name).set(value, dtype=None if value.dtype == dtype else dtype)

    def run(self, context: OpContext) -> None:
        """Forward, objective, backward, updates.

        Raises:
            As `PlainNet.run`.
        """
        if self._traced is None:
            self.net.run(self.scope, context)
            return
        trace = self._trace
        traced = self._traced
        context = self._trace.keeping(context)
        trace.reset()
        trace.run(self.scope, context)
        begin, end = traced.objective
        if begin < end:
            self.net.run(self.scope, context, begin, end)
        trace.run(self.scope, context)
        if traced.updates < len(self.net.operators):
            self.net.run(self.scope, context, traced.updates, len(self.net.operators))
