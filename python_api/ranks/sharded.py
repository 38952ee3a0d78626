"""Parameters and states that ranks share out while they train (ZeRO)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.communicator import Communicator, part_length
from ...framework.base.context import OpContext
from ...framework.base.errors import VariableError
from ...framework.base.scope import Scope, Variable
from ...framework.base.sizes.shape import count
from ...framework.ir.desc import OUTPUT, PARAMETER, STATE
from ...framework.ir.names import shard_name, whole_name
from ...framework.ir.op_list import OpList, VarDecl
from ...framework.passes.ranks.zero import sharded_vars
from ...framework.runtime.initialize import Owner, initialize, persistent_vars


class ShardedValues:
    """The values of one training that ranks share out.

    Args:
        net: as the user gave it. of_rank: the net that a rank runs, made by `ShardTraining`.
    """

    def __init__(self, communicator: Communicator, net: OpList, of_rank: OpList) -> None:
        self._ranks = communicator
        self._net = net
        # States first: the float32 copies of parameters may be made from these.
        found = sharded_vars(net, of_rank)
        self._vars = {v.name: v for kind in (STATE, PARAMETER) for v in found if v.kind == kind}
        self._origins: dict[str, object] = {}
        self._gradients = [v.name for v in of_rank.vars if v.kind == OUTPUT and whole_name(v.name)]

    @property
    def parameters(self) -> bool:
        """Whether parameters are among them."""
        return any(var.kind == PARAMETER for var in self._vars.values())

    def takes(self, name: str) -> bool:
        """Whether it is a state that no rank shall hold whole."""
        return name in self._vars and self._vars[name].kind == STATE

    def unsharded(self, net: OpList) -> OpList:
        """A net without the states that are shared out, for what works on whole values."""
        left = net.copy()
        left.vars = [var for var in net.vars if not self.takes(var.name)]
        return left

    def hold_back(self, scope: Scope) -> None:
        """Keep states without a value from being initialized whole, until `cut`."""
        for name in self._vars:
            variable = scope.find(name) or scope.var(name)
            if self.takes(name) and variable.inner is None:
                variable.bind(np.empty(0, np.int8))  # which no initializer replaces

    def cut(
        self,
        scope: Scope,
        context: OpContext,
        owner: Owner | None,
        given: Mapping[str, np.ndarray],
    ) -> None:
        """Leave each rank its parts; parameters are equal on all ranks already.

        Args:
            given: values of states that the first rank has read from a checkpoint.
        """
        lead = self._ranks.rank == 0
        names = list(self._vars)
        has = [n in given or _is_whole(scope.find(n), self._vars[n]) for n in names]
        known = dict(zip(names, self._ranks.exchange(bytes(has))[0], strict=True))
        for name, var in self._vars.items():
            variable = scope.find(name) or scope.var(name)
            self._origins[name] = variable.origin
            if var.kind == STATE and known[name]:
                value = np.empty(var.shape or (), var.dtype)
                if lead:
                    value = np.array(given[name] if name in given else to_host(variable.inner))
                self._ranks.broadcast(value)
            else:
                if not _is_whole(variable, var):
                    variable.clear()
                    made_of = var.initializer.input_names() if var.initializer else ()
                    given_vars = [v for v in self._net.vars if v.name in made_of]
                    one = OpList(self._net.name, vars=[*given_vars, var])
                    initialize(one, scope, context, owner=owner)
                    self._origins[name] = owner
                value = to_host(variable.inner)
            variable.clear()
            variable.scope.var(shard_name(name)).set(self._own(value))

    def whole(self, scope: Scope, name: str) -> np.ndarray:
        """The value of all ranks together, on the host; every rank must ask for it."""
        var = self._vars[name]
        own = np.ascontiguousarray(to_host(scope.get(shard_name(name)).inner))
        parts = np.empty((self._ranks.size, own.size), own.dtype)
        self._ranks.all_gather(own, parts)
        shape = var.shape or ()
        return parts.reshape(-1)[: count(shape)].reshape(shape)

    def whole_values(self, net: OpList, scope: Scope) -> dict[str, np.ndarray]:
        """All parameters and states on the host of the first rank; nothing on the others."""
        values = {}
        for var in persistent_vars(net):
            if var.name in self._vars:
                value = self.whole(scope, var.name)
            else:
                variable = scope.find(var.name)
                if variable is None or variable.inner is None:
                    raise VariableError(f"no value in the scope: {var.name!r}")
                value = to_host(variable.inner)
            if self._ranks.rank == 0:
                values[var.name] = value
        return values

    def join(self, scope: Scope) -> None:
        """Put whole values back in place of the parts, on all ranks."""
        for name in self._vars:
            value = self.whole(scope, name)
            variable = scope.find(name) or scope.var(name)
            variable.scope.erase(shard_name(name))
            variable.set(value)
            variable.origin = self._origins[name]
        self.forget(scope)

    def forget(self, scope: Scope) -> None:
        """Erase the parts of gradients that the last step has left."""
        for name in self._gradients:
            scope.erase(name)

    def _own(self, value: np.ndarray) -> np.ndarray:
        part = np.zeros(part_length(value.size, self._ranks.size), value.dtype)
        begin = self._ranks.rank * part.size
        own = value.reshape(-1)[begin : begin + part.size]
        part[: own.size] = own
        return part


def _is_whole(variable: Variable | None, var: VarDecl) -> bool:
    """Whether a variable holds a value of the declared shape."""
    value: Any = None if variable is None else variable.inner
    return value is not None and value.shape == var.shape and value.dtype == var.dtype
