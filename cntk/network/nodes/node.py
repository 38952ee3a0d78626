"""A node of a network, and the dynamic axis that its samples run along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError
from ...base.text import Location, located
from .kind import Dims, Kind

DEFAULT_AXIS = "*"


class DynamicAxis:
    """A minibatch layout: which samples there are, in which sequences. Equal by identity; nodes
    with the same axis have the same number of samples at the same places."""

    __slots__ = ("name", "origin")

    def __init__(self, name: str = DEFAULT_AXIS, origin: Node | None = None):
        self.name = name
        self.origin = origin  # the node that makes it while running, None: the reader

    def __repr__(self) -> str:
        return f"DynamicAxis({self.name!r})"


class Node:
    """One computation node; equal by identity.

    The types of `inputs` and `shape` are those of a validated network, which most code sees.

    Attributes:
        name: unique in the network, without regard to case.
        kind: what the catalogue says of its operation.
        inputs: the nodes it reads, in order; None where one is not connected yet.
        attributes: by the names of the `ComputationNode` record.
        shape: dimensions of one sample, the fastest first; 0: not known yet; None: not validated.
        axis: the dynamic axis, or None for values without samples (parameters, criteria).
        tags: the groups it asks to be in ("feature", "criterion", ...).
        learning_rate: multiplies the learning rate of a parameter; 0 = constant, as all other nodes
            are.
        value: a parameter's (or statistic's) value with `shape` as its shape, or None.
        needs_gradient: whether a parameter that learns is among what it is computed from, set by
            validation.
        location: where it was written.
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "axis",
        "inputs",
        "kind",
        "learning_rate",
        "location",
        "name",
        "needs_gradient",
        "shape",
        "tags",
        "value",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        inputs: Sequence[Node | None] = (),
        attributes: dict[str, Any] | None = None,
        location: Location | None = None,
        tags: Sequence[str] = (),
    ):
        self.name = name
        self.kind = kind
        self.inputs = cast("list[Node]", list(inputs))
        self.attributes = attributes or {}
        self.shape = cast(Dims, None)
        self.axis: DynamicAxis | None = None
        self.tags = list(tags)
        self.learning_rate = 0.0
        self.value: np.ndarray | None = None
        self.needs_gradient = False
        self.location = location

    @property
    def operation(self) -> str:
        """CNTK's name of the operation: `Times`, `LearnableParameter`, ..."""
        return self.kind.operation

    @property
    def delay(self) -> int:
        """The direction in which it looks along the dynamic axis, so that a loop may run through
        it: 1 for the past, -1 for the future, 0 for no delay."""
        return self.kind.delay_of(self.attributes)

    @property
    def is_parameter(self) -> bool:
        return self.kind.operation == "LearnableParameter"

    @property
    def is_input(self) -> bool:
        return self.kind.operation in ("InputValue", "SparseInputValue")

    def error(self, message: str, error_class: type[OpscopeError] = ShapeError) -> OpscopeError:
        """An error about this node, which points at where it was written."""
        return located(
            error_class, f"{self.name} {self.operation} operation: {message}", self.location
        )

    def __repr__(self) -> str:
        inputs = ", ".join(i.name if i is not None else "?" for i in self.inputs)
        return f"<{self.name} = {self.operation} ({inputs})>"
