"""Pooling over windows of one, two and three spatial axes, and over all of them.

A window's maximum or sum is the maximum or sum over its lines, so pooling goes axis by axis, the
last one first: k0 + k1 + k2 passes instead of k0 * k1 * k2, over arrays that get smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ..base.calls import copying
from ..base.integers import BYTES
from .windows import (
    PADDING,
    PADDING_ALGORITHM,
    SPATIAL,
    STRIDE,
    WINNERS,
    Axis,
    check_attrs,
    make_axes,
    per_axis,
    spread,
    winners_of,
)

_ATTRS = (
    AttrSpec("kernel", "ints", "size of the window: one value, or one an axis", minimum=1),
    replace(STRIDE, default=(), doc="step of the window: one value, or one an axis; [] = kernel"),
    replace(PADDING, doc=PADDING.doc.replace("zeros", "places without a value,")),
    PADDING_ALGORITHM,
    AttrSpec("ceil_mode", "bool", "a last window may hang over the end", False),
)
_SIZES = """An axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
`ceil_mode` the ceiling of it, unless the last window would begin in the padding at the end; with
padding_algorithm `same` it becomes ceil(S / stride)."""


@dataclass(frozen=True)
class _Pass:
    """Pooling along one axis: shapes before and after, and where each tap falls."""

    place: int
    axis: Axis
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def spans(self) -> list[tuple[slice, slice]]:
        sizes = self.before[self.place], self.after[self.place]
        return [self.axis.span(tap, *sizes) for tap in range(self.axis.kernel)]

    @property
    def full(self) -> bool:
        """Whether every window lies inside the input as a whole."""
        whole = slice(0, self.after[self.place])
        return all(span[0] == whole for span in self.spans)

    @property
    def disjoint(self) -> bool:
        """Whether no two windows share an input."""
        return self.axis.stride >= self.axis.kernel

    @property
    def tiles(self) -> bool:
        """Whether every input lies in exactly one window."""
        covered = self.after[self.place] * self.axis.kernel
        fits = self.axis.stride == self.axis.kernel and covered == self.before[self.place]
        return fits and self.full

    def inputs(self, array: Any) -> list[Any]:
        """For each tap the part of an array before that it reads."""
        return [array[(*(slice(None),) * self.place, there)] for _, there in self.spans]

    def outputs(self, array: Any) -> list[Any]:
        """For each tap the part of an array after whose windows it lies in."""
        return [array[(*(slice(None),) * self.place, here)] for here, _ in self.spans]

    def along(self, values: np.ndarray, dtype: Any, xp: Any) -> Any:
        """One value a position, to be broadcast over an array after."""
        shape = [1] * len(self.after)
        shape[self.place] = -1
        return xp.asarray(values, dtype).reshape(shape)


def _kernel(attrs: dict, rank: int) -> tuple[int, ...]:
    return spread(attrs["kernel"], rank)


def _passes(attrs: dict, x: Sequence[int], out: Sequence[int]) -> list[_Pass]:
    """The passes that change anything, in their order forward."""
    shape = tuple(x)
    passes = []
    axes = make_axes(attrs, _kernel(attrs, len(x) - 2), x[2:])
    for place in range(len(x) - 1, 1, -1):
        after = (*shape[:place], out[place], *shape[place + 1 :])
        if axes[place - 2] != Axis(1):
            passes.append(_Pass(place, axes[place - 2], shape, after))
        shape = after
    return passes


def _out_shape(s: ShapeArgs, rank: int) -> tuple[int, ...]:
    x = s.rank("x", rank + 2)
    if s.op.type != f"max_pool{rank}d" or s.dtype("x") not in BYTES:
        s.floats("x")
    per_axis(s, "kernel", rank)
    check_attrs(s, rank)
    out = []
    for axis, size in zip(make_axes(s.attrs, _kernel(s.attrs, rank), x[2:]), x[2:], strict=True):
        # A window in the padding alone would have no maximum.
        if max(axis.before, axis.after) >= axis.kernel:
            s.fail(f"padding {max(axis.before, axis.after)} is not below the kernel {axis.kernel}")
        out.append(-1 if size < 0 else axis.positions(size, s.attrs["ceil_mode"]))
        if size >= 0 and (out[-1] <= 0 or size == 0):
            s.fail(
                f"a window of {axis.kernel} does not fit into {size} inputs padded with"
                f" {axis.before} and {axis.after}"
            )
    return (*x[:2], *out)


def _between(k: KernelArgs, passes: Sequence[_Pass], large: Any, small: Any) -> Iterator[tuple]:
    """Each pass with its arrays before and after; those in between are scratch memory."""
    last = len(passes) - 1
    current = large
    for number, step in enumerate(passes):
        following = small if number == last else k.scratch(step.after, large.dtype)
        yield step, current, following
        current = following


# -- maximum -----------------------------------------------------------------------------------


def _index_dtype(kernel: Sequence[int]) -> np.dtype:
    # A byte for each winner: the index would otherwise take as much memory as the result.
    return np.dtype(np.uint8 if max(kernel) <= 256 else np.int32)


def _max_rule(s: ShapeArgs) -> None:
    rank = int(s.op.type[len("max_pool")])
    out = _out_shape(s, rank)
    sizes = [count(step.after) for step in _passes(s.attrs, s["x"], out)]
    s.set("out", (out, s.dtype("x")))
    dtype = _index_dtype(_kernel(s.attrs, rank))
    s.set("index", ((-1 if -1 in sizes else sum(sizes),), dtype))


def _max_forward(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    passes = _passes(k.attrs, x.shape, out.shape)
    if not passes:
        return copying(k.xp, x, out) or in_order()
    winners = winners_of(k.get("index"), [step.after for step in passes])
    return in_order(
        *(
            _max_pass(k, step, source, target, winner)
            for (step, source, target), winner in zip(
                _between(k, passes, x, out), winners, strict=True
            )
        )
    )


def _max_pass(k: KernelArgs, step: _Pass, source: Any, target: Any, winner: Any) -> Call:
    """target = maximum along one axis; winner = the tap it came from, the first of equal ones."""
    xp = k.xp
    inputs, best = step.inputs(source), step.outputs(target)
    calls: list[Call] = []
    begin = 0
    # Every window has its first two taps: their maximum spares the fill.
    if step.full and len(inputs) > 1:
        begin = 2
        if winner is not None:
            flags = _as_flags(k, winner)
            calls.append(partial(xp.greater, inputs[1], inputs[0], out=flags))
            # Bytes have taken the flags in place.
            if winner.dtype != np.uint8:
                calls.append(partial(xp.copyto, winner, flags))
        calls.append(partial(xp.maximum, inputs[0], inputs[1], out=target))
    else:
        # Padding never wins a maximum, though it counts as 0 in a convolution.
        lowest = np.iinfo(target.dtype).min if target.dtype in BYTES else -xp.inf
        calls.append(partial(target.fill, lowest))
        if winner is not None:
            # A window of -inf alone has no tap that is greater; its winner must lie inside, too.
            calls.append(partial(xp.copyto, winner, _first_taps(k, step, winner.dtype)))
    if winner is not None and begin < len(inputs):
        winners = step.outputs(winner)
        better = step.outputs(k.scratch(winner.shape, bool))
        number = step.outputs(k.scratch(winner.shape, winner.dtype))
    for tap in range(begin, len(inputs)):
        if winner is not None:
            calls += [
                partial(xp.greater, inputs[tap], best[tap], out=better[tap]),
                partial(xp.multiply, better[tap], winner.dtype.type(tap), out=number[tap]),
                # Taps ascend, so the greater number belongs to the later winner.
                partial(xp.maximum, winners[tap], number[tap], out=winners[tap]),
            ]
        calls.append(partial(xp.maximum, best[tap], inputs[tap], out=best[tap]))
    return in_order(*calls)


def _as_flags(k: KernelArgs, winner: Any) -> Any:
    """Booleans in the memory of `winner` where its elements are bytes, else scratch memory."""
    if winner.dtype == np.uint8:
        return winner.view(bool)
    return k.scratch(winner.shape, bool)


def _first_taps(k: KernelArgs, step: _Pass, dtype: Any) -> Any:
    """For each position the first tap that falls inside the input."""
    first = np.zeros(step.after[step.place], dtype)
    # From the last tap to the first, so that the first one stays.
    for tap in range(step.axis.kernel - 1, -1, -1):
        first[step.spans[tap][0]] = tap
    return step.along(first, dtype, k.xp)


def _max_backward(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    passes = _passes(k.attrs, x_grad.shape, grad.shape)
    if not passes:
        return copying(k.xp, grad, x_grad) or in_order()
    winners = winners_of(k["index"], [step.after for step in passes])
    steps = list(zip(_between(k, passes, x_grad, grad), winners, strict=True))
    return in_order(
        *(
            _scatter(k, step, source, target, winner)
            for (step, target, source), winner in reversed(steps)
        )
    )


def _scatter(k: KernelArgs, step: _Pass, source: Any, target: Any, winner: Any = None) -> Call:
    """Give each window's gradient to its inputs: to the winner alone, or to all of them."""
    xp = k.xp
    targets, sources = step.inputs(target), step.outputs(source)
    # Windows that tile the input write each place once; elsewhere some places lie in no window, or
    # in several.
    calls: list[Call | None] = [None if step.tiles else partial(target.fill, 0)]
    if winner is not None:
        flags = k.scratch(source.shape, bool)
        weights = k.scratch(source.shape, source.dtype)
        weighted = step.outputs(weights)
    for tap, place in enumerate(targets):
        share = sources[tap]
        if winner is not None:
            share = weighted[tap]
            calls += [
                partial(xp.equal, winner, winner.dtype.type(tap), out=flags),
                partial(xp.copyto, weights, flags),
            ]
            if step.disjoint:
                calls.append(partial(xp.multiply, sources[tap], share, out=place))
            else:
                calls.append(partial(xp.multiply, source, weights, out=weights))
        if not step.disjoint:
            calls.append(partial(xp.add, place, share, out=place))
        elif winner is None:
            calls.append(partial(xp.copyto, place, share))
    return in_order(*calls)


def _register_max(rank: int) -> OperatorDef:
    entry = operator(
        f"max_pool{rank}d",
        doc="Maximum of each window: out[n, c, p] = max over k of x[n, c, p*stride + k - padding]. "
        + _SIZES
        + "\nOf equal inputs the first one, row by row, gets the gradient.",
        inputs=[Slot("x", f"[N, C, {SPATIAL[rank]}]; also 8-bit integers", not_in_gradient=True)],
        outputs=[
            Slot("out", f"[N, C, {SPATIAL[rank]}], new spatial sizes", not_in_gradient=True),
            WINNERS,
        ],
        attrs=_ATTRS,
        shape=_max_rule,
    )
    entry.kernel(_max_forward)
    entry.backward("x")(_max_backward)
    return entry


max_pool1d, max_pool2d, max_pool3d = (_register_max(rank) for rank in SPATIAL)


# -- average -----------------------------------------------------------------------------------


def _avg_rule(s: ShapeArgs) -> None:
    rank = int(s.op.type[len("avg_pool")])
    s.set("out", (_out_shape(s, rank), s.dtype("x")))


def _scale(k: KernelArgs, x: Sequence[int], out: Sequence[int], dtype: Any) -> Any:
    """1 / number of places that each window averages over: one scalar, or an array."""
    # Divided in float64 and rounded once, as each axis brings a factor.
    scale: Any = np.ones((), np.float64)
    for step in _passes(k.attrs, x, out):
        size = step.before[step.place]
        positions = np.arange(step.after[step.place])
        start = positions * step.axis.stride - step.axis.before
        end = np.minimum(start + step.axis.kernel, size + step.axis.after)
        if not k.attrs["count_include_pad"]:
            start = np.maximum(start, 0)
            end = np.minimum(end, size)
        scale = scale / step.along(end - start, np.float64, np)
    if scale.size and (scale == scale.flat[0]).all():
        return dtype.type(scale.flat[0])
    return k.xp.asarray(scale, dtype)


def _avg_forward(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    passes = _passes(k.attrs, x.shape, out.shape)
    calls = [_sum_pass(xp, *arrays) for arrays in _between(k, passes, x, out)]
    scale = _scale(k, x.shape, out.shape, x.dtype)
    return in_order(*calls, partial(xp.multiply, out if passes else x, scale, out=out))


def _sum_pass(xp: Any, step: _Pass, source: Any, target: Any) -> Call:
    """target = sum along one axis."""
    inputs, totals = step.inputs(source), step.outputs(target)
    begin = 2 if step.full and len(inputs) > 1 else 0
    start = partial(target.fill, 0)
    if begin:
        start = partial(xp.add, inputs[0], inputs[1], out=target)
    pairs = zip(inputs[begin:], totals[begin:], strict=True)
    return in_order(start, *(partial(xp.add, total, part, out=total) for part, total in pairs))


def _avg_backward(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    passes = _passes(k.attrs, x_grad.shape, grad.shape)
    # Scaled before the passes, while the array is still small.
    scaled = k.scratch(grad.shape, grad.dtype) if passes else x_grad
    scale = _scale(k, x_grad.shape, grad.shape, grad.dtype)
    steps = list(_between(k, passes, x_grad, scaled))
    return in_order(
        partial(xp.multiply, grad, scale, out=scaled),
        *(_scatter(k, step, source, target) for step, target, source in reversed(steps)),
    )


def _register_avg(rank: int) -> OperatorDef:
    include = AttrSpec(
        "count_include_pad", "bool", "padded places count in the number averaged over", True
    )
    entry = operator(
        f"avg_pool{rank}d",
        doc="Mean of each window: out[n, c, p] = mean over k of x[n, c, p*stride + k - padding]. "
        + _SIZES
        + "\nWhat hangs over the padding at the end never counts.",
        inputs=[Slot("x", f"[N, C, {SPATIAL[rank]}]", not_in_gradient=True)],
        outputs=[Slot("out", f"[N, C, {SPATIAL[rank]}], new spatial sizes", not_in_gradient=True)],
        attrs=(*_ATTRS, include),
        shape=_avg_rule,
    )
    entry.kernel(_avg_forward)
    entry.backward("x")(_avg_backward)
    return entry


avg_pool1d, avg_pool2d, avg_pool3d = (_register_avg(rank) for rank in SPATIAL)


# -- over all spatial axes -----------------------------------------------------------------------


def _global_rule(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x")
    if len(x) < 3:
        s.fail("x wants at least 3 dimensions")
    if 0 in x[2:]:
        s.fail("x has a spatial axis of size 0")
    s.set("out", ((*x[:2], *(1,) * (len(x) - 2)), dtype))
    s.set("index", (x[:2], np.int64))


_X = Slot("x", "[N, C, ...]", not_in_gradient=True)
_OUT = Slot("out", "[N, C, 1 ...]", not_in_gradient=True)

global_avg_pool = operator(
    "global_avg_pool",
    doc="Mean over all spatial axes, which become 1: out[n, c] = mean of x[n, c, ...].",
    inputs=[_X],
    outputs=[_OUT],
    source="Lin et al. 2013, Network in network",
    shape=_global_rule,
)


@global_avg_pool.kernel
def global_avg_pool_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    scale = x.dtype.type(1 / count(x.shape[2:]))
    axes = tuple(range(2, x.ndim))
    return in_order(
        partial(xp.sum, x, axis=axes, out=out, keepdims=True),
        partial(xp.multiply, out, scale, out=out),
    )


@global_avg_pool.backward("x")
def global_avg_pool_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    scaled = k.scratch(grad.shape, grad.dtype)
    # Scaled a channel at a time and then copied, which takes fewer products than places.
    scale = grad.dtype.type(1 / count(x_grad.shape[2:]))
    return in_order(
        partial(xp.multiply, grad, scale, out=scaled), partial(xp.copyto, x_grad, scaled)
    )


global_max_pool = operator(
    "global_max_pool",
    doc="Maximum over all spatial axes, which become 1: out[n, c] = max of x[n, c, ...]."
    " Of equal inputs the first one gets the gradient.",
    inputs=[_X],
    outputs=[
        _OUT,
        Slot("index", "[N, C]: number of the winning place in x[n, c]", intermediate=True),
    ],
    shape=_global_rule,
)


@global_max_pool.kernel
def global_max_pool_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    index = k.get("index")
    highest = partial(xp.max, x, axis=tuple(range(2, x.ndim)), out=out, keepdims=True)
    if index is None:
        return highest
    flat = (*x.shape[:2], count(x.shape[2:]))
    if x.flags.c_contiguous:
        return in_order(highest, partial(xp.argmax, x.reshape(flat), axis=2, out=index))
    # Packed in each call: flattening strided memory here would copy the values of now.
    packed = k.scratch(x.shape, x.dtype)
    find = partial(xp.argmax, packed.reshape(flat), axis=2, out=index)
    return in_order(highest, copying(xp, x, packed), find)


@global_max_pool.backward("x")
def global_max_pool_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    spatial = x_grad.shape[2:]
    places = xp.arange(count(spatial)).reshape(spatial)
    index = k["index"].reshape(*grad.shape)
    chosen = k.scratch(x_grad.shape, bool)
    return in_order(
        partial(xp.equal, places, index, out=chosen),
        partial(xp.multiply, grad, chosen, out=x_grad),
    )
