"""A recurrent layer among the operators of a network: `recurrent`, what it takes and gives.

What a step reads of others is computed before, for all times at once. A layer that reads itself d
rows back is d chains that know nothing of each other: d sequences for each of N.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from ...framework.base.sizes.shape import ArraySpec
from ...framework.ir.desc import RECURRENT, make_var
from ...framework.ir.op_list import Link, MemoryDecl, OpList, OpNode, StepDecl
from ...framework.loops.recurrent.net import recurrent_op
from ...nnet3.graph.loops import Loop, Term
from .net import Value
from .reads import NotExportedError, Read
from .steps import LoopStep
from .walk import RowsWalk


class LayerRows:
    """The rows of a recurrent layer.

    Args:
        walk: has written what the layer reads.

    Attributes:
        grid: of all members. chains: d.
    """

    def __init__(self, walk: RowsWalk, loop: Loop) -> None:
        self.walk = walk
        self.net = walk.net
        self.loop = loop
        self.grid = walk.plan.grids[loop.members[0]]
        self.chains = abs(loop.offset) // self.grid.step
        self.title = f"loop.{walk.topology.nodes[loop.members[0]].name}"
        self._how = {"chains": self.chains, "backward": loop.offset > 0}
        self._like = ""

    def outside(self, term: Term) -> Value:
        """A term that reads a node outside, for all times, without its scale."""
        walk = self.walk
        name = self.walk.topology.nodes[term.node].name
        read = Read(term.node, 1.0, (term.offset,))
        rows = walk.rows[term.node]
        if not term.optional:
            return walk.reader.at(rows, self.grid, read)
        moved = self.grid.moved(term.offset)
        border = walk.plan.border(walk.plan.reach[term.node], moved)
        if border.masked:
            raise NotExportedError("optional rows inside of a loop may all be missing")
        value = walk.reader.at(rows, border.inner, Read(term.node, 1.0))
        return walk.with_border(value, border.left, border.right, moved, f"{name}.optional")

    def moving(self, value: Value) -> Value:
        """A value with a row for every time of the layer.

        Raises:
            NotExportedError: the layer reads no rows that move with time.
        """
        if not value.still:
            return value
        for term in self.loop.reads:
            if not term.optional and not self.walk.rows[term.node].value.still:
                return self.net.spread(value, self.outside(term))
        raise NotExportedError("a loop reads no rows that move with time")

    def sequences(self, values: Sequence[Value], dtype: str = "float32") -> list[str]:
        """Values as sequences of a dtype."""
        if not values:
            raise NotExportedError("a loop reads nothing but itself")
        names = [self.net.name(value) for value in values]
        if dtype != "float32":
            names = [self.net("cast", name, dtype=dtype, name=f"{name}.wide") for name in names]
        self._like = names[0]
        titles = [f"{name}.sequences" for name in names]
        return self.net.several("rows.sequences", names, names=titles, **self._how)

    def rows(self, sequences: Sequence[str], names: Sequence[str]) -> list[Value]:
        """Rows of what `recurrent` gives, called so."""
        variables = self.net.several(
            "rows.of_sequences", list(sequences), self._like, names=names, **self._how
        )
        return [Value(name, self.net.specs[name][0][1]) for name in variables]

    def recurrent(
        self,
        step: LoopStep,
        ops: Iterable[OpNode],
        arrays: Mapping[str, np.ndarray],
        given: Mapping[str, str],
        outputs: Mapping[str, str],
        boots: Mapping[str, str],
        finals: Collection[str] = (),
    ) -> tuple[list[str], dict[str, str]]:
        """Append the operator.

        Args:
            ops: of the step. arrays: its constants.
            given: the sequences that it takes, by their names in the step.
            outputs: what is taken of a step, and what that is called outside.
            boots: by the variables of states: what these are at first; by default zeros.
            finals: those whose last values are wanted.

        Returns:
            The sequences of the outputs, and the last values of states.
        """
        dtype = np.dtype(step.ops.dtype)
        decl = step_decl(step, ops, arrays, outputs)
        for link in decl.static_links:
            array = arrays[link.inner]
            link.outer = self.net.variable(link.inner, (array.shape, array.dtype))
            self.net.arrays[link.outer] = array
            if link.inner in step.parameters:
                self.net.parameters[link.outer] = step.parameters[link.inner]
        decl.in_links = [Link(outer, inner) for inner, outer in given.items()]
        specs: dict[str, ArraySpec] = {}
        for memory in decl.memories:
            memory.boot = boots.get(memory.previous, "")
            if memory.previous in finals:
                memory.final = self.net.variable(f"{memory.previous}/last")
                specs[memory.final] = (-1, step.ops.inputs[memory.previous]), dtype
        for inner, title in outputs.items():
            outer = self.net.variable(title)
            decl.out_links.append(Link(outer, inner))
            specs[outer] = step.specs[inner]
        self.net.put(recurrent_op(OpList(self.title, RECURRENT, steps=[decl])), specs)
        last = {memory.previous: memory.final for memory in decl.memories}
        return [link.outer for link in decl.out_links], last


def step_decl(
    step: LoopStep,
    ops: Iterable[OpNode],
    arrays: Mapping[str, np.ndarray],
    outputs: Iterable[str] = (),
) -> StepDecl:
    """A step with its states and constants, cut down to what some variables need."""
    decl = StepDecl(OpList(step.ops.title), reverse=step.loop.offset > 0)
    needed = {*step.after.values(), *outputs}
    for op in reversed(list(ops)):
        if needed.intersection(op.output_names()):
            decl.net.ops.insert(0, op)
            needed.update(op.input_names())
    decl.static_links = [Link(name, name) for name in arrays if name in needed]
    dtype = np.dtype(step.ops.dtype)
    for name, new in step.after.items():
        decl.net.vars.append(make_var(name, (-1, step.ops.inputs[name]), dtype))
        decl.memories.append(MemoryDecl(new, name))
    return decl
