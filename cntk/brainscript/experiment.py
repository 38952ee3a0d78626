"""A file in the redesigned language as actions to run: trainings and edits.

    experiment = load_experiment(["configFile=train.bs", "ExpDir=out", "deviceId=-1"])
    for action in experiment.actions:
        ...

The command line `configFile=train.bs a=b c=d` means `new CNTK [ the file ] + [ a=b ; c=d ]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...framework.base.atomic import atomic_file
from ...framework.base.errors import FormatError, nearest
from ..base.text import Source, located
from ..config import ConfigParameters, parse_config
from ..config.files import read_source
from ..models.dump import dump
from ..models.v1 import write_model
from ..network.initialize import initialize
from ..network.network import Network
from ..network.nodes.node import Node
from .build import TYPES, evaluate, file_finder, model_loader
from .failures import Failure
from .language import syntax
from .language.depth import MAX_NESTING, deep_calls
from .language.parser import parse_expression, parse_members
from .language.printer import number_text
from .language.syntax import New, Number
from .language.tokens import Finder
from .library import REDESIGNED
from .redesign import FEATURE_READERS, LABEL_READERS, READERS, REDESIGNED_TYPES
from .values import (
    Array,
    Instance,
    Record,
    Session,
    Thunk,
    Value,
    expect_integer,
    flatten,
    force,
    type_name,
)


@dataclass(frozen=True)
class TrainAction:
    """A training: where data come from, the network, and how it is optimised.

    `config` holds the same in the old language: the section of a train command without its network
    builder, with `SGD` and `reader`.
    """

    name: str
    network: Network
    config: ConfigParameters


@dataclass(frozen=True)
class EditAction:
    """Models to be written: pairs of `Dump` or `SaveModel`, the network, and the file."""

    name: str
    steps: tuple[tuple[str, Network, Path], ...]

    def run(self) -> None:
        """Write the files; new parameters get their initial values.

        Raises:
            SaveError: a file cannot be written.
            ShapeError: an edited network does not fit together.
        """
        for what, network, path in self.steps:
            network.validate()
            initialize(network)
            if what == "SaveModel":
                write_model(network, path)
            else:
                with atomic_file(path) as file:
                    file.write(dump(network).encode())


@dataclass(frozen=True)
class Experiment:
    """A file of the redesigned language: its actions in order, and its settings."""

    actions: tuple[TrainAction | EditAction, ...]
    settings: dict[str, Any]


def is_redesigned(source: Source) -> bool:
    """Whether a text is of the redesigned language: `new CNTK [...]`, or members with `actions`."""
    try:
        top = _top_record(source, file_finder(()))
    except FormatError:
        return False
    return any(member.name == "actions" for member in top.members)


def load_experiment(arguments: Sequence[str]) -> Experiment:
    """The actions of `configFile=file.bs name=value ...`.

    A name with dots, such as `Train.optimizer.maxEpochs`, goes into the records of the file. A
    value is BrainScript if it is one constant, record or array, a string in quotes, or an
    expression in parentheses; anything else is a string.

    Raises:
        OpscopeError: no configFile, or something is wrong in it or in a value; with the place.
    """
    overrides: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not all(part.isidentifier() for part in name.strip().split(".")):
            raise FormatError(f"{argument!r}: an argument must have the form name=value")
        overrides[name.strip()] = value.strip()
    if "configFile" not in overrides:
        raise FormatError("there is no configFile=... among the arguments")
    path = Path(overrides.pop("configFile"))
    return read_experiment(read_source(path), overrides, [path.parent])


def read_experiment(
    source: Source, overrides: dict[str, str] | None = None, folders: Sequence[Path] = ()
) -> Experiment:
    """The actions of a text, with members of its top level, or inside, replaced by `overrides`."""
    record = _top_record(source, file_finder(folders))
    for name, value in (overrides or {}).items():
        names = name.split(".")
        if len(names) > MAX_NESTING:
            raise FormatError(f"{name[:60]}...: more than {MAX_NESTING} records in one another")
        with deep_calls():
            record = _with_member(record, names, _override(name, value))
    expression = New(record.source, record.at, "CNTK", record)
    types = {**TYPES, **REDESIGNED_TYPES}
    session = Session(types, model_loader(folders, "float"), curried=True)
    settings = {"precision": "float", "deviceId": -1.0, "traceLevel": 0.0}
    program = evaluate(expression, session, settings, "CNTK", REDESIGNED)
    with deep_calls():
        try:
            return _experiment(program)
        except Failure as failure:
            raise failure.error() from None
        except RecursionError:
            raise located(FormatError, "the actions need each other too deeply", None) from None


def _top_record(source: Source, find: Finder | None) -> syntax.Record:
    """What `new CNTK` takes: the whole text, or the record of the `new CNTK` that it is."""
    if source.text.lstrip().startswith("new"):
        expression = parse_expression(source, find)
        if (
            isinstance(expression, New)
            and expression.type == "CNTK"
            and isinstance(expression.argument, syntax.Record)
        ):
            return expression.argument
        raise located(FormatError, "new CNTK [ ... ] expected", expression.location)
    return parse_members(source, find)


def _override(name: str, value: str) -> syntax.Expression:
    """A value of the command line: BrainScript or a string."""
    source = Source(f"(command line) {name}", value)
    string = syntax.String(source, 0, value)
    try:
        parsed = parse_expression(source)
    except FormatError:
        return string
    literal = (Number, syntax.String, syntax.Boolean, syntax.Record, syntax.Array)
    negative = isinstance(parsed, syntax.Unary) and isinstance(parsed.operand, Number)
    return parsed if isinstance(parsed, literal) or negative or value.startswith("(") else string


def _with_member(
    record: syntax.Record, names: Sequence[str], value: syntax.Expression
) -> syntax.Record:
    """A record with the member `names` joined by dots replaced or, in the last record, added."""
    name = names[0]
    if len(names) > 1:
        old = next((member.value for member in record.members if member.name == name), None)
        inner = old.argument if isinstance(old, New) else old
        if not isinstance(inner, syntax.Record):
            what = "there is no" if old is None else "no record is written as the value of"
            raise located(FormatError, f"{what} member {name!r} to look into", value.location)
        value = _with_member(inner, names[1:], value)
        if isinstance(old, New):
            value = New(old.source, old.at, old.type, value)
    changed = syntax.Member(value.source, value.at, name, value)
    others = tuple(member for member in record.members if member.name != name)
    return syntax.Record(record.source, record.at, (*others, changed))


# --- from objects to actions


def _experiment(program: Instance) -> Experiment:
    record = program.record
    actions = []
    value = record.members.get("actions")
    if value is None:
        raise Failure("the top level has no member 'actions'", record.expression)
    for number, action in enumerate(flatten(force(value))):
        if not isinstance(action, Instance) or action.type not in _ACTIONS:
            raise Failure(
                f"an action must be one of {', '.join(_ACTIONS)}, not a {type_name(action)}",
                record.place("actions"),
            )
        name = _action_name(record, action) or f"action{number + 1}"
        actions.append(_ACTIONS[action.type](name, action))
    settings = {}
    for name, member in record.members.items():
        expression = member.expression if isinstance(member, Thunk) else None
        if name == "actions" or isinstance(expression, (syntax.Lambda, New)):
            continue
        value = force(member)
        if isinstance(value, (str, float, bool)):
            settings[name] = value
    return Experiment(tuple(actions), settings)


def _action_name(record: Record, action: Instance) -> str:
    for name, member in record.members.items():
        if isinstance(member, Thunk) and member.value is action and name != "actions":
            return name
    return ""


def _instance(record: Record, name: str, *types: str) -> Instance:
    value = record.own(name)
    if not isinstance(value, Instance) or value.type not in types:
        raise Failure(
            f"{name!r} must be a {' or '.join(types)}"
            + ("" if value is None else f", not a {type_name(value)}"),
            record.place(name) if value is not None else record.expression,
        )
    return value


def _train(name: str, action: Instance) -> TrainAction:
    record = action.record
    model = _instance(record, "model", "Model").record
    network = model.own("network")
    if not isinstance(network, Network):
        raise Failure(
            f"'network' must be a network, not a {type_name(network)}", model.place("network")
        )
    optimizer = _instance(record, "optimizer", "SGDOptimizer").record
    source = _instance(record, "source", "RandomizingSource").record
    for member, group in (("trainingCriterion", "criterion"), ("evalCriterion", "evaluation")):
        node = optimizer.own(member)
        if isinstance(node, Node):
            network.add_to_group(group, node)
    reader = _reader(source, network)
    lines = [
        "action = train",
        f"precision = {record.find('precision')}",
        f"deviceId = {_config(record.find('deviceId'))}",
        f"traceLevel = {_config(record.find('traceLevel'))}",
        f"modelPath = {_config(model.get('modelPath'))}",
        f"SGD = [\n{_section(optimizer, ('trainingCriterion', 'evalCriterion'))}]",
        f"reader = [\n{reader}]",
    ]
    network.precision = str(record.find("precision"))
    return TrainAction(name, network, parse_config("\n".join(lines), name))


def _reader(source: Record, network: Network) -> str:
    """The source as a section of the old HTKMLFReader."""
    lines = ["readerType = HTKMLFReader", _section(source, ("streams", "dataSetFile"))]
    for reader, node in _streams(source, network):
        feature = reader.type in FEATURE_READERS
        for group in ("feature", "label"):
            if node in network.groups[group]:
                network.groups[group].remove(node)
        network.add_to_group("feature" if feature else "label", node)
        size = "dim" if feature else "labelDim"
        entries = _section(reader.record, ("data",))
        entries += f"{size} = {node.attributes['shape'][0] // _frames(reader, node)}\n"
        lines.append(f"{node.name} = [\n{entries}]\n")
    return "\n".join(lines)


def _frames(reader: Instance, node: Node) -> int:
    """How many frames of a file make one sample: `contextWindow`, or left and right context."""
    window = [
        expect_integer(w, reader.expression)
        for w in flatten(reader.record.own("contextWindow", 1.0))
    ]
    frames = window[0] if len(window) == 1 else 1 + sum(window)
    if frames < 1 or node.attributes["shape"][0] % frames:
        raise Failure(
            f"{node.attributes['shape'][0]} dimensions are not those of {frames} frames",
            reader.record.place("contextWindow"),
        )
    return frames


def _streams(source: Record, network: Network) -> Iterator[tuple[Instance, Node]]:
    """The readers of a source and the nodes that they feed: those of `streams`, or else all readers
    whose `data` the network uses."""
    streams = source.own("streams")
    if streams is None:
        for name in source.members:
            reader = source.own(name)
            if isinstance(reader, Instance) and reader.type in READERS:
                node = reader.record.own("data")
                if isinstance(node, Node) and network.nodes.get(node.name) is node:
                    yield reader, node
        return
    for stream in flatten(streams):
        if not isinstance(stream, Record):
            raise Failure("'streams' must hold records", source.place("streams"))
        reader = _instance(stream, "reader", *FEATURE_READERS, *LABEL_READERS)
        node = stream.own("input")
        if not isinstance(node, Node):
            raise Failure("'input' of a stream must be a node", stream.place("input"))
        data = reader.record.own("data")
        if isinstance(data, Node) and data.attributes["shape"] != node.attributes["shape"]:
            raise Failure(
                f"the reader gives {data.attributes['shape'][0]} dimensions, but {node.name!r} has"
                f" {node.attributes['shape'][0]}",
                stream.place("input"),
            )
        yield reader, node


def _section(record: Record, without: Sequence[str]) -> str:
    """The plain members of a record as lines of the old language."""
    lines = []
    for name in record.members:
        if name in without or isinstance(_expression(record.members[name]), syntax.Lambda):
            continue
        value = record.own(name)
        if isinstance(value, (str, float, bool, Array)):
            lines.append(f"{name} = {_setting(record, name, value, without)}\n")
    return "".join(lines)


def _setting(record: Record, name: str, value: Value, others: Sequence[str]) -> str:
    """A plain member as the old language writes it: a value, or values separated by colons.

    Raises:
        Failure: it holds something else, such as the records of a misspelt `streams`.
    """
    items = flatten(value)
    for item in items:
        if not isinstance(item, (str, float, bool)):
            raise Failure(
                f"{name!r} must hold numbers, strings or booleans, not a {type_name(item)}"
                + nearest(name, others),
                record.place(name),
            )
    return ":".join(_config(item) for item in items)


def _expression(value: Value) -> syntax.Expression | syntax.Member | None:
    return value.expression if isinstance(value, Thunk) else None


def _config(value: Value) -> str:
    """A string, number or boolean as the old language writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return ("-" if value < 0 else "") + number_text(abs(value))
    if isinstance(value, str):
        return f'"{value}"'
    raise Failure(f"expected a number, a string or a boolean, not a {type_name(value)}", None)


def _edit(name: str, action: Instance) -> EditAction:
    record = action.record
    steps = []
    for step in flatten(record.get("do")):
        if not isinstance(step, Instance) or step.type not in ("Dump", "SaveModel"):
            raise Failure(
                f"'do' must hold Dump or SaveModel, not a {type_name(step)}", record.place("do")
            )
        network, path = step.record.get("model"), step.record.get("pathName")
        if not isinstance(network, Network) or not isinstance(path, str):
            raise Failure(f"{step.type} takes a network and a file name", step.expression)
        steps.append((step.type, network, Path(path)))
    return EditAction(name, tuple(steps))


_ACTIONS = {"TrainAction": _train, "EditAction": _edit}
