"""A recurrent layer as one `recurrent` operator, whose step net is written here.

A step has one row for each sequence, or several where the layer reads itself some steps back:
with an offset of -3 the frames t, t + 3, t + 6, ... are a sequence of their own. Kaldi computes the
same rows together in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...framework.ir.desc import FORWARD, INPUT, RECURRENT, make_op, make_var
from ...framework.ir.names import COPY_OP, EMPTY
from ...framework.ir.op_list import Link, MemoryDecl, OpList, OpNode, StepDecl
from ...framework.ir.registry import lookup
from ...framework.loops.recurrent.description import step_net
from ...framework.loops.recurrent.net import recurrent_op
from ..components import ComponentOps
from ..components.base.lowered_op import Attrs, field_of_indexes
from ..components.base.lowering import OUT, X, is_own
from ..components.base.template import own_field
from ..graph.loops import IrregularError, Loop, Term
from ..graph.topology import Topology
from ..graph.topology_node import FLAGS, TopologyNode

_PASSED_ON = {"nnet3.truncate_gradient", "nnet3.clip_gradient", "nnet3.scale_gradient"}
"""Operators that copy and do something to the gradient, which nothing asks for here."""

_PERHAPS_BY_ROW = FLAGS.RANDOM | FLAGS.USES_MEMO
"""Of components that compute row by row in test mode: dropout, batch normalization."""


class LoopStep:
    """Writes the step net of a loop.

    Args:
        title: of the loop, unique in its net.
        ops_of: the operators of the component of a node.

    Attributes:
        net: the operators of a step.
    """

    def __init__(
        self, topology: Topology, loop: Loop, title: str, ops_of: Callable[[int], ComponentOps]
    ) -> None:
        self._topology = topology
        self._loop = loop
        self._shared: dict[tuple[Any, ...], str] = {}  # operators that several parts share
        self._inside = set(loop.members)
        self._values: dict[int, str] = {}
        self.net = OpList(title)
        self._before = {
            term: self._input(f"before@{n}", term) for n, term in enumerate(loop.states)
        }
        self._read = {term: self._input(f"read@{n}", term) for n, term in enumerate(loop.reads)}
        for number in loop.members:
            node = topology.nodes[number]
            if node.kind == "descriptor":
                parts = [self._sum(part) for part in loop.parts[number]]
                value = parts[0] if len(parts) == 1 else self._op("concat", {"x": parts}, axis=1)
            elif node.kind == "dim-range":
                begin = node.dim_offset
                end = node.dim_offset + node.dim
                cut = {"axes": [1], "starts": [begin], "ends": [end]}
                value = self._op("slice", {"x": self._values[node.source]}, **cut)
            else:
                value = node.name
                self._component(ops_of(number), node, self._values[number - 1])
            self._values[number] = value

    def _input(self, name: str, term: Term) -> str:
        """A variable that a step is given."""
        shape = (-1, self._topology.nodes[term.node].dim)
        self.net.vars.append(make_var(name, shape, "float32", INPUT))
        return name

    def _op(self, op_type: str, inputs: Mapping[str, Any], **attrs: Any) -> str:
        """The output of an operator, which is made once for all who want it."""
        key = op_type, repr(inputs), repr(attrs)
        if key not in self._shared:
            out = self._shared[key] = f"value@{len(self._shared)}"
            self.net.ops.append(make_op(op_type, inputs, {"out": out}, attrs))
        return self._shared[key]

    def _sum(self, terms: Sequence[Term]) -> str:
        """The variable of a part of a descriptor."""
        total = ""
        constant = 0.0
        for term in terms:
            if term.node < 0:
                constant += term.scale
                continue
            value = self._term(term)
            total = self._op("add", {"x": total, "y": value}) if total else value
        if not total:
            raise IrregularError("a constant stands alone")
        if constant:
            level = self._op("fill_like", {"x": total}, value=constant)
            total = self._op("add", {"x": level, "y": total})
        return total

    def _term(self, term: Term) -> str:
        key = term._replace(scale=1.0)
        if term.node not in self._inside:
            value = self._read[key]
        else:
            value = self._before[key] if term.offset else self._values[term.node]
        return value if term.scale == 1 else self._op("scale", {"x": value}, scale=term.scale)

    def _component(self, ops: ComponentOps, node: TopologyNode, x: str) -> None:
        """Append the operators of a component; its output has the name of the node."""
        recipe = ops.recipe()
        name = node.component_name
        out = node.name
        names = {X: x, OUT: out, EMPTY: EMPTY}
        for symbol in [symbol for op in recipe.forward for symbol in op.variables()]:
            names.setdefault(
                symbol, name + own_field(symbol) if is_own(symbol) else out + "/" + symbol
            )
        by_row = recipe.is_general
        for op in recipe.forward:
            step_op = op.renamed(names)
            if op.type in _PASSED_ON:
                step_op = step_op._replace(type=COPY_OP, attrs=Attrs({}))
            entry = lookup(step_op.type)
            if node.properties & _PERHAPS_BY_ROW:
                by_row = by_row and not entry.random and bool(entry.rows or entry.scalar)
            values = step_op.attrs.values.values()
            by_row = by_row and not any(field_of_indexes(value) is not None for value in values)
            self.net.ops.append(step_op.node(FORWARD))
        if not by_row:
            raise IrregularError(f"'{out}' does not compute row by row")

    def operator(self, reads: Iterable[str], outputs: Mapping[int, str]) -> OpNode:
        """The `recurrent` operator.

        Args:
            reads: the variables outside of what the loop reads, in the order of `Loop.reads`.
            outputs: for nodes that are read outside the variables there.
        """
        step = StepDecl(self.net, reverse=self._loop.offset > 0)
        step.in_links = [Link(o, i) for o, i in zip(reads, self._read.values(), strict=True)]
        for term, before in self._before.items():
            step.memories.append(MemoryDecl(self._values[term.node], before))
        step.out_links = [Link(outer, self._values[node]) for node, outer in outputs.items()]
        op = recurrent_op(OpList(self.net.name, RECURRENT, steps=[step]))
        if not step_net(op.attrs["net"]).regular:
            raise IrregularError("a step writes a variable twice")  # each would run by itself
        return op
