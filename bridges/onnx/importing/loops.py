"""A Scan as the operator `recurrent`: the loop runs inside of the net, for any number of rounds.

The sequences of that operator are the rows N of what is scanned, [T, N, ...]; so the body sees a
round as [N, ...], and its states are also [N, ...].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ....framework.base.sizes.dims import Dim
from ....framework.ir.desc import INPUT, RECURRENT, make_var
from ....framework.ir.op_list import Link, MemoryDecl, OpList, OpNode, StepDecl
from ....framework.loops.recurrent.net import recurrent_op
from .calls import Attributes, Value


@dataclass(frozen=True)
class Body:
    """The body of a loop in operators.

    Attributes:
        ops: of the step net. results: its outputs, in order.
        names: variables of its inputs and of what it captures.
    """

    ops: Sequence[OpNode]
    results: Sequence[Value]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Loop:
    """A Scan whose inputs are known as values of a net.

    Attributes:
        states: first ones. scanned: what rounds read a row of, [T, N, ...].
        captured: values around that the body reads, by name.
        is_reversed: whether the last row comes first.
    """

    n: Attributes
    states: Sequence[Value]
    scanned: Sequence[Value]
    captured: Mapping[str, Value]
    is_reversed: bool

    @classmethod
    def of(cls, n: Attributes, values: Mapping[str, Value | None]) -> Loop | None:
        """The loop of a node; None where it is no Scan over the rows of a batch."""
        node = n.node
        count = n.attr("num_scan_inputs", 0)
        given = [values.get(name) for name in node.inputs]
        captured = {name: values.get(name) for name in node.captures}
        known = [value for value in (*given, *captured.values()) if value is not None]
        if len(known) < len(given) + len(captured) or not 0 < count < len(given):
            return None
        states, scanned = known[: len(given) - count], known[len(given) - count : len(given)]
        ways = {*(n.ints("scan_input_directions", [0] * count) or [])}
        ways |= {*(n.ints("scan_output_directions", [0]) or [])}
        if len(ways) > 1 or min(value.ndim for value in scanned) < 3:
            return None
        steps, rows = scanned[0].shape[:2]
        if any(value.shape[:2] != (steps, rows) for value in scanned[1:]):
            return None
        if 0 in (steps, rows) or any(not _starts(state, rows) for state in states):
            return None
        around = dict(zip(captured, known[len(given) :], strict=True))
        return cls(n, states, scanned, around, ways == {1})

    @property
    def steps(self) -> int:
        return self.scanned[0].shape[0]

    @property
    def rows(self) -> int:
        return self.scanned[0].shape[1]


def _starts(state: Value, rows: int) -> bool:
    """Whether states begin with a row for each sequence, or with zeros."""
    zeros = state.array is not None and not state.is_parameter and not state.array.any()
    return state.ndim > 0 and (state.shape[0] == rows or (zeros and state.shape[0] == 1))


def boots(state: Value) -> bool:
    """Whether a state needs first values of its own: those of others are 0."""
    return state.array is None or state.is_parameter or bool(state.array.any())


def loop_op(
    title: str,
    loop: Loop,
    rows: Sequence[str],
    body: Body,
    inputs: Sequence[str],
    first: Sequence[str],
    statics: Mapping[str, str],
) -> tuple[OpNode, list[str], list[str]]:
    """The operator, and what holds its last states and the results of all rounds.

    Args:
        title: begins the names of results. rows: sequences of what is scanned, outside.
        inputs: of the body: states, then what it reads of a row. first: first states, outside; ""
            for zeros. statics: what is captured: inside -> outside.
    """
    count = len(loop.states)
    step = StepDecl(OpList(title), reverse=loop.is_reversed)
    step.net.ops = list(body.ops)
    finals = [f"{title}/last{at}" for at in range(count)]
    outs = [f"{title}/all{at}" for at in range(len(body.results) - count)]
    for previous, state, boot, after, final in zip(
        inputs[:count], loop.states, first, body.results[:count], finals, strict=True
    ):
        sizes = [-1 if isinstance(dim, Dim) else dim for dim in state.shape[1:]]
        step.net.vars.append(make_var(previous, (-1, *sizes), state.dtype, INPUT))
        step.memories.append(MemoryDecl(after.name, previous, boot, delay=1, final=final))
    step.in_links += [Link(*pair) for pair in zip(rows, inputs[count:], strict=True)]
    step.static_links += [Link(outside, inside) for inside, outside in statics.items()]
    step.out_links += [
        Link(out, result.name) for out, result in zip(outs, body.results[count:], strict=True)
    ]
    op = recurrent_op(OpList(title, RECURRENT, steps=[step]), "")
    slots = {slot: names for slot, names in op.outputs.items() if slot != "steps" and names}
    return op.changed(outputs=slots), finals, outs


def without_unread(op: OpNode, read: Collection[str]) -> OpNode:
    """An operator; a loop without last states that nothing reads, which would be copied."""
    finals = op.outputs.get("final", ())
    if op.type != "recurrent" or all(name in read for name in finals):
        return op
    net: OpList = op.attrs["net"].copy()
    for memory in net.steps[0].memories:
        memory.final = memory.final if memory.final in read else ""
    outputs = {slot: names for slot, names in op.outputs.items() if slot != "final"}
    left = tuple([name for name in finals if name in read])
    return op.changed(
        attrs={**op.attrs, "net": net}, outputs=outputs | ({"final": left} if left else {})
    )
