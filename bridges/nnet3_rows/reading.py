"""Reading rows of values: windows of a grid, with what a stream keeps between chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .grids import Grid
from .net import FAR, RowsNet, Value
from .reads import NotExportedError, Read


@dataclass(frozen=True)
class Rows:
    """A value and the times of its rows.

    Attributes:
        value: it. grid: the times.
        key: names what caches of it hold.
        kind: what the cache holds at the start: "zeros" (with `before` rows), or "edges": the
            input's first rows.
        before: rows that stand before those computed first.
        older: of a stream, rows of older chunks that each chunk but the first computes again.
        begin: the first column among the input's, where these are its rows.
    """

    value: Value
    grid: Grid
    key: str
    kind: str = "zeros"
    before: int = 0
    older: int = 0
    begin: int = 0


@dataclass(frozen=True)
class Cache:
    """Rows that a stream keeps.

    Attributes:
        name: of the input, `cache_...`; the output is `new_` + name.
        columns: of a row.
        rows: kept after each chunk.
        first: before the first chunk.
        kind: what these hold, "zeros" or "edges".
        begin: the first column of the input that these are, of "edges".
    """

    name: str
    columns: int
    rows: int
    first: int
    kind: str
    begin: int = 0


class RowReader:
    """Reads rows of values at the times that others want.

    Args:
        net: takes the operators.
        source: the input whose frames count, [N, T, columns].
        unit: frames for one row of output.
        exact: whether the end is the last time that is a multiple of the unit.
        streaming: whether values hold the new rows of a chunk alone; older ones come from caches.

    Attributes:
        caches: by the name of their inputs.
        new_caches: what they hold after a chunk.
        edges: of a stream, how often the first frame stands before it, and how many frames the
            first chunk is ahead.
    """

    def __init__(
        self, net: RowsNet, source: str, unit: int, exact: bool, streaming: bool = False
    ) -> None:
        self.net = net
        self.source = source
        self.unit = unit
        self.exact = exact
        self.streaming = streaming
        self.caches: dict[str, Cache] = {}
        self.new_caches: dict[str, str] = {}
        self.edges: tuple[int, int] = (0, 0)
        self._with_older: dict[str, str] = {}

    # Times

    def end(self) -> str:
        """The time of the last frame, [1]."""
        return self.net("rows.end", self.source, name="end", unit=self.unit if self.exact else 1)

    def times(self, grid: Grid) -> str:
        """The times of the rows of a grid, int64 [rows]."""
        step = {"first": grid.first, "step": grid.step}
        if not grid.moving:
            listed = np.arange(grid.rows(0)) * grid.step + grid.first
            return self.net.constant(listed, "times", np.int64)
        return self.net("rows.times", self.end(), name="times", last=grid.last, **step)

    def inside(self, grid: Grid, low: float, high: float) -> str:
        """For the rows of a grid, whether their times are between bounds: bool [rows]."""
        bounds = {"low": float(low), "high": float(high)}
        return self.net("rows.inside", self.times(grid), self.end(), name="there", **bounds)

    def before(self, times: str, have: Grid, offset: int) -> str:
        """How many rows of a grid there are before times at an offset, int64 [rows]."""
        more = have.last - have.first + have.step
        most = {"more": more} if have.moving else {"most": have.rows(0)}
        place = {"first": have.first - offset, "step": have.step}
        end = self.end() if have.moving else None
        return self.net("rows.numbers", times, end, name="rows_before", **place, **most)

    # Rows

    def window(self, rows: Rows, grid: Grid, first: int, last: int, older: int = 0) -> Value:
        """The rows of which those at offsets `first` to `last` are wanted for every row of a grid.

        The result begins with the row at `first` for the grid's first row; its rows are still the
        rows of `rows`, so the reader takes every `grid.step / rows.grid.step`-th. In a stream,
        `older` rows of the grid are wanted again.
        """
        value, have = rows.value, rows.grid
        if value.still:
            return value
        start = have.before(grid, first)
        if start is None or grid.step % have.step:
            raise NotExportedError(f"rows {grid} at {first} do not lie among {have}")
        if not grid.moving:
            count = (grid.rows(0) - 1) * (grid.step // have.step)
            end = start + count + (last - first) // have.step + 1
            return self.net.rows(value, start, end, name=f"{rows.key}.rows")
        drop = have.after(grid, last)
        if drop is None or not have.moving:
            raise NotExportedError(f"rows {grid} up to {last} do not lie among {have}")
        if self.streaming:
            value = self._older(rows, grid, older)
        return self.net.rows(value, start, -drop, name=f"{rows.key}.rows")

    def kept(self, have: Grid, grid: Grid, older: int) -> int:
        """Rows of older chunks that a grid wants, of which `older` rows are computed again."""
        if self.unit % grid.step or self.unit % have.step or grid.step % have.step:
            raise NotExportedError(f"a stream of rows {grid} has chunks of uneven lengths")
        more, wanted = ((g.last - g.first) // g.step for g in (have, grid))  # than frames / step
        return more - (wanted - older) * (grid.step // have.step)

    def _older(self, rows: Rows, grid: Grid, older: int) -> Value:
        """The rows of this chunk after the older rows that the grid's next rows want."""
        have, value = rows.grid, rows.value
        kept = self.kept(have, grid, older) - rows.older
        if kept < 0:
            raise NotExportedError("a stream would have to wait for rows")
        if not kept and not rows.before:
            return value
        name = self.net.title(f"cache_{rows.key}_{kept}")
        if name not in self._with_older:
            cache = Cache(name, value.dim, kept, rows.before, rows.kind, rows.begin)
            self._with_older[name] = self.keep(cache, value.name, f"{rows.key}.with_older")
        return replace(value, name=self._with_older[name])

    def keep(self, cache: Cache, new: str, title: str) -> str:
        """Declare a cache; returns the new rows after those that it holds."""
        whole = self.net("concat", [self.cache(cache), new], axis=2, name=title)
        self.keep_last(cache, whole)
        return whole

    def cache(self, cache: Cache) -> str:
        """The variable of a cache before this chunk."""
        if cache.name not in self.caches:
            self.caches[cache.name] = cache
            rows = cache.first if cache.first == cache.rows else -1
            self.net.given(cache.name, -1, cache.columns, rows)
        return cache.name

    def keep_last(self, cache: Cache, rows: str) -> None:
        """The last rows of a value are what a cache holds after this chunk."""
        ends = {"axes": [2], "starts": [-cache.rows or FAR]}
        self.new_caches[cache.name] = self.net("slice", rows, name=f"new_{cache.name}", **ends)

    def at(self, rows: Rows, grid: Grid, read: Read, older: int = 0) -> Value:
        """One row for each row of a grid, without the scale of the read."""
        value, have = rows.value, rows.grid
        if value.still:
            return value
        if read.at is not None:
            row = (read.at - have.first) // have.step
            if self.streaming and have.moving:
                raise NotExportedError(f"a stream cannot read time {read.at} in all its chunks")
            row_value = self.net.rows(value, row, row + 1, name=f"{rows.key}.rows")
            return replace(row_value, still=True)
        offset = read.offset
        if offset is not None and have.has_slice(grid, offset):
            window = self.window(rows, grid, offset, offset, older)
            stride = grid.step // have.step
            return self.net.rows(window, 0, stride=stride, name=f"{rows.key}.every_{stride}")
        return self._gathered(rows, grid, read)

    def _gathered(self, rows: Rows, grid: Grid, read: Read) -> Value:
        """Rows by their numbers, where these are no plain sequence."""
        if self.streaming:
            raise NotExportedError("rows that repeat after some frames cannot be streamed")
        net = self.net
        times = self.times(grid)
        moved = read.offset or 0
        wanted = times
        if read.offset is None:
            moves = np.array([offset or 0 for offset in read.offsets], np.int64)
            wanted = net("add", times, net("rows.periodic", times, values=moves))
        place = {"first": rows.grid.first - moved, "step": rows.grid.step}
        wanted = net("rows.numbers", wanted, None, name="rows_read", **place)
        variable = net("gather", rows.value.name, wanted, axis=2, name=f"{rows.key}.gathered")
        gathered = replace(rows.value, name=variable)
        if None not in read.offsets:
            return gathered
        own = np.array([offset is not None for offset in read.offsets])
        taken = net("rows.periodic", times, values=own)
        variable = net(
            "where", taken, net.name(gathered), net.constant(0.0), name=f"{rows.key}.taken"
        )
        return Value(variable, gathered.dim)

    def padded(self, value: Value, left: int, right: int, key: str) -> Value:
        """Rows of zeros on both sides; a negative number drops rows."""
        ends = {"left": left, "right": right}
        return Value(self.net("rows.border", self.net.name(value), name=key, **ends), value.dim)
