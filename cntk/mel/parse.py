"""Text of MEL to its syntax tree.

A record is a command `Name(a, b, option=value)`, a model `m = LoadModel(...)`, a script of NDL
`m = [ ... ]`, or a statement of NDL for the default model. A file may name the sections to execute:
`edit = section`; macros of the sections in `load` are then defined first.
"""

from __future__ import annotations

from ...framework.base.errors import FormatError
from ..base.text import MOST_ERRORS, Source, Text, join, located
from ..config.parameters import ConfigParameters
from ..config.scan import key_end, records, skip_blanks
from ..config.value import ConfigValue, param_list
from ..ndl.parse import parse_ndl
from ..ndl.syntax import Script
from .syntax import Command, Embedded, Inline, MelScript, MelStatement, is_cut_from

MODEL_MAKERS = ("CreateModel", "LoadModel")


def parse_mel(text: Text | str, errors: list[FormatError] | None = None) -> MelScript:
    """The statements of a text.

    With a list for `errors`, wrong statements are left out and their errors put there.

    Raises:
        FormatError: with place and caret.
    """
    if isinstance(text, str):
        text = Source("<string>", text).whole()
    if not text.string.lstrip().startswith("["):
        text = join(["[ ", text, "\n]"])
    statements = []
    for start, end in records(text, ";"):
        record = text.cut(start, end).strip()
        try:
            if record.string:
                statements.append(_statement(record))
        except FormatError as error:
            if errors is None or len(errors) >= MOST_ERRORS:
                raise
            errors.append(error)
    return MelScript(tuple(statements))


def parse_mel_file(
    text: Text, name: str = "<string>", errors: list[FormatError] | None = None
) -> tuple[list[Script], MelScript]:
    """The NDL scripts that a file loads for their macros, and the script that it executes."""
    sections = ConfigParameters(text, name)
    loads = [str(n) for n in sections.array("load")] if sections.has("load") else []
    edits = [str(n) for n in sections.array("edit")] if sections.has("edit") else []
    if not loads and not edits:
        return [], parse_mel(text, errors)
    scripts = [parse_ndl(sections[n].text, errors=errors) for n in loads]
    parts = [parse_mel(sections[n].text, errors) for n in edits]
    return scripts, MelScript(tuple(statement for part in parts for statement in part))


def _statement(record: Text) -> MelStatement:
    string = record.string
    stop = key_end(string, 0, len(string))
    if string[stop : stop + 1] != "=":
        return _command(record, None)
    name = record.cut(0, stop).strip()
    value = record.cut(skip_blanks(string, stop + 1), len(string)).strip()
    if not value.string or not name.string:
        side = "right" if name.string else "left"
        raise located(FormatError, f"nothing stands {side} of the equals sign", record.locate())
    if value.string[0] in "[{(":
        return Embedded(record, name, parse_ndl(value))
    bracket = key_end(value.string, 0, len(value))
    function = value.string[:bracket].strip()
    if bracket < len(value) and any(is_cut_from(function, name) for name in MODEL_MAKERS):
        return _command(value, name)
    (assignment,) = parse_ndl(record, calls_only=True).assignments or (None,)
    if assignment is None:
        raise located(FormatError, f"not a statement: {string[:200]}", record.locate())
    return Inline(record, assignment)


def _command(text: Text, target: Text | None) -> Command:
    string = text.string
    stop = key_end(string, 0, len(string))
    name = text.cut(0, stop).strip()
    if stop == len(string) or string[stop] != "(" or not name.string:
        raise located(
            FormatError, f"Invalid line, expecting function call, {string[:200]}", text.locate()
        )
    parameters: list[Text] = []
    options: list[tuple[Text, Text]] = []
    for item in param_list(ConfigValue(text.cut(stop, len(string)))):
        equals = item.text.string.find("=")
        if equals < 0:
            parameters.append(_unquoted(item.text))
            continue
        value = _unquoted(item.text.cut(equals + 1, len(item.text)).strip())
        options.append((item.text.cut(0, equals).strip(), value))
    return Command(text, name, tuple(parameters), tuple(options), target)


def _unquoted(text: Text) -> Text:
    string = text.string
    if len(string) > 1 and string[0] == string[-1] == '"':
        return text.cut(1, len(string) - 1)
    return text
