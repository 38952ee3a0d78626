"""What an nnet3 network computes, row by row, written from the document on its data types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from .descriptor_meaning import Expression, Row, parse

_WINDOW = 16  # rows so far outside of the inputs have nothing that could be computed


def _softmax(x: Row) -> Row:
    e = np.exp(x - x.max())
    return e / e.sum()


def _sigmoid(x: Row) -> Row:
    return 1 / (1 + np.exp(-x))


def _affine(x: Row, c: Any) -> Row:
    return c.linear_params @ x + c.bias_params


def _blocks(x: Row, c: Any) -> Row:
    """Each block of columns times the rows of the matrix that are the block's."""
    count = len(x) // c.linear_params.shape[1]
    parts = zip(np.split(c.linear_params, count), np.split(x, count), strict=True)
    return np.concatenate([matrix @ part for matrix, part in parts]) + c.bias_params


def _lstm(x: Row, c: Any) -> Row:
    """The cell and its output; the columns are those of the gates i, f, of c, of o, and the cell
    before."""
    i, f, new, o, before = np.split(x, 5)
    from_i, from_f, from_o = c.params
    cell = _sigmoid(f + from_f * before) * before + _sigmoid(i + from_i * before) * np.tanh(new)
    return np.concatenate([cell, _sigmoid(o + from_o * cell) * np.tanh(cell)])


Function = Callable[[Row, Any], Row]
FUNCTIONS: dict[str, Function] = {
    "AffineComponent": _affine,
    "NaturalGradientAffineComponent": _affine,
    "TdnnComponent": _affine,  # of the frames at its offsets, side by side
    "LinearComponent": lambda x, c: c.params @ x,
    "BlockAffineComponent": _blocks,
    "NaturalGradientPerElementScaleComponent": lambda x, c: c.scales * x,
    "PerElementScaleComponent": lambda x, c: c.scales * x,
    "PerElementOffsetComponent": lambda x, c: x + c.offsets,
    "LstmNonlinearityComponent": _lstm,
    "PnormComponent": lambda x, c: np.sqrt((x * x).reshape(c.output_dim, -1).sum(1)),
    "ClipGradientComponent": lambda x, c: x,
    "RectifiedLinearComponent": lambda x, c: np.maximum(x, 0),
    "SigmoidComponent": lambda x, c: _sigmoid(x),
    "TanhComponent": lambda x, c: np.tanh(x),
    "SoftmaxComponent": lambda x, c: _softmax(x),
    "LogSoftmaxComponent": lambda x, c: np.log(_softmax(x)),
    "NoOpComponent": lambda x, c: x,
    "NormalizeComponent": lambda x, c: x / np.sqrt(max((x * x).mean(), 2.0**-66)),
    "ElementwiseProductComponent": lambda x, c: x[: len(x) // 2] * x[len(x) // 2 :],
}
"""A row of the input to that of the output, with the parameters."""
_PARAMETERS = ("linear_params", "bias_params", "params", "scales", "offsets")


def moved(components: Mapping[str, Any], along: Mapping[str, Any], step: float) -> dict[str, Any]:
    """Components whose parameters, float64, are so many steps along others."""

    def one(name: str, component: Any) -> SimpleNamespace:
        values = {
            key: value.astype(float) + step * getattr(along[name], key)
            for key in _PARAMETERS
            if isinstance(value := getattr(component, key, None), np.ndarray)
        }
        return SimpleNamespace(output_dim=component.output_dim, **values)

    return {name: one(name, component) for name, component in components.items()}


@dataclass
class Network:
    """A network of a config whose components are those of `FUNCTIONS`.

    Args:
        components: with their parameters, by name.
        times: offsets of the frames that a component takes side by side, by its name.
    """

    components: Mapping[str, Any]
    kinds: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    reads: dict[str, Expression] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    times: dict[str, list[int]] = field(default_factory=dict)

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
                if "cell-dim" in values:  # the cell and its output
                    widths[name] = 2 * int(values["cell-dim"])
                made.times[name] = [int(t) for t in values.get("time-offsets", "0").split(",")]
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
        read = network.reads[node]
        if values["kind"] == "output-node":
            return read.value(t, 0, self, network.dims)
        name = values["component"]
        rows = []
        for offset in network.times[name]:
            row = read.value(t + offset, 0, self, network.dims)
            if row is None:
                return None
            rows.append(row)
        return FUNCTIONS[network.kinds[name]](np.concatenate(rows), network.components[name])
