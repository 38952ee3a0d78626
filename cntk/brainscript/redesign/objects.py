"""The classes of the redesigned top level, and its functions for editing models.

A file in that language says what `new CNTK [ ... ]` takes: settings, and `actions`, one or several
of

    new TrainAction [ source = ... ; model = ... ; optimizer = ... ]
    new EditAction [ ... ; do = ( Dump (net, path) : SaveModel (net, path) ) ]

A source has readers, whose `data` is a `ComputeNodeRef`: an input node that the model can use
before any file is open.

Source: F. Seide's notes on the redesign of the configuration language, 2015.
"""

from __future__ import annotations

import re
from typing import Any

from ....framework.base.errors import OpscopeError
from ...network.network import Network
from ...network.nodes.node import Node
from ...network.standard.settings import SimpleNetworkSettings
from ...network.standard.simple_builder import build_simple_network
from ..failures import Failure, as_failure
from ..functions import replaced_text, show
from ..language.syntax import Expression
from ..networks import all_below, computation_network, duplicate, network_of
from ..nodes import computation_node, make_node, user_place, warn_of_unknown
from ..values import (
    Array,
    Instance,
    Path,
    Record,
    RuntimeType,
    Session,
    Thunk,
    Value,
    expect_number,
    expect_record,
    flatten,
    path_text,
    type_name,
)
from .classes import is_argument
from .members import setting_value
from .sections import READERS

MAX_DIMENSION = 1 << 31


def _instance(name: str) -> RuntimeType:
    def construct(record: Record, path: Path, where: Expression) -> Instance:
        return Instance(name, record, path, where)

    return RuntimeType(construct)


def node_reference(record: Record, path: Path, where: Expression) -> Node:
    """The constructor of `ComputeNodeRef`: an input of the dimension `dim`.

    Something else feeds it, or takes its place. It is called as the reader whose `data` it is, or
    else as its member.
    """
    dim = record.get("dim")
    if not isinstance(dim, float) or not dim.is_integer() or not 0 < dim < MAX_DIMENSION:
        shown = f"{dim:g}" if isinstance(dim, float) else f"a {type_name(dim)}"
        message = f"'dim' must be a positive number without a fraction, not {shown}"
        raise Failure(message, record.place("dim"))
    pieces = path_text(path).split(".")
    if pieces[-1] == "data" and len(pieces) > 1:
        pieces.pop()
    return make_node(record.session, "InputValue", (None, pieces[-1]), [], {"shape": dim}, where)


def simple_network(record: Record, path: Path, where: Expression) -> Network:
    """The constructor of `SimpleNetworkBuilder`.

    `input` is the node to take features from; `trainingCriterion` and `evalCriterion` are nodes
    that use the labels and `output`, a ComputeNodeRef in the place of the top layer, or names as in
    the old language.
    """
    session = record.session
    names = ("trainingCriterion", "evalCriterion")
    criteria = [record.get(name) for name in names]
    own = [c for c in criteria if isinstance(c, Node)]
    chosen = ["CrossEntropyWithSoftmax", "ClassificationError"] if own else criteria
    try:
        network = build_simple_network(
            SimpleNetworkSettings(
                layer_sizes=_list(record, "layerSizes"),
                training_criterion=str(chosen[0]),
                eval_criterion=str(chosen[1]),
                layer_types=_list(record, "layerTypes", "Sigmoid"),
                apply_mean_var_norm=_flag(record, "applyMeanVarNorm", False),
                need_prior=_flag(record, "needPrior", False),
                add_dropout_nodes=_flag(record, "addDropoutNodes", False),
                uniform_init=_flag(record, "uniformInit", True),
                init_value_scale=expect_number(setting_value(record, "initValueScale", 1.0), where),
                precision=setting_value(record, "precision", "float"),
            )
        )
    except (OpscopeError, TypeError, ValueError) as error:
        if isinstance(error, OpscopeError):
            raise as_failure(error, where) from None
        raise Failure(f"SimpleNetworkBuilder: {error}", where) from None
    replaced: dict[Node, Node] = {}
    source = record.own("input")
    if isinstance(source, Node):
        replaced[network.find("features")] = source
    if own:
        standard = {node for group in ("criterion", "evaluation") for node in network.groups[group]}
        output = record.own("output")
        if isinstance(output, Node):
            replaced[output] = network.find("HLast")
        labels = [i for i in own[0].inputs if i is not None and i.is_input and i is not output]
        if labels:
            replaced[network.find("labels")] = labels[0]
        for name, node in zip(names, own, strict=False):
            node.name = name
            node.tags.append("criterion" if name == names[0] else "evaluation")
        roots = [*own, *(n for n in network.nodes.values() if n not in standard)]
    else:
        roots = list(network.nodes.values())
    for group, nodes in network.groups.items():
        for node in nodes:
            node.tags.append(group)
    for old, new in replaced.items():
        new.tags += [tag for tag in old.tags if tag not in new.tags]
    for node in network.nodes.values():
        node.location = node.location or user_place(session, where)
    result = network_of(session, roots, replaced)
    result.precision = network.precision
    return result


def _list(record: Record, name: str, default: Value = None) -> list[Any]:
    items = flatten(setting_value(record, name, default))
    if not items:
        raise Failure(f"{name!r} is an empty array", record.place(name))
    return [int(v) if isinstance(v, float) and v.is_integer() else v for v in items]


def _flag(record: Record, name: str, default: bool) -> bool:
    value = setting_value(record, name, default)
    if not isinstance(value, bool):
        raise Failure(f"{name!r} must be a boolean, not a {type_name(value)}", record.place(name))
    return value


def edited_model(record: Record, path: Path, where: Expression) -> Network:
    """The constructor of `EditModel (model, edits)`: a copy of a model with the nodes of the
    record `edits` added, named as they are there. Where the model has a node of that name, all its
    users use the new one."""
    session = record.session
    model = record.get("model")
    if not isinstance(model, Network):
        raise Failure(f"expected a ComputationNetwork, not a {type_name(model)}", where)
    edits = expect_record(record.get("edits"), where)
    edits.owner = record.owner
    added: dict[str, Node] = {}
    for name in edits.members:
        value = edits.own(name)
        if isinstance(value, Node):
            added[name] = value
        elif isinstance(value, Record):
            value.owner = record.owner
            for inner in value.members:
                node = value.own(inner)
                if isinstance(node, Node):
                    added[f"{name}.{inner}"] = node
    copies = {node: duplicate(node, node.name) for node in model.nodes.values()}
    redirected = {copies[model.find(name)]: node for name, node in added.items() if name in model}
    for copy in copies.values():
        inputs = (copies.get(i, i) if i is not None else None for i in copy.inputs)
        copy.connect([redirected.get(i, i) if i is not None else None for i in inputs])
    for old, new in redirected.items():
        new.tags += [tag for tag in old.tags if tag not in new.tags]
        old.tags.clear()
    _rename(session, added, {*copies, *copies.values()}, _starts(edits, path))
    used = {i for copy in copies.values() for i in copy.inputs}
    roots = [*added.values()]
    roots += [c for c in copies.values() if c not in used and c not in redirected]
    result = network_of(session, roots, copies)
    result.precision = model.precision
    return result


def _starts(edits: Record, path: Path) -> list[str]:
    """How the names of new nodes begin: with the path of the record that they were written in, of
    the edited model, or of the action around it."""
    inside = next((m.path for m in edits.members.values() if isinstance(m, Thunk)), None)
    outer = [inside[0] if inside is not None else None, path, path[0] if path is not None else None]
    return [f"{path_text(start)}." for start in outer if start is not None]


def _rename(session: Session, added: dict[str, Node], old: set[Node], starts: list[str]) -> None:
    """Name new nodes as the record of edits does, and those after them relative to it."""
    names = {node: name for name, node in added.items()}
    for node in all_below(session, added.values()):
        if node in names:
            node.name = names[node]
        elif node not in old:
            start = next((start for start in starts if node.name.startswith(start)), "")
            node.name = node.name.removeprefix(start)


def compute_node(record: Record, path: Path, where: Expression) -> Node:
    """The constructor of `ComputeNode`: `class`, the inputs `arg1`, `arg2`, ..., and attributes."""
    arguments = [name for name in record.members if is_argument(name)]
    members: dict[str, Value] = {}
    if "class" in record.members:
        members["operation"] = record.members["class"]
    elif "operation" not in record.members:
        raise Failure("ComputeNode needs the parameter 'class', the node's kind", record.expression)
    if arguments:
        for number, name in enumerate(sorted(arguments, key=lambda name: int(name[3:])), 1):
            if name != f"arg{number}":
                message = f"there is no 'arg{number}' before {name!r}"
                raise Failure(message, record.place(name))
        members["inputs"] = Array([record.members[f"arg{n + 1}"] for n in range(len(arguments))])
    inside = Record(record.session, record, record.expression, members)
    node = computation_node(inside, path, where)
    warn_of_unknown(record, node.operation, ("class", "tag", *arguments), node.kind, where)
    return node


_PRINTF = re.compile(r"%(?:%|([-+ #0]*[0-9]{0,3}(?:\.[0-9]{0,3})?)(?:l*)([diuxXoeEfFgGs]))")


def string(record: Record, path: Path, where: Expression) -> str:
    """The constructor of `String`: text replaced in another, or a value formatted."""
    if "format" in record.members:
        return _formatted(_text(record, "format"), record.get("arg"), record)
    names = ("from", "replacing", "with")
    for name in names:
        if name not in record.members:
            message = f"String needs the parameter {name!r} (or 'format' and 'arg')"
            raise Failure(message, record.expression)
    text, old, new = (_text(record, name) for name in names)
    return replaced_text(text, old, new, record.session, where)


def _text(record: Record, name: str) -> str:
    value = record.own(name)
    if not isinstance(value, str):
        raise Failure(f"{name!r} must be a string, not a {type_name(value)}", record.place(name))
    return value


def _formatted(text: str, value: Value, record: Record) -> str:
    """`value` as sprintf writes it: `text` has one `%`."""
    place = record.place("format")
    conversions = [match for match in _PRINTF.finditer(text) if match.group(2)]
    percents = text.replace("%%", "").count("%")
    if len(conversions) != 1 or percents != 1:
        message = f"a format is a text with one % of sprintf, such as '%.2f', not {text[:40]!r}"
        raise Failure(message, place)
    how, kind = conversions[0].groups()
    if kind == "s":
        shown = f"%{how}s" % show(value, record.session)
    elif not isinstance(value, float):
        raise Failure(f"%{kind} takes a number, not a {type_name(value)}", record.place("arg"))
    elif kind in "diuxXo":
        if not value.is_integer():
            message = f"%{kind} takes an integer, not {value:g}"
            raise Failure(message, record.place("arg"))
        shown = f"%{how}{kind.replace('u', 'd')}" % int(value)
    else:
        shown = f"%{how}{kind}" % value
    start, end = conversions[0].span()
    return text[:start].replace("%%", "%") + shown + text[end:].replace("%%", "%")


REDESIGNED_TYPES: dict[str, RuntimeType] = {
    name: _instance(name)
    for name in (
        "CNTK",
        "TrainAction",
        "EditAction",
        "Model",
        "SGDOptimizer",
        "RandomizingSource",
        "Dump",
        "SaveModel",
        *READERS,
    )
}
REDESIGNED_TYPES |= {
    "ComputeNode": RuntimeType(compute_node, True),
    "ComputeNodeRef": RuntimeType(node_reference),
    "String": RuntimeType(string),
    "NDL": RuntimeType(computation_network, True),
    "SimpleNetworkBuilder": RuntimeType(simple_network),
    "EditedModel": RuntimeType(edited_model, True),
}
