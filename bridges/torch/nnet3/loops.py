"""Recurrent layers: a method for one step, and one call that runs it over time.

Values in a step are [M, columns]. What a step reads of other layers is computed before, for all
times at once; so is the part of an affine layer that does not hang on the step before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ....nnet3.graph.loops import Loop, Term
from ...nnet3_rows.loops import GeneralLoop
from ...nnet3_rows.reads import NotExportedError, Read
from ..folder import NotInTorchError
from ..formatting import atom, bare, unpacked
from ..naming import Names
from .descriptors import DescriptorWriter, side_by_side, spread
from .layer import Layer, number_text
from .layers import AFFINE, affine_layer, linear_layer, recurrent_layer
from .rows import Rows


class _Step:
    """The method of one step, and what it takes and gives.

    Attributes:
        lines: of the method.
        taken: expressions over all times, of which a step takes a row.
        inputs: the names that these rows have in the step.
    """

    def __init__(self, w: DescriptorWriter, loop: Loop) -> None:
        self.w = w
        self.loop = loop
        self.topology = w.topology
        self.grid = w.plan.grids[loop.members[0]]
        self.lines: list[str] = []
        self.taken: list[Rows] = []
        self.inputs: list[str] = []
        self.members: dict[int, str] = {}
        self.states: dict[Term, str] = {}
        self.names = Names(*w.reserved, "states", "rows")
        self._known: dict[Term | int, str] = {}
        for term in loop.states:
            self.states[term] = self._variable(f"{self._name(term.node)}_before")

    def _name(self, number: int) -> str:
        return self.topology.nodes[number].name

    def _variable(self, name: str) -> str:
        return self.names.unique(name)

    def _set(self, number: int, text: str) -> None:
        variable = self._variable(self._name(number))
        self.lines.append(f"{variable} = {bare(text)}")
        self.members[number] = variable

    # What is read outside

    def outside(self, term: Term) -> Rows:
        """A term that reads a node outside, for all times."""
        w, grid = self.w, self.grid
        if not term.optional:
            read = Read(term.node, term.scale, (term.offset,))
            return w.read(w.rows[term.node], read, grid)
        moved = grid.moved(term.offset)
        border = w.plan.border(w.plan.reach[term.node], moved)
        if border.masked:
            raise NotInTorchError("optional rows inside of a loop may all be missing")
        found = w.read(w.rows[term.node], Read(term.node, term.scale), border.inner)
        return w.with_border(found, border.left, border.right, moved)

    def _take(self, key: Term | int, rows: Rows, name: str) -> str:
        if key not in self._known:
            self.taken.append(rows)
            self.inputs.append(self._variable(name))
            self._known[key] = self.inputs[-1]
        return self._known[key]

    def _is_inside(self, term: Term) -> bool:
        return term.node in self.loop.members

    # What a step computes

    def _term(self, term: Term) -> str:
        if term.node < 0:
            return number_text(term.scale)
        bare = term._replace(scale=1.0)
        if not self._is_inside(term):
            text = self._take(bare, self.outside(bare), f"{self._name(term.node)}_row")
        else:
            text = self.states[bare] if term.offset else self.members[term.node]
        return text if term.scale == 1 else f"{number_text(term.scale)} * {text}"

    def _part(self, terms: Sequence[Term], columns: int) -> str:
        texts = [self._term(term) for term in terms]
        if all(term.node < 0 for term in terms):
            like = next(iter(self.states.values()))
            return f"{like}.new_full(({like}.shape[0], {columns}), {' + '.join(texts)})"
        return f"({' + '.join(texts)})" if len(texts) > 1 else texts[0]

    def _parts(self, number: int) -> list[str]:
        """What a descriptor node of the loop appends."""
        dims = self.topology.dims
        listed = self.topology.nodes[number].expression().parts
        return [
            self._part(terms, part.dim(dims))
            for part, terms in zip(listed, self.loop.parts[number], strict=True)
        ]

    def member(self, number: int) -> None:
        """Write one member of the loop."""
        node = self.topology.nodes[number]
        if node.kind == "dim-range":
            source = self.members[node.source]
            self._set(number, f"{source}[:, {node.dim_offset}:{node.dim_offset + node.dim}]")
        elif node.kind == "component" and node.component.type in AFFINE:
            self._affine(number)
        elif node.kind == "component":
            parts, dims = self._parts(number - 1), self.w.columns(number - 1)
            given = list(zip(parts, dims, strict=True))
            self._set(number, self.w.component(self.lines, self.names, node, given, 2))

    def _apply(self, number: int, layer: Layer, x: str) -> None:
        node = self.topology.nodes[number]
        if layer.over_time:  # for [N, columns, T] alone
            found = self.w.applied(node, layer, f"{atom(x)}[:, :, None]")
            self._set(number, f"{atom(found)}[:, :, 0]")
        else:
            self._set(number, self.w.applied(node, layer, x))

    def _affine(self, number: int) -> None:
        """An affine member: what it reads outside is multiplied before the loop."""
        node, dims = self.topology.nodes[number], self.topology.dims
        users = [
            each
            for each in self.w.plan.grids
            if self.topology.nodes[each].kind == "component"
            and self.topology.nodes[each].component_name == node.component_name
        ]
        if len(users) > 1:  # which need one form of it
            x = side_by_side(self._parts(number - 1))
            self._apply(number, affine_layer(node.component, 1), x)
            return
        parts = self.topology.nodes[number - 1].expression().parts
        own: list[int] = []
        others: list[int] = []
        columns_own: list[int] = []
        columns_others: list[int] = []
        begin = 0
        for place, (part, terms) in enumerate(zip(parts, self.loop.parts[number - 1], strict=True)):
            size = part.dim(dims)
            columns = range(begin, begin + size)
            begin += size
            if any(term.node < 0 or self._is_inside(term) for term in terms):
                own.append(place)
                columns_own += columns
            else:
                others.append(place)
                columns_others += columns
        if not others:
            x = side_by_side(self._parts(number - 1))
            self._apply(number, linear_layer(node.component), x)
            return
        layer = recurrent_layer(node.component, columns_others, columns_own)
        module = self.w.member(node, layer)
        self.w.helpers.add(layer.helper)
        x = self._outside_parts([self.loop.parts[number - 1][place] for place in others])
        rows = Rows(f"{module}.inputs({x.text})", self.grid, x.still)
        given = self._take(number, rows, f"{node.name}_inputs")
        listed = self.loop.parts[number - 1]
        inside = [self._part(listed[place], parts[place].dim(dims)) for place in own]
        self._set(number, f"{module}({given}, {side_by_side(inside)})" if own else given)

    def _outside_parts(self, parts: Sequence[Sequence[Term]]) -> Rows:
        """Parts that read outside alone, side by side, for all times."""
        found: list[Rows] = []
        for terms in parts:
            listed = [self.outside(term) for term in terms]
            text = " + ".join(rows.text for rows in listed)
            still = all(rows.still for rows in listed)
            found.append(Rows(f"({text})" if len(listed) > 1 else text, self.grid, still))
        if len(found) == 1:
            return found[0]
        still = all(rows.still for rows in found)
        like = next((rows for rows in found if not rows.still), None)
        if like is not None and any(rows.still for rows in found):
            held = self.w.assigned("rows_of_loop", like.text)
            place = found.index(like)
            found = [spread(rows, held) if rows.still else rows for rows in found]
            found[place] = Rows(held, self.grid)
        return Rows(side_by_side([rows.text for rows in found]), self.grid, still)


def write_loop(w: DescriptorWriter, loop: Loop) -> None:
    """Write all members of a recurrent layer, and set the rows of those that others read.

    Raises:
        NotExportedError: a loop reads itself at several offsets, or begins in another way.
    """
    if isinstance(loop, GeneralLoop):
        name = w.topology.nodes[loop.members[0]].name
        raise NotExportedError(
            f"the loop of '{name}' is no recurrent layer: a loop reads itself at several offsets,"
            " or its first steps are not like others; to-onnx takes it"
        )
    step = _Step(w, loop)
    for number in loop.members:
        step.member(number)
    wanted = w.plan.read_elsewhere(loop)
    nodes = w.topology.nodes
    name = _name(w, loop)
    new = [step.members[term.node] for term in loop.states]
    given = [step.members[number] for number in wanted]
    method = w.attribute(f"{name}_step")
    before = abs(loop.offset)
    time = f"t - {before}" if loop.offset < 0 else f"t + {before}"
    lines = [
        f"def {method}(self, states, rows):",
        f'    """{name} at time t; states are of {time}, zeros where there is none."""',
        f"    {unpacked(list(step.states.values()))} = states",
        f"    {unpacked(step.inputs)} = rows",
        *(f"    {line}" for line in step.lines),
        f"    return [{', '.join(new)}], [{', '.join(given)}]",
    ]
    w.methods.append("\n".join(lines))
    w.helpers.add("over_time")
    widths = [nodes[term.node].dim for term in loop.states]
    options = f", delay={before // step.grid.step}" if before != step.grid.step else ""
    options += ", backward=True" if loop.offset > 0 else ""
    taken = _moving(w, step)
    found = [w.variable(step.topology.nodes[number].name) for number in wanted]
    call = f"over_time(self.{method}, {widths}, [{', '.join(taken)}]{options})"
    w.lines.append(f"{unpacked(found)} = {call}")
    for number, variable in zip(wanted, found, strict=True):
        w.rows[number] = Rows(variable, step.grid)


def _moving(w: DescriptorWriter, step: _Step) -> list[str]:
    """What a loop takes, with rows for all times."""
    like = next((rows for rows in step.taken if not rows.still), None)
    if like is None:
        raise NotInTorchError("a loop reads no rows that move with time")
    if not any(rows.still for rows in step.taken):
        return [rows.text for rows in step.taken]
    held = w.assigned("rows_of_loop", like.text)
    return [
        held if rows is like else (spread(rows, held).text if rows.still else rows.text)
        for rows in step.taken
    ]


def _name(w: DescriptorWriter, loop: Loop) -> str:
    """What the names of the members have in common, or the first of them."""
    nodes = w.topology.nodes
    names = [nodes[number].name for number in loop.members if nodes[number].kind != "descriptor"]
    common = os.path.commonprefix(names).rstrip("._-")
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in common or names[0])
    return plain if plain.strip("_") else "loop"
