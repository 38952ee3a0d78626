"""What a NetBuilder makes of its forward operators: the objective, and what its runs share."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.desc import PARAMETER
from ...framework.ir.op_list import VarDecl
from ...framework.passes.optimizer import OptimizerAttrs
from ...framework.passes.precision.loss_scaling import LossScale
from ...framework.runtime.feeding import Inputs
from ...framework.runtime.plain_net import PlainNet
from ...framework.runtime.predict import Predictor


@dataclass(frozen=True)
class Objective:
    """Costs, and optimizers that lower them.

    Attributes:
        costs: variables whose sum is differentiated.
        wrt: variables to differentiate with respect to.
        all_parameters: whether these also include every trainable parameter.
        optimizers: what updates the parameters, one after the other.
        loss_scale: factor of the costs, for gradients in half precision.
        recompute: whether cheap activations are computed again for the gradients.
    """

    costs: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()
    all_parameters: bool = False
    optimizers: tuple[OptimizerAttrs, ...] = ()
    loss_scale: LossScale | None = None
    recompute: bool = False

    def wrt_of(self, variables: Iterable[VarDecl]) -> list[str] | None:
        """What the costs are differentiated by, as `add_backward_ops` takes it."""
        if not self.all_parameters:
            return list(self.wrt)
        if not self.wrt:
            return None
        own = [v.name for v in variables if v.kind == PARAMETER and not v.stop_gradient]
        return list(dict.fromkeys((*own, *self.wrt)))


class BoundRun(NamedTuple):
    """What a kind of run needs and no scope decides.

    Attributes:
        net: the operators that run. context: of the run.
        fed: what may be fed.
        inputs: the inputs that must hold values, because operators read them or they are fetched.
    """

    net: PlainNet
    context: OpContext
    fed: Inputs
    inputs: tuple[str, ...]


@dataclass
class RunCache:
    """What runs share until the net changes.

    Attributes:
        initialized: the scopes whose parameters hold values.
        nets: by the variables that are fetched: the forward operators that these need; all of them
            for no variables.
        runs: what is prepared of runs, by the context that the caller gave, whether it trains, and
            the variables that are fetched; and by the computed variables that are fed, if any.
        predictor: of the forward operators, where somebody predicted.
    """

    initialized: weakref.WeakSet[Scope] = field(default_factory=weakref.WeakSet)
    nets: dict[frozenset[str], PlainNet] = field(default_factory=dict)
    runs: dict[tuple[Any, ...], BoundRun] = field(default_factory=dict)
    predictor: Predictor | None = None
