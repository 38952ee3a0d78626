"""Configs as text that reads back as the same values."""

from __future__ import annotations

from ...framework.errors import FormatError
from ..text import Text
from .parameters import ConfigParameters
from .scan import closing


def format_config(config: ConfigParameters) -> str:
    """A config or section, one `name = value` a line, in the order of its first writing.

    A value that was merged from several sections is written as several: reading merges them again.
    Variables are not replaced.

    Raises:
        FormatError: a value holds what no config can say (a quote and a separator, say).
    """
    out = []
    for name in config:
        out += [f"{name} = {part}\n" for part in _written(config.raw(name).string)]
    return "".join(out)


def _written(value: str) -> list[str]:
    parts = _sections(value)
    if all(_reads_as(part, part) for part in parts):
        return parts
    if _reads_as(f'"{value}"', value):
        return [f'"{value}"']
    raise FormatError(f"no config can hold the value {value[:200]!r}")


def _sections(value: str) -> list[str]:
    """The sections that a value was merged from, or the value alone."""
    parts = []
    rest = Text(value)
    while rest.string.startswith("["):
        try:
            end = closing(rest, 0) + 1
        except FormatError:
            return [value]
        parts.append(rest.string[:end])
        rest = rest.cut(end, len(rest)).strip()
    return parts if parts and not rest.string else [value]


def _reads_as(written: str, value: str) -> bool:
    try:
        read = ConfigParameters(f"k = {written}\n")
    except FormatError:
        return False
    return list(read) == ["k"] and read.raw("k").string == value
