"""The syntax tree of MEL, CNTK's model editing language, and its text form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..base.text import Location, Text
from ..config.scan import bracketed
from ..ndl.syntax import Assignment, Script, format_script


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """`SetInput(L2.t, 1, x)`, or `m = LoadModel("file")` with the name of the model.

    Attributes:
        target: the name in front of `=`, for commands that make a model.
        function: as it is written; `commands` finds the command.
        parameters: in order, quotes taken off where a whole parameter was quoted.
        options: `name=value` after them, by lower-case name.
    """

    text: Text
    function: Text
    parameters: tuple[Text, ...] = ()
    options: tuple[tuple[Text, Text], ...] = ()
    target: Text | None = None

    @property
    def location(self) -> Location | None:
        return self.text.locate()

    def __str__(self) -> str:
        inside = [_quoted(p.string) for p in self.parameters]
        inside += [f"{name}={_quoted(value.string)}" for name, value in self.options]
        front = f"{self.target} = " if self.target is not None else ""
        return f"{front}{self.function}{bracketed(inside)}"


@dataclass(frozen=True, slots=True, eq=False)
class Inline:
    """A statement of NDL for the default model: `L4 = DNNLayer(512, 512, L3.y)`."""

    text: Text
    assignment: Assignment

    def __str__(self) -> str:
        return str(self.assignment)


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """`m = [ ... ]`: a new model from a script of NDL."""

    text: Text
    name: Text
    script: Script

    def __str__(self) -> str:
        return f"{self.name} = {format_script(self.script).rstrip()}"


MelStatement = Command | Inline | Embedded


@dataclass(frozen=True, slots=True, eq=False)
class MelScript:
    """Statements in order."""

    statements: tuple[MelStatement, ...] = ()

    def __iter__(self) -> Iterator[MelStatement]:
        return iter(self.statements)

    def __str__(self) -> str:
        return "".join(f"{statement}\n" for statement in self.statements)


def is_cut_from(word: str, name: str) -> bool:
    """Whether a word means a name of MEL: in any case, and perhaps cut short to half its length."""
    return name.lower().startswith(word.lower()) and len(word) >= len(name) // 2


def format_mel(script: MelScript) -> str:
    """A script as text; parsing it gives the same tree."""
    return str(script)


def _quoted(string: str) -> str:
    plain = string and not any(c in ' \t\r\n,"[]{}()=#' for c in string)
    return string if plain else f'"{string}"'
