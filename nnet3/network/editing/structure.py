"""Edits of what an `Nnet` is made of: nodes that go, come, read something else, or are cut out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError, nearest
from ....framework.editing.operations import Connect, Cut, Insert, Remove, Replace
from ....framework.editing.patterns import name_matches
from ...components import Component, UpdatableComponent, new_component
from ...language.config import ConfigLine, is_valid_name
from ...language.descriptor import Descriptor
from ...language.descriptor_parse import parse_descriptor
from ...language.nodes import COMPONENT, DESCRIPTOR, DIM_RANGE, INPUT, NetworkNode, input_name
from ..nnet import Nnet
from .names import check_patterns, shown_node, shown_nodes
from .orphans import remove_nodes, remove_orphan_components, remove_orphan_nodes

_FILES: Final = ("matrix", "vector", "scales", "bias")
"""Keys that name a file with parameters, which has its own dimensions."""


def remove(nnet: Nnet, edit: Remove) -> str:
    """Remove outputs, or any nodes that no other one reads or that are bypassed, with components
    that only they use."""
    outputs = [node.name for node in nnet.outputs()]
    known = outputs if edit.outputs_only else [node.name for node in shown_nodes(nnet)]
    check_patterns(edit, edit.names, known, "output node" if edit.outputs_only else "node")
    gone = [name for name in known if any(name_matches(name, p) for p in edit.names)]
    if set(outputs) <= set(gone):
        raise FormatError("this would remove all outputs")
    if edit.outputs_only:
        remove_nodes(nnet, set(gone))
        return f"Removed {len(gone)} output nodes."
    if edit.bypass:
        for name in gone:
            _bypass(nnet, nnet.node(name))
    readers = _readers(nnet, gone)
    if readers:
        name, there = next(iter(readers.items()))
        raise FormatError(
            f"node {name!r} is read by {', '.join(there)}: also remove these, connect them to"
            f" something else, or bypass {name!r}"
        )
    used = {node.component for node in nnet.nodes if node.name in gone}
    remove_nodes(nnet, {*gone, *map(input_name, gone)})
    used -= {node.component for node in nnet.nodes}
    for name in used & nnet.components.keys():
        del nnet.components[name]
    return f"Removed {len(gone)} nodes."


def _readers(nnet: Nnet, gone: Iterable[str]) -> dict[str, list[str]]:
    """The nodes that read some that go, by the name of what they read."""
    lost = {*gone}
    fed = {input_name(name) for name in lost}
    readers: dict[str, list[str]] = {}
    for node in nnet.nodes:
        if node.name in lost or node.name in fed:
            continue
        for name in _reads(node):
            if name in lost:
                readers.setdefault(name, []).append(repr(node.name.removesuffix("_input")))
    return readers


def _reads(node: NetworkNode) -> list[str]:
    if node.descriptor is not None:
        return node.descriptor.node_names()
    return [node.source] if node.kind == DIM_RANGE else []


def _bypass(nnet: Nnet, node: NetworkNode) -> None:
    """Let those who read a node read what it reads."""
    if node.kind == COMPONENT:
        source = nnet.node(input_name(node.name)).descriptor
    elif node.kind == DIM_RANGE:
        source = parse_descriptor(node.source)
    else:
        return
    assert source is not None
    _point(nnet, node.name, str(source))


def _point(nnet: Nnet, name: str, text: str, but: Iterable[str] = ()) -> int:
    """Let those who read the node `name` read the descriptor `text`; how many there are."""
    count = 0
    apart = {*but}
    for reader in nnet.nodes:
        if reader.name in apart or name not in _reads(reader):
            continue
        count += 1
        if reader.descriptor is None:
            if not is_valid_name(text):
                raise FormatError(
                    f"dim-range-node {reader.name!r} reads a node, so it cannot read {text}"
                )
            reader.source = text
            continue
        try:
            reader.descriptor = parse_descriptor(str(reader.descriptor.renamed({name: text})))
        except OpscopeError as error:
            raise FormatError(
                f"{reader.name!r} reads {reader.descriptor}, in which {text} cannot take the place"
                f" of {name!r}: {error}"
            ) from error
    return count


def replace(nnet: Nnet, edit: Replace) -> str:
    """Give a component node another component; learning rate and the like are taken over."""
    node = nnet.node(edit.name)
    if node.kind != COMPONENT:
        raise FormatError(f"{edit.name!r} is no component node; connect changes what a node reads")
    old = nnet.components[node.component]
    shared = sum(other.component == node.component for other in nnet.nodes) > 1
    name = _free(nnet, edit.name) if shared else node.component
    sizes = {"input-dim": old.input_dim, "output-dim": old.output_dim, "dim": old.input_dim}
    new = configured_component(name, edit.type, edit.settings, sizes)
    if isinstance(new, UpdatableComponent) and isinstance(old, UpdatableComponent):
        rates = {key: getattr(new, key.replace("-", "_")) for key in _RATES & {*edit.settings}}
        new.copy_configs(old)
        for key, value in rates.items():
            setattr(new, key.replace("-", "_"), value)
    nnet.components[name] = new
    node.component = name
    nnet.check()
    return f"Replaced node {edit.name}: {old.type} to {new.type}."


_RATES: Final = {"learning-rate", "learning-rate-factor", "l2-regularize", "max-change"}


def configured_component(
    name: str, type: str, settings: Mapping[str, Any], sizes: Mapping[str, int], seed: int = 0
) -> Component:
    """A component as a config line makes it; dimensions that the settings lack are `sizes`.

    Raises:
        FormatError: there is no such type, or a setting is wrong.
    """
    component = new_component(type)
    keys = {key.replace("_", "-"): value for key, value in settings.items()}
    known = {key.name for key in component.keys}
    wanted = {"dim"} if "dim" in known else {"input-dim", "output-dim"} & known
    if not keys.keys() & {*_FILES, "dim"} and not ("dim" in known and "input-dim" in keys):
        keys = {key: sizes[key] for key in sizes if key in wanted} | keys
    text = f"component name={name} type={type}"
    line = ConfigLine(text + "".join(f" {key}={_text(value)}" for key, value in keys.items()))
    for key in ("name", "type"):
        line.get(key)  # the component itself does not ask for them
    component.init_from_config(line, np.random.default_rng(seed))
    return component


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return f"{value}"


def _free(nnet: Nnet, name: str) -> str:
    """A name that no component has."""
    free = name
    number = 1
    while free in nnet.components:
        number += 1
        free = f"{name}_{number}"
    return free


def insert(nnet: Nnet, edit: Insert) -> str:
    """Put a component node after a node or before one."""
    if bool(edit.after) == bool(edit.before):
        raise FormatError("one of after= and before= says where the node is put")
    if not is_valid_name(edit.name):
        raise FormatError(f"{edit.name!r} is not a valid name")
    for name in (edit.name, input_name(edit.name)):
        if nnet.has_node(name):
            raise FormatError(f"there is a node {name!r} already")
    place = shown_node(nnet, edit.after or edit.before)
    feed, position = _feed_of(nnet, place, bool(edit.after))
    if isinstance(edit.inputs, Mapping) or not all(isinstance(one, str) for one in edit.inputs):
        raise FormatError("inputs= of a node of nnet3 is one descriptor, such as ['Append(a, b)']")
    text = str(edit.inputs[0]) if edit.inputs else str(feed)
    source = parse_descriptor(text, {n.name for n in nnet.nodes if n.kind != DESCRIPTOR})
    dim = source.dim(nnet.node_dims())
    wanted = {"input-dim": dim, "output-dim": dim, "dim": dim}
    component = _free(nnet, edit.name)
    new = configured_component(component, edit.type, edit.settings, wanted, edit.seed)
    nnet.components[component] = new
    if edit.after:
        _point(nnet, edit.after, edit.name)
    else:
        nnet.nodes[position].descriptor = parse_descriptor(edit.name)
    nnet.nodes[position:position] = [
        NetworkNode(input_name(edit.name), DESCRIPTOR, descriptor=source),
        NetworkNode(edit.name, COMPONENT, component=component),
    ]
    nnet.check()
    where = f"after {edit.after}" if edit.after else f"before {edit.before}"
    return f"Inserted node {edit.name} ({new.type}) {where}."


def _feed_of(nnet: Nnet, place: NetworkNode, after: bool) -> tuple[Descriptor, int]:
    """What a node after or before `place` reads, and its position among the nodes."""
    position = nnet.nodes.index(place)
    if after:
        if place.kind == DESCRIPTOR:
            raise FormatError(f"nothing can read the output {place.name!r}: before= puts it there")
        return parse_descriptor(place.name), position + 1
    if place.kind == COMPONENT:
        position -= 1
    feed = nnet.nodes[position].descriptor
    if feed is None:
        raise FormatError(
            f"{place.name!r} is no component node and no output: after= puts it there"
        )
    return feed, position


def connect(nnet: Nnet, edit: Connect) -> str:
    """Let a component node or an output read another descriptor."""
    if len(edit.inputs) != 1 or edit.number > 0:
        raise FormatError("a node of nnet3 reads one descriptor, such as 'Append(a, b)'")
    node = shown_node(nnet, edit.name)
    if node.kind == COMPONENT:
        node = nnet.node(input_name(edit.name))
    if node.descriptor is None:
        raise FormatError(f"{edit.name!r} is no component node and no output")
    readable = {n.name for n in nnet.nodes if n.kind != DESCRIPTOR}
    old = node.descriptor
    node.descriptor = parse_descriptor(edit.inputs[0], readable)
    nnet.check()
    return f"Node {edit.name} reads {node.descriptor} in place of {old}."


def cut(nnet: Nnet, edit: Cut) -> str:
    """Keep what lies between some nodes; component nodes become inputs, any node an output."""
    before = len(shown_nodes(nnet))
    dims = nnet.node_dims()
    for name, origin in edit.inputs.items():
        _make_input(nnet, name, origin, dims)
    if edit.outputs:
        _make_outputs(nnet, edit.outputs)
    remove_orphan_nodes(nnet, remove_inputs=True)
    remove_orphan_components(nnet)
    lost = [name for name in edit.inputs if not nnet.has_node(name)]
    if lost:
        raise FormatError(
            f"no output depends on {edit.inputs[lost[0]]!r}, which was to be an input"
        )
    return f"Cut out {len(shown_nodes(nnet))} of {before} nodes."


def _make_input(nnet: Nnet, name: str, origin: str, dims: Mapping[str, int]) -> None:
    node = nnet.node(origin)
    if node.kind not in (COMPONENT, DIM_RANGE):
        raise FormatError(f"{origin!r} is no component node, so it cannot become an input")
    taken = nnet.has_node(name) and name != origin
    if taken and nnet.node(name).kind == INPUT:
        _drop_input(nnet, name)
    elif taken:
        raise FormatError(f"there is a node {name!r} already")
    gone = {origin, input_name(origin)} if node.kind == COMPONENT else {origin}
    nnet.nodes = [other for other in nnet.nodes if other.name not in gone]
    nnet.nodes.insert(0, NetworkNode(name, INPUT, dim=dims[origin]))
    _point(nnet, origin, name)


def _drop_input(nnet: Nnet, name: str) -> None:
    """Give an input of the network another name, so that a new one can have it."""
    other = f"{name}-of-old"
    while nnet.has_node(other):
        other += "-"
    nnet.node(name).name = other
    _point(nnet, name, other)


def _make_outputs(nnet: Nnet, outputs: Mapping[str, str]) -> None:
    nodes: list[NetworkNode] = []
    for name, origin in outputs.items():
        node = shown_node(nnet, origin)
        is_output = node in nnet.outputs()
        descriptor = node.descriptor if is_output else parse_descriptor(origin)
        objective = node.objective if is_output else "linear"
        nodes.append(NetworkNode(name, DESCRIPTOR, descriptor=descriptor, objective=objective))
    old = nnet.outputs()
    nnet.nodes = [node for node in nnet.nodes if node not in old]
    for node in nodes:
        if nnet.has_node(node.name):
            raise FormatError(
                f"there is a node {node.name!r} already{nearest(node.name, ())}: outputs have names"
                " of their own, outputs={'output': NODE}"
            )
    nnet.nodes += nodes
