"""Changes of records: `a + b`, `a - b`, and members `a.b.c = x` and `a = delete`.

A record is never changed in place; a change gives another record, in which the members that use a
changed one are computed again. `a.b.c = x` reaches through functions, conditions, names and
`new X (base + [...])` to where the record `a.b` is written: what `a` is made of is evaluated once
more with the change in it, before any object is made of it.

Source: F. Seide's notes on the redesign of the configuration language, 2015;
BrainScriptEvaluator.cpp (the list "main TODO items": dictionary merging).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from ...framework.base.errors import nearest
from .failures import Failure, LimitFailure
from .language.depth import MAX_DEPTH
from .language.syntax import Delete, Expression
from .values import Code, Instance, Path, Record, Thunk, Value, force, type_name

# A change: the names that lead to the member, and its new value.
Change = tuple[tuple[str, ...], Thunk]
Changes = tuple[Change, ...]
# Code that hands changes on to the parts of its value, as for names, records and calls.
# Other code takes no third parameter; this one's has a default.
ChangedCode = Callable[[Record, Path, Changes], Value]


def changed_thunk(old: Thunk, changes: Changes) -> Thunk:
    """A member whose value is changed: `a` beside `a.b = x`."""
    before = change_of(old)
    if before is not None:
        old.scope.session.spend(len(before[1]), old.expression)
        old = before[0]
        changes = before[1] + changes

    def code(scope: Record, path: Path) -> Value:
        return changed(old.code, old.scope, path, changes, old.expression)

    vars(code)["change_of"] = (old, changes)
    return Thunk(code, old.scope, old.path, old.expression)


def change_of(thunk: Thunk) -> tuple[Thunk, Changes] | None:
    """The member that a thunk changes, and how; None for other thunks."""
    return vars(thunk.code).get("change_of")


def with_changes_in(code: Code, changes: Changes, where: Any) -> Code:
    """Code that gives what other code gives, with changes in it."""

    def inside(scope: Record, path: Path) -> Value:
        return changed(code, scope, path, changes, where)

    return inside


def changed(code: Code, scope: Record, path: Path, changes: Changes, where: Any) -> Value:
    """What code gives with changes in it."""
    if getattr(code, "__defaults__", None):
        return cast(ChangedCode, code)(scope, path, changes)
    return changed_value(code(scope, path), path, changes, where)


def changed_member(value: Value, path: Path, changes: Changes, where: Expression) -> Value:
    """The value that a name stands for, with changes in it."""
    if not isinstance(value, Thunk):
        return changed_value(value, path, changes, where)
    old, before = change_of(value) or (value, ())
    waiting = value.scope.session.waiting
    if value.running:
        return value.force()  # reports the circle
    if len(waiting) >= MAX_DEPTH:
        raise LimitFailure(f"more than {MAX_DEPTH} values need each other", where)
    value.running = True
    waiting.append(value)
    try:
        return changed(old.code, old.scope, path, before + changes, where)
    finally:
        waiting.pop()
        value.running = False


def changed_value(value: Value, path: Path, changes: Changes, where: Any) -> Value:
    """A copy of a record or object of the redesigned top level with changes."""
    record = value.record if isinstance(value, Instance) else value
    if not isinstance(record, Record):
        name = changes[0][0][0]
        raise Failure(
            f"there is no record to look into for {name!r}, but a {type_name(value)}",
            changes[0][1].expression,
        )
    result = _merged(record, None, record.members, path, record.expression)
    change_members(result, changes, True)
    return value.with_record(result) if isinstance(value, Instance) else result


def change_members(record: Record, changes: Iterable[Change], must_be_there: bool) -> Record:
    """Change the members of a record that has not been seen yet.

    The names in a new value are looked up, as in `a + [ b = x ]`, in the record that it comes into,
    then in the records around that, then in the place where it is written.

    Raises:
        Failure: there is no member to delete or, if it must be there, to look into.
    """
    members = record.members
    for names, thunk in changes:
        name = names[0]
        record.session.spend(1 + len(record.pending), thunk.expression)
        old = members.get(name)
        if thunk.scope.members is not members:
            scope = Record(record.session, thunk.scope, record.expression, members)
            thunk = Thunk(thunk.code, scope, thunk.path, thunk.expression)
        if len(names) == 1:
            if not isinstance(thunk.expression, Delete):
                members[name] = thunk
            elif old is None:
                hint = nearest(name, members)
                raise Failure(f"there is no member {name!r} to delete{hint}", thunk.expression)
            else:
                del members[name]
        elif old is not None:
            old = _as_thunk(old, record, thunk.expression)
            members[name] = changed_thunk(old, ((names[1:], thunk),))
        elif must_be_there:
            raise _no_member(name, record, thunk)
        else:
            record.pending += ((names, thunk),)
    return record


def refuse_pending(record: Record) -> None:
    """Refuse changes of members that are not there, where a record is used as it is.

    Raises:
        Failure: there is such a change.
    """
    for names, thunk in record.pending:
        raise _no_member(names[0], record, thunk)


def _no_member(name: str, record: Record, thunk: Thunk) -> Failure:
    hint = nearest(name, record.members)
    return Failure(f"there is no member {name!r} to look into{hint}", thunk.expression)


def _as_thunk(value: Value, record: Record, where: Any) -> Thunk:
    if isinstance(value, Thunk):
        return value

    def code(scope: Record, path: Path) -> Value:
        return value

    return Thunk(code, record, None, where)


def with_members(base: Record, changes: Record, path: Path, e: Expression | None) -> Record:
    """`base + changes`: the members of both, `changes` first.

    Members of `base` that use a changed one see the new value; members of `changes` see the members
    of `base` before the scope that they were written in.
    """
    deleted: list[Change] = []
    plain = {}
    for name, value in changes.members.items():
        if isinstance(value, Thunk) and isinstance(value.expression, Delete):
            deleted.append(((name,), value))
        else:
            plain[name] = value
    result = _merged(base, changes, {**base.members, **plain}, path, e)
    moved = _Mover(base, changes, result, e)
    inner = [(names, moved(thunk, path, names)) for names, thunk in changes.pending]
    return change_members(result, [*inner, *deleted], False)


def without_members(base: Record, changes: Record, path: Path, e: Expression) -> Record:
    """`base - changes`: `base` less all members that `changes` has."""
    unchanged = {name: v for name, v in base.members.items() if name not in changes.members}
    result = _merged(base, changes, unchanged, path, e)
    gone = Delete(e.source, e.at)
    inner = [(names, Thunk(_deleted, base, path, gone)) for names, _ in changes.pending]
    return change_members(result, inner, False)


def _deleted(scope: Record, path: Path) -> Value:
    raise AssertionError("the value of a deleted member is never computed")


def _merged(
    base: Record,
    changes: Record | None,
    members: dict[str, Value],
    path: Path,
    e: Any,
) -> Record:
    base.session.spend(len(members), e)
    result = Record(base.session, base.parent, e)
    moved = _Mover(base, changes, result, e)
    for name, value in members.items():
        result.members[name] = (
            moved(value, path, (name,)) if isinstance(value, Thunk) else force(value)
        )
    result.pending = tuple((names, moved(thunk, path, names)) for names, thunk in base.pending)
    base.session.watch(result)
    return result


class _Mover:
    """Moves thunks out of the records that were merged into the result."""

    def __init__(self, base: Record, changes: Record | None, result: Record, e: Any):
        self.result = result
        self.expression = e
        self.merged = [base.members] if changes is None else [base.members, changes.members]
        self.scopes = {id(base): result}

    def __call__(self, thunk: Thunk, path: Path, names: tuple[str, ...]) -> Thunk:
        inside = (path, "." + ".".join(names))
        change = change_of(thunk)
        if change is not None:
            self.result.session.spend(len(change[1]), thunk.expression)
            changes = tuple((inner, self(t, inside, inner)) for inner, t in change[1])
            return changed_thunk(self(change[0], path, names), changes)
        scope = self.scopes.get(id(thunk.scope))
        if scope is None and any(thunk.scope.members is members for members in self.merged):
            # Written in the other record: same members, another scope around.
            around = thunk.scope.parent
            scope = Record(self.result.session, around, self.expression, self.result.members)
            self.scopes[id(thunk.scope)] = scope
        elif scope is None:
            scope = thunk.scope
        return Thunk(thunk.code, scope, inside, thunk.expression)
