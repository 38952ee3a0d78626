"""Edit directives: the changes of the options `--edits` and `--edits-config` of programs.

    apply_edits(nnet, split_lines("remove-output-nodes name=output-xent\\nremove-orphans"))

Source: `ReadEditConfig` in Kaldi's `nnet3/nnet-utils.cc`; its comment lists the directives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ..components import Component, UpdatableComponent
from ..components.affine import (
    AffineComponent,
    FixedAffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
)
from ..components.dropout import (
    DropoutComponent,
    DropoutMaskComponent,
    GeneralDropoutComponent,
)
from ..language.config import ConfigLine, is_valid_name, split_lines
from ..language.descriptor_parse import parse_descriptor
from ..language.nodes import COMPONENT, DESCRIPTOR, INPUT, NetworkNode, input_name, orphan_names
from .nnet import Nnet

_DROPOUT: Final = (DropoutComponent, DropoutMaskComponent, GeneralDropoutComponent)


def apply_edits(nnet: Nnet, lines: Sequence[ConfigLine]) -> list[str]:
    """Carry out edit directives one after the other.

    Args:
        nnet: is changed; untouched if there is an error.
        lines: the directives.

    Returns:
        What was done, one sentence a directive.

    Raises:
        FormatError: an unknown directive, or one with missing or unknown values.
        OpscopeError: the rest would be no network.
    """
    edited, done = nnet.copy(), []
    for line in lines:
        directive = DIRECTIVES.get(line.first_token)
        if directive is None:
            hint = nearest(line.first_token, DIRECTIVES)
            raise line.error(f"{line.first_token!r} is no edit directive{hint}")
        try:
            done.append(directive(edited, line))
        except OpscopeError as error:
            raise (error if line.text in str(error) else line.error(str(error))) from error
        line.check_unused()
    nnet.nodes, nnet.components = edited.nodes, edited.components
    return done


def parse_edits(text: str) -> list[ConfigLine]:
    """The directives of the option `--edits`, with `;` between them."""
    return split_lines(text.replace(";", "\n"), "--edits")


def name_matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern, in which `*` stands for any number of characters."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    if not name.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:  # the first place of each part leaves most for those behind it
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(name) - at >= len(rest[-1]) and name.endswith(rest[-1])


def _matching(nnet: Nnet, line: ConfigLine) -> Iterator[tuple[str, Any]]:
    """Components whose names match the line's `name=`, by default all."""
    pattern = line.get("name")
    for name, component in list(nnet.components.items()):
        if name_matches(name, "*" if pattern is None else pattern):
            yield name, component


def _required_float(line: ConfigLine, key: str) -> float:
    value = line.get_float(key)
    if value is None:
        raise line.error(f"{key}= is missing")
    return float(np.float32(value))


def _convert_to_fixed_affine(nnet: Nnet, line: ConfigLine) -> str:
    count = 0
    for name, component in _matching(nnet, line):
        if isinstance(component, AffineComponent):
            nnet.components[name] = FixedAffineComponent.from_affine(component)
            count += 1
    return f"Converted {count} components to FixedAffineComponent."


def _set_learning_rate(nnet: Nnet, line: ConfigLine) -> str:
    rate, count = _required_float(line, "learning-rate"), 0
    for _, component in _matching(nnet, line):
        if isinstance(component, UpdatableComponent):
            component.set_learning_rate(rate)
            count += 1
    return f"Set learning rates for {count} components."


def _set_learning_rate_factor(nnet: Nnet, line: ConfigLine) -> str:
    factor, count = _required_float(line, "learning-rate-factor"), 0
    for _, component in _matching(nnet, line):
        if isinstance(component, UpdatableComponent):
            component.learning_rate_factor = factor
            count += 1
    return f"Set learning rate factors for {count} components."


def _set_dropout_proportion(nnet: Nnet, line: ConfigLine) -> str:
    proportion, count = _required_float(line, "proportion"), 0
    for _, component in _matching(nnet, line):
        if isinstance(component, _DROPOUT):
            component.dropout_proportion = proportion
            count += 1
    return f"Set dropout proportions for {count} components."


def _rename_node(nnet: Nnet, line: ConfigLine) -> str:
    old, new = line.require("old-name"), line.require("new-name")
    node = nnet.node(old)
    if not is_valid_name(new):
        raise line.error(f"{new!r} is not a valid name")
    names = {old: new}
    if node.kind == COMPONENT:
        names[input_name(old)] = input_name(new)
    for name in names.values():
        if nnet.has_node(name):
            raise line.error(f"there is a node {name!r} already")
    for node in nnet.nodes:
        node.name = names.get(node.name, node.name)
        node.source = names.get(node.source, node.source)
        if node.descriptor is not None:
            node.descriptor = node.descriptor.renamed(names)
    return f"Renamed node {old} to {new}."


def _remove_output_nodes(nnet: Nnet, line: ConfigLine) -> str:
    pattern = line.require("name")
    outputs = [node.name for node in nnet.outputs()]
    removed = [name for name in outputs if name_matches(name, pattern)]
    if len(removed) == len(outputs):
        raise line.error("this would remove all outputs")
    _remove_nodes(nnet, set(removed))
    return f"Removed {len(removed)} output nodes."


def _remove_orphan_nodes(nnet: Nnet, line: ConfigLine) -> str:
    return remove_orphan_nodes(nnet, bool(line.get_bool("remove-orphan-inputs")))


def _remove_orphan_components(nnet: Nnet, line: ConfigLine) -> str:
    return remove_orphan_components(nnet)


def _remove_orphans(nnet: Nnet, line: ConfigLine) -> str:
    nodes = _remove_orphan_nodes(nnet, line)
    return f"{nodes} {remove_orphan_components(nnet)}"


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
    _remove_nodes(nnet, orphans)
    return f"Removed {count} orphan nodes."


def _remove_nodes(nnet: Nnet, names: set[str]) -> None:
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


def _svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, singular values (falling), V^T, in float64."""
    return np.linalg.svd(matrix.astype(np.float64), full_matrices=False)


def _reduce_rank(nnet: Nnet, line: ConfigLine) -> str:
    line.require("name")
    rank, count = line.get_int("rank"), 0
    if rank is None or rank <= 0:
        raise line.error("rank= must be there, and positive")
    for _, component in _matching(nnet, line):
        if not isinstance(component, AffineComponent):
            continue
        if min(component.input_dim, component.output_dim) <= rank:
            continue
        u, s, vt = _svd(component.linear_params)
        component.linear_params = ((u[:, :rank] * s[:rank]) @ vt[:rank]).astype(np.float32)
        count += 1
    return f"Reduced rank of parameters of {count} components."


def _apply_svd(nnet: Nnet, line: ConfigLine) -> str:
    line.require("name")
    dim = line.get_int("bottleneck-dim")
    energy = line.get_float("energy-threshold")
    shrinkage = line.get_float("shrinkage-threshold")
    dim, energy = -1 if dim is None else dim, -1.0 if energy is None else energy
    shrinkage = 1.0 if shrinkage is None else shrinkage
    if dim <= 0 and energy <= 0:
        raise line.error("bottleneck-dim= or energy-threshold= is missing")
    if energy >= 1:
        raise line.error("energy-threshold must be below 1")
    parts: dict[str, tuple[Component, Component]] = {}
    for name, component in _matching(nnet, line):
        if not isinstance(component, AffineComponent):
            continue
        rows, columns = component.output_dim, component.input_dim
        # As in Kaldi, with energy-threshold the dimension found last counts here.
        if min(rows, columns) <= dim:
            continue
        u, s, vt = _svd(component.linear_params)
        if energy > 0:
            reached = np.cumsum(np.square(s)) >= energy * np.square(s).sum()
            dim = int(np.argmax(reached)) + 1
        if dim * (rows + columns) / (rows * columns) > shrinkage:
            continue
        root = np.sqrt(s[:dim])
        parts[name] = _halves(component, u[:, :dim] * root, vt[:dim] * root[:, None])
    _insert_halves(nnet, line, parts)
    return f"Decomposed {len(parts)} components with SVD dimension {dim}."


def _halves(affine: AffineComponent, b: np.ndarray, a: np.ndarray) -> tuple[Component, Component]:
    """The components that a decomposed affine component becomes, with Kaldi's settings."""
    first, second = LinearComponent(), NaturalGradientAffineComponent()
    first.params = a.astype(np.float32)
    first.use_natural_gradient = True
    second.linear_params, second.bias_params = b.astype(np.float32), affine.bias_params.copy()
    for half, rank_in in ((first, 40), (second, 20)):
        half.rank_in, half.rank_out, half.update_period = rank_in, 80, 4
        half.alpha, half.num_samples_history = 4.0, 2000.0
        half.orthonormal_constraint = 0.0
        half.copy_configs(affine)
    return first, second


def _insert_halves(
    nnet: Nnet, line: ConfigLine, parts: dict[str, tuple[Component, Component]]
) -> None:
    """Put NODE_a and NODE_b where a node's component was decomposed."""
    if not parts:
        return
    for name, halves in parts.items():
        for end, half in zip("ab", halves, strict=True):
            if f"{name}_{end}" in nnet.components:
                raise line.error(f"there is a component '{name}_{end}' already")
            nnet.components[f"{name}_{end}"] = half
    split = {n.name for n in nnet.nodes if n.kind == COMPONENT and n.component in parts}
    nodes: list[NetworkNode] = []
    for node in nnet.nodes:
        if node.name not in split:
            nodes.append(node)
            continue
        source, first, second = nodes.pop(), f"{node.name}_a", f"{node.name}_b"
        source.name = input_name(first)
        nodes += [source, NetworkNode(first, COMPONENT, component=f"{node.component}_a")]
        feed = NetworkNode(input_name(second), DESCRIPTOR, descriptor=parse_descriptor(first))
        nodes += [feed, NetworkNode(second, COMPONENT, component=f"{node.component}_b")]
    renamed = {name: f"{name}_b" for name in split}
    for node in nodes:
        node.source = renamed.get(node.source, node.source)
        if node.descriptor is not None:
            node.descriptor = node.descriptor.renamed(renamed)
    # Kaldi reads the new nodes behind the inputs, which are left where they were.
    nnet.nodes = sorted(nodes, key=lambda node: node.kind != INPUT)
    nnet.check()
    remove_orphan_nodes(nnet)
    remove_orphan_components(nnet)


DIRECTIVES: Final[dict[str, Callable[[Nnet, ConfigLine], str]]] = {
    "convert-to-fixed-affine": _convert_to_fixed_affine,
    "remove-orphan-nodes": _remove_orphan_nodes,
    "remove-orphan-components": _remove_orphan_components,
    "remove-orphans": _remove_orphans,
    "set-learning-rate": _set_learning_rate,
    "set-learning-rate-factor": _set_learning_rate_factor,
    "rename-node": _rename_node,
    "remove-output-nodes": _remove_output_nodes,
    "set-dropout-proportion": _set_dropout_proportion,
    "apply-svd": _apply_svd,
    "reduce-rank": _reduce_rank,
}
