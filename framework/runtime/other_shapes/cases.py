"""A trace of a step for many cases at once, whose structs are computed as rows of one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.sizes.many_dims import ManyDims
from ...fusion.compiled.arguments import NotTracedError
from ..plans.memory import memory_of, padded
from .apart import Apart
from .tracing import Bound, Traced


class Cases:
    """What a trace is for arrays that lie elsewhere, or have other sizes.

    Args:
        sizes [`Operands.sizes`, cases]: of the arrays of each case.
        pool: scratch memory, which all cases have in common.

    Attributes:
        met [cases]: which of them the trace serves.
        given [cases, numbers]: what `Traced.call` is given for each.
        own [cases]: where the words of each begin.
        held: owners of what the words point to, the arrays aside.

    Raises:
        NotTracedError: a step has memory of its own that depends on sizes.
        OverflowError: a number does not fit into 64 bits.
    """

    def __init__(self, traced: Traced, sizes: np.ndarray, pool: Any) -> None:
        own, count = sizes.shape
        rows = np.zeros((own + 1 + len(traced.memory), count), np.int64)
        rows[:own] = sizes
        words = np.tile(traced.words, (count, 1))
        begin, self._step = (words.ctypes.data, words.strides[0]) if words.size else (0, 0)
        self.own = rows[own] = begin + self._step * np.arange(count)
        dims = ManyDims([traced.table], [np.arange(len(rows))])
        numbers, met = dims.numbers(rows)
        spans = dims.values[3].values(numbers).T
        self.met = met[0] & Apart([traced.apart]).met(spans)[:, 0]
        if traced.fixed_sizes:
            at, fixed = np.array(traced.fixed_sizes, np.int64).T
            self.met &= (sizes[at] == fixed[:, None]).all(axis=0)
        most = dims.values[0].values(numbers)[:, self.met].max(axis=1, initial=0)
        self._places, owners = _memory(traced, pool, most.tolist())
        for place, (address, _) in enumerate(self._places, own + 1):
            rows[place] = address
        dims.put(rows, numbers)
        words[:, traced.at] = dims.values[1].values(numbers).T
        self.given = dims.values[2].values(numbers).T
        self.held = words, owners, traced, pool

    def bound(self, number: int) -> Bound:
        """What a case has been bound to."""
        return Bound(int(self.own[number]), self._places)


def _memory(
    traced: Traced, pool: Any, sizes: Sequence[int]
) -> tuple[list[tuple[int, int]], list[Any]]:
    """Address and bytes of what all cases have beside their arrays, and its owners.

    Args:
        sizes: of the memory, in the largest case.
    """
    if any(kind == "panels" for kind, *_ in traced.memory):
        raise NotTracedError("memory for packed factors, which neighbors have in turn")
    places: list[tuple[int, int]] = []
    owners: list[Any] = []
    wanted = iter(sizes)
    begin = pool.span(sum([padded(size) for size in sizes]))
    for kind, first, second in traced.memory:
        if kind == "scratch":
            size = next(wanted)
            places.append((begin, size))
            begin += padded(size)
        elif kind == "held":
            owners.append(memory_of(first, second))
            places.append((owners[-1].ctypes.data, owners[-1].nbytes))
        else:
            raise NotTracedError("memory that depends on sizes")
    return places, owners
