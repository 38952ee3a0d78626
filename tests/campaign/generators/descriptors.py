"""Descriptors of nnet3: parsed, and compiled into computations, beside what the document says."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opscope.nnet3.graph.graph import NotComputableError
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.language.descriptor import Descriptor
from opscope.nnet3.language.descriptor_parse import parse_descriptor
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import OptimizeOptions, compile_optimized
from opscope.nnet3.run.computer import NnetComputer

from ..inputs import Depth, Generator, WrongError
from .descriptor_meaning import Expression, parse

DIMS = {"a": 2, "b": 2, "c": 3}
GIVEN = {"a": (range(-3, 6), range(1)), "b": (range(4), range(2)), "c": (range(-6, 9), range(1))}
"""The rows of the nodes that are there: times, and values of x."""


_PLACES = ((-7, 0), (-2, 0), (-1, 1), (0, 0), (1, 1), (2, 0), (3, 0), (5, 0))
_NODES = {name: number for number, name in enumerate(DIMS)}


@dataclass
class Grammar:
    """Makes descriptors, most of them of the restricted grammar.

    Args:
        dims: columns of the nodes that may be read. free: how likely a form of the general grammar
            stands where the restricted one has none. x: whether x differs from 0 in places.
    """

    rng: random.Random
    dims: Mapping[str, int]
    free: float = 0.05
    x: bool = True
    scales: dict[str, float] = field(default_factory=dict)

    def descriptor(self, parts: int = 3) -> str:
        count = self.rng.randint(1, parts)
        made = [self.sum(self.rng.choice([*self.dims.values()])) for _ in range(count)]
        text = made[0] if count == 1 else f"Append({', '.join(made)})"
        return self.around(text)

    def around(self, text: str) -> str:
        """A text of the general grammar around another, now and then."""
        if self.rng.random() >= self.free:
            return text
        t = self.rng.randint(-2, 2)
        forms = [f"Offset({text}, {t})", f"Scale(0.5, {text})", f"Round({text}, 2)"]
        forms.append(f"ReplaceIndex({text}, t, {t})")
        if "Append" not in text:  # Kaldi takes Append outwards, so that each part is optional
            forms.append(f"IfDefined({text})")
        return self.rng.choice(forms)

    def sum(self, dim: int, depth: int = 0, *, constant: bool = True) -> str:
        draw = self.rng.random() + 0.15 * depth
        if draw < 0.15:
            parts = [self.sum(dim, depth + 1, constant=constant) for _ in range(2)]
            text = f"Sum({', '.join(parts)})"
        elif draw < 0.3:
            parts = [self.sum(dim, depth + 1, constant=False) for _ in range(2)]
            text = f"Failover({', '.join(parts)})"
        elif draw < 0.45:
            text = f"IfDefined({self.sum(dim, depth + 1, constant=False)})"
        elif draw < 0.5 and constant:
            text = f"Const({self.rng.choice((0.5, -2, 1))}, {dim})"
        else:
            text = self.forwarded(dim)
        return self.around(text)

    def forwarded(self, dim: int, depth: int = 0) -> str:
        draw = self.rng.random() + 0.1 * depth
        if draw < 0.4:
            x = self.rng.choice(("", "", "", ", 0", ", 1", ", -1")) if self.x else ""
            return f"Offset({self.forwarded(dim, depth + 1)}, {self.rng.randint(-4, 4)}{x})"
        if draw < 0.5:
            count = self.rng.randint(2, 3)
            return f"Switch({', '.join(self.forwarded(dim, depth + 1) for _ in range(count))})"
        if draw < 0.6:
            return f"Round({self.forwarded(dim, depth + 1)}, {self.rng.randint(1, 4)})"
        if draw < 0.68:
            places = [("t", self.rng.randint(-1, 3)), ("x", 0), ("x", 1)]
            which, value = self.rng.choice(places[: 3 if self.x else 2])
            return f"ReplaceIndex({self.forwarded(dim, depth + 1)}, {which}, {value})"
        name = self.rng.choice([name for name, columns in self.dims.items() if columns == dim])
        # A descriptor may read a node with one scale only.
        drawn = self.rng.choice((1, 1, 1, 0.5, -2))
        scale = self.scales.setdefault(name, drawn)
        return name if scale == 1 else f"Scale({scale}, {name})"


def row(node: str, t: int, x: int) -> np.ndarray | None:
    """What stands in a row: small integers, with which sums are exact in any order."""
    times, extra = GIVEN[node]
    if t not in times or x not in extra:
        return None
    return np.array([(7 * t + 5 * x + 3 * i + ord(node)) % 16 - 8.0 for i in range(DIMS[node])])


def _make(rng: random.Random) -> str:
    return Grammar(rng, DIMS).descriptor()


def _run(text: str) -> Depth:
    descriptor = parse_descriptor(text, DIMS)
    if parse_descriptor(str(descriptor), DIMS) != descriptor:
        raise WrongError("text that parses to another descriptor", str(descriptor))
    meaning = parse(text)
    if descriptor.dim(DIMS) != meaning.dim(DIMS):
        raise WrongError("columns of a descriptor")
    for t, x in _PLACES:
        _compare("row of a descriptor", _value(descriptor, t, x), meaning, t, x)
    return Depth.RAN


def _compare(what: str, got: np.ndarray | None, meaning: Expression, t: int, x: int) -> None:
    wanted = meaning.value(t, x, row, DIMS)
    if (got is None) != (wanted is None) or (wanted is not None and (got != wanted).any()):
        raise WrongError(what, f"t={t} x={x}: {got} for {wanted}")


def _value(descriptor: Descriptor, t: int, x: int) -> np.ndarray | None:
    """The row of a descriptor by the package's own account of what it reads."""
    names, parts = list(DIMS), []
    for part in descriptor.parts:
        places = [leaf.map_to_input(t, x, _NODES) for leaf in part.leaves()]
        rows = [row(names[node], *index) for node, *index in places]
        used: list[Any] = []
        if not part.combine(iter([each is not None for each in rows]), used):
            return None
        value, scales = np.full(part.dim(DIMS), part.constant()), part.scales()
        for (node, *_), each, taken in zip(places, rows, used, strict=True):
            if taken:
                value = value + scales[names[node]] * each
        parts.append(value)
    return np.concatenate(parts)


# The same, compiled


_CONFIG = "".join(f"input-node name={name} dim={dim}\n" for name, dim in DIMS.items())


def _make_compiled(rng: random.Random) -> str:
    begin = rng.randint(-3, 3)
    words = [str(begin), str(begin + rng.randint(1, 5)), str(rng.randint(1, 2))]
    words += [word for word in ("deriv", "optimize", "shortcut") if rng.random() < 0.5]
    if rng.random() < 0.7:  # so that more can be computed
        words[:2] = "0", str(rng.randint(1, 3))
    return f"{' '.join(words)}\n{Grammar(rng, DIMS).descriptor()}\n"


def _run_compiled(text: str) -> Depth:
    head, descriptor = text.strip().split("\n")
    begin, end, sequences, *flags = head.split()
    wanted = [(t, 0) for t in range(int(begin), int(end))]
    nnet = Nnet.from_config_text(f"{_CONFIG}output-node name=output input={descriptor}\n", 1)
    meaning = parse(descriptor)
    rows = [meaning.value(t, x, row, DIMS) for t, x in wanted]
    deriv = "deriv" in flags
    inputs = {
        name: [(t, x) for t in GIVEN[name][0] for x in GIVEN[name][1]]
        for name in DIMS
        if any(node == name for t, x in wanted for node, *_ in meaning.needed(t, x))
    }
    if not inputs:
        return Depth.READ
    many = int(sequences)
    request = ComputationRequest(
        [IoSpecification(name, indexes(many, given), deriv) for name, given in inputs.items()],
        [IoSpecification("output", indexes(many, wanted), deriv)],
    )
    options = OptimizeOptions(optimize="optimize" in flags)
    computable = all(each is not None for each in rows)
    try:
        computation = compile_optimized(nnet.topology(), request, options, "shortcut" in flags)
    except NotComputableError:
        if computable:
            raise WrongError("what can be computed is refused") from None
        return Depth.READ
    if not computable:
        raise WrongError("what cannot be computed is compiled")
    computer = NnetComputer(lower_computation(computation), nnet)
    for name, given in inputs.items():
        computer.accept_input(name, np.tile([row(name, *place) for place in given], (many, 1)))
    computer.run()
    got, expected = computer.get_output("output"), np.tile(np.array(rows), (many, 1))
    if got.shape != expected.shape or (got != expected).any():
        raise WrongError("output of a computation", f"{got} for {expected}")
    if deriv:
        _check_derivatives(computer, meaning, inputs, wanted, expected)
    return Depth.RAN


def indexes(many: int, places: Sequence[tuple[int, int]]) -> np.ndarray:
    """Rows (n, t, x) of so many sequences."""
    return np.array([(n, t, x) for n in range(many) for t, x in places])


def _check_derivatives(
    computer: NnetComputer,
    meaning: Expression,
    inputs: Mapping[str, Sequence[tuple[int, int]]],
    wanted: Sequence[tuple[int, int]],
    output: np.ndarray,
) -> None:
    """What a descriptor computes is linear: the derivatives times the inputs are the output's."""

    def zeros(node: str, t: int, x: int) -> np.ndarray | None:
        found = row(node, t, x)
        return None if found is None else 0 * found

    many = len(output) // len(wanted)
    constants = [meaning.value(t, x, zeros, DIMS) for t, x in wanted]
    slope = np.arange(output.size, dtype=np.float32).reshape(output.shape) % 5 - 2
    computer.accept_input("output", slope)
    computer.run()
    found = 0.0
    for name, given in inputs.items():
        values = np.tile([row(name, *place) for place in given], (many, 1))
        found += float((computer.get_output(name) * values).sum())
    expected = float((slope * (output - np.tile(np.array(constants), (many, 1)))).sum())
    if found != expected:
        raise WrongError("derivatives of a computation", f"{found} for {expected}")


GENERATORS = (
    Generator("nnet3 descriptors", _make, _run, share=40),
    Generator("nnet3 compiled descriptors", _make_compiled, _run_compiled, share=6),
)
