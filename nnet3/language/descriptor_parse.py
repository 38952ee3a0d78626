"""Reading descriptors: the general grammar, its normalization, and the three-level result.

The general grammar nests all operators freely; `GeneralDescriptor.normalize` moves Append to the
top, then Sum, Failover and IfDefined, then the rest, and Scale to the node names, as far as that
is possible (Kaldi's nnet-descriptor.cc, class GeneralDescriptor). Text of the restricted grammar is
a special case: it normalizes to itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, nearest
from .descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    Descriptor,
    ForwardingDescriptor,
    OffsetForwardingDescriptor,
    OptionalSumDescriptor,
    ReplaceIndexForwardingDescriptor,
    RoundingForwardingDescriptor,
    SimpleForwardingDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
    SwitchingForwardingDescriptor,
    format_scale,
)
from .forms import FORMS

_TOKEN = re.compile(r"[ \t]*([(),]|[^ \t(),]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_NUMBER = re.compile(r"[-+]?(\d+(?:\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z")
_INTEGER = re.compile(r"[-+]?[0-9]{1,11}\Z")
_MAX_DEPTH = 100
_MAX_TERMS = 100_000
_INT32 = 1 << 31

_SUMS = ("Sum", "Failover", "IfDefined")


@dataclass
class GeneralDescriptor:
    """An expression of the general grammar: `op` is an operator, or "" for a node name."""

    op: str
    children: list[GeneralDescriptor] = field(default_factory=list)
    values: tuple[Any, ...] = ()  # numbers and names, by the operator

    def __str__(self) -> str:
        if not self.op:
            return str(self.values[0])
        values = [format_scale(v) if isinstance(v, float) else str(v) for v in self.values]
        if self.op == "Offset" and values[1] == "0":
            values.pop()
        inner = [str(child) for child in self.children]
        if self.op in ("Scale", "Const"):
            return f"{self.op}({', '.join(values + inner)})"
        return f"{self.op}({', '.join(inner + values)})"

    def normalize(self) -> GeneralDescriptor:
        """An equal expression that fits the restricted grammar as far as the rules lead."""
        terms = [_normalized(term) for term in _append_terms(self)]
        return terms[0] if len(terms) == 1 else GeneralDescriptor("Append", terms)

    def to_descriptor(self) -> Descriptor:
        """The three-level descriptor; FormatError where the expression cannot be normalized."""
        normal = self.normalize()
        parts = normal.children if normal.op == "Append" else [normal]
        descriptor = Descriptor(tuple(_to_sum(part) for part in parts))
        for part in descriptor.parts:
            part.scales()
            part.constant()
        return descriptor


def parse_descriptor(text: str, node_names: Collection[str] | None = None) -> Descriptor:
    """The descriptor that a config's `input=` holds.

    Args:
        text: an expression of the general grammar.
        node_names: the nodes that may be named; None: any.

    Raises:
        FormatError: no descriptor, an unknown node, or a nesting that has no restricted form.
    """
    return parse_general(text, node_names).to_descriptor()


def parse_general(text: str, node_names: Collection[str] | None = None) -> GeneralDescriptor:
    """The expression as it is written; see `parse_descriptor`."""
    parser = _Parser(text, node_names)
    descriptor = parser.descriptor(0)
    if parser.token:
        parser.fail(f"expected the end, got '{parser.token}'")
    return descriptor


class _Parser:
    def __init__(self, text: str, node_names: Collection[str] | None):
        self.text = text
        self.node_names = node_names
        self.position = 0
        self.column = 0
        self.next()

    def fail(self, what: str) -> None:
        shown = self.text if len(self.text) <= 200 else self.text[:200] + "..."
        raise FormatError(f"descriptor '{shown}', column {self.column + 1}: {what}")

    def next(self) -> None:
        """Moves on to the next token; the empty string at the end."""
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            self.token = ""
            self.column = len(self.text)
            return
        self.token = match[1]
        self.column = match.start(1)
        self.position = match.end()
        if self.token not in "()," and not (_NAME.match(self.token) or _NUMBER.match(self.token)):
            self.fail(f"'{self.token}' is neither a name nor a number")

    def expect(self, token: str, op: str) -> None:
        if self.token != token:
            comma = "',' or " if token == ")" and "*" in FORMS[op].letters else ""
            self.fail(f"{op}: expected {comma}'{token}', got '{self.token or 'the end'}'")
        self.next()

    def descriptor(self, depth: int) -> GeneralDescriptor:
        if depth > _MAX_DEPTH:
            self.fail(f"nested deeper than {_MAX_DEPTH}")
        op = self.token
        if op not in FORMS:
            return self.node()
        self.next()
        self.expect("(", op)
        result = GeneralDescriptor(op)
        values: list[float | int | str] = []
        letters = FORMS[op].letters
        optional = False
        for i, letter in enumerate(letters):
            if letter == "?":
                optional = True
                continue
            if letter == "*":
                while self.token == ",":
                    self.next()
                    result.children.append(self.descriptor(depth + 1))
                continue
            if optional and self.token != ",":
                values.append(0)
                continue
            if i:
                self.expect(",", op)
            if letter == "d":
                result.children.append(self.descriptor(depth + 1))
            else:
                values.append(self.value(letter, op))
        self.expect(")", op)
        result.values = tuple(values)
        return result

    def node(self) -> GeneralDescriptor:
        name = self.token
        if not _NAME.match(name):
            self.fail(f"expected a descriptor, got '{name or 'the end'}'")
        if self.node_names is not None and name not in self.node_names:
            self.fail(f"there is no node '{name}'{self.nearest_node(name)}")
        self.next()
        return GeneralDescriptor("", values=(name,))

    def nearest_node(self, name: str) -> str:
        """A hint to the node that was meant by `name`."""
        names = self.node_names or ()
        fed = name.removesuffix("_input")
        if fed != name and fed in names:
            return (
                f" (did you mean {fed}? '{name}' is what it reads, and no descriptor may name it)"
            )
        return nearest(name, names)

    def value(self, letter: str, op: str) -> float | int | str:
        token = self.token
        if letter == "v":
            if token not in ("t", "x"):
                self.fail(f"{op}: expected 't' or 'x', got '{token or 'the end'}'")
            self.next()
            return token
        if letter == "f":
            with np.errstate(over="ignore"):
                number = np.float32(token) if _NUMBER.match(token) else np.float32("inf")
            if not np.isfinite(number):
                self.fail(f"{op}: expected a finite number, got '{token or 'the end'}'")
            self.next()
            return float(number)
        if not _INTEGER.match(token):
            self.fail(f"{op}: expected an integer, got '{token or 'the end'}'")
        number = int(token)
        if not -_INT32 < number < _INT32:
            self.fail(f"{op}: {number} does not fit into 32 bits")
        if letter == "p" and number <= 0:
            self.fail(f"{op}: expected a positive integer, got '{token}'")
        self.next()
        return number


def _append_terms(d: GeneralDescriptor) -> list[GeneralDescriptor]:
    """The terms of `d` when Append is moved to the top."""
    if d.op == "Append":
        return [term for child in d.children for term in _append_terms(child)]
    if not d.children:
        return [d]
    columns = [_append_terms(child) for child in d.children]
    counts = [len(column) for column in columns]
    if len(set(counts)) != 1:
        raise FormatError(
            f"descriptor '{d}': its arguments append different numbers of terms:"
            f" {', '.join(map(str, counts))}"
        )
    if counts[0] * len(columns) > _MAX_TERMS:
        raise FormatError(f"descriptor '{d}': more than {_MAX_TERMS} terms")
    return [GeneralDescriptor(d.op, list(row), d.values) for row in zip(*columns, strict=True)]


def _normalized(d: GeneralDescriptor) -> GeneralDescriptor:
    """`d`, which holds no Append, with sums outermost and scales innermost."""
    while True:
        changed = _RULES[d.op](d) if d.op in _RULES else None
        if changed is None:
            break
        d = changed
    children = [_normalized(child) for child in d.children]
    if [id(c) for c in children] == [id(c) for c in d.children]:
        return d
    result = GeneralDescriptor(d.op, children, d.values)
    again = _RULES[d.op](result) if d.op in _RULES else None
    return result if again is None else _normalized(again)


def _offset(d: GeneralDescriptor) -> GeneralDescriptor | None:
    """Offset(Offset(a, i), j) = Offset(a, i + j); Offset(a, 0) = a; sums move outwards."""
    child = d.children[0]
    if child.op == "Offset":
        t, x = (a + b for a, b in zip(d.values, child.values, strict=True))
        return GeneralDescriptor("Offset", child.children, (t, x))
    if d.values == (0, 0):
        return child
    return _sum_out(d)


def _sum_out(d: GeneralDescriptor) -> GeneralDescriptor | None:
    """Op(Sum(a, b), ...) = Sum(Op(a, ...), Op(b, ...)), also for Failover and IfDefined."""
    child = d.children[0]
    if child.op not in _SUMS:
        return None
    if d.op == "Switch" and len(d.children) > 1:
        raise FormatError(f"descriptor '{d}': {child.op} inside Switch has no normal form")
    moved = [GeneralDescriptor(d.op, [grandchild], d.values) for grandchild in child.children]
    return GeneralDescriptor(child.op, moved)


def _sum(d: GeneralDescriptor) -> GeneralDescriptor | None:
    """Sum(a) = a; Sum(a, b, c) = Sum(a, Sum(b, c))."""
    if len(d.children) == 1:
        return d.children[0]
    if len(d.children) > 2:
        if len(d.children) > _MAX_DEPTH:
            raise FormatError(f"Sum of {len(d.children)} terms; at most {_MAX_DEPTH} are possible")
        rest = GeneralDescriptor("Sum", d.children[1:])
        return GeneralDescriptor("Sum", [d.children[0], rest])
    return None


def _scale(d: GeneralDescriptor) -> GeneralDescriptor | None:
    """Scale moves inwards through Offset, ReplaceIndex, Round and Sum; scales multiply."""
    child = d.children[0]
    if child.op in ("Offset", "ReplaceIndex", "Round"):
        return GeneralDescriptor(
            child.op, [GeneralDescriptor("Scale", child.children, d.values)], child.values
        )
    if child.op == "Sum":
        return GeneralDescriptor(
            "Sum", [GeneralDescriptor("Scale", [term], d.values) for term in child.children]
        )
    if child.op == "Scale":
        with np.errstate(over="ignore"):
            product = float(np.float32(d.values[0]) * np.float32(child.values[0]))
        if not np.isfinite(product):
            raise FormatError(f"descriptor '{d}': the product of the scales overflows")
        return GeneralDescriptor("Scale", child.children, (product,))
    if child.op:
        raise FormatError(
            f"descriptor '{d}': Scale of {child.op} has no normal form; write Scale further inside"
        )
    return None


_RULES = {
    "Offset": _offset,
    "Switch": _sum_out,
    "Round": _sum_out,
    "ReplaceIndex": _sum_out,
    "Sum": _sum,
    "Scale": _scale,
}


def _to_sum(d: GeneralDescriptor) -> SumDescriptor:
    if d.op in ("Sum", "Failover"):
        return BinarySumDescriptor(d.op, _to_sum(d.children[0]), _to_sum(d.children[1]))
    if d.op == "IfDefined":
        return OptionalSumDescriptor(_to_sum(d.children[0]))
    if d.op == "Const":
        return ConstantSumDescriptor(d.values[0], d.values[1])
    return SimpleSumDescriptor(_to_forwarding(d))


def _to_forwarding(d: GeneralDescriptor) -> ForwardingDescriptor:
    if not d.op:
        return SimpleForwardingDescriptor(d.values[0])
    if d.op == "Scale" and not d.children[0].op:
        return SimpleForwardingDescriptor(d.children[0].values[0], d.values[0])
    if d.op == "Switch":
        return SwitchingForwardingDescriptor(tuple(_to_forwarding(c) for c in d.children))
    for op, form in (
        ("Offset", OffsetForwardingDescriptor),
        ("Round", RoundingForwardingDescriptor),
        ("ReplaceIndex", ReplaceIndexForwardingDescriptor),
    ):
        if d.op == op:
            return form(_to_forwarding(d.children[0]), *d.values)
    raise FormatError(f"descriptor '{d}': {d.op} stands too deep in the expression")
