"""Descriptors of xconfig lines: layer names instead of nodes, and short forms.

Over nnet3's own descriptors, these know `[-2]` (the layer before the last, also `[-2].c_t`),
`layer@-3` (`Offset(layer, -3)`), and a bare number (`Offset([-1], number)`, or `[-1]` for 0).
Format: Kaldi's steps/libs/nnet3/xconfig/utils.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from ...framework.base.untrusted.limits import check_limit
from ..language.config import is_valid_name
from ..language.forms import FORMS

_BACK = re.compile(r"\[([^\[\]]*)\]\s*")
_TOKEN = re.compile(r"[(),@]|[^(),@\s]+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}\Z")
_DEEPEST = 50  # levels of brackets; nothing that nnet3 can normalize is near that

_SAME_DIM = ("Sum", "Switch", "Failover")


SHORT_FORMS = {
    "layer": ("lstm", "lstm.m_t", "The output of a layer, whatever its node is called."),
    "layer.output": (
        "lstm.c_t",
        "lstm.c_t",
        "Another output of a layer that has several, as c_t of an LSTM.",
    ),
    "[-n]": ("[-2]", "affine", "The layer so many lines before; also [-n].output."),
    "layer@frames": (
        "affine@-3",
        "Offset(affine, -3)",
        "Offset(layer, frames); also layer.output@frames. 0 is the layer itself.",
    ),
    "frames": ("-1", "Offset(lstm.m_t, -1)", "Offset([-1], frames); 0 is the layer itself."),
}
"""What these descriptors have besides `FORMS`: an example after an affine-layer `affine` and an
lstm-layer `lstm`, the nnet3 descriptor it stands for, and what it means."""


class InputError(Exception):
    """A descriptor that cannot be; its reader adds the place."""


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A descriptor with its layers looked up: config text and dimension."""

    text: str
    dim: int


Lookup = Callable[[str], Resolved]


def resolve(text: str, previous: Sequence[str], lookup: Lookup) -> Resolved:
    """The config text and the dimension of the xconfig descriptor `text`.

    Args:
        previous: names of the layers before this one, in their order.
        lookup: from a name (`layer` or `layer.output`) to its descriptor.

    Raises:
        InputError: it is no descriptor, a name is unknown, or dimensions do not fit.
        FormatError: it becomes longer than the limit `descriptor`.
    """
    written = 0

    def back(match: re.Match[str]) -> str:
        nonlocal written
        name = _back(match[1].strip(), previous)
        written += len(name)
        check_limit("descriptor", written, "input=")
        return name

    parser = _Parser(_BACK.sub(back, text), previous, lookup)
    result = parser.descriptor(0)
    if parser.position < len(parser.tokens):
        raise InputError(f"{parser.tokens[parser.position]!r} follows the end of input={text}")
    return result


def _back(number: str, previous: Sequence[str]) -> str:
    if not _INTEGER.match(number) or not -len(previous) <= int(number) < 0:
        raise InputError(f"[{number}] is none of the {len(previous)} layers before")
    return previous[int(number)]


class _Parser:
    def __init__(self, text: str, previous: Sequence[str], lookup: Lookup) -> None:
        self.tokens = _TOKEN.findall(text)
        self.position = 0
        self._text = text
        self._previous = previous
        self._lookup = lookup
        self._readers: dict[str, Callable[[int], Resolved]] = {
            "d": self.descriptor,
            "i": lambda depth: self._integer(),
            "p": lambda depth: self._integer(least=1),
            "f": lambda depth: self._number(),
            "v": lambda depth: self._index_name(),
        }

    def descriptor(self, depth: int) -> Resolved:
        """The descriptor that begins here."""
        if depth > _DEEPEST:
            raise InputError(f"more than {_DEEPEST} brackets inside each other")
        word = self._take("a descriptor")
        if word in FORMS:
            return self._form(word, depth)
        if _INTEGER.match(word):
            if not self._previous:
                raise InputError(f"{word}: there is no layer before this one")
            return _offset(self._lookup(self._previous[-1]), int(word))
        if not is_valid_name(word):
            raise InputError(f"expected a descriptor, not {word!r}, in {self._text!r}")
        resolved = self._lookup(word)
        if self._peek() == "@":
            self.position += 1
            resolved = _offset(resolved, int(self._integer().text))
        return resolved

    def _form(self, word: str, depth: int) -> Resolved:
        self._expect("(", word)
        items: list[Resolved] = []
        optional = False
        for letter in FORMS[word].letters:
            if letter == "?":
                optional = True
            elif letter == "*":
                while self._peek() == ",":
                    self.position += 1
                    items.append(self.descriptor(depth + 1))
            elif not optional or self._peek() == ",":
                if items:
                    self._expect(",", word)
                items.append(self._readers[letter](depth + 1))
        self._expect(")", word)
        check_limit("descriptor", sum(len(item.text) for item in items), f"{word}(...)")
        return Resolved(f"{word}({', '.join(item.text for item in items)})", _dim(word, items))

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _take(self, wanted: str) -> str:
        word = self._peek()
        if not word:
            raise InputError(f"expected {wanted} at the end of {self._text!r}")
        self.position += 1
        return word

    def _expect(self, token: str, word: str) -> None:
        actual = self._take(f"{token!r}")
        if actual != token:
            raise InputError(
                f"expected {token!r} in {word}(...), not {actual!r}, in {self._text!r}"
            )

    def _integer(self, least: int | None = None) -> Resolved:
        word = self._take("an integer")
        if not _INTEGER.match(word) or (least is not None and int(word) < least):
            wanted = "an integer" if least is None else f"an integer of at least {least}"
            raise InputError(f"expected {wanted}, not {word!r}, in {self._text!r}")
        return Resolved(str(int(word)), int(word))

    def _number(self) -> Resolved:
        word = self._take("a number")
        try:
            value = float(word)
        except ValueError:
            value = float("nan")
        if not abs(value) < float("inf"):
            raise InputError(f"expected a number, not {word!r}, in {self._text!r}")
        return Resolved(str(value), 0)

    def _index_name(self) -> Resolved:
        word = self._take("t or x")
        if word not in ("t", "x"):
            raise InputError(f"expected t or x, not {word!r}, in {self._text!r}")
        return Resolved(word, 0)


def _offset(resolved: Resolved, frames: int) -> Resolved:
    return Resolved(f"Offset({resolved.text}, {frames})", resolved.dim) if frames else resolved


def _dim(word: str, items: Sequence[Resolved]) -> int:
    if word == "Append":
        return sum(item.dim for item in items)
    if word in _SAME_DIM and any(item.dim != items[0].dim for item in items):
        dims = ", ".join(f"{item.text} has {item.dim}" for item in items)
        raise InputError(f"the parts of {word}(...) differ in dimension: {dims}")
    return items[1].dim if word in ("Scale", "Const") else items[0].dim
