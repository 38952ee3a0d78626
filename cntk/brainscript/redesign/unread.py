"""Members that nothing reads: misspelt ones, mostly.

A member is read if its value was computed, if its record defines an object whose class has it, or
if an expression anywhere in the text names it, used or not. Functions and objects count as a
library that need not be used, and so do members of the plain records that functions give, unless
their names look misspelt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....framework.base.errors import nearest, suggestions_ended
from ...config.unread import NOT_COMPARED
from ..language.syntax import Access, Expression, Identifier, Lambda, LibrarySource, Member, New
from ..language.syntax import Record as RecordText
from ..values import Record, Thunk
from .classes import CLASSES


def unread_members(text: Expression, records: Sequence[Record]) -> Iterator[str]:
    """A line with the place for each member of the evaluated records that nothing reads."""
    members, named, given = _walk(text)
    read: set[int] = set()
    unread: dict[int, tuple[str, str]] = {}
    for record in records:
        for name, thunk in record.members.items():
            if not isinstance(thunk, Thunk):
                continue
            if thunk.value is not Thunk or _is_known(name, record.owner):
                read.add(id(thunk.expression))
            else:
                unread.setdefault(id(thunk.expression), (name, record.owner))
    for key, (name, owner) in unread.items():
        member = members.get(key)
        if key in read or name in named or member is None:
            continue
        if isinstance(member.value, (Lambda, New)):
            continue
        hint = nearest(name, named | set(CLASSES[owner].names() if owner in CLASSES else ()))
        if hint or owner or key not in given:
            yield f"{member.location}: {name!r} is never read{hint}"
    if suggestions_ended():
        yield NOT_COMPARED


def _is_known(name: str, owner: str) -> bool:
    """Whether a class reads a member, or says itself which it does not know."""
    spec = CLASSES.get(owner)
    return spec is not None and (spec.open or name.lower() in spec.settings)


def _walk(text: Expression) -> tuple[dict[int, Member], set[str], set[int]]:
    """The members of all records in the user's text, by the ids of their values; all names that
    expressions use; and the ids of those members that are inside functions."""
    members: dict[int, Member] = {}
    named: set[str] = set()
    given: set[int] = set()
    stack = [(text, False)]
    while stack:
        expression, inside = stack.pop()
        if isinstance(expression.source, LibrarySource):
            continue
        if isinstance(expression, (Identifier, Access)):
            named.add(expression.name)
        elif isinstance(expression, RecordText):
            for member in expression.members:
                members[id(member.value)] = member
                if inside:
                    given.add(id(member.value))
                named.update(member.name.split(".")[:-1])
        inside = inside or isinstance(expression, Lambda)
        stack.extend((child, inside) for child in expression.children())
    return members, named, given
