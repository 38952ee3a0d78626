"""The arguments of gradient makers, which the backward pass makes for each operator.

Also the check of what a gradient operator is given: that its forward operator has and makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..base.sizes.shape import ShapeArgs, fits, format_spec
from .names import EMPTY
from .op_list import OpNode


class VersionedName(str):
    """The name of a variable, with the version of its value."""

    version: int

    def __new__(cls, name: str, version: int) -> VersionedName:
        # A str, so that makers hand it on as a name; few of them ask for the version.
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
        """Names to write the gradients of an input slot to; `@EMPTY@` where nothing needs them.

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


def check_forward(s: ShapeArgs, forward: Any) -> None:
    """Refuse inputs of a gradient operator that its forward operator neither has nor makes.

    A gradient kernel relies on all that the forward operator has checked: its inputs fit together,
    and what it made, and the gradients of that, have the shapes and dtypes that it gives them.

    Args:
        s: of the gradient operator. forward: the OperatorDef of the other one.
    """
    if forward.shape is None:
        return
    view = _Forward(s, forward)
    args = ShapeArgs(view, s.inputs_by_name, s.offsets_by_name)
    forward.shape(args)
    s.reads_offsets |= args.reads_offsets
    for slot, names in view.outputs.items():
        for source in (slot, f"{slot}_grad"):
            for name, result in zip(s.op.inputs.get(source, ()), names, strict=False):
                if name == EMPTY or result not in args.results:
                    continue
                given = s.input_spec(name)
                wanted = args.results[result]
                if given[1] != wanted[1] or not fits(given[0], wanted[0]):
                    s.fail(
                        f"{source}={name} is {format_spec(given)}; {forward.type} makes"
                        f" {format_spec(wanted)} of these inputs"
                    )


class _Forward:
    """The forward operator, as far as its shape rule looks at it; see `OperatorView`."""

    def __init__(self, s: ShapeArgs, forward: Any) -> None:
        op = s.op
        self._grad = op
        self.type = forward.type
        self.entry = forward
        self.attrs = op.attrs
        self.accumulate = op.accumulate
        self.role = op.role
        self.device = op.device
        given = op.inputs
        self.inputs = {slot: given[slot] for slot in forward.input_slots if slot in given}
        self.outputs: dict[str, tuple[str, ...]] = {}
        for slot in forward.output_slots:
            # It may read an output, its gradient or both: the longer list has the slot's length.
            count = max(len(given.get(slot, ())), len(given.get(f"{slot}_grad", ())))
            if count:
                self.outputs[slot] = tuple(f"{slot} {number}" for number in range(count))

    def input_vars(self) -> list[str]:
        return [name for names in self.inputs.values() for name in names if name != EMPTY]

    def output_vars(self) -> list[str]:
        return [name for names in self.outputs.values() for name in names]

    def title(self) -> str:
        return self._grad.title()

    def describe(self, why: str, specs: Mapping[str, Any]) -> str:
        return self._grad.describe(why, specs)
