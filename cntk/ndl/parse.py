"""Text of NDL to its syntax tree.

NDL is cut into records as configs are (`config.scan`). A record is `name = expression`, the head of
a macro `Name(a, b)`, or the body that follows such a head: `{ ... }`, `[ ... ]` or `= ...`.
Parameters of calls are arrays in the sense of configs: `a:b` and `0*3` work in them.
"""

from __future__ import annotations

from ...framework.base.errors import FormatError
from ..base.text import MOST_ERRORS, Source, Text, located
from ..config.scan import closing, key_end, opens, records, skip_blanks
from ..config.value import ConfigArray, ConfigValue, parse_double
from .syntax import Array, Assignment, Call, Expression, Macro, Option, Script, Statement, Word

DEEPEST = 100  # calls and macro definitions inside one another
_MOST_TIMES = 1_000  # that `*` repeats a value: there is an array for every few characters


def parse_ndl(
    text: Text | str, calls_only: bool = False, errors: list[FormatError] | None = None
) -> Script:
    """The statements of a text, which may be in brackets.

    `calls_only`: as in macros of one line and in MEL, a call without a name is a statement, and
    there are no macro definitions. With a list for `errors`, wrong statements are left out and
    their errors put there.

    Raises:
        FormatError: with place and caret.
    """
    if isinstance(text, str):
        text = Source("<string>", text).whole()
    return _script(text, calls_only, 0, errors)


def _script(
    text: Text, calls_only: bool, depth: int, errors: list[FormatError] | None = None
) -> Script:
    _check_depth(depth, text)
    statements: list[Statement] = []
    head: tuple[Text, tuple[Word | Option, ...]] | None = None
    for start, end in records(text, ";"):
        record = text.cut(start, end).strip()
        try:
            if head is not None and record.string:
                (name, parameters), head = head, None
                statements.append(_macro(name, parameters, record, depth, errors))
            elif record.string:
                stop = key_end(record.string, 0, len(record))
                if record.string[stop : stop + 1] == "=":
                    statements.append(_assignment(record, stop, depth))
                elif calls_only:
                    statements.append(Assignment(None, _call(record, depth)))
                else:
                    head = _head(record, stop, depth)
        except FormatError as error:
            if errors is None or len(errors) >= MOST_ERRORS:
                raise
            errors.append(error)
    if head is not None:
        raise located(FormatError, f"Body of Macro missing: {head[0]}", head[0].locate())
    return Script(tuple(statements))


def _check_depth(depth: int, text: Text) -> None:
    if depth > DEEPEST:
        message = f"more than {DEEPEST} calls or macros inside one another"
        raise located(FormatError, message, text.locate())


def _head(record: Text, stop: int, depth: int) -> tuple[Text, tuple[Word | Option, ...]]:
    """The name and parameters of a macro definition."""
    if stop == len(record):
        raise located(
            FormatError,
            f"Invalid statement, does not contain an '=' sign: {record.string[:200]}",
            record.locate(),
        )
    name = record.cut(0, stop).strip()
    parameters: list[Word | Option] = []
    for item in _array(record.cut(stop, len(record))):
        parameter = _parameter(item.text, depth)
        if not isinstance(parameter, (Word, Option)):
            raise located(
                FormatError, f"macro {name}: a parameter must be a name", item.text.locate()
            )
        parameters.append(parameter)
    if not name.string:
        raise located(FormatError, "a macro needs a name", record.locate())
    return name, tuple(parameters)


def _macro(
    name: Text,
    parameters: tuple[Word | Option, ...],
    body: Text,
    depth: int,
    errors: list[FormatError] | None,
) -> Macro:
    one_line = body.string.startswith("=")
    if one_line:
        body = body.cut(1, len(body)).strip()
        if not body.string:
            raise located(FormatError, f"Body of Macro missing: {name}", name.locate())
    return Macro(name, parameters, _script(body, one_line, depth + 1, errors), one_line)


def _assignment(record: Text, equals: int, depth: int) -> Assignment:
    name = record.cut(0, equals).strip()
    string = record.string
    start = skip_blanks(string, equals + 1)
    if not name.string:
        raise located(FormatError, "a name is missing in front of '='", record.locate())
    if start == len(string):
        raise located(FormatError, f"no value given for '{name}'", name.locate())
    end = len(string)
    if opens(string, start):
        end = closing(record, start) + 1
        if string[start] == '"':
            start = start + 1
            end = end - 1
    value = record.cut(start, end).strip()
    if value.string.find("(") > 0:
        return Assignment(name, _call(value, depth))
    return Assignment(name, _expression(value, depth))


def _expression(text: Text, depth: int) -> Expression:
    """A word, an array, or a call."""
    if opens(text.string, 0) and text.string[0] != '"':
        _check_depth(depth, text)
        parameters = _parameters(text, depth + 1)
        items: list[Expression] = []
        for item in parameters:
            if isinstance(item, Option):
                raise located(FormatError, "an array has no named values", item.name.locate())
            items.append(item)
        return Array(text, tuple(items))
    if "(" in text.string and parse_double(text.string) is None:
        return _call(text, depth)
    return Word(text)


def _array(text: Text) -> ConfigArray:
    return ConfigArray(ConfigValue(text), most_times=_MOST_TIMES)


def _parameters(text: Text, depth: int) -> list[Expression | Option]:
    """The parameters of a call or the items of an array; what is repeated is parsed once."""
    parsed: dict[int, Expression | Option] = {}
    items = _array(text)
    for item in items:
        if id(item) not in parsed:
            parsed[id(item)] = _parameter(item.text, depth)
    return [parsed[id(item)] for item in items]


def _parameter(text: Text, depth: int) -> Expression | Option:
    """A parameter or an option of a call."""
    string = text.string
    stop = key_end(string, 0, len(string))
    if string[stop : stop + 1] != "=":
        return _expression(text, depth)
    value = text.cut(stop + 1, len(string)).strip()
    name = text.cut(0, stop).strip()
    if not name.string:
        raise located(FormatError, "a name is missing in front of '='", text.locate())
    if value.string.startswith('"') and value.string.endswith('"') and len(value) > 1:
        return Option(name, Word(value.cut(1, len(value) - 1)))
    return Option(name, _expression(value, depth))


def _call(text: Text, depth: int) -> Call:
    _check_depth(depth, text)
    string = text.string
    start = key_end(string, 0, len(string))
    if start == len(string) or string[start] == "=":
        message = f"Invalid macro/function call can not be parsed: {string[:200]}"
        raise located(FormatError, message, text.locate())
    parameters: list[Expression] = []
    options: list[Option] = []
    for parsed in _parameters(text.cut(start, len(string)), depth + 1):
        if isinstance(parsed, Option):
            options.append(parsed)
        else:
            parameters.append(parsed)
    return Call(text, text.cut(0, start).strip(), tuple(parameters), tuple(options))
