"""Lion: a step of equal size for every element, in the direction of a running mean."""

from __future__ import annotations

from ...framework.ir.registry import AttrSpec
from .updates import Method, State, register

_GRADIENT = "(grad_scale * grad)"
_MIX = f"(beta1 * moment + (1 - beta1) * {_GRADIENT})"

lion = register(
    Method(
        "lion",
        "Lion: param_out = (1 - lr lr_factor weight_decay) param - lr lr_factor sign(beta1 m +"
        " (1 - beta1) g); then m = beta2 m + (1 - beta2) g, with g = grad_scale grad. Its rate is"
        " 3 to 10 times smaller than Adam's, its weight decay as much larger.",
        scalar={
            # The third case is 0 or NaN: a plain 0 would hide a gradient that is NaN. The direction
            # is of the old moment, with a weight of its own, as in the paper's program.
            "param_out": "(1 - lr * lr_factor * weight_decay) * param"
            f" - lr * lr_factor * ({_MIX} > 0 ? 1 : {_MIX} < 0 ? -1 : {_MIX})",
            "moment_out": f"beta2 * moment + (1 - beta2) * {_GRADIENT}",
        },
        states=(State("moment", "m: running mean of gradients"),),
        attrs=(
            AttrSpec(
                "beta1", "float", "share of the moment in the direction", 0.9, minimum=0, maximum=1
            ),
            AttrSpec(
                "beta2", "float", "share of the moment that stays", 0.99, minimum=0, maximum=1
            ),
        ),
        source="Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, program 1",
        decoupled=True,
    )
)
