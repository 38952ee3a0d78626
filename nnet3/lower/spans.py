"""Which operators of a lowered computation run which of its commands, for those who watch a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ...framework.ir.op_list import OpList
from ..compiler.computation import Computation
from .commands import Lowering
from .composite_rows import split_composites


@dataclass
class CommandSpans:
    """Which operators of a net run which command of its computation.

    Attributes:
        computation: the commands, explicit.
        ranges: the numbers of the first operator of each command, and of the one after its last.
        variables: the variable of each matrix, as the net begins; matrix 0 has "".
        restored: matrices that are another variable from a command on: by its number, the matrix
            and the variable.
    """

    computation: Computation
    ranges: list[tuple[int, int]]
    variables: list[str]
    restored: dict[int, tuple[int, str]]

    def moved(self, first: int, by: int) -> CommandSpans:
        """The spans in a net that has further operators before one."""
        ranges = [
            (begin + by, end + by) if begin >= first and end > begin else (begin, end)
            for begin, end in self.ranges
        ]
        return replace(self, ranges=ranges)


def lower_with_spans(
    computation: Computation, natural_gradient: bool = False
) -> tuple[OpList, CommandSpans]:
    """The net that runs a computation, as `lower_computation` gives it, and its commands."""
    explicit = computation.explicit()
    split, places = split_composites(explicit)
    lowering = Lowering(split, "computation", natural_gradient)
    starts = [*(lowering.starts[place] for place in places), len(lowering.ops)]
    restored = {
        number: lowering.restored[place]
        for number, place in enumerate(places)
        if place in lowering.restored
    }
    ranges = list(pairwise(starts))
    return lowering.net, CommandSpans(explicit, ranges, lowering.matrix_variables, restored)
