"""A file in the redesigned language as actions to run: trainings and edits.

    experiment = load_experiment(["configFile=train.bs", "ExpDir=out", "deviceId=-1"])
    for action in experiment.actions:
        ...

The command line `configFile=train.bs a=b c=d` means `new CNTK [ the file ] + [ a=b ; c=d ]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import atomic_file
from ..base.text import Location, Source, located
from ..config import ConfigParameters
from ..config.files import find_file, read_source
from ..models.dump import dump
from ..models.v1 import write_model
from ..network.initialize import initialize
from ..network.network import Network
from ..network.nodes.node import Node
from .build import TYPES, evaluate, file_finder, model_loader
from .failures import Failure, LimitFailure
from .language import syntax
from .language.depth import MAX_NESTING, deep_calls
from .language.parser import parse_expression, parse_members
from .language.syntax import New, Number
from .language.tokens import Finder
from .library import REDESIGNED
from .redesign.classes import TOP_CLASSES
from .redesign.members import PLAIN, find_setting, local_path
from .redesign.objects import REDESIGNED_TYPES
from .redesign.sections import object_of, train_section
from .redesign.unread import unread_members
from .values import Instance, Record, Session, Thunk, flatten, force, log, type_name


@dataclass(frozen=True)
class TrainAction:
    """A training: where data come from, the network, and how it is optimized.

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
class LaterAction:
    """An action that loads a model which an action before it writes.

    `action` evaluates it, when those before it have run; what is wrong is an `OpscopeError` then.
    """

    name: str
    action: Callable[[], TrainAction | EditAction]


@dataclass(frozen=True)
class Experiment:
    """A file of the redesigned language: its actions in order, and its settings."""

    actions: tuple[TrainAction | EditAction | LaterAction, ...]
    settings: dict[str, Any]


def is_redesigned(source: Source) -> bool:
    """Whether a text is of the redesigned language: `new CNTK [...]`, or members with `actions`."""
    try:
        _, record = _top(source, file_finder(()))
    except FormatError:
        return False
    return any(member.name == "actions" for member in record.members)


def load_experiment(
    arguments: Sequence[str], warn: Callable[[str], None] | None = None
) -> Experiment:
    """The actions of `configFile=file.bs name=value ...`.

    A name with dots, such as `Train.optimizer.maxEpochs`, goes into the records of the file. A
    value is BrainScript if it is one constant, record or array, `delete`, a string in quotes, or an
    expression in parentheses; anything else is a string, but `actions=Train` names an action.
    `warn` takes warnings with their places.

    Raises:
        OpscopeError: no configFile, or something is wrong in it or in a value; with the place.
    """
    overrides: dict[str, str] = {}
    path = None
    for argument in arguments:
        name, equals, value = argument.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not all(part.isidentifier() for part in name.split(".")):
            raise FormatError(f"{argument!r}: an argument must have the form name=value")
        if name.lower() == "configfile":
            path = find_file(value)
        else:
            overrides[name] = value
    if path is None:
        raise FormatError("there is no configFile=... among the arguments")
    return read_experiment(read_source(path), overrides, [path.parent], warn)


def read_experiment(
    source: Source,
    overrides: dict[str, str] | None = None,
    folders: Sequence[Path] = (),
    warn: Callable[[str], None] | None = None,
) -> Experiment:
    """The actions of a text, with members of its top level, or inside, replaced by `overrides`."""
    expression, _ = _top(source, file_finder(folders))
    if overrides:
        members = tuple(_override(name, value) for name, value in overrides.items())
        changes = syntax.Record(members[0].source, 0, members)
        expression = syntax.Infix(source, expression.at, "with", expression, changes)
    models = _Models(folders)
    session = Session(
        {**TYPES, **REDESIGNED_TYPES},
        models.load,
        warn=warn or log.warning,
        redesigned=True,
        watched=[],
    )
    settings = {"precision": "float", "deviceId": -1.0, "traceLevel": 0.0}
    program = evaluate(expression, session, settings, "", REDESIGNED)
    with _evaluating():
        experiment = _experiment(program, models)
        for text in unread_members(expression, session.watched or ()):
            session.warn(text)
        return experiment


@contextmanager
def _evaluating() -> Iterator[None]:
    """A context for lazy values, which turns what fails into errors of the package."""
    with deep_calls():
        try:
            yield
        except Failure as failure:
            raise failure.error() from None
        except RecursionError:
            raise located(FormatError, "the actions need each other too deeply", None) from None


def _top(source: Source, find: Finder | None) -> tuple[syntax.Expression, syntax.Record]:
    """The object that a text defines and its record: `new CNTK` of all the text or, if that is so
    written, `new CNTK [ ... ] + [ ... ]`."""
    if not source.text.lstrip().startswith("new"):
        record = parse_members(source, find)
        return New(source, record.at, "CNTK", record), record
    expression = top = parse_expression(source, find)
    while isinstance(top, syntax.Infix) and top.operator in ("+", "-", "with"):
        top = top.left
    if isinstance(top, New) and top.type == "CNTK" and isinstance(top.argument, syntax.Record):
        return expression, top.argument
    raise located(FormatError, "new CNTK [ ... ] expected", expression.location)


_SHOWN = 60  # characters of an argument in the place of an error


class _Argument(Source):
    """The value of `name=value` on the command line; places are those in the argument."""

    def __init__(self, name: str, value: str):
        argument = f"{name}={value}"
        shown = argument if len(argument) <= _SHOWN else argument[:_SHOWN] + "..."
        super().__init__(f"command line: {shown}", value)
        self.argument = Source(self.name, argument)
        self.before = len(name) + 1

    def locate(self, offset: int) -> Location:
        return self.argument.locate(offset + self.before)


def _override(name: str, value: str) -> syntax.Member:
    """An argument of the command line; its value is BrainScript or a string."""
    if name.count(".") >= MAX_NESTING:
        raise FormatError(f"{name[:60]}...: more than {MAX_NESTING} records in one another")
    source = _Argument(name, value)
    expression: syntax.Expression = syntax.String(source, 0, value)
    if value == "delete":
        expression = syntax.Delete(source, 0)
    else:
        try:
            parsed = parse_expression(source)
        except FormatError:
            parsed = expression
        literal = (Number, syntax.String, syntax.Boolean, syntax.Record, syntax.Array)
        negative = isinstance(parsed, syntax.Unary) and isinstance(parsed.operand, Number)
        names = name == "actions"  # of members, never a string
        if isinstance(parsed, literal) or negative or names or value.startswith("("):
            expression = parsed
    return syntax.Member(source, -source.before, name, expression)


# --- from objects to actions


class _NotYet(LimitFailure):
    """A model is not written yet: an action before writes it."""


class _Models:
    """Loads models, but none that an action of the same run is yet to write."""

    def __init__(self, folders: Sequence[Path]):
        self._load = model_loader(folders, "float")
        self.written: set[str] = set()
        self.open = False  # whether models without a file may be written by then

    def load(self, name: str) -> Network:
        """The network of a model file."""
        if os.path.normpath(name.replace("\\", "/")) in self.written:
            raise _NotYet(f"the model {name!r} is not written yet", None)
        try:
            return self._load(name)
        except FormatError:
            if self.open:
                raise _NotYet(f"there is no model {name!r} yet", None) from None
            raise

    def add(self, action: TrainAction | EditAction) -> None:
        """Note what an action writes."""
        paths = [action.config.string("modelPath")] if isinstance(action, TrainAction) else []
        if isinstance(action, EditAction):
            paths += [str(path) for what, _, path in action.steps if what == "SaveModel"]
        self.written.update(map(os.path.normpath, paths))

    def done(self) -> None:
        """All that was to be written is."""
        self.written.clear()
        self.open = False


def _experiment(program: Instance, models: _Models) -> Experiment:
    record = program.record
    actions: list[TrainAction | EditAction | LaterAction] = []
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
        try:
            model = _ACTIONS[action.type](name, action)
            models.add(model)
            actions.append(model)
        except _NotYet:
            actions.append(LaterAction(name, partial(_evaluated, name, action, models)))
            models.open = True
    settings = {}
    for setting in TOP_CLASSES["CNTK"].settings.values():
        if setting.kind in PLAIN:
            entry = find_setting(record, setting)
            if entry is not None:
                settings[setting.name] = entry[0]
    return Experiment(tuple(actions), settings)


def _evaluated(name: str, action: Instance, models: _Models) -> TrainAction | EditAction:
    models.done()
    with _evaluating():
        return _ACTIONS[action.type](name, action)


def _action_name(record: Record, action: Instance) -> str:
    for name, member in record.members.items():
        if isinstance(member, Thunk) and member.value is action and name != "actions":
            return name
    return ""


def _train(name: str, action: Instance) -> TrainAction:
    record = action.record
    model = object_of(record, "model", "Model").record
    network = model.find("network")
    if not isinstance(network, Network):
        raise Failure(
            f"'network' must be a network, not a {type_name(network)}", model.place("network")
        )
    optimizer = object_of(record, "optimizer", "SGDOptimizer").record
    source = object_of(record, "source", "RandomizingSource").record
    for member, group in (("trainingCriterion", "criterion"), ("evalCriterion", "evaluation")):
        node = optimizer.own(member)
        if isinstance(node, Node):
            network.add_to_group(group, node)
        elif node is not None:
            message = f"{member!r} must be a node of the network, not a {type_name(node)}"
            raise Failure(message, optimizer.place(member))
    config = train_section(record, model, optimizer, source, network, name)
    network.precision = config.string("precision")
    return TrainAction(name, network, config)


def _edit(name: str, action: Instance) -> EditAction:
    record = action.record
    steps = []
    for step in flatten(record.get("do")):
        if not isinstance(step, Instance) or step.type not in ("Dump", "SaveModel"):
            raise Failure(
                f"'do' must hold Dump or SaveModel, not a {type_name(step)}", record.place("do")
            )
        network, path = step.record.get("model"), step.record.get("pathName")
        place = step.record.place("pathName")
        if not isinstance(network, Network):
            message = f"{step.type} takes a network, not a {type_name(network)}"
            raise Failure(message, step.record.place("model"))
        if not isinstance(path, str):
            message = f"{step.type} takes the name of a file, not a {type_name(path)}"
            raise Failure(message, place)
        steps.append((step.type, network, Path(local_path(path, "pathName", place))))
    return EditAction(name, tuple(steps))


_ACTIONS = {"TrainAction": _train, "EditAction": _edit}
