"""Recurrent cells: one step of a simple RNN, an LSTM or a GRU, as composite operators.

A step net holds them whole, so that people see what was meant; a loop runs the operators that they
stand for.

The LSTM of nnet3 (`nnet3.lstm`) computes the same cell as one operator. Its formulas stay beside
it: they are scalar expressions with dropout factors, and its gradient and statistics read the
values of the gates by name.
"""

from __future__ import annotations

from ...framework.base.errors import SlotError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.desc import make_op
from ...framework.ir.names import inner_name
from ...framework.ir.op_list import OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.registry import AttrSpec, Slot, lookup, operator
from .composite import check_activation


class _Expansion:
    """The operators that a cell stands for, while they are written."""

    def __init__(self, node: OpNode) -> None:
        self.cell = Operator(node)
        self.ops: list[OpNode] = []
        self._names = 0

    def has(self, slot: str) -> bool:
        return slot in self.cell.inputs

    def __getitem__(self, slot: str) -> str:
        """The variable in an input slot that holds one."""
        return self.cell.inputs[slot][0]

    def op(self, op_type: str, *inputs: str) -> str:
        """Append an operator; the variable with its result."""
        (out,) = self._new(1)
        slots = [slot.name for slot in lookup(op_type).inputs]
        # Not strict: optional slots come last and are left out.
        self.ops.append(make_op(op_type, dict(zip(slots, inputs, strict=False)), {"out": out}))
        return out

    def split(self, x: str, *parts: int) -> list[str]:
        """Columns of a variable, as many times `size` as `parts` say."""
        outs = self._new(len(parts))
        sections = tuple(part * self.cell.attrs["size"] for part in parts)
        attrs = {"axis": 1, "sections": sections}
        self.ops.append(make_op("split", {"x": x}, {"out": outs}, attrs))
        return outs

    def _new(self, count: int) -> list[str]:
        first = self._names
        self._names = self._names + count
        out = self.cell.outputs["out"][0]
        return [inner_name(out, str(number)) for number in range(first, self._names)]

    def product(self) -> str:
        """x w_x + b + h w_h, with x w_x + b as an operator of its own, which can leave the loop."""
        from_x = self.op("affine", self["x"], self["w_x"], self["b"])
        return self.op("add", from_x, self.op("matmul", self["h"], self["w_h"]))

    def done(self, *results: str) -> list[OpNode]:
        """The operators, with results in the variables of the output slots."""
        slots = [slot.name for slot in self.cell.entry.outputs]
        names = {
            result: self.cell.outputs[slot][0]
            for slot, result in zip(slots, results, strict=True)
            if slot in self.cell.outputs
        }
        # Renamed at the end: which variable is a result is known only when all operators are there.
        return [op.renamed(names) for op in self.ops]


def _rows(s: ShapeArgs) -> tuple[int, int, int]:
    """Rows of x and the state h, columns of x, columns of h."""
    (rows, width), (others, state) = s.rank("x", 2), s.rank("h", 2)
    return s.same("the rows of x and h", rows, others), width, state


def _check(s: ShapeArgs, **wanted: tuple[int, ...]) -> None:
    """Refuse inputs of other shapes than those, by slot."""
    for slot, shape in wanted.items():
        if s.has(slot):
            s.same_shape(f"{slot}, and what the others are for,", s[slot], shape)


_X = Slot("x", "[N, K], the rows of this step")
_H = Slot("h", "[N, H], the state before")
_SIZE = AttrSpec("size", "int", "columns H of a gate", minimum=1)

rnn_cell = operator(
    "rnn_cell",
    doc=(
        "One step of a simple RNN: out = activation(x w_x + b + h w_h). Stands for `affine`,"
        " `matmul`, `add` and the activation."
    ),
    inputs=[_X, _H, Slot("w_x", "[K, H]"), Slot("w_h", "[H, H]"), Slot("b", "[H]")],
    outputs=[Slot("out", "[N, H], the new state")],
    attrs=[
        AttrSpec("activation", "string", 'type of an operator from x to out; "" = none', "tanh")
    ],
    source="J. L. Elman, Finding structure in time",
)


@rnn_cell.shape_rule
def rnn_cell_shape(s: ShapeArgs) -> None:
    rows, width, size = _rows(s)
    _check(s, w_x=(width, size), w_h=(size, size), b=(size,))
    s.set("out", ((rows, size), s.floats(*s.op.inputs)))


@rnn_cell.expansion
def rnn_cell_expansion(node: OpNode) -> list[OpNode]:
    e = _Expansion(node)
    out = e.product()
    activation = e.cell.attrs["activation"]
    if activation:
        check_activation(e.cell, activation)
        out = e.op(activation, out)
    return e.done(out)


lstm_cell = operator(
    "lstm_cell",
    doc=(
        "One step of an LSTM: i, f, g, o = x w_x + b + h w_h, side by side;"
        " memory = sigmoid(f) c + sigmoid(i) tanh(g); out = sigmoid(o) tanh(memory). With peepholes"
        " p_i c is added to i, p_f c to f and p_o memory to o. With a projection out is multiplied"
        " by w_proj. Stands for these operators."
    ),
    inputs=[
        _X,
        Slot("h", "[N, H], or [N, P] with a projection; the state before"),
        Slot("c", "[N, H], the memory before"),
        Slot("w_x", "[K, 4 H]"),
        Slot("w_h", "[H, 4 H], or [P, 4 H]"),
        Slot("b", "[4 H]"),
        Slot("p_i", "[H], from the memory to the input gate", optional=True),
        Slot("p_f", "[H], to the forget gate", optional=True),
        Slot("p_o", "[H], from the new memory to the output gate", optional=True),
        Slot("w_proj", "[H, P]", optional=True),
    ],
    outputs=[Slot("out", "[N, H], or [N, P]"), Slot("memory", "[N, H]")],
    attrs=[_SIZE],
    source="F. A. Gers, N. N. Schraudolph and J. Schmidhuber, Learning precise timing with LSTM"
    " recurrent networks; H. Sak, A. Senior and F. Beaufays, Long short-term memory recurrent"
    " neural network architectures for large scale acoustic modeling",
)


@lstm_cell.shape_rule
def lstm_cell_shape(s: ShapeArgs) -> None:
    rows, width, state = _rows(s)
    size = s.attrs["size"]
    peepholes = dict.fromkeys(("p_i", "p_f", "p_o"), (size,))
    _check(s, c=(rows, size), w_x=(width, 4 * size), w_h=(state, 4 * size), b=(4 * size,))
    _check(s, **peepholes, w_proj=(size, state))
    if not s.has("w_proj"):
        s.same("the columns of h and the size", state, size)
    dtype = s.floats(*s.op.inputs)
    s.set("out", ((rows, state), dtype))
    s.set("memory", ((rows, size), dtype))


@lstm_cell.expansion
def lstm_cell_expansion(node: OpNode) -> list[OpNode]:
    e = _Expansion(node)
    # One product for all gates, which are cut afterwards: a wide one is faster than four narrow
    # ones.
    i, f, g, o = e.split(e.product(), 1, 1, 1, 1)
    if e.has("p_i"):
        i = e.op("add", i, e.op("mul", e["c"], e["p_i"]))
    if e.has("p_f"):
        f = e.op("add", f, e.op("mul", e["c"], e["p_f"]))
    remembered = e.op("mul", e.op("sigmoid", f), e["c"])
    memory = e.op("add", remembered, e.op("mul", e.op("sigmoid", i), e.op("tanh", g)))
    if e.has("p_o"):
        o = e.op("add", o, e.op("mul", memory, e["p_o"]))
    shown = e.op("mul", e.op("sigmoid", o), e.op("tanh", memory))
    if e.has("w_proj"):
        shown = e.op("matmul", shown, e["w_proj"])
    return e.done(shown, memory)


gru_cell = operator(
    "gru_cell",
    doc=(
        "One step of a GRU: out = (1 - z) n + z h. With b_h the reset gate acts after the product:"
        " r, z = sigmoid of the columns r and z, and n = tanh(x w_x + b + r (h w_h + b_h)) of the"
        " columns n; of x w_x + b + h w_h + b_h. With w_n it acts before:"
        " r, z = sigmoid(x w_x + b + h w_h), n = tanh(x w_x + b + (r h) w_n). Stands for these"
        " operators."
    ),
    inputs=[
        _X,
        _H,
        Slot("w_x", "[K, 3 H], columns r, z, n"),
        Slot("b", "[3 H]"),
        Slot("w_h", "[H, 3 H]; with w_n [H, 2 H]"),
        Slot("b_h", "[3 H]", optional=True),
        Slot("w_n", "[H, H]", optional=True),
    ],
    outputs=[Slot("out", "[N, H], the new state")],
    attrs=[_SIZE],
    source="K. Cho et al., Learning phrase representations using RNN encoder-decoder for"
    " statistical machine translation; the form of PyTorch and cuDNN",
)


@gru_cell.shape_rule
def gru_cell_shape(s: ShapeArgs) -> None:
    rows, width, state = _rows(s)
    size = s.attrs["size"]
    s.same("the columns of h and the size", state, size)
    own = 2 * size if s.has("w_n") else 3 * size
    _check(s, w_x=(width, 3 * size), b=(3 * size,), w_h=(size, own), b_h=(own,), w_n=(size, size))
    s.set("out", ((rows, size), s.floats(*s.op.inputs)))


@gru_cell.expansion
def gru_cell_expansion(node: OpNode) -> list[OpNode]:
    e = _Expansion(node)
    if e.has("b_h") == e.has("w_n"):
        raise SlotError(e.cell.describe("one of b_h and w_n says where the reset gate acts", {}))
    # Apart from the product with the state: the loop takes it out and computes it for all steps at
    # once.
    from_x = e.op("affine", e["x"], e["w_x"], e["b"])
    if e.has("b_h"):
        x_r, x_z, x_n = e.split(from_x, 1, 1, 1)
        h_r, h_z, h_n = e.split(e.op("affine", e["h"], e["w_h"], e["b_h"]), 1, 1, 1)
        r = e.op("sigmoid", e.op("add", x_r, h_r))
        z = e.op("sigmoid", e.op("add", x_z, h_z))
        n = e.op("tanh", e.op("add", x_n, e.op("mul", r, h_n)))
    else:
        x_rz, x_n = e.split(from_x, 2, 1)
        gates = e.op("add", x_rz, e.op("matmul", e["h"], e["w_h"]))
        r, z = e.split(e.op("sigmoid", gates), 1, 1)
        after = e.op("matmul", e.op("mul", r, e["h"]), e["w_n"])
        n = e.op("tanh", e.op("add", x_n, after))
    return e.done(e.op("add", n, e.op("mul", z, e.op("sub", e["h"], n))))  # (1 - z) n + z h
