"""The graph of a network: nodes by name, their connections, and their groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ...framework.base.errors import (
    AttributeTypeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
    nearest,
)
from ..base.text import Location, located
from .catalog import kind as find_kind
from .nodes.analysis import Loop, depth_first
from .nodes.node import Node

GROUPS = ("feature", "label", "criterion", "evaluation", "output")


def group_of_tag(tag: str) -> str | None:
    """The group that a tag of NDL or BrainScript means, or None: `eval...` is "evaluation"."""
    lower = tag.lower()
    if lower.startswith("eval"):
        return "evaluation"
    if lower == "criteria":
        return "criterion"
    return lower if lower in GROUPS else None


class NodeGraph:
    """Nodes by name, and the groups of nodes with a role.

    Names are unique without regard to case, as in CNTK.

    Attributes:
        name: of the network.
        precision: "float" or "double".
        nodes: by name, in the order in which they were added.
        groups: the nodes of each of `GROUPS`.
        roots: nodes that no other node reads; set by validation.
        order: all nodes in evaluation order; set by validation.
        loops: the recurrent loops; set by validation.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.precision = "float"
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, list[Node]] = {group: [] for group in GROUPS}
        self.roots: list[Node] = []
        self.order: list[Node] = []
        self.loops: list[Loop] = []
        self._lower: dict[str, Node] = {}
        self._members: dict[str, tuple[list[Node], set[Node]]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeGraph:
        """A network with nodes of its own; kinds and places of texts are shared.

        All nodes are made before one is filled, so that a chain of them is not as many calls deep.
        """
        copy = memo[id(self)] = type(self).__new__(type(self))
        for node in self.nodes.values():
            memo[id(node)] = Node.__new__(Node)
            memo[id(node.kind)], memo[id(node.location)] = node.kind, node.location
        for node in self.nodes.values():
            for part in Node.__slots__[1:]:  # all but the list of weak references
                setattr(memo[id(node)], part, deepcopy(getattr(node, part), memo))
        for name, part in vars(self).items():
            setattr(copy, name, deepcopy(part, memo))
        return copy

    def add(
        self,
        operation: str,
        name: str,
        inputs: Sequence[Node | str | None] = (),
        attributes: Mapping[str, Any] | None = None,
        location: Location | None = None,
        shape: int | Sequence[int] | None = None,
        tags: Iterable[str] = (),
    ) -> Node:
        """Add a node; its attributes are completed with the defaults of its kind.

        `shape` sets the attribute of that name. An input may be the name of a node. Inputs may be
        None, or all absent, until `connect`.

        Raises:
            UnknownOperatorError, AttributeTypeError, SlotError: the catalog does not allow it.
            VariableError: the name is taken, or empty; or an input is none of the network's names.
        """
        try:
            kind = find_kind(operation)
            given = dict(attributes or {})
            if shape is not None:
                given["shape"] = shape
            complete = kind.complete(given)
        except (AttributeTypeError, UnknownOperatorError) as error:
            raise located(type(error), f"{name}: {error}", location) from None
        nodes = [self.find(one) if isinstance(one, str) else one for one in inputs]
        node = Node(name, kind, nodes, complete, location, list(tags))
        if inputs:
            self.check_count(node)
        if node.is_parameter:
            node.learning_rate = complete["learningRateMultiplier"]
        self.insert(node)
        for tag in node.tags:
            group = group_of_tag(tag)
            if group:
                self.add_to_group(group, node)
        return node

    def insert(self, node: Node) -> None:
        """Put a node that exists already into the network.

        Raises:
            VariableError: the name is taken, or empty.
        """
        other = self._lower.get(node.name.lower())
        if not node.name:
            raise located(VariableError, "a node needs a name", node.location)
        if other is not None:
            place = f", at {other.location}" if other.location else ""
            case = "" if other.name == node.name else " (names do not differ by case alone)"
            raise located(
                VariableError,
                f"node {node.name!r} is there already as {other.name!r}{case}{place}",
                node.location,
            )
        self.nodes[node.name] = node
        self._lower[node.name.lower()] = node

    def connect(self, node: Node, inputs: Sequence[Node | None]) -> None:
        """Give a node its inputs.

        Raises:
            SlotError: the kind takes another number of inputs.
        """
        node.connect(inputs)
        self.check_count(node)

    def discard(self, node: Node) -> None:
        """Take a node out of the table of names only."""
        self.nodes.pop(node.name, None)
        self._lower.pop(node.name.lower(), None)

    def rename_all(self, pairs: Sequence[tuple[Node, str]]) -> None:
        """Rename nodes, which keep their places in the order.

        Raises:
            VariableError: two nodes would have one name.
        """
        names = {id(node): name for node, name in pairs}
        order = list(self.nodes.values())
        final: dict[str, Node] = {}
        for node in order:
            name = names.get(id(node), node.name)
            if not name or name.lower() in final:
                raise node.error(f"the name {name!r} is taken or empty", VariableError)
            final[name.lower()] = node
        for node in order:
            node.name = names.get(id(node), node.name)
        self._lower = final
        self.nodes = {node.name: node for node in order}

    def check_count(self, node: Node) -> None:
        """Raise SlotError if a node has another number of inputs than its kind takes."""
        low, high = node.kind.inputs
        count = len(node.inputs)
        if count < low or (high is not None and count > high):
            wanted = str(low) if low == high else f"{low} to {high}" if high else f"at least {low}"
            raise located(
                SlotError,
                f"{node.operation} operation {node.name!r} takes {wanted} inputs, not {count}",
                node.location,
            )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._lower

    def __len__(self) -> int:
        return len(self.nodes)

    def find(self, name: str) -> Node:
        """The node called `name`, in any case.

        Raises:
            VariableError: there is none.
        """
        node = self._lower.get(name.lower())
        if node is None:
            raise VariableError(f"no node is called {name!r}{nearest(name, self.nodes)}")
        return node

    def sorted_nodes(self) -> list[Node]:
        """All nodes by name without regard to case: the order of CNTK's own lists."""
        return sorted(self.nodes.values(), key=lambda node: node.name.lower())

    def add_to_group(self, group: str, node: Node) -> None:
        """Put a node into a group, once."""
        known = self._members_of(group)
        if node not in known:
            known.add(node)
            self.groups[group].append(node)

    def remove_from_group(self, group: str, node: Node) -> None:
        """Take a node out of a group, if it is in it."""
        known = self._members_of(group)
        if node in known:
            known.remove(node)
            self.groups[group].remove(node)

    def replace_in_groups(self, change: Callable[[list[Node]], list[Node]]) -> None:
        """Give each group the members that `change` makes of its own."""
        self.groups = {group: change(nodes) for group, nodes in self.groups.items()}

    def _members_of(self, group: str) -> set[Node]:
        """The members of a group, to ask for one of many thousands.

        They are counted again where somebody else has put another list there, or changed it.
        """
        nodes = self.groups[group]
        listed, members = self._members.get(group, (None, set[Node]()))
        if listed is not nodes or len(members) != len(nodes):
            members = {*nodes}
            self._members[group] = nodes, members
        return members

    def below(self, roots: Iterable[Node]) -> list[Node]:
        """All nodes that `roots` are computed from, with them, inputs first."""
        return depth_first(roots)

    def parameter_count(self, root: Node | None = None) -> int:
        """Number of elements of all parameters that learn (learning rate not 0).

        With a `root`, only the parameters below it count; CNTK's log has the number for the
        training criterion.
        """
        nodes = self.nodes.values() if root is None else self.below([root])
        return sum(
            math.prod(node.shape)
            for node in nodes
            if node.is_parameter and node.learning_rate != 0 and node.shape
        )
