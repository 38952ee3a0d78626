"""Batch normalization with CNTK's running statistics.

Source: CNTK's `ComputationNetworkLib/TrainingNodes.h` (the factors) and
`Math/CntkBatchNormalization.cuh` (it blends the running mean and inverse deviation).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, lookup, operator
from ...operators.base.calls import copying
from ...operators.direct.batch_norm import blended_batch_norm, blended_batch_norm_grad

batch_norm = operator(
    "cntk.batch_norm",
    doc=(
        "Batch normalization: out = scale * (x - m) * s + bias for each of C features, where m and"
        " s are mean and inverse standard deviation of this minibatch, blended with the running"
        " ones while training (weight blend / (blend + samples)), and the running ones otherwise."
        " The running mean and (unbiased) variance move towards the minibatch's with weight"
        " 1 - exp(-samples / time). The first minibatch counts alone. Time constants: 0 forgets at"
        " once, infinity freezes, a negative `time` averages over all samples seen."
    ),
    inputs=[
        Slot("x", "[N, C, ...]"),
        Slot("scale", "[C]"),
        Slot("bias", "[C]", not_in_gradient=True),
        Slot("mean", "running mean, C elements in any shape", not_in_gradient=True),
        Slot("variance", "running variance, as mean", not_in_gradient=True),
        Slot("seen", "samples seen, float64 [1]", not_in_gradient=True),
        Slot("time", "time constant of the running statistics, float64 [1]", not_in_gradient=True),
        Slot("blend", "time constant of blending, float64 [1]", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "shape of x", not_in_gradient=True),
        Slot("mean_out", "the variable of mean", not_in_gradient=True),
        Slot("variance_out", "the variable of variance", not_in_gradient=True),
        Slot("seen_out", "the variable of seen", not_in_gradient=True),
        Slot("used_mean", "m, [C]", intermediate=True),
        Slot("used_scale", "s, [C]", intermediate=True),
        Slot("own_weight", "weight of this minibatch in m and s, float64 [1]", intermediate=True),
    ],
    attrs=[AttrSpec("epsilon", "float", "added to variances", 1e-5, 0.0)],
    source="CNTK: BatchNormalizationNode",
)

_DOUBLE = np.dtype(np.float64)


@batch_norm.shape_rule
def batch_norm_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x", "scale", "bias", "mean", "variance")
    if len(x) < 2:
        s.fail("x wants at least 2 dimensions")
    widths = (*(s.rank(slot, 1)[0] for slot in ("scale", "bias")), count(s["mean"]))
    features = s.same("features", x[1], *widths, count(s["variance"]))
    for slot in ("time", "blend", "seen"):
        s.same_shape(f"{slot} and [1]", s[slot], (1,))
    s.set("out", (x, dtype))
    for slot in ("mean", "variance"):
        s.set(f"{slot}_out", (s[slot], dtype))
    for slot in ("used_mean", "used_scale"):
        s.set(slot, ((features,), dtype))
    s.set("seen_out", ((1,), s.dtype("seen")))
    s.set("own_weight", ((1,), _DOUBLE))


def _factors(seen: float, samples: int, time: float, blend: float) -> tuple[float, float]:
    """Weight of this minibatch in the running statistics, and of these in the statistics used."""
    if seen == 0:
        return 1.0, 0.0
    if time < 0:
        moving = samples / (samples + seen)
    elif time == 0:
        moving = 1.0
    else:
        moving = 0.0 if math.isinf(time) else 1 - math.exp(-samples / time)
    return moving, 1.0 if math.isinf(blend) else blend / (blend + samples) if blend > 0 else 0.0


def _axes(x: Any) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _spread(vector: Any, like: Any) -> Any:
    """A vector of features, as it goes with x."""
    return vector.reshape(-1, *(1,) * (like.ndim - 2))


@batch_norm.kernel
def batch_norm_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    load = [copying(xp, k[slot], k[f"{slot}_out"]) for slot in ("mean", "variance", "seen")]
    mean, variance = k["mean_out"].reshape(-1), k["variance_out"].reshape(-1)
    seen = k["seen_out"]
    features = mean.shape
    used_mean, used_scale = (
        k.scratch(features, x.dtype) if k.get(slot) is None else k[slot]
        for slot in ("used_mean", "used_scale")
    )
    own_weight = k.get("own_weight")
    scale = k["scale"]
    bias = _spread(k["bias"], x)
    time = k["time"]
    blend = k["blend"]
    epsilon = x.dtype.type(k.attrs["epsilon"])
    training = k.train and bool(x.size)
    axes = _axes(x)
    samples = x.size // max(len(mean), 1)

    def statistics() -> None:
        moving, blended = _factors(float(seen[0]), len(x), float(time[0]), float(blend[0]))
        if moving == 0 and blended == 1:
            frozen()
            return
        seen[0] += len(x)
        own_mean = x.mean(axes)
        xp.subtract(x, _spread(own_mean, x), out)
        xp.multiply(out, out, out)
        spread = out.sum(axes)
        mean[...] = moving * own_mean + (1 - moving) * mean
        unbiased = spread / (samples - 1) if samples > 1 else 0 * spread
        variance[...] = moving * unbiased + (1 - moving) * variance
        used_mean[...] = blended * mean + (1 - blended) * own_mean
        used_scale[...] = (1 - blended) / xp.sqrt(spread / samples + epsilon)
        if blended:
            xp.add(used_scale, blended / xp.sqrt(variance + epsilon), used_scale)
        if own_weight is not None:
            own_weight[0] = 1 - blended

    def frozen() -> None:
        xp.copyto(used_mean, mean)
        xp.add(variance, epsilon, used_scale)
        xp.sqrt(used_scale, used_scale)
        xp.reciprocal(used_scale, used_scale)
        if own_weight is not None:
            own_weight[0] = 0

    def normalize() -> None:
        xp.subtract(x, _spread(used_mean, x), out)
        xp.multiply(out, _spread(used_scale * scale, x), out)
        xp.add(out, bias, out)

    return in_order(*load, statistics if training else frozen, normalize)


@batch_norm.backward("x", "scale", "bias")
def batch_norm_grad_kernel(k: KernelArgs) -> Call:
    """CNTK's gradient: the part through the statistics of the minibatch counts with its weight w.

    With d = x - m and a = scale * s,
    x_grad = a grad - w a (d s^2 sum(grad d) + sum(grad)) / samples.
    """
    xp = k.xp
    x = k["x"]
    grad = k["out_grad"]
    used_mean = _spread(k["used_mean"], x)
    used_scale = k["used_scale"]
    scale, own_weight = k["scale"], k["own_weight"]
    x_grad, scale_grad, bias_grad = k.get("x_grad"), k.get("scale_grad"), k.get("bias_grad")
    centered, work = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    axes = _axes(x)
    samples = x.size // max(len(used_scale), 1)

    def run() -> None:
        xp.subtract(x, used_mean, centered)
        by_bias = grad.sum(axes)
        by_scale = xp.multiply(grad, centered, work).sum(axes) * used_scale
        if scale_grad is not None:
            scale_grad[...] = by_scale
        if bias_grad is not None:
            bias_grad[...] = by_bias
        if x_grad is None or not samples:
            return
        factor = scale * used_scale
        xp.multiply(grad, _spread(factor, x), x_grad)
        weight = float(own_weight[0]) / samples
        if weight:
            factor *= -x.dtype.type(weight)
            xp.multiply(centered, _spread(factor * used_scale * by_scale, x), centered)
            xp.add(centered, _spread(factor * by_bias, x), centered)
            xp.add(x_grad, centered, x_grad)

    return run


for _entry, _kernel in (
    (batch_norm, blended_batch_norm),
    (lookup("cntk.batch_norm_grad"), blended_batch_norm_grad),
):
    _entry.kernel(
        _kernel,
        device="cpu",
        dtypes=(np.float32, np.float64),
        library="direct",
        channels_last=(("x", "out", "out_grad", "x_grad"),),
    )
