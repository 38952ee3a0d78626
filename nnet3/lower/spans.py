"""Which operators of a lowered computation run which of its commands, for those who watch a run."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.ir.op_list import OpList
from ..compiler.computation import Computation
from .commands import Lowering
from .composite_rows import split_composites


@dataclass
class CommandSpans:
    """Which operators of a net run which command of its computation.

    Attributes:
        computation: the commands, explicit.
        starts: the number of the first operator of each command, and that of all operators.
        variables: the variable of each matrix, as the net begins; that of matrix 0 is empty.
        restored: matrices that are another variable from a command on: by its number, the matrix
            and the variable.
    """

    computation: Computation
    starts: list[int]
    variables: list[str]
    restored: dict[int, tuple[int, str]]


def lower_with_spans(computation: Computation) -> tuple[OpList, CommandSpans]:
    """The net that runs a computation, as `lower_computation` gives it, and its commands."""
    explicit = computation.explicit()
    split, places = split_composites(explicit)
    made = Lowering(split, "computation")
    starts = [made.starts[place] for place in places]
    restored = {
        number: made.restored[place]
        for number, place in enumerate(places)
        if place in made.restored
    }
    spans = CommandSpans(explicit, [*starts, len(made.ops)], made.matrix_variables, restored)
    return made.net, spans
