"""One derivative of a component's parameters for all steps that it runs in.

A recurrent layer is computed step by step. Its backprop commands leave out the parameters; what
they read is copied, row ranges of one matrix for all steps, and a last backprop takes the
derivative of the parameters from that: one large product in place of many small ones. Merging then
lets the copies go. Source: ModelUpdateConsolidator in Kaldi's nnet-optimize-utils.cc.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from ..compiler.command import Command, insert
from ..compiler.computation import Computation, MatrixInfo, SubMatrix, submatrices_of
from ..graph.topology_node import FLAGS
from ..index.indexes import LazyIndexes
from .options import OptimizeOptions

_ABLE = FLAGS.UPDATABLE | FLAGS.SIMPLE


def consolidate_model_update(computation: Computation, options: OptimizeOptions) -> Computation:
    """Take the derivative of a component's parameters once, for components that run in many steps,
    use no memo and compute each row from one row.
    """
    nodes = computation.topology.nodes
    steps: dict[str, list[int]] = {}
    for number, command in enumerate(computation.commands):
        if command.type == "Backprop":
            flags = nodes[command.node].properties
            if flags & _ABLE == _ABLE and not flags & FLAGS.USES_MEMO:
                steps.setdefault(nodes[command.node].component_name, []).append(number)
    steps = {name: numbers for name, numbers in steps.items() if len(numbers) > 1}
    if not steps:
        return computation
    return _Consolidator(computation.copy(), steps).result


class _Consolidator:
    def __init__(self, computation: Computation, steps: dict[str, list[int]]):
        self.result = computation
        self.consolidated: list[int] = []
        self.before: dict[int, list[Command]] = {}  # by the command that they go before
        self.final: list[Command] = []
        for node in computation.topology.nodes:
            if node.component_name in steps:
                self._component(steps.pop(node.component_name))
        computation.commands = [
            Command.alloc_matrices(self.consolidated),
            *insert(computation.commands, self.before),
            *self.final,
            Command.dealloc_matrices(self.consolidated),
        ]

    def _component(self, numbers: list[int]) -> None:
        commands = self.result.commands
        old = [commands[number] for number in numbers]
        for number, c in zip(numbers, old, strict=True):
            commands[number] = c.without_model_update()
        read = [
            self._consolidated(numbers, [command.deriv[i] for command in old])
            if old[0].deriv[i]
            else 0
            for i in range(3)
        ]
        self.final.append(old[0].changed(step=-1, deriv=(*read, 0)))

    def _consolidated(self, numbers: list[int], parts: list[int]) -> int:
        """A new matrix of the rows of all parts; each part is copied just before its command."""
        computation = self.result
        submatrices = [computation.submatrices[s] for s in parts]
        infos = [computation.matrices[s.matrix] for s in submatrices]
        counts, cols = [s.rows for s in submatrices], submatrices[0].cols
        whole = computation.new_matrix(sum(counts), cols)
        contiguous = any(
            info.contiguous and computation.is_whole(s)
            for info, s in zip(infos, parts, strict=True)
        )
        matrix = len(computation.matrices) - 1
        joined = computation.matrices[matrix]._replace(contiguous=contiguous)
        computation.matrices[matrix] = _described(joined, infos, submatrices)
        self.consolidated.append(whole)
        first = len(computation.submatrices)
        each = zip(accumulate(counts, initial=0), counts, strict=False)
        computation.submatrices += submatrices_of([(matrix, row, n, 0, cols) for row, n in each])
        for target, (number, part) in enumerate(zip(numbers, parts, strict=True), first):
            self.before.setdefault(number, []).append(Command.matrix_copy(target, part))
        return whole


def _described(joined: MatrixInfo, infos: list[MatrixInfo], parts: list[SubMatrix]) -> MatrixInfo:
    """The info of a matrix that joins rows of other matrices."""
    listed = [info.listed for info in infos if info.listed is not None]
    if len(listed) < len(infos):
        return joined
    counts = {rows.sequences for rows in listed}
    sequences = counts.pop() if len(counts) == 1 else 0
    if sequences and any(s.row % sequences or s.rows % sequences for s in parts):
        sequences = 0
    spans = [(s.row, s.row + s.rows) for s in parts]

    def indexes() -> np.ndarray:
        each = zip(listed, spans, strict=True)
        return np.concatenate([rows.indexes[begin:end] for rows, (begin, end) in each])

    lazily = LazyIndexes(joined.rows, sequences, indexes)
    return joined._replace(node=infos[0].node, is_deriv=infos[0].is_deriv, listed=lazily)
