"""Parameters and states in a pipeline, where a stage holds its own ones alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.communicator import Communicator
from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.op_list import OpList
from ...framework.passes.ranks.stages import Stages
from ...framework.runtime.initialize import Owner, persistent_vars


class StagedValues:
    """The values of one training in which a rank holds the values of its stage alone.

    It is asked what `ShardedValues` is asked. What all stages compute for themselves, such as the
    number of updates, all of them hold, and the first one's counts.

    Args:
        net: as the user gave it. stages: of the net that the ranks run.
        stage: which is this rank's.
    """

    parameters = True

    def __init__(self, communicator: Communicator, net: OpList, stages: Stages, stage: int) -> None:
        self._ranks = communicator
        self._vars = {var.name: var for var in persistent_vars(net)}
        self._of_var = stages.of_var
        self._stage = stage
        # A parameter that later stages read comes to them with the activations.
        self._others = [name for name in self._vars if self._of_var.get(name, stage) != stage]
        self._origins: dict[str, object] = {}

    def takes(self, name: str) -> bool:
        """Whether it is a state that no rank shall hold whole: none is, until `cut`."""
        return False

    def unsharded(self, net: OpList) -> OpList:
        """A net without the states that `takes` names."""
        return net

    def hold_back(self, scope: Scope) -> None:
        """All values are initialized, so that every number of ranks draws the same ones."""

    def cut(
        self,
        scope: Scope,
        context: OpContext,
        owner: Owner | None,
        given: Mapping[str, np.ndarray],
    ) -> None:
        """Let go of the values of other stages; all ranks have the same ones already."""
        for name in self._others:
            variable = scope.get(name)
            self._origins[name] = variable.origin
            variable.clear()

    def whole_values(self, net: OpList, scope: Scope) -> dict[str, np.ndarray]:
        """All parameters and states on the host of the first rank; nothing on the others."""
        values: dict[str, np.ndarray] = {}
        for var in persistent_vars(net):
            # Of several ranks with one stage the first one gives it: its number is the stage's.
            source = self._of_var.get(var.name, 0)
            if self._ranks.rank == 0 == source:
                values[var.name] = to_host(scope.get(var.name).inner)
            elif self._ranks.rank == 0:
                values[var.name] = np.empty(var.shape or (), var.dtype)
                self._ranks.receive(values[var.name], source)
            elif self._ranks.rank == source:
                self._ranks.send(to_host(scope.get(var.name).inner), 0)
        return values

    def forget(self, scope: Scope) -> None:
        """Nothing: no rank holds parts of gradients between steps."""

    def join(self, scope: Scope) -> None:
        """Let all ranks hold the values of all stages again."""
        for name, var in self._vars.items():
            variable = scope.get(name)
            value = np.empty(var.shape or (), var.dtype)
            if name not in self._others:
                value = np.array(to_host(variable.inner))
            self._ranks.broadcast(value, self._of_var.get(name, 0))
            if name in self._others:
                variable.set(value)
                variable.origin = self._origins[name]
