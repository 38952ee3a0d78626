"""What a NetBuilder is asked to minimise, and the operators that this adds to a net."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.passes.optimizer import OptimizerAttrs
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
        net, gradients = PlainNet(forward.desc), {}
        if self.costs:
            wrt = None if self.wrt is None else list(self.wrt)
            gradients = net.add_backward_ops(list(self.costs), wrt)
        for attrs in self.optimizers:
            net.add_optimizer_ops(attrs)
        return net, gradients
