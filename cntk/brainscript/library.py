"""The standard library: BrainScript files of this package, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from .compiler import compile_expression
from .language.depth import deep_calls
from .language.parser import parse_members
from .language.syntax import CntkSource, LibrarySource, Member
from .values import Code, Record, Thunk

# Names by which a file may include the library, which is always there.
INCLUDE_NAMES = ("cntk.core.bs",)
STANDARD = ("layers", "operations", "helpers", "namespaces")
REDESIGNED = (*STANDARD, "redesign")


@cache
def compiled_library(names: tuple[str, ...] = STANDARD) -> tuple[tuple[Member, Code], ...]:
    """The definitions of the library's files with their code."""
    members = []
    folder = files(str(__package__)) / "library"
    for name in names:
        text = (folder / f"{name}.bs").read_text(encoding="utf-8")
        kind = CntkSource if name in STANDARD else LibrarySource
        members += parse_members(kind(f"library/{name}.bs", text)).members
    with deep_calls():
        return tuple((member, compile_expression(member.value)) for member in members)


def define_library(scope: Record, names: tuple[str, ...] = STANDARD) -> None:
    """Give a scope the library's definitions, none of them evaluated yet."""
    for member, code in compiled_library(names):
        scope.members[member.name] = Thunk(code, scope, (None, f".{member.name}"), member.value)
