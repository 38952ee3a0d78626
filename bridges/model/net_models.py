"""Nets of operators: what opscope saved, checkpoints, builders and nets in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import VariableError
from ...framework.base.scope import Scope
from ...framework.base.untrusted.values import shown
from ...framework.editing.operations import Edit
from ...framework.files.saved import Loaded, loaded, put_values, save
from ...framework.ir.desc import INPUT
from ...framework.ir.op_list import OpList
from ...framework.ir.results import net_results
from ...framework.passes.verify.verifier import verify
from ...framework.runtime.initialize import persistent_vars
from . import op_nets
from .model import Feed, Model, Port
from .op_net import OpNet, leaves

Arrays = Mapping[str, np.ndarray]


class NetModel(Model):
    """A net of operators with its arrays.

    Args:
        arrays: or what reads them when they are first asked for.
    """

    family, what = "operators", "a net of operators"

    def __init__(
        self,
        net: OpList,
        arrays: Arrays | Callable[[], Arrays],
        path: str = "",
        title: str = "",
    ) -> None:
        super().__init__(path, title or net.name or "net")
        self._held = OpNet(net, {}, self.notes)
        self._unread: Callable[[], Arrays] | None = None
        if callable(arrays):
            self._unread = arrays
        else:
            self._held.arrays = dict(arrays)

    @property
    def network(self) -> Loaded:
        return loaded(self.desc.copy(), self.arrays, None, True)

    @property
    def desc(self) -> OpList:
        return self._held.net

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        if self._unread is not None:
            self._held.arrays = dict(self._unread())
            self._unread = None
        return self._held.arrays

    @property
    def facts(self) -> list[tuple[str, str | int]]:
        count = sum(array.size for array in self.arrays.values())
        return [("parameters and states", count)] if self.arrays else []

    @property
    def inputs(self) -> list[Port]:
        return self._ports(var.name for var in self.desc.vars if var.kind == INPUT)

    @property
    def outputs(self) -> list[Port]:
        return self._ports(leaves(self.desc) if self.dialect else net_results(self.desc))

    def _ports(self, names: Iterable[str]) -> list[Port]:
        shapes = {var.name: var.shape or () for var in self.desc.vars}
        return [
            Port(name, tuple(None if dim < 0 else dim for dim in shapes.get(name, ())))
            for name in names
        ]

    def load(self, scope: Scope | None = None, *, train: bool = False) -> Loaded:
        """The net and its values in a scope, as `opscope.load` gives them.

        Raises:
            OpscopeError: the net itself is wrong.
        """
        verify(self.desc, f"in {self.name}", undeclared=True)
        return loaded(self.desc, self.arrays, scope, train)

    def run(self, feed: Feed, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """Values of variables; see `Loaded.predict`."""
        return self.load().predict(feed, fetch or None, None)

    def copy(self) -> NetModel:
        if self.desc.steps:
            raise VariableError("a net of steps is edited inside of the operator that holds it")
        copied = type(self)(self.desc.copy(), self.arrays, self.path, self.title)
        copied.notes += self.notes
        return copied

    def perform(self, edit: Edit) -> str:
        return op_nets.perform(self._held, edit)

    def check(self) -> None:
        self._held.settle()
        verify(self.desc, "after the edits", undeclared=True)

    def save(self, path: str) -> None:
        scope = Scope()
        put_values(self.arrays, scope)
        save(self.desc, scope, path)


def held_values(net: OpList, scope: Scope) -> dict[str, np.ndarray]:
    """The parameters and states of a net that have a value in a scope, copied to the host.

    Raises:
        VariableError: it is no scope.
    """
    if not isinstance(scope, Scope):
        raise VariableError(f"the values of a net are in an opscope.Scope, not in {scope!r}")
    values = {}
    for var in persistent_vars(net):
        variable = scope.find(var.name)
        if variable is not None and variable.inner is not None:
            values[var.name] = variable.numpy()  # a copy: what is packed of the value stays
    return values


class Description(NetModel):
    """A net in a dialect whose network is not there: without numbers, or of a compilation."""

    family = "description"

    @property
    def what(self) -> str:  # type: ignore[override]
        return f"a description in the dialect {shown(self.dialect)}"
