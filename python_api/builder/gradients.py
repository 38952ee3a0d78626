"""Methods of NetBuilder that ask for gradients and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...framework.base.errors import AttributeTypeError, GradientError
from ...framework.passes.loss_scaling import LossScale, as_loss_scale
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
    master: bool = True,
    loss_scale: LossScale | str | float | None = None,
    **attrs: Any,
) -> None:
    """Append an optimizer; see `OptimizerAttrs` for the arguments.

    Args:
        loss_scale: factor of the cost, so that float16 holds its gradients: a number, "dynamic" for
            one that is found while training, or a `LossScale`. It goes for all optimizers of the
            net; `gradient` then names gradients of the scaled cost.

    Raises:
        GradientError: no `backward_from` before, or a parameter without gradient.
        AttributeTypeError: unknown optimizer or attribute, or two different loss scales.
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
        master=master,
    )
    before, scale = builder.objective, as_loss_scale(loss_scale)
    if scale is not None and before.loss_scale not in (None, scale):
        raise AttributeTypeError(
            f"{where()}: a net has one loss scale; {before.loss_scale} came before {scale}"
        )
    scale = scale or before.loss_scale
    builder.set_objective(
        replace(before, optimizers=(*before.optimizers, wanted), loss_scale=scale)
    )


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
