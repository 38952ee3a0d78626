"""The table of edits that an `Nnet` carries out, and the simple ones: names, rates, dropout."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....framework.base.errors import FormatError, ShapeError, nearest
from ....framework.editing import operations as edits
from ....framework.editing.operations import Edit, Performers, perform_by
from ....framework.editing.patterns import renamed_pairs
from ...components import UpdatableComponent
from ...components.dropout import (
    DropoutComponent,
    DropoutMaskComponent,
    GeneralDropoutComponent,
)
from ...components.products.affine import AffineComponent, FixedAffineComponent
from ...language.config import is_valid_name
from ...language.nodes import COMPONENT, DESCRIPTOR, input_name
from ..nnet import Nnet
from . import structure
from .names import matching_components, shown_node, shown_nodes
from .orphans import remove_orphan_components, remove_orphan_nodes
from .output import new_output
from .rank import low_rank

_DROPOUT: Final = (DropoutComponent, DropoutMaskComponent, GeneralDropoutComponent)
_FIRST_RATE: Final = 0.001  # of a component whose config line says nothing


def perform(nnet: Nnet, edit: Edit) -> str:
    """Carry out an edit; what was done, in the words of Kaldi's log.

    Args:
        nnet: is changed, also where an error comes later: edit a copy.

    Raises:
        VariableError: networks of this kind cannot do it.
        OpscopeError: it does not fit the network.
    """
    return perform_by(_TABLE, _REASONS, nnet, edit)


def _rename(nnet: Nnet, edit: edits.Rename) -> str:
    """A node's component keeps its own name."""
    pairs = [(edit.old, edit.new)]
    if "*" in edit.old + edit.new:
        known = [node.name for node in shown_nodes(nnet)]
        pairs = renamed_pairs(known, edit.old, edit.new, "node")
    names: dict[str, str] = {}
    for old, new in pairs:
        node = nnet.node(old)
        if not is_valid_name(new):
            raise FormatError(f"{new!r} is not a valid name")
        if node.kind == DESCRIPTOR and node not in nnet.outputs():
            if edit.must_match:
                shown_node(nnet, old)
            if nnet.has_node(new):
                raise FormatError(f"there is a node {new!r} already")
            continue  # Kaldi's files do not have its name: its component node has the same
        names[old] = new
        if node.kind == COMPONENT:
            names[input_name(old)] = input_name(new)
    for name in names.values():
        if nnet.has_node(name) and name not in names:
            raise FormatError(f"there is a node {name!r} already")
    if len(set(names.values())) < len(names):
        raise FormatError(f"{edit.old!r} to {edit.new!r} gives two nodes one name")
    for node in nnet.nodes:
        node.name = names.get(node.name, node.name)
        node.source = names.get(node.source, node.source)
        if node.descriptor is not None:
            node.descriptor = node.descriptor.renamed(names)
    if len(pairs) > 1:
        return f"Renamed {len(pairs)} nodes {edit.old} to {edit.new}."
    return f"Renamed node {pairs[0][0]} to {pairs[0][1]}."


def _remove_orphans(nnet: Nnet, edit: edits.RemoveOrphans) -> str:
    done = [remove_orphan_nodes(nnet, edit.inputs)] if edit.nodes else []
    return " ".join([*done, *([remove_orphan_components(nnet)] if edit.parameters else [])])


def _set_rate(nnet: Nnet, edit: edits.SetRate) -> str:
    count = 0
    for component in _updatable(nnet, edit):
        component.set_learning_rate(edit.rate)
        count += 1
    return f"Set learning rates for {count} components."


def _set_factor(nnet: Nnet, edit: edits.SetFactor) -> str:
    """The present learning rate stays."""
    if edit.below:
        raise FormatError("rates below a node are for CNTK's networks; name components here")
    count = 0
    for component in _updatable(nnet, edit):
        component.learning_rate_factor = edit.factor
        count += 1
    return f"Set learning rate factors for {count} components."


def _updatable(nnet: Nnet, edit: Edit) -> list[UpdatableComponent]:
    matching = matching_components(nnet, edit)
    chosen = [component for _, component in matching if isinstance(component, UpdatableComponent)]
    if not chosen and edit.must_match:
        raise FormatError("none of the components that are meant has parameters to train")
    return chosen


def _freeze(nnet: Nnet, edit: edits.Freeze) -> str:
    if edit.fixed:
        return _fix(nnet, edit)
    components = _updatable(nnet, edit)
    for component in components:
        component.learning_rate_factor = 0.0
        component.learning_rate = 0.0
    return f"Set learning rate factors to 0 for {len(components)} components."


def _fix(nnet: Nnet, edit: edits.Freeze) -> str:
    count = 0
    for name, component in matching_components(nnet, edit):
        if isinstance(component, AffineComponent):
            nnet.components[name] = FixedAffineComponent.from_affine(component)
            count += 1
    return f"Converted {count} components to FixedAffineComponent."


def _unfreeze(nnet: Nnet, edit: edits.Unfreeze) -> str:
    """The rate is taken from the components that are trained."""
    rates = [
        component.learning_rate / component.learning_rate_factor
        for component in nnet.components.values()
        if isinstance(component, UpdatableComponent)
        and component.learning_rate * component.learning_rate_factor > 0
    ]
    components = _updatable(nnet, edit)
    for component in components:
        component.learning_rate_factor = 1.0
        component.set_learning_rate(max(rates, default=_FIRST_RATE))
    return f"Set learning rate factors to 1 for {len(components)} components."


def _set_dropout(nnet: Nnet, edit: edits.SetDropout) -> str:
    if not 0 <= edit.proportion <= 1:
        raise FormatError(f"proportion={edit.proportion:g} must be from 0 to 1")
    count = 0
    for _, component in matching_components(nnet, edit):
        if isinstance(component, _DROPOUT):
            component.dropout_proportion = edit.proportion
            count += 1
    if not count and edit.must_match:
        raise FormatError("none of the components that are meant has a dropout proportion")
    return f"Set dropout proportions for {count} components."


def _set_value(nnet: Nnet, edit: edits.SetValue) -> str:
    known = nnet.arrays()
    owner, _, attribute = edit.name.rpartition("/")
    if edit.name not in known or owner not in nnet.components:
        raise FormatError(
            f"there is no array COMPONENT/NAME {edit.name!r}{nearest(edit.name, known)}"
        )
    old = known[edit.name]
    if edit.value.shape != old.shape:
        raise ShapeError(f"{edit.name!r} is {list(old.shape)}, not {list(edit.value.shape)}")
    setattr(nnet.components[owner], attribute, np.array(edit.value, old.dtype, order="C"))
    return f"Set {old.size} numbers of {edit.name}."


_TABLE: Final[Performers] = {
    edits.Rename: _rename,
    edits.Remove: structure.remove,
    edits.RemoveOrphans: _remove_orphans,
    edits.Replace: structure.replace,
    edits.Insert: structure.insert,
    edits.Connect: structure.connect,
    edits.Cut: structure.cut,
    edits.NewOutput: new_output,
    edits.Freeze: _freeze,
    edits.Unfreeze: _unfreeze,
    edits.SetRate: _set_rate,
    edits.SetFactor: _set_factor,
    edits.SetDropout: _set_dropout,
    edits.LowRank: low_rank,
    edits.SetValue: _set_value,
}
_REASONS: Final = {
    edits.SetRole: "nodes of nnet3 have no roles; outputs are nodes of their own, see cut",
    edits.SetProperty: "it is a property of CNTK's nodes",
    edits.Copy: "copies of nodes are for CNTK's networks; insert makes new ones here",
}
