"""Configs as text that reads back as the same values."""

from __future__ import annotations

from ...framework.base.errors import FormatError
from ..base.text import Text
from .parameters import ConfigParameters
from .scan import closing


def format_config(config: ConfigParameters) -> str:
    """A config or section, one `name = value` a line, in the order of its first writing.

    A value that was merged from several sections is written as several: reading merges them again.
    Variables are not replaced.

    Raises:
        FormatError: no config can express a value (with a quote and a separator, say).
    """
    out = []
    for name in config:
        out += [f"{name} = {part}\n" for part in _written(config.raw(name).string)]
    return "".join(out)


def _written(value: str) -> list[str]:
    """The value as lines of a config hold it: one for each section that it was merged from."""
    sections = []
    while value.startswith("["):
        text = Text(value)
        try:
            end = closing(text, 0) + 1
        except FormatError:
            break
        if value[end : end + 1] != " " or not _reads_as(value[:end], value[:end]):
            break
        sections.append(value[:end])
        value = value[end + 1 :]
    for written in (value, f'"{value}"'):
        if _reads_as(written, value):
            return [*sections, written]
    raise FormatError(f"no config can hold the value {value[:200]!r}")


def _reads_as(written: str, value: str) -> bool:
    try:
        read = ConfigParameters(f"k = {written}\n")
        return list(read) == ["k"] and read.raw("k").string == value
    except FormatError:
        return False
