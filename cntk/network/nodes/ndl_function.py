"""How a call in NDL becomes a node: its parameters, its options, and the attributes they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .attributes import AttributeSpec


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
