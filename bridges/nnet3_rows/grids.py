"""Times of rows: a first one, a step, and a last one that moves with the end of the input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd


@dataclass(frozen=True)
class Grid:
    """The times at which a node has rows: first, first + step, ...

    Attributes:
        first: the first time; the first frame of the input has time 0.
        step: between neighbors.
        last: no row is later than this; counted from the last frame where `moving`.
        moving: whether there are more rows the longer the input is.
    """

    first: int
    step: int
    last: int
    moving: bool = True

    def rows(self, end: int) -> int:
        """How many rows there are where the last frame has time `end`."""
        return ((end if self.moving else 0) + self.last - self.first) // self.step + 1

    def moved(self, offset: int) -> Grid:
        """The grid of the rows at an offset."""
        return replace(self, first=self.first + offset, last=self.last + offset)

    def clipped(self, low: float, high: float) -> Grid:
        """Without the rows before `low` and after `high` (counted as `last` is)."""
        first, last = self.first, self.last
        if low > first:
            first += -int(first - low) // self.step * self.step
            first += self.step if first < low else 0
        return replace(self, first=first, last=int(min(last, high)))

    def settled(self, unit: int) -> Grid:
        """With a last time that is reached where the end is a multiple of `unit`."""
        if self.moving and unit % self.step:
            return self
        return replace(self, last=self.last - (self.last - self.first) % self.step)

    def before(self, grid: Grid, offset: int) -> int | None:
        """How many rows lie before that at `offset` for a grid's first row; None: there is none."""
        count, odd = divmod(grid.first + offset - self.first, self.step)
        return None if odd or count < 0 else count

    def after(self, grid: Grid, offset: int) -> int | None:
        """How many rows lie after that at `offset` for a grid's last row; None: there is none."""
        count, odd = divmod(self.last - grid.last - offset, self.step)
        return None if odd or count < 0 else count

    def has_slice(self, grid: Grid, offset: int) -> bool:
        """Whether the rows at `offset` for a grid's rows are every n-th one, for any length."""
        if grid.step % self.step or (grid.first + offset - self.first) % self.step:
            return False
        return not grid.moving or (self.last - grid.last - offset) % self.step == 0

    def is_on(self, period: int) -> bool:
        """Whether all times are multiples of a period."""
        single = not self.moving and self.rows(0) == 1
        return not self.first % period and (single or not self.step % period)

    @property
    def never_empty(self) -> bool:
        """Whether there is a row for one frame already."""
        return self.last >= self.first


def merged(a: Grid | None, b: Grid) -> Grid:
    """The smallest grid with the rows of both. A fixed one joins a moving one for all lengths."""
    if a is None:
        return b
    step = gcd(a.step, b.step, a.first - b.first)
    for grid in (a, b):
        if not grid.moving:  # its last row must be hit, too
            step = gcd(step, grid.last - grid.first)
    first, last = min(a.first, b.first), max(a.last, b.last)
    return Grid(first, max(step, 1), last, a.moving or b.moving)


def of_times(times: list[int]) -> Grid:
    """The smallest fixed grid with some times."""
    first, last = min(times), max(times)
    return Grid(first, gcd(*(t - first for t in times)) or 1, last, False)
