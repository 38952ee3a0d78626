"""The tables of kinds and of NDL's functions, and how modules add to them.

A kind is registered with `register`, or in short with `standard`: most kinds have a fixed number of
inputs, few attributes, and an NDL function that takes the inputs in order.
"""

from __future__ import annotations

from typing import Any

from ....framework.base.errors import OpscopeError
from .attributes import AttributeSpec, FileField
from .node import Kind, NdlFunction
from .rules import Rule

KINDS: dict[str, Kind] = {}  # by operation name and alias
NDL: dict[str, NdlFunction] = {}  # by lower-case name


def register(kind: Kind) -> Kind:
    """Add a kind to the catalog; kinds of a program or of other packages register the same way.

    Raises:
        OpscopeError: a name is taken: of an operation, or of a function of NDL.
    """
    names = (kind.operation, *kind.aliases)
    functions = {name.lower(): function for function in kind.ndl for name in function.names}
    for taken in (*(n for n in names if n in KINDS), *(n for n in functions if n in NDL)):
        raise OpscopeError(f"the node kind {taken!r} is there already")
    KINDS.update(dict.fromkeys(names, kind))
    NDL.update(functions)
    return kind


def unregister(operation: str) -> None:
    """Forget a kind, to register it again."""
    kind = KINDS.get(operation)
    if kind is not None:
        for name in (kind.operation, *kind.aliases):
            KINDS.pop(name, None)
        for function in kind.ndl:
            for name in function.names:
                NDL.pop(name.lower(), None)


# The state of a node's random numbers, and its fields in model files.
RANDOM_STATE = {
    "rngSeed": AttributeSpec("int", 0, doc="of the node's random numbers"),
    "rngOffset": AttributeSpec("int", 0, doc="how many were drawn, as a model keeps it"),
}
RANDOM_FIELDS = (FileField("rngSeed", "uint64", 17, 0), FileField("rngOffset", "uint64", 16, 0))


def standard(
    operation: str,
    inputs: int | tuple[int, int | None],
    rule: Rule,
    *,
    ndl: tuple[str, ...] | None = (),
    reads: str = "",
    **settings: Any,
) -> Kind:
    """Register a kind whose NDL call, where it has one, takes all inputs in order.

    Args:
        ndl: NDL's short names beside the operation name; None: NDL cannot call it.
        reads: names of the inputs, between blanks.
        settings: further fields of the `Kind`.
    """
    low, high = (inputs, inputs) if isinstance(inputs, int) else inputs
    functions = ()
    if ndl is not None:
        counts = () if high is None else tuple(range(low, high + 1))
        functions = (NdlFunction((operation, *ndl), operation, counts, at_least=low),)
    names = tuple(reads.split())
    return register(Kind(operation, (low, high), rule, ndl=functions, reads=names, **settings))
