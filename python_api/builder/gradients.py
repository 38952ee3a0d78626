"""Methods of NetBuilder that ask for gradients and updates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, GradientError, VariableError, format_shape
from ...framework.base.scope import Scope
from ...framework.ir.desc import PARAMETER, STATE
from ...framework.passes.costs import differentiable_ends, possible_costs
from ...framework.passes.optimizer import REST, OptimizerAttrs, constant_rates
from ...framework.passes.precision.loss_scaling import LossScale, as_loss_scale
from .calls import no_variable, where
from .methods import running_method
from .net_builder import NetBuilder
from .var import Var


@running_method
def backward_from(
    builder: NetBuilder,
    cost: Var | str,
    wrt: Sequence[Var | str] | Var | str | None = None,
    *,
    recompute: bool = False,
) -> None:
    """Ask for gradients of `cost`, a single number (of the sum of all costs named so).

    Args:
        cost: the variable, or its name. One of unknown rank is taken, and its elements are summed;
            `PlainNet.add_backward_ops` takes any shape.
        wrt: variables to differentiate with respect to, or one of them; by default every trainable
            parameter. Variables of several calls add up.
        recompute: whether cheap activations (of elementwise operators, dropout, normalizations of
            rows, operators that move values) are computed again for the gradients instead of being
            kept: less memory for some more time. It goes for the whole net.

    Raises:
        GradientError: now, where no gradient flows, or where `cost` is no single number.
        VariableError: variables that the net does not have.
    """
    shape = builder.declared(cost).shape
    if shape is not None and any(dim != 1 for dim in shape):
        name = str(cost)
        raise GradientError(
            f"{where()}: backward_from wants a single number, but {name!r} has the shape"
            f" {format_shape(shape)}; take its mean or its sum: b.mean({name}) or"
            f" b.reduce_sum({name})"
        )
    _differentiate(builder, "backward_from", [str(cost)], wrt, recompute)


def _differentiate(
    builder: NetBuilder,
    method: str,
    costs: Sequence[str],
    wrt: Sequence[Var | str] | Var | str | None,
    recompute: bool = False,
) -> None:
    """Add costs, and what to differentiate them by, to the objective; `method` was called."""
    before = builder.objective
    wanted = replace(before, costs=(*before.costs, *costs), recompute=before.recompute or recompute)
    if wrt is None:
        wanted = replace(wanted, all_parameters=True)
    else:
        more = _names(wrt)
        if not more:
            raise GradientError(f"{where()}: {method}: wrt names no variable")
        wanted = replace(wanted, wrt=(*before.wrt, *more))
    builder.set_objective(wanted)


@running_method
def add_optimization(
    builder: NetBuilder,
    learning_rate: float = 0.01,
    type: str = "sgd",  # noqa: A002  the design's signature
    *,
    schedule: str = "",
    schedule_attrs: Mapping[str, Any] | None = None,
    clip_value: float = 0.0,
    clip_norm: float = 0.0,
    parameters: Sequence[Var | str] | Var | str | None = None,
    master: bool = True,
    loss_scale: LossScale | str | float | None = None,
    **attrs: Any,
) -> None:
    """Append an optimizer: `b.add_optimization(0.001, "adam", weight_decay=0.01)`.

    It lowers the costs of `backward_from`. Without these it lowers the one single number that the
    net computes from its parameters and no operator reads, as if `backward_from` had named it.

    Several calls give groups of parameters optimizers of their own, each with its own learning
    rate, schedule, step counter and clipping:

        b.add_optimization(0.1, "momentum", parameters=["embedding"])
        b.add_optimization(1e-3, "adamw", clip_norm=1.0, parameters="rest")

    A constant rate is a variable of the scope: `optimizer@LEARNING_RATE` for the first call,
    `optimizer@LEARNING_RATE@2` for the second, and so on. The builder's first run in a scope sets
    it; a number that you write there later holds, and goes into saved nets and checkpoints. Step
    counters are called `optimizer@STEP` in the same way.

    Args:
        learning_rate: the rate, or with a schedule the one that the schedule begins with. A
            parameter's `lr_factor` multiplies it.
        type: sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam, adamw, adamax, nadam,
            radam, lion, lamb, lars or lbfgs; `opscope ops TYPE` shows the formula and `attrs`.
        schedule: cosine, warmup_cosine, step_decay, ...: the operators `lr_...`.
        schedule_attrs: attributes of the schedule, `{"total_steps": 1000}` say.
        clip_value: gradients are clipped to [-clip_value, clip_value]; 0 = not.
        clip_norm: the gradients of this call's parameters are scaled so that their common norm is
            at most this; 0 = not.
        parameters: which parameters, as handles or names, or one of them. None: every one that has
            a gradient; "rest": the ones that no earlier call updates.
        master: whether parameters of half precision are updated in float32 copies.
        loss_scale: factor of the cost, so that float16 holds its gradients: a number, "dynamic" for
            one that is found while training, or a `LossScale`. It goes for all optimizers of the
            net; `gradient` then names gradients of the scaled cost.
        attrs: attributes of the optimizer (`beta1`, `momentum`, `weight_decay`, ...).

    Raises:
        GradientError: no `backward_from` before, and several costs or none to begin from; or a
            parameter without gradient.
        VariableError: a parameter that does not exist, is named twice, or is updated by an earlier
            call already.
        AttributeTypeError: unknown optimizer, schedule or attribute; no number as the rate;
            two different loss scales.
    """
    _check_order(learning_rate, type)
    before = builder.objective
    if not before.costs:
        backward_from(builder, _only_cost(builder))
    try:
        _optimize(
            builder,
            OptimizerAttrs(
                type=type,
                learning_rate=learning_rate,
                attrs=attrs,
                schedule=schedule,
                schedule_attrs={} if schedule_attrs is None else schedule_attrs,
                clip_value=clip_value,
                clip_norm=clip_norm,
                parameters=None if parameters is None else _names(parameters, REST),
                master=master,
            ),
            as_loss_scale(loss_scale),
        )
    except Exception:
        if builder.objective is not before:
            builder.set_objective(before)
        raise


def _optimize(builder: NetBuilder, wanted: OptimizerAttrs, scale: LossScale | None) -> None:
    """Add an optimizer, and the loss scale of the net where it brings one, to the objective."""
    names = wanted.parameters
    if not any(builder.declared(name).kind == PARAMETER for name in builder.gradients):
        if names is None or names == REST:
            raise GradientError(
                f"{where()}: nothing to update: backward_from asks for the gradients of"
                f" {', '.join(builder.gradients)} and of no parameter; leave wrt out, or name"
                " parameters in it"
            )
    before = builder.objective
    if scale is not None and before.loss_scale not in (None, scale):
        raise AttributeTypeError(
            f"{where()}: a net has one loss scale; {before.loss_scale} came before {scale}"
        )
    scale = scale or before.loss_scale
    builder.set_objective(
        replace(before, optimizers=(*before.optimizers, wanted), loss_scale=scale)
    )


def _only_cost(builder: NetBuilder) -> str:
    """The one single number that depends on a parameter and that no operator reads.

    Raises:
        GradientError: there is none, or several; the message names them.
    """
    costs = possible_costs(builder.forward_net.op_list)
    if len(costs) == 1:
        return costs[0]
    if costs:
        why = f"{len(costs)} single numbers depend on parameters: {', '.join(costs)}"
    else:
        ends = differentiable_ends(builder.forward_net.op_list)
        listed = ", ".join(f"{name} {format_shape(shape)}" for name, shape in ends.items())
        why = "no single number depends on a parameter" + (
            f"; the net ends in {listed}: take a mean or a sum of it" if ends else ""
        )
    raise GradientError(f"{where()}: add_optimization needs backward_from(cost) first: {why}")


def settle_rates(builder: NetBuilder, scope: Scope, keep: Collection[str] = ()) -> None:
    """Set the constant learning rates of a builder, once in a scope.

    What a former net left under the same names would be used otherwise. Numbers that are written to
    the variables afterwards hold.

    Args:
        keep: rates that stay as they are in the scope: a checkpoint brought them.
    """
    settled = builder.settled_rates.setdefault(scope, {})
    for name, value in constant_rates(builder.op_list).items():
        if settled.get(name) != value:
            variable = scope.find(name)
            if variable is None or variable.inner is None or name in keep:
                settled[name] = value
            elif not builder.owner.is_kept_from(name, variable.origin):
                settled[name] = value
                owner = variable.origin
                variable.set(np.asarray(value, variable.inner.dtype))
                variable.origin = owner


def check_shared_rates(builder: NetBuilder, scope: Scope) -> None:
    """Refuse to share a learning rate that is another in this builder.

    Raises:
        VariableError: it is; the message says how both keep their own.
    """
    for name, value in constant_rates(builder.op_list).items():
        variable = scope.find(name)
        if variable is None or not builder.owner.is_kept_from(name, variable.origin):
            continue
        held = float(variable.numpy())
        if not np.isclose(held, value, rtol=1e-6):
            raise VariableError(
                f"net {builder.name!r}: {name!r} is {held:g} in the scope, another NetBuilder's,"
                f" and {value:g} here. To share parameters and not the rate, run one in a kid:"
                f" kid = scope.new_scope(); kid.var({name!r})"
            )


def _names(given: Sequence[Var | str] | Var | str, word: str = "") -> Sequence[str] | str:
    """Names of variables that are given by handles or names, or as one of them.

    `word`: a text that stays one, since it stands for several.
    """
    if isinstance(given, str) and given == word:
        return given
    items = [given] if isinstance(given, (Var, str)) else given
    if not isinstance(items, Iterable):
        raise VariableError(f"{where()}: want variables or names, not {no_variable(given)}")
    items = list(items)
    for item in items:
        if not isinstance(item, (Var, str)):
            raise VariableError(f"{where()}: want variables or names, not {no_variable(item)}")
    return [str(item) for item in items]


def _check_order(rate: Any, op_type: Any) -> None:
    """Raise AttributeTypeError where the two first arguments are swapped, or no number and name."""
    if isinstance(op_type, str) and not isinstance(rate, (str, Var)):
        return  # OptimizerAttrs checks the rest
    if isinstance(rate, Var):
        raise AttributeTypeError(
            f"{where()}: add_optimization wants a number as the learning rate, not the variable"
            f" {rate.name!r}; for a rate that changes give schedule=..., or write to the"
            " variable 'optimizer@LEARNING_RATE' of the scope between two runs"
        )
    name = rate if isinstance(rate, str) else "adam"
    number = next((x for x in (op_type, rate) if isinstance(x, (int, float))), 0.01)
    raise AttributeTypeError(
        f"{where()}: the learning rate comes first, the type of the optimizer second:"
        f' add_optimization({number}, "{name}"), not add_optimization({rate!r}, {op_type!r})'
    )


@running_method
def add_backward_ops(
    builder: NetBuilder,
    targets: Var | str | Sequence[Var | str] | None = None,
    wrt: Sequence[Var | str] | Var | str | None = None,
) -> dict[str, str]:
    """Ask for gradients as `Net.add_backward_ops` does.

    Args:
        targets: variables of any shape, whose sum is differentiated; None: the last operator's
            output.
        wrt: see `backward_from`.

    Returns:
        Variable -> name of its gradient, for every variable that has one now.

    Raises:
        GradientError: no operators, or no gradient flows.
    """
    if targets is None:
        operators = builder.forward_net.operators
        if not operators:
            raise GradientError(f"{where()}: add_backward_ops: the net has no operator yet")
        names = operators[-1].output_vars()[:1]
    else:
        names = _names(targets)
    for name in names:
        builder.declared(name)
    _differentiate(builder, "add_backward_ops", names, wrt)
    return dict(builder.gradients)


@running_method
def add_optimizer_ops(builder: NetBuilder, attrs: OptimizerAttrs) -> list[str]:
    """Append an optimizer as `Net.add_optimizer_ops` does; see `OptimizerAttrs`.

    Returns:
        Names of its state variables.

    Raises:
        GradientError: no gradients are asked for, or a parameter has none.
    """
    if not builder.objective.costs:
        raise GradientError(f"{where()}: add_optimizer_ops needs add_backward_ops() first")
    before = builder.objective
    known = set(builder.net.vars)
    builder.set_objective(replace(before, optimizers=(*before.optimizers, attrs)))
    return [n for n, var in builder.net.vars.items() if var.kind == STATE and n not in known]


@running_method
def gradient(builder: NetBuilder, var: Var | str) -> str:
    """Name of the variable that holds the gradient with respect to `var`.

    Raises:
        GradientError: there is none.
    """
    grad = builder.gradients.get(str(var))
    if grad is None:
        raise GradientError(f"no gradient of {str(var)!r} is computed; name it in backward_from")
    return grad
