"""The table of edits that a network of CNTK's carries out, and the simple ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....framework.base.errors import AttributeTypeError, ShapeError, VariableError
from ....framework.editing import operations as edits
from ....framework.editing.operations import Edit, Performers, perform_by
from ....framework.editing.patterns import renamed_pairs
from ..graph import GROUPS
from ..network import Network
from ..nodes.node import Node
from . import structure
from .names import nodes_of, parameters_of
from .output import new_output
from .rank import low_rank


def perform(network: Network, edit: Edit) -> str:
    """Carry out an edit; what was done, in one sentence. Validate the network afterwards.

    Args:
        network: is changed, also where an error comes later: edit a copy.

    Raises:
        VariableError: networks of this kind cannot do it.
        OpscopeError: it does not fit the network.
    """
    return perform_by(_TABLE, _REASONS, network, edit)


def _rename(network: Network, edit: edits.Rename) -> str:
    if edit.same_place or "*" not in edit.old + edit.new:
        pairs = network.copied_names(edit.old, network, edit.new)
    else:
        names = [node.name for node in network.sorted_nodes()]
        renames = renamed_pairs(names, edit.old, edit.new, "node")
        pairs = [(network.find(old), new) for old, new in renames]
    network.rename_all(pairs)
    return f"Renamed {len(pairs)} nodes {edit.old} to {edit.new}."


def _set_factor(network: Network, edit: edits.SetFactor) -> str:
    """Of other nodes than parameters a rate has no effect; MEL may name such ones."""
    nodes = nodes_of(network, edit, edit.names)
    if edit.below:
        nodes = network.below(nodes)
    named = {network.find(name) for name in edit.names if name in network}
    if edit.below or edit.must_match:
        named.clear()
    nodes = [node for node in nodes if node.is_parameter or node in named]
    if not nodes and edit.must_match:
        raise VariableError(f"there is no parameter among {', '.join(edit.names)}")
    for node in nodes:
        node.learning_rate = float(edit.factor)
    return f"Set factors of learning rates to {edit.factor:g} for {len(nodes)} parameters."


def _freeze(network: Network, edit: edits.Freeze) -> str:
    """Statistics of batch normalization are used as they are."""
    named = {network.find(name) for name in edit.names if name in network}
    nodes = nodes_of(network, edit, edit.names)
    chosen = [node for node in nodes if node in named or _can_freeze(node)]
    if not chosen and edit.must_match:
        raise VariableError(f"none of {', '.join(edit.names)} is a parameter")
    for node in chosen:
        network.set_property(node, "freezeParameters", True)
    return f"Froze {len(chosen)} parameters."


def _can_freeze(node: Node) -> bool:
    return node.is_parameter or node.operation == "BatchNormalization"


def _unfreeze(network: Network, edit: edits.Unfreeze) -> str:
    chosen = parameters_of(network, edit, edit.names)
    for node in chosen:
        node.learning_rate = 1.0
    return f"Set factors of learning rates to 1 for {len(chosen)} parameters."


def _set_role(network: Network, edit: edits.SetRole) -> str:
    if edit.role not in GROUPS:
        raise AttributeTypeError(f"no role is called {edit.role!r}; there are {', '.join(GROUPS)}")
    nodes = nodes_of(network, edit, edit.names)
    for node in nodes:
        network.set_property(node, edit.role, edit.on)
    done = "Put {} nodes into {}." if edit.on else "Took {} nodes out of {}."
    return done.format(len(nodes), edit.role)


def _set_property(network: Network, edit: edits.SetProperty) -> str:
    nodes = nodes_of(network, edit, edit.names)
    for node in nodes:
        if edit.below:
            network.set_property_below(node, edit.property, edit.value)
        else:
            network.set_property(node, edit.property, edit.value)
    return f"Set {edit.property} of {len(nodes)} nodes."


def _copy(network: Network, edit: edits.Copy) -> str:
    """By the rules of MEL's CopyNode, CopySubTree and CopyInputs."""
    source = network if edit.source is None else edit.source
    if edit.below:
        roots = nodes_of(source, edit, [edit.old])
        count = sum(len(network.copy_subtree(root, edit.new, edit.links)) for root in roots)
        return f"Copied {count} nodes to {edit.new}*."
    pairs = source.copied_names(edit.old, network, edit.new)
    if not edit.content:
        for node, name in pairs:
            network.copy_node(node, name, links=True, content=False)
    elif len({id(node) for node, _ in pairs}) == len(pairs):
        network.copy_nodes(pairs, edit.links)
    else:
        for node, name in pairs:
            network.copy_nodes([(node, name)], edit.links)
    return f"Copied {len(pairs)} nodes {edit.old} to {edit.new}."


def _set_value(network: Network, edit: edits.SetValue) -> str:
    node = network.find(edit.name)
    if edit.value.ndim != 2 and node.shape and edit.value.shape != node.shape:
        raise ShapeError(
            f"{edit.name} is {list(node.shape)} (the fastest axis first), not"
            f" {list(edit.value.shape)}"
        )
    dtype = np.float64 if network.precision == "double" else np.float32
    value = np.asarray(edit.value)
    network.revise(node, value if value.dtype == np.float64 else value.astype(dtype))
    return f"Set {value.size} numbers of {edit.name}."


_TABLE: Final[Performers] = {
    edits.Rename: _rename,
    edits.Remove: structure.remove,
    edits.RemoveOrphans: structure.remove_orphans,
    edits.Replace: structure.replace,
    edits.Insert: structure.insert,
    edits.Connect: structure.connect,
    edits.Cut: structure.cut,
    edits.NewOutput: new_output,
    edits.Freeze: _freeze,
    edits.Unfreeze: _unfreeze,
    edits.SetFactor: _set_factor,
    edits.LowRank: low_rank,
    edits.SetRole: _set_role,
    edits.SetProperty: _set_property,
    edits.Copy: _copy,
    edits.SetValue: _set_value,
}
_REASONS: Final = {
    edits.SetRate: "CNTK's configs say learning rates (learningRatesPerMB); its networks hold their"
    " factors alone",
    edits.SetDropout: "CNTK's configs say it (dropoutRate); its networks do not hold it",
}
