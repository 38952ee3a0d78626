"""What objects of the redesigned top level read from their records, by the tables of `classes`.

An object looks for a setting among its own members, whatever capitals they have, and then in the
scopes around: `traceLevel` and `minibatchSize` may stand at the top of a file for all its actions.
"""

from __future__ import annotations

from ....framework.base.errors import nearest
from ...base.text import Location
from ..failures import Failure
from ..language.syntax import Lambda, LibrarySource
from ..values import Array, Record, Thunk, Value, flatten, force, type_name
from .classes import REQUIRED, TOP_CLASSES, Setting

PLAIN = frozenset(
    ("number", "integer", "numbers", "integers", "boolean")
    + ("string", "strings", "setting", "path")
)
"""The types of settings that the old language has as well."""
_TEXTS = frozenset(("string", "strings", "path"))
_INTEGERS = frozenset(("integer", "integers"))


def find_setting(record: Record, setting: Setting) -> tuple[Value, Location | None] | None:
    """The value of a plain setting and its place; None if it is given nowhere.

    Raises:
        Failure: a plain setting holds something else.
    """
    name, value = _own(record, setting)
    place = record.place(name)
    if value is None:
        name = setting.name
        value = _around(record.parent, setting)
        if value is None:
            return None
        place = value.expression.location if isinstance(value, Thunk) else None
    return _checked(setting, name, force(value), place), place


def setting_value(record: Record, name: str, default: Value = None) -> Value:
    """The value of a plain setting of the record's class, or the default.

    Raises:
        Failure: it is required and is given nowhere, or a plain one holds something else.
    """
    setting = TOP_CLASSES[record.owner].settings[name.lower()]
    entry = find_setting(record, setting)
    if entry is not None:
        return entry[0]
    if setting.default == REQUIRED:
        near = nearest(name, record.members)
        message = f"{record.owner} needs the parameter {name!r}, which is not found{near}"
        raise Failure(message, record.expression)
    return default


def _own(record: Record, setting: Setting) -> tuple[str, Value]:
    if setting.name in record.members:
        return setting.name, record.members[setting.name]
    lower = setting.name.lower()
    for name, value in record.members.items():
        if name.lower() == lower:
            return name, value
    return setting.name, None


def _around(scope: Record | None, setting: Setting) -> Value:
    """What a name stands for in the user's text around an object."""
    while scope is not None:
        value = scope.members.get(setting.name)
        if value is not None:
            if isinstance(value, Thunk) and isinstance(value.expression.source, LibrarySource):
                return None
            if not (isinstance(value, Thunk) and isinstance(value.expression, Lambda)):
                return value
        scope = scope.parent
    return None


def _checked(setting: Setting, name: str, value: Value, place: Location | None) -> Value:
    """A plain value of the setting's type; paths with slashes."""
    for item in flatten(value):
        if not isinstance(item, (str, float, bool)):
            message = f"{name!r} must hold numbers, strings or booleans, not a {type_name(item)}"
            raise Failure(message, place)
        if setting.kind in _TEXTS and not isinstance(item, str):
            raise Failure(f"{name!r} must be a string, not a {type_name(item)}", place)
        if setting.kind not in _TEXTS and isinstance(item, str) and '"' in item:
            raise Failure(f"{name!r} must not hold a quotation mark", place)
        if setting.kind in _INTEGERS and isinstance(item, float) and not item.is_integer():
            raise Failure(f"{name!r} must be an integer, not {item:g}", place)
    if setting.kind == "path":
        if isinstance(value, Array):
            raise Failure(f"{name!r} must be a string, not an array", place)
        return local_path(value, name, place)
    return value


def local_path(path: str, name: str, place: Location | None) -> str:
    """A path with slashes between its folders, which every system understands.

    Raises:
        Failure: it holds a quotation mark, a line end or a NUL character.
    """
    for character in '"\n\0':
        if character in path:
            raise Failure(f"{name!r} is no path: it holds {character!r}", place)
    return path.replace("\\", "/")
