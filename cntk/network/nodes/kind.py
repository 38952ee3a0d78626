"""What a kind of node is: its inputs, its attributes, its names in NDL, and its shape rule.

The kinds themselves stand in `kinds/`, one module a family; `catalogue` finds them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....framework.base.errors import AttributeTypeError, nearest

if TYPE_CHECKING:
    from .node import Node

Dims = tuple[int, ...]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()  # the default of an attribute that must be given


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number) or number != int(number):
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        lower = value.lower()
        if lower in ("true", "1", "yes", "t"):
            return True
        if lower in ("false", "0", "no", "f", ""):
            return False
        raise ValueError
    return bool(value)


def _items(value: Any, convert: Callable[[Any], Any]) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return (convert(value),)
    return tuple(convert(item) for item in value)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "bool": _boolean,
    "int": _integer,
    "float": float,
    "string": str,
    "dims": lambda value: _items(value, _integer),
    "bools": lambda value: _items(value, _boolean),
    "ints": lambda value: _items(value, _integer),
    "any": lambda value: value,
}


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute as a `ComputationNode` record names it.

    `type` is bool, int, float, string, dims, bools, ints or any. A single number does for dims,
    bools and ints. `choices` are compared without regard to case.
    """

    type: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()

    def convert(self, value: Any) -> Any:
        """`value` as this attribute holds it.

        Raises:
            ValueError: it is of another type or none of the choices; the text says what is wanted.
        """
        try:
            converted = _CONVERT[self.type](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a value of type {self.type} is needed, not {value!r}") from error
        if self.type == "dims" and any(d < 0 for d in converted):
            raise ValueError(f"dimensions are not negative: {value!r}")
        if self.choices:
            for choice in self.choices:
                if choice.lower() == converted.lower():
                    return choice
            raise ValueError(f"one of {', '.join(self.choices)} is needed, not {value!r}")
        return converted


@dataclass(frozen=True, eq=False)
class NdlFunction:
    """How NDL calls a kind.

    A call has positional parameters, some of which are nodes and the others values, then options
    `name=value`. `counts` holds the allowed numbers of positional parameters (empty: any);
    `nodes(positional)` gives the range of those that are nodes, told for each positional parameter
    whether it is a number. `attributes(values, options)` makes the kind's attributes from
    the other positional parameters (numbers, strings, or lists of them where the text has an array)
    and the options. `options` holds each option's type and default; a call may always have `tag`.
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
    """A kind of node: CNTK's operation name, numbers of inputs, attributes, and the shape rule.

    `rule(node, final)` sets the node's `shape` and `axis` from its inputs, and infers unknown
    dimensions of parameters among them; in the last pass (`final`) it raises what is wrong.
    `delay` is the direction in time in which a loop through this node is broken: 1 for the past,
    -1 for the future; `direction` tells it from the attributes where they decide. `whole` marks
    nodes that look at all time steps at once, which no loop may contain. `precompute`: the value is
    computed from the whole data before training.
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
    source: str = ""

    @property
    def can_delay(self) -> bool:
        """Whether a loop may run through such a node: its inputs may be defined after it."""
        return self.delay != 0 or self.direction is not None

    def delay_of(self, attributes: Mapping[str, Any]) -> int:
        """`delay` of a node with these attributes."""
        return self.delay if self.direction is None else self.direction(attributes)

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes, those of `given` converted, the others with their defaults.

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
            self.finish(values)
        return values


KINDS: dict[str, Kind] = {}  # by operation name and alias
NDL: dict[str, NdlFunction] = {}  # by lower-case name


def register(kind: Kind) -> Kind:
    """Add a kind to the catalogue; user node types register the same way."""
    for name in (kind.operation, *kind.aliases):
        if name in KINDS:
            raise ValueError(f"{name} is registered already")
        KINDS[name] = kind
    for function in kind.ndl:
        for name in function.names:
            NDL[name.lower()] = function
    return kind
