"""What descriptors read: nodes at offsets, at offsets that repeat, or at fixed times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...nnet3.language.descriptor import ForwardingDescriptor
from .grids import Grid, of_times

_MOST = 10000


class NotExportedError(OpscopeError):
    """A part of a network has no form in ONNX; the message says which and why."""


@dataclass(frozen=True)
class Read:
    """Rows of a node that a row of another is made of.

    Attributes:
        node: its number.
        scale: factor.
        offsets: of the row at time t, `offsets[t % len(offsets)]`; None: this read takes no part.
        at: the fixed time that is read; None: `offsets` hold.
    """

    node: int
    scale: float
    offsets: tuple[int | None, ...] = (0,)
    at: int | None = None

    @property
    def offset(self) -> int | None:
        """The offset where there is one alone."""
        return self.offsets[0] if len(self.offsets) == 1 and self.at is None else None

    def on(self, grid: Grid) -> Read | None:
        """This read for the times of a grid alone; None where it takes no part."""
        period = len(self.offsets)
        if self.at is not None or period == 1:
            return self
        seen = [(grid.first + grid.step * i) % period for i in range(period)]
        if not grid.moving:
            seen = seen[: grid.rows(0)]
        moves = {self.offsets[place] for place in seen}
        if moves == {None}:
            return None
        return Read(self.node, self.scale, (moves.pop(),)) if len(moves) == 1 else self

    def demand(self, grid: Grid) -> Grid:
        """The rows of the node that a grid needs; `self` is as `on` gives it."""
        if self.at is not None:
            return Grid(self.at, 1, self.at, False)
        if self.offset is not None:
            return grid.moved(self.offset)
        period = len(self.offsets)
        count = 2 * period if grid.moving else grid.rows(0)
        times = [grid.first + grid.step * i for i in range(count)]
        listed = [t + o for t in times if (o := self.offsets[t % period]) is not None]
        rows = of_times(listed)
        if not grid.moving:
            return rows
        furthest = max(o for o in self.offsets if o is not None)
        return Grid(rows.first, rows.step, grid.last + furthest)


def reads_of(leaf: ForwardingDescriptor, index: dict[str, int]) -> list[Read]:
    """The reads of a leaf of a descriptor.

    Raises:
        NotExportedError: it reads rows of another x, or repeats after too many frames.
    """
    period = leaf.modulus()
    if period > _MOST:
        raise NotExportedError(f"'{leaf}' repeats after {period} frames; at most {_MOST}")
    times = np.arange(2 * period, dtype=np.int64)
    placed = leaf.map_to_input(times, np.zeros_like(times), index)
    nodes, t, x = (np.broadcast_to(each, times.shape) for each in placed)
    if np.any(x):
        raise NotExportedError(f"'{leaf}' reads rows of another x")
    scales = {index[name]: scale for name, scale in leaf.scales()}
    reads: list[Read] = []
    for node in sorted(set(nodes.tolist())):
        here = np.flatnonzero(nodes[:period] == node)
        steady = t[here] == t[here + period]
        if steady.all() and len(set(t[here].tolist())) == 1 and len(here) == period:
            reads.append(Read(node, scales[node], at=int(t[here[0]])))
            continue
        if steady.any():
            raise NotExportedError(f"'{leaf}' reads fixed times for some frames only")
        moves: list[int | None] = [None] * period
        for place in here.tolist():
            moves[place] = int(t[place]) - place
        shortest = next(
            p for p in range(1, period + 1) if period % p == 0 and moves[p:] == moves[:-p]
        )
        reads.append(Read(node, scales[node], tuple(moves[:shortest])))
    return reads
