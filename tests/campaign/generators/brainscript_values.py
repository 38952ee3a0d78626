"""Expressions of BrainScript, evaluated beside what their operators mean in Python."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opscope.cntk.brainscript.build import evaluate_text
from opscope.cntk.brainscript.values import Array, Record, force

from ..inputs import Depth, WrongError
from .seeded import seeded

Scope = dict[str, Any]
Meaning = Callable[[Scope], Any]
_LEVELS = {"**": 10, "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "==": 8, "!=": 8, "<": 8}
_LEVELS |= {">": 8, "<=": 8, ">=": 8, "&&": 7, "||": 6, "^": 6}
_WHOLE = 11  # binds tighter than any operator


def _power(a: Any, b: Any) -> Any:
    return np.float64(a) ** np.float64(b)  # as C's pow; `np.power` of arrays differs in last bits


_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: np.float64(a) + b,
    "-": lambda a, b: np.float64(a) - b,
    "*": lambda a, b: np.float64(a) * b,
    "/": lambda a, b: np.float64(a) / b,
    "%": lambda a, b: np.fmod(np.float64(a), b),
    "**": _power,
}
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
_TRUTH: dict[str, Callable[[Any, Any], Any]] = {
    "&&": lambda a, b: a and b,
    "||": lambda a, b: a or b,
    "^": lambda a, b: a != b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Sign": lambda a: 0 if a == 0 else -1 if a < 0 else 1,  # of NaN 1
    "Min": lambda a, b: a if a < b else b,
    "Max": lambda a, b: a if a > b else b,
}


@dataclass
class _Part:
    """An expression: its text, how tight it binds, and its meaning."""

    text: str
    level: int
    mean: Meaning

    def inside(self, level: int) -> str:
        """The text as an operand of an operator of a level."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass
class _Grammar:
    rng: random.Random
    names: dict[str, list[str]] = field(default_factory=lambda: {"n": [], "s": [], "b": []})
    functions: list[tuple[str, int, int]] = field(default_factory=list)
    made: int = 0

    def name(self, stem: str) -> str:
        self.made += 1
        return f"{stem}{self.made}"

    def part(self, kind: str, depth: int) -> _Part:
        """An expression of numbers n, strings s, or truth b."""
        draw = self.rng.random()
        if depth <= 0 or draw < 0.2:
            return self.leaf(kind)
        if draw < 0.32:
            test, one, other = self.part("b", depth - 1), *self._two(kind, depth)
            text = f"if {test.text} then {one.text} else {other.text}"
            mean = lambda s: one.mean(s) if test.mean(s) else other.mean(s)  # noqa: E731
            return _Part(text, 0, mean)
        return {"n": self.number, "s": self.string, "b": self.truth}[kind](depth)

    def _two(self, kind: str, depth: int) -> tuple[_Part, _Part]:
        return self.part(kind, depth - 1), self.part(kind, depth - 1)

    def leaf(self, kind: str) -> _Part:
        if self.names[kind] and self.rng.random() < 0.6:
            name = self.rng.choice(self.names[kind])
            return _Part(name, _WHOLE, lambda s: s[name])
        if kind == "n":
            number = self.rng.choice((0, 1, 2, 3, 7, 0.5, 2.25, 1e3))
            return _Part(str(number), _WHOLE, lambda s: np.float64(number))
        if kind == "b":
            truth = self.rng.random() < 0.5
            return _Part(str(truth).lower(), _WHOLE, lambda s: truth)
        text = "".join(self.rng.choice("ab c.-") for _ in range(self.rng.randint(0, 4)))
        return _Part(repr(text) if self.rng.random() < 0.5 else f'"{text}"', _WHOLE, lambda s: text)

    def infix(self, table: dict[str, Callable[[Any, Any], Any]], kind: str, depth: int) -> _Part:
        op = self.rng.choice(list(table))
        one, other = self._two(kind, depth)
        level = _LEVELS[op]
        text = f"{one.inside(level)} {op} {other.inside(level + 1)}"
        return _Part(text, level, lambda s: table[op](one.mean(s), other.mean(s)))

    def number(self, depth: int) -> _Part:
        match self.rng.randint(0, 8):
            case 0 | 1 | 2:
                return self.infix(_NUMBERS, "n", depth)
            case 3:
                one = self.part("n", depth - 1)
                return _Part(f"-{one.inside(_WHOLE)}", _WHOLE - 1, lambda s: -one.mean(s))
            case 4:
                name = self.rng.choice(list(_FUNCTIONS))
                parts = [self.part("n", depth - 1) for _ in range(1 + (name in ("Min", "Max")))]
                text = f"{name} ({', '.join(part.text for part in parts)})"
                return _Part(
                    text,
                    _WHOLE,
                    lambda s: np.float64(_FUNCTIONS[name](*(p.mean(s) for p in parts))),
                )
            case 5:
                return self.array(depth)
            case 6 if self.functions:
                return self.call(depth)
            case 7:
                return self.record(depth)
            case _:
                text = self.part("s", depth - 1)
                return _Part(
                    f"Length ({text.text})", _WHOLE, lambda s: np.float64(len(text.mean(s)))
                )

    def array(self, depth: int) -> _Part:
        """An element of an array over a range."""
        index, low = self.name("i"), self.rng.randint(-2, 3)
        high, at = low + self.rng.randint(0, 4), 0
        at = self.rng.randint(low, high)
        self.names["n"].append(index)
        body = self.part("n", depth - 1)
        self.names["n"].remove(index)
        text = f"(array [{low}..{high}] ({index} => {body.text}))[{at}]"
        return _Part(text, _WHOLE, lambda s: body.mean({**s, index: np.float64(at)}))

    def record(self, depth: int) -> _Part:
        """A member of a record, whose members see each other and what is around."""
        one, two = self.name("m"), self.name("m")
        first = self.part("n", depth - 1)
        self.names["n"].append(one)
        second = self.part("n", depth - 1)
        self.names["n"].remove(one)
        members = [f"{one} = {first.text}", f"{two} = {second.text}"]
        self.rng.shuffle(members)
        open_, close = self.rng.choice(("[]", "{}"))
        text = f"{open_} {' ; '.join(members)} {close}.{two}"
        return _Part(text, _WHOLE, lambda s: second.mean({**s, one: first.mean(s)}))

    def call(self, depth: int) -> _Part:
        name, count, optional = self.rng.choice(self.functions)
        parts = [self.part("n", depth - 1) for _ in range(count)]
        given = [part.text for part in parts]
        named = self.part("n", depth - 1) if optional and self.rng.random() < 0.5 else None
        if named is not None:
            given.append(f"k = {named.text}")
        text = f"{name} ({', '.join(given)})"

        def mean(s: Scope) -> Any:
            return s[name](*(p.mean(s) for p in parts), None if named is None else named.mean(s))

        return _Part(text, _WHOLE, mean)

    def string(self, depth: int) -> _Part:
        one, other = self._two("s", depth)
        if self.rng.random() < 0.6:
            text = f"{one.inside(9)} + {other.inside(10)}"
            return _Part(text, 9, lambda s: one.mean(s) + other.mean(s))
        text = f"Replace ({one.text}, 'a', {other.text})"
        return _Part(text, _WHOLE, lambda s: one.mean(s).replace("a", other.mean(s)))

    def truth(self, depth: int) -> _Part:
        match self.rng.randint(0, 3):
            case 0:
                return self.infix(_COMPARED, "n", depth)
            case 1:
                return self.infix(_COMPARED, "s", depth)
            case 2:
                return self.infix(_TRUTH, "b", depth)
            case _:
                one = self.part("b", depth - 1)
                return _Part(f"!{one.inside(_WHOLE)}", _WHOLE - 1, lambda s: not one.mean(s))

    def program(self) -> tuple[str, Meaning]:
        """A record of definitions in any order, with the result in `r`."""
        lines, steps = [], []
        for _ in range(self.rng.randint(0, 4)):
            line, step = self.function() if self.rng.random() < 0.3 else self.definition()
            lines.append(line)
            steps.append(step)
        result = self.part(self.rng.choice("nnsb"), 3)
        lines.append(f"r = {result.text}")
        self.rng.shuffle(lines)
        text = f"[\n{self.rng.choice((chr(10), ' ; ')).join(lines)}\n].r\n"

        def mean(_: Scope) -> Any:
            scope: Scope = {}
            for step in steps:
                step(scope)
            return result.mean(scope)

        return text, mean

    def definition(self) -> tuple[str, Callable[[Scope], None]]:
        kind = self.rng.choice("nsb")
        part, name = self.part(kind, 2), self.name(kind)
        self.names[kind].append(name)
        return f"{name} = {part.text}", lambda s: s.update({name: part.mean(s)})

    def function(self) -> tuple[str, Callable[[Scope], None]]:
        name, count = self.name("f"), self.rng.randint(1, 2)
        arguments = [self.name("x") for _ in range(count)]
        optional = self.rng.random() < 0.4
        default = self.part("n", 1)
        inner = [*arguments, *(["k"] if optional else ())]
        self.names["n"] += inner
        body = self.part("n", 2)
        self.names["n"] = [each for each in self.names["n"] if each not in inner]
        self.functions.append((name, count, optional))
        shown = [*arguments, *([f"k = {default.text}"] if optional else ())]

        def step(s: Scope) -> None:
            def called(*values: Any) -> Any:
                k = values[-1]
                if optional and k is None:
                    k = default.mean(s)
                return body.mean({**s, **dict(zip(arguments, values, strict=False)), "k": k})

            s[name] = called

        return f"{name} ({', '.join(shown)}) = {body.text}", step


def _build(rng: random.Random) -> tuple[str, Meaning]:
    return _Grammar(rng).program()


def _run(text: str, meaning: Meaning | None) -> Depth:
    got = force(evaluate_text(text))
    if meaning is None or isinstance(got, Array | Record):
        return Depth.READ
    with np.errstate(all="ignore"):
        wanted = meaning({})
    if isinstance(wanted, np.bool_):
        wanted = bool(wanted)
    if isinstance(wanted, np.floating):
        same = isinstance(got, float) and (
            got == wanted or (math.isnan(got) and math.isnan(wanted))
        )
    else:
        same = type(got) is type(wanted) and got == wanted
    if not same:
        raise WrongError("value of BrainScript", f"{got!r} for {wanted!r}")
    return Depth.RAN


GENERATORS = (seeded("BrainScript values", _build, _run, share=10),)
