"""Adaptive pooling: windows chosen so that the result has a given size.

Along an axis of S places that becomes one of P, window p covers the places from floor(p * S / P) to
ceil((p + 1) * S / P). As in pool.py, pooling goes axis by axis, the last one first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sequence import repeated
from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ..base.calls import copying
from .axis_map import AxisMap, Table, along, apply_maps, gathers
from .pool import global_avg_pool_grad_kernel, global_avg_pool_kernel
from .windows import SPATIAL, WINNERS, per_axis, winners_of

_SIZE = AttrSpec("size", "ints", "of the spatial axes of out: one value, or one an axis", minimum=1)
_WINDOWS = (
    " Along an axis of S places that becomes one of P, window p covers the places from"
    " floor(p * S / P) to ceil((p + 1) * S / P)."
)


def _ends(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each window, and the end of it."""
    # In integers: a quotient of floats could miss a whole number.
    positions = np.arange(after)
    return positions * before // after, -(-(positions + 1) * before // after)


def _out_shape(s: ShapeArgs) -> tuple[int, ...]:
    rank = int(s.op.type[-2])
    x = s.rank("x", rank + 2)
    s.floats("x")
    if 0 in x[2:]:
        s.fail("x has a spatial axis of size 0")
    return (*x[:2], *per_axis(s, "size", rank))


# -- average -----------------------------------------------------------------------------------


def _mean_map(before: int, after: int) -> AxisMap:
    start, end = _ends(before, after)
    sizes = end - start
    taps = np.arange(sizes.max())[:, None]
    # Windows differ by one place in size: the short ones repeat a place with the weight 0.
    weights = np.where(taps < sizes, 1 / sizes, 0)
    return AxisMap.of(before, np.minimum(start + taps, before - 1), weights)


def _mean_maps(before: Sequence[int], after: Sequence[int]) -> list[AxisMap]:
    return [_mean_map(*sizes) for sizes in zip(before[2:], after[2:], strict=True)]


def _avg_rule(s: ShapeArgs) -> None:
    s.set("out", (_out_shape(s), s.dtype("x")))


def _is_global(pooled: Any) -> bool:
    """Whether one window covers all places, as at the end of most nets for images."""
    return count(pooled.shape[2:]) == 1


def _avg_forward(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    if _is_global(out):
        return global_avg_pool_kernel(k)
    return apply_maps(k, _mean_maps(x.shape, out.shape), x, out)


def _avg_backward(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    if _is_global(grad):
        return global_avg_pool_grad_kernel(k)
    return apply_maps(k, _mean_maps(x_grad.shape, grad.shape), grad, x_grad, transposed=True)


def _slots(rank: int) -> tuple[Slot, Slot]:
    return (
        Slot("x", f"[N, C, {SPATIAL[rank]}]", not_in_gradient=True),
        Slot("out", f"[N, C, {SPATIAL[rank]}] of `size`", not_in_gradient=True),
    )


def _register_avg(rank: int) -> OperatorDef:
    x, out = _slots(rank)
    entry = operator(
        f"adaptive_avg_pool{rank}d",
        doc="Mean of each window, with windows chosen so that out has a given size." + _WINDOWS,
        inputs=[x],
        outputs=[out],
        attrs=[_SIZE],
        source="names and windows as in PyTorch",
        shape=_avg_rule,
    )
    entry.kernel(_avg_forward)
    entry.backward("x")(_avg_backward)
    return entry


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_register_avg, SPATIAL)


# -- maximum -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pass:
    """Pooling along one axis: the axis, and the shapes before and after."""

    axis: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return _ends(self.before[self.axis], self.after[self.axis])


def _passes(x: Sequence[int], out: Sequence[int]) -> list[_Pass]:
    """The passes that change anything, in their order forward."""
    shape = tuple(x)
    passes = []
    for axis in range(len(x) - 1, 1, -1):
        after = (*shape[:axis], out[axis], *shape[axis + 1 :])
        if after != shape:
            passes.append(_Pass(axis, shape, after))
        shape = after
    return passes


def _max_rule(s: ShapeArgs) -> None:
    out = _out_shape(s)
    s.set("out", (out, s.dtype("x")))
    sizes = [count(step.after) for step in _passes(s["x"], out)]
    s.set("index", ((-1 if min(s["x"], default=0) < 0 else sum(sizes),), np.int32))


def _max_forward(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    passes = _passes(x.shape, out.shape)
    if not passes:
        return copying(k.xp, x, out) or in_order()
    calls = []
    current = x
    for step, winner in zip(
        passes, winners_of(k.get("index"), [step.after for step in passes]), strict=True
    ):
        target = out if step is passes[-1] else k.scratch(step.after, x.dtype)
        calls.append(_max_pass(k, step, current, target, winner))
        current = target
    return in_order(*calls)


def _max_pass(k: KernelArgs, step: _Pass, source: Any, target: Any, winner: Any) -> Call:
    """target = maximum along one axis; winner = the tap it came from, the first of equal ones."""
    xp, (start, end) = k.xp, step.ends
    # Short windows repeat their last place, which is not greater than itself and never wins again.
    taps = np.arange((end - start).max())[:, None]
    calls: list[Call | None] = []
    if winner is not None:
        better = k.scratch(step.after, bool)
        number = k.scratch(step.after, winner.dtype)
        calls.append(partial(winner.fill, 0))
    for tap, (take, part) in enumerate(
        gathers(k, source, step.axis, np.minimum(start + taps, end - 1))
    ):
        calls.append(take)
        if tap == 0:
            calls.append(copying(xp, part, target))
            continue
        if winner is not None:
            calls += [
                partial(xp.greater, part, target, out=better),
                partial(xp.multiply, better, winner.dtype.type(tap), out=number),
                # Taps ascend, so the maximum keeps the last better one, and of equal ones the
                # first.
                partial(xp.maximum, winner, number, out=winner),
            ]
        calls.append(partial(xp.maximum, target, part, out=target))
    return in_order(*calls)


def _max_backward(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    passes = _passes(x_grad.shape, grad.shape)
    if not passes:
        return copying(k.xp, grad, x_grad) or in_order()
    calls = []
    current = grad
    for step, winner in reversed(
        list(zip(passes, winners_of(k["index"], [step.after for step in passes]), strict=True))
    ):
        target = x_grad if step is passes[0] else k.scratch(step.before, grad.dtype)
        calls.append(_scatter(k, step, current, target, winner))
        current = target
    return in_order(*calls)


def _scatter(k: KernelArgs, step: _Pass, source: Any, target: Any, winner: Any) -> Call:
    """Give each window's gradient to its winner: each place asks the windows that cover it."""
    xp, (start, end) = k.xp, step.ends
    sizes = end - start
    windows = repeated(np.arange(len(sizes)), sizes)
    taps = np.arange(len(windows)) - repeated(np.cumsum(sizes) - sizes, sizes)
    table = Table.of(start[windows] + taps, windows, taps, step.before[step.axis])
    # No tap is -1: a repeated place gets no gradient a second time.
    asked = np.where(table.present, table.value, -1)
    flags = k.scratch(step.before, bool)
    share = k.scratch(step.before, source.dtype)
    gradients = gathers(k, source, step.axis, table.index)
    winners = gathers(k, winner, step.axis, table.index)
    calls: list[Call | None] = []
    for number, ((take, part), (find, won)) in enumerate(zip(gradients, winners, strict=True)):
        tap = along(k, asked[number], step.axis, source.ndim, winner.dtype)
        out = target if number == 0 else share
        calls += [
            take,
            find,
            partial(xp.equal, won, tap, out=flags),
            partial(xp.multiply, part, flags, out=out),
            partial(xp.add, target, share, out=target) if number else None,
        ]
    return in_order(*calls)


def _register_max(rank: int) -> OperatorDef:
    x, out = _slots(rank)
    entry = operator(
        f"adaptive_max_pool{rank}d",
        doc="Maximum of each window, with windows chosen so that out has a given size."
        + _WINDOWS
        + " Of equal inputs the first one, row by row, gets the gradient.",
        inputs=[x],
        outputs=[
            out,
            WINNERS,
        ],
        attrs=[_SIZE],
        source="names and windows as in PyTorch",
        shape=_max_rule,
    )
    entry.kernel(_max_forward)
    entry.backward("x")(_max_backward)
    return entry


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_register_max, SPATIAL)
