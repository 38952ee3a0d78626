"""Recurrent loops: the nodes of one as the step net of a `recurrent` operator.

Inside a step a value is the rows of all sequences that have this step, so the functions that lower
nodes are the same as outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.typing import DTypeLike

from ...framework.ir.desc import INPUT, RECURRENT
from ...framework.ir.names import COPY_OP
from ...framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from ...framework.loops.recurrent.net import recurrent_op
from ..network.nodes.analysis import Loop
from ..network.nodes.node import Node
from .emitter import Emitter, Sparse, dims
from .kinds.delays import delay_start, delay_states, delay_steps, widened
from .table import lower_node


class StepEmitter(Emitter):
    """Emits the step net of a loop.

    Values from outside are linked: rows as in-links, values without samples as they are.
    """

    def __init__(self, outer: Emitter, loop: Loop) -> None:
        super().__init__(
            outer.dtype,
            carried=outer.carried,
            inference=outer.inference,
            name=loop.source.name,
        )
        self._outer = outer
        self._reverse = loop.direction < 0
        self._inside = set(loop.nodes)
        self.links: dict[str, None] = {}
        self.lowered.inputs = outer.lowered.inputs
        self.lowered.sequences = outer.lowered.sequences
        self.lowered.delays = outer.lowered.delays
        self.lowered.conditions = outer.lowered.conditions

    def value(self, node: Node) -> str:
        if node in self._inside:
            return self.lowered.values[node]
        return self._link(node, self._outer.value(node))

    def sparse(self, node: Node) -> Sparse | None:
        return super().sparse(node) if node in self._inside else None

    def shaped(self, node: Node, shape: Sequence[int]) -> str:
        if node in self._inside:
            return super().shaped(node, shape)
        return self._link(node, self._outer.shaped(node, shape))

    def _link(self, node: Node, name: str) -> str:
        if node.axis is not None:
            self.links[name] = None
        return name

    def state(
        self,
        node: Node,
        part: str,
        shape: Sequence[int],
        value: float = 0.0,
        dtype: DTypeLike | None = None,
    ) -> str:
        return self._outer.state(node, part, shape, value, dtype)

    def outside(self, node: Node, make: Callable[[Emitter, bool], str]) -> str:
        return self._link(node, make(self._outer, self._reverse))

    def given(self, name: str) -> bool:
        """Whether a variable is one that no operator of the step writes."""
        return name not in self._written

    def written(self, name: str) -> str:
        """A variable that an operator of the step writes: `name`, or a copy of it."""
        return self.op(COPY_OP, {"x": name}) if self.given(name) else name


def lower_loop(e: Emitter, loop: Loop, wanted: set[Node]) -> None:
    """Emit a loop as one operator; `wanted` are the nodes of it that are read outside."""
    step = StepEmitter(e, loop)
    step_decl = StepDecl(step.lowered.op_list, reverse=loop.direction < 0)
    delays = [node for node in loop.nodes if node.delay]
    for node in delays:
        step.lowered.values[node] = step.var(node.name, (-1, *dims(node)), INPUT)
    for node in loop.nodes:
        if not node.delay:
            lower_node(step, node)
    axis = loop.source.axis
    e.sequences(axis)
    if not step.links:
        step.links[_some_rows(e, loop)] = None
    for node in delays:
        _add_memory(e, step, step_decl, node)
    for node in loop.nodes:
        if node in wanted:
            inner = step.value(node)
            outer = node.name if step.given(inner) else inner
            e.lowered.values[node] = outer
            inner = step.written(inner)
            if not any(link.outer == outer for link in step_decl.out_links):
                step_decl.out_links.append(Link(outer, inner))
    for name in step.links:
        step_decl.in_links.append(Link(name, name))
    e.append(recurrent_op(OpList(loop.source.name, RECURRENT, steps=[step_decl])))


def _some_rows(e: Emitter, loop: Loop) -> str:
    """Any variable with the samples that the loop runs over."""
    for node in e.lowered.values:
        if node.axis is loop.source.axis:
            return e.value(node)
    raise loop.source.error("nothing outside of the loop gives the length of its sequences")


def _add_memory(e: Emitter, step: StepEmitter, step_decl: StepDecl, node: Node) -> None:
    """The memory that a delay is; in a chain of them each has its own state before the start."""
    state = step.written(widened(step, node))
    count = delay_steps(node)
    boots = delay_states(e, node, next(iter(step.links)))
    if not boots:
        value = delay_start(node)
        step_decl.memories.append(MemoryDecl(state, node.name, boot_value=value, delay=count))
        return
    if len(boots) == 1:
        step_decl.memories.append(MemoryDecl(state, node.name, boots[0], delay=count))
        return
    for number, boot in enumerate(boots, 1):
        previous = node.name
        if number < count:
            previous = step.var(step.temporary(), (-1, *dims(node)), INPUT)
        step_decl.memories.append(MemoryDecl(state, previous, boot))
        if number < count:
            state = step.op(COPY_OP, {"x": previous})
