"""p-norms over axes, vectors of length 1, and cosines of angles."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import beside
from ..base.calls import reducing
from .reduction import REDUCTION_ATTRS, REDUCTION_OUT, kept, reduced_axes, reduction_rule

_INF = float("inf")

# -- norm --------------------------------------------------------------------------------------

norm = operator(
    "norm",
    doc="Norm of the elements over axes, as one vector: out = sum(|x|^p)^(1/p). p = 2 is Euclid's"
    " length, p = 1 the sum of |x|, infinity the largest |x|, minus infinity the smallest, 0 the"
    " number of elements that are not 0. The gradient is 0 where the norm is 0, and where an"
    " element is 0; equal largest elements share it equally.",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", REDUCTION_OUT)],
    attrs=[*REDUCTION_ATTRS, AttrSpec("p", "float", "order of the norm", 2.0)],
    source="torch.linalg.vector_norm",
    rows=beside("axes"),
)


@norm.shape_rule
def norm_shape(s: ShapeArgs) -> None:
    p = s.attrs["p"]
    if np.isnan(p):
        s.fail("p is NaN, want a number or infinity")
    reduction_rule(lambda s: s.floats("x"), empty=p >= 0 and p != _INF)(s)


def _total_of(k: KernelArgs, source: Any, out: Any) -> Call:
    """out = source summed over the axes, where `out` keeps them with size 1."""
    return reducing(k.xp, source, out) or nothing


@norm.kernel
def norm_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = kept(k, k["out"])
    p = k.attrs["p"]
    held = k.scratch(x.shape, x.dtype)
    total = k.scratch(out.shape, x.dtype)
    deliver = partial(xp.copyto, out, total)
    if p == 2:
        square = partial(xp.multiply, x, x, held)
        return in_order(square, _total_of(k, held, total), partial(xp.sqrt, total, total), deliver)
    size = partial(xp.absolute, x, held)
    if abs(p) == _INF:
        find = held.max if p > 0 else held.min
        return in_order(size, partial(find, reduced_axes(k), total, True), deliver)
    if p == 0:
        mask = k.scratch(x.shape, bool)
        count = partial(xp.not_equal, x, x.dtype.type(0), mask)
        return in_order(count, partial(xp.copyto, held, mask), _total_of(k, held, total), deliver)
    root = []
    if p != 1:
        size = in_order(size, partial(xp.power, held, x.dtype.type(p), held))
        root = [partial(xp.power, total, x.dtype.type(1 / p), total)]
    return in_order(size, _total_of(k, held, total), *root, deliver)


@norm.backward("x")
def norm_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    x_grad = k["x_grad"]
    p = k.attrs["p"]
    out, out_grad = kept(k, k["out"]), kept(k, k["out_grad"])
    zero = x.dtype.type(0)
    if p == 0:
        return partial(x_grad.fill, 0)
    factor = k.scratch(out.shape, x.dtype)
    flat = k.scratch(out.shape, bool)
    # The factor of a norm of 0 is 0, whatever else it would be.
    no_slope = [
        partial(xp.equal, out, zero, flat),
        partial(xp.copyto, factor, zero, where=flat),
    ]
    if p == 2:
        return in_order(
            partial(xp.divide, out_grad, out, factor),
            *no_slope,
            partial(xp.multiply, x, factor, x_grad),
        )
    # sign(0) is 0, which is the gradient that the operator's text promises there.
    sign = partial(xp.sign, x, x_grad)
    if p == 1:
        return in_order(sign, partial(xp.multiply, x_grad, out_grad, x_grad))
    held = k.scratch(x.shape, x.dtype)
    if abs(p) == _INF:
        chosen = k.scratch(x.shape, bool)
        return in_order(
            partial(xp.absolute, x, held),
            partial(xp.equal, held, out, chosen),
            # `factor` holds the number of largest elements first, since they share the gradient.
            partial(chosen.sum, reduced_axes(k), factor.dtype, factor, True),
            partial(xp.divide, out_grad, factor, factor),
            sign,
            partial(xp.multiply, x_grad, factor, x_grad),
            partial(xp.multiply, x_grad, chosen, x_grad),
        )
    at_zero = k.scratch(x.shape, bool)
    # sign(x) (|x| / out)^(p - 1), a ratio that neither overflows nor underflows as powers do.
    return in_order(
        partial(xp.absolute, x, held),
        partial(xp.divide, held, out, held),
        partial(xp.power, held, x.dtype.type(p - 1), held),
        # For p < 1 the power of 0 is infinite, and infinity times sign(0) would be NaN.
        partial(xp.equal, x, zero, at_zero),
        partial(xp.copyto, held, zero, where=at_zero),
        sign,
        partial(xp.multiply, x_grad, held, x_grad),
        partial(xp.copyto, factor, out_grad),
        *no_slope,
        partial(xp.multiply, x_grad, factor, x_grad),
    )


# -- normalize ---------------------------------------------------------------------------------

normalize = operator(
    "normalize",
    doc="Vectors along an axis brought to Euclidean length 1: out = x / max(|x|, epsilon).",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[
        AttrSpec("axis", "int", "axis of the vectors", -1),
        AttrSpec("epsilon", "float", "least length to divide by", 1e-12, minimum=0.0),
    ],
    source="torch.nn.functional.normalize",
    rows=beside("axis"),
)


@normalize.shape_rule
def normalize_shape(s: ShapeArgs) -> None:
    s.axis(s.attrs["axis"], len(s["x"]))
    s.set("out", (s["x"], s.floats("x")))


def _lengths(k: KernelArgs, x: Any, axis: int) -> tuple[Any, list[Call]]:
    """Memory for max(|x|, epsilon) with size 1 along `axis`, and the calls that compute it."""
    xp = k.xp
    squares = k.scratch(x.shape, x.dtype)
    length = k.scratch(_one_along(x.shape, axis), x.dtype)
    return length, [
        partial(xp.multiply, x, x, squares),
        reducing(xp, squares, length) or nothing,
        partial(xp.sqrt, length, length),
        partial(xp.maximum, length, x.dtype.type(k.attrs["epsilon"]), out=length),
    ]


def _one_along(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(1 if a == axis % len(shape) else dim for a, dim in enumerate(shape))


def _dot(k: KernelArgs, x: Any, y: Any, axis: int) -> tuple[Any, list[Call]]:
    """Memory for sum(x y) along `axis`, kept with size 1, and the calls that compute it."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    products = k.scratch(shape, x.dtype)
    total = k.scratch(_one_along(shape, axis), x.dtype)
    multiply = partial(k.xp.multiply, x, y, products)
    return total, [multiply, reducing(k.xp, products, total) or nothing]


@normalize.kernel
def normalize_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    length, calls = _lengths(k, x, k.attrs["axis"])
    return in_order(*calls, partial(k.xp.divide, x, length, out))


@normalize.backward("x")
def normalize_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out_grad = k["out_grad"]
    axis = k.attrs["axis"]
    length, calls = _lengths(k, x, axis)
    along, along_calls = _dot(k, x, out_grad, axis)
    flat = k.scratch(length.shape, bool)
    part = k.scratch(x.shape, x.dtype)
    # (out_grad - x (x . out_grad) / |x|^2) / |x|; without the second term where epsilon divides.
    return in_order(
        *calls,
        *along_calls,
        partial(xp.divide, along, length, along),
        partial(xp.divide, along, length, along),
        partial(xp.less_equal, length, x.dtype.type(k.attrs["epsilon"]), flat),
        partial(xp.copyto, along, x.dtype.type(0), where=flat),
        partial(xp.multiply, x, along, part),
        partial(xp.subtract, out_grad, part, part),
        partial(xp.divide, part, length, k["x_grad"]),
    )


# -- cosine_similarity -------------------------------------------------------------------------

cosine_similarity = operator(
    "cosine_similarity",
    doc="Cosine of the angle between vectors along an axis:"
    " out = sum(x y) / (max(|x|, epsilon) max(|y|, epsilon)). x and y broadcast as in NumPy.",
    inputs=[
        Slot("x", "any shape that broadcasts with y"),
        Slot("y", "any shape that broadcasts with x; dtype of x"),
    ],
    outputs=[Slot("out", "the shape that x and y broadcast to, without axis")],
    attrs=[
        AttrSpec("axis", "int", "axis of the vectors, of the broadcast shape", -1),
        AttrSpec("epsilon", "float", "least length to divide by", 1e-8, minimum=0.0),
    ],
    source="torch.nn.functional.cosine_similarity",
)


@cosine_similarity.shape_rule
def cosine_similarity_shape(s: ShapeArgs) -> None:
    shape = s.broadcast(s["x"], s["y"])
    dtype = s.floats("x", "y")
    axis = s.axis(s.attrs["axis"], len(shape))
    s.set("out", ((*shape[:axis], *shape[axis + 1 :]), dtype))


class _Vectors:
    """x and y as views that broadcast, with their lengths.

    Attributes:
        shape: that both broadcast to. axis: of the vectors, counted from the front.
        x, y: the views, of that rank and as long as each other along the axis.
        length_x, length_y: memory for max(|x|, epsilon) and max(|y|, epsilon), of size 1 along
            the axis.
        calls: compute the lengths.
    """

    def __init__(self, k: KernelArgs) -> None:
        self.xp = k.xp
        self.shape = np.broadcast_shapes(k.shape("x"), k.shape("y"))
        self.axis = k.attrs["axis"] % len(self.shape)
        self.x = self._view(k["x"])
        self.y = self._view(k["y"])
        self.length_x, calls = _lengths(k, self.x, self.axis)
        self.length_y, more = _lengths(k, self.y, self.axis)
        self.calls = calls + more

    def _view(self, array: Any) -> Any:
        view = array.reshape((1,) * (len(self.shape) - array.ndim) + tuple(array.shape))
        shape = list(view.shape)
        # A vector of size 1 along the axis counts at each place of the other, also in its length.
        if shape[self.axis] == self.shape[self.axis]:
            return view
        shape[self.axis] = self.shape[self.axis]
        return self.xp.broadcast_to(view, tuple(shape))

    def kept(self, out: Any) -> Any:
        """`out`, which has no axis of vectors, with that axis of size 1."""
        return out.reshape(_one_along(self.shape, self.axis))


@cosine_similarity.kernel
def cosine_similarity_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    v = _Vectors(k)
    dot, calls = _dot(k, v.x, v.y, v.axis)
    return in_order(
        *v.calls,
        *calls,
        partial(xp.divide, dot, v.length_x, dot),
        partial(xp.divide, dot, v.length_y, v.kept(k["out"])),
    )


@cosine_similarity.backward("x", "y")
def cosine_similarity_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    v = _Vectors(k)
    dtype = v.x.dtype
    ones = _one_along(v.shape, v.axis)
    out, out_grad = v.kept(k["out"]), v.kept(k["out_grad"])
    calls = list(v.calls)
    cross = k.scratch(ones, dtype)
    own = k.scratch(ones, dtype)
    for slot, mine, length, other, other_length in (
        ("x_grad", v.x, v.length_x, v.y, v.length_y),
        ("y_grad", v.y, v.length_y, v.x, v.length_x),
    ):
        target = k.get(slot)
        if target is None:
            continue
        whole = k.scratch(v.shape, dtype)
        part = k.scratch(v.shape, dtype)
        total = k.scratch(target.shape, dtype)
        flat = k.scratch(length.shape, bool)
        calls += [
            # out_grad (other / (|mine| |other|) - out mine / |mine|^2), without the second term
            # where epsilon stands for |mine|.
            partial(xp.divide, out_grad, length, cross),
            partial(xp.multiply, cross, out, own),
            partial(xp.divide, own, length, own),
            partial(xp.less_equal, length, dtype.type(k.attrs["epsilon"]), flat),
            partial(xp.copyto, own, dtype.type(0), where=flat),
            partial(xp.divide, cross, other_length, cross),
            partial(xp.multiply, other, cross, whole),
            partial(xp.multiply, mine, own, part),
            partial(xp.subtract, whole, part, whole),
            reducing(xp, whole, total) or nothing,
            partial(xp.copyto, target, total),
        ]
    return in_order(*calls)
