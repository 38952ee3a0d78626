"""Recurrent layers, as `torch.nn.LSTM`, `GRU` and `RNN` record them, written out step by step.

Exported programs hold one length of time for these, so that the steps are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....framework.base.errors import ShapeError
from ....onnx.importing.calls import Value
from ..calls import Aten, aten, wants_floats

_MOST_STEPS = 1000
"""Steps that are written out in a net, over all layers and directions."""
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@aten(*_GATES)
def _recurrent(n: Aten) -> list[Value]:
    n.refuse_unless(not n.has("batch_sizes"), "packed sequences are not supported")
    x = n["input"]
    wants_floats(n, x)
    first_rows, layers, both = bool(n["batch_first"]), int(n["num_layers"]), n["bidirectional"]
    ways = 2 if both else 1
    if x.ndim == 2:
        n.fail("inputs without a batch are not supported")
    steps = x.shape[1 if first_rows else 0]
    if steps * layers * ways > _MOST_STEPS:
        raise ShapeError(f"{steps} steps of {layers * ways} cells are more than {_MOST_STEPS}")
    weights = list(n["params"])
    each = len(weights) // (layers * ways)
    given = n["hx"] if isinstance(n["hx"], list) else [n["hx"]]
    x = n.moved(x, [1, 0, 2]) if first_rows else x
    ends: list[list[Value]] = [[] for _ in given]
    for layer in range(layers):
        if layer and n["train"] and n["dropout"]:
            x = n.op("dropout", x, p=float(n["dropout"]))
        outs: list[Value] = []
        for way in range(ways):
            at = layer * ways + way
            cell = _Cell(n, weights[at * each : (at + 1) * each])
            state = [_initial(n, one, at) for one in given]
            made, state = cell.run(x, state, backwards=way == 1)
            outs.append(made)
            for found, value in zip(ends, state, strict=True):
                found.append(value)
        x = outs[0] if ways == 1 else n.op("concat", outs, axis=2)
    y = n.moved(x, [1, 0, 2]) if first_rows else x
    last = [
        n.op("stack", values, axis=0) if n.wants(1 + k) else values[0]
        for k, values in enumerate(ends)
    ]
    return [y, *last]


def _initial(n: Aten, given: Value, at: int) -> Value:
    """The first state of a cell."""
    if given.array is not None and not given.is_parameter and not given.array.any():
        return n.const(np.zeros((1, given.shape[2])), given.dtype)  # a row that all rows share
    return n.op("squeeze", n.part(given, 0, at, at + 1), axes=[0])


class _Cell:
    """One direction of a layer.

    Args:
        n: the node. weights: of inputs and states, then the biases, if any, then a projection.
    """

    def __init__(self, n: Aten, weights: Sequence[Value]) -> None:
        self.n, self.gates = n, _GATES[n.name]
        self.w, self.r, *more = weights
        self.biases = more[:2] if len(more) > 1 else []
        self.projection = more[-1] if len(more) % 2 else None
        self.size = self.w.shape[0] // self.gates

    def run(self, x: Value, state: list[Value], *, backwards: bool) -> tuple[Value, list[Value]]:
        """What all steps give, and the last state; x [T, N, K]."""
        n = self.n
        given = n.op("matmul", x, self.w, transpose_y=True)
        late = self.gates == 3  # a GRU's reset gate meets the bias of the state
        for bias in self.biases[: 1 if late else 2]:
            given = n.op("add", given, bias)
        outs: list[Value] = []
        order = range(x.shape[0])
        for t in reversed(order) if backwards else order:
            part = n.op("squeeze", n.part(given, 0, t, t + 1), axes=[0])
            state = self._step(part, state)
            outs.append(state[0])
        return n.op("stack", outs[::-1] if backwards else outs, axis=0), state

    def _gate(self, value: Value, begin: int, end: int) -> Value:
        return self.n.part(value, value.ndim - 1, begin * self.size, end * self.size)

    def _step(self, x: Value, state: list[Value]) -> list[Value]:
        n, h = self.n, state[0]
        inner = n.op("matmul", h, self.r, transpose_y=True)
        if self.gates == 1:
            return [n.op(n.name.removeprefix("rnn_"), n.op("add", x, inner))]
        if self.gates == 3:
            return [self._gru(x, inner, h)]
        gates = n.op("add", x, inner)
        i, f, o = (n.op("sigmoid", self._gate(gates, k, k + 1)) for k in (0, 1, 3))
        new = n.op("mul", i, n.op("tanh", self._gate(gates, 2, 3)))
        c = n.op("add", n.op("mul", f, state[1]), new)
        h = n.op("mul", o, n.op("tanh", c))
        if self.projection is not None:
            h = n.op("matmul", h, self.projection, transpose_y=True)
        return [h, c]

    def _gru(self, x: Value, inner: Value, h: Value) -> Value:
        n = self.n
        if self.biases:
            inner = n.op("add", inner, self.biases[1])
        gates = n.op("sigmoid", n.op("add", self._gate(x, 0, 2), self._gate(inner, 0, 2)))
        reset, keep = self._gate(gates, 0, 1), self._gate(gates, 1, 2)
        late = n.op("mul", reset, self._gate(inner, 2, 3))
        new = n.op("tanh", n.op("add", self._gate(x, 2, 3), late))
        return n.op("add", new, n.op("mul", keep, n.op("sub", h, new)))
