"""What an nnet3 network computes, row by row, written from the document on its data types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .descriptor_meaning import Expression, Row, parse

_WINDOW = 16  # rows so far outside of the inputs have nothing that could be computed


def _softmax(x: Row) -> Row:
    e = np.exp(x - x.max())
    return e / e.sum()


Function = Callable[[Row, Any], Row]
FUNCTIONS: dict[str, Function] = {
    "AffineComponent": lambda x, c: c.linear_params @ x + c.bias_params,
    "NaturalGradientAffineComponent": lambda x, c: c.linear_params @ x + c.bias_params,
    "LinearComponent": lambda x, c: c.params @ x,
    "RectifiedLinearComponent": lambda x, c: np.maximum(x, 0),
    "SigmoidComponent": lambda x, c: 1 / (1 + np.exp(-x)),
    "TanhComponent": lambda x, c: np.tanh(x),
    "SoftmaxComponent": lambda x, c: _softmax(x),
    "LogSoftmaxComponent": lambda x, c: np.log(_softmax(x)),
    "NoOpComponent": lambda x, c: x,
    "NormalizeComponent": lambda x, c: x / np.sqrt(max((x * x).mean(), 2.0**-66)),
    "ElementwiseProductComponent": lambda x, c: x[: len(x) // 2] * x[len(x) // 2 :],
}
"""Simple components: a row of the input to that of the output, with the parameters."""


@dataclass
class Network:
    """A network of a config whose components are simple ones.

    Args:
        components: with their parameters, by name.
    """

    components: Mapping[str, Any]
    kinds: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    reads: dict[str, Expression] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, config: str, components: Mapping[str, Any]) -> Network | None:
        """The network of a config's text; None where a component is none of `FUNCTIONS`."""
        made = cls(components)
        widths = {}
        for line in config.strip().split("\n"):
            first, *rest = line.split(" ", 1)
            values = _values(rest[0])
            name = values["name"]
            if first == "component":
                made.kinds[name] = values["type"]
                widths[name] = int(values.get("output-dim", values.get("dim", 0)))
                continue
            made.nodes[name] = {"kind": first, **values}
            made.dims[name] = int(values.get("dim", 0)) or widths.get(values.get("component"), 0)
            if first in ("component-node", "output-node"):
                made.reads[name] = parse(values["input"])
        return made if set(made.kinds.values()) <= FUNCTIONS.keys() else None

    def run(self, inputs: Mapping[str, tuple[int, np.ndarray]]) -> Rows:
        """What the nodes are, given inputs: the time of the first row, and the rows."""
        return Rows(self, inputs)


def _values(text: str) -> dict[str, str]:
    """`key=value` of a config line; a descriptor may hold spaces."""
    found, key = {}, ""
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals:
            key = name
            found[key] = value
        else:
            found[key] += f" {word}"
    return found


class Rows:
    """The rows of the nodes of a network, each computed when it is asked for."""

    def __init__(self, network: Network, inputs: Mapping[str, tuple[int, np.ndarray]]) -> None:
        self._network, self._inputs = network, inputs
        self._known: dict[tuple[str, int], Row | None] = {}
        begins = [begin for begin, _ in inputs.values()]
        ends = [begin + len(rows) for begin, rows in inputs.values()]
        self._least, self._most = min(begins) - _WINDOW, max(ends) + _WINDOW

    def __call__(self, node: str, t: int, x: int = 0) -> Row | None:
        """A row of a node; None where it cannot be computed."""
        if x or not self._least <= t <= self._most:
            return None
        place = node, t
        if place not in self._known:
            self._known[place] = None  # what is computed from itself cannot be computed
            self._known[place] = self._computed(node, t)
        return self._known[place]

    def _computed(self, node: str, t: int) -> Row | None:
        network = self._network
        values = network.nodes[node]
        if values["kind"] == "input-node":
            begin, rows = self._inputs[node]
            return rows[t - begin] if 0 <= t - begin < len(rows) else None
        if values["kind"] == "dim-range-node":
            row, begin = self(values["input-node"], t), int(values["dim-offset"])
            return None if row is None else row[begin : begin + int(values["dim"])]
        row = network.reads[node].value(t, 0, self, network.dims)
        if row is None or values["kind"] == "output-node":
            return row
        name = values["component"]
        return FUNCTIONS[network.kinds[name]](row, network.components[name])
