"""Transposed convolutions and their gradients: the passes of a convolution, in another order."""

from __future__ import annotations

from ...framework.ir.kernel_args import Call, KernelArgs
from . import batch_norm
from .convolution_gradients import by_data, by_weights
from .convolution_sums import FEWEST, Ends, Shapes, declines
from .convolutions import forward
from .images import Work, suited
from .tail import Tail


def conv_transpose(k: KernelArgs) -> Call | None:
    """Forward, a convolution's gradient by its data; None where arrays or shapes do not suit."""
    x, w, b = k["x"], k["w"], k.get("b")
    tail = Tail(k)
    if declines(k, x.ndim - 2) or not suited(x, w, b, tail.out) or not tail.fits():
        return None
    s = Shapes(k, tail.out, x, w)
    if w.shape[1] < FEWEST and not s.deep:
        return None
    work = Work(x.dtype)
    folds = None if tail.norm is None else batch_norm.folded(tail.norm, work, b, s.groups)
    inputs, outs = len(w) // s.groups, s.large.shape[1] // s.groups
    for group in range(s.groups):
        made = slice(group * outs, (group + 1) * outs)
        if folds is not None:
            ends = Ends(None, folds[group, 0], folds[group, 1])
        else:
            ends = Ends(None if b is None else b[made])
        own = s.w[group * inputs : (group + 1) * inputs]
        given, out = s.part(s.small, group), s.part(s.large, group)
        by_data(k, work, s, given, own, out, ends, tail.activation, keep=not k.train)
    return work.call()


def conv_transpose_grad(k: KernelArgs) -> Call | None:
    """Gradients: by the data a convolution, by the weights the gradient of one; None as above."""
    grad, w = k["out_grad"], k["w"]
    x_grad, w_grad, b_grad = k.get("x_grad"), k.get("w_grad"), k.get("b_grad")
    x = k["x"] if w_grad is not None else None
    if declines(k, grad.ndim - 2) or not suited(grad, w, x, x_grad, w_grad, b_grad):
        return None
    s = Shapes(k, grad, x if x is not None else x_grad, w)
    work = Work(grad.dtype)
    inputs, outs = len(w) // s.groups, s.large.shape[1] // s.groups
    for group in range(s.groups):
        own = slice(group * inputs, (group + 1) * inputs)
        if w_grad is not None:
            of_w = s.lift(w_grad)[own]
            by_weights(k, work, s, group, s.part(s.small, group), of_w, None)
        if b_grad is not None:
            of_b = b_grad[group * outs : (group + 1) * outs]
            by_weights(k, work, s, group, s.part(s.large, group), None, of_b)
        if x_grad is not None:
            into = s.part(s.lift(x_grad), group)
            forward(k, work, s, group, s.w[own], into, Ends(None))
    return work.call()
