"""Nets that run an inner net: one operator in a PlainNet, seen as a net of its own."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from ...proto import net_pb2 as pb
from ..base.context import OpContext
from ..base.errors import OpscopeError
from ..base.scope import Scope
from ..ir.desc import INPUT
from ..ir.messages import as_op_list, to_message
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.operation import Operator, SlotsGiven, node_of
from ..passes.optimizer import OptimizerAttrs
from ..runtime.net import Net
from ..runtime.plain_net import PlainNet


class InnerNet(Net):
    """Base of RecurrentNet and RecursiveNet.

    Attributes:
        plain: the PlainNet of the one operator that runs it, and of the gradients and updates that
            follow.

    Args:
        desc: `vars` declares outer variables.

    Raises:
        OpscopeError: what the description holds is wrong.
    """

    def __init__(self, desc: OpList | pb.NetDesc) -> None:
        self._change(as_op_list(desc).copy())

    @property
    def version(self) -> int:
        """See `Net`."""
        return self.plain.version

    @property
    def predicts(self) -> bool:
        """See `Net`."""
        return self.plain.predicts

    @predicts.setter
    def predicts(self, predicts: bool) -> None:
        self.plain.predicts = predicts

    @property
    def op_list(self) -> OpList:
        """The net, without gradients and updates."""
        if self._desc is not None:
            self._op_list.metadata = dict(self._desc.metadata)
        return self._op_list

    @property
    def desc(self) -> pb.NetDesc:
        """The net, without gradients and updates, as a message; see `Net.desc`."""
        if self._desc is None:
            self._desc = to_message(self.op_list)
        return self._desc

    @staticmethod
    @abc.abstractmethod
    def make_op(desc: OpList, steps: str = "") -> OpNode:
        """The operator that runs `desc` over the outer names of its links."""

    def _change(self, net: OpList) -> None:
        """Become `net`. Raises OpscopeError: it is wrong; nothing has changed then."""
        op = self.make_op(net)
        outer = OpList(net.name, vars=list(net.vars), ops=[op])
        declared = {var.name for var in outer.vars}
        for name in dict.fromkeys(op.input_names()):
            if name not in declared:
                outer.vars.append(VarDecl(name, kind=INPUT))
        # The new PlainNet would forget what `load` has said.
        predicts = hasattr(self, "plain") and self.plain.predicts
        self.plain = PlainNet(outer, check=False)
        self.plain.predicts = predicts
        self._op_list = net
        self._desc: pb.NetDesc | None = None

    @property
    def operators(self) -> list[Operator]:
        """The outer operators: the one that runs the inner net, then gradients and updates."""
        return self.plain.operators

    def run(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        begin: int = -1,
        end: int = -1,
    ) -> None:
        """See `Net.run`; `begin` and `end` count the outer operators."""
        self.plain.run(scope, context, begin, end)

    def add_op(
        self,
        op: OpNode | pb.OpDesc | str,
        inputs: SlotsGiven = None,
        outputs: SlotsGiven = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an operator to the inner net; see `PlainNet.add_op`.

        Raises:
            OpscopeError: it is wrong, or gradients have been added; the net stays as it was.
        """
        # The gradient was made of the inner net as it is: another operator would be missing there.
        if len(self.plain.operators) > 1:
            kind = self.plain.operators[0].type
            raise OpscopeError(
                f"{kind} net {self.op_list.name!r}: gradients have been added; its inner net is"
                " closed"
            )
        node = node_of(op, inputs, outputs, attrs)
        # Checked by itself first, so that an error names it and not the whole inner net.
        Operator(node)
        net = self.op_list.copy()
        net.steps[0].net.ops.append(node)
        self._change(net)
        return len(net.steps[0].net.ops) - 1

    def add_backward_ops(
        self,
        targets: str | Sequence[str] | Mapping[str, str] | None = None,
        wrt: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> dict[str, str]:
        """Append the gradient; see `PlainNet.add_backward_ops`."""
        return self.plain.add_backward_ops(targets, wrt, stop)

    def add_optimizer_ops(self, attrs: OptimizerAttrs) -> list[str]:
        """Append updates of parameters; see `PlainNet.add_optimizer_ops`."""
        return self.plain.add_optimizer_ops(attrs)

    def infer_shape(self, scope: Scope) -> None:
        """See `Net.infer_shape`."""
        self.plain.infer_shape(scope)

    def __repr__(self) -> str:
        name = self.op_list.name or "?"
        return f"<{type(self).__name__} {name}: {len(self.plain.operators)} operators>"
