"""Losses over classes, one value a sample: cross entropy in its three forms.

Labels are class numbers or, with `soft_label`, a distribution for each sample; no gradient flows to
them. Take `mean` of the result for the usual cost. Losses of float16 and bfloat16 are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.dtypes import wide
from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import rows_of
from ..base.indexing import taker
from ..linear.matmul import as_rows
from ..math.softmax import FEW
from .class_targets import bind_targets, clearing, reshaped
from .labels import IGNORE_INDEX, Labels, bind_labels, index_rule, soft_rule

_LABEL = Slot("label", "classes 0 .. C-1 as integers [...] or [..., 1]; soft: weights [..., C]")
_OUT = Slot("out", "loss of each sample, [...]", not_in_gradient=True)
_SOFT = AttrSpec("soft_label", "bool", "label holds a weight for each class", False)


def _rule(s: ShapeArgs) -> None:
    soft = s.attrs.get("soft_label", False)
    samples = soft_rule(s) if soft else index_rule(s)
    x = s["x"]
    dtype = wide(s.dtype("x"))
    if x[-1] == 0:
        s.fail("x has no classes")
    if s.has("weight"):
        weight = s.rank("weight", 1)
        s.floats("x", "weight")
        s.same("the classes of x and of weight", x[-1], weight[0])
    s.set("out", (samples, dtype))
    s.set("softmax", ((*samples, x[-1]), dtype))


cross_entropy = operator(
    "cross_entropy",
    doc=(
        "Cross entropy of probabilities: out = -log(x[label]), with `soft_label`"
        " out = -sum(label * log(x)). x [..., C] -> out [...]. A probability below the smallest"
        " normal number counts as that number, so the loss stays finite."
    ),
    inputs=[Slot("x", "probabilities [..., C]"), _LABEL],
    outputs=[_OUT],
    attrs=[_SOFT, IGNORE_INDEX],
    source="Paddle: paddle/operators/cross_entropy_op.cc",
    shape=_rule,
    rows=rows_of("x", "label", rank=1),
    judges="x",
)


@cross_entropy.kernel
def cross_entropy_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    tiny = _smallest(k)
    if k.attrs["soft_label"]:
        x, label, out = k["x"], k["label"], k["out"]
        logs = k.scratch(x.shape, x.dtype)

        def run() -> None:
            xp.maximum(x, tiny, out=logs)
            xp.log(logs, logs)
            xp.multiply(logs, label, logs)
            logs.sum(-1, None, out)
            xp.negative(out, out)

        return run

    def loss(picked: Any) -> None:
        xp.maximum(picked, tiny, out=picked)
        xp.log(picked, picked)
        xp.negative(picked, picked)

    return _picking(k, loss)


@cross_entropy.backward("x")
def cross_entropy_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    tiny = _smallest(k)
    if k.attrs["soft_label"]:
        label = k["label"]
        grad = k["out_grad"][..., None]
        x_grad = k["x_grad"]
        # The floor of the loss again, so that quotients stay finite.
        floor = k.scratch(x.shape, x.dtype)

        def run() -> None:
            xp.maximum(x, tiny, out=floor)
            xp.divide(label, floor, floor)
            xp.multiply(floor, grad, floor)
            xp.negative(floor, x_grad)

        return run
    return _placing(k, lambda picked, grad: -grad / xp.maximum(picked, tiny), reads_x=True)


def _smallest(k: KernelArgs) -> Any:
    dtype = k["x"].dtype
    return dtype.type(np.finfo(dtype).tiny)


nll_loss = operator(
    "nll_loss",
    doc=(
        "Negative log-likelihood of log-probabilities (of `log_softmax`, say): out = -x[label];"
        " zero for samples whose label is `ignore_index`. x [..., C], label [...] -> out [...]."
    ),
    inputs=[Slot("x", "log-probabilities [..., C]", not_in_gradient=True), _LABEL],
    outputs=[_OUT],
    attrs=[IGNORE_INDEX],
    source="PyTorch: torch.nn.functional.nll_loss",
    shape=_rule,
    rows=rows_of("x", "label", rank=1),
    judges="x",
)


@nll_loss.kernel
def nll_loss_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    return _picking(k, lambda picked: xp.negative(picked, picked))


@nll_loss.backward("x")
def nll_loss_grad_kernel(k: KernelArgs) -> Call:
    return _placing(k, lambda picked, grad: -grad, reads_x=False)


def _picking(k: KernelArgs, loss: Callable[[Any], None]) -> Call:
    """out = loss(x[label]), the loss working in place; zero for ignored samples."""
    x = k["x"]
    out = k["out"]
    classes = k.shape("x")[-1]
    samples = count(out.shape)
    x, load = as_rows(k, x, samples, classes)
    flat, store = as_rows(k, out, samples, 1, write=True)
    flat = flat[:, 0]
    labels = bind_labels(k, classes)
    numbers = k.xp.arange(samples)

    def run() -> None:
        valid = labels.check()
        index = labels.values if valid is None else labels.values * valid
        # Ignored labels may be no class: they read class 0, and their losses are cleared below.
        flat[...] = x[numbers, index]
        loss(flat)
        if valid is not None:
            flat[~valid] = 0

    return in_order(*labels.load, *load, run, *store)


def _placing(k: KernelArgs, derivative: Callable[[Any, Any], Any], reads_x: bool) -> Call:
    """x_grad = derivative(x[label], out_grad) at the label of each sample, zero elsewhere."""
    classes = k.shape("x")[-1]
    samples = count(k.shape("x")[:-1])
    x, load = as_rows(k, k["x"], samples, classes) if reads_x else (None, [])
    grad, load_grad = as_rows(k, k["out_grad"], samples, 1)
    x_grad, store = as_rows(k, k["x_grad"], samples, classes, write=True)
    grad = grad[:, 0]
    labels = bind_labels(k, classes)
    numbers = k.xp.arange(samples)

    def run() -> None:
        valid = labels.check()
        index = labels.values if valid is None else labels.values * valid
        picked = None if x is None else x[numbers, index]
        # Before x_grad is cleared, which may be the memory of x.
        placed = derivative(picked, grad)
        x_grad[...] = 0
        # Not a product with `valid`: what stands in an ignored row may make infinity or NaN of it.
        x_grad[numbers, index] = placed if valid is None else k.xp.where(valid, placed, 0)

    return in_order(*labels.load, *load, *load_grad, run, *store)


softmax_cross_entropy = operator(
    "softmax_cross_entropy",
    doc=(
        "Cross entropy of logits, in one stable step: out = log(sum(exp(x))) - x[label], with"
        " `soft_label` out = -sum(label * log_softmax(x)). x [..., C] -> out [...]. Samples whose"
        " label is `ignore_index` have loss and gradient zero. With `label_smoothing` eps the"
        " target is (1 - eps) label + eps / C, and with `weight` [C] the term of class c counts"
        " weight[c] times, as in PyTorch. (`cross_entropy_loss` takes the weighted mean besides.)"
    ),
    inputs=[
        Slot("x", "logits [..., C]", not_in_gradient=True),
        _LABEL,
        Slot("weight", "of each class, [C]", optional=True),
    ],
    outputs=[_OUT, Slot("softmax", "softmax of x, [..., C]", intermediate=True)],
    attrs=[
        _SOFT,
        IGNORE_INDEX,
        AttrSpec("label_smoothing", "float", "share of the target that all classes get", 0.0, 0, 1),
    ],
    source="Paddle: paddle/operators/softmax_with_cross_entropy_op.cc",
    shape=_rule,
    rows=rows_of("x", "label", rank=1),
    judges="x",
)


@softmax_cross_entropy.kernel
def softmax_cross_entropy_kernel(k: KernelArgs) -> Call:
    classes = k.shape("x")[-1]
    samples = count(k["out"].shape)
    x, load = as_rows(k, k["x"], samples, classes)
    out, store = as_rows(k, k["out"], samples, 1, write=True)
    softmax = k.get("softmax")
    store_softmax = []
    if softmax is not None:
        softmax, store_softmax = as_rows(k, softmax, samples, classes, write=True)
    if k.attrs["soft_label"] or reshaped(k):
        label, load_label, ignored = bind_targets(k, samples, classes)
        run = in_order(_soft_loss(k, x, label, out, softmax), clearing(k, out, ignored))
        return in_order(*load, *load_label, run, *store, *store_softmax)
    run, load_label = _index_loss(k, x, out[:, 0], softmax)
    return in_order(*load, *load_label, run, *store, *store_softmax)


def _soft_loss(k: KernelArgs, x: Any, label: Any, out: Any, softmax: Any) -> Call:
    """out = sum(label) * log(sum(exp(z))) - sum(label * z), where z = x less its maximum."""
    xp = k.xp
    shifted, exps = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    edge, total = k.scratch(out.shape, x.dtype), k.scratch(out.shape, x.dtype)

    def run() -> None:
        # The maximum comes off first, so that no exponential overflows.
        x.max(1, edge, True)
        xp.subtract(x, edge, shifted)
        xp.exp(shifted, exps)
        exps.sum(1, None, total, True)
        if softmax is not None:
            xp.divide(exps, total, softmax)
        xp.log(total, total)
        # Labels need not sum to 1: each term has the logarithm of the sum in it.
        xp.subtract(total, shifted, shifted)
        xp.multiply(shifted, label, shifted)
        shifted.sum(1, None, out, True)

    return run


def _index_loss(k: KernelArgs, x: Any, out: Any, softmax: Any) -> tuple[Call, list[Call]]:
    """out = log(sum(exp(z))) - z[label], where z = x less its maximum.

    Returns:
        The call, and those to make before it.
    """
    xp, (samples, classes) = k.xp, x.shape
    labels = bind_labels(k, classes)
    index, picked = k.scratch((samples,), np.int64), k.scratch((samples,), x.dtype)
    line = k.scratch((samples,), x.dtype)
    numbers = xp.arange(samples)
    before = labels.load
    if xp is np and classes <= FEW:  # on the transpose; see FEW
        z = k.scratch(x.T.shape, x.dtype)
        edge = line
        stride = samples
        before = [*before, partial(np.copyto, z, x.T)]
        x, result = z, z
        maximum = partial(np.maximum.reduce, z, 0, None, edge)
        # Sums over the classes as a product with ones, which BLAS computes.
        total = partial(np.dot, np.ones(classes, z.dtype), z, edge)
    else:
        z = k.scratch(x.shape, x.dtype)
        edge = line[:, None]
        stride = 1
        result = softmax
        # Places in the flat matrix: `take` of flat places is faster than indexing by two arrays.
        numbers *= classes
        maximum = partial(x.max, 1, edge, True)
        total = partial(z.sum, 1, None, edge, True)
    stride = xp.asarray(stride)
    pick = taker(k, z.reshape(-1), index, 0, picked)
    subtract, multiply, add, divide = xp.subtract, xp.multiply, xp.add, xp.divide
    exp, log, check, values = xp.exp, xp.log, labels.check, labels.values

    def run() -> None:
        valid = check()
        maximum()
        subtract(x, edge, z)
        # In the transpose class c of sample n is at c * samples + n, else at n * classes + c.
        multiply(values, stride, index)
        add(index, numbers, index)
        if valid is not None:
            multiply(index, valid, index)
        # Before the exponentials are written over it.
        pick()
        exp(z, z)
        total()
        if softmax is not None:
            # edge and line are the same memory: it held the maxima and holds the sums now.
            divide(z, edge, result)
        log(line, out)
        subtract(out, picked, out)
        if valid is not None:
            out[~valid] = 0

    if softmax is None or result is softmax:
        return run, before
    return in_order(run, partial(np.copyto, softmax, z.T)), before


@softmax_cross_entropy.backward("x", inplace={"x_grad": "softmax"})
def softmax_cross_entropy_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    classes = k.shape("x")[-1]
    samples = count(k.shape("x")[:-1])
    softmax, load = as_rows(k, k["softmax"], samples, classes)
    grad, load_grad = as_rows(k, k["out_grad"], samples, 1)
    x_grad, store = as_rows(k, k["x_grad"], samples, classes, write=True)
    if k.attrs["soft_label"] or reshaped(k):
        label, load_label, ignored = bind_targets(k, samples, classes)
        weight = k.scratch((samples, 1), label.dtype)
        pull = k.scratch((samples, classes), label.dtype)

        def soft() -> None:
            # Labels with class weights do not sum to 1, so the softmax counts as often as their sum
            # says.
            label.sum(1, None, weight, True)
            xp.multiply(softmax, weight, pull)
            xp.subtract(pull, label, pull)
            xp.multiply(pull, grad, x_grad)

        clear = clearing(k, x_grad, ignored)
        return in_order(*load, *load_grad, *load_label, soft, clear, *store)

    labels = bind_labels(k, classes)
    few = xp is np and classes <= FEW
    run = (_pull_few if few else _pull_many)(k, labels, softmax, grad, x_grad)
    return in_order(*labels.load, *load, *load_grad, run, *store)


def _pull_few(k: KernelArgs, labels: Labels, softmax: Any, grad: Any, x_grad: Any) -> Call:
    """x_grad = (softmax - one-hot label) * grad; the one-hot rows come from an identity matrix."""
    xp = k.xp
    check = labels.check
    subtract = k.xp.subtract
    multiply = k.xp.multiply
    hot = k.scratch(softmax.shape, softmax.dtype)
    pick = taker(k, xp.eye(softmax.shape[1], dtype=softmax.dtype), labels.values, 0, hot)

    def run() -> None:
        valid = check()
        pick()
        subtract(softmax, hot, x_grad)
        multiply(x_grad, grad, x_grad)
        if valid is not None:
            # Assigned, not multiplied: NaN in an ignored sample must not come through.
            x_grad[~valid] = 0

    return run


def _pull_many(k: KernelArgs, labels: Labels, softmax: Any, grad: Any, x_grad: Any) -> Call:
    """x_grad = (softmax - one-hot label) * grad, by subtracting 1 at the labels."""
    multiply = k.xp.multiply
    check = labels.check
    values = labels.values
    numbers = k.xp.arange(len(values))
    line = grad[:, 0]

    def run() -> None:
        valid = check()
        # The whole matrix once, and then one element a row, without a one-hot matrix. x_grad may
        # be the memory of softmax, which is not read after this.
        multiply(softmax, grad, x_grad)
        x_grad[numbers, values if valid is None else values * valid] -= line
        if valid is not None:
            x_grad[~valid] = 0

    return run
