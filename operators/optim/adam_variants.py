"""Optimizers that descend from Adam, by PyTorch's formulas step for step: Adamax, NAdam, RAdam."""

from __future__ import annotations

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .updates import GRADIENT, Method, State, register

_WITH = "with g = grad_scale grad + weight_decay param."
_BETA1 = AttrSpec(
    "beta1", "float", "weight of the old value in the running mean", 0.9, minimum=0, maximum=1
)
_BETA2 = AttrSpec(
    "beta2", "float", "weight of the old value in the running squares", 0.999, minimum=0, maximum=1
)
_EPSILON = AttrSpec("epsilon", "float", "added to the divisor", 1e-8, minimum=0)
_MEAN = State("moment1", "m: running mean of gradients")
_SQUARES = State("moment2", "v: running mean of squared gradients")
_MEAN_OUT = f"beta1 * moment1 + (1 - beta1) * {GRADIENT}"
_SQUARES_OUT = f"beta2 * moment2 + (1 - beta2) * ({GRADIENT} * {GRADIENT})"


# A NaN stays in the norm, as in PyTorch: the first comparison keeps an old one, and against a new
# one the second is false. epsilon is a part of the size, as it is there.
_OLD = "(beta2 * norm)"
_SIZE = f"(fabs({GRADIENT}) + epsilon)"

adamax = register(
    Method(
        "adamax",
        "Adam by the infinity norm: m = beta1 m + (1 - beta1) g; u = max(beta2 u, |g| + epsilon);"
        f" param_out = param - lr lr_factor / (1 - beta1^step) m / u, {_WITH}",
        scalar={
            "moment1_out": _MEAN_OUT,
            "norm_out": f"{_OLD} != {_OLD} || {_OLD} > {_SIZE} ? {_OLD} : {_SIZE}",
            "param_out": "param"
            " - lr * lr_factor / (1 - pow(beta1, step)) * (moment1_out / norm_out)",
        },
        step=True,
        states=(_MEAN, State("norm", "u: decaying maximum of the gradients' sizes")),
        attrs=(
            _BETA1,
            AttrSpec("beta2", "float", "decay of the maximum", 0.999, minimum=0, maximum=1),
            AttrSpec("epsilon", "float", "added to the gradient's size", 1e-8, minimum=0),
        ),
        source="Kingma and Ba 2014, section 7.1; PyTorch: torch.optim.Adamax",
    )
)


_RHO_END = "(2 / (1 - beta2) - 1)"
_CORRECTION = "(1 - pow(beta2, step))"
_RHO = f"({_RHO_END} - 2 * step * pow(beta2, step) / {_CORRECTION})"
# Without the fmax, steps before the fifth would be roots of negative numbers.
_RECTIFIED = (
    f"sqrt(fmax(({_RHO} - 4) * ({_RHO} - 2) * {_RHO_END}, 0)"
    f" / (({_RHO_END} - 4) * ({_RHO_END} - 2) * {_RHO}) * {_CORRECTION})"
)

radam = register(
    Method(
        "radam",
        "Rectified Adam: m and v as in `adam`; with n = 2 / (1 - beta2) - 1 and r = n - 2 step"
        " beta2^step / (1 - beta2^step), param_out = param - lr lr_factor m / (1 - beta1^step) s,"
        " where s = sqrt((r - 4) (r - 2) n / ((n - 4) (n - 2) r)) sqrt(1 - beta2^step) / (sqrt(v)"
        f" + epsilon) if r > 5, else 1, {_WITH}",
        scalar={
            "moment1_out": _MEAN_OUT,
            "moment2_out": _SQUARES_OUT,
            "param_out": "param - lr * lr_factor / (1 - pow(beta1, step)) * moment1_out"
            f" * (({_RHO} > 5 ? {_RECTIFIED} : 0) / (sqrt(moment2_out) + epsilon)"
            # A sum of two choices and not one of two products: the conditions depend on step alone,
            # so both are numbers that are computed once a run.
            f" + ({_RHO} > 5 ? 0 : 1))",
        },
        step=True,
        states=(_MEAN, _SQUARES),
        attrs=(_BETA1, _BETA2, _EPSILON),
        source="Liu et al. 2020; PyTorch: torch.optim.RAdam",
    )
)


_DECAY = AttrSpec("momentum_decay", "float", "speed at which mu rises to beta1", 4e-3, minimum=0)
_MU = "(beta1 * (1 - 0.5 * pow(0.96, step * momentum_decay)))"
_NEXT_MU = "(beta1 * (1 - 0.5 * pow(0.96, (step + 1) * momentum_decay)))"

nadam = register(
    Method(
        "nadam",
        "Adam with Nesterov's momentum: m and v as in `adam`; with mu(t) = beta1 (1 - 0.96^(t"
        " momentum_decay) / 2) and P the product of mu(1) to mu(step), param_out = param - lr"
        " lr_factor ((1 - mu(step)) g / (1 - P) + mu(step + 1) m / (1 - P mu(step + 1)))"
        f" / (sqrt(v / (1 - beta2^step)) + epsilon), {_WITH}",
        scalar={
            "moment1_out": _MEAN_OUT,
            "moment2_out": _SQUARES_OUT,
            # PyTorch's two addends, gradient and mean, over a divisor that they share.
            "param_out": f"param - (lr * lr_factor * (1 - {_MU}) / correction * {GRADIENT}"
            f" + lr * lr_factor * {_NEXT_MU} / (1 - (1 - correction) * {_NEXT_MU}) * moment1_out)"
            " / (sqrt(moment2_out) / sqrt(1 - pow(beta2, step)) + epsilon)",
        },
        step=True,
        shared=(Slot("correction", "1 - P, from `nadam_correction`, []"),),
        states=(_MEAN, _SQUARES),
        attrs=(_BETA1, _BETA2, _EPSILON, _DECAY),
        source="Dozat 2016; PyTorch: torch.optim.NAdam",
    )
)


nadam_correction = operator(
    # The product over all steps so far is no function of `step` that is quick to compute, so it is
    # a state. It is 1 - P, as states begin at 0, and float64, as one factor a step rounds P each
    # time.
    "nadam_correction",
    doc=(
        "The bias correction of `nadam`: out = 1 - P, where P is the product of mu(1) to mu(step),"
        " mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2): out = previous + (1 - previous)"
        " (1 - mu(step))."
    ),
    inputs=[
        Slot("step", "number of this update, counted from 1, []"),
        Slot("previous", "the result of the update before, 0 at the beginning, float64 []"),
    ],
    outputs=[Slot("out", "1 - P, float64 []; it may be the variable `previous` itself")],
    attrs=[_BETA1, _DECAY],
    source="Dozat 2016; PyTorch: torch.optim.NAdam (mu_product)",
    no_gradient="it serves updates of parameters",
)


@nadam_correction.shape_rule
def nadam_correction_shape(s: ShapeArgs) -> None:
    s.rank("step", 0)
    s.integers("step")
    s.rank("previous", 0)
    s.set("out", ((), s.floats("previous")))


@nadam_correction.kernel
def nadam_correction_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    step = k["step"]
    previous = k["previous"]
    out = k["out"]
    beta, decay = k.attrs["beta1"], k.attrs["momentum_decay"]

    def run() -> None:
        # An array and no Python number: on a GPU the step is not waited for.
        now = xp.maximum(step, 1).astype(xp.float64)
        mu = beta * (1 - 0.5 * 0.96 ** (now * decay))
        out[...] = previous + (1 - previous) * (1 - mu)

    return run
