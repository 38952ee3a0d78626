"""The arguments of gradient makers; the backward pass makes them for each operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .op_list import OpNode


class VersionedName(str):
    """The name of a variable, with the version of its value."""

    version: int

    def __new__(cls, name: str, version: int) -> VersionedName:
        self = super().__new__(cls, name)
        self.version = version
        return self


class GradientArgs(Protocol):
    """A forward operator as its gradient maker sees it, with the means to write its gradient.

    Attributes:
        node: the operator.
        attrs: its attributes as given, to be passed on.
    """

    node: OpNode
    attrs: dict[str, Any]

    def has(self, slot: str) -> bool:
        """Whether a slot, input or output, is there."""
        ...

    def inputs(self, slot: str) -> list[VersionedName]:
        """Variables of an input slot."""
        ...

    def outputs(self, slot: str) -> list[VersionedName]:
        """Variables of an output slot."""
        ...

    def output_grads(self, slot: str) -> list[str]:
        """Gradients with respect to an output slot's variables; zeros where none arrives."""
        ...

    def arriving_grads(self, slot: str) -> list[str]:
        """Like `output_grads`, but `@EMPTY@` where no gradient arrives."""
        ...

    def input_grads(self, slot: str) -> list[str]:
        """Names to write the gradients of an input slot to; `@EMPTY@` where nobody needs them.

        Each call makes new names: call it once for each slot.
        """
        ...

    def needs(self, slot: str) -> bool:
        """Whether the gradient of any variable of an input slot is needed."""
        ...

    def sparse_rows(self, grad: str) -> str:
        """Declare that `grad` (one of `input_grads`) holds rows of its table only.

        Returns:
            The variable to write the row numbers to.
        """
        ...

    def op(
        self,
        op_type: str,
        inputs: Mapping[str, str | Sequence[str]],
        outputs: Mapping[str, str | Sequence[str]],
        attrs: Mapping[str, Any] | None = None,
    ) -> OpNode:
        """A gradient operator; empty slots are left out.

        Raises:
            GradientError: it would read a value that the forward operators overwrite, or one that
                the forward operator does not save.
        """
        ...


GradientMaker = Callable[[GradientArgs], list[OpNode]]
"""A pure function from one forward operator to the operators of its gradient."""
