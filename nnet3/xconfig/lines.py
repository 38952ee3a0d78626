"""The lines of an xconfig file: a layer type, then `key=value` pairs.

Kaldi's rules (steps/libs/nnet3/xconfig/utils.py): `#` begins a comment, a value continues until the
word before the next `=`, `"..."` quotes what holds an `=`, and no key may come twice.
"""

from __future__ import annotations

import dataclasses
import os
import re

from ...framework.base.errors import FormatError, check_kind
from ...framework.base.files.atomic import PathLike
from ..language.config import is_valid_name, numbered_lines, read_config_text

_TYPE = re.compile(r"[a-z][-a-z0-9]+\Z")
_FOREIGN = re.compile(r"[^a-zA-Z0-9.\-()\[\]@_=,/+:\s\"]")
_QUOTED = re.compile(r'"[^"]*"')
_KEY = re.compile(r"(?:^|(?<=\s))([^\s=]*)=")
_QUOTED_EQUALS = "\x00"  # in place of an `=` inside quotes while a line is split


@dataclasses.dataclass(frozen=True)
class XconfigLine:
    """One line: the layer type, the pairs in their order, and where it stands (`file:line`)."""

    type: str
    values: dict[str, str]
    place: str


def read_lines(source: PathLike) -> list[XconfigLine]:
    """The lines of an xconfig.

    Args:
        source: a path, or the text itself: a str that holds a line break.

    Raises:
        FormatError: the file cannot be read, a line is none, or there is no line at all.
    """
    return [parse_line(content, place) for place, content in split_lines(source)]


def split_lines(source: PathLike) -> list[tuple[str, str]]:
    """Where each line of an xconfig stands, and the line without its comment.

    Raises:
        FormatError: the file cannot be read, or there is no line at all.
    """
    check_kind(source, str | os.PathLike, "an xconfig's text or path")
    if isinstance(source, str) and "\n" in source:
        text = source
        name = ""
    else:
        name = os.fspath(source)
        text = read_config_text(name)
    lines = list(numbered_lines(text, name))
    if not lines:
        raise FormatError(f"{name or 'the xconfig'}: no layer in it")
    return lines


def parse_line(content: str, place: str) -> XconfigLine:
    """One line.

    Raises:
        FormatError: it is none.
    """
    foreign = _FOREIGN.search(content)
    if foreign:
        hint = "; quote with double quotes" if foreign[0] == "'" else ""
        raise FormatError(f"{place}: the character {foreign[0]!r} has no place in a line{hint}")
    kind, _, rest = content.replace("\t", " ").partition(" ")
    if not _TYPE.match(kind):
        raise FormatError(f"{place}: {kind!r} cannot begin a line, a layer type does")
    if rest.count('"') % 2:
        raise FormatError(f"{place}: a double quote is not closed")
    rest = _QUOTED.sub(lambda quoted: f" {quoted[0][1:-1].replace('=', _QUOTED_EQUALS)} ", rest)
    keys = list(_KEY.finditer(rest))
    before = rest[: keys[0].start()] if keys else rest
    if before.strip():
        raise FormatError(f"{place}: expected key=value, not {before.strip()!r}")
    values: dict[str, str] = {}
    ends = [*(key.start() for key in keys), len(rest)][1:]
    for key, end in zip(keys, ends, strict=True):
        name = key[1]
        value = " ".join(rest[key.end() : end].split())
        if not is_valid_name(name):
            raise FormatError(f"{place}: {name!r} cannot be a key")
        if name in values:
            raise FormatError(f"{place}: {name}= is given twice")
        if "=" in value:
            raise FormatError(f'{place}: {name}={value}: a value that holds = needs "quotes"')
        values[name] = value.replace(_QUOTED_EQUALS, "=")
    return XconfigLine(kind, values, place)
