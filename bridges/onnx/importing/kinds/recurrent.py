"""Recurrent layers: RNN, GRU, LSTM as a Scan over a step, for ONNX and, by `Cell`, for PyTorch.

A layer is written out as nodes. So the code for loops runs it: it becomes the operator
`recurrent`, and where it is trained, steps one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from .....framework.ir.registry import lookup
from .....operators.names import Name, names_in
from ..calls import Attributes, Call, Kind, Value, expands
from ..graph import Graph, Node
from . import constants  # noqa: F401  # its rules are those of the nodes that a loop becomes
from .selection import turned

_GATES = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""Where weights of ONNX have the gates of an RNN; r, z, n of a GRU; i, f, g, o of an LSTM."""
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_TABLED: dict[str, Name] = {
    name.lower(): names_in("onnx")[name][0]
    for name in "Sigmoid Tanh Relu LeakyRelu HardSigmoid Elu Softsign Softplus".split()
}
_OWN = {"affine": (1.0, 0.0), "thresholdedrelu": (1.0,), "scaledtanh": (1.0, 1.0)}
"""Functions that the table of names does not have: defaults of alpha and beta."""


@dataclass(frozen=True)
class Function:
    """An activation.

    Attributes:
        name: in lower case, as ONNX calls it. numbers: alpha and beta, as far as it has them.
    """

    name: str
    numbers: tuple[float, ...] = ()

    def of(self, n: Call, x: Value) -> Value:
        """Its value."""
        if self.name in _TABLED:
            name = _TABLED[self.name]
            attrs: dict[str, Any] = dict(zip(name.attrs.values(), self.numbers, strict=True))
            return n.op(name.type, x, **attrs)
        if self.name == "affine":
            return n.op("scale", x, scale=self.numbers[0], bias=self.numbers[1])
        if self.name == "scaledtanh":
            inner = n.op("tanh", n.op("scale", x, scale=self.numbers[1]))
            return n.op("scale", inner, scale=self.numbers[0])
        above = n.op("greater", x, n.const(self.numbers[0], x.dtype))
        return n.op("where", above, x, n.const(0, x.dtype))


SIGMOID, TANH, RELU = (Function(name) for name in ("sigmoid", "tanh", "relu"))


@dataclass(frozen=True)
class Matrix:
    """The second factor of a product.

    Attributes:
        value: of floats [results, K], or of 8-bit integers [K, results].
        scale, zero: of the integers, one or one for each result.
    """

    value: Value
    scale: Value | None = None
    zero: Value | None = None

    def times(self, n: Call, x: Value) -> Value:
        """The product of x [..., K], which integers round to 8 bits in a scale of its own."""
        if self.scale is None:
            return n.op("matmul", x, self.value, transpose_y=True)
        slots = ("out", "scale", "zero")
        rounded, scale, zero = n.op("dynamic_quantize_linear", x, outs=slots)
        factor = n.op("mul", scale, self.scale)
        return n.op("integer_matmul", rounded, self.value, zero, self.zero, factor)


@dataclass(frozen=True)
class Cell:
    """One direction of a layer.

    Attributes:
        kind: RNN, GRU or LSTM.
        gates: where the weights have the gates, in the order of `_GATES`.
        functions: of the gates, of what is new, and of an LSTM's memory.
        resets_late: whether a GRU's reset gate meets the product with the state, not the state.
        limit: of what activations take; 0: none.
        is_coupled: whether an LSTM forgets as much as it does not take in.
    """

    kind: str
    gates: tuple[int, ...]
    functions: tuple[Function, ...]
    resets_late: bool = False
    limit: float = 0.0
    is_coupled: bool = False

    @property
    def states(self) -> int:
        """How many values a step hands to the next."""
        return 2 if self.kind == "LSTM" else 1

    def project(self, n: Call, x: Value, w: Matrix, biases: Sequence[Value | None]) -> Value:
        """What the inputs [T, N, K] of all steps give the gates."""
        projected = w.times(n, x)
        # A late reset gate meets the bias of the state alone, so that one waits for the step.
        for bias in biases[: 1 if self.kind == "GRU" else 2]:
            projected = projected if bias is None else n.op("add", projected, bias)
        return projected

    def step(self, n: Call) -> list[Value]:
        """The next states, and what the step gives out.

        The inputs of the node are the states, what `project` gives for the step, the weights and
        the bias of the state, peepholes, the weights of a projection, where sequences go on, and
        the scale and zero point of an LSTM's integer weights. All but the first four may be left
        out.
        """
        before = [n[k] for k in range(self.states)]
        x = n[self.states]
        r = n[self.states + 1]
        bias, peepholes, projection, alive, *numbers = (
            n.get(self.states + 2 + k) for k in range(6)
        )
        if self.kind == "LSTM":
            after = self._lstm(n, x, before, Matrix(r, *numbers), peepholes)
        elif self.kind == "GRU":
            after = [self._gru(n, x, before[0], r, bias)]
        else:
            gate = n.op("add", x, n.op("matmul", before[0], r, transpose_y=True))
            after = [self._activated(n, 0, gate)]
        if projection is not None:
            after[0] = n.op("matmul", after[0], projection, transpose_y=True)
        if alive is None or (alive.array is not None and alive.array.all()):
            return [*after, after[0]]
        out = n.op("where", alive, after[0], n.const(0, x.dtype))
        kept = (n.op("where", alive, *pair) for pair in zip(after, before, strict=True))
        return [*kept, out]

    def _lstm(
        self, n: Call, x: Value, before: Sequence[Value], r: Matrix, peepholes: Value | None
    ) -> list[Value]:
        h, c = before
        gates = n.op("add", x, r.times(n, h))
        parts = _parts(n, gates, 4)
        i, f, g, o = (parts[gate] for gate in self.gates)
        through: list[Value | None] = [None] * 3
        if peepholes is not None:
            through = [_cut(n, peepholes, gate, gate + 1, 3) for gate in range(3)]
        i = self._activated(n, 0, _seen(n, i, c, through[0]))
        if self.is_coupled:
            f = n.op("scale", i, scale=-1.0, bias=1.0)
        else:
            f = self._activated(n, 0, _seen(n, f, c, through[2]))
        c = n.op("add", n.op("mul", f, c), n.op("mul", i, self._activated(n, 1, g)))
        o = self._activated(n, 0, _seen(n, o, c, through[1]))
        return [n.op("mul", o, self.functions[2].of(n, c)), c]

    def _gru(self, n: Call, x: Value, h: Value, r: Value, bias: Value | None) -> Value:
        def product(state: Value, begin: int, end: int) -> Value:
            total = n.op("matmul", state, _cut(n, r, begin, end, 3, 0), transpose_y=True)
            return total if bias is None else n.op("add", total, _cut(n, bias, begin, end, 3))

        count = 3 if self.resets_late else 2  # what is new comes last, whatever the order
        from_h = product(h, 0, count)
        of_x = _parts(n, x, 3)
        of_h = _parts(n, from_h, count)
        reset, keep = (
            self._activated(n, 0, n.op("add", of_x[gate], of_h[gate])) for gate in self.gates[:2]
        )
        if self.resets_late:
            inner = n.op("mul", reset, of_h[2])
        else:
            inner = product(n.op("mul", reset, h), 2, 3)
        new = self._activated(n, 1, n.op("add", of_x[2], inner))
        return n.op("add", new, n.op("mul", keep, n.op("sub", h, new)))

    def _activated(self, n: Call, number: int, x: Value) -> Value:
        if self.limit:
            x = n.op("clip", x, minimum=-self.limit, maximum=self.limit)
        return self.functions[number].of(n, x)


def _parts(n: Call, value: Value, count: int) -> list[Value]:
    """The gates of a step, side by side in a value: a loop reads them as its columns, uncopied."""
    return n.op("split", value, axis=value.ndim - 1, outs=count)


def _cut(n: Call, value: Value, begin: int, end: int, count: int, axis: int = -1) -> Value:
    """Gates begin to end of an array that holds some, side by side."""
    at = axis % value.ndim
    if (begin, end) == (0, count):
        return value
    size = value.shape[at] // count
    if value.array is not None and not value.is_parameter:
        return n.const(value.array.take(range(begin * size, end * size), at))
    return n.op("slice", value, axes=[at], starts=[begin * size], ends=[end * size])


def _seen(n: Call, gate: Value, memory: Value, peephole: Value | None) -> Value:
    """A gate that looks at the memory through a peephole, where there is one."""
    return gate if peephole is None else n.op("add", gate, n.op("mul", memory, peephole))


def first_state(n: Call, given: Value | None, at: int, size: int, dtype: np.dtype) -> Value:
    """The first state of a direction, [N, H], from that of all; see `part`.

    Zeros are one row, which all rows share: so a net does not depend on their number.
    """
    if given is None or (given.array is not None and not given.array.any()):
        return n.const(np.zeros((1, size)), dtype)
    return part(n, given, at)


def part(n: Call, value: Value, at: int) -> Value:
    """A direction of what holds all along the first axis."""
    if value.array is not None and not value.is_parameter:
        return n.const(value.array[at])
    if value.shape[0] > 1:
        value = n.op("slice", value, axes=[0], starts=[at], ends=[at + 1])
    return n.reshape(value, list(value.shape[1:]))


@dataclass
class Layers:
    """Writes the nodes of the layers that a node stands for.

    Attributes:
        node: it. nodes: what is written.
    """

    node: Node
    nodes: list[Node] = field(default_factory=list)

    def add(
        self,
        what: str,
        rule: Callable[[Call], Any],
        inputs: Sequence[str],
        outputs: int | Sequence[str] = 1,
    ) -> list[str]:
        """Add a node with a rule of its own; the names of its results."""
        results = self._names(what, outputs) if isinstance(outputs, int) else list(outputs)
        self.nodes.append(self._node(f"{self.node.op}.{what}", rule, inputs, results))
        return results

    def of_way(self, at: int, given: Sequence[str]) -> list[str]:
        """The names of what a direction has of weights; "" for what is not given."""
        made = self.add("weights", partial(_weights, at=at), given, len(given))
        return [name * bool(one) for name, one in zip(made, given, strict=True)]

    def biases(self, at: int, given: str) -> list[str]:
        """The names of a direction's biases, of the input and of the state; "" without any."""
        return self.add("biases", partial(_biases, at=at), [given], 2) if given else ["", ""]

    def loop(
        self,
        cell: Cell,
        rows: str,
        states: Sequence[str],
        weights: Sequence[str],
        alive: str = "",
        *,
        numbers: Sequence[str] = (),
        backwards: bool = False,
    ) -> list[str]:
        """Add the Scan of a direction; the names of its last states, and of what all steps give.

        Args:
            rows: what `Cell.project` gives. states: those it starts from.
            weights: what `Cell.step` reads of them. alive: [T, N, 1], where sequences go on.
            numbers: the scale and the zero point of weights that are integers.
        """
        before = self._names("before", cell.states)
        (row,) = self._names("row", 1)
        goes_on = self._names("goes_on", 1) if alive else []
        scanned = (row, *goes_on)
        after = self._names("after", cell.states + 1)
        reads = [*before, row, *weights, *[""] * (4 - len(weights)), *(goes_on or [""]), *numbers]
        step = self._node(f"{cell.kind}.step", cell.step, reads, after)
        around = tuple(filter(None, (*weights, *numbers)))
        body = Graph((*before, *scanned), tuple(after), [step], around)
        results = self._names("loop", cell.states + 1)
        attrs = {
            "body": body,
            "num_scan_inputs": len(scanned),
            "scan_input_directions": [int(backwards)] * len(scanned),
            "scan_output_directions": [int(backwards)],
        }
        inputs = (*states, rows, *([alive] if alive else []))
        node = Node(
            "Scan", "", 16, self.node.name, inputs, tuple(results), attrs, captures=body.captures
        )
        self.nodes.append(node)
        return results

    def _names(self, what: str, count: int) -> list[str]:
        first = next(filter(None, self.node.outputs), self.node.name)
        return [f"{first}@{what}{len(self.nodes)}.{number}" for number in range(count)]

    def _node(
        self, op: str, rule: Callable[[Call], Any], inputs: Sequence[str], outputs: Sequence[str]
    ) -> Node:
        kind = Kind(lower=rule)
        names = (tuple(inputs), tuple(outputs))
        return replace(self.node, op=op, inputs=names[0], outputs=names[1], kind=kind)


# -- of ONNX ---------------------------------------------------------------------------------------


def _functions(n: Attributes, kind: str, directions: int) -> list[Function]:
    default = _DEFAULTS[kind]
    names = [str(name).lower() for name in n.attr("activations", []) or default * directions]
    known = _TABLED.keys() | _OWN.keys()
    if len(names) != len(default) * directions or not known.issuperset(names):
        n.fail(f"activations {names}")
    given = [list(n.attr(f"activation_{which}", [])) for which in ("alpha", "beta")]
    functions = []
    for name in names:
        numbers = _OWN.get(name)
        if numbers is None:
            specs = lookup(_TABLED[name].type).attr_specs
            numbers = tuple(specs[ours].default for ours in _TABLED[name].attrs.values())
        # Each list holds a number for every function that has such a one, and may end early.
        pairs = zip(numbers, given, strict=False)
        functions.append(Function(name, tuple(one.pop(0) if one else own for own, one in pairs)))
    return functions


def _directions(n: Attributes) -> list[bool]:
    """Whether each direction runs backwards."""
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    direction = n.attr("direction", "forward")
    if direction not in directions:
        n.fail(f"direction {direction!r}")
    return directions[direction]


def _weights(n: Call, at: int) -> list[Value]:
    """What a direction has of W or R of a layer: a matrix of floats, or one of integers with a
    scale and perhaps a zero point."""
    matrix, *numbers = (part(n, value, at) for value in n.inputs if value is not None)
    return [matrix, *(n.reshape(one, [-1]) for one in numbers)]


def _biases(n: Call, at: int) -> list[Value]:
    """The biases that a direction adds to the products with the input and with the state."""
    whole = part(n, n[0], at)
    return [_cut(n, whole, half, half + 1, 2) for half in range(2)]


def _enter(n: Call, cell: Cell, at: int, rows_first: bool, turns: bool) -> list[Value | None]:
    """From the inputs of a layer: rows for the loop of a direction, its first states, peepholes,
    and where sequences go on."""
    x = n[0]
    w = Matrix(n[1], *map(n.get, (9, 10)))
    r = n[2]
    lengths, h, c, p, *biases = (n.get(number) for number in range(3, 9))
    if rows_first:
        x = n.op("transpose", x, perm=[1, 0, 2])
        h, c = (one and n.op("transpose", one, perm=[1, 0, 2]) for one in (h, c))
    alive = None if lengths is None else _alive(n, x, lengths)
    if lengths is not None and turns:
        x = turned(n, x, lengths)
    rows = cell.project(n, x, w, biases)
    size = r.shape[0 if w.scale is not None else -1]
    states = [first_state(n, one, at, size, x.dtype) for one in (h, c)[: cell.states]]
    return [rows, *states, None if p is None else part(n, p, at), alive]


def _leave(n: Call, ways: Sequence[bool], rows_first: bool) -> list[Value]:
    """The outputs of a layer: from x and lengths, and what the loops give, way by way."""
    x = n[0]
    lengths = n.get(1)
    each = (len(n.inputs) - 2) // len(ways)
    loops = [[n[2 + way * each + k] for k in range(each)] for way in range(len(ways))]
    steps, rows = (x.shape[axis] for axis in ((1, 0) if rows_first else (0, 1)))
    outs = []
    for backwards, (*_, out) in zip(ways, loops, strict=True):
        if not steps:  # a loop without rounds does not know what a round would give
            out = n.const(np.zeros((0, rows, loops[0][0].shape[-1])), x.dtype)
        elif lengths is not None and backwards:
            out = turned(n, out, lengths)
        outs.append(out)
    y = n.op("stack", outs, axis=1)
    ends = [n.op("stack", list(one), axis=0) for one in list(zip(*loops, strict=True))[:-1]]
    if not steps:
        ends = [n.op("expand", one, shape=[one.shape[0], rows, one.shape[2]]) for one in ends]
    if not rows_first:
        return [y, *ends]
    ends = [n.op("transpose", value, perm=[1, 0, 2]) for value in ends]
    return [n.op("transpose", y, perm=[2, 0, 1, 3]), *ends]


def _alive(n: Call, x: Value, lengths: Value) -> Value:
    """Where sequences go on: [T, N, 1]."""
    steps = np.arange(x.shape[0]).reshape(-1, 1, 1)
    if lengths.array is not None:
        return n.const(steps < lengths.array.reshape(1, -1, 1))
    ends = n.reshape(lengths, [1, x.shape[1], 1])
    return n.op("less", n.const(steps, lengths.dtype), ends)


@expands("RNN", "GRU", "LSTM")
@expands("DynamicQuantizeLSTM", domain="com.microsoft")
def _recurrent(n: Attributes) -> list[Node]:
    node = n.node
    kind = node.op.removeprefix("DynamicQuantize")
    ways = _directions(n)
    rows_first = bool(n.attr("layout", 0))
    functions = _functions(n, kind, len(ways))
    each = len(functions) // len(ways)
    late, coupled = bool(n.attr("linear_before_reset", 0)), bool(n.attr("input_forget", 0))
    inputs = [*node.inputs, *[""] * (12 - len(node.inputs))]
    x, w, r, b, lengths, _, _, has_peepholes, *numbers = inputs
    layers = Layers(node)
    ends = list[str]()
    for at, backwards in enumerate(ways):
        own = tuple(functions[at * each : (at + 1) * each])
        cell = Cell(kind, _GATES[kind], own, late, n.attr("clip", 0.0), coupled)
        (w_own, *w_numbers), (r_own, *r_numbers) = (
            layers.of_way(at, given) for given in ([w, *numbers[:2]], [r, *numbers[2:]])
        )
        enter = partial(_enter, cell=cell, at=at, rows_first=rows_first, turns=backwards)
        biases = layers.biases(at, b)
        given = [x, w_own, r_own, *inputs[4:8], *biases, *w_numbers]
        rows, *more = layers.add("enter", enter, given, 3 + cell.states)
        states, (p, alive) = more[: cell.states], more[cell.states :]
        weights = [r_own, biases[1], p * bool(has_peepholes)]
        # Of given lengths a backward direction begins with the last step of each sequence, which
        # `_enter` has brought to the front.
        back = backwards and not lengths
        ends += layers.loop(
            cell, rows, states, weights, alive * bool(lengths), numbers=r_numbers, backwards=back
        )
    leave = partial(_leave, ways=ways, rows_first=rows_first)
    layers.add("leave", leave, [x, lengths, *ends], node.outputs)
    return layers.nodes
