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

from typing import Any

from ...framework.base.errors import OpscopeError
from ..network.network import Network
from ..network.nodes.node import Node
from ..network.standard.settings import SimpleNetworkSettings
from ..network.standard.simple_builder import build_simple_network
from .failures import Failure, as_failure
from .language.syntax import Expression
from .networks import computation_network, duplicate, network_of
from .nodes import make_node, plain
from .values import (
    Instance,
    Path,
    Record,
    RuntimeType,
    expect_record,
    path_text,
    type_name,
)

FEATURE_READERS = ("HTKFeatReader",)
LABEL_READERS = ("HTKMLFReader",)
READERS = FEATURE_READERS + LABEL_READERS


def _instance(name: str) -> RuntimeType:
    def construct(record: Record, path: Path, where: Expression) -> Instance:
        return Instance(name, record, path, where)

    return RuntimeType(construct)


def node_reference(record: Record, path: Path, where: Expression) -> Node:
    """The constructor of `ComputeNodeRef`: an input of the dimension `dim`.

    Something else feeds it, or takes its place. It is called as the reader whose `data` it is, or
    else as its member.
    """
    dim = plain(record.get("dim"))
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
    criteria = [record.own(name) for name in names]
    own = [c for c in criteria if isinstance(c, Node)]
    chosen = ["CrossEntropyWithSoftmax", "ClassificationError"] if own else criteria
    try:
        network = build_simple_network(
            SimpleNetworkSettings(
                layer_sizes=_list(record, "layerSizes"),
                training_criterion=str(chosen[0]),
                eval_criterion=str(chosen[1]),
                layer_types=_list(record, "layerTypes", ["Sigmoid"]),
                apply_mean_var_norm=bool(record.own("applyMeanVarNorm", False)),
                need_prior=bool(record.own("needPrior", False)),
                add_dropout_nodes=bool(record.own("addDropoutNodes", False)),
                uniform_init=bool(record.own("uniformInit", True)),
                init_value_scale=record.own("initValueScale", 1.0),
                precision=str(record.find("precision", "float")),
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
        made = {node for group in ("criterion", "evaluation") for node in network.groups[group]}
        output = record.own("output")
        if isinstance(output, Node):
            replaced[output] = network.find("HLast")
        labels = [i for i in own[0].inputs if i is not None and i.is_input and i is not output]
        if labels:
            replaced[network.find("labels")] = labels[0]
        for name, node in zip(names, own, strict=False):
            node.name = name
            node.tags.append("criterion" if name == names[0] else "evaluation")
        roots = [*own, *(n for n in network.nodes.values() if n not in made)]
    else:
        roots = list(network.nodes.values())
    for group, nodes in network.groups.items():
        for node in nodes:
            node.tags.append(group)
    for old, new in replaced.items():
        new.tags += [tag for tag in old.tags if tag not in new.tags]
    result = network_of(session, roots, replaced)
    result.precision = network.precision
    return result


def _list(record: Record, name: str, default: Any = None) -> list[Any]:
    value = record.own(name)
    if value is None:
        if default is not None:
            return default
        raise Failure(f"required parameter {name!r} not found", record.expression)
    value = plain(value)
    items = value if isinstance(value, list) else [value]
    return [int(v) if isinstance(v, float) and v.is_integer() else v for v in items]


def edited_model(record: Record, path: Path, where: Expression) -> Network:
    """The constructor behind `EditModel (model, edits)`: a copy of a model with the nodes of the
    record `edits` added. Where the model has a node of that name, all its users use the new one."""
    session = record.session
    model = record.get("model")
    if not isinstance(model, Network):
        raise Failure(f"expected a ComputationNetwork, not a {type_name(model)}", where)
    edits = expect_record(record.get("edits"), where)
    added: dict[str, Node] = {}
    for name in edits.members:
        value = edits.own(name)
        if isinstance(value, Node):
            added[name] = value
        elif isinstance(value, Record):
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
    for name, node in added.items():
        node.name = name
    used = {i for copy in copies.values() for i in copy.inputs}
    roots = [*added.values()]
    roots += [c for c in copies.values() if c not in used and c not in redirected]
    result = network_of(session, roots, copies)
    result.precision = model.precision
    return result


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
    "ComputeNodeRef": RuntimeType(node_reference),
    "NDL": RuntimeType(computation_network, True),
    "SimpleNetworkBuilder": RuntimeType(simple_network),
    "EditedModel": RuntimeType(edited_model, True),
}
