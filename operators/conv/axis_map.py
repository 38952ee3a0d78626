"""Sparse linear maps along axes, of which interpolation and adaptive pooling are made.

    out[..., p, ...] = sum over s of weight[p, s] * x[..., s, ...]

An `AxisMap` lists the weights that are not zero. The map and its transpose, the gradient, both run
as a few gathers: a `Table` holds, for each result, the places it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sequence import bincount, repeated
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ..base.calls import copying
from ..base.indexing import taker


@dataclass(frozen=True)
class Table:
    """For each of `count` results the places that it reads, as lines of equal length.

    Attributes:
        index: [terms, count]; a result with fewer places repeats its first one.
        value: [terms, count], the values at each place.
        present: [terms, count], False where a place is a repetition.
    """

    index: np.ndarray
    value: np.ndarray
    present: np.ndarray

    @classmethod
    def of(cls, results: np.ndarray, places: np.ndarray, values: np.ndarray, count: int) -> Table:
        """The table of triples (result, place, value)."""
        # Sorted by place, too: a sum has one order, whatever order the triples came in.
        order = np.lexsort((places, results))
        results, places, values = results[order], places[order], values[order]
        terms = bincount(results, minlength=count)
        number = np.arange(len(results)) - repeated(np.cumsum(terms) - terms, terms)
        shape = (max(int(terms.max(initial=1)), 1), count)
        index, value = np.zeros(shape, np.int64), np.zeros(shape, values.dtype)
        present = np.zeros(shape, bool)
        first = number == 0
        index[:, results[first]] = places[first]
        index[number, results], value[number, results] = places, values
        present[number, results] = True
        return cls(index, value, present)


@dataclass(frozen=True)
class AxisMap:
    """A linear map along one axis.

    Attributes:
        before, after: size of the axis.
        results, places, weights: each result is the sum of its weights times the places.
    """

    before: int
    after: int
    results: np.ndarray
    places: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, before: int, index: np.ndarray, weights: np.ndarray) -> AxisMap:
        """From the places [terms, after] and weights [terms, after] of all results."""
        after = index.shape[1]
        results = np.broadcast_to(np.arange(after), index.shape)
        # Result and place as one number: taps that were clipped to the same edge are one, of the
        # sum of their weights.
        keys, inverse = np.unique(results * before + index, return_inverse=True)
        totals = bincount(inverse.reshape(-1), np.ravel(weights), len(keys))
        # Places of weight 0 go: an infinite one would make NaN of the product.
        kept = totals != 0
        return cls(before, after, keys[kept] // before, keys[kept] % before, totals[kept])

    @property
    def is_identity(self) -> bool:
        same = self.before == self.after == len(self.places)
        return same and (self.places == self.results).all() and (self.weights == 1).all()

    def table(self, transposed: bool = False) -> Table:
        """The table of the map, or of its transpose.

        A repetition shares the weight of the place that it repeats: 0 times infinity is NaN.
        """
        if transposed:
            table = Table.of(self.places, self.results, self.weights, self.before)
        else:
            table = Table.of(self.results, self.places, self.weights, self.after)
        absent = (~table.present).sum(0)
        shared = table.value[0] / (absent + 1)
        weights = np.where(table.present, table.value, shared)
        weights[0] = shared
        return Table(table.index, weights, table.present)


def gathers(k: KernelArgs, x: Any, axis: int, index: np.ndarray) -> list[tuple[Call | None, Any]]:
    """For each line of `index` a call that takes it from x along `axis`, and what it gives.

    Where the places are evenly spaced, it is a view and needs no call.
    """
    parts: list[tuple[Call | None, Any]] = []
    # One memory for all lines that need any: each is used up before the next is taken.
    memory = None
    for places in index:
        step = int(places[1] - places[0]) if len(places) > 1 else 1
        if step > 0 and (np.diff(places) == step).all() and len(places):
            spaced = slice(int(places[0]), int(places[-1]) + 1, step)
            parts.append((None, x[(*(slice(None),) * axis, spaced)]))
            continue
        if memory is None:
            memory = k.scratch((*x.shape[:axis], len(places), *x.shape[axis + 1 :]), x.dtype)
        parts.append((taker(k, x, k.xp.asarray(places), axis, memory), memory))
    return parts


def along(k: KernelArgs, values: np.ndarray, axis: int, ndim: int, dtype: Any) -> Any:
    """One value for each place along `axis`, to be broadcast; a scalar where all are equal."""
    if values.size and (values == values[0]).all():
        return np.dtype(dtype).type(values[0])
    shape = [1] * ndim
    shape[axis] = -1
    return k.xp.asarray(values.astype(dtype)).reshape(shape)


def _pass(k: KernelArgs, table: Table, x: Any, axis: int, out: Any) -> Call:
    """out = the map of x along one axis."""
    xp = k.xp
    product = None
    calls: list[Call | None] = []
    for number, (take, part) in enumerate(gathers(k, x, axis, table.index)):
        weight = along(k, table.value[number], axis, x.ndim, out.dtype)
        plain = (table.value[number] == 1).all()
        calls.append(take)
        if number == 0:
            calls.append(
                copying(xp, part, out) if plain else partial(xp.multiply, part, weight, out=out)
            )
            continue
        if not plain:
            product = k.scratch(out.shape, out.dtype) if product is None else product
            calls.append(partial(xp.multiply, part, weight, out=product))
            part = product
        calls.append(partial(xp.add, out, part, out=out))
    return in_order(*calls)


def apply_maps(
    k: KernelArgs, maps: Sequence[AxisMap], x: Any, out: Any, transposed: bool = False
) -> Call:
    """out = x with each of its last axes mapped, those that shrink first.

    Args:
        maps: one for each of the last axes.
        transposed: out is of the sizes before, x of those after.
    """
    first = x.ndim - len(maps)
    steps = [(first + n, m) for n, m in enumerate(maps) if not m.is_identity]
    # Those that shrink come first, so that the others go over less.
    steps.sort(key=lambda step: step[1].after / max(step[1].before, 1))
    if transposed:
        # The transpose of a product has its factors in the opposite order.
        steps.reverse()
    if not steps:
        return copying(k.xp, x, out) or in_order()
    calls = []
    current = x
    for number, (axis, one) in enumerate(steps):
        size = one.before if transposed else one.after
        shape = (*current.shape[:axis], size, *current.shape[axis + 1 :])
        target = out if number == len(steps) - 1 else k.scratch(shape, out.dtype)
        calls.append(_pass(k, one.table(transposed), current, axis, target))
        current = target
    return in_order(*calls)
