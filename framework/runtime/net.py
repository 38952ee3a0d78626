"""The interface of networks and the factory that makes them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...proto import net_pb2 as pb
from ..base.context import OpContext
from ..base.errors import FormatError, VariableError, nearest
from ..base.scope import Scope
from ..draw.shown import Shown
from ..ir.messages import as_op_list
from ..ir.op_list import OpList, OpNode
from ..ir.operation import SlotsGiven
from ..ir.registry import load_operators
from ..passes.optimizer import OptimizerAttrs

Kind = TypeVar("Kind", bound="Net")
_KINDS: dict[int, Callable[[OpList], Net]] = {}


def register_net(net_type: int) -> Callable[[type[Kind]], type[Kind]]:
    """Decorator: a class that `Net.create` makes for this `NetDesc.Type`."""

    def add(cls: type[Kind]) -> type[Kind]:
        _KINDS[net_type] = cls
        return cls

    return add


def check_live_out(
    live_out: frozenset[str] | None, net: OpList, scope: Scope
) -> frozenset[str] | None:
    """Names that must be readable after a run, if all of them are of the net or in the scope.

    Raises:
        VariableError: one is a name of neither.
    """
    known = {var.name for var in net.vars}
    if live_out and not live_out <= known:
        known |= {name for op in net.ops for name in (*op.input_names(), *op.output_names())}
    for name in sorted((live_out or frozenset()) - known):
        if scope.find(name) is None:
            title = f"net {net.name!r}" if net.name else "the net"
            raise VariableError(f"live_out: {title} has no variable {name!r}{nearest(name, known)}")
    return live_out


def check_places(scope: Any, context: Any) -> None:
    """Refuse a scope and a context of a run that are none.

    Raises:
        VariableError: one of them is something else.
    """
    for what, given, kind in (("scope", scope, Scope), ("context", context, OpContext)):
        if not isinstance(given, kind):
            raise VariableError(
                f"run: the {what} must be an opscope.{kind.__name__}, not a {type(given).__name__}:"
                " net.run(scope, context, begin, end); inputs are set by scope.feed({'x': array})"
            )


class Net(Shown):
    """A container and controller of operators. A net owns no data: it runs in any scope.

    One net may run from several threads at once, each in a scope of its own.

    Attributes:
        version: another number after each change of the operators or variables.
        predicts: whether only forward operators run, in test phase, and a run that would train is
            refused; so `load` makes the nets that it was not asked to train.
    """

    version: int
    predicts: bool = False

    @property
    @abc.abstractmethod
    def desc(self) -> pb.NetDesc:
        """The net as a message, made when asked for. Changes to it do not reach the net, except
        changes of its metadata."""

    @property
    @abc.abstractmethod
    def op_list(self) -> OpList:
        """The net as passes take it; callers must not change its contents."""

    @staticmethod
    def create(desc: OpList | pb.NetDesc | None = None) -> Net:
        """The network that `desc` describes (`Net::Create` of the design).

        Raises:
            FormatError: no net is registered for this type.
            OpscopeError: what the description holds is wrong: unknown operators, wrong slots,
                attributes or shapes, variables defined twice or used before they are written.
        """
        net = as_op_list(desc) if desc is not None else OpList()
        if net.type not in _KINDS:
            load_operators()  # which registers the nets of operators, too
        if net.type not in _KINDS:
            kind = pb.NetDesc.Type.Name(net.type) if net.type in (0, 1, 2) else net.type
            raise FormatError(f"net {net.name!r} is of type {kind}, which nothing here runs")
        return _KINDS[net.type](net)

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
        of the process and of the thread are used. Raises on failure. Afterwards `scope` holds the
        outputs that no operator reads again, and those that `context.live_out` names.
        """

    @abc.abstractmethod
    def add_op(
        self,
        op: OpNode | pb.OpDesc | str,
        inputs: SlotsGiven = None,
        outputs: SlotsGiven = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an operator: a made one, or type, inputs, outputs and attributes.

        Inputs and outputs are lists in the order of the slots, or mappings from slots to variables.
        Returns the operator's index.
        """

    @abc.abstractmethod
    def add_backward_ops(
        self,
        targets: str | Sequence[str] | Mapping[str, str] | None = None,
        wrt: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> dict[str, str]:
        """Append the operators that compute gradients; returns variable -> name of its gradient."""

    @abc.abstractmethod
    def add_optimizer_ops(self, attrs: OptimizerAttrs) -> list[str]:
        """Append the operators that update parameters; returns the names of their states."""

    @abc.abstractmethod
    def infer_shape(self, scope: Scope) -> None:
        """Infer the shapes of all variables from those in `scope`, and make them there."""
