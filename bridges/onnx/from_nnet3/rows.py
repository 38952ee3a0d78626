"""Reading rows of values: windows of a grid, with what a stream keeps between chunks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from ....nnet3.graph.topology import Topology
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.plan import Plan
from ...nnet3_rows.reads import NotExportedError, Read
from .emit import F32, Emitter, Value


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
        begin: the first column among those of the input, where these are its rows.
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


@dataclass
class Clock:
    """Times as ONNX values, computed where they are needed.

    Attributes:
        e: the emitter.
        source: the input whose frames count, [N, T, dim].
        unit: frames for one row of output.
        exact: whether the end is the last time that is a multiple of the unit.
    """

    e: Emitter
    source: str
    unit: int
    exact: bool
    _known: dict[str, str] = field(default_factory=dict[str, str])

    def end(self) -> str:
        """The time of the last frame, [1]."""
        if "end" not in self._known:
            g = self.e.graph
            shape = self.e.op("Shape", self.source, name="frames_and_columns")
            frames = self.e.op("Slice", shape, g.ints(1), g.ints(2), name="frames")
            last = self.e.op("Sub", frames, g.ints(1), name="end")
            if self.exact and self.unit > 1:
                last = self.e.op("Div", last, g.ints(self.unit))
                last = self.e.op("Mul", last, g.ints(self.unit), name="end")
            self._known["end"] = last
        return self._known["end"]

    def count(self, grid: Grid) -> str:
        """The number of rows of a grid, [1]."""
        g = self.e.graph
        if not grid.moving:
            return g.ints(grid.rows(0))
        key = f"count {grid}"
        if key not in self._known:
            more = self.e.op("Add", self.end(), g.ints(grid.last - grid.first + grid.step))
            if grid.step > 1:
                more = self.e.op("Div", more, g.ints(grid.step))
            self._known[key] = more
        return self._known[key]

    def times(self, grid: Grid) -> str:
        """The times of the rows of a grid, int64 [rows]."""
        key = f"times {grid}"
        if key not in self._known:
            g = self.e.graph
            zero, one = (g.constant(np.array(number, np.int64)) for number in (0, 1))
            count = self.e.op("Squeeze", self.count(grid))
            times = self.e.op("Range", zero, count, one, name="row")
            if grid.step > 1:
                times = self.e.op("Mul", times, g.ints(grid.step))
            if grid.first:
                times = self.e.op("Add", times, g.ints(grid.first))
            self._known[key] = times
        return self._known[key]

    def inside(self, grid: Grid, low: float, high: float) -> str:
        """For the rows of a grid, whether their times are between bounds: bool [rows]."""
        key = f"inside {grid} {low} {high}"
        if key not in self._known:
            g, times = self.e.graph, self.times(grid)
            found: list[str] = []
            if low > -np.inf:
                found.append(self.e.op("GreaterOrEqual", times, g.ints(int(low))))
            if high < np.inf:
                last = self.e.op("Add", self.end(), g.ints(int(high)))
                found.append(self.e.op("LessOrEqual", times, last))
            self._known[key] = found[0] if len(found) == 1 else self.e.op("And", *found)
        return self._known[key]


class RowReader:
    """Reads rows of values at the times that others want.

    Args:
        e: the emitter.
        clock: its times.
        unit: frames for one row of output.
        streaming: whether values hold the new rows of a chunk alone; older ones come from caches.

    Attributes:
        caches: by the name of their inputs.
        new_caches: what they hold after a chunk.
        edges: of a stream, how often the first frame stands before it, and how many frames the
            first chunk is ahead.
    """

    def __init__(self, e: Emitter, clock: Clock, unit: int, streaming: bool) -> None:
        self.e, self.clock, self.unit, self.streaming = e, clock, unit, streaming
        self.caches: dict[str, Cache] = {}
        self.new_caches: dict[str, str] = {}
        self.edges: tuple[int, int] = (0, 0)
        self._with_older: dict[str, str] = {}

    def window(self, rows: Rows, grid: Grid, first: int, last: int, older: int = 0) -> Value:
        """The rows of which those at offsets `first` to `last` are wanted for every row of a grid.

        The result begins with the row at `first` for the grid's first row; its rows are those of
        `rows` still, so whoever reads it takes every `grid.step / rows.grid.step`-th. In a stream,
        `older` rows of the grid are wanted again.
        """
        value, have = rows.value, rows.grid
        if value.still:
            return value
        start = have.before(grid, first)
        if start is None or grid.step % have.step:
            raise NotExportedError(f"rows {grid} at {first} do not lie among {have}")
        if not grid.moving:
            return self._cut(
                value,
                start,
                start
                + (grid.rows(0) - 1) * (grid.step // have.step)
                + (last - first) // have.step
                + 1,
                rows,
            )
        drop = have.behind(grid, last)
        if drop is None:
            raise NotExportedError(f"rows {grid} up to {last} do not lie among {have}")
        if self.streaming:
            value = self._older(rows, grid, older)
        return self._cut(value, start, -drop, rows)

    def _cut(self, value: Value, start: int, end: int, rows: Rows) -> Value:
        if not start and not end:
            return value
        g = self.e.graph
        stop = g.ints(end) if end else g.ints(2**62)
        made = self.e.op(
            "Slice", value.name, g.ints(start), stop, g.ints(2), name=f"{rows.key}.rows"
        )
        return replace(value, name=made)

    def kept(self, have: Grid, grid: Grid, older: int) -> int:
        """Rows of older chunks that a grid wants, of which `older` rows are computed again."""
        if self.unit % grid.step or self.unit % have.step or grid.step % have.step:
            raise NotExportedError(f"a stream of rows {grid} has chunks of uneven lengths")
        more, wanted = ((g.last - g.first) // g.step for g in (have, grid))  # than frames / step
        return more - (wanted - older) * (grid.step // have.step)

    def _older(self, rows: Rows, grid: Grid, older: int) -> Value:
        """The rows of this chunk behind those of older ones that the grid's next rows want."""
        have, value = rows.grid, rows.value
        kept = self.kept(have, grid, older) - rows.older
        if kept < 0:
            raise NotExportedError("a stream would have to wait for rows")
        if not kept and not rows.before:
            return value
        name = f"cache_{rows.key}_{kept}"
        if name not in self._with_older:
            self._with_older[name] = self.keep(name, value.name, value.dim, kept, rows)
        return replace(value, name=self._with_older[name])

    def keep(self, name: str, new: str, columns: int, kept: int, rows: Rows) -> str:
        """Declare a cache; returns the new rows behind those that it holds."""
        g = self.e.graph
        given = g.input(name, F32, ["N", columns, kept if kept == rows.before else f"{name}_rows"])
        whole = self.e.op("Concat", given, new, axis=2, name=f"{rows.key}.with_older")
        self.set_new(name, self.last(whole, kept, name))
        self.caches[name] = Cache(name, columns, kept, rows.before, rows.kind, rows.begin)
        return whole

    def last(self, name: str, count: int, cache: str) -> str:
        """The last rows of a value, as the new ones of a cache."""
        g = self.e.graph
        ends = [g.ints(number) for number in (-count if count else 2**62, 2**62, 2)]
        return g.node("Slice", [name, *ends], outputs=[f"new_{cache}"])

    def set_new(self, name: str, value: str) -> None:
        """The value of a cache after this chunk."""
        self.new_caches[name] = value

    def at(self, rows: Rows, grid: Grid, read: Read, older: int = 0) -> Value:
        """One row for each row of a grid, without the scale of the read."""
        value, have = rows.value, rows.grid
        if value.still:
            return value
        if read.at is not None:
            row = (read.at - have.first) // have.step
            if self.streaming and have.moving:
                raise NotExportedError(f"a stream cannot read time {read.at} in all its chunks")
            return replace(self._cut(value, row, row + 1, rows), still=True)
        offset = read.offset
        if offset is not None and have.has_slice(grid, offset):
            found = self.window(rows, grid, offset, offset, older)
            return self.every(found, grid.step // have.step, rows)
        return self._gathered(rows, grid, read)

    def every(self, value: Value, stride: int, rows: Rows) -> Value:
        """Every n-th row."""
        if stride == 1 or value.still:
            return value
        g = self.e.graph
        whole = (g.ints(0), g.ints(2**62), g.ints(2), g.ints(stride))
        made = self.e.op("Slice", value.name, *whole, name=f"{rows.key}.every_{stride}")
        return replace(value, name=made)

    def _gathered(self, rows: Rows, grid: Grid, read: Read) -> Value:
        """Rows by their numbers, where these are no plain sequence."""
        if self.streaming:
            raise NotExportedError("rows that repeat after some frames cannot be streamed")
        g, times = self.e.graph, self.clock.times(grid)
        if read.offset is not None:
            move = g.ints(read.offset)
        else:
            table = np.array([offset or 0 for offset in read.offsets], np.int64)
            place = self.e.op("Mod", times, g.ints(len(table)))
            move = self.e.op("Gather", g.constant(table), place)
        wanted = self.e.op("Sub", self.e.op("Add", times, move), g.ints(rows.grid.first))
        if rows.grid.step > 1:
            wanted = self.e.op("Div", wanted, g.ints(rows.grid.step))
        made = self.e.op("Gather", rows.value.name, wanted, axis=2, name=f"{rows.key}.gathered")
        found = replace(rows.value, name=made)
        if None not in read.offsets:
            return found
        own = np.array([offset is not None for offset in read.offsets])
        place = self.e.op("Mod", times, g.ints(len(own)))
        taken = self.e.op("Gather", g.constant(own), place)
        made = self.e.op("Where", taken, self.e.name(found), self.e.number(0))
        return Value(made, found.dim)

    def padded(self, value: Value, left: int, right: int, key: str) -> Value:
        """Rows of zeros on both sides; a negative number drops rows."""
        pads = self.e.graph.ints(0, 0, left, 0, 0, right)
        made = self.e.op("Pad", self.e.name(value), pads, name=f"{key}.padded")
        return Value(made, value.dim)


class Writer(Protocol):
    """Writes the nodes of a network; what modules for kinds of nodes use of it.

    Attributes:
        plan: the rows of all nodes.
        topology: of the network.
        e: the emitter. reader: of rows.
        rows: of the nodes that are written.
    """

    plan: Plan
    topology: Topology
    e: Emitter
    reader: RowReader
    rows: dict[int, Rows]

    def set(self, number: int, value: Value) -> None:
        """Take note of the value of a node."""
        ...

    def descriptor(self, number: int, grid: Grid, name: str) -> Value:
        """The value of a descriptor node on a grid."""
        ...

    def with_border(self, value: Value, left: int, right: int, grid: Grid, name: str) -> Value:
        """Rows with zeros around them, which makes them those of a grid."""
        ...
