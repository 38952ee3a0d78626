"""The nodes of a network, one after the other, as ONNX operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....nnet3.components.base.dependence import NOTHING
from ....nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from ...nnet3_rows.affine import AFFINE, affine_of
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.plan import Plan, named
from ...nnet3_rows.reads import NotExportedError, Read
from .affine import Taps, write_taps
from .emit import Emitter, Value
from .folding import Folding
from .rows import RowReader, Rows
from .rowwise import constant, row_by_row
from .windows import (
    EXTRACTION,
    POOLING,
    extraction_of,
    write_attention,
    write_convolution,
    write_extraction,
    write_pooling,
)

_AGAIN = (*AFFINE, "TdnnComponent")
_MOST_AGAIN = 3
"""Rows that a layer of a stream computes again in each chunk, at most."""
Loops = Callable[["NetworkWriter", Any], None]


class NetworkWriter:
    """Writes the nodes that a plan needs.

    Args:
        plan: their rows.
        e: the emitter.
        reader: of rows.
        folding: scales that move into the affine components before them.
        write_loop: writes all members of a recurrent layer.

    Attributes:
        rows: of the nodes that are written.
    """

    def __init__(
        self, plan: Plan, e: Emitter, reader: RowReader, folding: Folding, write_loop: Loops
    ) -> None:
        self.plan, self.e, self.reader, self.folding = plan, e, reader, folding
        self.topology, self._write_loop = plan.topology, write_loop
        self.rows: dict[int, Rows] = {}
        self._older_rows: dict[int, int] = {}
        self._again: dict[int, int] = {}

    def write(self) -> None:
        """Write all nodes; inputs are in `rows` already.

        Raises:
            NotExportedError: one has no form in ONNX.
        """
        for members, _ in self.topology.stages:
            if members[0] in self.plan.loops and members[0] in self.plan.grids:
                self._write_loop(self, self.plan.loops[members[0]])
                continue
            for number in members:
                wanted = number in self.plan.grids and number not in self.rows
                if wanted and not self._only_pooled(number):
                    with named(self.topology, number):
                        self._write_node(number)

    def _only_pooled(self, number: int) -> bool:
        """Whether a node is an extraction whose poolings read its input themselves."""
        node = self.topology.nodes[number]
        if node.kind != "component" or node.component.type != EXTRACTION:
            return False
        needed = [
            reader for reader in self.topology.readers_of[number] if reader in self.plan.grids
        ]
        return all(self._pools(reader, number) for reader in needed)

    def _pools(self, reader: int, number: int) -> bool:
        node = self.topology.nodes[reader]
        if node.is_output or self.topology.nodes[reader + 1].component.type != POOLING:
            return False
        return extraction_of(self, reader + 1) == number

    def set(self, number: int, value: Value, older: int = 0) -> None:
        """Take note of the value of a node, which may have rows of older chunks."""
        name = self.topology.nodes[number].name
        self.rows[number] = Rows(value, self.plan.grids[number], name, older=older)

    def _write_node(self, number: int) -> None:
        node, grid = self.topology.nodes[number], self.plan.grids[number]
        if node.kind == "dim-range":
            source = self.rows[node.source]
            cut = self.e.columns(source.value, node.dim_offset, node.dim, node.name)
            begin = source.begin + node.dim_offset
            self.rows[number] = replace(source, value=cut, key=node.name, begin=begin)
        elif node.kind == "component":
            value = self._component(number, node.component, grid)
            self.set(number, value, self._older_rows.get(number, 0))
        elif node.is_output:
            self.set(number, self.descriptor(number, grid, node.name))

    # Descriptors

    def descriptor(self, number: int, grid: Grid, name: str) -> Value:
        """The value of a descriptor node on a grid."""
        return self.e.join(self.parts(number, grid), name)

    def parts(self, number: int, grid: Grid) -> list[Value]:
        """What a descriptor node appends, on a grid."""
        node = self.topology.nodes[number]
        listed = enumerate(node.expression().parts)
        return [self.part(part, grid, f"{node.name}.{place}") for place, part in listed]

    def part(self, part: SumDescriptor, grid: Grid, name: str) -> Value:
        """A part of a descriptor on a grid."""
        if isinstance(part, ConstantSumDescriptor):
            return constant(self.e, np.full(part.columns, part.value), name)
        if isinstance(part, OptionalSumDescriptor):
            return self._optional(part.src, grid, name)
        if isinstance(part, BinarySumDescriptor):
            if part.op == "Failover":
                return self._failover(part, grid, name)
            a, b = self.part(part.a, grid, f"{name}.a"), self.part(part.b, grid, f"{name}.b")
            return self.e.add(a, b, name)
        assert isinstance(part, SimpleSumDescriptor)
        found: Value | None = None
        for read in self.plan.reads(part.src):
            here = read.on(grid)
            if here is not None:
                value = self.reader.at(self.rows[here.node], grid, here).times(here.scale)
                found = value if found is None else self.e.add(found, value, name)
        assert found is not None
        return found

    def _optional(self, part: SumDescriptor, grid: Grid, name: str) -> Value:
        """A part where it can be computed, else zeros."""
        border = self.plan.border(self.plan.reach_of(part), grid)
        value = self.part(part, border.inner, name)
        if border.masked:
            if self.reader.streaming:
                raise NotExportedError("a stream does not know which optional rows are missing")
            there = self.reader.clock.inside(grid, border.reach.low, border.reach.high)
            made = self.e.op("Where", there, self.e.name(value), self.e.number(0), name=name)
            return Value(made, value.dim)
        return self.with_border(value, border.left, border.right, grid, name)

    def with_border(self, value: Value, left: int, right: int, grid: Grid, name: str) -> Value:
        """Rows with zeros around them, which makes them those of a grid."""
        if not left and not right:
            return value
        if value.still:
            like = Value(self._times_like(grid), 1)
            value = self.e.spread(value, like)
        if not self.reader.streaming:
            return self.reader.padded(value, left, right, name)
        if right > 0:
            raise NotExportedError("a stream does not know which rows are missing at the end")
        longer = replace(grid, last=grid.last - right * grid.step)
        rows = Rows(self.e.plain(value), longer, name, before=left)
        return self.reader.window(rows, grid, 0, 0)

    def _times_like(self, grid: Grid) -> str:
        raise NotExportedError(f"a still value has a border on {grid}")

    def _failover(self, part: BinarySumDescriptor, grid: Grid, name: str) -> Value:
        reach = self.plan.reach_of(part.a)
        if reach.covers(grid):
            return self.part(part.a, grid, name)
        first = self._optional(part.a, grid, f"{name}.a")
        second = self._optional(part.b, grid, f"{name}.b")
        if self.reader.streaming:
            raise NotExportedError("a stream does not know where Failover turns to its second part")
        there = self.reader.clock.inside(grid, reach.low, reach.high)
        made = self.e.op("Where", there, self.e.name(first), self.e.name(second), name=name)
        return Value(made, first.dim)

    # Components

    def _component(self, number: int, component: Any, grid: Grid) -> Value:
        node = self.topology.nodes[number]
        kind, name = component.type, node.name
        if node.reads is NOTHING:
            return constant(self.e, row_of_source(component), name)
        if kind in AFFINE or kind == "TdnnComponent":
            return self._affine(number, component, grid)
        if kind in _WINDOWS:
            border = self.plan.input_of(number, grid)
            assert border is not None
            return _WINDOWS[kind](self, number, component, grid, border)
        parts = self.parts(number - 1, grid)
        floor = self.folding.floor_of(number)
        if floor is not None:
            read = self.e.join(parts, name)
            made = self.e.op(
                "Max", self.e.name(read), self.e.vector(floor, f"{name}.floor"), name=name
            )
            return Value(made, read.dim, read.still)
        value = self.folding.after(number, row_by_row(self.e, component, parts, name))
        if self.folding.puts_off(number):
            return self.e.unshifted(value)
        readers = [each for each in self.topology.readers_of[number] if each in self.plan.grids]
        return self.e.plain(value) if len(readers) > 1 else value  # put off it would cost digits

    def _affine(self, number: int, component: Any, grid: Grid) -> Value:
        """Parts at several offsets of one node, and several parts, are one convolution."""
        weights, bias = affine_of(component)
        offsets = list(getattr(component, "time_offsets", [0]))
        taps = Taps(len(weights), bias, self.topology.nodes[number].name)
        inside = self.plan.grids[number - 1]
        width, begin = weights.shape[1] // len(offsets), 0
        for place, part in enumerate(self.topology.nodes[number - 1].expression().parts):
            size = part.dim(self.topology.dims)
            shares = [
                weights[:, tap * width + begin : tap * width + begin + size]
                for tap in range(len(offsets))
            ]
            begin += size
            source, read = self._source(number, place, part, inside)
            for offset, share in zip(offsets, shares, strict=True):
                assert read.offset is not None
                scaled = share if read.scale == 1 else share * np.float64(read.scale)
                taps.add(source, offset + read.offset, scaled)
        taps.scale, taps.shift = self.folding.scale_of(number), self.folding.shift_of(number)
        taps.older = self._older(number) if self.reader.streaming else 0
        self._older_rows[number] = taps.older
        return write_taps(self.e, self.reader, taps, grid)

    def _older(self, number: int) -> int:
        """Rows of older chunks that an affine component computes again.

        Its only reader is affine, too, so that the rows are few and narrow; then what it reads has
        one cache instead of two.
        """
        known, chain, last = self._again, [], number
        while last not in known:
            known[last] = 0
            reader = self._affine_reader(last)
            if reader is None:
                break
            chain.append((last, reader))
            last = reader
        for node, reader in reversed(chain):
            have, wanted = self.plan.grids[node], self.plan.grids[reader]
            found = self.reader.kept(have, wanted, known[reader])
            known[node] = found if 0 < found <= _MOST_AGAIN else 0
        return known[number]

    def _affine_reader(self, number: int) -> int | None:
        """The only reader of an affine component, where it is one that may compute rows again."""
        reader = self.folding.only_reader(number)
        if reader is None or self.topology.nodes[reader].component.type not in _AGAIN:
            return None
        parts = self.topology.nodes[number - 1].expression().parts
        return reader if all(isinstance(part, SimpleSumDescriptor) for part in parts) else None

    def _source(
        self, number: int, place: int, part: SumDescriptor, grid: Grid
    ) -> tuple[Rows, Read]:
        """Rows that an affine component reads, and where."""
        if isinstance(part, SimpleSumDescriptor):
            reads = [found for read in self.plan.reads(part.src) if (found := read.on(grid))]
            if len(reads) == 1 and reads[0].offset is not None:
                return self.rows[reads[0].node], reads[0]
        name = f"{self.topology.nodes[number].name}.input.{place}"
        return Rows(self.part(part, grid, name), grid, name), Read(-1, 1.0)


_WINDOWS: dict[str, Any] = {
    "TimeHeightConvolutionComponent": write_convolution,
    "RestrictedAttentionComponent": write_attention,
    EXTRACTION: write_extraction,
    POOLING: write_pooling,
}


def row_of_source(component: Any) -> np.ndarray:
    """The row that a component without an input gives for all times."""
    if component.type == "ConstantComponent":
        return component.output
    sure = component.continuous or component.dropout_proportion == 0
    value = 1.0 if sure else 1.0 - component.dropout_proportion
    return np.full(component.output_dim, value)


def why_not_source(component: Any) -> str:
    """Why a component without an input has no constant row; empty where it has."""
    if component.type == "ConstantComponent":
        return ""
    if component.type == "DropoutMaskComponent":
        still = component.test_mode or component.dropout_proportion == 0
        return "" if still else "DropoutMaskComponent is in training mode: its result is random"
    return f"{component.type} has no form in ONNX here"


def exported_kinds() -> tuple[str, ...]:
    """The component types that read rows at several times."""
    return (*_WINDOWS, "TdnnComponent")
