"""The standard library: BrainScript files of this package, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from .compiler import compile_expression
from .depth import deep_calls
from .parser import parse_members
from .syntax import LibrarySource, Member
from .values import Code, Record, Thunk

# Names by which a file can include what is there anyway.
INCLUDE_NAMES = ("cntk.core.bs",)
_FILES = ("layers.bs", "operations.bs", "helpers.bs", "namespaces.bs")


@cache
def compiled_library() -> tuple[tuple[Member, Code], ...]:
    """The library's definitions with their code."""
    members = []
    folder = files(__package__) / "library"
    for name in _FILES:
        text = (folder / name).read_text(encoding="utf-8")
        members += parse_members(LibrarySource(f"library/{name}", text)).members
    with deep_calls():
        return tuple((member, compile_expression(member.value)) for member in members)


def define_library(scope: Record) -> None:
    """Give a scope the library's definitions, none of them evaluated yet."""
    for member, code in compiled_library():
        scope.members[member.name] = Thunk(code, scope, (None, "." + member.name), member.value)
