"""Layers of recurrent cells over sequences: stacks of recurrent nets, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...framework.base.dtypes import SINGLE
from ...framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ...framework.ir.desc import INPUT, caller_location, make_op
from ...framework.ir.names import steps_name
from .calls import where
from .cells import CellParameters, LSTMState, has_parameters
from .loops import append_loop
from .methods import layer, takes
from .net_builder import NetBuilder
from .recurrent import check_boot, loop_title
from .var import Var


@dataclass(frozen=True, kw_only=True)
class RecurrentOptions:
    """What all recurrent layers take by keyword; see `lstm`."""

    layers: int = 1
    bidirectional: bool = False
    reverse: bool = False
    dropout: float = 0.0
    initial: Any = None
    carry: int = 0
    keep: Any = None
    init: Any = "xavier"
    lr_factor: float | None = None
    trainable: bool = True
    name: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of a cell that concern its parameters, except their first values."""
        return {"lr_factor": self.lr_factor, "trainable": self.trainable}


@dataclass(frozen=True)
class _Cell:
    """A kind of cell, as a stack of layers needs it.

    Attributes:
        title: of its layers, in messages.
        stem: of the names of its layers.
        size: width of its states.
        states: their names; the first is the cell's output.
        parameters: (maker of parameters, width of a row) -> parameters by slot.
        attrs: further attributes of the operator, which is called as the title is.
        projection: width of the first state; 0 = size.
    """

    title: str
    stem: str
    size: int
    states: tuple[str, ...]
    parameters: Callable[[CellParameters, int], Mapping[str, Var]]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    projection: int = 0

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.projection or self.size, *[self.size] * (len(self.states) - 1))

    def initial_states(self, value: Any) -> Sequence[Any]:
        """The states that `initial` holds for one layer and direction; None: zeros."""
        if len(self.states) == 1:
            return [value]
        if value is None:
            return [None] * len(self.states)
        if not isinstance(value, (tuple, list)) or len(value) != len(self.states):
            names = ", ".join(self.states)
            raise AttributeTypeError(
                f"{self.title}: an initial state is a pair ({names}), not {value!r}"
            )
        return value


@layer("w_x")
@takes(RecurrentOptions)
def simple_rnn(
    builder: NetBuilder, x: Var | str, size: int, *, activation: str = "tanh", **options: Any
) -> tuple[Var, list[Any]]:
    """Layers of a simple RNN over sequences; see `rnn_cell`, and `lstm` for the arguments."""
    common = RecurrentOptions(**options)

    def parameters(p: CellParameters, width: int) -> Mapping[str, Var]:
        return p.rnn(width, size)

    attrs = {"activation": activation}
    return _stack(builder, _Cell("simple_rnn", "rnn", size, ("h",), parameters, attrs), x, common)


@layer("w_x")
@takes(RecurrentOptions)
def gru(
    builder: NetBuilder, x: Var | str, size: int, *, reset_after: bool = True, **options: Any
) -> tuple[Var, list[Any]]:
    """Layers of a GRU over sequences; see `gru_cell`, and `lstm` for the arguments."""
    common = RecurrentOptions(**options)

    def parameters(p: CellParameters, width: int) -> Mapping[str, Var]:
        return p.gru(width, size, reset_after=reset_after)

    return _stack(builder, _Cell("gru", "gru", size, ("h",), parameters), x, common)


@layer("w_x")
@takes(RecurrentOptions)
def lstm(
    builder: NetBuilder,
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
        keep: [sequences, 1] with carry: 0 where a new sequence starts, else 1.
        init, lr_factor, trainable: of the parameters, which are named after the layer:
            `name.w_x`, with several layers `name.l0.w_x`, and of those that go backwards
            `name.reverse.w_x`.
        name: of the result.

    Returns:
        out: sequences [rows, H], or of twice that width. last: for each layer, forward before
        backward, the last states of all sequences: h [sequences, H], or h and c.
    """
    common = RecurrentOptions(**options)

    def parameters(p: CellParameters, width: int) -> Mapping[str, Var]:
        own: dict[str, Any] = {"peepholes": peepholes, "projection": projection}
        return p.lstm(width, size, **own, forget_bias=forget_bias)

    attrs = {"projection": projection} if projection else {}
    cell = _Cell("lstm", "lstm", size, ("h", "c"), parameters, attrs, projection)
    return _stack(builder, cell, x, common)


def _stack(
    builder: NetBuilder, cell: _Cell, x: Any, options: RecurrentOptions
) -> tuple[Var, list[Any]]:
    """Layers of a cell, each over the one below."""
    _check(cell, options)
    _check_sequences(builder, cell.title, x)
    name = builder.layer_name(options.name, cell.stem)
    ways = [False, True] if options.bidirectional else [options.reverse]
    wanted = options.layers * len(ways)
    if isinstance(options.initial, (Var, str)):
        raise AttributeTypeError(
            f"{cell.title}: `initial` is a list of states, one for each layer and direction:"
            f" initial=[{options.initial}], not one variable"
        )
    if options.initial is not None and len(options.initial) != wanted:
        raise AttributeTypeError(
            f"{cell.title}: `initial` wants {wanted} states, one for each layer and direction, not"
            f" {len(options.initial)}"
        )
    last: list[Any] = []
    for number in range(options.layers):
        if number and options.dropout:
            x = builder.dropout(x, p=options.dropout)
        top = number == options.layers - 1
        own = f"{name}.l{number}" if options.layers > 1 else name
        directions = []
        for reverse in ways:
            prefix = own + ".reverse" if reverse and options.bidirectional else own
            initial = options.initial[len(last)] if options.initial is not None else None
            alone = top and len(ways) == 1
            out = name if alone else f"{prefix}.{'forward' if not reverse else 'out'}"
            direction = _Direction(builder, cell, x, options, prefix, out, reverse)
            states, state = direction.append(initial)
            directions.append(states)
            last.append(state)
        both = name if top else f"{own}.out"
        x = builder.concat(directions, axis=1, name=both) if len(ways) > 1 else directions[0]
    return x, last


def _check(cell: _Cell, options: RecurrentOptions) -> None:
    if cell.size < 1 or options.layers < 1 or cell.projection < 0:
        raise AttributeTypeError(
            f"{cell.title}: wants size >= 1, layers >= 1 and projection >= 0, not {cell.size},"
            f" {options.layers} and {cell.projection}"
        )
    if options.bidirectional and (options.reverse or options.carry):
        raise AttributeTypeError(
            f"{cell.title}: a bidirectional layer goes both ways; leave `reverse` and `carry` away"
        )


def _check_sequences(builder: NetBuilder, title: str, x: Any) -> None:
    """Refuse a dense array [N, T, K], which holds no sequences."""
    var = builder.declared(x)
    if var.shape is None or len(var.shape) < 3:
        return
    name = var.name if var.kind == INPUT else "x"
    raise ShapeError(
        f"{where()}: {title}: {var.name!r} {format_shape(var.shape)} holds no sequences. Declare"
        f" the input as input({name!r}, {[-1, var.shape[-1]]}, levels=1) and feed a list of arrays,"
        " one for each sequence; a padded batch [S, T, K] becomes sequences by sequence_unpad"
    )


@dataclass(frozen=True)
class _Direction:
    """One layer in one direction.

    Attributes:
        prefix: of the names of parameters and states.
        out: name of the result.
    """

    builder: NetBuilder
    cell: _Cell
    x: Any
    options: RecurrentOptions
    prefix: str
    out: str
    reverse: bool

    def append(self, initial: Any) -> tuple[Var, Any]:
        """Append it; returns the states of all steps, and the last ones.

        Args:
            initial: what the states start from; None: zeros, or states that are carried.
        """
        cell = self.cell
        starts = cell.initial_states(initial)
        carried = []
        if self.options.carry:
            if any(start is not None for start in starts):
                raise AttributeTypeError(f"{cell.title}: states are either `initial` or carried")
            starts = []
            for width, state in zip(cell.widths, cell.states, strict=True):
                shape = [self.options.carry, width]
                name = f"{self.prefix}.carried_{state}"
                start, variable = self.builder.carried(shape, keep=self.options.keep, name=name)
                starts.append(start)
                carried.append(variable)
        activation = cell.attrs.get("activation", "")
        run = self._step_block if activation and has_parameters(activation) else self._whole
        states, *last = run(starts)
        for variable, value in zip(carried, last, strict=False):
            self.builder.carry(variable, value)
        return states, last[0] if len(last) == 1 else LSTMState(*last)

    def _whole(self, starts: Sequence[Any]) -> Sequence[Var]:
        """The operator of the whole layer: the states of all steps, and the last ones."""
        builder = self.builder
        cell = self.cell
        p = CellParameters(builder, self.prefix, self.options.init, **self.options.parameters)
        inputs = {"x": self.x, **cell.parameters(p, p.width(self.x, "x"))}
        for state, width, start in zip(cell.states, cell.widths, starts, strict=True):
            if start is not None:
                declared = builder.declared(start)
                if declared.shape is not None:
                    check_boot(loop_title(self.out), declared, (width,))
                inputs[state] = start
        last = {f"last_{state}": f"{self.prefix}.{state}" for state in cell.states}
        outputs = {"out": self.out, **last, "steps": builder.unique_name(steps_name(self.out))}
        attrs: dict[str, Any] = {"size": cell.size, **cell.attrs}
        if self.reverse:
            attrs["reverse"] = True
        if builder.dtype != SINGLE:
            attrs["dtype"] = builder.dtype
        slots = {slot: str(value) for slot, value in inputs.items()}
        op = make_op(cell.title, slots, outputs, attrs)
        return append_loop(builder, op, self.out, ("out", *last), caller_location())

    def _step_block(self, starts: Sequence[Any]) -> Sequence[Var]:
        """As `_whole`, for a simple RNN whose activation has parameters: no operator has these."""
        builder = self.builder
        options = self.options
        with builder.recurrent(self.out, reverse=self.reverse) as block:
            row = block.input(self.x)
            before = block.memory(self.cell.size, boot=starts[0], name=f"{self.prefix}.h_before")
            own = {**self.cell.attrs, **options.parameters, "init": options.init}
            after = builder.rnn_cell(row, before, **own, name=self.prefix)
            block.update(before, after)
            return block.output(after), block.final(before, f"{self.prefix}.h")
