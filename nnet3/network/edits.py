"""Edit directives: the changes of the options `--edits` and `--edits-config` of programs.

    apply_edits(nnet, split_lines("remove-output-nodes name=output-xent\\nremove-orphans"))

Source: `ReadEditConfig` in Kaldi's `nnet3/nnet-utils.cc`; its comment lists the directives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, check_kind, nearest
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
from ..language.config import ConfigLine, Key, is_valid_name, read_keys, split_lines
from ..language.descriptor_parse import parse_descriptor
from ..language.nodes import (
    COMPONENT,
    DESCRIPTOR,
    INPUT,
    NetworkNode,
    input_name,
    orphan_names,
    warn,
)
from .nnet import Nnet

_DROPOUT: Final = (DropoutComponent, DropoutMaskComponent, GeneralDropoutComponent)
Run = Callable[[Nnet, SimpleNamespace], str]
"""Carries out a directive with the values of its keys, and tells in one sentence what was done."""


@dataclass(frozen=True)
class Directive:
    """A kind of edit directive: its keys, and what carries it out."""

    keys: tuple[Key, ...]
    run: Run

    @property
    def doc(self) -> str:
        """What it does."""
        return " ".join((self.run.__doc__ or "").split())


DIRECTIVES: Final[dict[str, Directive]] = {}
_MATCHING: Final = "names of components, where `*` stands for any characters"
_NAMES: Final = Key("name", "str", None, "*", _MATCHING)


def directive(word: str, *keys: Key) -> Callable[[Run], Run]:
    """Register the decorated function as the directive `word`; its docstring says what it does."""

    def register(run: Run) -> Run:
        DIRECTIVES[word] = Directive(keys, run)
        return run

    return register


def directive_of(word: str) -> Directive:
    """The directive that a line begins with.

    Raises:
        FormatError: there is none; the message has the nearest ones.
    """
    if word not in DIRECTIVES:
        raise FormatError(f"{word!r} is no edit directive{nearest(word, DIRECTIVES)}")
    return DIRECTIVES[word]


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
    check_kind(nnet, Nnet, "the network")
    check_kind(lines, list | tuple, "the directives (see parse_edits)")
    edited, done = nnet.copy(), []
    for line in lines:
        try:
            found = directive_of(line.first_token)
            values = read_keys(line, found.keys)
            line.check_unused([key.name for key in found.keys])
            done.append(found.run(edited, values))
        except OpscopeError as error:
            raise (error if line.is_told_by(error) else line.error(str(error))) from error
    nnet.nodes, nnet.components = edited.nodes, edited.components
    return done


def parse_edits(text: str) -> list[ConfigLine]:
    """The directives of the option `--edits`, with `;` between them."""
    check_kind(text, str, "the text of edits")
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


def _matching(nnet: Nnet, pattern: str | None) -> Iterator[tuple[str, Any]]:
    """Components whose names match the pattern, by default all; where none does, it is warned."""
    found = [name for name in nnet.components if name_matches(name, pattern or "*")]
    if not found:
        warn(f"name={pattern}: no component is called so{nearest(pattern or '', nnet.components)}")
    for name in found:
        yield name, nnet.components[name]


@directive("convert-to-fixed-affine", _NAMES)
def _convert_to_fixed_affine(nnet: Nnet, o: SimpleNamespace) -> str:
    """Affine components become FixedAffineComponents, which are not trained."""
    count = 0
    for name, component in _matching(nnet, o.name):
        if isinstance(component, AffineComponent):
            nnet.components[name] = FixedAffineComponent.from_affine(component)
            count += 1
    return f"Converted {count} components to FixedAffineComponent."


@directive(
    "set-learning-rate",
    _NAMES,
    Key("learning-rate", "float", minimum=0, doc="before the component's learning-rate-factor"),
)
def _set_learning_rate(nnet: Nnet, o: SimpleNamespace) -> str:
    """Updatable components get this learning rate, times their own learning-rate-factor."""
    count = 0
    for _, component in _matching(nnet, o.name):
        if isinstance(component, UpdatableComponent):
            component.set_learning_rate(o.learning_rate)
            count += 1
    return f"Set learning rates for {count} components."


@directive(
    "set-learning-rate-factor",
    _NAMES,
    Key("learning-rate-factor", "float", minimum=0, doc="of learning rates that are set later"),
)
def _set_learning_rate_factor(nnet: Nnet, o: SimpleNamespace) -> str:
    """Updatable components get this factor; their present learning rate stays."""
    count = 0
    for _, component in _matching(nnet, o.name):
        if isinstance(component, UpdatableComponent):
            component.learning_rate_factor = o.learning_rate_factor
            count += 1
    return f"Set learning rate factors for {count} components."


@directive(
    "set-dropout-proportion",
    _NAMES,
    Key("proportion", "float", minimum=0, doc="the share that is dropped, 0 to 1"),
)
def _set_dropout_proportion(nnet: Nnet, o: SimpleNamespace) -> str:
    """Dropout components (DropoutComponent, DropoutMaskComponent, GeneralDropoutComponent) drop
    this share."""
    if o.proportion > 1:
        raise FormatError(f"proportion={o.proportion:g} must be from 0 to 1")
    count = 0
    for _, component in _matching(nnet, o.name):
        if isinstance(component, _DROPOUT):
            component.dropout_proportion = o.proportion
            count += 1
    return f"Set dropout proportions for {count} components."


@directive(
    "rename-node",
    Key("old-name", "str", doc="the name of a node"),
    Key("new-name", "str", doc="a name that no node has"),
)
def _rename_node(nnet: Nnet, o: SimpleNamespace) -> str:
    """A node of any kind gets another name, also where other nodes read it; its component keeps its
    own."""
    old, new = o.old_name, o.new_name
    node = nnet.node(old)
    if not is_valid_name(new):
        raise FormatError(f"{new!r} is not a valid name")
    names = {old: new}
    if node.kind == COMPONENT:
        names[input_name(old)] = input_name(new)
    for name in names.values():
        if nnet.has_node(name):
            raise FormatError(f"there is a node {name!r} already")
    for node in nnet.nodes:
        node.name = names.get(node.name, node.name)
        node.source = names.get(node.source, node.source)
        if node.descriptor is not None:
            node.descriptor = node.descriptor.renamed(names)
    return f"Renamed node {old} to {new}."


@directive(
    "remove-output-nodes",
    Key("name", "str", doc="names of output nodes, where `*` stands for any characters"),
)
def _remove_output_nodes(nnet: Nnet, o: SimpleNamespace) -> str:
    """Outputs go, but not all of them; `remove-orphans` then removes what only they needed."""
    outputs = [node.name for node in nnet.outputs()]
    removed = [name for name in outputs if name_matches(name, o.name)]
    if not removed:
        warn(f"name={o.name}: no output node is called so{nearest(o.name, outputs)}")
    if len(removed) == len(outputs):
        raise FormatError("this would remove all outputs")
    _remove_nodes(nnet, set(removed))
    return f"Removed {len(removed)} output nodes."


_INPUTS_TOO: Final = Key("remove-orphan-inputs", "bool", False, doc="input nodes, too")


@directive("remove-orphan-nodes", _INPUTS_TOO)
def _remove_orphan_nodes(nnet: Nnet, o: SimpleNamespace) -> str:
    """The nodes that no output needs go; their components stay."""
    return remove_orphan_nodes(nnet, o.remove_orphan_inputs)


@directive("remove-orphan-components")
def _remove_orphan_components(nnet: Nnet, o: SimpleNamespace) -> str:
    """The components that no node uses go."""
    return remove_orphan_components(nnet)


@directive("remove-orphans", _INPUTS_TOO)
def _remove_orphans(nnet: Nnet, o: SimpleNamespace) -> str:
    """As `remove-orphan-nodes`, then `remove-orphan-components`."""
    nodes = _remove_orphan_nodes(nnet, o)
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


@directive(
    "reduce-rank",
    Key("name", "str", doc=_MATCHING),
    Key("rank", "int", minimum=1, doc="singular values that are kept"),
)
def _reduce_rank(nnet: Nnet, o: SimpleNamespace) -> str:
    """The matrices of affine components become the nearest ones of this rank; those that have no
    higher rank by their size stay as they are."""
    rank, count = o.rank, 0
    for _, component in _matching(nnet, o.name):
        if not isinstance(component, AffineComponent):
            continue
        if min(component.input_dim, component.output_dim) <= rank:
            continue
        u, s, vt = _svd(component.linear_params)
        component.linear_params = ((u[:, :rank] * s[:rank]) @ vt[:rank]).astype(np.float32)
        count += 1
    return f"Reduced rank of parameters of {count} components."


@directive(
    "apply-svd",
    Key("name", "str", doc=_MATCHING),
    Key("bottleneck-dim", "int", -1, "that of energy-threshold", "singular values that are kept"),
    Key(
        "energy-threshold",
        "float",
        -1.0,
        "none",
        "as many are kept as hold this share, below 1, of the sum of their squares",
    ),
    Key(
        "shrinkage-threshold",
        "float",
        1.0,
        doc="a component stays whole unless its parts have at most this share of its parameters",
    ),
)
def _apply_svd(nnet: Nnet, o: SimpleNamespace) -> str:
    """An affine component becomes a LinearComponent NAME_a and a NaturalGradientAffineComponent
    NAME_b, the halves of its singular value decomposition, and so do its nodes."""
    dim, energy, shrinkage = o.bottleneck_dim, o.energy_threshold, o.shrinkage_threshold
    if dim <= 0 and energy <= 0:
        raise FormatError("bottleneck-dim= or energy-threshold= is missing")
    if energy >= 1:
        raise FormatError("energy-threshold must be below 1")
    parts: dict[str, tuple[Component, Component]] = {}
    for name, component in _matching(nnet, o.name):
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
    _insert_halves(nnet, parts)
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
