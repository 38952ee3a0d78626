"""The layout of configs, NDL and MEL, comments kept; BrainScript has a formatter of its own.

Lines are indented by the brackets around them, blanks at their ends go, `name=value` gets blanks
around its equals sign, and several empty lines become one. Nothing but blanks changes.
"""

from __future__ import annotations

import re

from ...framework.base.errors import FormatError
from ..base.text import Source, located

INDENT = 4
_ASSIGNMENT = re.compile(r"([A-Za-z_$][\w.$\[\]]*)[ \t]*=(?![=>])[ \t]*(?=\S)")
# Comments and quoted strings hide brackets. `#` and `//` need a blank or nothing in front.
_PARTS = re.compile(
    r"(?P<block>/\*.*?(?:\*/|\Z))|(?P<line>(?<![^\s])(?:#|//)[^\n]*)"
    r'|(?P<string>"[^"]*(?:"|\Z))|(?P<open>[\[{(])|(?P<close>[\]})])|(?P<end>\n)',
    re.DOTALL,
)


def format_text(text: str, name: str = "<string>") -> str:
    """A text in the common layout.

    Raises:
        FormatError: a bracket closes that was not opened.
    """
    lines, depths = _lines(text.replace("\r\n", "\n").replace("\r", "\n"), name)
    out: list[str] = []
    for line, depth in zip(lines, depths, strict=True):
        if depth is None:  # inside a string or a comment of several lines
            out.append(line)
            continue
        line = line.strip()
        if not line:
            if out and out[-1]:
                out.append("")
            continue
        line = _ASSIGNMENT.sub(r"\1 = ", line, count=1) if _ASSIGNMENT.match(line) else line
        out.append(" " * (INDENT * depth) + line)
    while out and not out[-1]:
        out.pop()
    return "\n".join(out) + "\n" if out else ""


def _lines(text: str, name: str) -> tuple[list[str], list[int | None]]:
    """The lines of a text and the depth of each: the number of open brackets at its start, less
    the closing brackets that it begins with. None for a line inside a string or comment."""
    depths: list[int | None] = []
    depth = 0
    leading, own = True, 0  # of the line: whether only closing brackets came, and its depth
    inside = False
    position = 0
    for match in _PARTS.finditer(text):
        kind = match.lastgroup
        blank = not text[position : match.start()].strip()
        position = match.end()
        leading = leading and blank
        if kind == "close":
            depth -= 1
            if depth < 0:
                place = Source(name, text).locate(match.start())
                raise located(FormatError, f"{match.group()} closes nothing", place)
            if leading:
                own = depth
            continue
        if kind == "open":
            depth += 1
        if kind != "end":
            leading = False
        for _ in range(match.group().count("\n")):
            depths.append(None if inside else own)
            own = depth
            leading = True
            inside = kind != "end"
    depths.append(None if inside else own)
    return text.split("\n"), depths
