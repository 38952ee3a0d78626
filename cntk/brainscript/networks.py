"""Networks made by BrainScript: from a record, from a file, by editing another; functions cloned
out of a network.

Source: ComputationNetworkScripting.cpp.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

import numpy as np

from ...framework.base.errors import OpscopeError, nearest
from ..network.graph import GROUPS, group_of_tag
from ..network.network import Network
from ..network.nodes.node import Node
from .failures import Failure, LimitFailure, as_failure
from .language.depth import MAX_ERRORS
from .language.syntax import Expression
from .nodes import attach_late
from .values import (
    Array,
    Function,
    Path,
    Record,
    RuntimeType,
    Session,
    Value,
    flatten,
    force,
    path_text,
    type_name,
)

_COPY_STEPS = 8  # of the evaluation, for a node that is copied
_COMPOSED = re.compile(r"[.\[\]]")


def node_list(value: Value, record: Record, name: str) -> list[Node]:
    """A node, or an array of nodes and arrays, as a list."""
    nodes = flatten(value)
    for node in nodes:
        if not isinstance(node, Node):
            raise Failure(f"{name!r} must hold nodes, not a {type_name(node)}", record.place(name))
    return nodes


def special_nodes(record: Record) -> list[Node]:
    """The nodes of `featureNodes`, `criterionNodes`, ..., each tagged with its group."""
    nodes = []
    for name in sorted(record.members):
        group = name.removesuffix("Nodes")
        if group != name and group in GROUPS:
            for node in node_list(record.own(name), record, name):
                if group not in node.tags:
                    node.tags.append(group)
                nodes.append(node)
    return nodes


def computation_network(record: Record, path: Path, where: Expression) -> Network:
    """The constructor of the class `ComputationNetwork`.

    It holds all nodes among the record's members, under the members' names, and all they need.
    """
    roots: list[Node] = []
    failures: list[Failure] = []
    special = {group + "Nodes" for group in GROUPS}
    try:
        roots += special_nodes(record)
    except Failure as failure:
        failures.append(failure)
    for name in sorted(record.members):
        if failures and (isinstance(failures[-1], LimitFailure) or len(failures) >= MAX_ERRORS):
            break
        try:
            value = record.own(name)
        except Failure as failure:
            failures.append(failure)
            continue
        if isinstance(value, Node):
            if name not in special:
                value.name = name
            roots.append(value)
        elif isinstance(value, Array) and name not in special:
            hint = nearest(name, special)
            if hint and all(isinstance(node, Node) for node in flatten(value)):
                record.session.warn(
                    f"{record.place(name)}: {name!r} is no group of nodes of a network{hint}"
                )
    if failures:
        raise _joined(failures)
    network = network_of(record.session, roots, {})
    network.precision = str(record.find("precision", "float"))
    return network


def _joined(failures: list[Failure]) -> Failure:
    """The first of several failures, with those at other places beside it."""
    first = failures[0]
    places = {(str(first.location), first.message)}
    for failure in failures[1:]:
        place = (str(failure.location), failure.message)
        if place not in places and "circular reference" not in failure.message:
            places.add(place)
            first.others.append(failure)
    return first


def network_of(session: Session, roots: Iterable[Node], replaced: dict[Node, Node]) -> Network:
    """A network of all nodes that the roots need, in the order of a breadth-first search.

    `replaced` maps nodes to their replacements. Names that two nodes have get a `_` in
    front, as in CNTK.
    """
    network = Network()
    work = deque(replaced.get(node, node) for node in roots)
    present: set[Node] = set()
    taken: dict[str, int] = {}
    while work:
        node = work.popleft()
        if node in present:
            continue
        present.add(node)
        _insert(network, node, taken, session)
        if not node.inputs:
            attach_late(session, node)
        for tag in sorted(node.tags):
            group = group_of_tag(tag)
            if group is not None:
                network.add_to_group(group, node)
        node.connect([replaced.get(n, n) if n is not None else None for n in node.inputs])
        work.extend(n for n in node.inputs if n is not None)
    return network


def _insert(network: Network, node: Node, taken: dict[str, int], session: Session) -> None:
    """Put a node into a network; `taken`: how many `_` its name has in front that were taken."""
    written = node.name
    node.name = "_" * taken.get(written, 0) + written
    while node.name in network:
        same = network.find(node.name)
        if same.name != node.name and not _COMPOSED.search(node.name):
            break  # two names of the user's own that differ by case alone
        node.name = "_" + node.name
    taken[written] = len(node.name) - len(written)
    session.spend(len(node.name) >> 6, node.location)
    try:
        network.insert(node)
    except OpscopeError as error:
        raise as_failure(error, None) from None


def network_from_file(record: Record, path: Path, where: Expression) -> Network:
    """The constructor of `ComputationNetworkFromFile`: `BS.Network.Load (pathName)`."""
    session = record.session
    name = record.get("pathName")
    if not isinstance(name, str):
        raise Failure("'pathName' must be a string", record.place("pathName"))
    if session.load_model is None:
        raise Failure(f"model files such as {name!r} cannot be read here", where)
    try:
        network = session.load_model(name)
    except OpscopeError as error:
        raise as_failure(error, record.place("pathName")) from error
    for group, nodes in network.groups.items():
        for node in nodes:
            if group not in map(group_of_tag, node.tags):
                node.tags.append(group)
    return network


# --- editing


def network_with_edits(record: Record, path: Path, where: Expression) -> Network:
    """The constructor of `ComputationNetworkWithEdits`: `BS.Network.Edit`.

    Each node of `inputModel` is given to each of `editFunctions` until one returns another node,
    which takes its place. All nodes that use it, near or far, are copied; the others are shared
    with the original. `additionalRoots` come on top.
    """
    session = record.session
    model = record.get("inputModel")
    if not isinstance(model, Network):
        raise Failure(
            f"'inputModel' is a {type_name(model)}, no network", record.place("inputModel")
        )
    functions = flatten(record.get("editFunctions"))
    extra = node_list(record.get("additionalRoots"), record, "additionalRoots")
    nodes = model.sorted_nodes()
    replaced: dict[Node, Node] = {}
    for node in nodes:
        for function in functions:
            if not isinstance(function, Function) or len(function.parameters) != 1:
                raise Failure(
                    "'editFunctions' must hold functions of one node", record.place("editFunctions")
                )
            result = function.call([node], {}, (None, node.name))
            if not isinstance(result, Node):
                raise Failure(
                    f"an edit function returned a {type_name(result)} for node {node.name!r}",
                    record.place("editFunctions"),
                )
            if result is not node:
                replaced[node] = result
                break
    parents: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for source in node.inputs:
            if source in parents:
                parents[source].append(node)
    work = deque(replaced)
    while work:
        for parent in parents[work.popleft()]:
            if parent not in replaced:
                replaced[parent] = duplicate(parent, parent.name)
                work.append(parent)
    for node in replaced:
        _follow(node, replaced)
    roots = [node for node in nodes if not parents[node]] + extra + special_nodes(record)
    return network_of(session, roots, replaced)


def _follow(node: Node, replaced: dict[Node, Node]) -> None:
    """A replacement that is itself replaced: go on to the last."""
    seen = {node}
    last = replaced[node]
    while last in replaced and last not in seen:
        seen.add(last)
        last = replaced[last]
    replaced[node] = last


def duplicate(node: Node, name: str) -> Node:
    """A copy of a node with the same inputs."""
    copy = Node(name, node.kind, node.inputs, dict(node.attributes), node.location, node.tags)
    copy.shape = node.shape
    copy.axis = node.axis
    copy.learning_rate = node.learning_rate
    copy.value = None if node.value is None else np.array(node.value)
    return copy


# --- cloning

_TREATMENTS = ("learnable", "constant", "shared")


class ClonedFunction(Function):
    """A part of a network as a function: every call makes a copy of that part.

    Copied are the nodes that depend on the given inputs and, unless `parameters` is "shared",
    on parameters; all other nodes are shared. The result is a node, or a record of nodes.
    """

    __slots__ = ("_inputs", "_nodes", "_outputs", "_record", "_single", "_treatment")

    def __init__(self, record: Record, where: Expression):
        self._record = record
        self._inputs = node_list(record.get("inputNodes"), record, "inputNodes")
        super().__init__([f"input_{i}" for i in range(len(self._inputs))], {})
        outputs = record.get("outputNodes")
        self._single = isinstance(outputs, Node)
        if self._single:
            self._outputs = {"": outputs}
        elif isinstance(outputs, Record) and outputs.members:
            self._outputs = {name: outputs.own(name) for name in sorted(outputs.members)}
        else:
            raise Failure(
                "'outputNodes' must be a node or a record of nodes", record.place("outputNodes")
            )
        outputs = list(self._outputs.values())
        for node in outputs:
            if not isinstance(node, Node):
                raise Failure(
                    f"'outputNodes' holds a {type_name(node)}", record.place("outputNodes")
                )
        self._treatment = record.get("parameters")
        if self._treatment not in _TREATMENTS:
            raise Failure(
                f"'parameters' must be one of {', '.join(_TREATMENTS)}", record.place("parameters")
            )
        below = all_below(record.session, outputs)
        for node in self._inputs:
            if node not in below:
                raise Failure(
                    f"no output depends on the input {node.name!r}", record.place("inputNodes")
                )
        self._nodes = self._dependents(below)

    def _dependents(self, below: dict[Node, None]) -> dict[Node, None]:
        """The nodes to copy: all that read, perhaps in a loop, an input or a parameter."""
        frozen = ("LearnableParameter", "BatchNormalization")
        dependents = dict.fromkeys(self._inputs)
        if self._treatment != "shared":
            dependents.update(dict.fromkeys(n for n in below if n.operation in frozen))
        readers: dict[Node | None, list[Node]] = {}
        for node in below:
            for child in node.inputs:
                readers.setdefault(child, []).append(node)
        work = list(dependents)
        while work:
            for node in readers.get(work.pop(), ()):
                if node not in dependents:
                    dependents[node] = None
                    work.append(node)
        return dependents

    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        self.complete(named)
        session = self._record.session
        copies: dict[Node, Node] = {}
        for node, argument in zip(self._inputs, arguments, strict=True):
            copies[node] = node_list(force(argument), self._record, "inputNodes")[0]
        copied = []
        for node in self._nodes:
            if node not in copies:
                name = path_text((path, "." + node.name))
                session.spend(_COPY_STEPS + (len(name) >> 6), self._record.expression)
                copy = duplicate(node, name)
                if self._treatment == "constant" and copy.is_parameter:
                    copy.learning_rate = 0.0
                    copy.attributes["learningRateMultiplier"] = 0.0
                copies[node] = copy
                copied.append(copy)
        for copy in copied:
            copy.inputs = [copies.get(node, node) for node in copy.inputs]
        results = {name: copies.get(node, node) for name, node in self._outputs.items()}
        if self._single:
            return results[""]
        return Record(session, None, self._record.expression, dict(results))


def all_below(session: Session, roots: Iterable[Node]) -> dict[Node, None]:
    """The roots and all nodes that they need, in the order of a depth-first search."""
    nodes: dict[Node, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in nodes:
            continue
        nodes[node] = None
        if not node.inputs:
            attach_late(session, node)
        stack.extend(i for i in node.inputs if i is not None)
    return nodes


def clone_function(record: Record, path: Path, where: Expression) -> ClonedFunction:
    """The constructor of `CloneFunctionConfigLambda`: `BS.Network.CloneFunction`."""
    return ClonedFunction(record, where)


NETWORK_TYPES = {
    "ComputationNetwork": RuntimeType(computation_network, True),
    "ComputationNetworkFromFile": RuntimeType(network_from_file, True),
    "ComputationNetworkWithEdits": RuntimeType(network_with_edits, True),
    "CloneFunctionConfigLambda": RuntimeType(clone_function),
}
