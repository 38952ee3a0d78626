"""Nets made from a NetBuilder's forward operators: with gradients and updates, and for runs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.passes.optimizer import OptimizerAttrs
from ...framework.passes.prune import prune
from ...framework.runtime.plain_net import PlainNet


@dataclass(frozen=True)
class Objective:
    """Costs, and optimizers that lower them.

    Attributes:
        costs: variables whose sum is differentiated.
        wrt: variables to differentiate with respect to; None: every parameter.
        optimizers: what updates the parameters, one after the other.
    """

    costs: tuple[str, ...] = ()
    wrt: tuple[str, ...] | None = None
    optimizers: tuple[OptimizerAttrs, ...] = ()

    def whole_net(self, forward: PlainNet) -> tuple[PlainNet, dict[str, str]]:
        """A copy of a net, followed by gradient and update operators.

        Returns:
            The net, and the name of the gradient of each variable that has one.

        Raises:
            OpscopeError: no gradient flows, or a parameter to update has none.
        """
        net, gradients = PlainNet(forward.op_list), {}
        if self.costs:
            wrt = None if self.wrt is None else list(self.wrt)
            gradients = net.add_backward_ops(list(self.costs), wrt)
        for attrs in self.optimizers:
            net.add_optimizer_ops(attrs)
        return net, gradients


class RunCache:
    """What runs share until the net changes: nets, contexts, scopes whose parameters hold values.

    Args:
        forward: the forward operators.
    """

    def __init__(self, forward: PlainNet) -> None:
        self.initialized: weakref.WeakSet[Scope] = weakref.WeakSet()
        self._forward = forward
        self._nets: dict[frozenset[str], PlainNet] = {}
        self._contexts: dict[tuple[OpContext, bool, frozenset[str]], OpContext] = {}

    def net_for(self, names: frozenset[str]) -> PlainNet:
        """The forward operators that the variables `names` need; all where there are no names."""
        found = self._nets.get(names)
        if found is None:
            forward = self._forward.op_list
            found = self._nets[names] = PlainNet(prune(forward, names) if names else forward)
        return found

    def context(self, base: OpContext, train: bool, names: frozenset[str]) -> OpContext:
        """`base` in training or test phase, in which the variables `names` can be read afterwards.

        The same arguments give the same context, for which nets keep their plans.
        """
        key = (base, train, names)
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = base.derive(train=train, live_out=names)
        return found
