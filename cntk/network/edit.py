"""Editing of networks as CNTK's model editing language does it (ComputationNetworkEditing.cpp,
ModelEditLanguage.h)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    OpscopeError,
    ShapeError,
    VariableError,
    nearest,
)
from .graph import GROUPS, NodeGraph
from .nodes.node import Node

_PROPERTIES = (*GROUPS, "learningRateMultiplier", "recurrent", "freezeParameters")
_OLD_PROPERTIES = {
    "finalcriterion": "criterion",
    "criteria": "criterion",
    "eval": "evaluation",
    "needgradient": "needsGradient",
    "needsgradient": "needsGradient",
    "computegradient": "needsGradient",
}


def split_pattern(pattern: str) -> tuple[str, str] | None:
    """Head and tail of `head*tail`, or None for a plain name."""
    head, star, tail = pattern.partition("*")
    return (head, tail) if star else None


def property_name(name: str) -> str:
    """The property that MEL calls `name`: in any case, by an older name, or cut short.

    Raises:
        AttributeTypeError: there is none.
    """
    lower = name.lower()
    if lower in _OLD_PROPERTIES:
        return _OLD_PROPERTIES[lower]
    for known in _PROPERTIES:
        if known.lower().startswith(lower) and 2 * len(lower) >= len(known):
            return known
    raise AttributeTypeError(f"no property is called {name!r}{nearest(name, _PROPERTIES)}")


class EditableGraph(NodeGraph):
    """A graph whose nodes can be renamed, replaced, copied and reconnected.

    No edit validates anything: validate the network once more when the edits are done.
    """

    def match(self, pattern: str) -> list[Node]:
        """Nodes of a name (in any case), or of a pattern with one `*` (which minds case), in the
        order of CNTK's lists: sorted without regard to case."""
        parts = split_pattern(pattern)
        if parts is None:
            return [self.find(pattern)] if pattern in self else []
        head, tail = parts
        return [
            node
            for node in self.sorted_nodes()
            if len(node.name) >= len(head) + len(tail)
            and node.name.startswith(head)
            and node.name.endswith(tail)
        ]

    def rename(self, node: Node, name: str) -> None:
        """Give a node another name.

        Raises:
            VariableError: the name is taken by another node, or empty.
        """
        other = self.find(name) if name in self else None
        if other not in (None, node):
            raise node.error(f"the name {name!r} is taken", VariableError)
        if not name:
            raise node.error("a node needs a name", VariableError)
        if next(reversed(self.nodes.values())) is node:  # its place in the order stays the last
            self.discard(node)
            node.name = name
            self.insert(node)
        else:
            self.rename_all([(node, name)])

    def delete(self, *nodes: Node) -> None:
        """Take nodes out, all in one pass; inputs that read them are left unconnected."""
        gone = set(nodes)
        for node in self.nodes.values():
            if not gone.isdisjoint(node.inputs):
                node.connect([None if child in gone else child for child in node.inputs])
        self.replace_in_groups(lambda group: [node for node in group if node not in gone])
        for node in gone:
            self.discard(node)

    def replace_inputs(self, old: Node, new: Node) -> None:
        """Let all nodes that read `old` read `new`."""
        for node in self.nodes.values():
            if old in node.inputs:
                node.connect([new if child is old else child for child in node.inputs])

    def replace(self, old: Node, new: Node, keep_inputs: bool = True) -> None:
        """Put `new` in the place of `old`, in the groups too, under the name of `old`. With
        `keep_inputs` it reads what `old` read."""
        if keep_inputs:
            new.inputs = list(old.inputs)
        self.replace_inputs(old, new)
        self.discard(old)
        new.name = old.name
        self.insert(new)
        self.replace_in_groups(lambda group: [new if node is old else node for node in group])

    def set_input(self, node: Node, number: int, child: Node) -> None:
        """Connect input `number`, counted from 0.

        Raises:
            ShapeError: the node has no such input.
        """
        if not 0 <= number < len(node.inputs):
            raise node.error(f"input {number} does not exist; there are {len(node.inputs)}")
        node.inputs[number] = child

    def set_property(self, node: Node, name: str, value: float | bool) -> None:
        """Set a property as MEL's SetProperty: a group's name with true or false,
        learningRateMultiplier, needsGradient, or freezeParameters.

        Raises:
            AttributeTypeError: there is no such property, or the node cannot have it.
        """
        known = property_name(name)
        if known in GROUPS:
            if value:
                self.add_to_group(known, node)
            else:
                self.remove_from_group(known, node)
        elif known == "needsGradient":
            node.learning_rate = 1.0 if value else 0.0
        elif known == "learningRateMultiplier":
            node.learning_rate = float(value)
        elif known == "freezeParameters":
            self._freeze(node, bool(value))

    def _freeze(self, node: Node, frozen: bool) -> None:
        if node.operation == "BatchNormalization":
            if frozen:  # statistics are used as they are
                node.attributes["normalizationTimeConstant"] = float("inf")
                node.attributes["blendTimeConstant"] = float("inf")
        elif not node.is_parameter:
            raise node.error("only parameters can be frozen", AttributeTypeError)
        elif frozen:
            node.learning_rate = 0.0

    def set_property_below(self, root: Node | None, name: str, value: float | bool) -> None:
        """Set needsGradient or learningRateMultiplier of all parameters below `root` (None: all).

        Raises:
            AttributeTypeError: it is another property.
        """
        known = property_name(name)
        if known not in ("needsGradient", "learningRateMultiplier"):
            raise AttributeTypeError(
                f"{known} cannot be set below a node, only needsGradient and learningRateMultiplier"
            )
        rate = float(bool(value)) if known == "needsGradient" else float(value)
        for node in self.nodes.values() if root is None else self.below([root]):
            if node.is_parameter:
                node.learning_rate = rate

    def copy_node(self, source: Node, name: str, links: bool = True, content: bool = True) -> Node:
        """Copy a node under a name; a node of that name is overwritten. With `links` the copy reads
        what `source` reads; with `content` attributes and values are taken over.

        Raises:
            VariableError: the node of that name is `source` itself, or of another operation.
        """
        if name not in self:
            copy = Node(name, source.kind, location=source.location)
            copy.connect([None] * len(source.inputs))
            self.insert(copy)
            content = True
        else:
            copy = self.find(name)
            if copy is source:
                raise source.error(f"it cannot be copied to itself ({name!r})", VariableError)
            if copy.kind is not source.kind:
                raise source.error(f"it cannot be copied over {copy!r}", VariableError)
        if content:
            copy.attributes = dict(source.attributes)
            copy.shape = source.shape
            copy.learning_rate = source.learning_rate
            copy.value = None if source.value is None else np.array(source.value, order="F")
        if links:
            copy.inputs = list(source.inputs)
        return copy

    def copy_nodes(self, pairs: Sequence[tuple[Node, str]], links: bool = True) -> dict[Node, Node]:
        """Copy several nodes.

        With `links`, copies read the copies of inputs. Other inputs stay connected if they are in
        this network, and are left unconnected otherwise.
        """
        copies = {node: self.copy_node(node, name, links=False) for node, name in pairs}
        if links:
            for node, copy in copies.items():
                copy.connect(
                    [
                        copies.get(child, child if self._has_node(child) else None)
                        for child in node.inputs
                    ]
                )
        return copies

    def _has_node(self, node: Node | None) -> bool:
        return node is not None and self.nodes.get(node.name) is node

    def copy_subtree(self, root: Node, prefix: str = "", links: bool = True) -> dict[Node, Node]:
        """Copy a node and all that it is computed from; the copies' names begin with `prefix`."""
        return self.copy_nodes([(node, prefix + node.name) for node in self.below([root])], links)

    def copied_names(
        self, pattern: str, target: EditableGraph, result: str
    ) -> list[tuple[Node, str]]:
        """Pairs of a node of `pattern` and its new name in `target`, by MEL's rules: `a*b` to `c*d`
        keeps the text that the star matches; one name to a pattern means all nodes of `target` that
        match it.

        Raises:
            VariableError: nothing matches, or the patterns do not go together.
        """
        nodes = self.match(pattern)
        if not nodes:
            raise VariableError(f"no node is called {pattern!r}{nearest(pattern, self.nodes)}")
        parts, wanted = split_pattern(pattern), split_pattern(result)
        if parts is None and wanted is None:
            return [(nodes[0], result)]
        if parts is None:
            targets = target.match(result)
            if not targets:
                raise VariableError(f"{result!r} matches no node to copy {pattern!r} to")
            return [(nodes[0], node.name) for node in targets]
        if wanted is None or (bool(parts[0]), bool(parts[1])) != (bool(wanted[0]), bool(wanted[1])):
            raise VariableError(
                f"{pattern!r} and {result!r} must have their stars at the same place"
            )
        end = len(parts[1])
        return [
            (node, wanted[0] + node.name[len(parts[0]) : len(node.name) - end] + wanted[1])
            for node in nodes
        ]

    def revise(self, node: Node, value: np.ndarray) -> None:
        """Give a parameter the value of a matrix.

        Raises:
            ShapeError: it has another number of elements or rows.
        """
        shape = node.shape or node.attributes["shape"]
        try:
            if not node.is_parameter:
                raise OpscopeError("it is no parameter")
            if shape and 0 not in shape:
                if value.shape[0] != shape[0]:
                    raise ValueError(f"{value.shape[0]} rows for {shape[0]}")
                value = value.reshape(shape, order="F")
        except (ValueError, OpscopeError) as error:
            raise node.error(str(error), ShapeError) from None
        node.value = np.array(value, order="F")
        node.shape = value.shape
