"""What a NetBuilder makes of its forward operators: the objective, and what its runs share."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.passes.loss_scaling import LossScale
from ...framework.passes.optimizer import OptimizerAttrs
from ...framework.runtime.plain_net import PlainNet


@dataclass(frozen=True)
class Objective:
    """Costs, and optimizers that lower them.

    Attributes:
        costs: variables whose sum is differentiated.
        wrt: variables to differentiate with respect to; None: every parameter.
        optimizers: what updates the parameters, one after the other.
        loss_scale: factor of the costs, for gradients in half precision.
    """

    costs: tuple[str, ...] = ()
    wrt: tuple[str, ...] | None = None
    optimizers: tuple[OptimizerAttrs, ...] = ()
    loss_scale: LossScale | None = None


@dataclass
class RunCache:
    """What runs share until the net changes.

    Attributes:
        initialized: the scopes whose parameters hold values.
        nets: by the variables that are fetched: the forward operators that these need; all of them
            for no variables.
        contexts: those of runs, by the context that the caller gave, whether it trains, and the
            variables that are fetched.
    """

    initialized: weakref.WeakSet[Scope] = field(default_factory=weakref.WeakSet)
    nets: dict[frozenset[str], PlainNet] = field(default_factory=dict)
    contexts: dict[tuple[OpContext, bool, frozenset[str]], OpContext] = field(default_factory=dict)
