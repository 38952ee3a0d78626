"""The commands of MEL, one function each, and the table of their names and parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    FormatError,
    OpscopeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
    nearest,
)
from ...framework.editing.operations import (
    Connect,
    Copy,
    Edit,
    Freeze,
    Remove,
    Rename,
    SetFactor,
    SetProperty,
    SetRole,
    SetValue,
)
from ..base.text import Text, located, read_text
from ..config.files import find_file
from ..config.value import ConfigValue
from ..models.dump import dump
from ..network.edit import property_name
from ..network.graph import GROUPS
from ..network.network import Network
from ..network.nodes.node import Node
from .session import Model, Session
from .syntax import Command, is_cut_from


@dataclass(frozen=True)
class Spec:
    """A command: its names, its parameters and options, and its function.

    A name may be cut short to half its length. `most` None: any number of parameters. `options`
    holds the values that each option may have; none listed: any.
    """

    names: tuple[str, ...]
    run: Callable[[Session, Command], None]
    least: int
    most: int | None
    usage: str
    options: dict[str, tuple[str, ...]]


COMMANDS: list[Spec] = []
"""All commands."""


def _command(
    *names: str,
    takes: int | tuple[int, int | None],
    usage: str,
    options: dict[str, tuple[str, ...]] | None = None,
) -> Callable[[Callable[[Session, Command], None]], Callable[[Session, Command], None]]:
    least, most = (takes, takes) if isinstance(takes, int) else takes

    def register(run: Callable[[Session, Command], None]) -> Callable[[Session, Command], None]:
        COMMANDS.append(Spec(names, run, least, most, f"{names[0]}({usage})", options or {}))
        return run

    return register


def run_command(session: Session, command: Command) -> None:
    """Execute one command.

    Raises:
        OpscopeError: the command is unknown, its parameters are wrong, or it fails.
    """
    spec, command = checked(command)
    spec.run(session, command)


def checked(command: Command) -> tuple[Spec, Command]:
    """Find and check a command; `m = LoadModel(f)` becomes `LoadModelWithName(m, f)`.

    Raises:
        UnknownOperatorError, SlotError, AttributeTypeError: the command, the number of its
            parameters, or an option is not known.
    """
    spec = find_command(command)
    if command.target is not None:
        parameters = (command.target, *command.parameters)
        command = Command(command.text, command.function, parameters, command.options)
        spec = next(s for s in COMMANDS if s.names[0] == f"{spec.names[0]}WithName")
    count = len(command.parameters)
    if count < spec.least or (spec.most is not None and count > spec.most):
        raise located(
            SlotError,
            f"Invalid number of parameters. Valid parameters: {spec.usage}",
            command.location,
        )
    for name, value in command.options:
        _check_option(spec, name, value)
    return spec, command


def find_command(command: Command) -> Spec:
    """The command of a name."""
    for spec in COMMANDS:
        if any(is_cut_from(command.function.string, name) for name in spec.names):
            return spec
    raise located(
        UnknownOperatorError,
        f"Unknown Editor function {command.function}"
        f"{nearest(command.function.string, command_names())}",
        command.location,
    )


def command_names() -> list[str]:
    """All names of commands."""
    return [name for spec in COMMANDS for name in spec.names]


def _check_option(spec: Spec, name: Text, value: Text) -> None:
    for known, values in spec.options.items():
        if is_cut_from(name.string, known):
            if values and value.string.lower() not in values:
                raise located(
                    AttributeTypeError,
                    f"Invalid optional parameter value {value}, valid values are: "
                    f"{known}=({'|'.join(values)})",
                    value.locate(),
                )
            return
    valid = ", ".join(f"{k}=({'|'.join(v) or '...'})" for k, v in spec.options.items()) or "none"
    raise located(
        AttributeTypeError,
        f"Invalid optional parameter {name}, valid optional parameters: {valid}",
        name.locate(),
    )


def _option(command: Command, *starts: str) -> str | None:
    """The value of an option, by the beginning of its name."""
    for name, value in command.options:
        if name.string.lower().startswith(starts):
            return value.string
    return None


# -- models

_FORMAT = {"format": ("cntk", "cntk_legacy_no_tensorlib")}


@_command("CreateModel", takes=0, usage="")
def _create_model(session: Session, command: Command) -> None:
    session.open("default", Network())


@_command("CreateModelWithName", takes=1, usage="modelName")
def _create_model_with_name(session: Session, command: Command) -> None:
    session.open(command.parameters[0].string, Network())


@_command("LoadModel", takes=1, usage="modelFileName, [format=cntk]", options=_FORMAT)
def _load_model(session: Session, command: Command) -> None:
    session.open("default", session.load(command.parameters[0]))


@_command(
    "LoadModelWithName", takes=2, usage="modelName, modelFileName, [format=cntk]", options=_FORMAT
)
def _load_model_with_name(session: Session, command: Command) -> None:
    network = session.load(command.parameters[1])
    if _option(command, "format") == "cntk_legacy_no_tensorlib":
        for node in network.groups["feature"]:  # images of that version are vectors
            node.attributes["shape"] = (int(np.prod(node.attributes["shape"])),)
    session.open(command.parameters[0].string, network)


@_command(
    "LoadNDLSnippet", takes=2, usage="modelName, ndlsnippet, [section=]", options={"section": ()}
)
def _load_ndl_snippet(session: Session, command: Command) -> None:
    name, file = command.parameters
    session.open(name.string, session.snippet(file, _option(command, "sec")))


@_command("SaveDefaultModel", takes=1, usage="modelFileName, [format=cntk]", options=_FORMAT)
def _save_default_model(session: Session, command: Command) -> None:
    if session.default is None:
        raise located(
            VariableError,
            "SaveDefaultModel can only be called after a default name exists (i.e., at least one "
            "model is loaded.)",
            command.location,
        )
    session.save(session.default, command.parameters[0])


@_command("SaveModel", takes=2, usage="modelName, modelFileName, [format=cntk]", options=_FORMAT)
def _save_model(session: Session, command: Command) -> None:
    session.save(session.model(command.parameters[0]), command.parameters[1])


@_command("SetDefaultModel", takes=1, usage="modelName")
def _set_default_model(session: Session, command: Command) -> None:
    session.default = session.model(command.parameters[0])


@_command("UnloadModel", takes=(0, None), usage="modelName, ...")
def _unload_model(session: Session, command: Command) -> None:
    for name in command.parameters:
        model = session.models.pop(name.string.lower(), None)
        if model is None:
            session.warnings.append(f"{name.locate()}: model {name} does not exist")
        elif session.default is model:
            session.default = None


# -- text

_INCLUDE_DATA = {"includeData": ("true", "false", "t", "f", "1", "0", "")}


def _dump(session: Session, model: Model, nodes: list[Node] | None, command: Command) -> None:
    network = session.settle(model)
    try:
        network.validate()
    except OpscopeError:
        pass  # in the middle of an edit a network need not fit together
    option = _option(command, "incl")
    values = ConfigValue(Text(option)).bool() if option is not None else False
    session.write_text(Path(command.parameters[1].string), dump(network, nodes, values))


@_command(
    "DumpModel", "Dump", takes=2, usage="modelName, fileName, [includeData=]", options=_INCLUDE_DATA
)
def _dump_model(session: Session, command: Command) -> None:
    _dump(session, session.model(command.parameters[0]), None, command)


@_command("DumpNode", takes=2, usage="nodeName, fileName, [includeData=]", options=_INCLUDE_DATA)
def _dump_node(session: Session, command: Command) -> None:
    model, nodes = session.find(command.parameters[0])
    _dump(session, model, nodes, command)


# -- copies

_COPY = {"copyFlag": ("all", "value"), "copy": ("all", "value")}


def _both(session: Session, command: Command) -> tuple[Model, str, Model, str]:
    """Source and target model of two patterns, settled, and the patterns."""
    source, pattern = session.split(command.parameters[0])
    target, result = session.split(command.parameters[1])
    session.settle(source)
    session.settle(target)
    return source, pattern, target, result


def _demand_one(
    source: Model, pattern: str, target: Model, result: str, error: OpscopeError
) -> None:
    """Refuse patterns of two models; what is wrong with the patterns themselves comes first."""
    if source is not target:
        source.network.copied_names(pattern, target.network, result)
        raise error


def _links(command: Command) -> bool:
    return (_option(command, "copy") or "all").lower() == "all"


@_command("CopyNode", "Copy", takes=2, usage="fromNode, toNode, [copy=all|value]", options=_COPY)
def _copy_node(session: Session, command: Command) -> None:
    source, pattern, target, result = _both(session, command)
    edit = Copy(pattern, result, links=_links(command), source=source.network)
    session.perform(target, edit)


@_command(
    "CopySubTree",
    takes=3,
    usage="fromNode, toNetwork, toNodeNamePrefix, [copy=all|value]",
    options=_COPY,
)
def _copy_sub_tree(session: Session, command: Command) -> None:
    model, names = session.names(command.parameters[0])
    target, _ = session.split(command.parameters[1])
    session.settle(model)
    session.settle(target)
    prefix = command.parameters[2].string
    links = _links(command)
    for name in names:
        edit = Copy(name, prefix, links=links, below=True, source=model.network)
        session.perform(target, edit)


@_command("CopyNodeInputs", "CopyInputs", takes=2, usage="fromNode, toNode")
def _copy_node_inputs(session: Session, command: Command) -> None:
    source, pattern, target, result = _both(session, command)
    _demand_one(source, pattern, target, result, _different(command, "CopyInputs"))
    session.perform(target, Copy(pattern, result, content=False))


def _different(command: Command, name: str) -> OpscopeError:
    return located(
        VariableError,
        f"{name} requires symbols from the same network, {command.parameters[0]} and "
        f"{command.parameters[-1]} belong to different networks",
        command.location,
    )


# -- connections


@_command("SetNodeInput", "SetInput", takes=3, usage="toNode, inputID(0-based), inputNodeName")
def _set_node_input(session: Session, command: Command) -> None:
    to, number, source = command.parameters
    model, names = session.names(to)
    other, inputs = session.names(source)
    if model is not other:
        raise _different(command, "SetNodeInput()")
    if len(inputs) != 1:
        raise located(
            VariableError,
            f"SetNodeInput() must have a single value input, {source} doesn't represent one item",
            source.locate(),
        )
    index = ConfigValue(number).int()
    for name in names:
        session.perform(model, Connect(name, inputs, index))


@_command(
    "SetNodeInputs",
    "SetInputs",
    takes=(2, None),
    usage="toNode, inputNodeName1, [inputNodeName2, ...]",
)
def _set_node_inputs(session: Session, command: Command) -> None:
    model, names = session.names(command.parameters[0])
    if len(names) != 1:
        raise located(
            VariableError,
            f"SetNodeInputs() must have exactly one target, {command.parameters[0]} has "
            f"{len(names)}",
            command.parameters[0].locate(),
        )
    inputs: list[str] = []
    for parameter in command.parameters[1:]:
        other, sources = session.names(parameter)
        if other is not model:
            raise _different(command, "SetNodeInputs()")
        if len(sources) != 1:
            raise located(
                VariableError,
                "SetNodeInputs() each input node should be translated to one node name. "
                f"{parameter} is translated to multiple node names.",
                parameter.locate(),
            )
        inputs += sources
    session.perform(model, Connect(names[0], tuple(inputs)))


# -- properties


def _property(command: Command) -> tuple[str, float | bool]:
    _, name, value = command.parameters
    try:
        known = property_name(name.string)
    except AttributeTypeError as error:
        raise located(
            AttributeTypeError,
            f"Invalid property, {name}, is not supported: {error}",
            name.locate(),
        ) from None
    read = ConfigValue(value)
    return known, read.float() if known == "learningRateMultiplier" else read.bool()


@_command("SetProperty", takes=3, usage="toNode, propertyName, propertyValue")
def _set_property(session: Session, command: Command) -> None:
    if command.parameters[1].string.lower() == "multiseq":
        return  # an older CNTK's; it means nothing now
    name, value = _property(command)
    model, names = session.names(command.parameters[0])
    session.perform(model, _setting(names, name, value))


def _setting(names: tuple[str, ...], name: str, value: float | bool, below: bool = False) -> Edit:
    """The edit that a property means; nodes that are no parameters may have rates, without
    effect."""
    if name in GROUPS and not below:
        return SetRole(names, name, bool(value))
    if name in ("needsGradient", "learningRateMultiplier"):
        rate = float(bool(value)) if name == "needsGradient" else float(value)
        return SetFactor(names, rate, below, must_match=False)
    if name == "freezeParameters" and value and not below:
        return Freeze(names)
    return SetProperty(names, name, value, below)


@_command("SetPropertyForSubTree", takes=3, usage="rootNodeName, propertyName, propertyValue")
def _set_property_for_sub_tree(session: Session, command: Command) -> None:
    name, value = _property(command)
    model, names = session.names(command.parameters[0])
    session.perform(model, _setting(names, name, value, below=True))


# -- names


@_command("RemoveNode", "Remove", "DeleteNode", "Delete", takes=(1, None), usage="nodeName, ...")
def _remove_node(session: Session, command: Command) -> None:
    for parameter in command.parameters:
        model, names = session.names(parameter)
        session.settle(model)
        session.perform(model, Remove(names))


@_command("Rename", takes=2, usage="oldNodeName, newNodeName")
def _rename(session: Session, command: Command) -> None:
    source, pattern, target, result = _both(session, command)
    _demand_one(source, pattern, target, result, _different(command, "Rename"))
    session.perform(source, Rename(pattern, result, same_place=True))


# -- values


@_command("ReviseParameter", takes=2, usage="nodeName, nodeParametersInASCIIPathName")
def _revise_parameter(session: Session, command: Command) -> None:
    model, nodes = session.find(command.parameters[0])
    file = command.parameters[1]
    try:
        text = read_text(find_file(file.string, session.folders))
        value = np.loadtxt(text.splitlines(), ndmin=2)
    except FormatError as error:
        raise located(FormatError, str(error), file.locate()) from None
    except ValueError as error:
        raise located(FormatError, f"{file}: {error}", file.locate()) from None
    for node in nodes:
        if node.is_parameter:
            session.perform(model, SetValue(node.name, value))
        else:
            session.warnings.append(
                f"{command.location}: you want to change the parameter of node ({node.name}), but "
                f"it is not a learnable parameter (it is a {node.operation} node)"
            )
