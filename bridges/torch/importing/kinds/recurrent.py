"""Recurrent layers, as `nn.LSTM`, `nn.GRU` and `nn.RNN` record them: loops, as ONNX's become."""

from __future__ import annotations

from dataclasses import dataclass

from ....onnx.importing.calls import Attributes, Call, Value
from ....onnx.importing.graph import Node
from ....onnx.importing.kinds.recurrent import RELU, SIGMOID, TANH, Cell, Layers, first_state
from ..calls import Aten, Ref, aten_expands, wants_floats

_CELLS = {
    "lstm": Cell("LSTM", (0, 1, 2, 3), (SIGMOID, TANH, TANH)),
    "gru": Cell("GRU", (0, 1, 2), (SIGMOID, TANH), resets_late=True),
    "rnn_tanh": Cell("RNN", (0,), (TANH,)),
    "rnn_relu": Cell("RNN", (0,), (RELU,)),
}


@dataclass(frozen=True)
class _Stack:
    """Layers on each other, without their values.

    Attributes:
        cell: of all. ways: directions. rows_first: x is [N, T, ...].
        dropout: before each layer but the first.
    """

    cell: Cell
    ways: int
    rows_first: bool
    dropout: float

    def begin(self, n: Call) -> Value:
        """x as [T, N, ...]."""
        wants_floats(Aten(n), n[0])
        if n[0].ndim == 2:
            n.fail("inputs without a batch are not supported")
        return n.op("transpose", n[0], perm=[1, 0, 2]) if self.rows_first else n[0]

    def enter(self, n: Call) -> list[Value]:
        """From x, weights of inputs and two biases: rows for the loop."""
        return [self.cell.project(n, n[0], n[1], [n.get(2), n.get(3)])]

    def joined(self, n: Call) -> Value:
        """What a layer hands to the next, from what its directions give."""
        x = n[0] if self.ways == 1 else n.op("concat", [n[k] for k in range(self.ways)], axis=2)
        return n.op("dropout", x, p=self.dropout) if self.dropout else x

    def leave(self, n: Call) -> list[Value]:
        """The results, from what the last layer gives and last states, direction by direction."""
        outs, rest = self.ways, [n[k] for k in range(self.ways, len(n.inputs))]
        x = n[0] if outs == 1 else n.op("concat", [n[k] for k in range(outs)], axis=2)
        y = n.op("transpose", x, perm=[1, 0, 2]) if self.rows_first else x
        count = self.cell.states
        return [y, *(n.op("stack", rest[k::count], axis=0) for k in range(count))]


@dataclass(frozen=True)
class _First:
    """The first state of a direction.

    Attributes:
        at: its number among all of the stack.
    """

    at: int

    def state(self, n: Call) -> Value:
        """It, of those of all."""
        return first_state(n, n[0], self.at, n[0].shape[2], n[0].dtype)


@aten_expands(*_CELLS)
def _recurrent(n: Attributes) -> list[Node]:
    given, inputs = n.node.attrs["arguments"], n.node.inputs
    if given.get("batch_sizes") is not None:
        n.fail("packed sequences are not supported")

    def names(argument: str) -> list[str]:
        refs = given[argument] if isinstance(given[argument], list) else [given[argument]]
        return [inputs[ref.number] for ref in refs if isinstance(ref, Ref)]

    cell, ways = _CELLS[n.node.op], 2 if given["bidirectional"] else 1
    depth, params, hx = int(given["num_layers"]), names("params"), names("hx")
    dropout = float(given["dropout"]) if given["train"] else 0.0
    stack = _Stack(cell, ways, bool(given["batch_first"]), dropout)
    layers, each = Layers(n.node), len(params) // (depth * ways)
    outs, ends = layers.add("begin", stack.begin, names("input")), list[str]()
    for layer in range(depth):
        (x,) = layers.add("joined", stack.joined, outs) if layer else outs
        outs = []
        for at in range(layer * ways, (layer + 1) * ways):
            w, r, *more = params[at * each : (at + 1) * each]
            biases = more[:2] if len(more) > 1 else ["", ""]
            projection = more[-1] if len(more) % 2 else ""
            (rows,) = layers.add("enter", stack.enter, [x, w, *biases])
            states = [layers.add("state", _First(at).state, [one])[0] for one in hx]
            back = at - layer * ways == 1
            *last, out = layers.loop(
                cell, rows, states, [r, biases[1], "", projection], backwards=back
            )
            outs, ends = [*outs, out], [*ends, *last]
    layers.add("leave", stack.leave, [*outs, *ends], n.node.outputs)
    return layers.nodes
