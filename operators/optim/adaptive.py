"""Optimizers with a learning rate for each element, by PyTorch's formulas step for step."""

from __future__ import annotations

from ...framework.ir.registry import AttrSpec
from .updates import GRADIENT, Method, State, register

_WITH = "with g = grad_scale grad + weight_decay param."


def _epsilon(default: float) -> AttrSpec:
    return AttrSpec("epsilon", "float", "added to the divisor", default, minimum=0)


def _decay(name: str, default: float, doc: str) -> AttrSpec:
    return AttrSpec(name, "float", doc, default, minimum=0, maximum=1)


adagrad = register(
    Method(
        "adagrad",
        f"AdaGrad: m = m + g^2; param_out = param - lr lr_factor g / (sqrt(m) + epsilon), {_WITH}",
        scalar={
            "moment_out": f"moment + {GRADIENT} * {GRADIENT}",
            "param_out": f"param - lr * lr_factor * ({GRADIENT} / (sqrt(moment_out) + epsilon))",
        },
        states=(State("moment", "sum of squared gradients"),),
        attrs=(_epsilon(1e-10),),
        source="Duchi et al. 2011; PyTorch: torch.optim.Adagrad",
    )
)


# It reads the average of updates from before this one, so it may name the new average of squares,
# and not the new average of updates.
_ADADELTA_UPDATE = (
    f"(sqrt(update_average + epsilon) / sqrt(square_average_out + epsilon) * {GRADIENT})"
)

adadelta = register(
    Method(
        "adadelta",
        "AdaDelta: a = rho a + (1 - rho) g^2; d = g sqrt(u + epsilon) / sqrt(a + epsilon);"
        f" u = rho u + (1 - rho) d^2; param_out = param - lr lr_factor d, {_WITH}",
        scalar={
            "square_average_out": f"rho * square_average + (1 - rho) * ({GRADIENT} * {GRADIENT})",
            "update_average_out": "rho * update_average"
            f" + (1 - rho) * ({_ADADELTA_UPDATE} * {_ADADELTA_UPDATE})",
            "param_out": f"param - lr * lr_factor * {_ADADELTA_UPDATE}",
        },
        states=(
            State("square_average", "a: running mean of squared gradients"),
            State("update_average", "u: running mean of squared updates"),
        ),
        attrs=(_decay("rho", 0.9, "weight of the old value in the running means"), _epsilon(1e-6)),
        source="Zeiler 2012; PyTorch: torch.optim.Adadelta",
    )
)


# No floor under a - m^2, as PyTorch has none. `centered` is an attribute, so the choice is made
# when the loop is written, as for momentum.
_RMSPROP_SQUARES = (
    "(centered ? square_average_out - gradient_average_out * gradient_average_out"
    " : square_average_out)"
)
_RMSPROP_STEP = f"({GRADIENT} / (sqrt{_RMSPROP_SQUARES} + epsilon))"

rmsprop = register(
    Method(
        "rmsprop",
        "RMSProp: a = alpha a + (1 - alpha) g^2; d = g / (sqrt(a) + epsilon); param_out = param"
        " - lr lr_factor d. `centered`: m = alpha m + (1 - alpha) g; the root is of"
        " a - m^2. With `momentum`: v = momentum v + d; param_out = param - lr lr_factor v."
        f" Here {_WITH}",
        scalar={
            "square_average_out": f"alpha * square_average"
            f" + (1 - alpha) * ({GRADIENT} * {GRADIENT})",
            "gradient_average_out": "centered ?"
            f" alpha * gradient_average + (1 - alpha) * {GRADIENT} : gradient_average",
            "velocity_out": f"momentum > 0 ? momentum * velocity + {_RMSPROP_STEP} : velocity",
            "param_out": "param - lr * lr_factor"
            f" * (momentum > 0 ? velocity_out : {_RMSPROP_STEP})",
        },
        states=(
            State("square_average", "a: running mean of squared gradients"),
            State("gradient_average", "m: running mean of gradients", needed_by="centered"),
            State("velocity", "v: running sum of updates", needed_by="momentum"),
        ),
        attrs=(
            _decay("alpha", 0.99, "weight of the old value in the running means"),
            _epsilon(1e-8),
            AttrSpec(
                "momentum", "float", "weight of the old value in the velocity", 0.0, minimum=0
            ),
            AttrSpec("centered", "bool", "divide by the deviation from the mean gradient", False),
        ),
        source="Hinton 2012, lecture 6e; PyTorch: torch.optim.RMSprop",
    )
)


_ADAM_STATES = (
    State("moment1", "m: running mean of gradients"),
    State("moment2", "v: running mean of squared gradients"),
)
_ADAM_ATTRS = (
    _decay("beta1", 0.9, "weight of the old value in moment1"),
    _decay("beta2", 0.999, "weight of the old value in moment2"),
    _epsilon(1e-8),
)
# The corrections depend on step alone and are computed once a run, in float64: 1 - beta2^step loses
# digits in float32 at the first steps. epsilon comes after the correction, as in PyTorch: the
# shorter form at the end of the paper's section 2 has another epsilon.
_ADAM_STEP = (
    "lr * lr_factor / (1 - pow(beta1, step)) * moment1_out"
    " / (sqrt(moment2_out) / sqrt(1 - pow(beta2, step)) + epsilon)"
)
_ADAM_DOC = (
    "m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; param_out = {start}"
    " - lr lr_factor (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon), {gradient}"
)

adam = register(
    Method(
        "adam",
        f"Adam: {_ADAM_DOC.format(start='param', gradient=_WITH)}",
        scalar={
            "moment1_out": f"beta1 * moment1 + (1 - beta1) * {GRADIENT}",
            "moment2_out": f"beta2 * moment2 + (1 - beta2) * ({GRADIENT} * {GRADIENT})",
            "param_out": f"param - {_ADAM_STEP}",
        },
        step=True,
        states=_ADAM_STATES,
        attrs=_ADAM_ATTRS,
        source="Kingma and Ba 2014; PyTorch: torch.optim.Adam",
    )
)


adamw = register(
    Method(
        "adamw",
        "Adam with decoupled weight decay: "
        + _ADAM_DOC.format(
            start="(1 - lr lr_factor weight_decay) param", gradient="with g = grad_scale grad."
        ),
        scalar={
            # Not GRADIENT: the decay acts on the parameter below, and moments do not see it.
            "moment1_out": "beta1 * moment1 + (1 - beta1) * (grad_scale * grad)",
            "moment2_out": "beta2 * moment2"
            " + (1 - beta2) * ((grad_scale * grad) * (grad_scale * grad))",
            "param_out": f"(1 - lr * lr_factor * weight_decay) * param - {_ADAM_STEP}",
        },
        step=True,
        decoupled=True,
        weight_decay=0.01,
        states=_ADAM_STATES,
        attrs=_ADAM_ATTRS,
        source="Loshchilov and Hutter 2019; PyTorch: torch.optim.AdamW",
    )
)
