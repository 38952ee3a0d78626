"""What a writer of another format reads of an operator, and of the step net in a `recurrent`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from ...framework.base.dtypes import is_float
from ...framework.base.sizes.shape import ArraySpec, Shape
from ...framework.ir.operation import Operator
from ...framework.loops.recurrent.description import StepNet, step_net
from ...operators.names import names_of


class RefusedError(Exception):
    """An operator has no form in the other format; the text says why, and what would help."""


class KnowsSpecs(Protocol):
    """The variables of a net while it is written."""

    def spec_of(self, variable: str) -> ArraySpec | None: ...


class Reading(ABC):
    """One operator while it is written.

    Attributes:
        values: of its net. op: the operator. attrs: all of its attributes.
        system: for which it is written, a column of the table of names.
    """

    system = ""

    def __init__(self, values: KnowsSpecs, op: Operator) -> None:
        self.values = values
        self.op = op
        self.attrs: dict[str, Any] = op.attrs

    @abstractmethod
    def value(self, variable: str) -> str:
        """What stands for the value of a variable."""

    def has(self, slot: str) -> bool:
        """Whether an input or output slot holds a variable."""
        return bool(self.op.inputs.get(slot) or self.op.outputs.get(slot))

    def __getitem__(self, slot: str) -> str:
        return self.value(self.op.inputs[slot][0])

    def get(self, slot: str) -> str | None:
        """The value of an input slot; None where it is left out."""
        return self[slot] if self.op.inputs.get(slot) else None

    def spec(self, slot: str, number: int = 0) -> ArraySpec:
        """Shape and dtype of a variable of an input or output slot."""
        names = self.op.inputs.get(slot) or self.op.outputs.get(slot) or ()
        spec = self.values.spec_of(names[number]) if number < len(names) else None
        if spec is None:
            self.refuse(f"the rank of its {slot} is not known; declare its shape")
        return spec

    def shape(self, slot: str, number: int = 0) -> Shape:
        return self.spec(slot, number)[0]

    def rank(self, slot: str) -> int:
        return len(self.shape(slot))

    def dtype(self, slot: str) -> Any:
        return self.spec(slot)[1]

    def is_float(self, slot: str = "x") -> bool:
        return is_float(self.dtype(slot))

    def axis(self, slot: str = "x", name: str = "axis") -> int:
        """An attribute that is an axis, counted from the front of an input."""
        return int(self.attrs[name]) % max(self.rank(slot), 1)

    @property
    def theirs(self) -> str:
        """What the other system calls the operator."""
        return names_of(self.op.type)[self.system].name

    def refuse(self, reason: str) -> NoReturn:
        """Say that this operator cannot be written, and what would help.

        Raises:
            RefusedError: always.
        """
        raise RefusedError(reason)

    def list(self, slot: str) -> list[str]:
        """The values of an input slot."""
        return [self.value(name) for name in self.op.inputs.get(slot, ())]


_R = TypeVar("_R", bound="Recurrence")


@dataclass(frozen=True)
class Recurrence:
    """A `recurrent` operator while it is written, with what its step net is given.

    Attributes:
        e: the operator. step: its step net. specs: of the variables of that net.
    """

    e: Reading
    step: StepNet
    specs: dict[str, ArraySpec]

    @classmethod
    def of(cls: type[_R], e: Reading, rows: int = -1) -> _R:
        """Of an operator whose step net is given so many rows; -1: any number.

        Raises:
            RefusedError: the width of a memory is not known.
        """
        step = step_net(e.attrs["net"])
        known: dict[str, ArraySpec] = {}
        for number, name in enumerate(step.inputs):
            shape, dtype = e.spec("x", number)
            known[name] = ((rows, *shape[1:]), dtype)
        for number, name in enumerate(step.statics):
            known[name] = e.spec("static", number)
        for memory in step.memories:
            if memory.boot >= 0:
                shape, dtype = e.spec("boot", memory.boot)
                row: ArraySpec | None = (shape[1:], dtype)
            else:
                row = step.declared_row(memory)
            if row is None or (memory.boot < 0 and min(row[0], default=0) < 0):
                e.refuse(f"the width of its memory {memory.state!r} is not known; declare it")
            known[memory.previous] = ((rows, *row[0]), row[1])
        return cls(e, step, step.infer(known, -1, None))
