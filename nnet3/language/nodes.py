"""The nodes of a network and the config lines that describe them.

A component node stands after the descriptor node that feeds it, which is called `NAME_input`; a
descriptor node that no component follows is an output. Parts that no output needs are warned of, as
by `Nnet::Check` and `FindOrphanNodes`. Source: Kaldi's `nnet3/nnet-nnet.cc`, `nnet-utils.cc`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ...framework.base.errors import FormatError, OpscopeError, doubled, nearest
from .config import ConfigLine, Key, is_valid_name, read_keys
from .descriptor import Descriptor
from .descriptor_parse import parse_descriptor

INPUT: Final = "input"
DESCRIPTOR: Final = "descriptor"
COMPONENT: Final = "component"
DIM_RANGE: Final = "dim-range"
_LOGGER = logging.getLogger("opscope.nnet3")
OBJECTIVES: Final = ("linear", "quadratic")


@dataclass
class NetworkNode:
    """A node.

    Attributes:
        name: what other nodes call it.
        kind: INPUT, DESCRIPTOR, COMPONENT or DIM_RANGE.
        dim: columns of an input or a dim-range.
        descriptor: of a descriptor node its expression.
        objective: of an output, `linear` or `quadratic`.
        component: of a component node, the component's name.
        source: of a dim-range, the node whose columns it takes.
        dim_offset: of a dim-range, its first column.
    """

    name: str
    kind: str
    dim: int = 0
    descriptor: Descriptor | None = None
    objective: str = "linear"
    component: str = ""
    source: str = ""
    dim_offset: int = 0


def input_name(component_node: str) -> str:
    """The name of the descriptor node that feeds a component node."""
    return f"{component_node}_input"


def outputs_of(nodes: Sequence[NetworkNode]) -> list[NetworkNode]:
    """The output nodes: descriptor nodes that no component follows."""
    following = [*nodes[1:], None]
    return [
        node
        for node, after in zip(nodes, following, strict=False)
        if node.kind == DESCRIPTOR and (after is None or after.kind != COMPONENT)
    ]


def lines_of(nodes: Sequence[NetworkNode], sizes: Mapping[str, int] | None = None) -> list[str]:
    """The config lines of nodes, as Kaldi writes them; `sizes`: the dimensions that they give."""
    lines = []
    outputs = {id(node) for node in outputs_of(nodes)}
    for before, node in zip([None, *nodes], nodes, strict=False):
        name = node.name
        if node.kind == INPUT:
            lines.append(f"input-node name={name} dim={node.dim}")
        elif node.kind == COMPONENT:
            assert before is not None
            line = f"component-node name={name} component={node.component}"
            line += f" input={before.descriptor}"
            if sizes is not None:
                line += f" input-dim={sizes[before.name]} output-dim={sizes[name]}"
            lines.append(line)
        elif node.kind == DIM_RANGE:
            line = f"dim-range-node name={name} input-node={node.source}"
            lines.append(f"{line} dim-offset={node.dim_offset} dim={node.dim}")
        elif id(node) in outputs:
            line = f"output-node name={name} input={node.descriptor}"
            line += f" dim={sizes[name]}" if sizes is not None else ""
            lines.append(f"{line} objective={node.objective}")
    return lines


@dataclass(frozen=True)
class LineForm:
    """A kind of config line: its keys, and what it says."""

    keys: tuple[Key, ...]
    doc: str


_NAME: Final = Key("name", "str", doc="letters, digits, `_`, `-`, `.`; the first a letter or `_`")
_INPUT: Final = Key("input", "str", doc="a descriptor: what the node reads")

LINES: Final = {
    "component": LineForm(
        (_NAME, Key("type", "str", doc="a component type; its own keys also stand in the line")),
        "Parameters and a computation, which any number of nodes may use.",
    ),
    "component-node": LineForm(
        (_NAME, Key("component", "str", doc="the name of a component"), _INPUT),
        "A node that applies a component to what it reads; its input is also called NAME_input.",
    ),
    "input-node": LineForm(
        (_NAME, Key("dim", "int", minimum=1, doc="columns")),
        "An input of the network. Its rows are given for each computation.",
    ),
    "output-node": LineForm(
        (
            _NAME,
            _INPUT,
            Key(
                "objective",
                "str",
                "linear",
                doc="linear (the objective is the product with the supervision) or quadratic",
            ),
        ),
        "An output of the network. Other nodes cannot read it.",
    ),
    "dim-range-node": LineForm(
        (
            _NAME,
            Key("input-node", "str", doc="an input node or a component node"),
            Key("dim", "int", minimum=1, doc="columns that are taken"),
            Key("dim-offset", "int", minimum=0, doc="the first of them, from 0"),
        ),
        "Some neighboring columns of a node.",
    ),
}
"""All kinds of lines of a network's config, by their first word."""

KEYS: Final = {  # of the lines of nodes, by their first words
    word: tuple(key.name for key in form.keys)
    for word, form in LINES.items()
    if word != "component"
}
WORDS: Final = tuple(KEYS)


def check_word(line: ConfigLine) -> None:
    """Refuse a line that begins neither like a component nor like a node.

    Raises:
        FormatError: it does; the nearest word is named.
    """
    word = line.first_token
    if not word:
        raise line.error(f"a line begins with one of component, {', '.join(WORDS)}")
    if word not in ("component", *WORDS):
        raise line.error(f"{word!r} is not expected{nearest(word, ('component', *WORDS))}")


def drop_replaced(old: Sequence[ConfigLine], new: Sequence[ConfigLine]) -> list[ConfigLine]:
    """`old` and `new` lines together, without the old lines of nodes that new lines define again.

    Raises:
        FormatError: a line has no name or an impossible one, or a file defines something twice.
    """
    kept: dict[str, ConfigLine] = {}
    nodes: set[str] = set()
    for number, line in enumerate([*old, *new]):
        name = line.require("name")
        if not is_valid_name(name):
            raise line.error(f"{name!r} is not a valid name")
        check_word(line)
        is_new = number >= len(old)
        is_component = line.first_token == "component"
        if is_new:
            key = f"component {name}" if is_component else name
            if key in nodes:
                raise line.error(f"{key!r} is defined twice")
            nodes.add(key)
        if not is_component:
            kept.pop(name, None)
            kept[name] = line
        else:
            kept[f"component {name}"] = line
    return list(kept.values())


def nodes_from_lines(lines: Sequence[ConfigLine]) -> list[NetworkNode]:
    """The nodes that the lines which are no components describe, in their order.

    Raises:
        FormatError: a line of another kind, with missing or unknown keys, an unknown node, or a
            descriptor that is none.
    """
    nodes: list[NetworkNode] = []
    lines = [line for line in lines if line.first_token != "component"]
    for line in lines:
        check_word(line)
        name = line.require("name")
        if line.first_token == "component-node":
            nodes.append(NetworkNode(input_name(name), DESCRIPTOR))
            nodes.append(NetworkNode(name, COMPONENT))
        elif line.first_token == "input-node":
            nodes.append(NetworkNode(name, INPUT))
        else:
            kind = DESCRIPTOR if line.first_token == "output-node" else DIM_RANGE
            nodes.append(NetworkNode(name, kind))
    by_name = {node.name: node for node in nodes}
    if len(by_name) < len(nodes):
        twice = doubled(node.name for node in nodes)[0]
        raise FormatError(f"two nodes are called {twice!r} (NAME_input feeds component-node NAME)")
    readable = {node.name for node in nodes if node.kind != DESCRIPTOR}
    for line in lines:
        fill_node(line, by_name, readable)
        line.check_unused(KEYS[line.first_token])
    return nodes


def fill_node(line: ConfigLine, nodes: dict[str, NetworkNode], readable: set[str]) -> None:
    """Read the rest of a node's line.

    Args:
        line: of the node.
        nodes: by name; the line's own node, and the one that feeds it, are changed.
        readable: the nodes that descriptors may name.

    Raises:
        FormatError: a key is missing or wrong, an unknown node, or a descriptor that is none.
    """
    _FILL[line.first_token](line, nodes, readable)


def _descriptor(line: ConfigLine, text: str, readable: set[str]) -> Descriptor:
    try:
        return parse_descriptor(text, readable)
    except OpscopeError as error:
        raise line.error(str(error)) from error


def _fill_component(line: ConfigLine, nodes: dict[str, NetworkNode], readable: set[str]) -> None:
    o = read_keys(line, LINES["component-node"].keys)
    nodes[o.name].component = o.component
    nodes[input_name(o.name)].descriptor = _descriptor(line, o.input, readable)


def _fill_input(line: ConfigLine, nodes: dict[str, NetworkNode], readable: set[str]) -> None:
    o = read_keys(line, LINES["input-node"].keys)
    nodes[o.name].dim = o.dim


def _fill_output(line: ConfigLine, nodes: dict[str, NetworkNode], readable: set[str]) -> None:
    o = read_keys(line, LINES["output-node"].keys)
    node = nodes[o.name]
    node.descriptor = _descriptor(line, o.input, readable)
    node.objective = o.objective or "linear"
    if node.objective not in OBJECTIVES:
        raise line.error(f"objective={node.objective}: linear or quadratic")


def _fill_dim_range(line: ConfigLine, nodes: dict[str, NetworkNode], readable: set[str]) -> None:
    o = read_keys(line, LINES["dim-range-node"].keys)
    node = nodes[o.name]
    source = nodes.get(o.input_node)
    if source is None or source.kind not in (INPUT, COMPONENT):
        hint = nearest(o.input_node, readable) if source is None else ""
        raise line.error(f"input-node={o.input_node} is no input node and no component node{hint}")
    node.source = o.input_node
    node.dim = o.dim
    node.dim_offset = o.dim_offset


_FILL: Final = {
    "component-node": _fill_component,
    "input-node": _fill_input,
    "output-node": _fill_output,
    "dim-range-node": _fill_dim_range,
}


# Nodes that no output needs


def orphan_names(nodes: Sequence[NetworkNode]) -> list[str]:
    """The nodes that no output needs, in order."""
    needed = _needed(nodes)
    return [node.name for node in nodes if node.name not in needed]


def nodes_read(nodes: Sequence[NetworkNode]) -> dict[str, list[str]]:
    """The names of the nodes that each node reads, by its name."""
    reads: dict[str, list[str]] = {}
    for node in nodes:
        if node.kind == COMPONENT:
            reads[node.name] = [input_name(node.name)]
        elif node.kind == DESCRIPTOR:
            reads[node.name] = node.descriptor.node_names() if node.descriptor else []
        else:
            reads[node.name] = [node.source] if node.source else []
    return reads


def _needed(nodes: Sequence[NetworkNode]) -> set[str]:
    reads = nodes_read(nodes)
    fed = {input_name(node.name) for node in nodes if node.kind == COMPONENT}
    needed: set[str] = set()
    queue = [node.name for node in nodes if node.kind == DESCRIPTOR and node.name not in fed]
    while queue:
        name = queue.pop()
        if name not in needed:
            needed.add(name)
            queue.extend(reads.get(name, ()))
    return needed


def unused_parts(nodes: Sequence[NetworkNode], components: Iterable[str]) -> list[str]:
    """Kaldi's sentence for each component that no node uses, then for each node that no output
    needs; a descriptor that feeds such a node is not named."""
    used = {node.component for node in nodes}
    kinds = {node.name: node.kind for node in nodes}
    lines = [
        f"Component {name} is never used by any node." for name in components if name not in used
    ]
    return lines + [
        f"Node {name} is never used to compute any output."
        for name in orphan_names(nodes)
        if kinds[name] != DESCRIPTOR
    ]


def warn_of_unused_parts(nodes: Sequence[NetworkNode], components: Iterable[str]) -> None:
    """Log what `unused_parts` lists, as warnings of the logger `opscope.nnet3`."""
    for line in unused_parts(nodes, components):
        warn(line)


def warn(line: str) -> None:
    """Log a warning of the logger `opscope.nnet3`."""
    _LOGGER.warning("%s", line)


@contextmanager
def warnings_to(say: Callable[[str], None]) -> Iterator[None]:
    """A context in which warnings about networks and features go to `say`, one line each."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: say(record.getMessage())
    _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
