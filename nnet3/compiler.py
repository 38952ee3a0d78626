"""From steps to commands: matrices, where every row is read from, forward and backward commands.

Source: Kaldi's Compiler (nnet-compile.cc). Every step has a matrix for its values and, where
needed, one for its derivatives; a dim-range's are columns of those of its source. A part of a
descriptor is a sum of rows of earlier steps: its input locations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, cast

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
from .computation import Command, Computation, MatrixInfo, SubMatrix, inputs_first
from .compute.time_grid import precompute_indexes
from .graph import Graph
from .indexes import Columns
from .parts import Part, find_reverse, locate
from .request import ComputationRequest
from .steps import Steps
from .topology import FLAGS, Topology, TopologyNode

# From tuples: what SubMatrix(...) does in twice the time, and there are thousands of them.
_submatrix = cast(Callable[[tuple[int, ...]], SubMatrix], partial(tuple.__new__, SubMatrix))
_matrix = cast(Callable[[tuple[Any, ...]], MatrixInfo], partial(tuple.__new__, MatrixInfo))


class Compiler:
    """Compiles requests; `compile()` gives the Computation, not optimised nor explicit.

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
        self.computation = Computation(topology)
        self._commands: list[Command] = []
        self._add = self._commands.append

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
        self.parts = locate(self.steps)
        self._make_matrices(self._derivatives_needed())
        self._precompute()
        self._forward()
        self._add(Command("NoOperationMarker"))
        self._backward()
        computation.commands = self._with_memory(inputs_first(self._commands))
        return computation

    def _derivatives_needed(self) -> list[bool]:
        topology = self.topology
        updated = [
            bool(node.properties & FLAGS.UPDATABLE) and node.component.learning_rate != 0
            for node in topology.nodes
        ]
        needed: list[bool] = []
        for number, step in enumerate(self.steps.steps):
            request = self.requests[step.segment]
            node = topology.nodes[step.node]
            if not step.columns.size:
                wanted = False
            elif step.is_input:
                io = request.find(node.name, output=False)
                wanted = bool(io and io.has_deriv)
            elif node.kind == "component":
                wanted = needed[number - 1]
                wanted = wanted or (request.need_model_derivative and updated[step.node])
            elif node.kind == "dim-range":
                wanted = needed[step.source]
            else:
                wanted = any(part.any_source(needed) for part in self.parts[number])
                if node.is_output:
                    io = request.find(node.name, output=True)
                    wanted = wanted or bool(io and io.has_deriv)
            needed.append(wanted)
        return needed

    # Matrices

    def _make_matrices(self, needed: list[bool]) -> None:
        """The sub-matrices of every step and part; 0 where there is none."""
        nodes, submatrices = self.topology.nodes, self.computation.submatrices
        contiguous = [self._is_contiguous(node) for node in range(len(nodes))]
        self._values: list[int] = []
        self._derivs: list[int] = []
        self._whole = [0]  # for every matrix the last sub-matrix that is the whole of it
        for step, parts, has_deriv in zip(self.steps.steps, self.parts, needed, strict=True):
            node, columns, value, deriv = nodes[step.node], step.columns, 0, 0
            rows = columns.size
            if not rows:
                pass
            elif node.kind == "dim-range":
                value = self._new_range(self._values[step.source], node)
                if has_deriv:
                    deriv = self._new_range(self._derivs[step.source], node)
            else:
                described = contiguous[step.node], step.node, columns
                value = self._new_matrix(rows, node.dim, False, *described)
                if has_deriv:
                    deriv = self._new_matrix(rows, node.dim, True, *described)
            self._values.append(value)
            self._derivs.append(deriv)
            if len(parts) == 1:
                parts[0].value, parts[0].deriv = value, deriv
                continue
            offset = 0
            for part in parts:
                dim = part.facts.dim
                part.value = len(submatrices)
                submatrices.append(_submatrix((submatrices[value][0], 0, rows, offset, dim)))
                if deriv:
                    part.deriv = part.value + 1
                    submatrices.append(_submatrix((submatrices[deriv][0], 0, rows, offset, dim)))
                offset += dim

    def _new_matrix(
        self, rows: int, cols: int, is_deriv: bool, contiguous: bool, node: int, listed: Columns
    ) -> int:
        matrices, submatrices = self.computation.matrices, self.computation.submatrices
        self._whole.append(len(submatrices))
        submatrices.append(_submatrix((len(matrices), 0, rows, 0, cols)))
        matrices.append(_matrix((rows, cols, contiguous, is_deriv, node, listed)))
        return self._whole[-1]

    def _new_range(self, source: int, node: TopologyNode) -> int:
        submatrices = self.computation.submatrices
        submatrix = len(submatrices)
        matrix, _, rows, _, cols = submatrices[source]
        if node.dim == cols:
            self._whole[matrix] = submatrix
        submatrices.append(_submatrix((matrix, 0, rows, node.dim_offset, node.dim)))
        return submatrix

    def _is_contiguous(self, node: int) -> bool:
        info = self.topology.nodes[node]
        if info.kind == "component":
            return bool(info.properties & FLAGS.OUTPUT_CONTIGUOUS)
        if info.kind == "descriptor" and not info.is_output:
            after = self.topology.nodes[node + 1]
            return bool(after.properties & FLAGS.INPUT_CONTIGUOUS)
        return False

    def _precompute(self) -> None:
        """The numbers of the precomputed indexes of steps, and the indexes themselves."""
        self._precomputed: dict[int, int] = {}
        nodes, steps, computation = self.topology.nodes, self.steps.steps, self.computation
        wanted = [node.kind == "component" and not node.properties & FLAGS.SIMPLE for node in nodes]
        listed = [
            (number, (step.node, steps[number - 1].columns, step.columns))
            for number, step in enumerate(steps)
            if wanted[step.node] and not step.is_input
        ]
        found = precompute_indexes([(nodes[node].component, *rows) for _, (node, *rows) in listed])
        for (number, of), indexes in zip(listed, found, strict=True):
            if indexes is not None:
                self._precomputed[number] = len(computation.precomputed)
                computation.precomputed.append(indexes)
                computation.precomputed_from.append(of)

    def _with_memory(self, commands: list[Command]) -> list[Command]:
        """The commands with memory: taken behind the first inputs, given up before the outputs."""
        accepted, provided = {0}, {0}
        for number, step in enumerate(self.steps.steps):
            node, value = self.topology.nodes[step.node], self._values[number]
            deriv = self._derivs[number]
            if step.is_input:
                accepted.add(value)
                io = self.requests[step.segment].find(node.name, output=False)
                if io is not None and io.has_deriv:
                    provided.add(deriv)
            elif node.is_output:
                accepted.add(deriv)
                provided.add(value)
        begin, end = 0, len(commands)
        while commands[begin].type == "AcceptInput":
            begin += 1
        while commands[end - 1].type == "ProvideOutput":
            end -= 1
        return [
            *commands[:begin],
            Command("AllocMatrices", rows=self._without(accepted)),
            *commands[begin:end],
            Command("DeallocMatrices", rows=self._without(provided)),
            *commands[end:],
        ]

    def _without(self, submatrices: set[int]) -> np.ndarray:
        """What is the whole of a matrix, but for the matrices of these."""
        left_out = {self.computation.submatrices[number].matrix for number in submatrices}
        return np.array([s for matrix, s in enumerate(self._whole) if matrix not in left_out])

    # Forward

    def _forward(self) -> None:
        nodes, before = self.topology.nodes, 0
        for number, step in enumerate(self.steps.steps):
            if step.segment != before:
                before = step.segment
                self._add(Command("NoOperationMarker"))
            node, value = nodes[step.node], self._values[number]
            if step.is_input:
                self._add(Command("AcceptInput", value, node=step.node))
                if not self._is_input(number + 1):
                    self._add(Command("NoOperationPermanent"))
            elif node.kind == "component":
                self._propagate(number, step.node)
            elif node.kind == "descriptor":
                for part in self.parts[number]:
                    self._forward_part(part)
                if node.is_output:
                    self._add(Command("ProvideOutput", value, node=step.node))

    def _is_input(self, number: int) -> bool:
        return number < len(self.steps.steps) and self.steps.steps[number].is_input

    def _propagate(self, number: int, node: int) -> None:
        properties = self.topology.nodes[node].properties
        stores = self.requests[0].store_component_stats
        self._add(
            Command(
                "Propagate",
                self._values[number],
                self._values[number - 1],
                node=node,
                step=number,
                precomputed=self._precomputed.get(number, 0),
                store_stats=bool(stores and properties & FLAGS.STORES_STATS),
                use_memo=bool(self._derivs[number] and properties & FLAGS.USES_MEMO),
            )
        )

    def _forward_part(self, part: Part) -> None:
        if part.facts.constant:
            self._add(Command("SetConst", part.value, 0, part.facts.constant))
        for terms in part.terms:
            if terms.single >= 0:
                source = self._values[terms.single]
                kind = "MatrixAdd" if terms.whole else "AddRows"
                self._add(Command(kind, part.value, source, terms.alpha, terms.row))
                continue
            for subs, rows in split_locations(self._value_of_step[terms.step], terms.row):
                source = single_source(subs)
                if source == -2:
                    pairs = np.stack((subs, rows), axis=1).astype(np.int32)
                    self._add(Command("AddRowsMulti", part.value, 0, terms.alpha, pairs))
                elif self._is_identity(source, rows):
                    self._add(Command("MatrixAdd", part.value, source, terms.alpha))
                else:
                    self._add(Command("AddRows", part.value, source, terms.alpha, rows))

    @cached_property
    def _value_of_step(self) -> np.ndarray:
        """The sub-matrix of the values of every step; the last entry, -1, is for no step."""
        return np.array([*self._values, -1])

    @cached_property
    def _deriv_of_step(self) -> np.ndarray:
        """As `_value_of_step`, of the derivatives; -1 where there are none."""
        return np.array([*(deriv or -1 for deriv in self._derivs), -1])

    def _is_identity(self, source: int, rows: np.ndarray) -> bool:
        if self.computation.submatrices[source].rows != len(rows):
            return False
        if rows[0] or rows[-1] != len(rows) - 1:
            return False
        return len(rows) < 3 or bool((rows[1:] > rows[:-1]).all())

    # Backward

    def _backward(self) -> None:
        nodes, steps = self.topology.nodes, self.steps.steps
        parts = (part for parts in self.parts for part in parts if part.deriv)
        read = (terms for part in parts for terms in part.terms if terms.single >= 0)
        sizes = [step.columns.size for step in steps]
        find_reverse([terms for terms in read if self._derivs[terms.single]], sizes)
        for number in reversed(range(len(steps))):
            step, deriv = steps[number], self._derivs[number]
            if not deriv:
                continue
            node = nodes[step.node]
            if step.is_input:
                self._add(Command("ProvideOutput", deriv, node=step.node))
                if not self._is_input(number + 1):
                    self._add(Command("NoOperationPermanent"))
            elif node.kind == "component":
                self._backprop(number, step.node)
            elif node.kind == "descriptor":
                if node.is_output:
                    self._add(Command("AcceptInput", deriv, node=step.node))
                for part in self.parts[number]:
                    self._backward_part(part)

    def _backprop(self, number: int, node: int) -> None:
        properties = self.topology.nodes[node].properties
        values, derivs, request = self._values, self._derivs, self.requests[0]
        self._add(
            Command(
                "Backprop",
                node=node,
                step=number,
                precomputed=self._precomputed.get(number, 0),
                deriv=(
                    values[number - 1] if properties & FLAGS.BACKPROP_NEEDS_INPUT else 0,
                    values[number] if properties & FLAGS.BACKPROP_NEEDS_OUTPUT else 0,
                    derivs[number],
                    derivs[number - 1],
                ),
                store_stats=request.store_component_stats
                and bool(request.need_model_derivative or not properties & FLAGS.UPDATABLE),
                use_memo=bool(properties & FLAGS.USES_MEMO),
            )
        )

    def _backward_part(self, part: Part) -> None:
        deriv = part.deriv
        for terms in part.terms:
            if terms.single >= 0:
                source = self._derivs[terms.single]
                if not source:
                    continue
                if terms.whole:
                    self._add(Command("MatrixAdd", source, deriv, terms.alpha))
                elif terms.reverse is not None:
                    self._add(Command("AddRows", source, deriv, terms.alpha, terms.reverse))
                else:
                    for rows in ensure_contiguous(terms.row):
                        self._backward_rows(deriv, source, terms.alpha, rows)
                continue
            subs = self._deriv_of_step[terms.step]
            located = pack_left(subs, np.where(subs >= 0, terms.row, -1))
            for sub, rows in split_locations_backward(*located):
                source = single_source(sub)
                if source == -2:
                    pairs = np.stack((sub, rows), axis=1).astype(np.int32)
                    self._add(Command("AddToRowsMulti", deriv, 0, terms.alpha, pairs))
                else:
                    self._backward_rows(deriv, source, terms.alpha, rows)

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
