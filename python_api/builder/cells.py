"""Recurrent cells, and layers of them over sequences: simple RNN, LSTM, GRU.

A cell (`lstm_cell`, ...) is one step: ordinary operators with their parameters, to be used inside a
block of `b.recurrent`. A layer (`lstm`, ...) is a stack of recurrent nets over whole sequences, in
one or both directions. Gates stand side by side in the columns of the weights, in PyTorch's order;
its weights are the transposes of ours, and its two biases one of ours, except in the GRU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError, format_shape
from .variable import Var

if TYPE_CHECKING:
    from .recurrent import Step


class LSTMState(NamedTuple):
    """Both states of an LSTM: `h`, which it gives out, and `c`, which it keeps to itself."""

    h: Var
    c: Var


class Cells:
    """The recurrent layers of NetBuilder, which provides what they stand on."""

    if TYPE_CHECKING:
        dtype: np.dtype
        add_op: Callable[..., Any]
        affine: Callable[..., Var]
        matmul: Callable[..., Var]
        split: Callable[..., tuple[Var, ...]]
        concat: Callable[..., Var]
        dropout: Callable[..., Var]
        sigmoid: Callable[..., Var]
        tanh: Callable[..., Var]
        add: Callable[..., Var]
        parameter: Callable[..., Var]
        unique_name: Callable[[str], str]
        recurrent: Callable[..., Step]
        carried: Callable[..., tuple[Var, Var]]
        carry: Callable[..., None]
        shape_of: Callable[[str], tuple[int, ...] | None]

    # -- cells ---------------------------------------------------------------------------------

    def rnn_cell(
        self,
        x: Var | str,
        h: Var | str,
        *,
        activation: str = "tanh",
        init: Any = "xavier",
        lr_factor: float | None = None,
        name: str = "",
    ) -> Var:
        """One step of a simple RNN: h' = activation(x w_x + h w_h + b).

        Args:
            x: [N, K]. h: [N, H], the state before.
            activation: an activation operator.
            init, lr_factor: of the parameters `name.w_x` [K, H], `name.w_h` [H, H], `name.b` [H].

        Returns:
            [N, H]
        """
        p = _Parameters(self, name or self.unique_name("rnn_cell"), init, lr_factor)
        width, size = p.width(x, "x"), p.width(h, "h")
        both = p.product(x, width, h, size, size)
        return self.add_op(activation.lower(), both)

    def lstm_cell(
        self,
        x: Var | str,
        h: Var | str,
        c: Var | str,
        *,
        peepholes: bool = False,
        projection: int = 0,
        forget_bias: float = 0.0,
        init: Any = "xavier",
        lr_factor: float | None = None,
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
            init, lr_factor: of the parameters `name.w_x` [K, 4H], `name.w_h` [H, 4H], `name.b`
                [4H], `name.p_i`, `name.p_f`, `name.p_o` [H], `name.w_proj` [H, projection].

        Returns:
            h' and c'.

        Source: F. A. Gers, N. N. Schraudolph and J. Schmidhuber, Learning precise timing with LSTM
        recurrent networks; H. Sak, A. Senior and F. Beaufays, Long short-term memory recurrent
        neural network architectures for large scale acoustic modeling.
        """
        p = _Parameters(self, name or self.unique_name("lstm_cell"), init, lr_factor)
        size, out = p.width(c, "c"), p.width(h, "h")
        if out != (projection or size):
            raise ShapeError(
                f"{p.name} (lstm_cell): h is {out} wide, and c {size}, with projection={projection}"
            )
        bias: Any = 0.0
        if forget_bias:
            bias = np.repeat([0.0, forget_bias, 0.0, 0.0], size)
        gates = p.product(x, p.width(x, "x"), h, out, 4 * size, bias)
        i, f, g, o = self.split(gates, axis=1, sections=[size] * 4)
        before = self._var(c)
        if peepholes:
            i = i + before * p.vector("p_i", size)
            f = f + before * p.vector("p_f", size)
        after = self.sigmoid(f) * before + self.sigmoid(i) * self.tanh(g)
        if peepholes:
            o = o + after * p.vector("p_o", size)
        shown = self.sigmoid(o) * self.tanh(after)
        if projection:
            shown = self.matmul(shown, p.matrix("w_proj", size, projection))
        return LSTMState(shown, after)

    def gru_cell(
        self,
        x: Var | str,
        h: Var | str,
        *,
        reset_after: bool = True,
        init: Any = "xavier",
        lr_factor: float | None = None,
        name: str = "",
    ) -> Var:
        """One step of a GRU, whose reset gate acts after (as in PyTorch) or before the product.

            r, z = sigmoid(x w_x + b + h w_h + b_h), the columns r and z
            n = tanh(x w_x + b + r (h w_h + b_h)), the columns n         reset_after
            n = tanh(x w_x + b + (r h) w_n)                              otherwise
            h' = (1 - z) n + z h

        Args:
            x: [N, K]. h: [N, H], the state before.
            init, lr_factor: of the parameters `name.w_x` [K, 3H], `name.b` [3H], and `name.w_h`
                [H, 3H], `name.b_h` [3H]; or, without reset_after, `name.w_h` [H, 2H], `name.w_n`
                [H, H].

        Returns:
            [N, H]

        Source: K. Cho et al., Learning phrase representations using RNN encoder-decoder for
        statistical machine translation; the form of PyTorch and cuDNN.
        """
        p = _Parameters(self, name or self.unique_name("gru_cell"), init, lr_factor)
        size = p.width(h, "h")
        before = self._var(h)
        given = self.affine(x, p.matrix("w_x", p.width(x, "x"), 3 * size), p.vector("b", 3 * size))
        if reset_after:
            sections = [size] * 3
            w_h, b_h = p.matrix("w_h", size, 3 * size), p.vector("b_h", 3 * size)
            x_r, x_z, x_n = self.split(given, axis=1, sections=sections)
            h_r, h_z, h_n = self.split(self.affine(before, w_h, b_h), axis=1, sections=sections)
            r, z = self.sigmoid(x_r + h_r), self.sigmoid(x_z + h_z)
            n = self.tanh(x_n + r * h_n)
        else:
            x_rz, x_n = self.split(given, axis=1, sections=[2 * size, size])
            gates = x_rz + self.matmul(before, p.matrix("w_h", size, 2 * size))
            r, z = self.split(self.sigmoid(gates), axis=1, sections=[size] * 2)
            n = self.tanh(x_n + self.matmul(r * before, p.matrix("w_n", size, size)))
        return n + z * (before - n)

    def _var(self, x: Var | str) -> Var:
        return x if isinstance(x, Var) else Var(self, x)  # type: ignore[arg-type]

    # -- layers --------------------------------------------------------------------------------

    def simple_rnn(
        self, x: Var | str, size: int, *, activation: str = "tanh", **options: Any
    ) -> tuple[Var, list[Any]]:
        """Layers of a simple RNN over sequences; see `rnn_cell`, and `lstm` for the arguments."""
        return self._layers("rnn", _simple_step, x, size, {"activation": activation}, options)

    def gru(
        self, x: Var | str, size: int, *, reset_after: bool = True, **options: Any
    ) -> tuple[Var, list[Any]]:
        """Layers of a GRU over sequences; see `gru_cell`, and `lstm` for the arguments."""
        return self._layers("gru", _gru_step, x, size, {"reset_after": reset_after}, options)

    def lstm(
        self,
        x: Var | str,
        size: int,
        *,
        peepholes: bool = False,
        projection: int = 0,
        forget_bias: float = 0.0,
        **options: Any,
    ) -> tuple[Var, list[Any]]:
        """Layers of an LSTM over sequences; see `lstm_cell`.

            out, last = b.lstm(x, 300)
            h, c = last[0]

        Args:
            x: sequences [rows, K].
            size: width H of the states.
            layers: how many, each over the one below.
            bidirectional: each layer goes both ways; out holds forward and backward side by side.
            reverse: one way, from the last step of each sequence to its first.
            dropout: of what goes from layer to layer, while training.
            initial: states that the sequences start from, one for each layer and direction, as
                returned: h [sequences, H], or (h, c). By default zeros.
            carry: sequences of each minibatch whose last states the next one starts from. That is
                truncated back-propagation: no gradient goes back to the minibatch before.
            keep: [sequences, 1] with carry: 0 where a sequence starts anew, else 1.
            init, lr_factor: of the parameters, which are named after the layer: `name.w_x`, with
                several layers `name.l0.w_x`, and of those that go backwards `name.reverse.w_x`.
            name: of the result.

        Returns:
            out: sequences [rows, H], or of twice that width. last: for each layer, forward before
            backward, the last states of all sequences: h [sequences, H], or h and c.
        """
        kind = {"peepholes": peepholes, "projection": projection, "forget_bias": forget_bias}
        return self._layers("lstm", _lstm_step, x, size, kind, options)

    def _layers(
        self,
        stem: str,
        step: Callable[..., Any],
        x: Any,
        size: int,
        kind: dict[str, Any],
        options: dict[str, Any],
    ) -> tuple[Var, list[Any]]:
        o = _Options(stem, options)
        if size < 1 or o.layers < 1 or kind.get("projection", 0) < 0:
            raise AttributeTypeError(
                f"{stem}: wants size >= 1, layers >= 1 and projection >= 0, not {size},"
                f" {o.layers} and {kind.get('projection', 0)}"
            )
        if o.bidirectional and (o.reverse or o.carry):
            raise AttributeTypeError(
                f"{stem}: a bidirectional layer goes both ways; leave `reverse` and `carry` away"
            )
        name = o.name or self.unique_name(stem)
        ways = [False, True] if o.bidirectional else [o.reverse]
        wanted = o.layers * len(ways)
        if o.initial is not None and len(o.initial) != wanted:
            raise AttributeTypeError(
                f"{stem}: `initial` wants {wanted} states, one for each layer and direction, not"
                f" {len(o.initial)}"
            )
        last: list[Any] = []
        for layer in range(o.layers):
            if layer and o.dropout:
                x = self.dropout(x, p=o.dropout)
            top = layer == o.layers - 1
            own = f"{name}.l{layer}" if o.layers > 1 else name
            parts = []
            for reverse in ways:
                prefix = own + ".reverse" if reverse and o.bidirectional else own
                boot = o.initial[len(last)] if o.initial is not None else None
                plain = top and len(ways) == 1
                out = name if plain else f"{prefix}.{'forward' if not reverse else 'out'}"
                made, state = step(self, x, size, kind, o, boot, prefix, out, reverse)
                parts.append(made)
                last.append(state)
            joined = name if top else f"{own}.out"
            x = self.concat(parts, axis=1, name=joined) if len(parts) > 1 else parts[0]
        return x, last

    def _boots(
        self, o: _Options, given: Sequence[Any], widths: Sequence[int], prefix: str, stem: str
    ) -> tuple[list[Any], list[Any]]:
        """Boot variables of a layer's memories, and the states that are carried on."""
        if not o.carry:
            return list(given), []
        if any(boot is not None for boot in given):
            raise AttributeTypeError(f"{stem}: states are either `initial` or carried")
        pairs = [
            self.carried([o.carry, width], keep=o.keep, name=f"{prefix}.carried_{part}")
            for width, part in zip(widths, "hc", strict=False)
        ]
        return [start for start, _ in pairs], [held for _, held in pairs]

    def _carry_all(self, held: Sequence[Any], last: Sequence[Any]) -> None:
        for state, value in zip(held, last, strict=False):
            self.carry(state, value)


class _Options:
    """What all recurrent layers take; the arguments of `Cells.lstm`."""

    layers: int = 1
    bidirectional: bool = False
    reverse: bool = False
    dropout: float = 0.0
    initial: Any = None
    carry: int = 0
    keep: Any = None
    init: Any = "xavier"
    lr_factor: float | None = None
    name: str = ""

    def __init__(self, stem: str, given: dict[str, Any]) -> None:
        for key, value in given.items():
            if key not in type(self).__annotations__:
                known = ", ".join(type(self).__annotations__)
                raise AttributeTypeError(f"{stem} has no argument {key!r}; it has {known}")
            setattr(self, key, value)

    @property
    def shared(self) -> dict[str, Any]:
        return {"init": self.init, "lr_factor": self.lr_factor}


class _Parameters:
    """Makes the parameters of one cell."""

    def __init__(self, b: Any, name: str, init: Any, lr_factor: float | None) -> None:
        self.b, self.name, self.init, self.lr_factor = b, name, init, lr_factor

    def width(self, x: Any, what: str) -> int:
        """The columns of a matrix that a parameter's shape depends on."""
        shape = self.b.shape_of(str(x))
        if shape is None or len(shape) != 2 or shape[1] < 0:
            raise ShapeError(
                f"{self.name}: {what}={str(x)!r} {format_shape(shape)} must be a matrix of a known"
                " width to make the parameters"
            )
        return shape[1]

    def matrix(self, part: str, rows: int, cols: int) -> Var:
        name = f"{self.name}.{part}"
        return self.b.parameter(name, [rows, cols], self.init, lr_factor=self.lr_factor)

    def vector(self, part: str, size: int, init: Any = 0.0) -> Var:
        return self.b.parameter(f"{self.name}.{part}", [size], init, lr_factor=self.lr_factor)

    def product(self, x: Any, width: int, h: Any, state: int, size: int, bias: Any = 0.0) -> Var:
        """x w_x + b + h w_h: what depends on x alone stands apart, so that it leaves the loop."""
        w_x, w_h = self.matrix("w_x", width, size), self.matrix("w_h", state, size)
        given = self.b.affine(x, w_x, self.vector("b", size, bias))
        return given + self.b.matmul(h, w_h)


# Each of these is one layer in one direction:
# (builder, x, size, arguments of the cell, options, initial state, names) -> out, last state.


def _lstm_step(
    b: Any, x: Any, size: int, kind: Any, o: _Options, boot: Any, prefix: str, out: str, back: bool
) -> tuple[Var, LSTMState]:
    widths = (kind["projection"] or size, size)
    given = _pair(boot)
    boots, held = b._boots(o, given, widths, prefix, "lstm")
    with b.recurrent(out, reverse=back) as step:
        row = step.input(x)
        h = step.memory(widths[0], boot=boots[0], name=f"{prefix}.h_before")
        c = step.memory(widths[1], boot=boots[1], name=f"{prefix}.c_before")
        state = b.lstm_cell(row, h, c, name=prefix, **kind, **o.shared)
        step.update(h, state.h)
        step.update(c, state.c)
        made = step.output(state.h)
        last = LSTMState(step.final(h, f"{prefix}.h"), step.final(c, f"{prefix}.c"))
    b._carry_all(held, last)
    return made, last


def _pair(boot: Any) -> tuple[Any, Any]:
    if boot is None:
        return None, None
    if not isinstance(boot, (tuple, list)) or len(boot) != 2:
        raise AttributeTypeError(f"lstm: an initial state is a pair (h, c), not {boot!r}")
    return boot[0], boot[1]


def _one_state(cell: str, stem: str) -> Callable[..., Any]:
    """The layer of a cell with a single state."""

    def layer(
        b: Any,
        x: Any,
        size: int,
        kind: Any,
        o: _Options,
        boot: Any,
        prefix: str,
        out: str,
        back: bool,
    ) -> tuple[Var, Var]:
        boots, held = b._boots(o, (boot,), (size,), prefix, stem)
        with b.recurrent(out, reverse=back) as step:
            row = step.input(x)
            h = step.memory(size, boot=boots[0], name=f"{prefix}.h_before")
            state = getattr(b, cell)(row, h, name=prefix, **kind, **o.shared)
            step.update(h, state)
            made = step.output(state)
            last = step.final(h, f"{prefix}.h")
        b._carry_all(held, [last])
        return made, last

    return layer


_simple_step = _one_state("rnn_cell", "simple_rnn")
_gru_step = _one_state("gru_cell", "gru")
