"""Recurrent layers as `recurrent` operators, and which of these are LSTM or GRU to ONNX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ....framework.ir.desc import RECURRENT
from ....framework.ir.op_list import Link, OpList, OpNode
from ....framework.loops.recurrent.description import StepNet
from ....nnet3.graph.loops import Loop, Term
from ...nnet3_rows.loops import GeneralLoop
from ...nnet3_rows.net import F32, F64, RowsNet, Value
from ...nnet3_rows.plan import Plan
from ...nnet3_rows.reading import Cache, Rows
from ...nnet3_rows.reads import NotExportedError
from ...nnet3_rows.recurrence import LayerRows, step_decl
from ...nnet3_rows.steps import LoopStep, Product
from ..cells import Cell, find_cell
from ..export.emission import Values
from ..export.net import folded
from ..files.graph import Graph
from .folded import FoldedWalk

_MOST_WIDE: Final = 2**18
"""Weights up to which a step computes in float64: they stay in a processor's cache, so that this
costs little. What a step rounds, all later ones see: in float32 errors may grow tenfold."""
_FULL: Final = 2
"""A cell may have that many times more weights than the layer, which a bottleneck makes few."""
_FLOATS_ALONE: Final = ("ConvolutionComponent", "CompositeComponent")
"""Runtimes convolve in float32."""


class OnnxWalk(FoldedWalk):
    """Writes a network for ONNX. Arguments as `RowsWalk`.

    Attributes:
        cells: the `recurrent` operators that ONNX has an operator for, by what they make: it, and
            the variable that it reads.
    """

    def __init__(self, plan: Plan, net: RowsNet, source: str, streaming: bool = False) -> None:
        super().__init__(plan, net, source, streaming)
        self.cells: dict[str, tuple[Cell, str]] = {}

    def loop(self, loop: Loop) -> None:
        """Set the rows of the members that others read."""
        streaming = self.reader.streaming
        name = self.topology.nodes[loop.members[0]].name
        if streaming and loop.offset > 0:
            raise NotExportedError("a layer that runs backwards cannot be streamed")
        wanted = self.plan.read_elsewhere(loop)
        if not isinstance(loop, GeneralLoop):
            if self._write_cell(loop, wanted):
                return
        elif streaming:
            raise NotExportedError(
                f"the loop of '{name}' reads itself at several offsets, or its first steps are not"
                " like others: no streams"
            )
        self._write_scan(loop, wanted)

    def _write_cell(self, loop: Loop, wanted: Sequence[int]) -> bool:
        """Write a layer as LSTM or GRU and set the rows of `wanted`; False where it is neither."""
        layer = LayerRows(self, loop)
        net = self.net
        step = LoopStep(self.topology, loop, layer.title, F32, whole=True)
        ops, arrays = _constants_folded(step)
        cell = _cell(step, ops, arrays)
        streaming = self.reader.streaming
        if cell is None or (cell.type == "LSTM" and streaming and layer.chains > 1):
            return False  # a stream keeps the cells of the last step alone
        copies = self._copies(step, cell.output, wanted)
        if copies is None:
            return False
        name = next(
            step.name(number)
            for number, value in step.members.items()
            if cell.output in step.pieces(value)
        )
        values = [self._outside(layer, step.taken[each]) for each in cell.inputs]
        (x,) = layer.sequences([net.join(values, name)])
        pieces = [x]
        if len(values) > 1:
            sizes = [value.dim for value in values]
            pieces = net.several("split", x, names=cell.inputs, axis=1, sections=sizes)
        given = dict(zip(cell.inputs, pieces, strict=True))
        of_state = {value: step.name(term.node) for term, value in step.states.items()}
        kept = [of_state[each] for each in cell.memories]
        cells = cell.r.shape[-1]
        boots = {
            each: self._first(layer, node, cells)
            for each, node in zip(cell.memories, kept, strict=True)
            if streaming
        }
        finals = cell.memories[1:] if streaming else []
        outputs = {cell.output: f"{name}.steps"}
        sequences, last = layer.recurrent(step, ops, arrays, given, outputs, boots, finals)
        self.cells[sequences[0]] = cell, x
        (rows,) = layer.rows(sequences, [name])
        if streaming:
            self._keep(layer, kept[0], rows)
            for state, node in zip(finals, kept[1:], strict=True):
                cache = self._state(node)
                new = net("unsqueeze", last[state], axes=[2], name=f"new_{cache}")
                self.reader.new_caches[cache] = new
        for number in copies:
            self.rows[number] = Rows(rows, layer.grid, self.topology.nodes[number].name)
        return True

    def _copies(self, step: LoopStep, output: str, wanted: Iterable[int]) -> list[int] | None:
        """The nodes that are the cell's output, for members that are read elsewhere.

        Where others read columns of a member alone, these column ranges stand for it. None:
        something else is read, too.
        """
        copies = list[int]()
        for number in wanted:
            value = step.members[number]
            if value == output:
                copies.append(number)
                continue
            for reader in self.topology.readers_of[number]:
                if reader in step.loop.members or reader not in self.plan.grids:
                    continue
                node = self.topology.nodes[reader]
                if node.kind != "dim-range":
                    return None
                if step.piece(value, node.dim_offset, node.dim) != output:
                    return None
                copies.append(reader)
        return copies

    def _write_scan(self, loop: Loop, wanted: Iterable[int]) -> None:
        layer = LayerRows(self, loop)
        net = self.net
        numbers = sorted({term.node for term in loop.states} | set(wanted))
        wide = self._is_wide(loop)
        step = LoopStep(self.topology, loop, layer.title, F64 if wide else F32)
        ops, arrays = _constants_folded(step)
        outputs = {step.members[number]: f"{step.name(number)}.steps" for number in numbers}
        values = [self._outside(layer, read) for read in step.taken.values()]
        dtype = "float64" if wide else "float32"
        taken = layer.sequences([layer.moving(value) for value in values], dtype)
        boots: dict[str, str] = {}
        if self.reader.streaming:
            boots = {
                state: self._first(layer, step.name(term.node), step.ops.inputs[state])
                for term, state in step.states.items()
            }
        if wide:
            boots = {state: net("cast", each, dtype=dtype) for state, each in boots.items()}
        given = dict(zip(step.taken, taken, strict=True))
        sequences, _ = layer.recurrent(step, ops, arrays, given, outputs, boots)
        if wide:
            sequences = [net("cast", each, dtype="float32") for each in sequences]
        rows = layer.rows(sequences, list(map(step.name, numbers)))
        of_output = dict(zip(outputs, rows, strict=True))
        for number in numbers:
            value = of_output[step.members[number]]
            self.set(number, value)
            if self.reader.streaming and any(term.node == number for term in loop.states):
                self._keep(layer, step.name(number), value)

    def _is_wide(self, loop: Loop) -> bool:
        """Whether a step computes in float64."""
        nodes = [self.topology.nodes[number] for number in loop.members]
        components = [node.component for node in nodes if node.kind == "component"]
        if any(component.type in _FLOATS_ALONE for component in components):
            return False
        return sum(component.num_parameters for component in components) <= _MOST_WIDE

    def _outside(self, layer: LayerRows, read: Term | Product) -> Value:
        """What a step takes, for all times."""
        if not isinstance(read, Product):
            return layer.moving(layer.outside(read)).times(read.scale)
        total = None
        bias = read.bias
        for term, weights in read.reads:
            value = layer.moving(layer.outside(term)).times(term.scale)
            part = self.matrix(value, weights, bias, f"{read.name}.outside")
            total = part if total is None else self.net.add(total, part, read.name)
            bias = None
        assert total is not None
        return total

    # What a stream keeps

    def _state(self, name: str) -> str:
        """What the cache of a node's state is called."""
        return self.net.title(f"cache_{name}_state")

    def _first(self, layer: LayerRows, name: str, dim: int) -> str:
        """What a step reads of a node where there is nothing yet: what a stream has kept."""
        title = self._state(name)
        cache = self.reader.cache(Cache(title, dim, layer.chains, layer.chains, "zeros"))
        rows = self.net("transpose", cache, perm=[2, 0, 1], name=f"{title}.rows")
        return self.net("reshape", rows, shape=[-1, dim], name=f"{title}.states")

    def _keep(self, layer: LayerRows, name: str, rows: Value) -> None:
        """Keep the last rows of a node for a stream's next chunk."""
        cache = self.reader.caches[self._state(name)]
        self.reader.keep(cache, self.net.name(rows), f"{name}.with_older")


def _constants_folded(step: LoopStep) -> tuple[list[OpNode], dict[str, np.ndarray]]:
    """The operators of a step that read more than constants, and all constants."""
    values = Values(Graph("step"), dict(step.specs), arrays=dict(step.ops.arrays))
    return [op.node for op in folded(values, step.operators)], values.arrays


def _cell(step: LoopStep, ops: list[OpNode], arrays: dict[str, np.ndarray]) -> Cell | None:
    """What a step is to ONNX; None where it is neither LSTM nor GRU."""
    decl = step_decl(step, ops, arrays)
    decl.in_links = [Link(name, name) for name in step.taken]
    net = StepNet(OpList(step.ops.title, RECURRENT, steps=[decl]))
    cell = find_cell(net, arrays, step.specs)
    # A plain RNN stays a Scan, whose steps compute in float64: its errors grow.
    if cell is None or cell.type == "RNN":
        return None
    read = [arrays[link.inner] for link in decl.static_links]
    weights = sum(array.size for array in read if array.ndim == 2)
    return cell if cell.w.size + cell.r.size <= _FULL * weights else None
