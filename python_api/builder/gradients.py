"""Methods of NetBuilder that ask for gradients and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...framework.base.errors import GradientError
from ...framework.ir.desc import STATE
from ...framework.passes.optimizer import OptimizerAttrs
from .methods import builder_method
from .net_builder import NetBuilder, Var
from .operator_methods import where


@builder_method
def backward_from(
    builder: NetBuilder, cost: Var | str, wrt: Sequence[Var | str] | None = None
) -> None:
    """Ask for gradients of `cost` (of the sum of all costs named so).

    Args:
        wrt: variables to differentiate with respect to; by default every parameter.

    Raises:
        GradientError: now, where no gradient flows.
    """
    builder.declared(str(cost))
    before = builder.objective
    more = before.wrt if wrt is None else (*(before.wrt or ()), *map(str, wrt))
    builder.set_objective(replace(before, costs=(*before.costs, str(cost)), wrt=more))


@builder_method
def add_optimization(
    builder: NetBuilder,
    learning_rate: float = 0.01,
    type: str = "sgd",  # noqa: A002  the design's signature
    *,
    schedule: str = "",
    schedule_attrs: Mapping[str, Any] | None = None,
    clip_value: float = 0.0,
    clip_norm: float = 0.0,
    parameters: Sequence[Var | str] | None = None,
    **attrs: Any,
) -> None:
    """Append an optimizer; see `OptimizerAttrs` for the arguments.

    Raises:
        GradientError: no `backward_from` before, or a parameter without gradient.
        AttributeTypeError: unknown optimizer or attribute.
    """
    if not builder.objective.costs:
        raise GradientError(f"{where()}: add_optimization needs backward_from(cost) first")
    wanted = OptimizerAttrs(
        type=type,
        learning_rate=learning_rate,
        attrs=attrs,
        schedule=schedule,
        schedule_attrs=dict(schedule_attrs or {}),
        clip_value=clip_value,
        clip_norm=clip_norm,
        parameters=None if parameters is None else [str(name) for name in parameters],
    )
    before = builder.objective
    builder.set_objective(replace(before, optimizers=(*before.optimizers, wanted)))


@builder_method
def add_backward_ops(
    builder: NetBuilder,
    targets: Var | str | Sequence[Var | str] | None = None,
    wrt: Sequence[Var | str] | None = None,
) -> dict[str, str]:
    """Ask for gradients as `Net.add_backward_ops` does: of the last operator's output by default.

    Returns:
        Variable -> name of its gradient, for every variable that has one now.

    Raises:
        GradientError: no operators, or no gradient flows.
    """
    if targets is None:
        operators = builder.forward_net.operators
        names = operators[-1].output_vars()[:1] if operators else []
        if not names:
            raise GradientError(f"{where()}: add_backward_ops: the net has no operator yet")
    else:
        names = [targets] if isinstance(targets, (str, Var)) else list(targets)
    for name in names:
        builder.declared(str(name))
    before = builder.objective
    more = before.wrt if wrt is None else (*(before.wrt or ()), *map(str, wrt))
    costs = (*before.costs, *map(str, names))
    builder.set_objective(replace(before, costs=costs, wrt=more))
    return dict(builder.gradients)


@builder_method
def add_optimizer_ops(builder: NetBuilder, attrs: OptimizerAttrs) -> list[str]:
    """Append an optimizer as `Net.add_optimizer_ops` does; see `OptimizerAttrs`.

    Returns:
        Names of its state variables.

    Raises:
        GradientError: no gradients are asked for, or a parameter has none.
    """
    if not builder.objective.costs:
        raise GradientError(f"{where()}: add_optimizer_ops needs add_backward_ops() first")
    before, known = builder.objective, set(builder.net.vars)
    builder.set_objective(replace(before, optimizers=(*before.optimizers, attrs)))
    return [n for n, var in builder.net.vars.items() if var.kind == STATE and n not in known]


@builder_method
def gradient(builder: NetBuilder, var: Var | str) -> str:
    """Name of the variable that holds the gradient with respect to `var`.

    Raises:
        GradientError: there is none.
    """
    found = builder.gradients.get(str(var))
    if found is None:
        raise GradientError(f"no gradient of {str(var)!r} is computed; name it in backward_from")
    return found
