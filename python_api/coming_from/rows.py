"""Rows of the name tables: how they are written, and how all of them are searched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

PEERS: Final = {
    "pytorch": "PyTorch",
    "keras": "Keras",
    "paddle": "Paddle",
    "cntk": "CNTK",
    "kaldi": "Kaldi",
    "vosk": "Vosk",
}
"""The modules of the tables, and what people call the systems."""


@dataclass(frozen=True)
class Row:
    """A name of another system.

    Attributes:
        peer: the system.
        theirs: the name there, or several that have one meaning.
        ours: the name here: `b.NAME` for a method of NetBuilder, a public name that begins with
            `opscope.`, a command that begins with `opscope `, or the quoted name of an optimizer
            or initializer; several with commas between. Empty where the note says all.
        note: what differs, in Markdown.
        where: a link of the documentation, in Markdown.
    """

    peer: str
    theirs: str
    ours: str
    note: str
    where: str = ""

    @property
    def line(self) -> str:
        """The row as a line of the command line."""
        here = " ".join(filter(None, (self.ours, f"({self.note})" if self.note else "")))
        return f"{self.peer}: {self.theirs} -> {here if self.ours else self.note}".replace("`", "")


def read(peer: str, table: str) -> Iterator[Row]:
    """The rows of a table: lines of `theirs | ours | note`.

    `x.{a b}` is a row for `x.a` and one for `x.b`. `=` as ours is the operator of the same name in
    any spelling, or what `typed_names` has for it; in `opscope.speech.*` the star is the name.
    """
    known = _known()
    for line in table.strip().splitlines():
        theirs, ours, note = (cell.strip() for cell in f"{line} |".split("|")[:3])
        among = re.fullmatch(r"(.*)\{(.*)\}", theirs)
        prefix, words = among.groups() if among else ("", theirs)
        for word in words.split() if among else [words]:
            here = f"b.{_same(word, known)}" if ours == "=" else ours.replace("*", word)
            yield Row(peer, prefix + word, here, note)


def _known() -> set[str]:
    """The operators and layers that NetBuilder has methods for."""
    from ..builder.methods import BUILDER_METHODS
    from ..builder.operator_methods import method_types

    return {*BUILDER_METHODS, *method_types()}


def _same(word: str, known: set[str]) -> str:
    """The operator or layer, of those that are known, that another system calls by this word."""
    from ...framework.base.errors import spelled
    from ..builder.typed_names import elsewhere

    name = word.rpartition(".")[2]
    found = spelled(name, known)
    return found if found in known else elsewhere(name)


def rows(peer: str) -> Sequence[Row]:
    """The rows of a system, by the name of its module."""
    from ...framework.ir.registry import operator_types

    return _rows(peer, tuple(operator_types()))


@cache
def _rows(peer: str, types: tuple[str, ...]) -> tuple[Row, ...]:
    """The rows of a system; which name is which operator's follows from the types there are."""
    return tuple(import_module(f".{peer}", __package__).rows())


def search(word: str) -> list[Row]:
    """The rows of all systems whose name there is, or ends with, a word in any case.

    Names of which the word is only a part follow where nothing is called so.
    """
    every = [row for peer in PEERS for row in rows(peer)]
    letters = word.casefold()
    whole = re.compile(rf"(?<![\w-]){re.escape(letters)}(?![\w(-])")
    found = [row for row in every if whole.search(row.theirs.casefold())]
    return found or [row for row in every if letters in row.theirs.casefold()]


def called_elsewhere(ours: str) -> dict[str, list[str]]:
    """What other systems call a method of NetBuilder or an optimizer: peer -> names there."""
    names: dict[str, list[str]] = {}
    for peer, title in PEERS.items():
        for row in rows(peer):
            if {f"b.{ours}", f'"{ours}"'} & set(row.ours.split(", ")):
                names.setdefault(title, []).append(row.theirs)
    return names
