"""`RowsWalk`: the nodes of a network, one after the other, as operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from ...nnet3.components.base.dependence import NOTHING
from ...nnet3.graph.loops import Loop
from ...nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from .affine import AFFINE
from .components import component_net, pooled_rows
from .grids import Grid
from .net import RowsNet, Value
from .plan import Border, Plan, named
from .reading import RowReader, Rows
from .reads import NotExportedError, Read

CONVOLUTION, ATTENTION = "TimeHeightConvolutionComponent", "RestrictedAttentionComponent"
EXTRACTION, POOLING = "StatisticsExtractionComponent", "StatisticsPoolingComponent"
SPLICED = (*AFFINE, "TdnnComponent")
"""Affine components, of one row or several."""
AT_SEVERAL_TIMES = (CONVOLUTION, ATTENTION, EXTRACTION, POOLING, "TdnnComponent")
"""Component types that read rows at several times."""


class RowsWalk(ABC):
    """Writes the nodes that a plan needs; what components become is up to a form of network.

    Args:
        plan: their rows.
        net: takes the operators.
        source: the variable of `input`, [N, T, columns].
        streaming: see `RowReader`.

    Attributes:
        reader: of rows. rows: of the nodes that are written.
    """

    def __init__(self, plan: Plan, net: RowsNet, source: str, streaming: bool = False) -> None:
        self.plan = plan
        self.net = net
        self.topology = plan.topology
        self.reader = RowReader(net, source, plan.unit, plan.exact_end, streaming)
        self.rows: dict[int, Rows] = {}

    # What components become

    @abstractmethod
    def source(self, number: int, component: Any) -> Value:
        """A component without an input."""

    @abstractmethod
    def affine(self, number: int, component: Any, grid: Grid) -> Value:
        """A component of `SPLICED`."""

    @abstractmethod
    def convolution(self, number: int, component: Any, rows: Rows, grid: Grid) -> Value:
        """A TimeHeightConvolutionComponent that reads some rows, zeros around them included."""

    @abstractmethod
    def row_by_row(self, number: int, component: Any, grid: Grid) -> Value:
        """A component that computes each row from the same row of its input."""

    @abstractmethod
    def loop(self, loop: Loop) -> None:
        """All members of a recurrent layer: set those that others read."""

    def narrowed(self, name: str) -> str:
        """A value of float64 as others are."""
        return self.net("cast", name, dtype="float32", name=f"{name}.narrow")

    # Nodes

    def write(self, ivector: str = "") -> None:
        """Write all nodes.

        Args:
            ivector: its variable [N, columns], where there is one.

        Raises:
            NotExportedError: one has no form.
        """
        self._write_inputs(ivector)
        for members, _ in self.topology.stages:
            if members[0] in self.plan.loops and members[0] in self.plan.grids:
                self.loop(self.plan.loops[members[0]])
                continue
            for number in members:
                wanted = number in self.plan.grids and number not in self.rows
                if wanted and not self._only_pooled(number):
                    with named(self.topology, number):
                        self._write_node(number)

    def set(self, number: int, value: Value, older: int = 0) -> None:
        """Take note of the value of a node, which may have rows of older chunks."""
        name = self.topology.nodes[number].name
        self.rows[number] = Rows(value, self.plan.grids[number], name, older=older)

    def output(self, name: str) -> Value:
        """The value of an output node, with rows for all times unless there is one for all."""
        number = self.topology.number(name)
        value = self.rows[number].value
        grid = self.plan.grids[number]
        if not value.still or self.plan.whole:
            return value
        value = self.net.plain(value)
        source = self.reader.source
        count = {"step": grid.step, "more": grid.last - grid.first + grid.step}
        spread = self.net("rows.spread", value.name, source, self.reader.end(), name=name, **count)
        return Value(spread, value.dim)

    def _write_inputs(self, ivector: str) -> None:
        topology, plan, net = self.topology, self.plan, self.net
        number = topology.index.get("ivector", -1)
        if ivector and number in plan.grids:
            column = net("unsqueeze", ivector, axes=[2], name="ivector_column")
            value = Value(column, topology.nodes[number].dim, True)
            self.rows[number] = Rows(value, plan.grids[number], "ivector")
        number = topology.index.get("input", -1)
        if number not in plan.grids:
            raise NotExportedError("no output depends on 'input'")
        grid = replace(plan.grids[number], step=1)
        turned = net("transpose", self.reader.source, perm=[0, 2, 1], name="input_columns")
        value = Value(turned, topology.nodes[number].dim)
        if self.reader.streaming:
            grid = Grid(min(grid.first, 0), 1, max(grid.last, 0))
            self.reader.edges = (-grid.first, grid.last)
            self.rows[number] = Rows(value, grid, "input", "edges", grid.last - grid.first)
        elif not grid.moving:  # the last row is a fixed one
            raise NotExportedError("the frames that are read do not follow the length of the input")
        else:
            self.rows[number] = Rows(self._with_edges(value, grid), grid, "input")

    def _with_edges(self, frames: Value, grid: Grid) -> Value:
        """The frames with the first and last ones repeated as far as they are read."""
        net = self.net
        left = max(0, -grid.first)
        right = max(0, grid.last)
        first = max(0, grid.first)
        if left or right:
            pads = {"paddings": [0, 0, 0, 0, left, right], "mode": "edge"}
            frames = replace(frames, name=net("pad", frames.name, name="with_edges", **pads))
        if self.plan.exact_end and self.plan.unit > 1:
            ends = {"start": first, "more": grid.last + 1 + left}
            cut = net("rows.cut", frames.name, self.reader.end(), name="frames_read", **ends)
            return replace(frames, name=cut)
        return net.rows(frames, first, min(grid.last, 0), name="frames_read")

    def _write_node(self, number: int) -> None:
        node, grid = self.topology.nodes[number], self.plan.grids[number]
        if node.kind == "dim-range":
            source = self.rows[node.source]
            cut = self.net.columns(source.value, node.dim_offset, node.dim, node.name)
            begin = source.begin + node.dim_offset
            self.rows[number] = replace(source, value=cut, key=node.name, begin=begin)
        elif node.kind == "component":
            self._write_component(number, node.component, grid)
        elif node.is_output:
            self.set(number, self.descriptor(number, grid, node.name))

    def _write_component(self, number: int, c: Any, grid: Grid) -> None:
        if self.topology.nodes[number].reads is NOTHING:
            self.set(number, self.source(number, c))
        elif c.type in SPLICED:
            self.set(number, self.affine(number, c, grid), self.older(number))
        elif c.type == CONVOLUTION:
            self.set(number, self.convolution(number, c, self._input(number, grid), grid))
        elif c.type == ATTENTION:
            self.set(number, self._attention(number, c, self._input(number, grid), grid))
        elif c.type in (EXTRACTION, POOLING):
            self.set(number, self._statistics(number, c, grid))
        else:
            self.set(number, self.row_by_row(number, c, grid))

    def older(self, number: int) -> int:
        """Rows of older chunks of a stream that an affine component computes again."""
        return 0

    # Descriptors

    def descriptor(self, number: int, grid: Grid, name: str) -> Value:
        """The value of a descriptor node on a grid."""
        return self.net.join(self.parts(number, grid), name)

    def parts(self, number: int, grid: Grid) -> list[Value]:
        """What a descriptor node appends, on a grid."""
        node = self.topology.nodes[number]
        listed = enumerate(node.expression().parts)
        return [self.part(part, grid, f"{node.name}.{place}") for place, part in listed]

    def part(self, part: SumDescriptor, grid: Grid, name: str) -> Value:
        """A part of a descriptor on a grid."""
        if isinstance(part, ConstantSumDescriptor):
            return self.constant(np.full(part.columns, part.value), name)
        if isinstance(part, OptionalSumDescriptor):
            return self._optional(part.src, grid, name)
        if isinstance(part, BinarySumDescriptor):
            if part.op == "Failover":
                return self._failover(part, grid, name)
            a, b = self.part(part.a, grid, f"{name}.a"), self.part(part.b, grid, f"{name}.b")
            return self.net.add(a, b, name)
        assert isinstance(part, SimpleSumDescriptor)
        total: Value | None = None
        for read in self.plan.reads(part.src):
            here = read.on(grid)
            if here is not None:
                value = self.reader.at(self.rows[here.node], grid, here).times(here.scale)
                total = value if total is None else self.net.add(total, value, name)
        assert total is not None
        return total

    def constant(self, values: Any, name: str) -> Value:
        """The same row for all times."""
        array = np.asarray(values, np.float32).reshape(1, -1, 1)
        return Value(self.net.constant(array, name), array.shape[1], True)

    def _optional(self, part: SumDescriptor, grid: Grid, name: str) -> Value:
        """A part where it can be computed, else zeros."""
        border = self.plan.border(self.plan.reach_of(part), grid)
        value = self.part(part, border.inner, name)
        if not border.masked:
            return self.with_border(value, border.left, border.right, grid, name)
        if self.reader.streaming:
            raise NotExportedError("a stream does not know which optional rows are missing")
        there = self.reader.inside(grid, border.reach.low, border.reach.high)
        zero = self.net.constant(0.0)
        return Value(self.net("where", there, self.net.name(value), zero, name=name), value.dim)

    def with_border(self, value: Value, left: int, right: int, grid: Grid, name: str) -> Value:
        """Rows with zeros around them, so that they are the rows of a grid."""
        if not left and not right:
            return value
        if value.still:
            raise NotExportedError(f"a still value has a border on {grid}")
        if not self.reader.streaming:
            return self.reader.padded(value, left, right, f"{name}.padded")
        if right > 0:
            raise NotExportedError("a stream does not know which rows are missing at the end")
        longer = replace(grid, last=grid.last - right * grid.step)
        rows = Rows(self.net.plain(value), longer, name, before=left)
        return self.reader.window(rows, grid, 0, 0)

    def _failover(self, part: BinarySumDescriptor, grid: Grid, name: str) -> Value:
        reach = self.plan.reach_of(part.a)
        if reach.covers(grid):
            return self.part(part.a, grid, name)
        first = self._optional(part.a, grid, f"{name}.a")
        second = self._optional(part.b, grid, f"{name}.b")
        if self.reader.streaming:
            raise NotExportedError("a stream does not know where Failover turns to its second part")
        there = self.reader.inside(grid, reach.low, reach.high)
        chosen = self.net("where", there, self.net.name(first), self.net.name(second), name=name)
        return Value(chosen, first.dim)

    # Components that read windows of rows

    def _input(self, number: int, grid: Grid) -> Rows:
        """The input of a component with zeros where rows are missing."""
        name = f"{self.topology.nodes[number].name}.input"
        border = self._border(number, grid)
        if border.masked:
            raise NotExportedError(f"'{name}' may have no row that is there")
        value = self.descriptor(number - 1, border.inner, name)
        value = self.with_border(value, border.left, border.right, border.outer, name)
        return Rows(self.net.plain(value), border.outer, name)

    def _border(self, number: int, grid: Grid) -> Border:
        border = self.plan.input_of(number, grid)
        assert border is not None
        return border

    def _attention(self, number: int, c: Any, rows: Rows, grid: Grid) -> Value:
        """RestrictedAttentionComponent, of the rows at each place of its window."""
        offsets = [(place - c.num_left_inputs) * c.time_stride for place in range(c.context_dim)]
        read = [self.reader.at(rows, grid, Read(-1, 1.0, (offset,))) for offset in offsets]
        return self.net.written(component_net(c, self.topology.nodes[number].name, 3), read)

    def _statistics(self, number: int, c: Any, grid: Grid) -> Value:
        """Count, sums and sums of squares of periods, or means and deviations of windows.

        Where a pooling reads an extraction alone, the extraction's input is summed.
        """
        name = self.topology.nodes[number].name
        source = number
        have = self._border(number, grid)
        net = None
        if c.type == EXTRACTION:
            period = c.output_period
            window = (0, c.output_period)
        else:
            period = c.input_period
            window = (-c.left_context, c.right_context + c.input_period)
            extraction = self._extraction_of(number)
            if extraction is not None:
                source = extraction
                have = self._border(extraction, self.plan.grids[extraction])
                net = pooled_rows(c, self.topology.nodes[extraction].component, name)
        if not grid.is_on(period):
            raise NotExportedError(f"'{name}' is read at times that are no multiples of its period")
        if self.reader.streaming:
            raise NotExportedError("statistics take the future as far as it is there: no streams")
        x = self.descriptor(source - 1, have.inner, name)
        times = self.reader.times(grid)
        if x.still:
            raise NotExportedError(f"'{name}' reads a value that is the same at all times")
        net = net or component_net(c, name, 3)
        ends = {
            f"{name}.{end}": self.reader.before(times, have.inner, offset)
            for end, offset in zip(("begin", "end"), window, strict=True)
        }
        pooled = self.net.written(net, [x], ends)
        return replace(pooled, name=self.narrowed(pooled.name))

    def _extraction_of(self, number: int) -> int | None:
        """The extraction that a pooling reads, and nothing else, in the same periods."""
        read = self.topology.inputs_of[number - 1]
        node = self.topology.nodes[read[0]]
        plain = str(self.topology.nodes[number - 1].expression()) == node.name
        if not plain or node.kind != "component" or node.component.type != EXTRACTION:
            return None
        same = node.component.output_period == self.topology.nodes[number].component.input_period
        return read[0] if same else None

    def _only_pooled(self, number: int) -> bool:
        """Whether a node is an extraction whose poolings read its input themselves."""
        node = self.topology.nodes[number]
        nodes = self.topology.nodes
        if node.kind != "component" or node.component.type != EXTRACTION:
            return False
        readers = [each for each in self.topology.readers_of[number] if each in self.plan.grids]
        return all(
            not nodes[reader].is_output
            and nodes[reader + 1].component.type == POOLING
            and self._extraction_of(reader + 1) == number
            for reader in readers
        )
