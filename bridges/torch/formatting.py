"""Long lines of generated Python, cut inside of their brackets."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 96
"""Of a line."""
_OPEN, _CLOSE = "([{", ")]}"


def unpacked(names: Sequence[str]) -> str:
    """The left side of an assignment that takes a tuple of so many apart."""
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def wrapped(line: str, indent: int) -> list[str]:
    """A line, indented; where it is too long, what its largest brackets hold stands below."""
    bare = line.lstrip(" ")
    indent += len(line) - len(bare)
    if indent + len(bare) <= WIDTH:
        return [" " * indent + bare]
    begin, end = _largest(bare)
    if end - begin < 2:
        return [" " * indent + bare]
    head = bare[: begin + 1]
    inside = bare[begin + 1 : end]
    tail = bare[end:]
    lines = [" " * indent + head]
    members = _members(inside)
    more = "," if len(members) > 1 or bare[begin] == "[" and _lists(bare, begin) else ""
    if indent + 4 + len(inside) <= WIDTH:
        lines.append(" " * (indent + 4) + inside)
    else:
        for place, member in enumerate(members):
            comma = "," if place < len(members) - 1 else more
            lines += wrapped(member + comma, indent + 4)
    return [*lines, " " * indent + tail]


def _lists(text: str, begin: int) -> bool:
    """Whether a bracket begins a list; else it is an index."""
    return not begin or not (text[begin - 1].isalnum() or text[begin - 1] in "_)]")


def _largest(text: str) -> tuple[int, int]:
    """The brackets, not inside of others, that hold most."""
    best = (0, 0)
    depth = 0
    begin = 0
    for place, c in enumerate(text):
        if c in _OPEN:
            begin = place if not depth else begin
            depth += 1
        elif c in _CLOSE:
            depth -= 1
            if not depth and place - begin > best[1] - best[0]:
                best = begin, place
    return best


def _members(inside: str) -> list[str]:
    """The members of a list: commas in brackets divide nothing."""
    members = [""]
    depth = 0
    for c in inside:
        depth += (c in _OPEN) - (c in _CLOSE)
        if c == "," and not depth:
            members.append("")
        else:
            members[-1] += c
    return [part.strip() for part in members]


def atom(text: str) -> str:
    """An expression that may be followed by an attribute or an index."""
    depth = 0
    bare = True
    for c in text:
        depth += (c in "([") - (c in ")]")
        bare = bare and not (c == " " and not depth)
    return text if bare else f"({text})"


def bare(text: str) -> str:
    """An expression without brackets around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for place, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if not depth and place < len(text) - 1 or depth == 1 and c == ",":
            return text
    return text[1:-1]
