"""From steps to commands: matrices, where every row is read from, forward and backward commands.

Source: Kaldi's Compiler (nnet-compile.cc). Every step has a matrix for its values and, where
needed, one for its derivatives; a dim-range's are columns of its source's matrices. Every row
of a part of a descriptor is a sum of rows of earlier steps, its input locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError, check_kind
from ...framework.base.python.cached import cached_property
from ..components.base.precompute import precompute_indexes
from ..graph.graph import Graph
from ..graph.request import ComputationRequest
from ..graph.topology import Topology
from ..graph.topology_node import FLAGS, TopologyNode
from .command import Command
from .computation import Computation, matrices_of, submatrices_of
from .input_locations import InputLocations, find_reverse, locate, refuse_reading_ahead
from .locations import (
    contiguous_ranges,
    ensure_contiguous,
    pack_left,
    single_source,
    split_locations,
    split_locations_backward,
)
from .steps import NnetStep, NnetSteps


class Compiler:
    """Compiles requests; `compile()` gives the Computation, not optimized nor explicit.

    Several requests become segments of one computation: each reads what those before it computed.

    Raises:
        NotComputableError, ShapeError, FormatError: see `graph.Graph`.
        ShapeError: one of several requests wants derivatives, or they differ in what they store.
        OpscopeError: one of several requests reads what only a later one computes.
    """

    def __init__(self, topology: Topology, *requests: ComputationRequest):
        self.topology = topology
        self.requests: Sequence[ComputationRequest] = requests
        self._check()
        self.graph = Graph(topology, *requests)
        self.steps = NnetSteps(self.graph)
        self.computation = Computation(topology)
        self._values: list[int] = []  # the sub-matrix of every step's values
        self._derivs: list[int] = []
        self._whole = [0]  # for every matrix the last sub-matrix that is the whole of it
        self._accepted: set[int] = set()
        self._provided: set[int] = set()
        self._commands: list[Command] = []
        # Of the part that is being compiled: its inputs, the rest, its outputs.
        self._first: list[Command] = []
        self._rest: list[Command] = []
        self._last: list[Command] = []
        self._add = self._rest.append

    def _check(self) -> None:
        for request in self.requests:
            check_kind(request, ComputationRequest, "the request")
            if request.needs_derivatives() and len(self.requests) > 1:
                raise ShapeError("derivatives are computed for one request alone, not in segments")
            if request.store_component_stats != self.requests[0].store_component_stats:
                raise ShapeError("either all or none of the requests store statistics")

    def compile(self) -> Computation:
        """Run all stages."""
        self.computation.need_model_derivative = self.requests[0].need_model_derivative
        self.input_locations = locate(self.steps)
        if len(self.requests) > 1:
            refuse_reading_ahead(self.steps, self.input_locations)
        self._make_matrices()
        self._precompute()
        self._forward()
        self._end_part(Command.no_operation_marker())
        self._backward()
        self._take_memory()
        return self.computation

    @property
    def deriv_needed(self) -> list[bool]:
        """For every step whether its derivatives are computed; known after `compile`."""
        return [deriv > 0 for deriv in self._derivs]

    # Matrices

    def _make_matrices(self) -> None:
        """The sub-matrices of every step and part; 0 where there is none."""
        nodes = self.topology.nodes
        computation = self.computation
        contiguous = [self._is_contiguous(node) for node in range(len(nodes))]
        updated = [self._is_updated(node) for node in nodes]
        values, derivs = self._values, self._derivs
        submatrices: list[tuple[int, ...]] = list(computation.submatrices)
        new_submatrix = submatrices.append
        matrices: list[tuple[Any, ...]] = list(computation.matrices)
        whole, located = self._whole, self.input_locations
        for step, parts in zip(self.steps.steps, located, strict=True):
            at, columns, is_input, source, _ = step
            node = nodes[at]
            rows = columns.size
            value = 0
            deriv = 0
            kind, dim = node.kind, node.dim
            if not rows:
                pass
            elif kind == "dim-range":
                first = node.dim_offset
                if values[source]:
                    of = submatrices[values[source]]
                    value = len(submatrices)
                    new_submatrix((of[0], 0, of[2], first, dim))
                    if of[4] == dim:
                        whole[of[0]] = value
                if derivs[source]:
                    of = submatrices[derivs[source]]
                    deriv = len(submatrices)
                    new_submatrix((of[0], 0, of[2], first, dim))
                    if of[4] == dim:
                        whole[of[0]] = deriv
            else:
                value = len(submatrices)
                whole.append(value)
                new_submatrix((len(matrices), 0, rows, 0, dim))
                matrices.append((rows, dim, contiguous[at], False, at, columns))
                if kind == "component" and not is_input:
                    has_deriv = derivs[-1] or updated[at]
                else:
                    has_deriv = self._has_deriv(step, parts)
                if has_deriv:
                    deriv = value + 1
                    whole.append(deriv)
                    new_submatrix((len(matrices), 0, rows, 0, dim))
                    matrices.append((rows, dim, contiguous[at], True, at, columns))
            values.append(value)
            derivs.append(deriv)
            if len(parts) == 1:
                parts[0].value = value
                parts[0].deriv = deriv
            elif parts:
                offset = 0
                of_value = submatrices[value][0]
                of_deriv = submatrices[deriv][0]
                for part in parts:
                    dim = part.facts.dim
                    part.value = len(submatrices)
                    new_submatrix((of_value, 0, rows, offset, dim))
                    if deriv:
                        part.deriv = part.value + 1
                        new_submatrix((of_deriv, 0, rows, offset, dim))
                    offset += dim
        computation.submatrices = submatrices_of(submatrices)
        computation.matrices = matrices_of(matrices)

    def _is_updated(self, node: TopologyNode) -> bool:
        wanted = self.requests[0].need_model_derivative and node.properties & FLAGS.UPDATABLE
        return bool(wanted) and node.component.learning_rate != 0

    def _has_deriv(self, step: NnetStep, parts: list[InputLocations]) -> bool:
        """Whether a step that is no component's has derivatives."""
        derivs = self._derivs
        for part in parts:
            for summand in part.summands:
                if summand.single >= 0:
                    if derivs[summand.single]:
                        return True
                elif summand.any_source(derivs):
                    return True
        node = self.topology.nodes[step.node]
        if not step.is_input and not node.is_output:
            return False
        io = self.requests[step.segment].find(node.name, output=not step.is_input)
        return io is not None and io.has_deriv

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
        nodes = self.topology.nodes
        steps = self.steps.steps
        computation = self.computation
        wanted = [node.kind == "component" and not node.properties & FLAGS.SIMPLE for node in nodes]
        listed = [
            (number, (step.node, steps[number - 1].columns, step.columns))
            for number, step in enumerate(steps)
            if wanted[step.node] and not step.is_input
        ]
        if not listed:
            return
        precomputed = precompute_indexes(
            [(nodes[node].component, inputs, outputs) for _, (node, inputs, outputs) in listed]
        )
        for (number, of), indexes in zip(listed, precomputed, strict=True):
            if indexes is not None:
                self._precomputed[number] = len(computation.precomputed)
                computation.precomputed.append(indexes)
                computation.precomputed_from.append(of)

    # Order

    def _accept(self, submatrix: int, node: int) -> None:
        self._accepted.add(submatrix)
        self._first.append(Command.accept_input(submatrix, node))

    def _provide(self, submatrix: int, node: int) -> None:
        self._provided.add(submatrix)
        self._last.append(Command.provide_output(submatrix, node))

    def _end_part(self, *marker: Command) -> None:
        """End a segment or the backward part: inputs come first, outputs last."""
        self._commands += *self._first, *self._rest, *self._last, *marker
        for commands in (self._first, self._rest, self._last):
            commands.clear()

    def _take_memory(self) -> None:
        """End the last part; take memory after the inputs and give it back before the outputs."""
        self._last.insert(0, Command.dealloc_matrices(self._without(self._provided)))
        self._end_part()
        commands = self._commands
        begin = 0
        while commands[begin].type == "AcceptInput":
            begin += 1
        commands.insert(begin, Command.alloc_matrices(self._without(self._accepted)))
        self.computation.commands = commands

    def _without(self, submatrices: set[int]) -> np.ndarray:
        """The sub-matrices that are whole matrices, but for the matrices of `submatrices`."""
        left_out = {0, *[self.computation.submatrices[number].matrix for number in submatrices]}
        return np.array([s for matrix, s in enumerate(self._whole) if matrix not in left_out])

    # Forward

    def _forward(self) -> None:
        nodes = self.topology.nodes
        before = 0
        for number, step in enumerate(self.steps.steps):
            if step.segment != before:
                before = step.segment
                self._end_part(Command.no_operation_marker())
            node = nodes[step.node]
            value = self._values[number]
            if step.is_input:
                self._accept(value, step.node)
                if not self._is_input(number + 1):
                    self._add(Command.no_operation_permanent())
            elif node.kind == "component":
                self._propagate(number, step.node)
            elif node.kind == "descriptor":
                for part in self.input_locations[number]:
                    self._forward_part(part)
                if node.is_output:
                    self._provide(value, step.node)

    def _is_input(self, number: int) -> bool:
        return number < len(self.steps.steps) and self.steps.steps[number].is_input

    def _propagate(self, number: int, node: int) -> None:
        properties = self.topology.nodes[node].properties
        values = self._values
        stores = self.requests[0].store_component_stats and properties & FLAGS.STORES_STATS
        use_memo = bool(self._derivs[number] and properties & FLAGS.USES_MEMO)
        precomputed = self._precomputed.get(number, 0)
        value_in = values[number - 1]
        value_out = values[number]
        self._add(
            Command.propagate(
                node, number, value_in, value_out, precomputed, bool(stores), use_memo
            )
        )

    def _forward_part(self, part: InputLocations) -> None:
        add, value = self._add, part.value
        if part.facts.constant:
            add(Command.set_const(value, part.facts.constant))
        for summand in part.summands:
            if summand.single >= 0:
                source = self._values[summand.single]
                alpha = summand.alpha
                if summand.whole:
                    add(Command("MatrixAdd", value, source, alpha))
                else:
                    add(Command("AddRows", value, source, alpha, summand.row))
                continue
            for subs, rows in split_locations(self._value_of_step[summand.step], summand.rows()):
                source = single_source(subs)
                if source == -2:
                    pairs = np.stack((subs, rows), axis=1).astype(np.int32)
                    self._add(Command.add_rows_multi(part.value, summand.alpha, pairs))
                elif self._is_identity(source, rows):
                    self._add(Command.matrix_add(part.value, source, summand.alpha))
                else:
                    self._add(Command.add_rows(part.value, source, summand.alpha, rows))

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
        parts = (part for parts in self.input_locations for part in parts if part.deriv)
        read = (summand for part in parts for summand in part.summands if summand.single >= 0)
        sizes = [step.columns.size for step in steps]
        find_reverse([summand for summand in read if self._derivs[summand.single]], sizes)
        for number in reversed(range(len(steps))):
            step = steps[number]
            deriv = self._derivs[number]
            if not deriv:
                continue
            node = nodes[step.node]
            if step.is_input:
                self._provide(deriv, step.node)
                if not self._is_input(number + 1):
                    self._add(Command.no_operation_permanent())
            elif node.kind == "component":
                self._backprop(number, step.node)
            elif node.kind == "descriptor":
                if node.is_output:
                    self._accept(deriv, step.node)
                for part in self.input_locations[number]:
                    if part.summands:
                        self._backward_part(part)

    def _backprop(self, number: int, node: int) -> None:
        properties = self.topology.nodes[node].properties
        values = self._values
        derivs = self._derivs
        request = self.requests[0]
        value_in = values[number - 1] if properties & FLAGS.BACKPROP_NEEDS_INPUT else 0
        value_out = values[number] if properties & FLAGS.BACKPROP_NEEDS_OUTPUT else 0
        stores = request.store_component_stats and (
            request.need_model_derivative or not properties & FLAGS.UPDATABLE
        )
        deriv = value_in, value_out, derivs[number], derivs[number - 1]
        precomputed = self._precomputed.get(number, 0)
        use_memo = properties & FLAGS.USES_MEMO
        self._add(Command.backprop(node, number, deriv, precomputed, bool(stores), bool(use_memo)))

    def _backward_part(self, part: InputLocations) -> None:
        deriv = part.deriv
        for summand in part.summands:
            if summand.single >= 0:
                source = self._derivs[summand.single]
                if not source:
                    continue
                if summand.whole:
                    self._add(Command("MatrixAdd", source, deriv, summand.alpha))
                elif summand.reverse is not None:
                    self._add(Command.add_rows(source, deriv, summand.alpha, summand.reverse))
                else:
                    for rows in ensure_contiguous(summand.rows()):
                        self._backward_rows(deriv, source, summand.alpha, rows)
                continue
            subs = self._deriv_of_step[summand.step]
            located = pack_left(subs, np.where(subs >= 0, summand.rows(), -1))
            for sub, rows in split_locations_backward(*located):
                source = single_source(sub)
                if source == -2:
                    pairs = np.stack((sub, rows), axis=1).astype(np.int32)
                    self._add(Command.add_to_rows_multi(deriv, summand.alpha, pairs))
                else:
                    self._backward_rows(deriv, source, summand.alpha, rows)

    def _backward_rows(self, deriv: int, source: int, alpha: float, rows: np.ndarray) -> None:
        """Add row i of `deriv` to row `rows[i]` of `source`."""
        if self._is_identity(source, rows):
            self._add(Command.matrix_add(source, deriv, alpha))
            return
        count = self.computation.submatrices[source].rows
        if count >= len(rows):
            real = np.flatnonzero(rows >= 0)
            reverse = np.full(count, -1, np.int32)
            reverse[rows[real]] = real
            if (reverse >= 0).sum() == len(real):
                self._add(Command.add_rows(source, deriv, alpha, reverse))
                return
        ranges = contiguous_ranges(rows)
        if ranges is None:
            raise OpscopeError(
                "the backward part of a descriptor was split into lists with repeats"
            )
        padding = np.full((count - len(ranges), 2), -1, np.int32)
        ranges = np.concatenate((ranges, padding))
        self._add(Command.add_row_ranges(source, deriv, alpha, ranges))
