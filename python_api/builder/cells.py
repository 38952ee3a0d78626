"""Recurrent cells: one step of a simple RNN, an LSTM or a GRU.

A cell is a composite operator with its parameters, to be used inside a block of `b.recurrent`.
Gates are side by side in the columns of the weights, in PyTorch's order; its weights are the
transposes of ours, and its two biases one of ours, except in the GRU. Layers of cells over whole
sequences are in recurrent_layers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...framework.base.errors import ShapeError, format_shape
from ...framework.base.sequence import repeated
from ...framework.ir.registry import lookup
from .methods import layer, takes
from .net_builder import NetBuilder
from .var import Var


class LSTMState(NamedTuple):
    """Both states of an LSTM: `h`, which it gives out, and `c`, which it keeps to itself."""

    h: Var
    c: Var


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """What all cells take by keyword, about their parameters; see `rnn_cell`."""

    init: Any = "xavier"
    lr_factor: float | None = None
    trainable: bool = True
    name: str = ""


class CellParameters:
    """Makes the parameters of one cell, and the cell."""

    @classmethod
    def of(cls, builder: NetBuilder, kind: str, o: CellOptions) -> CellParameters:
        """The parameters of a cell that may have no name yet."""
        name = builder.layer_name(o.name, kind)
        return cls(builder, name, o.init, lr_factor=o.lr_factor, trainable=o.trainable)

    def __init__(self, builder: NetBuilder, name: str, init: Any, **learned: Any) -> None:
        """`learned`: further arguments of `NetBuilder.parameter`, `lr_factor` and `trainable`."""
        self.builder = builder
        self.name = name
        self.init = init
        self.learned = learned

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

    def rnn(self, width: int, size: int) -> dict[str, Var]:
        """The parameters of an `rnn_cell` over rows of `width`, by slot."""
        return {
            "w_x": self.matrix("w_x", width, size),
            "w_h": self.matrix("w_h", size, size),
            "b": self.vector("b", size),
        }

    def lstm(
        self, width: int, size: int, *, peepholes: bool, projection: int, forget_bias: float
    ) -> dict[str, Var]:
        """The parameters of an `lstm_cell` over rows of `width`, by slot."""
        bias: Any = 0.0
        if forget_bias:
            bias = repeated([0.0, forget_bias, 0.0, 0.0], size)
        parameters = {
            "w_x": self.matrix("w_x", width, 4 * size),
            "w_h": self.matrix("w_h", projection or size, 4 * size),
            "b": self.vector("b", 4 * size, bias),
        }
        if peepholes:
            parameters |= {f"p_{gate}": self.vector(f"p_{gate}", size) for gate in "ifo"}
        if projection:
            parameters["w_proj"] = self.matrix("w_proj", size, projection)
        return parameters

    def gru(self, width: int, size: int, *, reset_after: bool) -> dict[str, Var]:
        """The parameters of a `gru_cell` over rows of `width`, by slot."""
        parameters = {"w_x": self.matrix("w_x", width, 3 * size), "b": self.vector("b", 3 * size)}
        if reset_after:
            own = {"w_h": self.matrix("w_h", size, 3 * size), "b_h": self.vector("b_h", 3 * size)}
        else:
            own = {"w_h": self.matrix("w_h", size, 2 * size), "w_n": self.matrix("w_n", size, size)}
        return parameters | own

    def cell(self, op_type: str, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Append the operator; its results are called after the cell, so that the numbers of cells
        without a name count cells alone."""
        name = self.builder.unique_name(f"{self.name}.step")
        return self.builder.append(lookup(op_type), inputs, given, name=name)


@layer("w_x")
@takes(CellOptions)
def rnn_cell(
    builder: NetBuilder,
    x: Var | str,
    h: Var | str,
    *,
    activation: str = "tanh",
    **options: Any,
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
    p = CellParameters.of(builder, "rnn_cell", CellOptions(**options))
    width, size = p.width(x, "x"), p.width(h, "h")
    learned = p.rnn(width, size)
    if has_parameters(activation):
        linear = p.cell("rnn_cell", (x, h), {**learned, "activation": ""})
        return builder.add_op(activation, linear)
    return p.cell("rnn_cell", (x, h), {**learned, "activation": activation})


def has_parameters(activation: str) -> bool:
    """Whether an activation has parameters, so that a cell cannot hold it."""
    return sum(not slot.optional for slot in lookup(activation).inputs) > 1


@layer("w_x")
@takes(CellOptions)
def lstm_cell(
    builder: NetBuilder,
    x: Var | str,
    h: Var | str,
    c: Var | str,
    *,
    peepholes: bool = False,
    projection: int = 0,
    forget_bias: float = 0.0,
    **options: Any,
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
    p = CellParameters.of(builder, "lstm_cell", CellOptions(**options))
    size, out = p.width(c, "c"), p.width(h, "h")
    if out != (projection or size):
        raise ShapeError(
            f"{p.name} (lstm_cell): h is {out} wide, and c {size}, with projection={projection}"
        )
    own: dict[str, Any] = {"peepholes": peepholes, "projection": projection}
    learned = p.lstm(p.width(x, "x"), size, **own, forget_bias=forget_bias)
    return LSTMState(*p.cell("lstm_cell", (x, h, c), {**learned, "size": size}))


@layer("w_x")
@takes(CellOptions)
def gru_cell(
    builder: NetBuilder,
    x: Var | str,
    h: Var | str,
    *,
    reset_after: bool = True,
    **options: Any,
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
    p = CellParameters.of(builder, "gru_cell", CellOptions(**options))
    size = p.width(h, "h")
    learned = p.gru(p.width(x, "x"), size, reset_after=reset_after)
    return p.cell("gru_cell", (x, h), {**learned, "size": size})
