"""Short makers of kinds: most have a fixed number of inputs, no attributes, and the same rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..nodes.kind import AttributeSpec, Kind, NdlFunction, register
from ..nodes.rules import Rule

# State of a node's random numbers, which model files keep.
RANDOM_STATE = {"rngSeed": AttributeSpec("int", 0), "rngOffset": AttributeSpec("int", 0)}


def standard(
    operation: str,
    inputs: int | tuple[int, int | None],
    rule: Rule,
    *,
    aliases: tuple[str, ...] = (),
    ndl: tuple[str, ...] | None = (),
    attributes: Mapping[str, AttributeSpec] | None = None,
    finish: Callable[[dict[str, Any]], None] | None = None,
    **flags: Any,
) -> Kind:
    """Register a kind whose NDL call, where it has one, takes all inputs in order.

    `ndl` holds NDL's short names beside the operation name; None: NDL cannot call it.
    """
    low, high = (inputs, inputs) if isinstance(inputs, int) else inputs
    functions = ()
    if ndl is not None:
        names = (operation, *ndl)
        counts = () if high is None else tuple(range(low, high + 1))
        functions = (NdlFunction(names, operation, counts, at_least=low),)
    return register(
        Kind(
            operation,
            (low, high),
            rule,
            attributes or {},
            aliases=aliases,
            ndl=functions,
            finish=finish,
            **flags,
        )
    )
