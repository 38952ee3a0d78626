"""Schedules of learning rates, the operators `lr_...`, by the names that users type.

Also what PyTorch and Keras call schedules, and the arguments of optimizers, for messages.
"""

from __future__ import annotations

from ..base.errors import AttributeTypeError, nearest, spelled
from ..ir.registry import lookup, operator_types

RATE_PREFIX = "lr_"

ARGUMENTS = {
    "lr": "the first argument, learning_rate",
    "eps": "epsilon",
    "betas": "beta1 and beta2",
    "nesterov": "the type 'nesterov'",
    "params": "parameters",
    "decoupled_weight_decay": "the type 'adamw'",
    "optimizer": "the second argument, type",
    "clipnorm": "clip_norm",
    "global_clipnorm": "clip_norm",
    "max_norm": "clip_norm",
    "clipvalue": "clip_value",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "decay": "weight_decay, or a schedule for a rate that falls",
}
"""How other toolkits call arguments, and what they are here."""

SCHEDULES = {
    "steplr": "step_decay",
    "multisteplr": "piecewise",
    "piecewiseconstantdecay": "piecewise",
    "exponentiallr": "exponential_decay",
    "cosineannealinglr": "cosine",
    "cosinedecay": "cosine",
    "linearlr": "linear_warmup",
    "polynomiallr": "polynomial_decay",
}
"""Schedules of PyTorch and Keras, in lower case -> ours."""


def schedule_types() -> list[str]:
    """Names that `OptimizerAttrs.schedule` can have."""
    return [
        name.removeprefix(RATE_PREFIX)
        for name in operator_types()
        if name.startswith(RATE_PREFIX) and "step" in lookup(name).input_slots
    ]


def schedule_type(optimizer: str, typed: str) -> str:
    """The schedule that a user has typed, in any case; "" for none.

    Raises:
        AttributeTypeError: there is no such schedule; the message names the optimizer.
    """
    known = schedule_types() if typed else []
    name = spelled(typed.removeprefix(RATE_PREFIX), known)
    if name in known or not typed:
        return name
    ours = SCHEDULES.get(spelled(typed, SCHEDULES), "")
    hint = f" (here it is {ours})" if ours else nearest(typed, known)
    raise AttributeTypeError(
        f"optimizer {optimizer}: no schedule {typed!r}{hint}; there are {', '.join(known)}"
    )
