"""Nodes that no output needs, and components that no node uses."""

from __future__ import annotations

from ....framework.base.errors import FormatError
from ...language.nodes import DESCRIPTOR, INPUT, orphan_names
from ..nnet import Nnet


def orphan_nodes(nnet: Nnet) -> list[str]:
    """Nodes that no output needs, in order."""
    return orphan_names(nnet.nodes)


def remove_orphan_nodes(nnet: Nnet, remove_inputs: bool = False) -> str:
    """Remove the nodes that no output needs; inputs stay unless `remove_inputs`.

    Raises:
        FormatError: no input would be left.
    """
    orphans = set(orphan_nodes(nnet))
    if not remove_inputs:
        orphans -= {node.name for node in nnet.inputs()}
    count = sum(not (n.kind == DESCRIPTOR) for n in nnet.nodes if n.name in orphans)
    remove_nodes(nnet, orphans)
    return f"Removed {count} orphan nodes."


def remove_nodes(nnet: Nnet, names: set[str]) -> None:
    """Remove nodes that nothing else reads.

    Raises:
        FormatError: no input, or no output, would be left.
    """
    kept = [node for node in nnet.nodes if node.name not in names]
    if not any(node.kind == INPUT for node in kept):
        raise FormatError("no input node would be left")
    nnet.nodes = kept
    nnet.check()


def remove_orphan_components(nnet: Nnet) -> str:
    """Remove the components that no node uses."""
    used = {node.component for node in nnet.nodes}
    orphans = [name for name in nnet.components if name not in used]
    for name in orphans:
        del nnet.components[name]
    return f"Removed {len(orphans)} orphan components."
