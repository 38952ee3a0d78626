"""Recurrent layers as Scan: what a step reads of others is computed before, for all times at once.

A layer that reads itself d rows back is d chains that know nothing of each other; they run side by
side, like more sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....nnet3.graph.loops import Loop, Term
from ..emit import F32, F64, Emitter, Value
from ..grids import Grid
from ..reads import NotExportedError, Read
from ..rows import Writer
from ..rowwise import AFFINE, affine_of, constant, matrix, row_by_row
from .cells import write_cell
from .chains import Chains
from .classic import write_classic
from .general import GeneralLoop

_MOST_WIDE = 2**18
"""Weights up to which a step computes in float64: they stay in a processor's cache, so that this
costs little. What a step rounds, all later ones see: in float32 errors may grow tenfold."""


class _Step:
    """The graph of one step, and what it takes and gives.

    Attributes:
        e: writes into it.
        values: of the members and of the terms that are read.
        taken: values of all times, [N, columns, times], of which a step takes a row.
        inputs: the names that the rows have in the step.
        count: the name of the number of steps before, "" where nothing asks for it.
    """

    def __init__(self, w: Writer, loop: Loop, grid: Grid) -> None:
        self.w, self.loop, self.grid = w, loop, grid
        self.e = Emitter(w.e.graph.sub_graph("step"), 2, F64 if _is_wide(w, loop) else F32)
        self.members: dict[int, Value] = {}
        self.states: dict[Term, Value] = {}
        self.taken: list[Value] = []
        self.inputs: list[str] = []
        self.count = ""
        self._known: dict[Any, Value] = {}

    def name(self, number: int) -> str:
        return self.w.topology.nodes[number].name

    def take(self, key: Any, value: Value) -> Value:
        """A value of all times, as the row of a step."""
        if key not in self._known:
            if value.still:
                raise NotExportedError("a still value is read inside of a loop")
            name = f"{value.name}.row.{len(self.inputs)}"
            self.taken.append(self.w.e.plain(value))
            self.inputs.append(name)
            self._known[key] = Value(name, value.dim)
        return self._known[key]

    def outside(self, term: Term) -> Value:
        """A term that reads a node outside, for all times."""
        w, read = self.w, Read(term.node, 1.0, (term.offset,))
        grid = self.grid
        if not term.optional:
            value = w.reader.at(w.rows[term.node], grid, read)
        else:
            moved = grid.moved(term.offset)
            border = w.plan.border(w.plan.reach[term.node], moved)
            if border.masked:
                raise NotExportedError("optional rows inside of a loop may all be missing")
            value = w.reader.at(w.rows[term.node], border.inner, Read(term.node, 1.0))
            name = f"{self.name(term.node)}.optional"
            value = w.with_border(value, border.left, border.right, moved, name)
        if value.still:
            value = w.e.spread(value, self._like())
        return value.times(term.scale)

    def _like(self) -> Value:
        for term in self.loop.reads:
            if not term.optional and not self.w.rows[term.node].value.still:
                read = Read(term.node, 1.0, (term.offset,))
                return self.w.reader.at(self.w.rows[term.node], self.grid, read)
        raise NotExportedError("a loop reads no rows that move with time")

    def is_inside(self, term: Term) -> bool:
        return term.node in self.loop.members

    def term(self, term: Term) -> Value:
        """A term as the row of a step."""
        if term.node < 0:
            raise AssertionError("constants are added by those who know the columns")
        if not self.is_inside(term):
            return self.take(term, self.outside(term))
        if term.offset:
            value = self.states[Term(1.0, term.node, term.offset, True)]
        else:
            value = self.members[term.node]
        return self.begun(term, value.times(term.scale))

    def begun(self, term: Term, value: Value) -> Value:
        """A row inside where it is there, else what stands for it."""
        loop = self.loop
        if not isinstance(loop, GeneralLoop) or not term.optional or not loop.begins(term):
            return value
        stand_ins = loop.instead.get(term)
        if stand_ins is None and not loop.lags[term.node]:
            return value  # the first states are zeros
        name = self.name(term.node)
        other = self.part(stand_ins or (Term(0.0),), value.dim, name)
        if not self.count:
            self.count = f"{name}.steps"
        first = self.e.op("Less", self.count, self.e.number(loop.begins(term)))
        made = self.e.op("Where", first, self.e.name(other), self.e.name(value), name=name)
        return Value(made, value.dim)

    def part(self, terms: Sequence[Term], dim: int, name: str) -> Value:
        """A sum of terms as the row of a step."""
        found: Value | None = None
        for term in terms:
            if term.node >= 0:
                value = self.term(term)
                found = value if found is None else self.e.add(found, value, name)
        if found is None:
            found = constant(self.e, np.zeros(dim), name)
        return found.plus(sum(term.scale for term in terms if term.node < 0))

    def descriptor(self, number: int) -> list[Value]:
        """What a descriptor node of the loop appends, in a step."""
        dims = self.w.topology.dims
        listed = self.w.topology.nodes[number].expression().parts
        return [
            self.part(terms, part.dim(dims), self.name(number))
            for part, terms in zip(listed, self.loop.parts[number], strict=True)
        ]

    def affine(self, number: int) -> Value:
        """An affine member: what it reads outside is multiplied before the loop."""
        node, name = self.w.topology.nodes[number], self.name(number)
        weights, bias = affine_of(node.component)
        dims, begin = self.w.topology.dims, 0
        before: Value | None = None
        inside: list[tuple[Value, np.ndarray]] = []
        parts = self.w.topology.nodes[number - 1].expression().parts
        for part, terms in zip(parts, self.loop.parts[number - 1], strict=True):
            size = part.dim(dims)
            share = weights[:, begin : begin + size]
            begin += size
            own = [term for term in terms if term.node < 0 or self.is_inside(term)]
            others = [term for term in terms if term not in own]
            for term in others:
                found = matrix(self.w.e, self.outside(term), share, bias, f"{name}.outside")
                bias = None
                before = found if before is None else self.w.e.add(before, found, name)
            if own:
                inside.append((self.part(own, size, name), share))
        total = None if before is None else self.take((number, "outside"), before)
        if inside:
            joined = self.e.join([value for value, _ in inside], name)
            whole = np.concatenate([share for _, share in inside], axis=1)
            found = matrix(self.e, joined, whole, bias, name)
            total = found if total is None else self.e.add(total, found, name)
        assert total is not None
        return total

    def member(self, number: int) -> None:
        """Write one member of the loop."""
        node = self.w.topology.nodes[number]
        if node.kind == "dim-range":
            source = self.members[node.source]
            cut = self.e.columns(source, node.dim_offset, node.dim, node.name)
            self.members[number] = cut
        elif node.kind == "component":
            if node.component.type in AFFINE:
                self.members[number] = self.affine(number)
            else:
                parts = self.descriptor(number - 1)
                self.members[number] = row_by_row(self.e, node.component, parts, node.name)


def _is_wide(w: Writer, loop: Loop) -> bool:
    """Whether a step computes in float64."""
    nodes = [w.topology.nodes[number] for number in loop.members]
    components = [node.component for node in nodes if node.kind == "component"]
    if any(component.type in _FLOATS_ALONE for component in components):
        return False
    return sum(component.num_parameters for component in components) <= _MOST_WIDE


_FLOATS_ALONE = ("ConvolutionComponent", "CompositeComponent")  # runtimes convolve in float32


def write_loop(w: Writer, loop: Loop) -> None:
    """Write all members of a recurrent layer, and set the rows of those that others read."""
    grid = w.plan.grids[loop.members[0]]
    step = _Step(w, loop, grid)
    chains = abs(loop.offset) // grid.step
    if w.reader.streaming and loop.offset > 0:
        raise NotExportedError("a layer that runs backwards cannot be streamed")
    dims = w.topology.nodes
    wanted = _read_elsewhere(w, loop)
    if not isinstance(loop, GeneralLoop):
        outside = step.outside
        if write_cell(w, loop, outside, wanted) or write_classic(w, loop, outside, wanted):
            return
    elif w.reader.streaming:
        name = w.topology.nodes[loop.members[0]].name
        raise NotExportedError(
            f"the loop of '{name}' reads itself at several offsets, or its first steps are not like"
            " others: no streams"
        )
    for term in loop.states:
        name = f"{step.name(term.node)}.before.{len(step.states)}"
        step.states[term] = Value(name, dims[term.node].dim)
    for number in loop.members:
        step.member(number)
    body, dtype = step.e.graph, step.e.dtype
    for value in step.states.values():
        body.input(value.name, dtype, ["M", value.dim])
    new = [_named(step, _next(step, loop, term)) for term in loop.states]
    if step.count:
        body.input(step.count, dtype, ["M", 1])
        more = step.e.op("Add", step.count, step.e.number(1), name=step.count)
        new.append(Value(more, 1))
    for name, value in zip(step.inputs, step.taken, strict=True):
        body.input(name, dtype, ["M", value.dim])
    numbers = sorted({term.node for term in loop.states} | set(wanted))
    given = [_named(step, step.members[number]) for number in numbers]
    for value in (*new, *given):
        body.output(value.name, dtype, ["M", value.dim])
    _run(w, step, loop, chains, numbers, given)


def _next(step: _Step, loop: Loop, term: Term) -> Value:
    """What a state is in the next step."""
    before = term.offset - loop.offset
    return step.states[term._replace(offset=before)] if before else step.members[term.node]


def _named(step: _Step, value: Value) -> Value:
    """A value under a name of its own, as outputs of a step want it."""
    plain = step.e.plain(value)
    return Value(step.e.op("Identity", plain.name, name=f"{plain.name}.out"), plain.dim)


def _read_elsewhere(w: Writer, loop: Loop) -> list[int]:
    """The members that nodes outside of the loop read; of column ranges their own."""
    inside = set(loop.members)
    found: list[int] = []
    for number in loop.members:
        node = w.topology.nodes[number]
        if node.kind == "descriptor":
            continue
        readers = w.topology.readers_of[number]
        if any(reader not in inside and reader in w.plan.grids for reader in readers):
            found.append(number)
    return found


def _run(
    w: Writer,
    step: _Step,
    loop: Loop,
    chains: int,
    numbers: list[int],
    given: list[Value],
) -> None:
    """The Scan, its inputs in its order of axes, and its outputs in ours."""
    backward = int(loop.offset > 0)
    if not step.taken:
        raise NotExportedError("a loop reads nothing but itself")
    sides = Chains(w, step.taken[0], chains, bool(backward))
    xs = [sides.blocks(value) for value in step.taken]
    firsts = [sides.first(step.name(term.node), step.states[term].dim) for term in loop.states]
    if step.count:
        firsts.append(sides.first(step.count, 1))
    wide = step.e.dtype is F64
    if wide:
        xs, firsts = ([w.e.cast(name, F64) for name in names] for names in (xs, firsts))
    outputs = w.e.graph.node(
        "Scan",
        [*firsts, *xs],
        "loop",
        outputs=len(firsts) + len(given),
        num_scan_inputs=len(xs),
        body=step.e.graph,
        scan_input_directions=[backward] * len(xs),
        scan_output_directions=[backward] * len(given),
    )
    outputs = [outputs] if isinstance(outputs, str) else outputs
    found = outputs[len(firsts) :]
    for number, value, rows in zip(numbers, given, found, strict=True):
        name = step.name(number)
        rows = sides.rows(w.e.cast(rows, F32) if wide else rows, value.dim, name)
        w.set(number, Value(rows, value.dim))
        if w.reader.streaming and any(term.node == number for term in loop.states):
            sides.keep(name, rows)
