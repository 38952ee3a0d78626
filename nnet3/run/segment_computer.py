"""SegmentComputer: running a computation of several segments, or one that never ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.errors import FormatError, VariableError
from ...framework.base.scope import Scope
from ...framework.ir.desc import INPUT, OUTPUT, PARAMETER, STATE
from ...framework.ir.op_list import OpList
from ...framework.runtime.plain_net import PlainNet
from ...proto import net_pb2 as pb
from ..lower.spans import CommandSpans
from ..network.for_inference import Model
from ..operators.marks import GOTO, LABEL, SEGMENT, mark
from .computer import NnetComputer
from .input_arrays import warn_of_nan


class SegmentComputer(NnetComputer):
    """Computes segment after segment; each takes its inputs, and gives its outputs.

    What later segments need of earlier ones stays in the computer. A looped computation goes back
    to its label where it ends, so there is always a next segment.

    Example:
        nnet = for_inference("final.mdl")
        desc = compile_looped(nnet.topology(), looped_requests(20, *nnet.context()))
        computer = SegmentComputer(desc, nnet)
        for frames in pieces:
            computer.accept_input("input", frames)
            computer.run()
            scores.append(computer.get_output("output"))

    Args:
        net: what `compile_segments` or `compile_looped` gave, or a net of it.
        nnet, place, shared, spans, say: as `NnetComputer` takes them.

    Raises:
        FormatError: the list goes back to a label that is not there.
    """

    def __init__(
        self,
        net: OpList | pb.NetDesc | PlainNet,
        nnet: Model,
        place: Place | None = None,
        shared: Scope | None = None,
        spans: CommandSpans | None = None,
        say: Callable[[str], None] = print,
    ):
        super().__init__(net, nnet, place, shared, spans, say)
        operators = self._net.operators
        marks = [(i, op.attrs["kind"]) for i, op in enumerate(operators) if op.type == mark.type]
        ends = [i for i, kind in marks if kind == SEGMENT]
        labels = [i for i, kind in marks if kind == LABEL]
        begins = [0, *(end + 1 for end in ends)]
        self._spans = list(zip(begins, [*ends, len(operators)], strict=True))
        self._wanted: dict[int, list[str]] = {}  # inputs of each segment
        for name, var in self._vars.items():
            if var.kind == INPUT:
                self._wanted.setdefault(_segment_of(name), []).append(name)
        self._label: int | None = None
        if any(kind == GOTO for _, kind in marks):
            inside = [i for i, end in enumerate(ends) if labels and end > labels[0]]
            if marks[-1] != (len(operators) - 1, GOTO) or not inside:
                raise FormatError("the marks of a looped computation make no loop")
            self._label = labels[0]
            self._first = inside[0]
        self.reset()

    def reset(self) -> None:
        """Begin again with the first segment, with new input."""
        if self._trace is not None:
            self._trace.reset()
        self._segment = 0  # whose inputs are taken next
        self._done = -1  # whose outputs are there
        self._accepted = set()

    @property
    def num_segments(self) -> int | None:
        """How many segments there are; None: no end."""
        return len(self._spans) if self._label is None else None

    def accept_input(self, name: str, matrix: Any, quiet: bool = False) -> None:
        """Give the rows of an input node for the next segment.

        Args:
            name, matrix, quiet: as `NnetComputer.accept_input` takes them.

        Raises:
            VariableError: the segment takes no such thing, or there is no further segment.
            ShapeError: the matrix has the wrong size.
        """
        self._check_not_ended()
        variable = _numbered(f"input.{name}", self._segment)
        if self._kind(variable) != INPUT:
            raise VariableError(f"segment {self._segment} takes no '{name}'")
        array = self._checked(name, variable, matrix)
        if not quiet:
            warn_of_nan(array, f"the input '{name}'")
        self._scope.var(variable).set(array)
        self._accepted.add(variable)

    def run(self) -> None:
        """Computes the next segment.

        Raises:
            VariableError: an input was not given, or there is no further segment.
        """
        self._check_not_ended()
        number = self._segment
        for name in self._wanted.get(number, ()):
            if name not in self._accepted:
                raise VariableError(f"'{name.removeprefix('input.')}' was not given")
        self._accepted.clear()
        if self._trace is not None:
            self._trace.run(self._scope)
        else:
            for begin, end in self._ranges(number):
                self._run(begin, end)
        self._segment = self.following(number)
        self._done = self._segment - 1

    def _run(self, begin: int, end: int) -> None:
        self._net.run(self._scope, begin=begin, end=end)

    def get_output(self, name: str) -> np.ndarray:
        """The value of an output node in the segment that was computed last.

        Raises:
            VariableError: there is no such thing, or nothing was computed yet.
        """
        if self._done < 0:
            raise VariableError(f"output '{name}' is not computed yet: call run()")
        variable = _numbered(f"output.{name}", self._done)
        if self._kind(variable) != OUTPUT:
            raise VariableError(f"segment {self._done} gives no '{name}'")
        return self._value(variable)

    # Segments of several streams in turn

    def following(self, segment: int) -> int:
        """The segment that comes after one."""
        return (self._first if self._loops(segment) else segment) + 1

    def carried(self) -> list[set[str]]:
        """By segment, the variables that it, or a later one, reads of those before it."""
        reads: list[set[str]] = []
        writes: list[set[str]] = []
        for number in range(len(self._spans)):
            read: set[str] = set()
            written = set(self._wanted.get(number, ()))
            for begin, end in self._ranges(number):
                read.update(set(self._net.externals(begin=begin, end=end)) - written)
                for op in self._net.operators[begin:end]:
                    written.update(self._base(name) for name in op.output_vars())
            reads.append({n for n in read if self._vars[n].kind not in (PARAMETER, STATE)})
            writes.append(written)
        carried = reads
        while True:
            longer = [
                read
                | (carried[after] - written if (after := self.following(n)) < len(reads) else set())
                for n, (read, written) in enumerate(zip(reads, writes, strict=True))
            ]
            if longer == carried:
                return carried
            carried = longer

    def go_to(self, segment: int) -> None:
        """Take the inputs of a segment next; what it reads of earlier ones is in the arrays of the
        variables that `carried` names."""
        self._segment = segment
        self._accepted.clear()

    def array(self, variable: str) -> np.ndarray:
        """Where a variable that is carried over lies, to be read and written; zeros at first."""
        held = self._scope.var(variable)
        if held.inner is None:
            declared = self._vars[variable]
            held.set(np.zeros(declared.shape or (), declared.dtype))
        return held.array

    def _loops(self, segment: int) -> bool:
        """Whether the run goes back in a segment."""
        return self._label is not None and segment == len(self._spans) - 1

    def _ranges(self, segment: int) -> list[tuple[int, int]]:
        """The operators of a segment, range by range."""
        if self._label is None or not self._loops(segment):
            return [self._spans[segment]]
        # The first one hands the state to the first segment of the loop.
        return [self._spans[segment], (self._label, self._spans[self._first][1])]

    def _base(self, name: str) -> str:
        view = self._vars[name].view
        return name if view is None else view.base

    def _check_not_ended(self) -> None:
        if self._segment == len(self._spans):
            raise VariableError(f"there are only {len(self._spans)} segments; see reset()")


def _numbered(variable: str, segment: int) -> str:
    return f"{variable}:{segment}" if segment else variable


def _segment_of(variable: str) -> int:
    return int(variable.partition(":")[2] or 0)
