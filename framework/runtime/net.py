"""The interface of networks and the factory that makes them from a NetDesc."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, TypeVar

from ...proto import net_pb2 as pb
from ..base.context import OpContext
from ..base.errors import FormatError
from ..base.scope import Scope

_KINDS: dict[int, Callable[[pb.NetDesc], Net]] = {}

_N = TypeVar("_N", bound="Net")


def register_net(net_type: int) -> Callable[[type[_N]], type[_N]]:
    """Decorator: a class that `Net.create` makes for this `NetDesc.Type`."""

    def add(cls: type[_N]) -> type[_N]:
        _KINDS[net_type] = cls
        return cls

    return add


class Net(abc.ABC):
    """A container and controller of operators. A net owns no data: it runs in any scope.

    One net may run from several threads at once, each in a scope of its own.
    """

    desc: pb.NetDesc

    @staticmethod
    def create(desc: pb.NetDesc | None = None) -> Net:
        """The network that `desc` describes (`Net::Create` of the design).

        Raises:
            FormatError: nobody registered a net for this type.
            OpscopeError: what the description holds is wrong: unknown operators, wrong slots,
                attributes or shapes, variables defined twice or used before they are written.
        """
        desc = desc if desc is not None else pb.NetDesc()
        if desc.type not in _KINDS:
            from ..ir.registry import load_operators
            from . import plain_net  # noqa: F401  registers itself

            load_operators()
        if desc.type not in _KINDS:
            kind = pb.NetDesc.Type.Name(desc.type) if desc.type in (0, 1, 2) else desc.type
            raise FormatError(f"net {desc.name!r} is of type {kind}, which nothing here runs")
        if desc.type == pb.NetDesc.PLAIN:  # the others check their links themselves
            from ..passes.verify.verifier import verify

            verify(desc, undeclared=True)  # a raw net finds its inputs in the scope
        return _KINDS[desc.type](desc)

    @abc.abstractmethod
    def run(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        begin: int = -1,
        end: int = -1,
    ) -> None:
        """Run the operators `begin` to `end` (exclusive) on the variables of `scope`.

        Negative indexes mean from the first and to the last. Without scope or context the defaults
        of the process and of the thread are used. Raises on failure.
        """

    @abc.abstractmethod
    def add_op(self, desc: Any, *args: Any, **kwargs: Any) -> int:
        """Append an operator; returns its index."""

    @abc.abstractmethod
    def add_backward_ops(self, *args: Any, **kwargs: Any) -> Any:
        """Append the operators that compute gradients."""

    @abc.abstractmethod
    def add_optimizer_ops(self, attrs: Any) -> Any:
        """Append the operators that update parameters."""

    @abc.abstractmethod
    def infer_shape(self, scope: Scope) -> None:
        """Infer the shapes of all variables from those in `scope`, and make them there."""
