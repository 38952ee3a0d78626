"""Recurrent cells: one step of a simple RNN, an LSTM or a GRU.

A cell is made of ordinary operators with their parameters, to be used inside a block of
`b.recurrent`. Gates are side by side in the columns of the weights, in PyTorch's order; its weights
are the transposes of ours, and its two biases one of ours, except in the GRU. Layers of cells over
whole sequences are in recurrent_layers.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...framework.base.errors import ShapeError, format_shape
from ...operators.control.cells import gru_state, lstm_memory, lstm_output
from .methods import builder_method
from .net_builder import NetBuilder
from .var import Var, as_var


class LSTMState(NamedTuple):
    """Both states of an LSTM: `h`, which it gives out, and `c`, which it keeps to itself."""

    h: Var
    c: Var


class CellParameters:
    """Makes the parameters of one cell."""

    def __init__(self, builder: NetBuilder, name: str, init: Any, **learned: Any) -> None:
        """`learned`: further arguments of `NetBuilder.parameter`, `lr_factor` and `trainable`."""
        self.builder, self.name = builder, name
        self.init, self.learned = init, learned

    def width(self, x: Any, what: str) -> int:
        """The columns of a matrix that a parameter's shape depends on."""
        shape = self.builder.shape_of(x)
        if shape is None or len(shape) != 2 or shape[1] < 0:
            raise ShapeError(
                f"{self.name}: {what}={str(x)!r} {format_shape(shape)} must be a matrix of a known"
                " width to make the parameters"
            )
        return shape[1]

    def matrix(self, part: str, rows: int, cols: int) -> Var:
        name = f"{self.name}.{part}"
        return self.builder.parameter(name, [rows, cols], self.init, **self.learned)

    def vector(self, part: str, size: int, init: Any = 0.0) -> Var:
        return self.builder.parameter(f"{self.name}.{part}", [size], init, **self.learned)

    def product(self, x: Any, width: int, h: Any, state: int, size: int, bias: Any = 0.0) -> Var:
        """x w_x + b + h w_h, with x w_x + b as an operator of its own, which can leave the loop."""
        w_x, w_h = self.matrix("w_x", width, size), self.matrix("w_h", state, size)
        from_x = self.builder.affine(x, w_x, self.vector("b", size, bias))
        return from_x + self.builder.matmul(h, w_h)


@builder_method
def rnn_cell(
    builder: NetBuilder,
    x: Var | str,
    h: Var | str,
    *,
    activation: str = "tanh",
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """One step of a simple RNN: h' = activation(x w_x + h w_h + b).

    Args:
        x: [N, K]. h: [N, H], the state before.
        activation: an activation operator.
        init, lr_factor, trainable: of the parameters `name.w_x` [K, H], `name.w_h` [H, H],
            `name.b` [H].

    Returns:
        [N, H]
    """
    name = name or builder.unique_name("rnn_cell")
    p = CellParameters(builder, name, init, lr_factor=lr_factor, trainable=trainable)
    width, size = p.width(x, "x"), p.width(h, "h")
    both = p.product(x, width, h, size, size)
    return builder.add_op(activation, both)


@builder_method
def lstm_cell(
    builder: NetBuilder,
    x: Var | str,
    h: Var | str,
    c: Var | str,
    *,
    peepholes: bool = False,
    projection: int = 0,
    forget_bias: float = 0.0,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> LSTMState:
    """One step of an LSTM.

        i, f, g, o = x w_x + h w_h + b
        c' = sigmoid(f) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    With peepholes i and f also see c, and o sees c', each through weights of its own:
    i + p_i c, f + p_f c, o + p_o c'. With a projection h' = (sigmoid(o) tanh(c')) w_proj.

    Args:
        x: [N, K]. h: [N, H], or [N, projection]. c: [N, H]; the states before.
        projection: width of h; 0 = H, without projection.
        forget_bias: first value of the columns f of b; 1 makes it remember from the start.
        init, lr_factor, trainable: of the parameters `name.w_x` [K, 4H], `name.w_h` [H, 4H],
            `name.b` [4H], `name.p_i`, `name.p_f`, `name.p_o` [H], `name.w_proj` [H, projection].

    Returns:
        h' and c'.

    Source: F. A. Gers, N. N. Schraudolph and J. Schmidhuber, Learning precise timing with LSTM
    recurrent networks; H. Sak, A. Senior and F. Beaufays, Long short-term memory recurrent
    neural network architectures for large scale acoustic modeling.
    """
    name = name or builder.unique_name("lstm_cell")
    p = CellParameters(builder, name, init, lr_factor=lr_factor, trainable=trainable)
    size, out = p.width(c, "c"), p.width(h, "h")
    if out != (projection or size):
        raise ShapeError(
            f"{p.name} (lstm_cell): h is {out} wide, and c {size}, with projection={projection}"
        )
    bias: Any = 0.0
    if forget_bias:
        bias = np.repeat([0.0, forget_bias, 0.0, 0.0], size)
    gates = p.product(x, p.width(x, "x"), h, out, 4 * size, bias)
    i, f, g, o = builder.split(gates, axis=1, sections=[size] * 4)
    before = as_var(builder, c)
    if peepholes:
        i = i + before * p.vector("p_i", size)
        f = f + before * p.vector("p_f", size)
    after = lstm_memory(builder.add_op, i, f, g, before)
    if peepholes:
        o = o + after * p.vector("p_o", size)
    shown = lstm_output(builder.add_op, o, after)
    if projection:
        shown = builder.matmul(shown, p.matrix("w_proj", size, projection))
    return LSTMState(shown, after)


@builder_method
def gru_cell(
    builder: NetBuilder,
    x: Var | str,
    h: Var | str,
    *,
    reset_after: bool = True,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """One step of a GRU, whose reset gate acts after (as in PyTorch) or before the product.

        r, z = sigmoid(x w_x + b + h w_h + b_h), the columns r and z
        n = tanh(x w_x + b + r (h w_h + b_h)), the columns n         reset_after
        n = tanh(x w_x + b + (r h) w_n)                              otherwise
        h' = (1 - z) n + z h

    Args:
        x: [N, K]. h: [N, H], the state before.
        init, lr_factor, trainable: of the parameters `name.w_x` [K, 3H], `name.b` [3H], and
            `name.w_h` [H, 3H], `name.b_h` [3H]; or, without reset_after, `name.w_h` [H, 2H],
            `name.w_n` [H, H].

    Returns:
        [N, H]

    Source: K. Cho et al., Learning phrase representations using RNN encoder-decoder for
    statistical machine translation; the form of PyTorch and cuDNN.
    """
    name = name or builder.unique_name("gru_cell")
    p = CellParameters(builder, name, init, lr_factor=lr_factor, trainable=trainable)
    size = p.width(h, "h")
    before = as_var(builder, h)
    from_x = builder.affine(x, p.matrix("w_x", p.width(x, "x"), 3 * size), p.vector("b", 3 * size))
    if reset_after:
        sections = [size] * 3
        w_h, b_h = p.matrix("w_h", size, 3 * size), p.vector("b_h", 3 * size)
        x_r, x_z, x_n = builder.split(from_x, axis=1, sections=sections)
        h_r, h_z, h_n = builder.split(builder.affine(before, w_h, b_h), axis=1, sections=sections)
        r, z = builder.sigmoid(x_r + h_r), builder.sigmoid(x_z + h_z)
        n = builder.tanh(x_n + r * h_n)
    else:
        x_rz, x_n = builder.split(from_x, axis=1, sections=[2 * size, size])
        gates = x_rz + builder.matmul(before, p.matrix("w_h", size, 2 * size))
        r, z = builder.split(builder.sigmoid(gates), axis=1, sections=[size] * 2)
        n = builder.tanh(x_n + builder.matmul(r * before, p.matrix("w_n", size, size)))
    return gru_state(builder.add_op, z, n, before)
