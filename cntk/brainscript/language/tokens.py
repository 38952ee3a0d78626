"""BrainScript's tokens. `include "file"` is replaced by the tokens of the file.

Source: BrainScriptParser.cpp (Lexer).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ....framework.base.errors import FormatError
from ...base.text import Source, located

KEYWORDS = frozenset(("include", "new", "with", "true", "false", "if", "then", "else", "array"))
MAX_INCLUDES = 64  # files open at one time

# Finds the file of an include: (name as written, the source that includes it) -> its Source, or
# None if there is no such file.
Finder = Callable[[str, Source], Source | None]

TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>\#[^\n]*|//[^\n]*|/\*.*?\*/)
  | (?P<number>(?:[0-9]+(?:\.(?!\.)[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<name>[^\W\d]\w*)
  | (?P<string>"[^"]*"|'[^']*')
  | (?P<symbol>\[\||\|\]|\*\*|\.\*|\|\||&&|<<|>>|==|!=|<=|>=|=>|\.\.
                |/(?!\*)|[=;,\[\](){}+\-*%!<>:.^])
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is number, string, name, keyword, symbol or end; a string's `text` has no quotes."""

    kind: str
    text: str
    source: Source
    at: int


def tokens(source: Source, find: Finder | None = None) -> Iterator[Token]:
    """The tokens of a source and its includes, with one of kind `end` last.

    Raises:
        FormatError: a character that no token starts with, a string or comment without its end, an
            include of a file that is missing or that includes itself.
    """
    open_files: list[tuple[Source, int]] = []
    at = 0
    while True:
        match = TOKEN.match(source.text, at)
        if match is None:
            if at < len(source.text):
                raise _bad_text(source, at)
            if not open_files:
                yield Token("end", "", source, at)
                return
            source, at = open_files.pop()
            continue
        start = at
        at = match.end()
        kind = match.lastgroup or ""
        if kind in ("space", "comment"):
            continue
        text = match.group()
        if kind == "string":
            text = text[1:-1]
        elif kind == "name" and text in KEYWORDS:
            kind = "keyword"
        if text == "include" and kind == "keyword":
            name, at = _include_name(source, start, at)
            included = find(name, source) if find is not None else None
            chain = [("included at", file.locate(place)) for file, place in reversed(open_files)]
            place = source.locate(start)
            if included is None:
                raise located(FormatError, f"cannot find the included file {name!r}", place, chain)
            if any(included.name == file.name for file, _ in [*open_files, (source, at)]):
                raise located(FormatError, f"{included.name} includes itself", place, chain)
            if len(open_files) == MAX_INCLUDES:
                raise located(
                    FormatError, f"more than {MAX_INCLUDES} nested includes", place, chain
                )
            open_files.append((source, at))
            source = included
            at = 0
            continue
        yield Token(kind, text, source, start)


def _include_name(source: Source, start: int, at: int) -> tuple[str, int]:
    while True:
        match = TOKEN.match(source.text, at)
        if match is None or match.lastgroup not in ("space", "comment"):
            break
        at = match.end()
    if match is None or match.lastgroup != "string":
        raise located(
            FormatError, "include must be followed by a file name in quotes", source.locate(start)
        )
    return match.group()[1:-1], match.end()


def _bad_text(source: Source, at: int) -> FormatError:
    character = source.text[at]
    if character in "\"'":
        message = "string without its closing quotation mark"
    elif source.text.startswith("/*", at):
        message = "comment without its closing */"
    else:
        message = f"unexpected character {character!r}"
    return located(FormatError, message, source.locate(at))
