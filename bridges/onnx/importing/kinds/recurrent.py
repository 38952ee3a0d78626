"""Recurrent layers: RNN, GRU, LSTM, by a loop on the host or written out step by step in a net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers

_MOST_STEPS = 1000
"""Steps that are written out in a net, over all directions."""
_FEW_STEPS = 8
"""Steps that are written out where inputs come in ever new lengths."""
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, (0.01 if a is None else a) * x),
    "thresholdedrelu": lambda x, a, b: np.where(x > (1.0 if a is None else a), x, 0),
    "scaledtanh": lambda x, a, b: (
        (1.0 if a is None else a) * np.tanh((1.0 if b is None else b) * x)
    ),
    "hardsigmoid": lambda x, a, b: np.clip(
        (0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1
    ),
    "elu": lambda x, a, b: np.where(x >= 0, x, (1.0 if a is None else a) * np.expm1(x)),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
}
_WITH_ALPHA = {
    "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu",
}  # fmt: skip
_WITH_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def _names(n: Attributes, directions: int) -> list[str]:
    default = _DEFAULTS[n.node.op]
    names = [str(name).lower() for name in n.attr("activations", []) or default * directions]
    if len(names) != len(default) * directions or any(name not in _FUNCTIONS for name in names):
        n.fail(f"activations {names}")
    return names


def _activations(n: Attributes, directions: int) -> list[Callable[[np.ndarray], np.ndarray]]:
    alphas, betas = list(n.attr("activation_alpha", [])), list(n.attr("activation_beta", []))
    found = []
    for name in _names(n, directions):
        alpha = alphas.pop(0) if alphas and name in _WITH_ALPHA else None
        beta = betas.pop(0) if betas and name in _WITH_BETA else None
        function = _FUNCTIONS[name]
        found.append(lambda x, f=function, a=alpha, b=beta: f(x, a, b))
    return found


def _directions(n: Attributes) -> list[bool]:
    """Whether each direction runs backwards."""
    found = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    direction = n.attr("direction", "forward")
    if direction not in found:
        n.fail(f"direction {direction!r}")
    return found[direction]


@evaluates("RNN", "GRU", "LSTM")
def _recurrent_on_host(
    n: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> tuple[np.ndarray, ...]:
    rows_first = bool(n.attr("layout", 0))
    if rows_first:
        x = np.swapaxes(x, 0, 1)
        h = None if h is None else np.swapaxes(h, 0, 1)
        c = None if c is None else np.swapaxes(c, 0, 1)
    ways, size, batch = _directions(n), r.shape[-1], x.shape[1]
    functions = _activations(n, len(ways))
    each = len(functions) // len(ways)
    count = _GATES[n.node.op]
    lengths = np.full(batch, len(x)) if lengths is None else lengths
    zeros = np.zeros((len(ways), batch, size), x.dtype)
    h, c = zeros if h is None else h, zeros if c is None else c
    b = np.zeros((len(ways), 2 * count * size), x.dtype) if b is None else b
    p = np.zeros((len(ways), 3 * size), x.dtype) if p is None else p
    limit = n.attr("clip", 0.0) or np.inf
    outs, last_h, last_c = [], [], []
    for way, backwards in enumerate(ways):
        given = _reversed(x, lengths) if backwards else x
        step = _Step(n, w[way], r[way], b[way], p[way], limit, functions[way * each :][:each])
        state = h[way], c[way]
        made = np.zeros((len(x), batch, size), x.dtype)
        for t in range(len(x)):
            new = step.run(given[t], *state)
            alive = (t < lengths)[:, None]
            made[t] = np.where(alive, new[0], 0)
            state = np.where(alive, new[0], state[0]), np.where(alive, new[1], state[1])
        outs.append(_reversed(made, lengths) if backwards else made)
        last_h.append(state[0])
        last_c.append(state[1])
    y, y_h, y_c = np.stack(outs, 1), np.stack(last_h), np.stack(last_c)
    if rows_first:
        y, y_h, y_c = y.transpose(2, 0, 1, 3), np.swapaxes(y_h, 0, 1), np.swapaxes(y_c, 0, 1)
    made = (y, y_h, y_c) if n.node.op == "LSTM" else (y, y_h)
    return tuple(array.astype(x.dtype) for array in made)


def _reversed(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    made = x.copy()
    for row, length in enumerate(lengths):
        made[:length, row] = x[:length, row][::-1]
    return made


class _Step:
    """One step of a direction on the host."""

    def __init__(
        self,
        n: Attributes,
        w: np.ndarray,
        r: np.ndarray,
        b: np.ndarray,
        p: np.ndarray,
        limit: float,
        functions: Sequence[Callable[[np.ndarray], np.ndarray]],
    ) -> None:
        self.n, self.w, self.r, self.p, self.limit, self.f = n, w.T, r.T, p, limit, functions
        self.bias_x, self.bias_h = np.split(b, 2)
        self.size = r.shape[-1]

    def run(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The next states."""
        return getattr(self, f"_{self.n.node.op.lower()}")(x @ self.w + self.bias_x, h, c)

    def _clip(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x, -self.limit, self.limit)

    def _rnn(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.f[0](self._clip(x + h @ self.r + self.bias_h)), c

    def _gru(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = self.size
        gates = x[:, : 2 * size] + h @ self.r[:, : 2 * size] + self.bias_h[: 2 * size]
        z, r = np.split(self.f[0](self._clip(gates)), 2, -1)
        weights, bias = self.r[:, 2 * size :], self.bias_h[2 * size :]
        if self.n.attr("linear_before_reset", 0):
            inner = r * (h @ weights + bias)
        else:
            inner = (r * h) @ weights + bias
        new = self.f[1](self._clip(x[:, 2 * size :] + inner))
        return (1 - z) * new + z * h, c

    def _lstm(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i, o, f, g = np.split(x + h @ self.r + self.bias_h, 4, -1)
        p_i, p_o, p_f = np.split(self.p, 3)
        i = self.f[0](self._clip(i + p_i * c))
        f = 1 - i if self.n.attr("input_forget", 0) else self.f[0](self._clip(f + p_f * c))
        c = f * c + i * self.f[1](self._clip(g))
        o = self.f[0](self._clip(o + p_o * c))
        return o * self.f[2](c), c


# -- in a net --------------------------------------------------------------------------------------


@lowers("RNN", "GRU", "LSTM")
def _recurrent(n: Call) -> list[Value]:
    x, w, r, b = n[0], n[1], n[2], n.get(3)
    ways = _directions(n)
    names = _names(n, len(ways))
    plain = all(name in ("sigmoid", "tanh", "relu") for name in names)
    rows_first = bool(n.attr("layout", 0))
    steps, batch = x.shape[1 if rows_first else 0], x.shape[0 if rows_first else 1]
    lengths = n.get(4)
    if lengths is not None:
        same = lengths.array is not None and bool((lengths.array == steps).all())
        plain &= same
    plain &= not n.attr("clip", 0.0) and not n.attr("input_forget", 0) and n.get(7) is None
    if not plain or not x.is_float or not 0 < steps * len(ways) <= _MOST_STEPS:
        raise NotHere
    if n.is_one_of_many and steps > _FEW_STEPS:
        raise NotHere
    if rows_first:
        x = n.op("transpose", x, perm=[1, 0, 2])
    size, each = r.shape[-1], len(names) // len(ways)
    rows = n.reshape(x, [steps * batch, x.shape[2]])
    made, last = [], ([], [])
    for way, backwards in enumerate(ways):
        cell = _Cell(n, way, size, names[way * each :][:each], w, r, b)
        given = n.reshape(cell.project(rows), [steps, batch, cell.count * size])
        state = [_initial(n, n.get(5 + i), way, size, x.dtype) for i in range(2)]
        outs: list[Value] = []
        for t in range(steps)[:: -1 if backwards else 1]:
            part = n.op("slice", given, axes=[0], starts=[t], ends=[t + 1])
            part = n.reshape(part, [batch, given.shape[2]])
            state = cell.step(part, state)
            outs.append(state[0])
        made.append(n.op("stack", outs[:: -1 if backwards else 1], axis=0))
        for values, value in zip(last, state, strict=True):
            values.append(value)
    y = n.op("stack", made, axis=1)
    ends = [n.op("stack", values, axis=0) for values in last]
    if rows_first:
        y = n.op("transpose", y, perm=[2, 0, 1, 3])
        ends = [n.op("transpose", value, perm=[1, 0, 2]) for value in ends]
    return [y, *ends] if n.node.op == "LSTM" else [y, ends[0]]


def _initial(n: Call, given: Value | None, way: int, size: int, dtype: np.dtype) -> Value:
    if given is None or (given.array is not None and not given.array.any()):
        return n.const(np.zeros((1, size)), dtype)  # of one row, which all rows share
    rows_first = bool(n.attr("layout", 0))
    return _part(n, n.op("transpose", given, perm=[1, 0, 2]) if rows_first else given, way)


def _part(n: Call, value: Value, way: int) -> Value:
    """What belongs to one direction."""
    if value.shape[0] > 1:
        value = n.op("slice", value, axes=[0], starts=[way], ends=[way + 1])
    return n.reshape(value, list(value.shape[1:]))


class _Cell:
    """One direction of a layer in a net."""

    def __init__(
        self,
        n: Call,
        way: int,
        size: int,
        names: Sequence[str],
        w: Value,
        r: Value,
        b: Value | None,
    ) -> None:
        self.n, self.size, self.names = n, size, names
        self.w, self.r = _part(n, w, way), _part(n, r, way)
        self.bias = None if b is None else _part(n, b, way)
        self.count = _GATES[n.node.op]
        self.resets_late = n.node.op == "GRU" and bool(n.attr("linear_before_reset", 0))

    def _cut(self, value: Value, begin: int, end: int, axis: int = -1) -> Value:
        """Gates begin to end of an array that holds all."""
        at = axis % value.ndim
        return self.n.op(
            "slice", value, axes=[at], starts=[begin * self.size], ends=[end * self.size]
        )

    def project(self, rows: Value) -> Value:
        """What the inputs of all steps give the gates."""
        n, made = self.n, self.n.op("matmul", rows, self.w, transpose_y=True)
        if self.bias is None:
            return made
        first = self._cut(self.bias, 0, self.count)
        if self.n.node.op != "GRU":
            return n.op(
                "add",
                made,
                n.op(
                    "add",
                    first,
                    self._cut(self.bias, 4, 8) if self.count == 4 else self._cut(self.bias, 1, 2),
                ),
            )
        return n.op("add", made, first)

    def _product(self, h: Value, begin: int, end: int) -> Value:
        """What a state gives gates begin to end, with the bias of a GRU."""
        n = self.n
        weights = self.r if end - begin == self.count else self._cut(self.r, begin, end, 0)
        made = n.op("matmul", h, weights, transpose_y=True)
        if self.n.node.op == "GRU" and self.bias is not None:
            made = n.op("add", made, self._cut(self.bias, 3 + begin, 3 + end))
        return made

    def step(self, x: Value, state: list[Value]) -> list[Value]:
        """The next states."""
        n, (h, c), names = self.n, state, self.names
        if n.node.op == "RNN":
            return [n.op(names[0], n.op("add", x, self._product(h, 0, 1))), c]
        if n.node.op == "LSTM":
            gates = n.op("add", x, self._product(h, 0, 4))
            i, o, f = (n.op(names[0], self._cut(gates, k, k + 1)) for k in range(3))
            new = n.op(names[1], self._cut(gates, 3, 4))
            c = n.op("add", n.op("mul", f, c), n.op("mul", i, new))
            return [n.op("mul", o, n.op(names[2], c)), c]
        gates = n.op("add", self._cut(x, 0, 2), self._product(h, 0, 2))
        z, r = (n.op(names[0], self._cut(gates, k, k + 1)) for k in range(2))
        if self.resets_late:
            inner = n.op("mul", r, self._product(h, 2, 3))
        else:
            inner = self._product(n.op("mul", r, h), 2, 3)
        new = n.op(names[1], n.op("add", self._cut(x, 2, 3), inner))
        return [n.op("add", new, n.op("mul", z, n.op("sub", h, new))), c]
