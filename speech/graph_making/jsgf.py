"""Grammars in a subset of JSGF, as acceptors of words.

Read are rules with alternatives and their weights, groups, optional parts, `*` and `+`, names of
other rules and of <NULL>, tags (passed over), comments. Not read: imports, <VOID>, and rules that
contain themselves, since an acceptor has no memory of calls.

Source: W3C note "JSpeech Grammar Format", 2000.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.algorithms.strongly_connected import depth_first
from ...framework.base.errors import FormatError
from ...framework.base.untrusted.limits import check_limit
from ...framework.base.untrusted.values import shown
from ...kaldi.fst.fst import Fst

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\{(?:[^{}\\]|\\.)*\})
    |(?P<name><[^<>\s]+>)
    |"(?P<quoted>[^"\n]*)"
    |/(?P<weight>[0-9.eE+-]+)/
    |(?P<mark>[=;|*+()\[\]])
    |(?P<word>[^\s=;|*+<>()\[\]{}/"]+)""",
    re.VERBOSE | re.DOTALL,
)
_HEAD = re.compile(r"\ufeff?\s*#JSGF[^;\n]*;")
_NULL = "<NULL>"
_EVEN = math.log(2)
_BEGIN, _END = 0, 1
"""The states of a rule where it begins and ends."""

Label = Callable[[str, str], int]
"""The label of a word at a place of the text; raises FormatError where there is none."""
Arc = tuple[int, int, float, int]
"""Source, label, weight, target."""


@dataclass
class _Token:
    kind: str
    text: str
    line: int


@dataclass
class _Group:
    """A part in parentheses or brackets, or a whole rule: alternatives from one state to another.

    Attributes:
        begin, end: its states. closing: the mark that ends it. ways: first and last state and
            weight of each alternative so far.
        first, here: of the alternative at hand. weight: of it. item: the first and last state of
            the last part, which can be repeated, and the number of the arc that leads into it.
    """

    begin: int
    end: int
    closing: str
    first: int
    here: int
    ways: list[tuple[int, int, float]] = field(default_factory=list)
    weight: float = 1.0
    item: tuple[int, int, int] | None = None


def read_jsgf(text: str, name: str, label_of: Label) -> Fst:
    """The acceptor of all sentences of the public rules, or of the first rule if none is public.

    Alternatives without weights are equally likely, as are another repetition and none.

    Args:
        name: of the text, for messages. label_of: the label of a word.

    Raises:
        FormatError: the text is something else, names a rule that there is not, or a rule contains
            itself; with file and line.
    """
    rules, roots = _rules(text, name)
    number = {rule: at for at, rule in enumerate(rules)}
    uses = [
        [_number(token, number, name) for token in tokens if _is_use(token)]
        for tokens in rules.values()
    ]
    order = depth_first(uses, range(len(rules)))
    if order is None:
        raise FormatError(f"{name}: a rule contains itself, which an acceptor cannot do")
    names = list(rules)
    made: dict[str, _Rule] = {}
    for at in order:
        made[names[at]] = _Rule(name, label_of, made).read(rules[names[at]])
    top = _Rule(name, label_of, made)
    for rule in roots:
        top.include(made[rule], _BEGIN, _END, math.log(len(roots)))
    return top.fst()


def _is_use(token: _Token) -> bool:
    return token.kind == "name" and token.text != _NULL


def _number(token: _Token, known: dict[str, int], name: str) -> int:
    if token.text not in known:
        raise FormatError(f"{name}: line {token.line}: there is no rule {shown(token.text)}")
    return known[token.text]


def _tokens(text: str, name: str) -> Iterator[_Token]:
    head = _HEAD.match(text)
    at = head.end() if head else 0
    line = 1 + text.count("\n", 0, at)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise FormatError(f"{name}: line {line}: {shown(text[at : at + 20])} cannot be read")
        kind = match.lastgroup or ""
        if kind != "space":
            yield _Token(kind, match[kind], line)
        line += match[0].count("\n")
        at = match.end()


def _rules(text: str, name: str) -> tuple[dict[str, list[_Token]], list[str]]:
    """The tokens of each rule, without its name and `=`, and which rules are sentences."""
    rules: dict[str, list[_Token]] = {}
    public: list[str] = []
    statement: list[_Token] = []
    for token in _tokens(text, name):
        if (token.kind, token.text) != ("mark", ";"):
            statement.append(token)
            continue
        is_public = bool(statement) and statement[0].text == "public"
        words = statement[is_public:]
        statement = []
        if words and (words[0].kind, words[0].text) == ("word", "grammar"):
            continue
        texts = [word.text for word in words[:2]]
        if len(words) < 2 or words[0].kind != "name" or texts[1] != "=" or texts[0] == _NULL:
            raise FormatError(f"{name}: line {token.line}: a rule, <name> = ...;, was expected")
        if texts[0] in rules:
            raise FormatError(f"{name}: line {words[0].line}: the rule {texts[0]} comes twice")
        rules[texts[0]] = [*words[2:], token]
        if is_public:
            public.append(texts[0])
    if statement:
        raise FormatError(f"{name}: line {statement[0].line}: no ';' ends what begins here")
    if not rules:
        raise FormatError(f"{name}: there is no rule in it")
    return rules, public or list(rules)[:1]


class _Rule:
    """The arcs of a rule, from state 0 to state 1."""

    def __init__(self, name: str, label_of: Label, rules: dict[str, _Rule]) -> None:
        self._name = name
        self._label_of = label_of
        self._rules = rules
        self.states = 2
        self.arcs: list[Arc] = []

    def _new(self) -> int:
        self.states += 1
        check_limit("graph", self.states, f"{self._name}: the states of the grammar")
        return self.states - 1

    def _arc(self, source: int, target: int, weight: float = 0.0, label: int = 0) -> None:
        self.arcs.append((source, label, weight, target))

    def include(self, other: _Rule, begin: int, end: int, weight: float = 0.0) -> None:
        """Put another rule between two states."""
        base = self.states
        self.states += other.states
        check_limit("graph", self.states, f"{self._name}: the states of the grammar")
        self.arcs += [(base + s, label, w, base + t) for s, label, w, t in other.arcs]
        self._arc(begin, base + _BEGIN, weight)
        self._arc(base + _END, end)

    def read(self, tokens: list[_Token]) -> _Rule:
        """Read what stands between `=` and `;`, both marks of the end included."""
        groups = [self._group(_BEGIN, _END, ";")]
        for token in tokens:
            group = groups[-1]
            mark = token.text if token.kind == "mark" else ""
            if mark in ("(", "["):
                begin, end = self._new(), self._new()
                groups.append(self._group(begin, end, ")" if mark == "(" else "]"))
            elif mark and mark == group.closing:
                self._close(group, token)
                groups.pop()
                if groups:
                    self._append(groups[-1], group.begin, group.end)
            elif mark == "|":
                self._end_way(group, token)
            elif mark in ("*", "+"):
                self._repeat(group, mark, token)
            elif mark:
                raise self._error(token, f"{mark} was not expected here")
            elif token.kind == "weight":
                group.weight = self._weight(group, token)
            else:
                self._atom(group, token)
        return self

    def _error(self, token: _Token, message: str) -> FormatError:
        return FormatError(f"{self._name}: line {token.line}: {message}")

    def _group(self, begin: int, end: int, closing: str) -> _Group:
        first = self._new()
        return _Group(begin, end, closing, first, first)

    def _weight(self, group: _Group, token: _Token) -> float:
        try:
            weight = float(token.text)
        except ValueError:
            weight = math.nan
        if not 0 < weight < math.inf or group.here != group.first:
            raise self._error(token, "a weight, above 0, stands before its alternative")
        return weight

    def _append(self, group: _Group, begin: int, end: int) -> None:
        self._arc(group.here, begin)
        group.here = end
        group.item = begin, end, len(self.arcs) - 1

    def _atom(self, group: _Group, token: _Token) -> None:
        begin, end = self._new(), self._new()
        if token.text == _NULL and token.kind == "name":
            self._arc(begin, end)
        elif token.kind == "name":
            self.include(self._rules[token.text], begin, end)
        else:
            here = begin
            for word in token.text.split():
                after = self._new()
                place = f"{self._name}: line {token.line}"
                self._arc(here, after, label=self._label_of(word, place))
                here = after
            self._arc(here, end)
        self._append(group, begin, end)

    def _repeat(self, group: _Group, mark: str, token: _Token) -> None:
        if group.item is None:
            raise self._error(token, f"nothing stands before {mark}")
        begin, end, entry = group.item
        after = self._new()
        self._arc(end, begin, _EVEN)
        self._arc(end, after, _EVEN)
        if mark == "*":
            source, label, weight, _ = self.arcs[entry]
            self.arcs[entry] = source, label, weight + _EVEN, begin
            self._arc(source, after, _EVEN)
        group.here = after
        group.item = None

    def _end_way(self, group: _Group, token: _Token) -> None:
        if group.here == group.first:
            raise self._error(token, "an alternative is empty")
        group.ways.append((group.first, group.here, group.weight))
        group.first = group.here = self._new()
        group.weight, group.item = 1.0, None

    def _close(self, group: _Group, token: _Token) -> None:
        self._end_way(group, token)
        total = sum(weight for _, _, weight in group.ways)
        optional = _EVEN if group.closing == "]" else 0.0
        for first, last, weight in group.ways:
            self._arc(group.begin, first, optional - math.log(weight / total))
            self._arc(last, group.end)
        if optional:
            self._arc(group.begin, group.end, optional)

    def fst(self) -> Fst:
        """The arcs as an acceptor, with epsilons."""
        source, label, weight, target = (np.array(each) for each in zip(*self.arcs, strict=True))
        final = np.full(self.states, np.inf, np.float32)
        final[_END] = 0
        return Fst.of_arcs(source, label, weight, target, final)
