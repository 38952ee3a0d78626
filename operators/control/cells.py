"""The formulas of recurrent cells as operators, for every front end that builds cells of operators.

Each function takes `op`: `op(type, x)` and `op(type, x, y)` append an operator and return its
result, in the representation of the front end. All values are [N, H].

The LSTM of nnet3 (`nnet3.lstm`) computes the same cell as one operator. Its formulas stay beside
it: they are scalar expressions with dropout factors, and its gradient and statistics read the
values of the gates by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def lstm_memory(op: Callable[..., Value], i: Value, f: Value, g: Value, memory: Value) -> Value:
    """The new memory of an LSTM: sigmoid(f) memory + sigmoid(i) tanh(g).

    Args:
        i, f, g: sums of the input gate, the forget gate and the cell, before their functions.
        memory: of the step before.
    """
    remembered = op("mul", op("sigmoid", f), memory)
    return op("add", remembered, op("mul", op("sigmoid", i), op("tanh", g)))


def lstm_output(op: Callable[..., Value], o: Value, memory: Value) -> Value:
    """The output of an LSTM: sigmoid(o) tanh(memory), from the sums o and the new memory."""
    return op("mul", op("sigmoid", o), op("tanh", memory))


def gru_state(op: Callable[..., Value], z: Value, n: Value, state: Value) -> Value:
    """The new state of a GRU: (1 - z) n + z state, as n + z (state - n).

    Args:
        z: the update gate, between 0 and 1.
        n: the proposed state.
        state: of the step before.
    """
    return op("add", n, op("mul", z, op("sub", state, n)))
