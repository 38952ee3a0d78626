"""LAMB and LARS: steps whose length follows from the norm of the whole parameter.

Their update is not elementwise: each parameter is a layer, whose norms are taken first. A sparse
gradient is therefore made dense before (see framework/passes/optimizer.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, operator
from ..base.ranks import SHARED, over_ranks
from .updates import Method, State, dense_calls, prepare, schema_of

_GRADIENT = "(grad_scale * grad)"

_LAMB = Method(
    "lamb",
    "LAMB: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; u = m / (1 - beta1^step)"
    " / (sqrt(v / (1 - beta2^step)) + epsilon) + weight_decay param; param_out = param - lr"
    " lr_factor |param| / |u| u, with g = grad_scale grad and norms over the whole parameter. The"
    " quotient is 1 where one of them is 0.",
    scalar={
        "moment1_out": f"beta1 * moment1 + (1 - beta1) * {_GRADIENT}",
        "moment2_out": f"beta2 * moment2 + (1 - beta2) * ({_GRADIENT} * {_GRADIENT})",
        # Not yet an update: its norm must be known before the first element changes.
        "direction": "moment1_out / (1 - pow(beta1, step))"
        " / (sqrt(moment2_out) / sqrt(1 - pow(beta2, step)) + epsilon) + weight_decay * param",
    },
    states=(
        State("moment1", "m: running mean of gradients"),
        State("moment2", "v: running mean of squared gradients"),
    ),
    attrs=(
        AttrSpec("beta1", "float", "weight of the old value in m", 0.9, minimum=0, maximum=1),
        AttrSpec("beta2", "float", "weight of the old value in v", 0.999, minimum=0, maximum=1),
        AttrSpec("epsilon", "float", "added to the divisor", 1e-6, minimum=0),
        SHARED,
    ),
    source="You et al. 2020, Large Batch Optimization for Deep Learning, algorithm 2",
    step=True,
    decoupled=True,
    weight_decay=0.01,
)

_LARS = Method(
    "lars",
    "LARS: g = grad_scale grad; r = trust |param| / (|g| + weight_decay |param|), with norms over"
    " the whole parameter, and 1 where |param| or |g| is 0; v = momentum v + lr lr_factor r (g +"
    " weight_decay param); param_out = param - v.",
    scalar={
        "velocity_out": "momentum * velocity"
        f" + lr * lr_factor * ratio * ({_GRADIENT} + weight_decay * param)",
        "param_out": "param - velocity_out",
    },
    states=(State("velocity", "v: running sum of updates"),),
    attrs=(
        AttrSpec("momentum", "float", "weight of the old value in the velocity", 0.9, minimum=0),
        AttrSpec("trust", "float", "length of a step, as a share of |param|", 0.001, minimum=0),
        SHARED,
    ),
    source="You et al. 2017, Large Batch Training of Convolutional Networks, algorithm 1",
)

lamb = operator(_LAMB.type, **schema_of(_LAMB, sparse=False))
lars = operator(_LARS.type, **schema_of(_LARS, sparse=False))


@lamb.kernel
def lamb_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    param = k["param"]
    out = k["param_out"]
    names = [state.name for state in _LAMB.states]
    # All of it is kept: param_out may be the memory of param, whose norm is read as well.
    direction = k.scratch(param.shape, param.dtype)
    states = [(k[name], k[f"{name}_out"]) for name in names]
    before, update = prepare(_LAMB, k, names, result="direction")
    calls = [*before, *dense_calls(k, update, [(param, direction), *states])]
    norms = [k.scratch((), np.float64) for _ in range(2)]
    for array, norm in zip((param, direction), norms, strict=True):
        calls += norm_calls(k, array, norm)
    lr = k["lr"]
    factor = k.attrs["lr_factor"]
    # The factor is computed in float64 and rounded once, to the dtype of the parameter.
    exact, rate = k.scratch((), np.float64), k.scratch((), param.dtype)
    calls.append(partial(_quotient, xp, norms[0], norms[1], exact))

    def step() -> None:
        xp.multiply(exact, lr, exact)
        xp.multiply(exact, factor, exact)
        xp.copyto(rate, exact, casting="same_kind")
        xp.multiply(direction, rate, direction)
        xp.subtract(param, direction, out)

    return in_order(*calls, step)


@lars.kernel
def lars_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    param = k["param"]
    out = k["param_out"]
    length, slope, ratio = (k.scratch((), np.float64) for _ in range(3))
    scale = k.get("grad_scale")
    decay = k.attrs["weight_decay"]
    trust = k.attrs["trust"]
    calls = [*norm_calls(k, param, length), *norm_calls(k, k["grad"], slope)]

    def trusted() -> None:
        # The norm of a scaled gradient without a pass over it.
        if scale is not None:
            xp.multiply(slope, abs(scale), slope)
        neither = (length == 0) | (slope == 0)
        # where computes both sides: adding `neither` keeps 0 / 0 out of the one that is not taken.
        ratio[...] = xp.where(neither, 1, trust * length / (slope + decay * length + neither))

    before, update = prepare(_LARS, k, ["velocity"], {"ratio": ratio})
    pairs = [(param, out), (k["velocity"], k["velocity_out"])]
    return in_order(*calls, trusted, *before, *dense_calls(k, update, pairs))


def norm_calls(k: KernelArgs, array: Any, out: Any) -> list[Call]:
    """Calls that compute the Euclidean norm of a whole array, float64 []."""
    xp = k.xp
    calls = []
    # float32 at least: squares of halves overflow at 256 in float16.
    dtype = np.result_type(np.float32, array.dtype)
    if array.dtype != dtype or not array.flags.c_contiguous:
        packed = k.scratch(array.shape, dtype)
        calls.append(partial(xp.copyto, packed, array))
        array = packed
    flat = array.reshape(-1)
    square = k.scratch((), dtype)
    # BLAS reads the array once and stores no squares.
    calls.append(partial(xp.dot, flat, flat, square))
    calls += over_ranks(k, square)

    def root() -> None:
        xp.copyto(out, square)
        xp.sqrt(out, out)

    return [*calls, root]


def _quotient(xp: Any, above: Any, below: Any, out: Any) -> None:
    """out = above / below, and 1 where one of them is 0."""
    neither = (above == 0) | (below == 0)
    out[...] = xp.where(neither, 1, above / (below + neither))
