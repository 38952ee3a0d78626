"""Transposed convolutions: the gradient of a convolution's input, as an operator of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef
from ..base.calls import stacked
from .conv import GROUPS, register
from .im2col import Correlation
from .windows import DILATION, PADDING, SPATIAL, STRIDE, check_attrs, make_axes, per_axis

_OUTPUT_PADDING = AttrSpec(
    "output_padding",
    "ints",
    "added to the size of out at its end, to choose among the sizes that a convolution maps to one:"
    " below stride or dilation; one value, or one an axis",
    (0,),
    minimum=0,
)
_DOC = """{rank}-D transposed convolution with bias.

Each x[n, c, p] adds x[n, c, p] * w[c, o, k] to out[n, o, p*stride + k*dilation - padding]. An axis
of size P becomes (P-1)*stride + dilation*(k-1) + 1 + output_padding - padding at both ends."""


def _rule(s: ShapeArgs) -> None:
    rank = int(s.op.type[len("conv_transpose")])
    x, w = s.rank("x", rank + 2), s.rank("w", rank + 2)
    dtype = s.floats("x", "w", "b")
    groups = s.attrs["groups"]
    check_attrs(s, rank)
    extra = per_axis(s, "output_padding", rank)
    channels = s.same("the channels of x and of w", x[1], w[0])
    if channels >= 0 and channels % groups:
        s.fail(f"the {channels} channels of x do not split into {groups} groups")
    if 0 in w:
        s.fail("w has an axis of size 0")
    filters = w[1] * groups if w[1] >= 0 else -1
    if s.has("b"):
        filters = s.same("the size of b and the filters of w", s.rank("b", 1)[0], filters)
    out = []
    for axis, size, more in zip(make_axes(s.attrs, w[2:], x[2:]), x[2:], extra, strict=True):
        # From there on another input would have the size.
        if more and more >= max(axis.stride, axis.dilation):
            s.fail(
                f"output_padding {more} is not below stride {axis.stride}"
                f" or dilation {axis.dilation}"
            )
        known = size >= 0 and axis.kernel >= 0
        out.append(axis.inverse(size, more) if known else -1)
        if known and (out[-1] <= 0 or size == 0):
            s.fail(f"an axis of {size} inputs would become one of {out[-1]}")
    s.set("out", ((x[0], filters, *out), dtype))


def _correlation(k: KernelArgs, large: str, multiply: Any) -> Correlation:
    axes = make_axes(k.attrs, k.shape("w")[2:], k.shape(large)[2:])
    groups = k.attrs["groups"]
    dtype = k["w"].dtype
    return Correlation(k, axes, k.shape(large), k.shape("x"), groups, dtype, multiply)


def bind_conv_transpose(k: KernelArgs, multiply: Any = stacked) -> Call:
    """Kernel of the family on top of products of stacks of matrices."""
    plan = _correlation(k, "out", multiply)
    b = k.get("b")
    out = k["out"]
    bias = None
    if b is not None:
        # The bias comes last: `make_large` writes `out` anew, however many taps meet at a place.
        bias = partial(k.xp.add, out, b.reshape(-1, *(1,) * (out.ndim - 2)), out=out)
    return in_order(plan.load_small(k["x"], edges=True), plan.make_large(k["w"], out), bias)


def bind_conv_transpose_grad(k: KernelArgs, multiply: Any = stacked) -> Call:
    """Kernel of its gradient on top of products of stacks of matrices."""
    plan = _correlation(k, "out_grad", multiply)
    out_grad = k["out_grad"]
    x_grad, w_grad, b_grad = k.get("x_grad"), k.get("w_grad"), k.get("b_grad")
    calls = []
    if x_grad is not None or w_grad is not None:
        calls.append(plan.gather(out_grad))
    if w_grad is not None:
        calls += [plan.load_small(k["x"]), plan.make_weights(w_grad)]
    if x_grad is not None:
        calls.append(plan.make_small(k["w"], None, x_grad))
    if b_grad is not None:
        axes = (0, *range(2, out_grad.ndim))
        calls.append(partial(k.xp.sum, out_grad, axis=axes, out=b_grad))
    return in_order(*calls)


def _conv_transpose(rank: int) -> OperatorDef:
    attrs = [STRIDE, PADDING, _OUTPUT_PADDING, DILATION, GROUPS]
    source = "Zeiler et al. 2010, Deconvolutional networks"
    entry = register(rank, "conv_transpose", _DOC, "C, O/groups", attrs, _rule, source)
    entry.kernel(bind_conv_transpose)
    entry.backward("x", "w", "b")(bind_conv_transpose_grad)
    return entry


conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose, SPATIAL)
