"""Runs a computation command by command and logs what each does, as Kaldi with its debug option.

Source: DebugBeforeExecute and DebugAfterExecute in Kaldi's `nnet3/nnet-compute.cc`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.desc import TEMPORARY
from ...framework.runtime.plain_net import PlainNet
from ..compiler.analyze import WRITE, accesses
from ..compiler.command import Command
from ..lower.spans import CommandSpans

_BETWEEN_RUNS = frozenset({"ProvideOutput", "NoOperationMarker"})


class CommandTrace:
    """Runs the commands of a net one by one; each run continues to the next output.

    A line has the command, the root mean square of each matrix and sub-matrix that it writes,
    before and after, and its time. What a matrix holds is followed as Kaldi has it: one that takes
    over another's memory has its values, and one with undefined content zeros.

    Args:
        net: the net of the commands.
        spans: which of its operators run which command.
        say: takes lines; before the first command the matrices of the computation.
        parameters: gives the root mean square of the parameters of a component.
    """

    def __init__(
        self,
        net: PlainNet,
        spans: CommandSpans,
        say: Callable[[str], None],
        parameters: Callable[[str], float],
    ) -> None:
        self._net = net
        self._spans = spans
        self._say = say
        self._parameters = parameters
        self._computation = spans.computation
        self._commands = self._computation.commands
        self._texts = self._computation.commands_to_kaldi()
        self._names = self._computation.submatrices_to_kaldi()
        kept = [v.name for v in net.vars.values() if v.kind == TEMPORARY and v.view is None]
        self._kept = frozenset(kept)
        self._context = OpContext(live_out=self._kept)
        self.reset()

    def reset(self) -> None:
        """Begin again with the first command."""
        self._next = 0
        self._variables = list(self._spans.variables)
        self._values = [np.zeros((0, 0), np.float32) for _ in self._computation.matrices]

    def keeping(self, context: OpContext) -> OpContext:
        """A context of training in which later operators find what earlier ones wrote."""
        return context.derive(train=True, live_out=self._kept)

    def run(self, scope: Scope, context: OpContext | None = None) -> None:
        """Run up to the next output, or to the end; inputs are taken on the way.

        Args:
            context: see `keeping`; None: one of its own.

        Raises:
            OpscopeError: as `PlainNet.run`.
        """
        self._context = context or self._context
        commands = self._commands
        if not self._next:
            self._say(self._computation.preamble_to_kaldi())
        while self._next < len(commands) and commands[self._next].type in _BETWEEN_RUNS:
            self._execute(scope, self._next)
            self._next += 1
        begin = time.perf_counter()
        while self._next < len(commands):
            command = commands[self._next]
            if command.type == "ProvideOutput":
                return
            if command.type == "AcceptInput":
                self._execute(scope, self._next)
            else:
                self._tell(scope, command, self._next, begin)
            begin = time.perf_counter()
            if command.type == "GotoLabel":
                self._next = command.step
            self._next += 1

    def _tell(self, scope: Scope, command: Command, number: int, begin: float) -> None:
        """Run a command and log it."""
        written = sorted(s for s, mode in self._accesses(command) if mode & WRITE)
        submatrices = self._computation.submatrices
        matrices = sorted({submatrices[s].matrix for s in written})
        parts = [s for s in dict.fromkeys(written) if not self._computation.is_whole(s)]
        labels = [f"m{matrix}" for matrix in matrices] + [self._names[s] for s in parts]
        before = self._sizes(matrices, parts)
        self._execute(scope, number)
        after = self._sizes(matrices, parts)
        sizes = [
            f"{label}: {old:g}->{new:g} "
            for label, old, new in zip(labels, before, after, strict=True)
        ]
        if command.type == "Backprop":
            node = self._computation.topology.nodes[command.node]
            if node.component.is_updatable:
                size = self._parameters(node.component_name)
                sizes.append(f"{node.component_name}: {size:g}->{size:g} ")  # not updated here
        seconds = time.perf_counter() - begin
        self._say(f"{self._texts[number]}\t|\t{''.join(sizes)}\t|\t time: {seconds:g} secs")

    def _accesses(self, command: Command) -> Any:
        return accesses(command, self._computation.topology.nodes)

    def _sizes(self, matrices: list[int], parts: list[int]) -> list[float]:
        """The root mean square of matrices, then of sub-matrices."""
        return [root_mean_square(self._values[matrix]) for matrix in matrices] + [
            root_mean_square(self._part(s)) for s in parts
        ]

    def _part(self, number: int) -> np.ndarray:
        """The elements of a sub-matrix."""
        s = self._computation.submatrices[number]
        return self._values[s.matrix][s.row : s.row + s.rows, s.col : s.col + s.cols]

    def _execute(self, scope: Scope, number: int) -> None:
        """Run the operators of a command, and follow what the matrices hold."""
        command = self._commands[number]
        begin, end = self._spans.ranges[number]
        if begin < end:
            self._net.run(scope, self._context, begin, end)
        if number in self._spans.restored:
            matrix, variable = self._spans.restored[number]
            self._variables[matrix] = variable
        matrix = self._computation.submatrices[command.target].matrix
        kind = command.type
        if kind == "AllocMatrix":
            info = self._computation.matrices[matrix]
            self._values[matrix] = np.zeros((info.rows, info.cols), np.float32)
        elif kind == "DeallocMatrix":
            self._values[matrix] = np.zeros((0, 0), np.float32)
        elif kind == "SwapMatrix":
            source = self._computation.submatrices[command.source].matrix
            values = self._values
            values[matrix], values[source] = values[source], values[matrix]
        elif kind == "SetConst":
            self._part(command.target)[:] = command.alpha
        elif kind == "AcceptInput":
            if self._variables[matrix] in scope:  # else no operator reads it
                self._values[matrix] = scope.get(self._variables[matrix]).numpy().copy()
        elif kind != "CompressMatrix" and begin < end:
            for submatrix, mode in self._accesses(command):
                if mode & WRITE:
                    s = self._computation.submatrices[submatrix]
                    after = scope.get(self._variables[s.matrix]).numpy()
                    rows, cols = slice(s.row, s.row + s.rows), slice(s.col, s.col + s.cols)
                    self._values[s.matrix][rows, cols] = after[rows, cols]


def root_mean_square(*arrays: np.ndarray) -> float:
    """The root of the mean square of all elements; 0 where there are none."""
    count = sum(array.size for array in arrays)
    total = sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays)
    return float(np.sqrt(total / count)) if count else 0.0
