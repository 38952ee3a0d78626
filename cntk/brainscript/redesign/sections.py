"""Objects of the redesigned top level as sections of the old language, which readers and SGD take.

Each line of a section has the place of the member that it is made of, which errors tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...base.text import Location, Source, Text, join
from ...config.parameters import ConfigParameters
from ...config.unread import UNUSED
from ...network.network import Network
from ...network.nodes.node import Node
from ..failures import Failure
from ..language.printer import number_text
from ..language.syntax import LibrarySource
from ..values import (
    Instance,
    Record,
    Thunk,
    Value,
    expect_integer,
    flatten,
    force,
    type_name,
)
from .classes import REQUIRED, STREAM, TOP_CLASSES
from .members import PLAIN, find_setting, setting_value

FEATURE_READERS = ("HTKFeatReader",)
LABEL_READERS = ("HTKMLFReader",)
READERS = FEATURE_READERS + LABEL_READERS
INPUT_FILES = tuple(
    dict.fromkeys(
        setting.name
        for owner in ("RandomizingSource", *READERS)
        for setting in TOP_CLASSES[owner].settings.values()
        if setting.kind == "path" and setting.name not in ("dataSetFile", "prefixPathInSCP")
    )
)
"""The settings of sources and readers that name a file to read."""


class _Line(Source):
    """A line that stands for something written elsewhere."""

    def __init__(self, text: str, place: Location):
        super().__init__(place.source.name, text)
        self.place = place

    def locate(self, offset: int) -> Location:
        return self.place


def train_section(
    action: Record, model: Record, optimizer: Record, source: Record, network: Network, name: str
) -> ConfigParameters:
    """The section of a train command, without a network builder.

    Raises:
        Failure: a member is missing, or holds what it cannot.
    """
    reader = _reader(source, network)
    place = action.expression.location if action.expression is not None else None
    texts = [
        _line("action = train\n", place),
        *_settings(action),
        *_settings(model),
        _line("SGD = [\n", _place(optimizer)),
        *_settings(optimizer),
        "]\n",
        _line("reader = [\n", _place(source)),
        *reader,
        "]\n",
    ]
    return ConfigParameters(join(texts), name)


def _place(record: Record) -> Location | None:
    return record.expression.location if record.expression is not None else None


def _line(text: str, place: Location | None) -> Text | str:
    return text if place is None else Text(text, _Line(text, place))


def _settings(record: Record) -> Iterator[Text | str]:
    """The settings of an object's class that are given, here or around it."""
    for setting in TOP_CLASSES[record.owner].settings.values():
        if setting.name == "dataSetFile":
            continue
        section = setting.kind in TOP_CLASSES and setting.kind == setting.name  # AutoAdjust
        if section and setting.name in record.members:
            place = record.place(setting.name)
            inner = record.own(setting.name)
            if not isinstance(inner, Record):
                raise Failure(f"{setting.name!r} must be a record, not a {type_name(inner)}", place)
            inner.owner = setting.kind
            yield _line(f"{setting.name} = [\n", place)
            yield from _settings(inner)
            yield "]\n"
        if setting.kind not in PLAIN:
            continue
        entry = find_setting(record, setting)
        if entry is not None:
            value, place = entry
            items = ":".join(_plain(item, place) for item in flatten(value))
            if setting.name.lower() in UNUSED:
                continue  # the table of its class says so
            yield _line(f"{setting.name} = {items}\n", place)
        elif setting.default == REQUIRED:
            setting_value(record, setting.name)  # reports that it is missing


def _plain(value: Value, place: Location | None) -> str:
    """A string, number or boolean as the old language writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return ("-" if value < 0 else "") + number_text(abs(value))
    if '"' in value:
        raise Failure("a quotation mark cannot be in this string", place)
    return f'"{value}"'


# --- sources


def _reader(source: Record, network: Network) -> Iterator[Text | str]:
    """The source as a section of the old HTKMLFReader."""
    lines: list[Text | str] = ["readerType = HTKMLFReader\n", *_settings(source)]
    fed: dict[Node, Instance] = {}
    for reader, node in _streams(source, network):
        if node in fed:
            raise Failure(f"two readers feed the node {node.name!r}", reader.expression)
        fed[node] = reader
        feature = reader.type in FEATURE_READERS
        for group in ("feature", "label"):
            if node in network.groups[group]:
                network.groups[group].remove(node)
        network.add_to_group("feature" if feature else "label", node)
        size = "dim" if feature else "labelDim"
        place = reader.record.place("data")
        count = _elements(node) // _frames(reader, node)
        lines.append(_line(f"{node.name} = [\n", place))
        lines += _settings(reader.record)
        if feature and not _has(reader.record, "scpFile"):
            lines.append(_line(f"scpFile = {_data_set(source, reader)}\n", place))
        lines.append(_line(f"{size} = {count}\n", place))
        lines.append("]\n")
    if not fed:
        message = "nothing is read: there are no streams, and the network uses no reader's data"
        raise Failure(message, source.expression)
    yield from lines


def _has(record: Record, name: str) -> bool:
    return find_setting(record, TOP_CLASSES[record.owner].settings[name.lower()]) is not None


def _data_set(source: Record, reader: Instance) -> str:
    path = setting_value(source, "dataSetFile")
    if path is None:
        message = "HTKFeatReader needs an scpFile, or its source a dataSetFile"
        raise Failure(message, reader.record.expression)
    return f'"{path}"'


def _data_of(reader: Instance) -> Node | None:
    """The input node that a reader gives; None if it has none of its own."""
    data = reader.record.own("data")
    if data is None or (isinstance(data, Node) and data.is_input):
        return data
    message = f"'data' must be a ComputeNodeRef, not a {type_name(data)}"
    raise Failure(message, reader.record.place("data"))


def _elements(node: Node) -> int:
    """How many numbers a sample of an input node has."""
    return math.prod(node.attributes["shape"])


def _frames(reader: Instance, node: Node) -> int:
    """How many frames of a file make one sample: `contextWindow`, or left and right context."""
    if reader.type not in FEATURE_READERS:
        return 1
    given = setting_value(reader.record, "contextWindow", 1.0)
    window = [expect_integer(w, reader.expression) for w in flatten(given)]
    frames = window[0] if len(window) == 1 else 1 + sum(window)
    if frames < 1 or _elements(node) % frames:
        raise Failure(
            f"{_elements(node)} dimensions differ from {frames} frames",
            reader.record.place("contextWindow"),
        )
    return frames


def _streams(source: Record, network: Network) -> Iterator[tuple[Instance, Node]]:
    """The readers of a source and the nodes that they feed: `streams`, or else all readers whose
    `data` the network uses."""
    streams = source.own("streams")
    if streams is None:
        for member in source.members.values():
            # What the network uses is computed already; nothing else is.
            reader = member.value if isinstance(member, Thunk) else member
            if isinstance(reader, Instance) and reader.type in READERS:
                node = _data_of(reader)
                if node is not None and network.nodes.get(node.name) is node:
                    yield reader, node
        return
    for stream in flatten(streams):
        if not isinstance(stream, Record):
            message = f"'streams' must hold records, not a {type_name(stream)}"
            raise Failure(message, source.place("streams"))
        stream.owner = STREAM
        reader = object_of(stream, "reader", *READERS)
        node = stream.own("input")
        if not isinstance(node, Node) or not node.is_input:
            raise Failure("'input' of a stream must be an input node", stream.place("input"))
        if network.nodes.get(node.name) is not node:
            message = f"the network does not use the node {node.name!r}"
            raise Failure(message, stream.place("input"))
        data = _data_of(reader)
        if data is not None and _elements(data) != _elements(node):
            message = f"the reader gives {_elements(data)} dimensions, but {node.name!r} has"
            raise Failure(f"{message} {_elements(node)}", stream.place("input"))
        yield reader, node


def object_of(record: Record, name: str, *types: str) -> Instance:
    """A member that is an object, here or in the scopes around.

    Raises:
        Failure: it is missing, or something else.
    """
    value = record.own(name)
    if value is None:
        scope = record.parent
        while scope is not None and name not in scope.members:
            scope = scope.parent
        member = scope.members[name] if scope is not None else None
        if not (isinstance(member, Thunk) and isinstance(member.expression.source, LibrarySource)):
            value = force(member)
    if not isinstance(value, Instance) or value.type not in types:
        raise Failure(
            f"{name!r} must be a {' or '.join(types)}"
            + ("" if value is None else f", not a {type_name(value)}"),
            record.place(name) if value is not None else record.expression,
        )
    return value
