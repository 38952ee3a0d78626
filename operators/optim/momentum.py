"""Optimizers of the SGD family, and the factor that clips gradients by their global norm.

All follow PyTorch's formulas step for step. framework/passes/optimizer.py fills their slots.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.ranks import SHARED, over_ranks
from .updates import GRADIENT, Method, State, register

_MOMENTUM = AttrSpec("momentum", "float", "weight of the old value in the velocity", 0.9, minimum=0)
_VELOCITY = State("velocity", "running sum of gradients")


sgd = register(
    Method(
        "sgd",
        "Stochastic gradient descent: param_out = param - lr lr_factor g,"
        " with g = grad_scale grad + weight_decay param.",
        scalar={"param_out": f"param - lr * lr_factor * {GRADIENT}"},
        source="PyTorch: torch.optim.SGD; Paddle: paddle/operators/sgd_op.cc",
    )
)

momentum = register(
    Method(
        "momentum",
        "SGD with momentum: v = momentum v + g; param_out = param - lr lr_factor v,"
        " with g = grad_scale grad + weight_decay param.",
        scalar={
            "velocity_out": f"momentum * velocity + {GRADIENT}",
            # The rate stands outside of the velocity, as in PyTorch: a schedule changes the next
            # step at once. (Where v holds the rate, as in Sutskever's text, old rates live on in
            # it.)
            "param_out": "param - lr * lr_factor * velocity_out",
        },
        states=(_VELOCITY,),
        attrs=(_MOMENTUM,),
        source="PyTorch: torch.optim.SGD",
    )
)

nesterov = register(
    Method(
        "nesterov",
        "SGD with Nesterov's momentum: v = momentum v + g; param_out = param - lr lr_factor"
        " (g + momentum v), with g = grad_scale grad + weight_decay param.",
        scalar={
            "velocity_out": f"momentum * velocity + {GRADIENT}",
            # The parameter is kept where the gradient is taken, ahead of the velocity: no second
            # point is stored.
            "param_out": f"param - lr * lr_factor * ({GRADIENT} + momentum * velocity_out)",
        },
        states=(_VELOCITY,),
        attrs=(_MOMENTUM,),
        source="Sutskever et al. 2013; PyTorch: torch.optim.SGD(nesterov=True)",
    )
)

global_norm_scale = operator(
    "global_norm_scale",
    doc=(
        "Factor that brings the Euclidean norm of all x together down to `clip_norm`:"
        " scale = min(1, clip_norm / norm), []. It is float64 where an x is, else float32."
    ),
    inputs=[Slot("x", "gradients, any shapes", duplicable=True)],
    outputs=[Slot("scale", "the factor, []")],
    attrs=[AttrSpec("clip_norm", "float", "largest norm", minimum=0), SHARED],
    source="Pascanu et al. 2013; PyTorch: torch.nn.utils.clip_grad_norm_",
    no_gradient="it serves updates of parameters",
)


@global_norm_scale.shape_rule
def global_norm_scale_shape(s: ShapeArgs) -> None:
    dtypes = {dtype for _, dtype in s.specs("x")}
    if not all(map(is_float, dtypes)):
        s.fail("every x wants a floating dtype")
    s.set("scale", ((), np.result_type(np.float32, *dtypes)))


@global_norm_scale.kernel
def global_norm_scale_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    scale = k["scale"]
    arrays = k.list("x")
    # float32 at least: the sum of squares of float16 overflows at a norm of 256.
    dtype = scale.dtype
    # A number of that dtype: the quotient stays in it.
    clip = np.asarray(k.attrs["clip_norm"], dtype)[()]
    squares = k.scratch((len(arrays),), dtype)
    calls = []
    for number, array in enumerate(arrays):
        if array.dtype != dtype or not array.flags.c_contiguous:
            packed = k.scratch(array.shape, dtype)
            calls.append(partial(xp.copyto, packed, array))
            array = packed
        flat = array.reshape(-1)
        # BLAS reads the array once and stores no squares.
        calls.append(partial(xp.dot, flat, flat, squares[number : number + 1].reshape(())))

    calls.append(partial(squares.sum, 0, None, scale))
    calls += over_ranks(k, scale)

    def run() -> None:
        for call in calls:
            call()
        xp.sqrt(scale, scale)
        # A norm of 0 gives infinity, and then 1. A NaN goes on to all parameters: a step that is
        # wrong is not hidden. PyTorch adds 1e-6 to the norm, which clips a little below it.
        xp.divide(clip, scale, scale)
        xp.minimum(scale, 1, out=scale)

    return run
