"""Networks in NDL, in BrainScript, and edited by MEL, beside the same formulas in NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cntk_random_nets import batch
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import build_network
from opscope.cntk.mel import Session, parse_mel, run_script
from opscope.cntk.ndl import Evaluator, parse_ndl
from opscope.cntk.network.network import Network
from opscope.cntk.run.runtime import CntkNet

from ..inputs import Depth, Generator, WrongError
from .seeded import seeded

Values = Mapping[str, np.ndarray]
Meaning = Callable[[Values], np.ndarray]
_LENGTHS = (3, 2)
_ROWS = sum(_LENGTHS)
_INPUTS = {"x": 3, "y": 3, "z": 2}


def _softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "Tanh": np.tanh,
    "RectifiedLinear": lambda a: np.maximum(a, 0),
    "Cosine": np.cos,
    "Sin": np.sin,
    "Softmax": _softmax,
    "LogSoftmax": lambda a: np.log(_softmax(a)),
    "Negate": np.negative,
    "Abs": np.abs,
}
_NDL_UNARY = tuple(name for name in _UNARY if name != "Sin")
_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Plus": np.add,
    "Minus": np.subtract,
    "ElementTimes": np.multiply,
}
_SIGNS = {"Plus": "+", "Minus": "-", "ElementTimes": ".*"}


@dataclass
class _Language:
    """How the parts of a network are written.

    Attributes:
        brainscript: or NDL.
    """

    brainscript: bool
    rng: random.Random

    def input(self, dim: int) -> str:
        return f"Input {{{dim}}}" if self.brainscript else f"Input({dim})"

    def parameter(self, rows: int, columns: int) -> str:
        if self.brainscript:
            return f'ParameterTensor {{({rows} : {columns}), init = "fixedValue"}}'
        return f"Parameter({rows}, {columns}, init=fixedValue)"

    def call(self, name: str, *parts: str) -> str:
        if self.brainscript and name in _SIGNS and self.rng.random() < 0.5:
            return f"({parts[0]} {_SIGNS[name]} {parts[1]})"
        if self.brainscript and name == "Negate" and self.rng.random() < 0.5:
            return f"(-{parts[0]})"
        return f"{name} ({', '.join(parts)})" if self.brainscript else f"{name}({', '.join(parts)})"

    def macro(self, name: str, arguments: list[str], lines: list[str], last: str) -> str:
        body = " ; ".join(lines)
        if self.brainscript:
            return f"{name} ({', '.join(arguments)}) = {{ {body} }}.{last}"
        open_, close = self.rng.choice(("[]", "{}"))
        return f"{name}({', '.join(arguments)}) {self.rng.choice(('', '= '))}{open_} {body} {close}"


@dataclass
class _Grammar:
    rng: random.Random
    language: _Language
    dims: dict[str, int] = field(default_factory=lambda: dict(_INPUTS))
    means: dict[str, Meaning] = field(default_factory=dict)
    parameters: dict[str, tuple[int, int]] = field(default_factory=dict)
    macros: list[tuple[str, int, Meaning]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def some(self, dim: int = 0) -> str:
        return self.rng.choice([n for n, d in self.dims.items() if not dim or d == dim])

    def add(self, text: str, dim: int, mean: Meaning) -> None:
        name = f"n{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.dims[name], self.means[name] = dim, mean

    def parameter(self, rows: int, columns: int) -> str:
        name = f"W{len(self.lines)}"
        self.lines.append(f"{name} = {self.language.parameter(rows, columns)}")
        self.parameters[name] = rows, columns
        return name

    def grow(self) -> None:
        call, one = self.language.call, self.some()
        dim = self.dims[one]
        other = self.some(dim)
        match self.rng.randint(0, 8):
            case 0 | 1:
                name = self.rng.choice(list(_UNARY) if self.language.brainscript else _NDL_UNARY)
                self.add(call(name, one), dim, lambda v: _UNARY[name](v[one]))
            case 2 | 3:
                name = self.rng.choice(list(_BINARY))
                mean = lambda v: _BINARY[name](v[one], v[other])  # noqa: E731
                self.add(call(name, one, other), dim, mean)
            case 4:
                rows = self.rng.randint(1, 4)
                weights = self.parameter(rows, dim)
                mean = lambda v: v[one] @ v[weights].T  # noqa: E731
                self.add(call("Times", weights, one), rows, mean)
            case 5:
                bias = self.parameter(dim, 1)
                self.add(call("Plus", one, bias), dim, lambda v: v[one] + v[bias].T)
            case 6:
                begin = self.rng.randint(0, dim - 1)
                count = self.rng.randint(1, dim - begin)
                mean = lambda v: v[one][:, begin : begin + count]  # noqa: E731
                self.add(call("RowSlice", str(begin), str(count), one), count, mean)
            case 7:
                parts = [one, self.some()]
                given = [f"({parts[0]} : {parts[1]})"] if self.language.brainscript else parts
                dims = sum(self.dims[part] for part in parts)
                mean = lambda v: np.concatenate([v[part] for part in parts], 1)  # noqa: E731
                self.add(call("RowStack", *given), dims, mean)
            case _:
                self.use_macro(one, dim)

    def use_macro(self, one: str, dim: int) -> None:
        if not self.macros or self.rng.random() < 0.4:
            self.make_macro()
        name, count, mean = self.rng.choice(self.macros)
        given = [one, *(self.some(dim) for _ in range(count - 1))]
        text = self.language.call(name, *given)
        self.add(text, dim, lambda v: mean({f"a{i}": v[n] for i, n in enumerate(given)}))

    def make_macro(self) -> None:
        """A macro over one or two values of a dimension."""
        name, count = f"M{len(self.macros)}", self.rng.randint(1, 2)
        arguments = [f"a{number}" for number in range(count)]
        known, lines, steps = list(arguments), [], []
        for number in range(self.rng.randint(1, 3)):
            made, pair = f"t{number}", self.rng.random() < 0.5
            op = self.rng.choice(list(_BINARY) if pair else ["Tanh", "Sigmoid", "Negate"])
            parts = [self.rng.choice(known) for _ in range(1 + pair)]
            lines.append(f"{made} = {self.language.call(op, *parts)}")
            steps.append((made, (_BINARY if pair else _UNARY)[op], parts))
            known.append(made)

        def mean(v: Values) -> np.ndarray:
            held = dict(v)
            for made, function, parts in steps:
                held[made] = function(*(held[part] for part in parts))
            return held[steps[-1][0]]

        self.lines.insert(0, self.language.macro(name, arguments, lines, steps[-1][0]))
        self.macros.append((name, count, mean))

    def values(self) -> dict[str, np.ndarray]:
        """What each node is, computed by NumPy."""
        values = inputs()
        values |= {name: parameter(name, shape) for name, shape in self.parameters.items()}
        for name, mean in self.means.items():
            values[name] = mean(values)
        return values


def parameter(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of a parameter: by its name alone."""
    return np.random.default_rng(len(name) + sum(map(ord, name))).uniform(-1, 1, shape)


def inputs() -> dict[str, np.ndarray]:
    """The rows of the inputs."""
    return {name: parameter(name, (_ROWS, dim)) for name, dim in _INPUTS.items()}


def _grown(rng: random.Random, *, brainscript: bool) -> _Grammar:
    grammar = _Grammar(rng, _Language(brainscript, rng))
    for _ in range(rng.randint(1, 6)):
        grammar.grow()
    return grammar


def _build_ndl(rng: random.Random) -> tuple[str, _Grammar]:
    grammar = _grown(rng, brainscript=False)
    lines = [f"{name} = {grammar.language.input(dim)}" for name, dim in _INPUTS.items()]
    lines += grammar.lines
    if rng.random() < 0.3:  # names may be used before they are defined
        rng.shuffle(lines)
        lines.sort(key=lambda line: not line.startswith("M"))
    return f"[\n{rng.choice((chr(10), ' ; ')).join(lines)}\n]\n", grammar


def _build_brainscript(rng: random.Random) -> tuple[str, _Grammar]:
    grammar = _grown(rng, brainscript=True)
    lines = [f"{name} = {grammar.language.input(dim)}" for name, dim in _INPUTS.items()]
    lines += grammar.lines
    rng.shuffle(lines)
    return f"{{\n{rng.choice((chr(10), ' ; ')).join(lines)}\n}}\n", grammar


def _ndl(text: str) -> Network:
    network = Network()
    network.precision = "double"
    evaluator = Evaluator(network)
    evaluator.run(parse_ndl(Source("net.ndl", text).whole()))
    evaluator.connect()
    network.validate()
    evaluator.finish()
    return network


def _brainscript(text: str) -> Network:
    network = build_network(text, precision="double")
    network.validate()
    return network


def _run_ndl(text: str, grammar: _Grammar | None) -> Depth:
    return _compared("NDL", _ndl(text), grammar)


def _run_brainscript(text: str, grammar: _Grammar | None) -> Depth:
    return _compared("BrainScript", _brainscript(text), grammar)


def _compared(what: str, network: Network, grammar: _Grammar | None) -> Depth:
    if grammar is None:
        return Depth.READ
    compare(what, network, grammar.values(), {name: name for name in grammar.means})
    return Depth.RAN


def compare(what: str, network: Network, values: Values, names: Mapping[str, str]) -> None:
    """Run a network, and hold what nodes compute against values of other names.

    Args:
        names: of nodes -> of values; a node that is not there is not compared.
    """
    net = CntkNet(network)
    for name in net.parameters():
        net.set(name, values[names.get(name, name)])
    nodes = [name for name in names if name in network.nodes]
    rows = {name: value for name, value in inputs().items() if name in network.nodes}
    found = net.forward(batch(np.array(_LENGTHS), **rows), nodes)
    for name in nodes:
        got, wanted = found[name].data, values[names[name]]
        got = np.asarray(got).reshape(wanted.shape) if np.size(got) == wanted.size else got
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-9, atol=1e-9):
            raise WrongError(f"values of a network in {what}", f"{name}: {got} for {wanted}")


# Scripts of MEL over a network in NDL


def _make_mel(rng: random.Random) -> str:
    grammar = _grown(rng, brainscript=False)
    lines = [f"{name} = {grammar.language.input(dim)}" for name, dim in _INPUTS.items()]
    known, edits = list(grammar.dims), []
    for number in range(rng.randint(1, 4)):
        edits.append(_edit(rng, known, str(number)))
    return "\n".join([f"m = [ {' ; '.join([*lines, *grammar.lines])} ]", *edits]) + "\n"


def _edit(rng: random.Random, known: list[str], number: str) -> str:
    """A command about nodes that are there; `known` changes with them."""
    one, other = rng.choice(known), rng.choice(known)
    truth = rng.choice(("true", "false"))
    match rng.randint(0, 8):
        case 0:
            known[known.index(one)] = f"r{number}"
            return f"Rename(m.{one}, m.r{number})"
        case 1:
            known.append(f"c{number}")
            return f"CopyNode(m.{one}, m.c{number}, copy=all)"
        case 2:
            return f"CopySubTree(m.{one}, m, s{number}., copy={rng.choice(('all', 'value'))})"
        case 3:
            known.append(f"p{number}")
            return f"p{number} = {rng.choice(list(_BINARY))}({one}, {one})"
        case 4:
            known.append(f"p{number}")
            return f"p{number} = {rng.choice(_NDL_UNARY)}({one})"
        case 5 if one[0] in "ncp":
            return f"SetNodeInput(m.{one}, 0, m.{other})"
        case 6 if one[0] in "cp":
            known.remove(one)
            return f"DeleteNode(m.{one})"
        case 7:
            return f"SetPropertyForSubTree(m.{one}, needsGradient, {truth})"
        case _:
            return f"SetProperty(m.{one}, {rng.choice(('output', 'finalCriterion'))}, {truth})"


def _run_mel(text: str) -> Depth:
    session = Session()
    run_script(session, parse_mel(Source("e.mel", text).whole()))
    if session.default is None:
        return Depth.READ
    network = session.settle(session.default)
    network.validate()
    nodes = network.nodes.values()
    rows = {
        node.name: parameter(node.name, (_ROWS, *node.shape))
        for node in nodes
        if node.operation == "InputValue"
    }
    outputs = [node.name for node in nodes if node.inputs]
    if not outputs:
        return Depth.READ
    CntkNet(network).forward(batch(np.array(_LENGTHS), **rows), outputs)
    return Depth.RAN


GENERATORS = (
    seeded("NDL networks", _build_ndl, _run_ndl, share=3),
    seeded("BrainScript networks", _build_brainscript, _run_brainscript, share=2),
    Generator("MEL scripts", _make_mel, _run_mel, share=3),
)
