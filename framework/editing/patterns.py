"""Patterns of names, in which `*` stands for any number of characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..base.errors import VariableError, nearest


def name_matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    if not name.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:  # the first place of each part leaves most for those after it
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(name) - at >= len(rest[-1]) and name.endswith(rest[-1])


def matching(names: Iterable[str], patterns: Sequence[str], what: str) -> list[str]:
    """The names that match one of the patterns, in their own order.

    Args:
        what: the names are of, for errors: "component".

    Raises:
        VariableError: a pattern matches none.
    """
    known = list(names)
    matches: set[str] = set()
    for pattern in patterns:
        some = [name for name in known if name_matches(name, pattern)]
        if not some:
            raise VariableError(no_match(pattern, known, what))
        matches.update(some)
    return [name for name in known if name in matches]


def no_match(pattern: str, known: Iterable[str], what: str) -> str:
    """That nothing matches, with the nearest names."""
    names = list(known)
    least = f"; there are {', '.join(names[:6])}" if 0 < len(names) <= 6 else ""
    hint = nearest(pattern.replace("*", ""), names) or least
    return f"no {what} is called {pattern!r}{hint}"


def renamed_pairs(names: Iterable[str], old: str, new: str, what: str) -> list[tuple[str, str]]:
    """The names that `old` matches, each with its new name: `a*b` to `c*d` keeps what the star
    matches.

    Raises:
        VariableError: nothing matches, or the two have not one star each.
    """
    matches = matching(names, [old], what)
    if "*" not in old and "*" not in new:
        return [(old, new)]
    if old.count("*") != 1 or new.count("*") != 1:
        raise VariableError(f"{old!r} and {new!r} must have one star each, or none")
    head, tail = old.split("*")
    first, last = new.split("*")
    return [(name, first + name[len(head) : len(name) - len(tail)] + last) for name in matches]
