"""One derivative of a component's parameters for all steps that it runs in.

A recurrent layer is computed step by step. Its backprop commands leave out the parameters; what
they read is copied, row ranges of one matrix for all steps, and a last backprop takes the
derivative of the parameters from that: one large product in place of many small ones. Merging then
lets the copies go. Source: ModelUpdateConsolidator in Kaldi's nnet-optimize-utils.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
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
            # A memo belongs to one Propagate; there is none for the rows of all of them.
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
        of_derivs = list(zip(*[command.deriv for command in old], strict=True))[:3]
        read = [self._consolidated(numbers, parts) if parts[0] else 0 for parts in of_derivs]
        self.final.append(old[0].changed(step=-1, deriv=(*read, 0)))
        for number, c in zip(numbers, old, strict=True):
            commands[number] = c.without_model_update()

    def _consolidated(self, numbers: list[int], parts: Sequence[int]) -> int:
        """A new matrix of the rows of all parts; each part is copied just before its command."""
        computation = self.result
        matrices = self.result.matrices
        submatrices = [computation.submatrices[s] for s in parts]
        infos = [matrices[s[0]] for s in submatrices]
        counts = [s[2] for s in submatrices]
        cols = submatrices[0].cols
        whole = computation.new_matrix(sum(counts), cols)
        each = zip(infos, submatrices, strict=True)
        contiguous = any([i.contiguous and (s.rows, s.cols) == (i.rows, i.cols) for i, s in each])
        matrix = len(matrices) - 1
        joined = matrices[matrix]._replace(contiguous=contiguous)
        matrices[matrix] = _described(joined, infos, submatrices)
        self.consolidated.append(whole)
        first = len(computation.submatrices)
        before = self.before
        rows = zip(accumulate(counts, initial=0), counts, strict=False)
        computation.submatrices += submatrices_of([(matrix, row, n, 0, cols) for row, n in rows])
        for target, (number, part) in enumerate(zip(numbers, parts, strict=True), first):
            copy = Command("MatrixCopy", target, part)
            if number in before:
                before[number].append(copy)
            else:
                before[number] = [copy]
        return whole


def _described(joined: MatrixInfo, infos: list[MatrixInfo], parts: list[SubMatrix]) -> MatrixInfo:
    """The info of a matrix that joins rows of other matrices."""
    listed = [info.listed for info in infos if info.listed is not None]
    if len(listed) < len(infos):
        return joined
    counts = {rows.sequences for rows in listed}
    sequences = counts.pop() if len(counts) == 1 else 0
    if sequences and any([row % sequences or rows % sequences for _, row, rows, _, _ in parts]):
        sequences = 0

    def indexes() -> np.ndarray:
        each = zip(listed, parts, strict=True)
        return np.concatenate([rows.indexes[s.row : s.row + s.rows] for rows, s in each])

    lazily = LazyIndexes(joined.rows, sequences, indexes)
    return joined._replace(node=infos[0].node, is_deriv=infos[0].is_deriv, listed=lazily)
