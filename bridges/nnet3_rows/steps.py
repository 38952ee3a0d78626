"""One step of a recurrent layer as operators over [M, columns]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...nnet3.graph.loops import Loop, Term
from ...nnet3.graph.topology import Topology
from .affine import AFFINE, affine_of, diagonal
from .components import WRITTEN, ComponentNet, component_net
from .loops import GeneralLoop


@dataclass(frozen=True, eq=False)
class Product:
    """What an affine component reads outside of a loop, multiplied for all times before it.

    Attributes:
        name: of its node. reads: terms, and weights [dim, columns] for each. bias: [dim] or None.
    """

    name: str
    reads: tuple[tuple[Term, np.ndarray], ...]
    bias: np.ndarray | None


class LoopStep:
    """Writes the operators of a step.

    Args:
        dtype: of values and parameters.
        whole: whether affine components read the same inside of the loop as outside.

    Attributes:
        ops: the operators, and their arrays.
        taken: rows of other nodes, by the variables that hold them: terms without scales, or
            products.
        states: the variables of rows of earlier steps. members: the variables of the loop's nodes.
        count: the variable with the number of steps before, "" where nothing asks for it.
        parameters: as `RowsNet.parameters`, of the arrays of `ops`.
        after: what the variables of earlier steps are in the next one.
        operators: of `ops`, checked. specs: shape and dtype of all variables.
    """

    def __init__(
        self, topology: Topology, loop: Loop, title: str, dtype: Any, whole: bool = False
    ) -> None:
        self.topology = topology
        self.loop = loop
        self.whole = whole
        self.ops = ComponentNet(title, 2, dtype)
        self.taken: dict[str, Term | Product] = {}
        self.parameters: dict[str, tuple[str, str]] = {}
        self.states: dict[Term, str] = {}
        self.members: dict[int, str] = {}
        self.count = ""
        self._joined: dict[str, list[tuple[str, int]]] = {}
        for place, term in enumerate(loop.states):
            name = f"{self.name(term.node)}.before.{place}"
            self.states[term] = self._given(name, self.dim(term.node))
        for number in loop.members:
            self._member(number)
        self.after = {old: self._next(term) for term, old in self.states.items()}
        if self.count:
            self.after[self.count] = self.ops("add", self.count, self.ops.constant([1]))
        self.operators, self.specs = self.ops.checked({})

    def name(self, number: int) -> str:
        return self.topology.nodes[number].name

    def dim(self, number: int) -> int:
        """The columns of a node."""
        return self.topology.nodes[number].dim

    def _next(self, term: Term) -> str:
        before = term.offset - self.loop.offset
        if not before:
            return self.members[term.node]
        return self.ops("assign", self.states[term._replace(offset=before)])

    def pieces(self, value: str) -> list[str]:
        """The variables that a value was joined of, or itself."""
        return [name for name, _ in self._joined.get(value, [(value, 0)])]

    def piece(self, value: str, begin: int, size: int) -> str:
        """The variable that holds just some columns of a value; "" where none does."""
        place = 0
        for part, dim in self._joined.get(value, ()):
            if (place, dim) == (begin, size):
                return part
            place += dim
        return ""

    def _given(self, name: str, dim: int) -> str:
        self.ops.inputs[name] = dim
        return name

    def _take(self, wanted: Term | Product, dim: int) -> str:
        """The variable of a row that is computed before the loop."""
        for name, known in self.taken.items():
            if known == wanted:
                return name
        node = wanted.name if isinstance(wanted, Product) else self.name(wanted.node)
        name = self._given(f"{node}.row.{len(self.taken)}", dim)
        self.taken[name] = wanted
        return name

    # Values side by side

    def _join(self, parts: Sequence[tuple[str, int]]) -> str:
        if len(parts) == 1:
            return parts[0][0]
        joined = self.ops("concat", [name for name, _ in parts], axis=1)
        self._joined[joined] = list(parts)
        return joined

    def _split(self, parts: Sequence[tuple[str, int]], sizes: Sequence[int]) -> list[str]:
        """Values side by side cut into pieces of other sizes, without joining where these fit."""
        left = list(sizes)
        cuts: list[tuple[str, list[int]]] = []
        for name, dim in parts:
            inside: list[int] = []
            while left and sum(inside) + left[0] <= dim:
                inside.append(left.pop(0))
            if sum(inside) != dim:
                whole = self._join(parts)
                return self.ops.split(whole, sizes) if len(sizes) > 1 else [whole]
            cuts.append((name, inside))
        pieces: list[str] = []
        for name, inside in cuts:
            pieces += [name] if len(inside) == 1 else self.ops.split(name, inside)
        return pieces

    # Descriptors

    def _is_inside(self, term: Term) -> bool:
        return term.node in self.loop.members

    def _term(self, term: Term) -> str:
        """A row that is read."""
        bare = term._replace(scale=1.0)
        if not self._is_inside(term):
            row = self._take(bare, self.dim(term.node))
        elif term.offset:
            row = self.states[Term(1.0, term.node, term.offset, True)]
        else:
            row = self.members[term.node]
        if term.scale != 1:
            row = self.ops("scale", row, scale=float(term.scale))
        return self._begun(term, row) if self._is_inside(term) else row

    def _begun(self, term: Term, value: str) -> str:
        """A row inside where it is there, else what stands for it."""
        loop = self.loop
        if not isinstance(loop, GeneralLoop) or not term.optional or not loop.begins(term):
            return value
        stand_ins = loop.instead.get(term)
        if stand_ins is None and not loop.lags[term.node]:
            return value  # the first states are zeros
        other = self._part(stand_ins or (Term(0.0),), self.dim(term.node))
        if not self.count:
            self.count = self._given(f"{self.name(term.node)}.steps", 1)
        first = self.ops.constant([loop.begins(term)])
        return self.ops("where", self.ops("less", self.count, first), other, value)

    def _part(self, terms: Sequence[Term], dim: int) -> str:
        """A sum of terms."""
        constant = sum(term.scale for term in terms if term.node < 0)
        total = ""
        for term in terms:
            if term.node >= 0:
                value = self._term(term)
                total = self.ops("add", total, value) if total else value
        if not total:
            return self._rows(np.full(dim, constant))
        return self.ops("scale", total, bias=float(constant)) if constant else total

    def _rows(self, values: Any) -> str:
        """The same row for all sequences."""
        like = next(iter(self.states.values()))
        column = self.ops("slice", like, axes=[1], starts=[0], ends=[1])
        zeros = self.ops("fill_like", column, value=0.0)
        return self.ops("add", zeros, self.ops.constant(np.reshape(values, (1, -1))))

    def _parts(self, number: int) -> list[tuple[str, int]]:
        """What a descriptor node appends."""
        listed = self.topology.nodes[number].expression().parts
        dims = [part.dim(self.topology.dims) for part in listed]
        sums = zip(self.loop.parts[number], dims, strict=True)
        return [(self._part(terms, dim), dim) for terms, dim in sums]

    # Members

    def _member(self, number: int) -> None:
        node = self.topology.nodes[number]
        if node.kind == "dim-range":
            source = self.members[node.source]
            begin = node.dim_offset
            piece = self.piece(source, begin, node.dim)
            if not piece:
                end = begin + node.dim
                piece = self.ops("slice", source, axes=[1], starts=[begin], ends=[end])
            self.members[number] = piece
        elif node.kind == "component" and node.component.type in AFFINE and not self.whole:
            self.members[number] = self._affine(number)
        elif node.kind == "component":
            self.members[number] = self._join(self._applied(number, self._parts(number - 1)))

    def _applied(self, number: int, parts: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        """A component node for what its descriptor appends."""
        node = self.topology.nodes[number]
        c = node.component
        chain = c.components if c.type == "CompositeComponent" else [c]
        for place, part in enumerate(chain):
            title = f"{node.name}.{place}" if len(chain) > 1 else node.name
            parts = self._component(part, parts, title)
        return parts

    def _written(
        self, net: ComponentNet, parts: Sequence[tuple[str, int]]
    ) -> list[tuple[str, int]]:
        """The operators of a component, for values side by side."""
        pieces = self._split(parts, list(net.inputs.values()))
        names = dict(zip(net.inputs, pieces, strict=True))
        self.ops.ops += [op.renamed(names) for op in net.ops]
        self.ops.arrays |= net.arrays
        return list(net.outputs.items())

    def _component(
        self, c: Any, parts: Sequence[tuple[str, int]], title: str
    ) -> list[tuple[str, int]]:
        """A component for values side by side; its output is that, too."""
        ops = self.ops
        transform = diagonal(c)
        if transform is not None:
            x = self._join(parts)
            scale, offset = transform
            if (scale != 1).any():
                x = ops("mul", x, ops.constant(scale))
            return [(ops("add", x, ops.constant(offset)) if offset.any() else x, c.output_dim)]
        if c.type in WRITTEN:
            return self._written(component_net(c, title, 2, ops.dtype), parts)
        if c.type in AFFINE:
            return [(self._matrix(self._join(parts), *affine_of(c)), c.output_dim)]
        if c.type == "PermuteComponent":
            order = ops.constant(c.column_map, np.int64)
            return [(ops("gather", self._join(parts), order, axis=1), c.output_dim)]
        return [(self._rows(c.output), c.output_dim)]  # ConstantFunctionComponent

    def _matrix(self, x: str, w: np.ndarray, b: np.ndarray | None) -> str:
        """w [out, in] times every row, plus b [out]."""
        given = [x, self.ops.constant(np.ascontiguousarray(w.T))]
        return self.ops("affine", *given, *([] if b is None else [self.ops.constant(b)]))

    def _affine(self, number: int) -> str:
        """An affine member: what it reads outside is multiplied before the loop."""
        node = self.topology.nodes[number]
        begin = 0
        weights, bias = affine_of(node.component)
        before: list[tuple[Term, np.ndarray]] = []
        inside: list[tuple[str, int]] = []
        own_weights: list[np.ndarray] = []
        parts = self.topology.nodes[number - 1].expression().parts
        for part, terms in zip(parts, self.loop.parts[number - 1], strict=True):
            size = part.dim(self.topology.dims)
            share = weights[:, begin : begin + size]
            begin += size
            own = [term for term in terms if term.node < 0 or self._is_inside(term)]
            before += [(term, share) for term in terms if term not in own]
            if own:
                inside.append((self._part(own, size), size))
                own_weights.append(share)
        total = ""
        if before:
            total = self._take(Product(node.name, tuple(before), bias), node.dim)
            bias = None
        if inside:
            product = self._matrix(self._join(inside), np.concatenate(own_weights, axis=1), bias)
            total = self.ops("add", total, product) if total else product
        return total
