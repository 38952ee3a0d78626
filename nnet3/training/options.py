"""The options of a trainer. Source: `NnetTrainerOptions` in Kaldi's `nnet3/nnet-training.h`."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.base.errors import AttributeTypeError, check_kind
from ...framework.base.options.option_fields import option
from ..optimize import OptimizeOptions


@dataclass(frozen=True)
class NnetTrainerOptions:
    """Settings of training. Learning rates, their factors, the largest change of a component and
    its L2 regularization belong to the components.

    Attributes:
        momentum: the learning rate is multiplied with 1 - momentum, so that it stays what it was in
            effect.
        backstitch_training_scale: if above 0, a minibatch is first used to step back by this share
            of its change, and then forward by 1 and this share.
        max_param_change: 0 = any.
        double_precision: train in float64, as a Kaldi does that was built with DOUBLE_PRECISION=1:
            to tell rounding from errors, where training is sensitive. Parameters are stored as
            float32 all the same.
        component_limits: whether components have bounds on their changes, L2 regularization and
            orthonormal constraints of their own. Kaldi's discriminative training knows none.
        optimize: passes of the compiler; all by default.
        use_shortcut: whether requests for many like sequences are compiled for two and expanded.
        cache_capacity: the greatest number of cached steps.

    Raises:
        AttributeTypeError: a value out of bounds, or backstitch together with momentum.
    """

    zero_component_stats: bool = option(
        True, "Begin with statistics of nonlinearities at 0, if they are stored"
    )
    store_component_stats: bool = option(
        True, "Store activations and derivatives of nonlinear components"
    )
    print_interval: int = option(100, "Minibatches after which the objective is reported")
    momentum: float = option(0.0, "Share of the last change that is added again, e.g. 0.9")
    l2_regularize_factor: float = option(1.0, "Factor of the components' L2 regularization")
    backstitch_training_scale: float = option(0.0, "Scale of backstitch; 0 = normal training")
    backstitch_training_interval: int = option(
        1, "Backstitch is made with one of so many minibatches"
    )
    batchnorm_stats_scale: float = option(
        0.8, "Factor of batch-norm statistics after each minibatch"
    )
    max_param_change: float = option(
        2.0, "Largest change in one minibatch, as Euclidean norm over the whole model"
    )
    double_precision: bool = False
    component_limits: bool = True
    optimize: bool | OptimizeOptions = True
    use_shortcut: bool = True
    cache_capacity: int = 64

    def __post_init__(self) -> None:
        bounds = {
            "print_interval": (1, None),
            "momentum": (0, 1),
            "l2_regularize_factor": (0, None),
            "backstitch_training_scale": (0, None),
            "backstitch_training_interval": (1, None),
            "batchnorm_stats_scale": (0, 1),
            "max_param_change": (0, None),
            "cache_capacity": (1, None),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            check_kind(value, int if isinstance(getattr(type(self), name), int) else float, name)
            if not value >= least or (most is not None and value > most):
                upto = "" if most is None else f" and at most {most}"
                raise AttributeTypeError(f"{name}={value:g}: want at least {least}{upto}")
        if self.backstitch_training_scale > 0 and self.momentum > 0:
            raise AttributeTypeError("backstitch does not go together with momentum")
