"""Configs of CNTK's old language: sections, arrays and variables, read beside what was written."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from opscope.cntk.config import ConfigParameters, parse_config

from ..inputs import Depth, WrongError
from .seeded import seeded

_WORDS = ("a", "deviceId", "modelPath", "x1", "b", "Train", "SGD", "lr", "minibatchSize", "k")


@dataclass
class _Section:
    """A section: its values by lower-case names, in the section around first."""

    around: _Section | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Any:
        """A value here or in a section around; None where there is none."""
        if name in self.values:
            return self.values[name]
        return None if self.around is None else self.around.find(name)

    def names(self) -> set[str]:
        """The names that can be found from here."""
        return {*self.values, *(self.around.names() if self.around else ())}


@dataclass
class _Grammar:
    rng: random.Random
    root: _Section = field(default_factory=_Section)

    def name(self) -> str:
        name = self.rng.choice(_WORDS)
        return self.rng.choice((name, name.lower(), name.upper()))

    def section(self, section: _Section, depth: int) -> str:
        """The text between the brackets of a section."""
        lines = []
        for _ in range(self.rng.randint(1, 5)):
            name = self.name()
            key = name.lower()
            if key in section.values:
                continue
            if depth and self.rng.random() < 0.35:
                inner = _Section(section)
                text = self.section(inner, depth - 1)
                section.values[key] = inner
                lines.append(f"{name}{self.equals()}[{self.rng.choice((' ', chr(10)))}{text} ]")
            else:
                text, section.values[key] = self.value()
                lines.append(f"{name}{self.equals()}{text}")
        comment = self.rng.choice(("", " # a comment"))
        return self.rng.choice((";", " ; ", f"{comment}\n")).join(lines) + "\n"

    def equals(self) -> str:
        return self.rng.choice(("=", " = "))

    def value(self) -> tuple[str, Any]:
        rng = self.rng
        match rng.randint(0, 5):
            case 0:
                number = rng.choice((0, 1, -1, 7, 256, rng.randint(-999, 999)))
                return str(number), number
            case 1:
                text = rng.choice(("0.5", "1e-3", "-2.25", ".5", "3."))
                return text, float(text)
            case 2:
                truth = rng.random() < 0.5
                return rng.choice(("true", "True") if truth else ("false", "False")), truth
            case 3:
                return self.array()
            case 4:
                # The first section that is read replaces variables, those of sections inside too.
                known = [name for name, value in self.root.values.items() if type(value) is str]
                if known:
                    name = rng.choice(known)
                    return f'"${name}$/x"', f"{self.root.values[name]}/x"
                return '"plain"', "plain"
            case _:
                text = rng.choice(("word", "two words", "a/b.c", "x,y", "(p)", "it is; so"))
                return f'"{text}"', text

    def array(self) -> tuple[str, list[str]]:
        """Items between colons, some of them repeated."""
        parts, items = [], []
        for _ in range(self.rng.randint(2, 4)):
            item, many = str(self.rng.randint(0, 99)), self.rng.choice((1, 1, 2, 3))
            parts.append(item if many == 1 else f"{item}*{many}")
            items += [item] * many
        return ":".join(parts), items


def _build(rng: random.Random) -> tuple[str, _Section]:
    grammar = _Grammar(rng)
    return grammar.section(grammar.root, 3), grammar.root


def _run(text: str, root: _Section | None) -> Depth:
    config = parse_config(text, "made.cntk")
    if root is None:
        return Depth.READ
    _compare(config, root)
    return Depth.RAN


def _compare(config: ConfigParameters, section: _Section) -> None:
    for name in section.names():
        wanted = section.find(name)
        if isinstance(wanted, _Section):
            if name in section.values:
                _compare(config.section(name), wanted)
            continue
        got: Any
        match wanted:
            case bool():
                got = config.bool(name)
            case int():
                got = config.int(name)
            case float():
                got = config.float(name)
            case list():
                got = config.array(name).strings()
            case _:
                got = config.string(name)
        if got != wanted or type(got) is not type(wanted):
            raise WrongError(f"{type(wanted).__name__} of a config", f"{name}: {got!r}, {wanted!r}")


GENERATORS = (seeded("CNTK configs", _build, _run, share=15),)
