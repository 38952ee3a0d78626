"""Recurrent layers, as `nn.LSTM`, `nn.GRU` and `nn.RNN` record them: loops, as ONNX's become."""

from __future__ import annotations

from functools import partial

from ....onnx.importing.calls import Attributes, Call, Value
from ....onnx.importing.graph import Node
from ....onnx.importing.kinds.recurrent import (
    RELU,
    SIGMOID,
    TANH,
    Cell,
    Layers,
    Matrix,
    first_state,
)
from ..calls import Aten, Ref, aten_expands, wants_floats

_CELLS = {
    "lstm": Cell("LSTM", (0, 1, 2, 3), (SIGMOID, TANH, TANH)),
    "gru": Cell("GRU", (0, 1, 2), (SIGMOID, TANH), resets_late=True),
    "rnn_tanh": Cell("RNN", (0,), (TANH,)),
    "rnn_relu": Cell("RNN", (0,), (RELU,)),
}


def _begin(n: Call, rows_first: bool) -> Value:
    """x as [T, N, ...]."""
    wants_floats(Aten(n), n[0])
    if n[0].ndim == 2:
        n.fail("inputs without a batch are not supported")
    return n.op("transpose", n[0], perm=[1, 0, 2]) if rows_first else n[0]


def _enter(n: Call, cell: Cell) -> Value:
    """Rows for a loop, from x, the weights of inputs and two biases."""
    return cell.project(n, n[0], Matrix(n[1]), [n.get(2), n.get(3)])


def _first(n: Call, at: int) -> Value:
    """The first state of a direction, from the states of all."""
    return first_state(n, n[0], at, n[0].shape[2], n[0].dtype)


def _joined(n: Call, dropout: float) -> Value:
    """What a layer hands to the next, from what its directions give."""
    values = [n[k] for k in range(len(n.inputs))]
    x = values[0] if len(values) == 1 else n.op("concat", values, axis=2)
    return n.op("dropout", x, p=dropout) if dropout else x


def _leave(n: Call, count: int, rows_first: bool) -> list[Value]:
    """The results, from what the last layer gives and `count` last states of each direction."""
    y, *rest = (n[k] for k in range(len(n.inputs)))
    y = n.op("transpose", y, perm=[1, 0, 2]) if rows_first else y
    return [y, *(n.op("stack", rest[k::count], axis=0) for k in range(count))]


@aten_expands(*_CELLS)
def _recurrent(n: Attributes) -> list[Node]:
    given = n.node.attrs["arguments"]
    inputs = n.node.inputs
    if given.get("batch_sizes") is not None:
        n.fail("packed sequences are not supported")

    def names(argument: str) -> list[str]:
        refs = given[argument] if isinstance(given[argument], list) else [given[argument]]
        return [inputs[ref.number] for ref in refs if isinstance(ref, Ref)]

    cell = _CELLS[n.node.op]
    ways = 2 if given["bidirectional"] else 1
    rows_first, depth = bool(given["batch_first"]), int(given["num_layers"])
    params, hx = names("params"), names("hx")
    layers = Layers(n.node)
    each = len(params) // (depth * ways)
    (x,) = layers.add("begin", partial(_begin, rows_first=rows_first), names("input"))
    ends = list[str]()
    for layer in range(depth):
        outs = []
        for at in range(layer * ways, (layer + 1) * ways):
            w, r, *more = params[at * each : (at + 1) * each]
            biases = more[:2] if len(more) > 1 else ["", ""]
            projection = more[-1] if len(more) % 2 else ""
            (rows,) = layers.add("enter", partial(_enter, cell=cell), [x, w, *biases])
            states = [layers.add("first", partial(_first, at=at), [one])[0] for one in hx]
            weights = [r, biases[1], "", projection]
            back = at - layer * ways == 1
            *last, out = layers.loop(cell, rows, states, weights, backwards=back)
            outs = [*outs, out]
            ends = [*ends, *last]
        dropout = float(given["dropout"]) if given["train"] and layer < depth - 1 else 0.0
        (x,) = layers.add("joined", partial(_joined, dropout=dropout), outs)
    leave = partial(_leave, count=cell.states, rows_first=rows_first)
    layers.add("leave", leave, [x, *ends], n.node.outputs)
    return layers.nodes
