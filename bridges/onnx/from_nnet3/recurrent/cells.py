"""Recurrent layers that are ONNX's LSTM or GRU: fused cells without projection or decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....nnet3.graph.loops import Loop, Term
from ..emit import F32, Value
from ..grids import Grid
from ..rows import Rows, Writer
from ..rowwise import AFFINE, affine_of, diagonal
from .chains import Chains

Outside = Callable[[Term], Value]
_LSTM_GATES = (0, 3, 1, 2)  # ONNX's i, o, f, c among Kaldi's i, f, c, o


class NoCellError(Exception):
    """The layer is no such cell."""


class Gates:
    """Weights of affine members: of what they read outside, and of the state.

    Attributes:
        terms: what is read outside, each once.
        widths: columns of these.
    """

    def __init__(self, w: Writer, loop: Loop, state: Term, cells: int) -> None:
        self.w, self.loop, self.state, self.cells = w, loop, state, cells
        self.terms: list[Term] = []
        self.widths: list[int] = []

    def weights(
        self, number: int, state: Term | None = None
    ) -> tuple[dict[Term, np.ndarray], np.ndarray, np.ndarray]:
        """By outside term, of the state [rows, cells], and biases [rows] of an affine member.

        Args:
            number: of the member.
            state: the term that it reads in place of the state.
        """
        state = state or self.state
        nodes, dims = self.w.topology.nodes, self.w.topology.dims
        if nodes[number].kind != "component" or nodes[number].component.type not in AFFINE:
            raise NoCellError
        whole, bias = affine_of(nodes[number].component)
        outside: dict[Term, np.ndarray] = {}
        own = np.zeros((len(whole), self.cells))
        begin = 0
        parts = nodes[number - 1].expression().parts
        for part, terms in zip(parts, self.loop.parts[number - 1], strict=True):
            size = part.dim(dims)
            share = whole[:, begin : begin + size].astype(np.float64)
            begin += size
            for term in terms:
                bare = term._replace(scale=1.0)
                if term.node < 0:
                    raise NoCellError
                if bare == state:
                    own = own + share * term.scale
                elif term.node in self.loop.members:
                    raise NoCellError
                else:
                    outside[bare] = outside.get(bare, 0.0) + share * term.scale
                    if bare not in self.terms:
                        self.terms.append(bare)
                        self.widths.append(size)
        return outside, own, np.zeros(len(whole)) if bias is None else np.asarray(bias, float)

    def packed(self, outside: dict[Term, np.ndarray], rows: int) -> np.ndarray:
        """Weights of all outside terms side by side, zeros where one is not read."""
        return np.concatenate(
            [
                outside.get(term, np.zeros((rows, width)))
                for term, width in zip(self.terms, self.widths, strict=True)
            ],
            axis=1,
        )


def write_cell(w: Writer, loop: Loop, outside: Outside, wanted: Sequence[int]) -> bool:
    """Write a layer as LSTM or GRU and set the rows of `wanted`; False where it is neither."""
    kinds = {
        w.topology.nodes[number].component.type: number
        for number in loop.members
        if w.topology.nodes[number].kind == "component"
    }
    try:
        cell = kinds.get("LstmNonlinearityComponent", kinds.get("GruNonlinearityComponent"))
        if cell is not None:
            wanted = _second_halves(w, loop, cell, wanted)
        if "LstmNonlinearityComponent" in kinds:
            _lstm(w, loop, kinds["LstmNonlinearityComponent"], outside, wanted)
        elif "GruNonlinearityComponent" in kinds:
            _gru(w, loop, kinds["GruNonlinearityComponent"], outside, wanted)
        else:
            return False
    except NoCellError:
        return False
    return True


def _columns_of(w: Writer, number: int, cell: int) -> tuple[int, int]:
    """The columns of a cell's output that a member is, (first, how many)."""
    nodes, first, width, passed = w.topology.nodes, 0, 0, set()
    while number != cell:
        node = nodes[number]
        if node.kind == "dim-range":
            first, width, number = first + node.dim_offset, width or node.dim, node.source
            continue
        if node.kind != "component" or number in passed:
            raise NoCellError
        passed.add(number)
        found = diagonal(node.component)
        read = w.topology.inputs_of[number - 1]
        plain = str(nodes[number - 1].expression()) == nodes[read[0]].name
        if found is None or not plain or (found[0] != 1).any() or (found[1] != 0).any():
            raise NoCellError
        number = read[0]
    return first, width or nodes[cell].dim


def _second_halves(w: Writer, loop: Loop, cell: int, wanted: Sequence[int]) -> list[int]:
    """Nodes with the second half of a cell's columns, for members that are read elsewhere.

    Where others read the second half of a member alone, these column ranges stand for it.
    """
    half = w.topology.nodes[cell].dim // 2
    found: list[int] = []
    for number in wanted:
        if _columns_of(w, number, cell) == (half, half):
            found.append(number)
            continue
        for reader in w.topology.readers_of[number]:
            if reader not in loop.members and reader in w.plan.grids:
                if w.topology.nodes[reader].kind != "dim-range":
                    raise NoCellError
                if _columns_of(w, reader, cell) != (half, half):
                    raise NoCellError
                found.append(reader)
    return found


def _single(terms: Sequence[Term]) -> Term:
    if len(terms) != 1 or terms[0].scale != 1 or terms[0].node < 0:
        raise NoCellError
    return terms[0]


def _lstm(w: Writer, loop: Loop, cell: int, outside: Outside, wanted: Sequence[int]) -> None:
    c = w.topology.nodes[cell].component
    cells, parts = int(c.cell_dim), loop.parts[cell - 1]
    grid = w.plan.grids[cell]
    chains = abs(loop.offset) // grid.step
    if c.use_dropout or len(parts) != 2 or (w.reader.streaming and chains > 1):
        raise NoCellError
    affine, before = _single(parts[0]), _single(parts[1])
    outputs = [term for term in loop.states if term != before]
    if affine.node not in loop.members or before not in loop.states or len(outputs) != 1:
        raise NoCellError
    if _columns_of(w, before.node, cell) != (0, cells):
        raise NoCellError
    if _columns_of(w, outputs[0].node, cell) != (cells, cells):
        raise NoCellError
    gates = Gates(w, loop, outputs[0], cells)
    read, own, bias = gates.weights(affine.node)
    order = np.concatenate([np.arange(cells) + gate * cells for gate in _LSTM_GATES])
    peepholes = np.concatenate([c.params[0], c.params[2], c.params[1]])
    arrays = gates.packed(read, 4 * cells)[order], own[order], bias[order]
    rows = emit_lstm(w, loop, gates, outside, cell, arrays, peepholes, (outputs[0], before))
    set_rows(w, loop, rows, cells, wanted)


def emit_lstm(
    w: Writer,
    loop: Loop,
    gates: Gates,
    outside: Outside,
    cell: int,
    arrays: Sequence[np.ndarray],
    peepholes: np.ndarray,
    states: tuple[Term, Term],
) -> str:
    """Write an LSTM and what a stream keeps of it; returns its rows [N, cells, times].

    Args:
        cell: the member whose name it gets, and whose rows these are.
        arrays: W, R and biases in ONNX's order of gates: i, o, f, c.
        peepholes: i, o, f.
        states: the terms that read its output and its cells in the step before.
    """
    cells, name = arrays[1].shape[1], w.topology.nodes[cell].name
    x, sides = _inputs(w, gates, outside, loop, w.plan.grids[cell])
    firsts = [
        _unsqueezed(w, sides.first(w.topology.nodes[term.node].name, cells)) for term in states
    ]
    weights = _weights(w, name, *arrays)
    peep = w.e.graph.constant(peepholes[None].astype(F32), f"{name}.P")
    y, _, last = w.e.graph.node(
        "LSTM",
        [x, *weights, None, *firsts, peep if peepholes.any() else None],
        name,
        outputs=3,
        hidden_size=cells,
        direction="reverse" if sides.backward else "forward",
    )
    rows = sides.rows(w.e.op("Squeeze", y, w.e.graph.ints(1)), cells, name)
    if w.reader.streaming:
        sides.keep(w.topology.nodes[states[0].node].name, rows)
        kept = w.e.op("Transpose", last, perm=[1, 2, 0])
        w.reader.set_new(f"cache_{w.topology.nodes[states[1].node].name}_state", kept)
    return rows


def _gru(w: Writer, loop: Loop, cell: int, outside: Outside, wanted: Sequence[int]) -> None:
    c = w.topology.nodes[cell].component
    cells, parts = int(c.cell_dim), loop.parts[cell - 1]
    if c.recurrent_dim != cells or len(parts) != 4 or len(loop.states) != 1:
        raise NoCellError
    z, r, part, before = (_single(terms) for terms in parts)
    if before != loop.states[0]:
        raise NoCellError
    if _columns_of(w, before.node, cell) != (cells, cells):
        raise NoCellError
    gates = Gates(w, loop, before, cells)
    read = [gates.weights(_before_sigmoid(w, loop, term)) for term in (z, r)]
    if part.node in loop.members:
        read.append(gates.weights(part.node))
        if read[2][1].any():
            raise NoCellError
    else:  # the loop reads it as it is
        gates.terms.append(part)
        gates.widths.append(cells)
        read.append(({part: np.eye(cells)}, np.zeros((cells, cells)), np.zeros(cells)))
    arrays = (
        np.concatenate([gates.packed(each[0], cells) for each in read]),
        np.concatenate([read[0][1], read[1][1], np.asarray(c.w_h, np.float64)]),
        np.concatenate([each[2] for each in read]),
    )
    rows = emit_gru(w, loop, gates, outside, cell, arrays, before)
    set_rows(w, loop, rows, cells, wanted)


def emit_gru(
    w: Writer,
    loop: Loop,
    gates: Gates,
    outside: Outside,
    cell: int,
    arrays: Sequence[np.ndarray],
    state: Term,
) -> str:
    """Write a GRU and what a stream keeps of it; returns its rows [N, cells, times].

    Args:
        cell: the member whose name it gets, and whose rows these are.
        arrays: W, R and biases in ONNX's order of gates: z, r, h.
        state: the term that reads its output in the step before.
    """
    cells, name = arrays[1].shape[1], w.topology.nodes[cell].name
    x, sides = _inputs(w, gates, outside, loop, w.plan.grids[cell])
    kept = w.topology.nodes[state.node].name
    y, _ = w.e.graph.node(
        "GRU",
        [x, *_weights(w, name, *arrays), None, _unsqueezed(w, sides.first(kept, cells))],
        name,
        outputs=2,
        hidden_size=cells,
        direction="reverse" if sides.backward else "forward",
    )
    rows = sides.rows(w.e.op("Squeeze", y, w.e.graph.ints(1)), cells, name)
    if w.reader.streaming:
        sides.keep(kept, rows)
    return rows


def _weights(
    w: Writer, name: str, wide: np.ndarray, own: np.ndarray, bias: np.ndarray
) -> list[str]:
    arrays = wide, own, np.concatenate([bias, np.zeros_like(bias)])
    return [
        w.e.graph.constant(array[None].astype(F32), f"{name}.{of}")
        for array, of in zip(arrays, "WRB", strict=True)
    ]


def _before_sigmoid(w: Writer, loop: Loop, term: Term) -> int:
    node = w.topology.nodes[term.node]
    if term.node not in loop.members or term.offset or node.kind != "component":
        raise NoCellError
    if node.component.type != "SigmoidComponent" or len(loop.parts[term.node - 1]) != 1:
        raise NoCellError
    return _single(loop.parts[term.node - 1][0]).node


def _inputs(
    w: Writer, gates: Gates, outside: Outside, loop: Loop, grid: Grid
) -> tuple[str, Chains]:
    """What the cell reads outside, side by side, as chains."""
    if not gates.terms:
        raise NoCellError
    values = [outside(term) for term in gates.terms]
    joined: Any = w.e.plain(w.e.join(values, w.topology.nodes[loop.members[0]].name))
    sides = Chains(w, joined, abs(loop.offset) // grid.step, loop.offset > 0)
    return sides.blocks(joined), sides


def _unsqueezed(w: Writer, name: str) -> str:
    return w.e.op("Unsqueeze", name, w.e.graph.ints(0))


def set_rows(w: Writer, loop: Loop, rows: str, cells: int, wanted: Sequence[int]) -> None:
    """Take note of a cell's rows as those of nodes that are copies of it."""
    grid = w.plan.grids[loop.members[0]]
    for number in wanted:
        w.rows[number] = Rows(Value(rows, cells), grid, w.topology.nodes[number].name)
