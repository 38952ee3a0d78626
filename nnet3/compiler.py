"""From steps to commands: matrices, where every row is read from, forward and backward commands.

Source: Kaldi's Compiler (nnet-compile.cc). Every step has a matrix for its values and, where
needed, one for its derivatives; a dim-range's are columns of those of its source. A part of a
descriptor is a sum of rows of earlier steps: its input locations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..framework.errors import OpscopeError, ShapeError
from .compile_locations import (
    contiguous_ranges,
    ensure_contiguous,
    pack_left,
    single_source,
    split_locations,
    split_locations_backward,
)
from .computation import Command, Computation, inputs_first
from .compute.time_grid import precompute_indexes
from .graph import Graph
from .parts import Part, locate
from .request import ComputationRequest
from .steps import Step, Steps
from .topology import FLAGS, Topology


@dataclass
class StepInfo:
    """A step with its sub-matrices; 0 where it has none."""

    step: Step
    value: int = 0
    deriv: int = 0
    parts: list[Part] = field(default_factory=list)
    precomputed: int = 0


class Compiler:
    """Compiles requests; `compile()` gives the Computation, not optimised.

    Several requests become segments of one computation: each reads what those before it computed.

    Raises:
        NotComputableError, ShapeError, FormatError: see `graph.Graph`.
        ShapeError: one of several requests wants derivatives, or they differ in what they store.
    """

    def __init__(self, topology: Topology, *requests: ComputationRequest):
        self.topology = topology
        self.requests = requests
        self._check()
        self.graph = Graph(topology, *requests)
        self.steps = Steps(self.graph)
        self.infos = [StepInfo(step) for step in self.steps.steps]
        self.computation = Computation(topology)
        self._add = self.computation.commands.append

    def _check(self) -> None:
        for request in self.requests:
            if request.needs_derivatives() and len(self.requests) > 1:
                raise ShapeError("derivatives are computed for one request alone, not in segments")
            if request.store_component_stats != self.requests[0].store_component_stats:
                raise ShapeError("either all or none of the requests store statistics")

    def compile(self) -> Computation:
        """Runs all stages."""
        computation = self.computation
        computation.need_model_derivative = self.requests[0].need_model_derivative
        for number, info in enumerate(self.infos):
            if self.topology.nodes[info.step.node].kind == "descriptor" and len(info.step):
                info.parts = locate(self.steps, number)
        needed = self._derivatives_needed()
        for number, info in enumerate(self.infos):
            self._make_matrices(info, needed[number])
        self._precompute()
        whole = computation.whole_submatrices()
        self._allocate(whole)
        self._forward()
        self._add(Command("NoOperationMarker"))
        self._backward(needed)
        self._deallocate(whole)
        computation.commands = inputs_first(computation.commands)
        self._describe()
        return computation

    @cached_property
    def _values(self) -> np.ndarray:
        """The sub-matrix of the values of every step; the last entry, -1, is for no step."""
        return np.array([info.value for info in self.infos] + [-1])

    @cached_property
    def _derivs(self) -> np.ndarray:
        """As `_values`, of the derivatives; -1 where there are none."""
        return np.array([info.deriv or -1 for info in self.infos] + [-1])

    def _derivatives_needed(self) -> list[bool]:
        topology = self.topology
        needed: list[bool] = []
        for number, info in enumerate(self.infos):
            request = self.requests[info.step.segment]
            node = topology.nodes[info.step.node]
            if not len(info.step):
                needed.append(False)
                continue
            if info.step.is_input:
                io = request.find(node.name, output=False)
                wanted = bool(io and io.has_deriv)
            elif node.kind == "component":
                wanted = needed[number - 1]
                if request.need_model_derivative and node.component.is_updatable:
                    wanted = wanted or node.component.learning_rate != 0
            elif node.kind == "dim-range":
                wanted = needed[info.step.source]
            else:
                wanted = any(needed[s] for part in info.parts for s in part.sources())
                if node.is_output:
                    io = request.find(node.name, output=True)
                    wanted = wanted or bool(io and io.has_deriv)
            needed.append(wanted)
        return needed

    # Matrices

    def _make_matrices(self, info: StepInfo, needed: bool) -> None:
        if not len(info.step):
            return
        computation, node = self.computation, self.topology.nodes[info.step.node]
        if node.kind == "dim-range":
            source = self.infos[info.step.source]
            info.value = computation.new_columns(source.value, node.dim_offset, node.dim)
            if needed:
                info.deriv = computation.new_columns(source.deriv, node.dim_offset, node.dim)
            return
        contiguous = self._is_contiguous(info.step.node)
        info.value = computation.new_matrix(len(info.step), node.dim, contiguous)
        if needed:
            info.deriv = computation.new_matrix(len(info.step), node.dim, contiguous)
        if len(info.parts) == 1:
            info.parts[0].value, info.parts[0].deriv = info.value, info.deriv
            return
        offset = 0
        for part in info.parts:
            dim = part.facts.dim
            part.value = computation.new_columns(info.value, offset, dim)
            if needed:
                part.deriv = computation.new_columns(info.deriv, offset, dim)
            offset += dim

    def _is_contiguous(self, node: int) -> bool:
        info = self.topology.nodes[node]
        if info.kind == "component":
            return bool(info.properties & FLAGS.OUTPUT_CONTIGUOUS)
        if info.kind == "descriptor" and not info.is_output:
            after = self.topology.nodes[node + 1]
            return bool(after.properties & FLAGS.INPUT_CONTIGUOUS)
        return False

    def _precompute(self) -> None:
        for number, info in enumerate(self.infos):
            node = self.topology.nodes[info.step.node]
            if node.kind != "component" or info.step.is_input:
                continue
            if node.properties & FLAGS.SIMPLE:
                continue
            inputs = self.infos[number - 1].step
            indexes = precompute_indexes(node.component, inputs.indexes, info.step.indexes)
            if indexes is not None:
                info.precomputed = len(self.computation.precomputed)
                self.computation.step_indexes[number] = inputs.indexes, info.step.indexes
                self.computation.precomputed.append(indexes)

    def _allocate(self, whole: list[int]) -> None:
        skip = set()
        submatrices = self.computation.submatrices
        for info in self.infos:
            if info.step.is_input:
                skip.add(submatrices[info.value].matrix)
            elif self.topology.nodes[info.step.node].is_output and info.deriv:
                skip.add(submatrices[info.deriv].matrix)
        for matrix in range(1, len(self.computation.matrices)):
            if matrix not in skip:
                self._add(Command("AllocMatrix", whole[matrix]))
                self._add(Command("SetConst", whole[matrix], alpha=0.0))

    def _deallocate(self, whole: list[int]) -> None:
        keep = set()
        submatrices = self.computation.submatrices
        for info in self.infos:
            node = self.topology.nodes[info.step.node]
            if node.is_output:
                keep.add(submatrices[info.value].matrix)
            elif info.step.is_input and info.deriv:
                io = self.requests[info.step.segment].find(node.name, output=False)
                if io is not None and io.has_deriv:
                    keep.add(submatrices[info.deriv].matrix)
        for matrix in range(1, len(self.computation.matrices)):
            if matrix not in keep:
                self._add(Command("DeallocMatrix", whole[matrix]))

    # Forward

    def _forward(self) -> None:
        for number, info in enumerate(self.infos):
            if number and info.step.segment != self.infos[number - 1].step.segment:
                self._add(Command("NoOperationMarker"))
            node = self.topology.nodes[info.step.node]
            if info.step.is_input:
                self._add(Command("AcceptInput", info.value, node=info.step.node))
                if not self._is_input(number + 1):
                    self._add(Command("NoOperationPermanent"))
            elif node.kind == "component":
                self._propagate(number, info)
            elif node.kind == "descriptor":
                for part in info.parts:
                    self._forward_part(part)
                if node.is_output:
                    self._add(Command("ProvideOutput", info.value, node=info.step.node))

    def _is_input(self, number: int) -> bool:
        return number < len(self.infos) and self.infos[number].step.is_input

    def _propagate(self, number: int, info: StepInfo) -> None:
        properties = self.topology.nodes[info.step.node].properties
        self._add(
            Command(
                "Propagate",
                target=info.value,
                source=self.infos[number - 1].value,
                node=info.step.node,
                step=number,
                precomputed=info.precomputed,
                store_stats=bool(
                    self.requests[0].store_component_stats and properties & FLAGS.STORES_STATS
                ),
                use_memo=bool(info.deriv and properties & FLAGS.USES_MEMO),
            )
        )

    def _forward_part(self, part: Part) -> None:
        if part.facts.constant:
            self._add(Command("SetConst", part.value, alpha=part.facts.constant))
        values = self._values
        for terms in part.terms:
            if terms.whole:
                source = self.infos[terms.single].value
                self._add(Command("MatrixAdd", part.value, source, terms.alpha))
                continue
            if terms.single >= 0:
                self._add_rows(part.value, self.infos[terms.single].value, terms.alpha, terms.row)
                continue
            for subs, rows in split_locations(values[terms.step], terms.row):
                source = single_source(subs)
                if source == -2:
                    pairs = np.stack((subs, rows), axis=1).astype(np.int32)
                    self._add(Command("AddRowsMulti", part.value, alpha=terms.alpha, rows=pairs))
                else:
                    self._add_rows(part.value, source, terms.alpha, rows)

    def _add_rows(self, target: int, source: int, alpha: float, rows: np.ndarray) -> None:
        if self._is_identity(source, rows):
            self._add(Command("MatrixAdd", target, source, alpha))
        else:
            self._add(Command("AddRows", target, source, alpha, rows))

    def _is_identity(self, source: int, rows: np.ndarray) -> bool:
        if self.computation.submatrices[source].rows != len(rows):
            return False
        if rows[0] or rows[-1] != len(rows) - 1:
            return False
        return len(rows) < 3 or bool((rows[1:] > rows[:-1]).all())

    # Backward

    def _backward(self, needed: list[bool]) -> None:
        for number in reversed(range(len(self.infos))):
            info = self.infos[number]
            if not needed[number]:
                continue
            node = self.topology.nodes[info.step.node]
            if info.step.is_input:
                if info.deriv:
                    self._add(Command("ProvideOutput", info.deriv, node=info.step.node))
                if not self._is_input(number + 1):
                    self._add(Command("NoOperationPermanent"))
            elif node.kind == "component":
                self._backprop(number, info)
            elif node.kind == "descriptor":
                if node.is_output and info.deriv:
                    self._add(Command("AcceptInput", info.deriv, node=info.step.node))
                for part in info.parts:
                    self._backward_part(part)

    def _backprop(self, number: int, info: StepInfo) -> None:
        properties = self.topology.nodes[info.step.node].properties
        before, request = self.infos[number - 1], self.requests[0]
        self._add(
            Command(
                "Backprop",
                node=info.step.node,
                step=number,
                precomputed=info.precomputed,
                deriv=(
                    before.value if properties & FLAGS.BACKPROP_NEEDS_INPUT else 0,
                    info.value if properties & FLAGS.BACKPROP_NEEDS_OUTPUT else 0,
                    info.deriv,
                    before.deriv,
                ),
                store_stats=request.store_component_stats
                and bool(request.need_model_derivative or not properties & FLAGS.UPDATABLE),
                use_memo=bool(properties & FLAGS.USES_MEMO),
            )
        )

    def _backward_part(self, part: Part) -> None:
        derivs = self._derivs
        for terms in part.terms:
            if terms.single >= 0:
                source = self.infos[terms.single].deriv
                if source and (terms.whole or self._is_identity(source, terms.row)):
                    self._add(Command("MatrixAdd", source, part.deriv, terms.alpha))
                elif source:
                    for rows in ensure_contiguous(terms.row):
                        self._backward_rows(part.deriv, source, terms.alpha, rows)
                continue
            subs = derivs[terms.step]
            located = pack_left(subs, np.where(subs >= 0, terms.row, -1))
            for sub, rows in split_locations_backward(*located):
                source = single_source(sub)
                if source == -2:
                    pairs = np.stack((sub, rows), axis=1).astype(np.int32)
                    command = Command("AddToRowsMulti", part.deriv, alpha=terms.alpha, rows=pairs)
                    self._add(command)
                else:
                    self._backward_rows(part.deriv, source, terms.alpha, rows)

    def _backward_rows(self, deriv: int, source: int, alpha: float, rows: np.ndarray) -> None:
        """Adds row i of `deriv` to row `rows[i]` of `source`."""
        if self._is_identity(source, rows):
            self._add(Command("MatrixAdd", source, deriv, alpha))
            return
        count = self.computation.submatrices[source].rows
        if count >= len(rows):
            real = np.flatnonzero(rows >= 0)
            reverse = np.full(count, -1, np.int32)
            reverse[rows[real]] = real
            if (reverse >= 0).sum() == len(real):
                self._add(Command("AddRows", source, deriv, alpha, reverse))
                return
        ranges = contiguous_ranges(rows)
        if ranges is None:
            raise OpscopeError(
                "the backward part of a descriptor was split into lists with repeats"
            )
        padding = np.full((count - len(ranges), 2), -1, np.int32)
        ranges = np.concatenate((ranges, padding))
        self._add(Command("AddRowRanges", source, deriv, alpha, ranges))

    def _describe(self) -> None:
        computation = self.computation
        for info in self.infos:
            if not info.value or not computation.is_whole(info.value):
                continue
            matrix = computation.matrices[computation.submatrices[info.value].matrix]
            if matrix.indexes is not None:
                continue
            matrix.node, matrix.indexes = info.step.node, info.step.indexes
            if info.deriv and computation.is_whole(info.deriv):
                deriv = computation.matrices[computation.submatrices[info.deriv].matrix]
                deriv.node, deriv.indexes = info.step.node, info.step.indexes
                deriv.is_deriv = True
