"""OptimizedRNNStack: layers of recurrent nets whose weights lie in one buffer, as cuDNN's.

The buffer holds the matrices of all layers (of a layer's two directions the forward one first):
the input's [gates, H, inputs], then the recurrent [gates, H, H]. After them come, in the same
order, two biases [gates, H] each. Gates are i, f, g, o for an LSTM and r, z, n for a GRU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...network.nodes.node import Node
from ..emitter import Emitter, size
from ..table import lowers

_GATES = {"lstm": 4, "gru": 3, "rnnTanh": 1, "rnnReLU": 1}


@dataclass(frozen=True)
class _Layer:
    """Variables of one layer in one direction: matrices as [inputs, gates * H], biases."""

    from_input: str
    recurrent: str
    input_bias: str
    recurrent_bias: str


class _Buffer:
    """Takes matrices and biases from the buffer, one after the other."""

    def __init__(self, e: Emitter, name: str) -> None:
        self.e = e
        self.name = name
        self.at = 0

    def vector(self, count: int) -> str:
        self.at += count
        return self.e.cut(self.name, 0, self.at - count, self.at)

    def matrix(self, rows: int, columns: int) -> str:
        """Of [rows, columns] in the buffer, turned."""
        matrix = self.e.reshape(self.vector(rows * columns), (rows, columns))
        return self.e.op("transpose", {"x": matrix}, {"perm": (1, 0)})


def _layers(e: Emitter, node: Node, width: int) -> Iterator[list[_Layer]]:
    """For each layer its directions."""
    values = node.attributes
    weights = node.inputs[0]
    hidden = values["hiddenDims"]
    wide = _GATES[values["recurrentOp"]] * hidden
    directions = 2 if values["bidirectional"] else 1
    if values["numLayers"] * directions > size(weights):
        layers = f"{values['numLayers']} layers"
        raise node.error(f"{layers} have more than the {size(weights)} weights of {weights.name}")
    buffer = _Buffer(e, e.shaped(weights, (size(weights),)))
    widths = [width] + [directions * hidden] * (values["numLayers"] - 1)
    matrices = [
        (buffer.matrix(wide, inputs), buffer.matrix(wide, hidden))
        for inputs in widths
        for _ in range(directions)
    ]
    every = [_Layer(*pair, buffer.vector(wide), buffer.vector(wide)) for pair in matrices]
    if buffer.at > size(weights):
        raise node.error(f"its layers take {buffer.at} weights, {weights.name} has {size(weights)}")
    for first in range(0, len(every), directions):
        yield every[first : first + directions]


def _run_layer(e: Emitter, node: Node, x: str, layer: _Layer, reverse: bool) -> str:
    """States of a layer in one direction, [rows, H]."""
    operation, hidden = node.attributes["recurrentOp"], node.attributes["hiddenDims"]
    reads = {"x": x, "w_x": layer.from_input, "w_h": layer.recurrent}
    attrs: dict[str, Any] = {"size": hidden, "reverse": reverse, "dtype": e.dtype}
    if operation == "gru":  # whose reset gate acts on the other bias
        kind = "gru"
        biases = {"b": layer.input_bias, "b_h": layer.recurrent_bias}
    else:
        kind = "lstm" if operation == "lstm" else "simple_rnn"
        biases = {"b": e.op("add", {"x": layer.input_bias, "y": layer.recurrent_bias})}
    if kind == "simple_rnn":
        attrs["activation"] = "tanh" if operation == "rnnTanh" else "relu"
    return e.op(kind, reads | biases, attrs, out=("out", "steps"))


@lowers("OptimizedRNNStack")
def lower_optimized_rnn_stack(e: Emitter, node: Node) -> str:
    data = node.inputs[1]
    values = node.attributes
    within = values["axis"] >= 0  # along the second axis of each sample, not along time
    x = e.value(data)
    if within:
        x = e.op("cntk.split_steps", {"x": x})
    elif e.carried:
        raise node.error("it takes whole sequences, not pieces of them")
    else:
        e.sequences(node.axis)
    for directions in _layers(e, node, data.shape[0]):
        parts = [_run_layer(e, node, x, layer, bool(n)) for n, layer in enumerate(directions)]
        x = parts[0] if len(parts) == 1 else e.op("concat", {"x": parts}, {"axis": 1})
    return e.op("cntk.join_steps", {"x": x, "like": e.value(data)}) if within else x
