"""OptimizedRNNStack: layers of recurrent nets whose weights lie in one buffer, as cuDNN's.

The buffer holds the matrices of all layers (of a layer's two directions the forward one first):
the input's [gates, H, inputs], then the recurrent [gates, H, H]. After them come, in the same
order, two biases [gates, H] each. Gates are i, f, g, o for an LSTM and r, z, n for a GRU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....framework.ir.desc import INPUT, RECURRENT
from ....framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from ....framework.loops.recurrent.net import recurrent_op
from ....operators.control.cells import gru_state, lstm_memory, lstm_output
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
        self.e, self.name, self.at = e, name, 0

    def vector(self, count: int) -> str:
        self.at += count
        return self.e.cut(self.name, 0, self.at - count, self.at)

    def matrix(self, rows: int, columns: int) -> str:
        """Of [rows, columns] in the buffer, turned."""
        matrix = self.e.reshape(self.vector(rows * columns), (rows, columns))
        return self.e.op("transpose", {"x": matrix}, {"perm": (1, 0)})


def _layers(e: Emitter, node: Node, width: int) -> Iterator[list[_Layer]]:
    """For each layer its directions."""
    values, weights = node.attributes, node.inputs[0]
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


class _Cell:
    """The step net of a layer: rows of the input's products, and states before, to new states."""

    def __init__(self, e: Emitter, operation: str, hidden: int, layer: _Layer, name: str) -> None:
        self.step = Emitter(e.dtype, name=name)
        self.operation, self.hidden, self.layer = operation, hidden, layer
        self.step_decl = StepDecl(self.step.lowered.op_list)
        self.op_list = OpList(name, RECURRENT, steps=[self.step_decl])

    def before(self) -> str:
        return self.step.var(self.step.temporary(), (-1, self.hidden), INPUT)

    def add_memory(self, state: str, previous: str) -> None:
        self.step_decl.memories.append(MemoryDecl(state, previous))

    def gate(self, name: str, number: int) -> str:
        return self.step.cut(name, 1, number * self.hidden, (number + 1) * self.hidden)

    def op(self, op_type: str, *inputs: str) -> str:
        return self.step.op(op_type, dict(zip("xy", inputs, strict=False)))

    def lstm(self, row: str) -> str:
        h, c = self.before(), self.before()
        sums = self.op("add", row, self.op("matmul", h, self.layer.recurrent))
        i, f, g, o = (self.gate(sums, number) for number in range(4))
        cell = lstm_memory(self.op, i, f, g, c)
        state = lstm_output(self.op, o, cell)
        self.add_memory(cell, c)
        self.add_memory(state, h)
        return state

    def gru(self, row: str) -> str:
        h = self.before()
        own = self.op("matmul", h, self.layer.recurrent)
        own = self.op("add", own, self.layer.recurrent_bias)
        reset, update = (
            self.op("sigmoid", self.op("add", self.gate(row, n), self.gate(own, n))) for n in (0, 1)
        )
        past = self.op("mul", reset, self.gate(own, 2))
        proposed = self.op("tanh", self.op("add", self.gate(row, 2), past))
        state = gru_state(self.op, update, proposed, h)
        self.add_memory(state, h)
        return state

    def plain(self, row: str) -> str:
        h = self.before()
        sums = self.op("add", row, self.op("matmul", h, self.layer.recurrent))
        state = self.op("tanh" if self.operation == "rnnTanh" else "relu", sums)
        self.add_memory(state, h)
        return state


def _run_layer(e: Emitter, node: Node, x: str, layer: _Layer, reverse: bool) -> str:
    """States of a layer in one direction, [rows, H]."""
    operation, hidden = node.attributes["recurrentOp"], node.attributes["hiddenDims"]
    bias = layer.input_bias
    if operation != "gru":  # whose reset gate acts on the other bias
        bias = e.op("add", {"x": bias, "y": layer.recurrent_bias})
    rows = e.op("matmul", {"x": x, "y": layer.from_input})
    rows = e.op("add", {"x": rows, "y": bias})
    out = e.temporary()
    cell = _Cell(e, operation, hidden, layer, out)
    step = {"lstm": cell.lstm, "gru": cell.gru}.get(operation, cell.plain)
    state = step(rows)
    cell.step_decl.reverse = reverse
    cell.step_decl.in_links.append(Link(rows, rows))
    cell.step_decl.out_links.append(Link(out, state))
    e.append(recurrent_op(cell.op_list))
    return out


@lowers("OptimizedRNNStack")
def lower_optimized_rnn_stack(e: Emitter, node: Node) -> str:
    data, values = node.inputs[1], node.attributes
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
