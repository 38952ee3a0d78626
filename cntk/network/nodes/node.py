"""A node of a network, its kind, the functions of NDL that make such nodes, and dynamic axes.

The kinds themselves are in `network/kinds/`, one module a family; `catalog` finds them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from ....framework.base.errors import (
    AttributeTypeError,
    OpscopeError,
    RunError,
    ShapeError,
    nearest,
)
from ....framework.base.options.plugins import call_plugin
from ...base.text import Location, located
from .attributes import REQUIRED, AttributeSpec, Dims, FileField

DEFAULT_AXIS = "*"
T = TypeVar("T")


class DynamicAxis:
    """A minibatch layout: which samples there are, in which sequences. Equal by identity; nodes
    with the same axis have the same number of samples at the same places."""

    __slots__ = ("name", "origin")

    def __init__(self, name: str = DEFAULT_AXIS, origin: Node | None = None):
        self.name = name
        self.origin = origin  # the node that makes it while running, None: the reader

    def __repr__(self) -> str:
        return f"DynamicAxis({self.name!r})"


@dataclass(frozen=True, eq=False)
class NdlFunction:
    """A function of NDL that makes nodes of a kind.

    A call has positional parameters, some of which are nodes and the others values, then options
    `name=value`.

    Attributes:
        names: of the function, in any case; errors show the first.
        operation: of the node.
        counts: allowed numbers of positional parameters; empty: any.
        at_least: the least number of positional parameters.
        nodes: from a list that says of each positional parameter whether it is a number, to the
            range of the parameters that are nodes.
        options: type and default of each option; a call may have `tag` as well.
        attributes: makes the node's attributes from the positional parameters that are values
            (numbers, strings, or lists of them where the text has an array) and the options.
        usage: for errors.
    """

    names: tuple[str, ...]
    operation: str
    counts: tuple[int, ...] = ()
    at_least: int = 0
    nodes: Callable[[Sequence[bool]], range] = lambda numbers: range(len(numbers))
    options: Mapping[str, AttributeSpec] = field(default_factory=dict)
    attributes: Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]] = (
        lambda values, options: {}
    )
    usage: str = ""

    @property
    def name(self) -> str:
        return self.names[0]

    def count_error(self, count: int) -> str | None:
        """What is wrong with `count` positional parameters, or None."""
        if self.counts and count not in self.counts:
            wanted = " or ".join(map(str, self.counts))
        elif count < self.at_least:
            wanted = f"at least {self.at_least}"
        else:
            return None
        usage = f"; usage: {self.usage}" if self.usage else ""
        return f"{self.name} takes {wanted} parameters, not {count}{usage}"


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of node.

    Attributes:
        operation: CNTK's name of the operation.
        inputs: the least and the largest number of inputs; None: any number.
        rule: `rule(node, final)` sets the node's shape and axis from its inputs, and infers unknown
            dimensions of parameters among them; in the last pass (`final`) it raises errors.
        attributes: by name.
        aliases: older names of the operation.
        ndl: functions of NDL that make such nodes.
        finish: changes the attributes after all are set.
        delay: the direction in time in which a loop through such a node is broken: 1 for the past,
            -1 for the future, 0: none.
        direction: gives `delay` from a node's attributes, where they decide.
        whole: whether nodes look at all time steps at once; no loop may contain them.
        precompute: whether the value is computed from the whole data before training.
        file_fields: attributes in binary model files, in file order.
        reads: what its inputs are called in texts about it, in order.
        doc: what it computes, in terms of `reads`.
    """

    operation: str
    inputs: tuple[int, int | None]
    rule: Callable[[Node, bool], None]
    attributes: Mapping[str, AttributeSpec] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    ndl: tuple[NdlFunction, ...] = ()
    finish: Callable[[dict[str, Any]], None] | None = None
    delay: int = 0
    direction: Callable[[Mapping[str, Any]], int] | None = None
    whole: bool = False
    precompute: bool = False
    file_fields: tuple[FileField, ...] = ()
    reads: tuple[str, ...] = ()
    doc: str = ""

    @property
    def can_delay(self) -> bool:
        """Whether a loop may run through such a node: its inputs may be defined after it."""
        return self.delay != 0 or self.direction is not None

    def delay_of(self, attributes: Mapping[str, Any]) -> int:
        """`delay` of a node with these attributes."""
        return self.delay if self.direction is None else self.direction(attributes)

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes: `given` ones converted, the others with their defaults.

        Raises:
            AttributeTypeError: an attribute is unknown, missing or of the wrong type.
        """
        for name in given:
            if name not in self.attributes:
                raise AttributeTypeError(
                    f"{self.operation} has no attribute {name!r}{nearest(name, self.attributes)}"
                )
        values = {}
        for name, spec in self.attributes.items():
            if name in given:
                try:
                    values[name] = spec.convert(given[name])
                except ValueError as error:
                    raise AttributeTypeError(f"{self.operation}: {name}: {error}") from None
            elif spec.default is REQUIRED:
                raise AttributeTypeError(f"{self.operation}: attribute {name!r} is missing")
            else:
                values[name] = spec.default
        if self.finish is not None:
            call_plugin(f"{self.operation}: finishing its attributes", self.finish, values)
        return values


class Node:
    """One computation node; equal by identity.

    The types of `inputs` and `shape` describe a validated network, which most code sees.

    Attributes:
        name: unique in the network, without regard to case.
        kind: of its operation, from the catalog.
        inputs: the nodes it reads, in order; None where one is not connected yet.
        attributes: by the names of the `ComputationNode` record.
        shape: dimensions of one sample, the fastest first; 0: not known yet; None: not validated.
        axis: the dynamic axis, or None for values without samples (parameters, criteria).
        tags: the groups it asks to be in ("feature", "criterion", ...).
        learning_rate: multiplies the learning rate of a parameter; 0 = constant, as all other nodes
            are.
        value: a parameter's (or statistic's) value with `shape` as its shape, or None.
        needs_gradient: whether it depends on a parameter that learns; set by validation.
        location: where it was written.
    """

    inputs: list[Node]

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
        self.connect(inputs)
        self.attributes = attributes or {}
        self.shape = cast(Dims, None)
        self.axis: DynamicAxis | None = None
        self.tags = list(tags)
        self.learning_rate = 0.0
        self.value: np.ndarray | None = None
        self.needs_gradient = False
        self.location = location

    def connect(self, inputs: Sequence[Node | None]) -> None:
        """Set the nodes that this one reads, in order; None where one is missing."""
        self.inputs = cast("list[Node]", list(inputs))

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

    def run(self, what: str, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function of the node's kind, which may be one of another package.

        Args:
            what: it is, for errors.

        Raises:
            OpscopeError: one that the function raises; a RunError about this node for any other.
        """
        try:
            return function(*arguments)
        except OpscopeError:
            raise
        except Exception as error:  # whatever another package's code raises
            message = f"{what} of its kind failed: {type(error).__name__}: {error}"
            raise self.error(message, RunError) from error

    def __repr__(self) -> str:
        inputs = ", ".join(i.name if i is not None else "?" for i in self.inputs)
        return f"<{self.name} = {self.operation} ({inputs})>"
