"""Grids of times: how components that look over time order their rows, and where they read.

A component with fixed time offsets wants its rows on a regular grid, t outermost, then the pairs
(n, x), so that one offset is one shift of rows. Times that nobody asked for become padding rows.
Where outputs come less often than inputs, `reorder` consecutive times stay together innermost, and
an offset is a range of rows with a stride.

`precompute_indexes` and `reorder_indexes` are the entries for a compiler. Sources: Kaldi's
`nnet3/convolution.cc`, `nnet-tdnn-component.cc`, `nnet-attention-component.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, TypeVar

import numpy as np

from ...framework.base.errors import ShapeError
from ..index.indexes import N_BITS, NO_TIME, Columns, IndexList, pack_tx

Rule = Callable[[Any, np.ndarray, np.ndarray], Any]
RowRule = Callable[[Any, np.ndarray], np.ndarray]

AnyRule = TypeVar("AnyRule", Rule, RowRule)

_reorders: dict[str, Rule] = {}
_precomputes: dict[str, Rule] = {}
_precomputes_by_row: dict[str, RowRule] = {}


def reorders(*types: str) -> Callable[[Rule], Rule]:
    """Decorator: function (component, inputs, outputs) -> the two in the component's order."""
    return _registering(_reorders, types)


def precomputes(*types: str) -> Callable[[Rule], Rule]:
    """Decorator: function (component, inputs, outputs) -> what the lowering finds in `indexes`."""
    return _registering(_precomputes, types)


def precomputes_by_row(*types: str) -> Callable[[RowRule], RowRule]:
    """Decorator: function (component, outputs) -> an array that has an entry for each output row.

    It looks at each row alone, so the rows of several steps are given to it at once.
    """
    return _registering(_precomputes_by_row, types)


def _registering(table: dict[str, AnyRule], types: tuple[str, ...]) -> Callable[[AnyRule], AnyRule]:
    def register(rule: AnyRule) -> AnyRule:
        table.update(dict.fromkeys(types, rule))
        return rule

    return register


def reorder_indexes(component: Any, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
    """Input and output rows in the order the component wants, with its padding rows."""
    if component.type in _GRIDS:
        return _GRIDS[component.type][0](component, inputs, outputs).arrange(inputs, outputs)
    rule = _reorders.get(component.type)
    if rule is None:
        return inputs, outputs
    before, after = rule(component, inputs.indexes, outputs.indexes)
    return Columns.of(before), Columns.of(after)


def precompute_indexes(steps: Sequence[tuple[Any, IndexList, IndexList]]) -> list[Any]:
    """What the operators of components must know of their rows; None for simple components.

    Args:
        steps: component, rows of its input and of its output in the order of `reorder_indexes`.

    Raises:
        ShapeError: an input that the outputs depend on is not there.
    """
    found: list[Any] = []
    by_row: dict[int, list[int]] = {}  # by the id of the component
    for number, (component, inputs, outputs) in enumerate(steps):
        kind, indexes = component.type, None
        if kind in _GRIDS:
            make, locate = _GRIDS[kind]
            indexes = locate(component, make(component, inputs, outputs), outputs.size)
        elif kind in _precomputes:
            indexes = _precomputes[kind](component, inputs.indexes, outputs.indexes)
        elif kind in _precomputes_by_row:
            by_row.setdefault(id(component), []).append(number)
        found.append(indexes)
    for numbers in by_row.values():
        component, listed = steps[numbers[0]][0], [steps[number][2].indexes for number in numbers]
        together, end = _precomputes_by_row[component.type](component, np.concatenate(listed)), 0
        for number, rows in zip(numbers, listed, strict=True):
            begin, end = end, end + len(rows)
            found[number] = together[begin:end]
    return found


def sort_keys(indexes: np.ndarray) -> np.ndarray:
    """An int64 for every row, different for different rows; the rows must have a time."""
    n, t, x = indexes.T
    return (pack_tx(t, x) << N_BITS) + n


@dataclass(frozen=True)
class TimeGrid:
    """Kaldi's `ConvolutionComputationIo`: two regular series of times for the same images."""

    images: np.ndarray  # the pairs (n, x), sorted, int32 [I, 2]
    start_in: int
    step_in: int
    count_in: int
    start_out: int
    step_out: int
    count_out: int
    reorder: int = 1

    @classmethod
    def of(cls, inputs: IndexList, outputs: IndexList) -> TimeGrid:
        """The smallest grid that holds the times of some rows."""
        return cls(inputs.images, *_series(inputs.times), *_series(outputs.times))

    def with_whole_blocks(self) -> TimeGrid:
        """With as many inputs to a block as there are for each output, and no block cut short."""
        if self.step_in == 0 or self.step_out % self.step_in:
            raise ShapeError(
                f"outputs in steps of {self.step_out} cannot be computed from inputs in steps"
                f" of {self.step_in}"
            )
        block = self.step_out // self.step_in
        if block == 1:
            return self
        count = -(-self.count_in // block) * block
        return replace(self, reorder=block, count_in=count)

    def first_row(self, offset: int) -> int:
        """The input row that the first output row reads for a time offset."""
        distance = self.start_out + offset - self.start_in
        number = distance // max(self.step_in, 1)
        last = number + (self.count_out - 1) * self.reorder
        if distance % max(self.step_in, 1) or number < 0 or last >= self.count_in:
            raise ShapeError(f"time offset {offset} leads out of the inputs that are there")
        block, place = divmod(number, self.reorder)
        return block * self.reorder * len(self.images) + place

    def arrange(self, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
        """All rows of the grid in order; those that were not there before are padding."""
        return (
            self._rows(self.start_in, self.step_in, self.count_in, self.reorder, inputs),
            self._rows(self.start_out, self.step_out, self.count_out, 1, outputs),
        )

    def _rows(self, start: int, step: int, count: int, reorder: int, there: Columns) -> Columns:
        full = len(there.times) == count and reorder == 1 and there.regular
        if full and (there.images is self.images or np.array_equal(there.images, self.images)):
            return there
        times = start + max(step, 1) * np.arange(count, dtype=np.int32)
        blocks, images = times.reshape(-1, 1, reorder), self.images[None, :, None]
        rows = np.empty((len(blocks), len(self.images), reorder, 3), np.int32)
        rows[..., 0], rows[..., 1], rows[..., 2] = images[..., 0], blocks, images[..., 1]
        rows = rows.reshape(-1, 3)
        real = there.indexes if there.real is None else there.indexes[there.real]
        if len(real) < len(rows):
            rows[~np.isin(sort_keys(rows), sort_keys(real)), 1] = NO_TIME
        arranged = Columns.of(rows)
        arranged.images, arranged.times = there.images, there.times
        return arranged


def _series(times: np.ndarray) -> tuple[int, int, int]:
    """Start, step and count of the regular series that holds all times; step 0 for one time."""
    if not len(times):
        raise ShapeError("a component is asked for rows without any time")
    start, last = int(times[0]), int(times[-1])
    if last == start:
        return start, 0, 1
    dense = last - start == len(times) - 1
    step = 1 if dense else int(np.gcd.reduce(times[1:] - times[:-1]))
    return start, step, 1 + (last - start) // step


@dataclass(frozen=True)
class OffsetRows:
    """Where the input rows of each time offset begin; they follow one another at `stride`."""

    first: tuple[int, ...]
    stride: int
    rows: int  # of the output


def tdnn_grid(component: Any, inputs: IndexList, outputs: IndexList) -> TimeGrid:
    """The grid of a TdnnComponent."""
    grid = TimeGrid.of(inputs, outputs)
    if grid.step_out == 0:
        step = grid.step_in or 1
        grid = replace(grid, step_in=step, step_out=step)
    return grid.with_whole_blocks()


def _tdnn_rows(component: Any, grid: TimeGrid, rows: int) -> OffsetRows:
    first = tuple(grid.first_row(int(offset)) for offset in component.time_offsets)
    return OffsetRows(first, grid.reorder, rows)


def convolution_grid(component: Any, inputs: IndexList, outputs: IndexList) -> TimeGrid:
    """The grid of a TimeHeightConvolutionComponent; inputs cover all offsets, some by padding."""
    grid = TimeGrid.of(inputs, outputs)
    offsets, modulus = component.all_time_offsets, component.time_offsets_modulus
    if modulus:
        step = gcd(grid.step_in, modulus, grid.step_out)
        last_in = grid.start_in + grid.step_in * (grid.count_in - 1)
        start = min(grid.start_in, grid.start_out + offsets[0])
        last = grid.start_out + (grid.count_out - 1) * grid.step_out + offsets[-1]
        count = 1 + (max(last, last_in) - start) // step
        grid = replace(grid, start_in=start, step_in=step, count_in=count)
    if grid.step_out == 0:
        grid = replace(grid, step_out=grid.step_in)
    return grid if grid.step_out == grid.step_in else grid.with_whole_blocks()


def _convolution_rows(component: Any, grid: TimeGrid, rows: int) -> OffsetRows:
    first = tuple(grid.first_row(int(time)) for time, _ in component.offsets)
    return OffsetRows(first, grid.reorder, rows)


@dataclass(frozen=True)
class AttentionRows:
    """The input row of the first query, and the distance in rows between neighbours in context."""

    first_query: int
    shift: int
    rows: int  # of the output


def attention_grid(component: Any, inputs: IndexList, outputs: IndexList) -> TimeGrid:
    """The grid of a RestrictedAttentionComponent: one step for inputs and outputs."""
    grid, stride = TimeGrid.of(inputs, outputs), int(component.time_stride)
    step_in, step_out = grid.step_in or stride, grid.step_out or stride
    step = gcd(step_in, step_out, stride)
    start = grid.start_out - stride * int(component.num_left_inputs)
    last_out = grid.start_out + (grid.count_out - 1) * step_out
    last = last_out + stride * int(component.num_right_inputs)
    return replace(
        grid,
        step_in=step,
        step_out=step,
        start_in=start,
        count_in=1 + (last - start) // step,
        count_out=1 + (last_out - grid.start_out) // step,
    )


def _attention_rows(component: Any, grid: TimeGrid, rows: int) -> AttentionRows:
    shift = int(component.time_stride) // grid.step_in * len(grid.images)
    return AttentionRows(grid.first_row(0), shift, rows)


_GRIDS: dict[str, tuple[Callable[..., TimeGrid], Callable[[Any, TimeGrid, int], Any]]] = {
    "TdnnComponent": (tdnn_grid, _tdnn_rows),
    "TimeHeightConvolutionComponent": (convolution_grid, _convolution_rows),
    "RestrictedAttentionComponent": (attention_grid, _attention_rows),
}
"""For components that want a grid: what makes it, and what their operators must know of it."""
