"""Switches of the optimization passes, with the names and defaults of Kaldi's nnet-optimize.h."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ...framework.base.errors import AttributeTypeError

LEAST = -(1 << 31)
MOST = (1 << 31) - 1
"""Times that stand for "no limit"."""


@dataclass(frozen=True)
class OptimizeOptions:
    """The switches of the passes.

    Attributes:
        optimize: False switches off all that the other switches name.
        consolidate_model_update: the parameters of a component that runs in many steps get their
            derivative once, from the rows of all steps.
        propagate_in_place, backprop_in_place: components that can write over their input do so
            where no later command reads it.
        optimize_row_ops: row numbers that follow each other become a copy of a sub-matrix.
        split_row_ops: rows from one or two matrices: a simpler command for each.
        extend_matrices: a few rows more in the target of a copy make it a copy of a whole matrix,
            so that it can be joined with it.
        convert_addition: an addition to zeros becomes a copy.
        remove_assignments: a matrix that is only a copy of another becomes that other.
        allow_left_merge, allow_right_merge: of a copy, the target may become part of the source's
            matrix; the source may become part of the target's.
        initialize_undefined: zeros that are overwritten or never read are not set.
        move_sizing_commands: memory is taken just before, and let go just after its use.
        allocate_from_other: memory that is let go is handed to the next matrix of that size.
        min_deriv_time, max_deriv_time: derivatives at earlier and later frames count as 0.
        max_deriv_time_relative: the same, counted from the last frame of all outputs.
        snip_row_ops: rows at the ends that nothing is added to are left out of a command.
        memory_compression_level: what lies between forward and backward is stored in fewer bits. 0:
            nothing; 1: signs of rectified values, which changes nothing; 2: the rest in 16 bits.
        skip: names of passes that do not run, whatever the switches say; not shown by `repr`.

    Raises:
        AttributeTypeError: a compression level below 0, or limits the wrong way round.
    """

    optimize: bool = True
    consolidate_model_update: bool = True
    propagate_in_place: bool = True
    backprop_in_place: bool = True
    optimize_row_ops: bool = True
    split_row_ops: bool = True
    extend_matrices: bool = True
    convert_addition: bool = True
    remove_assignments: bool = True
    allow_left_merge: bool = True
    allow_right_merge: bool = True
    initialize_undefined: bool = True
    move_sizing_commands: bool = True
    allocate_from_other: bool = True
    min_deriv_time: int = LEAST
    max_deriv_time: int = MOST
    max_deriv_time_relative: int = MOST
    snip_row_ops: bool = True
    memory_compression_level: int = 1
    skip: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.memory_compression_level < 0:
            raise AttributeTypeError(
                f"memory_compression_level is {self.memory_compression_level}: want 0, 1 or 2"
            )
        if self.min_deriv_time > self.max_deriv_time:
            raise AttributeTypeError(
                f"min_deriv_time {self.min_deriv_time} lies after max_deriv_time"
                f" {self.max_deriv_time}"
            )

    @classmethod
    def none(cls) -> OptimizeOptions:
        """No optimization at all."""
        off: dict[str, Any] = {each.name: False for each in fields(cls) if each.default is True}
        return cls(**off, memory_compression_level=0)

    @property
    def limits_derivative_times(self) -> bool:
        """Whether derivatives at some frames count as 0."""
        first = self.min_deriv_time
        last = min(self.max_deriv_time, self.max_deriv_time_relative)
        return first != LEAST or last != MOST

    @classmethod
    def chosen(cls, optimize: bool | OptimizeOptions) -> OptimizeOptions | None:
        """What callers say by True (the defaults), False (None: no passes) or options."""
        if isinstance(optimize, OptimizeOptions):
            return optimize
        return cls() if optimize else None

    def has(self, *switches: str) -> bool:
        """Whether one of these is on, and optimization as such."""
        return self.optimize and any(getattr(self, name) for name in switches)
