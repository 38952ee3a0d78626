"""Recurrent layers of many components that are ONNX's LSTM or GRU: `lstm-layer`, `gru-layer`.

Their members are followed from the products back to the gates, whatever their names are; what
does nothing in test mode, truncation of gradients say, is looked through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....nnet3.graph.loops import Loop, Term
from ..rows import Writer
from ..rowwise import diagonal
from .cells import Gates, NoCellError, Outside, emit_gru, emit_lstm, set_rows

_PRODUCT, _SIGMOID, _TANH = "ElementwiseProductComponent", "SigmoidComponent", "TanhComponent"


def write_classic(w: Writer, loop: Loop, outside: Outside, wanted: Sequence[int]) -> bool:
    """Write a layer as LSTM or GRU and set the rows of `wanted`; False where it is neither."""
    layer = _Layer(w, loop)
    for write in (_lstm, _gru):
        try:
            write(layer, outside, wanted)
        except NoCellError:
            continue
        return True
    return False


class _Layer:
    """What the members of a loop compute.

    Args:
        w: the writer.
        loop: the layer.
    """

    def __init__(self, w: Writer, loop: Loop) -> None:
        self.w, self.loop = w, loop

    def component(self, number: int) -> Any:
        node = self.w.topology.nodes[number]
        if node.kind != "component" or number not in self.loop.members:
            raise NoCellError
        return node.component

    def parts(self, number: int) -> list[list[Term]]:
        """What a component appends, each a sum of terms without scales or constants."""
        self.component(number)
        return self.loop.parts[number - 1]

    def plain(self, terms: Sequence[Term]) -> Term:
        """The only term of a sum."""
        if len(terms) != 1 or terms[0].scale != 1 or terms[0].node < 0:
            raise NoCellError
        return terms[0]

    def behind(self, number: int) -> int:
        """The member that another one copies, at the same time; itself where it copies none."""
        while number in self.loop.members:
            node = self.w.topology.nodes[number]
            if node.kind != "component":
                break
            found, parts = diagonal(node.component), self.loop.parts[number - 1]
            copies = found is not None and (found[0] == 1).all() and not found[1].any()
            single = len(parts) == 1 and len(parts[0]) == 1
            if not copies or not single or parts[0][0].scale != 1 or parts[0][0].offset:
                break
            number = parts[0][0].node
        return number

    def now(self, term: Term) -> int:
        """The member that a term reads at the same time."""
        if term.offset or term.scale != 1 or term.node not in self.loop.members:
            raise NoCellError
        return self.behind(term.node)

    def sum_of_products(self) -> tuple[int, list[int]]:
        """The only member that is a sum of two products, and these."""
        found: list[tuple[int, list[int]]] = []
        for number in self.loop.members:
            node = self.w.topology.nodes[number]
            if node.kind != "component":
                continue
            diag, parts = diagonal(node.component), self.loop.parts[number - 1]
            if diag is None or len(parts) != 1 or len(parts[0]) != 2:
                continue
            if (diag[0] == 1).all() and not diag[1].any():
                found.append((number, [self.now(term) for term in parts[0]]))
        if len(found) != 1:
            raise NoCellError
        return found[0]

    def factors(self, number: int) -> tuple[list[Term], list[Term]]:
        """The two sums of terms that a product multiplies."""
        c, parts = self.component(number), self.parts(number)
        if c.type != _PRODUCT or c.input_dim != 2 * c.output_dim or len(parts) != 2:
            raise NoCellError
        dims = self.w.topology.dims
        listed = self.w.topology.nodes[number - 1].expression().parts
        if any(part.dim(dims) != c.output_dim for part in listed):
            raise NoCellError
        return parts[0], parts[1]

    def gate(self, number: int, kind: str) -> list[Term]:
        """What a nonlinearity of some type adds up."""
        if self.component(number).type != kind:
            raise NoCellError
        (terms,) = parts if len(parts := self.parts(number)) == 1 else [[]]
        if not terms or any(term.scale != 1 or term.offset for term in terms):
            raise NoCellError
        return terms

    def peephole(self, number: int, cell: int, offset: int) -> np.ndarray | None:
        """The factors by which a member reads the cells at an offset; None: it does not."""
        found, parts = diagonal(self.component(number)), self.parts(number)
        if found is None or found[1].any() or len(parts) != 1:
            return None
        term = self.plain(parts[0])
        if term.offset != offset or self.behind(term.node) != cell:
            raise NoCellError
        return found[0]

    def state(self, number: int) -> Term:
        """The only term that reads a member in the step before."""
        found = [term for term in self.loop.states if self.behind(term.node) == number]
        if len(found) != 1 or found[0].scale != 1:
            raise NoCellError
        return found[0]


def _lstm(layer: _Layer, outside: Outside, wanted: Sequence[int]) -> None:
    w, loop = layer.w, layer.loop
    cell, products = layer.sum_of_products()
    before = layer.state(cell)
    forget, new = None, None
    for product in products:
        a, b = map(layer.plain, layer.factors(product))
        kept = next((one for one, other in ((a, b), (b, a)) if other == before), None)
        if kept is not None:
            forget = layer.now(kept)
        else:
            new = [layer.now(a), layer.now(b)]
    if forget is None or new is None:
        raise NoCellError
    new.sort(key=lambda each: layer.component(each).type)  # sigmoid, then tanh
    output, gate = _output(layer, cell)
    if {layer.behind(term.node) for term in loop.states} != {cell, output}:
        raise NoCellError
    if any(layer.behind(number) != output for number in wanted):
        raise NoCellError
    state, cells = layer.state(output), w.topology.nodes[cell].dim
    if w.reader.streaming and abs(loop.offset) != w.plan.grids[cell].step:
        raise NoCellError
    gates = Gates(w, loop, state, cells)
    read: list[tuple[dict[Term, np.ndarray], np.ndarray, np.ndarray]] = []
    peepholes: list[np.ndarray] = []
    offset = loop.offset
    for number, kind, time in (
        (new[0], _SIGMOID, offset),
        (gate, _SIGMOID, 0),
        (forget, _SIGMOID, offset),
        (new[1], _TANH, None),
    ):
        affine, weights = None, np.zeros(cells)
        for term in layer.gate(number, kind):
            peephole = None if time is None else layer.peephole(term.node, cell, time)
            if peephole is not None:
                weights = weights + peephole
            elif affine is None:
                affine = term.node
            else:
                raise NoCellError
        if affine is None:
            raise NoCellError
        read.append(gates.weights(affine))
        if time is not None:
            peepholes.append(weights)
    arrays = _joined(gates, read, cells)
    rows = emit_lstm(
        w, loop, gates, outside, output, arrays, np.concatenate(peepholes), (state, before)
    )
    set_rows(w, loop, rows, cells, wanted)


def _output(layer: _Layer, cell: int) -> tuple[int, int]:
    """The member o tanh(c), and the gate o."""
    for number in layer.loop.members:
        node = layer.w.topology.nodes[number]
        if node.kind != "component" or node.component.type != _PRODUCT:
            continue
        factors = layer.factors(number)
        if any(len(terms) != 1 or terms[0].offset for terms in factors):
            continue
        a, b = (layer.now(terms[0]) for terms in factors)
        for one, other in ((a, b), (b, a)):
            if layer.component(other).type == _TANH:
                terms = layer.gate(other, _TANH)
                if len(terms) == 1 and layer.now(terms[0]) == cell:
                    return number, one
    raise NoCellError


def _gru(layer: _Layer, outside: Outside, wanted: Sequence[int]) -> None:
    w, loop = layer.w, layer.loop
    output, products = layer.sum_of_products()
    state, cells = layer.state(output), w.topology.nodes[output].dim
    if len(loop.states) != 1 or any(layer.behind(number) != output for number in wanted):
        raise NoCellError
    update, rest, new = None, None, None
    for product in products:
        a, b = layer.factors(product)
        for one, other in ((a, b), (b, a)):
            if len(one) == 1 and layer.plain(one) == state:
                update = layer.now(layer.plain(other))
            elif len(one) == 1 and one[0].node in loop.members and len(other) == 2:
                new, rest = layer.now(one[0]), _without_one(other)
    if update is None or new is None or rest is None or layer.behind(rest) != update:
        raise NoCellError
    gates = Gates(w, loop, state, cells)
    (fed,) = terms if len(terms := layer.gate(new, _TANH)) == 1 else [None]
    reset = None if fed is None else _reset(layer, fed.node, state)
    if fed is None or reset is None:
        raise NoCellError
    read = [
        gates.weights(layer.plain(layer.gate(each, _SIGMOID)).node) for each in (update, reset[0])
    ]
    read.append(gates.weights(fed.node, reset[1]))
    rows = emit_gru(w, loop, gates, outside, output, _joined(gates, read, cells), state)
    set_rows(w, loop, rows, cells, wanted)


def _without_one(terms: Sequence[Term]) -> int | None:
    """z, of a sum 1 - z."""
    constants = [term for term in terms if term.node < 0]
    others = [term for term in terms if term.node >= 0 and term.scale == -1 and not term.offset]
    if len(constants) != 1 or constants[0].scale != 1 or len(others) != 1:
        return None
    return others[0].node


def _reset(layer: _Layer, affine: int, state: Term) -> tuple[int, Term] | None:
    """The reset gate and the term that reads its product with the state."""
    for terms in layer.parts(affine):
        for term in terms:
            if term.node in layer.loop.members and not term.offset and term.scale == 1:
                a, b = map(layer.plain, layer.factors(layer.now(term)))
                if state in (a, b):
                    return layer.now(b if a == state else a), term
    return None


def _joined(gates: Gates, read: Sequence[Any], cells: int) -> tuple[np.ndarray, ...]:
    """W, R and biases of gates one below the other."""
    return (
        np.concatenate([gates.packed(each[0], cells) for each in read]),
        np.concatenate([each[1] for each in read]),
        np.concatenate([each[2] for each in read]),
    )
