"""Batch normalization with the statistics of the batches of all ranks together.

`batch_norm_sums` finds mean and variance, `batch_norm_apply` normalizes with them; both together
are `batch_norm`, which the pass `SyncBatchNorm` replaces by them. Means and sums of squares of the
ranks are put together as Chan, Golub and LeVeque (1983) do, so that nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.dtypes import HALVES, wide
from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.ranks import ranks_of
from .ranks import WEIGHT, check_weight

_SOURCE = "Ioffe and Szegedy 2015; PyTorch: torch.nn.SyncBatchNorm"

batch_norm_sums = operator(
    "batch_norm_sums",
    doc="""Mean and (biased) variance of each channel of x [N, C, ...] over the batches of all
ranks, and how many values they are of. While testing nothing is exchanged, and they are 0, 1 and 0.

The gradient takes the loss to be the sum of weight * loss over all ranks. It is the gradient of the
own loss: of the sum / weight.""",
    inputs=[
        Slot("x", "[N, C, ...]; N may differ between ranks, and be 0"),
        Slot(WEIGHT.name, "weight of this rank's loss in the total, []; absent = 1", optional=True),
    ],
    outputs=[
        Slot("mean", "[C]"),
        Slot("variance", "[C]", not_in_gradient=True),
        Slot("count", "[]: values a channel, of all ranks", intermediate=True),
    ],
    source=_SOURCE,
    world=True,
)


@batch_norm_sums.shape_rule
def batch_norm_sums_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = wide(s.floats("x"))
    if len(x) < 2:
        s.fail("x wants at least 2 dimensions")
    check_weight(s)
    for slot in ("mean", "variance"):
        s.set(slot, ((x[1],), dtype))
        s.set_offsets(slot, ())
    s.set("count", ((), dtype))


def _by_channel(array: Any) -> Any:
    """[N, C, ...] as [N, C, values]."""
    shape = array.shape
    return array.reshape(shape[0], shape[1], int(np.prod(shape[2:], dtype=np.int64)))


def _column(vector: Any) -> Any:
    return vector.reshape(-1, 1)


@batch_norm_sums.kernel
def batch_norm_sums_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    mean = k["mean"]
    variance = k["variance"]
    count = k.get("count")
    if not k.train:
        # Values that change nothing, should they be read: `batch_norm_apply` takes the running
        # ones.
        def rest() -> None:
            mean.fill(0)
            variance.fill(1)
            if count is not None:
                count.fill(0)

        return rest
    ranks = ranks_of(k)
    x = _by_channel(k["x"])
    channels = x.shape[1]
    own = x.shape[0] * x.shape[2]
    # One message for mean, squares and count; float64, as ranks with other counts are put together
    # of it.
    message = xp.zeros(2 * channels + 1, np.float64)
    message[-1] = own

    def run() -> None:
        if own:
            # Around the own mean: the mean of squares less the square of the mean would cancel.
            center = x.mean((0, 2), dtype=mean.dtype)
            message[:channels] = center
            message[channels:-1] = xp.square(x - _column(center)).sum((0, 2), dtype=np.float64)
        others = ranks()
        parts = xp.empty((others.size, message.size), np.float64)
        others.all_gather(message, parts)
        counts = parts[:, -1:]
        total = float(counts.sum())
        # The running variance divides by total - 1.
        if total < 2:
            why = "training wants more than one value a channel, over all ranks"
            raise RunError(k.describe(f"{why}, and has {total:g}"))
        # A rank without rows has a count of 0 and adds nothing, but must take part in the exchange.
        middle = (counts * parts[:, :channels]).sum(0) / total
        # Each rank's squares are about its own mean; its distance to the common one is added.
        spread = parts[:, channels:-1] + counts * xp.square(parts[:, :channels] - middle)
        mean[...] = middle
        variance[...] = spread.sum(0) / total
        if count is not None:
            count.fill(total)

    return run


@batch_norm_sums.backward("x")
def batch_norm_sums_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k["x_grad"]
    if not k.train:
        return lambda: x_grad.fill(0)
    xp = k.xp
    ranks = ranks_of(k)
    weight = k.get("weight")
    x = _by_channel(k["x"])
    out = _by_channel(x_grad)
    mean = k["mean"]
    count = k["count"]
    channels = k["mean"].size
    grads = k["mean_grad"], k["variance_grad"]
    message = xp.empty(2 * channels, np.float64)

    def run() -> None:
        own = 1.0 if weight is None else float(to_host(weight))
        # Both gradients in one exchange.
        message[:channels], message[channels:] = grads
        # Set, not multiplied: the gradients of a rank without weight may be NaN.
        if own == 0:
            message.fill(0)
        else:
            xp.multiply(message, own, out=message)
        ranks().all_reduce(message)
        if own == 0:
            x_grad.fill(0)
            return
        # Divided by the own weight, as the caller multiplies the gradient by it.
        xp.divide(message, own * float(to_host(count)), out=message)
        # The variance depends on the mean as well, but that derivative is a sum of x - mean, which
        # is 0.
        first, second = (_column(part.astype(mean.dtype)) for part in xp.split(message, 2))
        xp.multiply(x - _column(mean), 2 * second, out=out)
        xp.add(out, first, out=out)

    return run


batch_norm_apply = operator(
    "batch_norm_apply",
    doc="""Normalizes x [N, C, ...] with given statistics, channel by channel:
out = (x - batch_mean) / sqrt(batch_variance + epsilon) * scale + bias.

While training, the running values move on as in `batch_norm`; while testing, x is normalized with
them, and they stay.""",
    inputs=[
        Slot("x", "[N, C, ...]"),
        Slot("scale", "[C]"),
        Slot("bias", "[C]", not_in_gradient=True),
        Slot("batch_mean", "[C]", not_in_gradient=True),
        Slot("batch_variance", "[C], biased", not_in_gradient=True),
        Slot("count", "[]: values a channel that they are of", not_in_gradient=True),
        Slot("mean", "[C]: running mean", not_in_gradient=True),
        Slot("variance", "[C]: running variance", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "shape of x", not_in_gradient=True),
        *(
            Slot(
                f"{name}_out",
                "[C]",
                optional=True,
                intermediate=True,
                not_in_gradient=True,
                inplace=name,
            )
            for name in ("mean", "variance")
        ),
        Slot("saved_mean", "[C]: the mean that was used", intermediate=True),
        Slot("saved_inv_std", "[C]: 1 / sqrt(variance + epsilon) that was used", intermediate=True),
    ],
    attrs=[
        AttrSpec("momentum", "float", "weight of the batch in the running values", 0.1, 0.0, 1.0),
        AttrSpec("epsilon", "float", "added to the variance", 1e-5, minimum=0.0),
    ],
    source=_SOURCE,
)


@batch_norm_apply.shape_rule
def batch_norm_apply_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x", "scale", "bias")
    running = s.floats("mean", "variance")
    batch = s.floats("batch_mean", "batch_variance", "count")
    if running not in (dtype, wide(dtype)):
        s.fail(f"mean and variance want dtype {dtype}" + (" or float32" * (dtype in HALVES)))
    if batch not in (dtype, wide(dtype)):
        s.fail(f"batch_mean, batch_variance and count want dtype {wide(dtype)}")
    if len(x) < 2:
        s.fail("x wants at least 2 dimensions")
    s.rank("count", 0)
    slots = ("scale", "bias", "batch_mean", "batch_variance", "mean", "variance")
    sizes = [s.rank(slot, 1)[0] for slot in slots]
    channels = s.same(f"the channels of x and the sizes of {', '.join(slots)}", x[1], *sizes)
    s.set("out", (x, dtype))
    for slot in ("mean_out", "variance_out"):
        s.set(slot, ((channels,), running))
    for slot in ("saved_mean", "saved_inv_std"):
        s.set(slot, ((channels,), wide(dtype)))


@batch_norm_apply.kernel
def batch_norm_apply_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = _by_channel(k["x"])
    out = _by_channel(k["out"])
    scale, bias, count = k["scale"], k["bias"], k["count"]
    names = ("mean", "variance")
    used = [k[f"batch_{name}"] if k.train else k[name] for name in names]
    mean, variance = used
    moving = [
        (k[name], batch, k.get(f"{name}_out")) for name, batch in zip(names, used, strict=True)
    ]
    saved = k.get("saved_mean"), k.get("saved_inv_std")
    momentum = k.attrs["momentum"]
    epsilon = variance.dtype.type(k.attrs["epsilon"])

    def run() -> None:
        inverse = 1 / xp.sqrt(variance + epsilon)
        for kept, value in zip(saved, (mean, inverse), strict=True):
            if kept is not None:
                kept[...] = value
        # In this order: scale x + shift, folded into one, would cancel where the mean is large.
        xp.subtract(x, _column(mean), out=out)
        xp.multiply(out, _column(inverse * scale), out=out)
        xp.add(out, _column(bias), out=out)
        unbiased = 1.0
        if k.train:
            total = float(to_host(count))
            # The running variance is the unbiased one, though the batch is normalized by the
            # biased.
            unbiased = total / (total - 1)
        for (old, batch, new), factor in zip(moving, (1.0, unbiased), strict=True):
            if new is not None:
                real = old.dtype.type
                new[...] = (
                    real(1 - momentum) * old + real(momentum * factor) * batch if k.train else old
                )

    return run


@batch_norm_apply.backward("x", "scale", "bias", "batch_mean", "batch_variance")
def batch_norm_apply_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = _by_channel(k["x"])
    grad = _by_channel(k["out_grad"])
    scale = k["scale"]
    mean, inverse = k["saved_mean"], k["saved_inv_std"]
    x_grad, scale_grad, bias_grad = k.get("x_grad"), k.get("scale_grad"), k.get("bias_grad")
    statistics = k.get("batch_mean_grad"), k.get("batch_variance_grad")
    if x_grad is not None:
        x_grad = _by_channel(x_grad)

    def run() -> None:
        factor = inverse * scale
        whole = grad.sum((0, 2))
        along = (grad * (x - _column(mean))).sum((0, 2))
        if x_grad is not None:
            # Only the direct path: what goes through the statistics is their gradient, which
            # `batch_norm_sums` takes on, over all ranks.
            xp.multiply(grad, _column(factor), out=x_grad)
        if scale_grad is not None:
            xp.multiply(along, inverse, out=scale_grad)
        if bias_grad is not None:
            bias_grad[...] = whole
        # d/dv of (v + epsilon)^-0.5 is -0.5 (v + epsilon)^-1.5, the third power of the inverse.
        values = -factor * whole, along * factor * inverse * inverse * inverse.dtype.type(-0.5)
        for out, value in zip(statistics, values, strict=True):
            if out is not None:
                # While testing, out does not depend on the statistics of the batch.
                out[...] = value if k.train else 0

    return run
