"""Which components and nodes the names and patterns of an edit mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ....framework.base.errors import FormatError, nearest
from ....framework.editing.operations import Edit
from ....framework.editing.patterns import name_matches, no_match
from ...language.nodes import COMPONENT, NetworkNode, input_name, warn
from ..nnet import Nnet


def matching_components(nnet: Nnet, edit: Any) -> Iterator[tuple[str, Any]]:
    """Components whose names match the patterns of an edit; each once, in the network's order.

    Raises:
        FormatError: a pattern matches none, and must.
    """
    check_patterns(edit, edit.names, nnet.components, "component")
    for name in list(nnet.components):
        if any(name_matches(name, pattern) for pattern in edit.names):
            yield name, nnet.components[name]


def check_patterns(edit: Edit, patterns: Iterable[str], names: Iterable[str], what: str) -> None:
    """Refuse patterns that match nothing, or warn of them.

    Raises:
        FormatError: one matches nothing, and must match.
    """
    known = list(names)
    for pattern in patterns:
        if not any(name_matches(name, pattern) for name in known):
            if edit.must_match:
                raise FormatError(no_match(pattern, known, what))
            warn(f"name={pattern}: no {what} is called so{nearest(pattern, known)}")


def shown_nodes(nnet: Nnet) -> list[NetworkNode]:
    """The nodes but those that feed a component node, which go with it."""
    fed = {input_name(node.name) for node in nnet.nodes if node.kind == COMPONENT}
    return [node for node in nnet.nodes if node.name not in fed]


def shown_node(nnet: Nnet, name: str) -> NetworkNode:
    """The node of a name, which is none of those.

    Raises:
        FormatError: there is none, or it only feeds a component node.
    """
    node = nnet.node(name)
    if node not in shown_nodes(nnet):
        owner = name.removesuffix("_input")
        raise FormatError(f"{name!r} is what component-node {owner!r} reads, and goes with it")
    return node
