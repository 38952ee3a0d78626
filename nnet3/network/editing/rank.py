"""Affine components of lower rank: Kaldi's `apply-svd` and `reduce-rank`."""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.editing.low_rank import Parts, checked, is_worthwhile
from ....framework.editing.operations import LowRank
from ...components import Component
from ...components.products.affine import (
    AffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
)
from ...language.descriptor_parse import parse_descriptor
from ...language.nodes import COMPONENT, DESCRIPTOR, INPUT, NetworkNode, input_name
from ..nnet import Nnet
from .names import matching_components
from .orphans import remove_orphan_components, remove_orphan_nodes


def low_rank(nnet: Nnet, edit: LowRank) -> str:
    """Cut the matrices of affine components to a rank, in one component or in two.

    Raises:
        FormatError: a new component has a name that is taken; nothing is cut, and must be.
    """
    edit = checked(edit) if edit.must_match else edit
    halves: dict[str, tuple[Component, Component]] = {}
    dim = edit.rank or -1
    count = 0
    for name, component in matching_components(nnet, edit):
        if not isinstance(component, AffineComponent):
            continue
        rows, columns = component.output_dim, component.input_dim
        # As in Kaldi, with a share the rank that was chosen last counts here.
        if edit.small_stay and min(rows, columns) <= dim or min(rows, columns) < edit.rank:
            continue
        parts = Parts.of(component.linear_params)
        if edit.keep > 0:
            dim = parts.rank_holding(edit.keep)
        if not edit.factors:
            component.linear_params = parts.nearest(dim).astype(np.float32)
            count += 1
        elif is_worthwhile(edit, rows, columns, dim):
            halves[name] = _halves(component, *parts.factors(dim))
    if edit.must_match and not count + len(halves):
        raise FormatError(
            f"none of {', '.join(edit.names)} is an affine component that this makes smaller"
        )
    if not edit.factors:
        return f"Reduced rank of parameters of {count} components."
    _insert_halves(nnet, halves)
    return f"Decomposed {len(halves)} components with SVD dimension {dim}."


def _halves(affine: AffineComponent, b: np.ndarray, a: np.ndarray) -> tuple[Component, Component]:
    """The components that a decomposed affine component becomes, with Kaldi's settings."""
    first = LinearComponent()
    second = NaturalGradientAffineComponent()
    first.params = a.astype(np.float32)
    first.use_natural_gradient = True
    second.linear_params = b.astype(np.float32)
    second.bias_params = affine.bias_params.copy()
    for half, rank_in in ((first, 40), (second, 20)):
        half.rank_in = rank_in
        half.rank_out = 80
        half.update_period = 4
        half.alpha = 4.0
        half.num_samples_history = 2000.0
        half.orthonormal_constraint = 0.0
        half.copy_configs(affine)
    return first, second


def _insert_halves(nnet: Nnet, parts: dict[str, tuple[Component, Component]]) -> None:
    """Put NODE_a and NODE_b where a node's component was decomposed."""
    if not parts:
        return
    for name, halves in parts.items():
        for end, half in zip("ab", halves, strict=True):
            if f"{name}_{end}" in nnet.components:
                raise FormatError(f"there is a component '{name}_{end}' already")
            nnet.components[f"{name}_{end}"] = half
    split = {n.name for n in nnet.nodes if n.kind == COMPONENT and n.component in parts}
    nodes: list[NetworkNode] = []
    for node in nnet.nodes:
        if node.name not in split:
            nodes.append(node)
            continue
        source = nodes.pop()
        first = f"{node.name}_a"
        second = f"{node.name}_b"
        source.name = input_name(first)
        nodes += [source, NetworkNode(first, COMPONENT, component=f"{node.component}_a")]
        feed = NetworkNode(input_name(second), DESCRIPTOR, descriptor=parse_descriptor(first))
        nodes += [feed, NetworkNode(second, COMPONENT, component=f"{node.component}_b")]
    renamed = {name: f"{name}_b" for name in split}
    for node in nodes:
        node.source = renamed.get(node.source, node.source)
        if node.descriptor is not None:
            node.descriptor = node.descriptor.renamed(renamed)
    # Kaldi reads the new nodes after the inputs, which are left where they were.
    nnet.nodes = sorted(nodes, key=lambda node: node.kind != INPUT)
    nnet.check()
    remove_orphan_nodes(nnet)
    remove_orphan_components(nnet)
