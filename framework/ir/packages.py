"""The packages that a net's operators come from: saved with it, and named where one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..base.options.plugins import entry_points
from .op_list import OpList
from .registry import ENTRY_POINTS, REGISTERED, OperatorDef

_KEY = "opscope.operator."
"""Begins a key of a net's metadata; the type of an operator of another package follows."""


def package_of(entry: OperatorDef) -> str:
    """Name and version of the package that brings an operator, or its module; "" for our own."""
    top = entry.module.partition(".")[0]
    if top in ("", __name__.partition(".")[0]):
        return ""
    for point in entry_points(group=ENTRY_POINTS):
        if point.dist is not None and point.module.partition(".")[0] == top:
            return f"{point.dist.name} {point.dist.version}"
    return entry.module


def with_packages(net: OpList) -> OpList:
    """A copy of a net whose metadata name the packages that its other operators come from."""
    out = net.copy()
    out.metadata = {key: text for key, text in net.metadata.items() if not key.startswith(_KEY)}
    for op_type in sorted(set(_types(net))):
        entry = REGISTERED.get(op_type)
        # Types of front ends are no operators, and who saves a net again may lack the package.
        known = net.metadata.get(_KEY + op_type, "") if entry is None else package_of(entry)
        if known:
            out.metadata[_KEY + op_type] = known
    return out


def missing_packages(metadata: Mapping[str, str]) -> dict[str, str]:
    """Types of operators that are not there -> the packages that brought them."""
    named = {key[len(_KEY) :]: text for key, text in metadata.items() if key.startswith(_KEY)}
    return {op_type: text for op_type, text in named.items() if op_type not in REGISTERED}


def _types(net: OpList) -> Iterator[str]:
    """Types of operators, those in nets inside too."""
    waiting = [net]
    while waiting:
        one = waiting.pop()
        waiting += [step.net for step in one.steps]
        waiting += [step.child_net for step in one.steps if step.child_net is not None]
        for op in one.ops:
            yield op.type
            waiting += [inner for _, inner in op.inner_nets()]
