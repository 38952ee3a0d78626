"""The network that NDL, BrainScript, SimpleNetworkBuilder and model files all give."""

from __future__ import annotations

from ...framework.base.errors import OpscopeError
from .edit import EditableGraph
from .validate import AxisNames, Log, problems, validate


class Network(EditableGraph):
    """A graph of nodes that can be edited and validated.

    Validation sets `roots`, `order` and `loops`, and the shape and axis of each node.
    """

    def validate(self, log: Log | None = None, names: AxisNames | None = None) -> None:
        """Infer and check all shapes and dynamic axes; find loops.

        Afterwards `roots`, `order` (evaluation order) and `loops` are set. `log` gets the lines
        that CNTK prints.

        Raises:
            ShapeError, CycleError, VariableError, SlotError: with the place of the node at fault.
        """
        validate(self, log, names)

    def problems(self) -> list[OpscopeError]:
        """All errors that `validate` would raise one after the other, were each of them mended;
        errors that follow from another are left out."""
        return problems(self)
