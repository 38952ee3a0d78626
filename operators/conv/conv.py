"""Convolutions over one, two and three spatial axes.

As everywhere in neural networks, these are cross-correlations: the kernel is not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs, ShapeRule, layout_hint
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ..base.calls import stacked
from .im2col import Correlation
from .windows import DILATION, PADDING, PADDING_ALGORITHM, SPATIAL, STRIDE, check_attrs, make_axes

GROUPS = AttrSpec("groups", "int", "independent convolutions the channels are split into", 1, 1)

_DOC = """{rank}-D convolution (cross-correlation) with bias.

out[n, o, p] = b[o] + sum over c, k of w[o, c, k] * x[n, g*C/groups + c, q],
q = p*stride + k*dilation - padding

where g is the group of filter o, and x is zero outside. An axis of size S becomes
floor((S + padding at both ends - dilation*(k-1) - 1) / stride) + 1, and ceil(S / stride) with
padding_algorithm `same`."""


def _rule(s: ShapeArgs) -> None:
    rank = int(s.op.type[len("conv")])
    s.set("out", (conv_shape(s, rank), s.floats("x", "w", "b")))


def conv_shape(s: ShapeArgs, rank: int) -> tuple[int, ...]:
    """The shape of a convolution over so many spatial axes, whose slots are checked for it."""
    x, w = s.rank("x", rank + 2), s.rank("w", rank + 2)
    groups = s.attrs["groups"]
    check_attrs(s, rank)
    if 0 in w:
        s.fail("w has an axis of size 0")
    if w[0] >= 0 and w[0] % groups:
        s.fail(f"the {w[0]} filters of w do not split into {groups} groups")
    if x[1] >= 0 and 0 <= w[1] * groups != x[1]:
        hint = layout_hint(x, (x[0], w[1] * groups, *(-1 for _ in x[2:])))
        s.fail(
            "the channels of x and of w times groups must agree and are"
            f" {x[1]}, {w[1] * groups}{hint}"
        )
    if s.has("b"):
        s.same("the size of b and the filters of w", s.rank("b", 1)[0], w[0])
    out = []
    for axis, size in zip(make_axes(s.attrs, w[2:], x[2:]), x[2:], strict=True):
        known = size >= 0 and axis.kernel >= 0
        out.append(axis.positions(size) if known else -1)
        if known and (out[-1] <= 0 or size == 0):
            s.fail(
                f"a window of {axis.extent} does not fit into {size} inputs padded with"
                f" {axis.before} and {axis.after}"
            )
    return (x[0], w[0], *out)


def _correlation(k: KernelArgs, small: str, multiply: Any) -> Correlation:
    axes = make_axes(k.attrs, k.shape("w")[2:], k.shape("x")[2:])
    groups = k.attrs["groups"]
    dtype = k["w"].dtype
    return Correlation(k, axes, k.shape("x"), k.shape(small), groups, dtype, multiply)


def bind_conv(k: KernelArgs, multiply: Any = stacked) -> Call:
    """Kernel of the family on top of products of stacks of matrices."""
    plan = _correlation(k, "out", multiply)
    return in_order(plan.gather(k["x"]), plan.make_small(k["w"], k.get("b"), k["out"]))


def bind_conv_grad(k: KernelArgs, multiply: Any = stacked) -> Call:
    """Kernel of its gradient on top of products of stacks of matrices."""
    plan = _correlation(k, "out_grad", multiply)
    x_grad, w_grad, b_grad = k.get("x_grad"), k.get("w_grad"), k.get("b_grad")
    # Only the gradient of x reads beyond the edges: the zeros around are spared otherwise.
    calls = [plan.load_small(k["out_grad"], edges=x_grad is not None)]
    if b_grad is not None:
        calls.append(plan.make_bias(b_grad))
    if w_grad is not None:
        calls += [plan.gather(k["x"]), plan.make_weights(w_grad)]
    if x_grad is not None:
        calls.append(plan.make_large(k["w"], x_grad))
    return in_order(*calls)


def register(
    rank: int,
    op_type: str,
    doc: str,
    filters: str,
    attrs: Sequence[AttrSpec],
    rule: ShapeRule,
    source: str = "",
) -> OperatorDef:
    """An operator with the slots of a convolution; `filters`: the first two axes of w."""
    return operator(
        f"{op_type}{rank}d",
        doc=doc.format(rank=rank),
        inputs=[
            Slot("x", f"[N, C, {SPATIAL[rank]}]"),
            Slot("w", f"[{filters}, {'k' + ', k' * (rank - 1)}]: filters"),
            Slot("b", "[O]: bias", optional=True, not_in_gradient=True),
        ],
        outputs=[Slot("out", f"[N, O, {SPATIAL[rank]}], new spatial sizes", not_in_gradient=True)],
        attrs=attrs,
        source=source,
        shape=rule,
        takes_halves=("gpu",),
    )


def _conv(rank: int) -> OperatorDef:
    attrs = [STRIDE, PADDING, PADDING_ALGORITHM, DILATION, GROUPS]
    entry = register(rank, "conv", _DOC, "O, C/groups", attrs, _rule)
    entry.kernel(bind_conv)
    entry.backward("x", "w", "b")(bind_conv_grad)
    return entry


conv1d, conv2d, conv3d = map(_conv, SPATIAL)
