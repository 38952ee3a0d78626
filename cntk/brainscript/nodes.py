"""Nodes made by BrainScript: `new ComputationNode [ operation = ... ; inputs = ... ]`.

The record's members, and where it lacks one the scopes around it, give the node's attributes as
its kind names them. A delay node reads its inputs when the network is put together, since they may
depend on it.

Source: ComputationNetworkBuilder.cpp (NewComputationNodeFromConfig), ComputationNode.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.errors import OpscopeError, SlotError, nearest
from ..base.text import Location
from ..network.catalog import kind as find_kind
from ..network.nodes.initial_values import RANDOM, kind_of_values
from ..network.nodes.node import Kind, Node
from .failures import Failure, Where, as_failure, too_nested
from .language.depth import MAX_SHOWN
from .language.syntax import Expression, LibrarySource
from .values import (
    Array,
    Path,
    Record,
    Session,
    Shape,
    Value,
    flatten,
    path_text,
    type_name,
)


def make_node(
    session: Session,
    operation: str,
    path: Path,
    inputs: list[Node] | None,
    attributes: dict[str, Any],
    where: Where,
) -> Node:
    """A node that is in no network yet. `inputs` None: to be attached later."""
    location = user_place(session, where)
    try:
        kind = find_kind(operation)
        complete = kind.complete(attributes)
    except OpscopeError as error:
        raise as_failure(error, where) from None
    name = path_text(path) or operation
    session.spend(1 + (len(name) >> 6), where)
    node = Node(name, kind, inputs or (), complete, location)
    if node.is_parameter:
        node.learning_rate = complete["learningRateMultiplier"]
        try:
            random = kind_of_values(node) in RANDOM
        except OpscopeError as error:
            raise as_failure(error, where) from None
        if random and complete["randomSeed"] < 0:
            complete["randomSeed"] = next(session.seeds)
    if inputs is not None:
        check_count(node, where)
    return node


def user_place(session: Session, where: Where) -> Location | None:
    """The place of an expression; for one of the library the place in user text that needs it."""
    if where is None:
        return None
    place = where if isinstance(where, Location) else where.location
    if not isinstance(where.source, LibrarySource):
        return place
    thunk = session.waiting[-1].needed_by if session.waiting else None
    return thunk.expression.location if thunk is not None else place


def check_count(node: Node, where: Where) -> None:
    """Whether the node has as many inputs as its kind takes."""
    low, high = node.kind.inputs
    count = len(node.inputs)
    if count < low or (high is not None and count > high):
        wanted = (
            f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        )
        raise Failure(
            f"{node.name} {node.operation} operation: expected {wanted} inputs, but {count} were"
            " given",
            where,
            SlotError,
        )


def constant(
    session: Session, value: float, shape: tuple[int, ...], path: Path, where: Where
) -> Node:
    """A parameter that does not learn, for a number among nodes."""
    attributes = {"shape": shape, "initValue": value, "learningRateMultiplier": 0.0}
    return make_node(session, "LearnableParameter", path, [], attributes, where)


def plain(value: Value, names: tuple[str, ...] = ()) -> Any:
    """A value as node attributes hold it: arrays as lists without nesting, records as dicts.

    Args:
        names: of the records' members around the value, for errors.

    Raises:
        LimitFailure: records nest too deeply, or one holds itself.
    """
    if len(names) > MAX_SHOWN:
        raise too_nested(names, value.expression if isinstance(value, Record) else None)
    if isinstance(value, Array):
        return [plain(item, names) for item in flatten(value)]
    if isinstance(value, Shape):
        return tuple(value)
    if isinstance(value, Record):
        return {name: plain(value.get(name), (*names, name)) for name in value.members}
    return value


def computation_node(record: Record, path: Path, where: Expression) -> Node:
    """The constructor of the class `ComputationNode`."""
    session = record.session
    operation = record.get("operation")
    if not isinstance(operation, str):
        raise Failure("'operation' must be a string", record.expression)
    try:
        kind = find_kind(operation)
    except OpscopeError as error:
        raise as_failure(error, where) from None
    attributes = {}
    for name in kind.attributes:
        value = record.find(name)
        if value is not None:
            attributes[name] = plain(value)
    if not isinstance(where.source, LibrarySource):
        warn_of_unknown(record, operation, ("operation", "inputs", "tag"), kind, where)
    late = kind.can_delay
    inputs = None if late else inputs_of(record, where)
    node = make_node(session, operation, path, inputs, attributes, where)
    tag = record.find("tag", "")
    if tag:
        node.tags.append(str(tag))
    if late:
        session.late[node] = (record, where)
    return node


def warn_of_unknown(
    record: Record, operation: str, others: Sequence[str], kind: Kind, where: Expression
) -> None:
    """Say which members of a node's record its kind does not know; CNTK passes over them."""
    known = {*kind.attributes, *others, "dims"}
    for name in record.members:
        if name not in known:
            record.session.warn(
                f"{where.location}: {operation} has no attribute {name!r}{nearest(name, known)}"
            )


def attach_late(session: Session, node: Node) -> None:
    """Compute the inputs of a delay node that has none yet."""
    pending = session.late.pop(node, None)
    if pending is not None:
        record, where = pending
        node.inputs = inputs_of(record, where)
        check_count(node, where)


def inputs_of(record: Record, where: Expression) -> list[Node]:
    """The member `inputs`: a node or an array of them; numbers become constants."""
    value = record.find("inputs")
    if value is None:
        return []
    return as_input_nodes(record.session, [value], record.place("inputs") or where)


def as_input_nodes(session: Session, values: list[Value], where: Where) -> list[Node]:
    """Nodes for the inputs of one node: arrays are flattened, numbers become constants."""
    nodes = []
    for item in flatten(Array(values)):
        if isinstance(item, (float, bool)):
            # The name that CNTK's library gives to such a constant.
            path = (None, f"inputs.arr[{len(nodes)}].res")
            item = constant(session, float(item), (1, 1), path, where)
        if not isinstance(item, Node):
            raise Failure(
                f"input {len(nodes)} of a node must be a ComputationNode, not a {type_name(item)}",
                where,
            )
        nodes.append(item)
    return nodes
