"""From BrainScript text to networks and values: the entry to this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from ...framework.base.errors import FormatError
from ..base.text import Location, Source, Text, located
from ..config.device import device_of
from ..config.files import read_source
from ..config.parameters import ConfigParameters
from ..models.open_model import open_model
from ..network.network import Network
from .compiler import compile_expression
from .failures import Failure
from .functions import FUNCTION_TYPES
from .language.depth import deep_calls
from .language.parser import parse_expression
from .language.syntax import Expression, New
from .library import INCLUDE_NAMES, STANDARD, define_library
from .networks import NETWORK_TYPES
from .node_functions import NODE_FUNCTION_TYPES
from .nodes import computation_node
from .values import Record, RuntimeType, Session, Thunk, Value, log, type_name

TYPES: dict[str, RuntimeType] = {
    "ComputationNode": RuntimeType(computation_node, True),
    **FUNCTION_TYPES,
    **NODE_FUNCTION_TYPES,
    **NETWORK_TYPES,
}


def find_file(name: str, folders: Sequence[Path], near: Source | None = None) -> Path | None:
    """The file called `name`: in the folder of the file that names it, in `folders` (with its path,
    then by its name alone), in the working directory.

    Source: BrainScriptParser.cpp (FindSourceFile).
    """
    relative = Path(name.replace("\\", "/") if os.sep == "/" else name)
    near_folder = [Path(near.name).parent] if near is not None else []
    places = [folder / relative for folder in (*near_folder, *folders)]
    places.append(relative)
    places += [folder / relative.name for folder in folders]
    for place in places:
        try:
            if place.is_file():
                return place
        except (OSError, ValueError):
            continue
    return None


def file_finder(folders: Sequence[Path]) -> Callable[[str, Source], Source | None]:
    """Finds included files near the file that includes them, then in `folders`."""

    def find(name: str, near: Source) -> Source | None:
        if Path(name).name.lower() in INCLUDE_NAMES:
            return Source("library", "")  # it is there already
        file = find_file(name, folders, near)
        return None if file is None else read_source(file)

    return find


def model_loader(folders: Sequence[Path], precision: str) -> Callable[[str], Network]:
    """Reads model files that are looked for in `folders`."""

    def load(name: str) -> Network:
        file = find_file(name, folders)
        if file is None:
            raise FormatError(f"there is no model file {name!r}")
        return open_model(file, precision).network

    return load


class _TextSource(Source):
    """Text that was cut out of files and rewritten; places are those where it was written."""

    def __init__(self, text: Text, name: str):
        super().__init__(name, text.string)
        self.written = text

    def locate(self, offset: int) -> Location:
        return self.written.locate(offset) or super().locate(offset)


def source_of(text: Text | str, name: str = "BrainScript") -> Source:
    """The source of a text; `name` is for a text that is from no file."""
    if isinstance(text, str):
        return Source(name, text)
    place = text.locate()
    return _TextSource(text, place.source.name if place is not None else name)


def network_expression(source: Source, folders: Sequence[Path] = ()) -> Expression:
    """The parsed value of `BrainScriptNetworkBuilder`: `(an expression)`, or `{...}` or `[...]`
    with what `new ComputationNetwork` takes.

    Raises:
        FormatError: it is none of these, or no BrainScript.
    """
    text = source.text.lstrip()
    start = source.locate(len(source.text) - len(text))
    if text[:1] not in ("(", "{", "["):
        message = "a network description must be an expression in ( ) or a record in { } or [ ]"
        raise located(FormatError, message, start)
    expression = parse_expression(source, file_finder(folders))
    if text[0] == "(":
        return expression
    return New(expression.source, expression.at, "ComputationNetwork", expression)


def build_section(
    section: ConfigParameters,
    *,
    load_model: Callable[[str], Network] | None = None,
    seeds: Iterator[int] | None = None,
    say: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Network:
    """The network of a config's section that has a `BrainScriptNetworkBuilder` (or, by its older
    name, an `ExperimentalNetworkBuilder`), with the section's precision and device; the rest as in
    `build_network`."""
    names = ("BrainScriptNetworkBuilder", "ExperimentalNetworkBuilder")
    name = next((name for name in names if name in section), names[0])
    device = device_of(section, "-1")
    return build_network(
        section[name].text,
        folders=section.search_folders(),
        load_model=load_model,
        precision=section.string("precision", "float"),
        device=int(device) if device.isdecimal() else -1,
        trace_level=section.int("traceLevel", 0),
        seeds=seeds,
        say=say,
        warn=warn,
    )


def build_network(
    text: Text | str,
    name: str = "BrainScript",
    *,
    folders: Sequence[Path | str] = (),
    load_model: Callable[[str], Network] | None = None,
    precision: str = "float",
    device: int = -1,
    trace_level: int = 0,
    seeds: Iterator[int] | None = None,
    say: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Network:
    """The network that the value of a `BrainScriptNetworkBuilder` describes, not validated.

    `name` is for errors in a text that is from no file; `folders` are the folders of the config
    files, which are searched for includes and models; `load_model` gives the network of a model
    file's name (by default the file is looked for in `folders` and read); `seeds` counts the random
    parameters of all networks of one run; `say` takes the lines of Print and Debug, `warn` takes
    warnings.

    Raises:
        FormatError and other errors of the package: they show the place in the text and the chain
            of calls that led there. Where several members of the network are wrong, the error's
            attribute `others` is a list of the other errors.
    """
    paths = [Path(folder) for folder in folders]
    expression = network_expression(source_of(text, name), paths)
    session = Session(
        TYPES,
        load_model or model_loader(paths, precision),
        say or log.info,
        warn or log.warning,
        seeds if seeds is not None else count(1),
    )
    settings = {
        "deviceId": float(device),
        "traceLevel": float(trace_level),
        "precision": precision,
    }
    value = evaluate(expression, session, settings, "network")
    if not isinstance(value, Network):
        raise located(
            FormatError,
            f"the description gives a {type_name(value)}, not a ComputationNetwork",
            expression.location,
        )
    return value


def evaluate(
    expression: Expression,
    session: Session,
    settings: Mapping[str, Value] | None = None,
    name: str = "$",
    library: tuple[str, ...] = STANDARD,
) -> Value:
    """The value of an expression beside the settings and the definitions of the library's files.

    Raises:
        OpscopeError: with the place in the text and the chain of calls that led there.
    """
    scope = Record(session, None)
    define_library(scope, library)
    scope.members.update(settings or {})
    with deep_calls():
        try:
            thunk = Thunk(
                compile_expression(expression), scope, (None, name) if name else None, expression
            )
            scope.members[name] = thunk
            return thunk.force()
        except Failure as failure:
            raise failure.error() from None
        except RecursionError:
            message = "the expressions need each other too deeply"
            raise located(FormatError, message, expression.location) from None


def evaluate_text(text: str, name: str = "BrainScript", **settings: Any) -> Value:
    """The value of an expression's text; a short way for tools and tests."""
    session = Session(TYPES)
    expression = parse_expression(Source(name, text), file_finder(()))
    return evaluate(expression, session, settings)
