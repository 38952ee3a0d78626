"""BrainScript text in a uniform layout, with its comments and line breaks.

Unlike `printer`, which writes a parse tree, this moves the user's own text: a line is indented by
one step more than the line with the bracket that it is in, and by another step where it continues
with a member that an earlier line began; spaces are set around operators and after commas. Includes
stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....framework.base.errors import FormatError
from ...base.text import Source, located
from .parser import parse_expression, parse_members
from .syntax import Expression, Record
from .tokens import KEYWORDS, TOKEN

_STEP = "    "
_MOST_BLANK_LINES = 2  # in a row
_OPENING = ("(", "[", "{", "[|")
_CLOSING = (")", "]", "}", "|]")
_AS_WRITTEN = (*_OPENING, ":", "..", "|]")  # spaced as the user does


@dataclass
class _Piece:
    """A token or comment, with the line breaks before it, or whether there are only blanks."""

    kind: str
    text: str
    at: int
    breaks: int
    blank: bool

    @property
    def is_comment(self) -> bool:
        return self.kind == "comment"

    def is_symbol(self, symbols: tuple[str, ...]) -> bool:
        return self.kind == "symbol" and self.text in symbols

    @property
    def ends_operand(self) -> bool:
        if self.kind == "keyword":
            return self.text in ("true", "false")
        return self.kind in ("name", "number", "string") or self.is_symbol(_CLOSING)


@dataclass
class _Bracket:
    indent: int  # steps of the line that opens it
    record: bool  # holds members


def format_text(text: str, name: str = "BrainScript") -> str:
    """The text of a file, or of one expression in brackets, in the uniform layout.

    The meaning does not change, and formatting the result changes nothing.

    Raises:
        FormatError: it is no BrainScript.
    """
    source = Source(name, text)
    members = text.lstrip()[:1] not in ("(", "[", "{")
    parse = parse_members if members else parse_expression
    tree = parse(source, _nothing)
    result = _Layout(tree, members).text(list(_pieces(source)))
    if parse(Source(name, result), _nothing) != tree:
        raise located(FormatError, "the layout of this text cannot be changed", source.locate(0))
    return result


def _nothing(name: str, near: Source) -> Source:
    """An include's file, taken as empty."""
    return Source(f"{near.name}>{name}", "")


def _pieces(source: Source) -> Iterator[_Piece]:
    at = 0
    breaks = 0
    blank = False
    while at < len(source.text):
        match = TOKEN.match(source.text, at)
        assert match is not None  # the parser has read it
        kind = match.lastgroup or ""
        text = match.group()
        if kind == "space":
            breaks += text.count("\n")
            blank = True
        else:
            if kind == "name" and text in KEYWORDS:
                kind = "keyword"
            yield _Piece(kind, text.rstrip(), at, breaks, blank)
            breaks = 0
            blank = False
        at = match.end()


class _Layout:
    def __init__(self, tree: Expression, members: bool):
        self.members = members
        self.starts: set[int] = set()  # offsets of members
        self.records: set[int] = set()  # and of brackets that hold members
        stack: list[Expression] = [tree]
        while stack:
            expression = stack.pop()
            if isinstance(expression, Record):
                self.records.add(expression.at)
                self.starts.update(member.at for member in expression.members)
            stack.extend(expression.children())

    def text(self, pieces: list[_Piece]) -> str:
        parts: list[str] = []
        brackets: list[_Bracket] = []
        indent = 0
        before: _Piece | None = None  # the last token
        sign = False  # whether that is a sign before its operand
        for number, piece in enumerate(pieces):
            bracket = None
            if piece.is_symbol(_CLOSING):
                bracket = brackets.pop()
            if number and piece.breaks:
                parts.append("\n" * min(piece.breaks, _MOST_BLANK_LINES + 1))
                indent = bracket.indent if bracket else self.indent(pieces, number, brackets)
                parts.append(_STEP * indent)
            elif piece.is_comment or (number and pieces[number - 1].is_comment):
                line_comment = piece.is_comment and not piece.text.startswith("/*")
                parts.append("" if not number else "  " if line_comment else " ")
            elif before is not None and not sign:
                inside = bracket.record if bracket else bool(brackets) and brackets[-1].record
                parts.append(_space(before, piece, inside))
            parts.append(piece.text)
            if piece.is_comment:
                continue
            sign = piece.is_symbol(("+", "-", "!")) and (before is None or not before.ends_operand)
            if piece.is_symbol(_OPENING):
                brackets.append(_Bracket(indent, piece.at in self.records))
            before = piece
        return "".join(parts) + "\n"

    def indent(self, pieces: list[_Piece], number: int, brackets: list[_Bracket]) -> int:
        """Steps of the line that begins with a piece other than a closing bracket."""
        base = brackets[-1].indent + 1 if brackets else 0
        if not (brackets[-1].record if brackets else self.members):
            return base
        first = next((p for p in pieces[number:] if not p.is_comment), None)
        if first is None or first.at in self.starts or first.text == "include":
            return base
        return base if first.is_symbol((*_CLOSING, ";")) else base + 1


def _space(before: _Piece, piece: _Piece, record: bool) -> str:
    """The blanks between two tokens of one line; `record`: the innermost bracket holds members."""
    if piece.is_symbol((",", ".")) or before.is_symbol((".",)):
        return ""
    if before.is_symbol(_OPENING) and piece.is_symbol(_CLOSING):
        return " " if before.text == "[|" else ""
    if before.is_symbol(_OPENING[:3]) or piece.is_symbol(_CLOSING[:3]):
        return " " if record else ""
    if piece.is_symbol(_OPENING) and not before.ends_operand and not before.is_symbol((":",)):
        return " "
    if piece.is_symbol(_AS_WRITTEN) or before.is_symbol((":", "..", "[|")):
        return " " if piece.blank else ""
    return " "
