"""Recurrent nets: RNN, GRU and LSTM where they are that, else Scan; over one sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .....framework.base.shape import ArraySpec
from .....framework.loops.recurrent.description import StepNet, step_net
from ..emission import Emission, RefusedError, Values, emit_operators, emits
from .cells import Cell, find_cell, with_products


@dataclass(frozen=True)
class _Loop:
    """A `recurrent` operator, with what its step net is given."""

    e: Emission
    step: StepNet
    specs: dict[str, ArraySpec]

    @classmethod
    def of(cls, e: Emission) -> _Loop:
        step = step_net(e.attrs["net"])
        known: dict[str, ArraySpec] = {}
        for number, name in enumerate(step.inputs):
            shape, dtype = e.spec("x", number)
            known[name] = ((1, *shape[1:]), dtype)
        for number, name in enumerate(step.statics):
            known[name] = e.spec("static", number)
        for memory in step.memories:
            if memory.boot >= 0:
                shape, dtype = e.spec("boot", memory.boot)
                row: ArraySpec | None = (shape[1:], dtype)
            else:
                row = step.declared_row(memory)
            if row is None:
                e.refuse(f"the width of its memory {memory.state!r} is not known; declare it")
            known[memory.previous] = ((1, *row[0]), row[1])
        return cls(e, step, step.infer(known, -1, None))

    def start(self, number: int) -> str:
        """The first value of a memory, [1, ...]."""
        memory = self.step.memories[number]
        if memory.boot >= 0:
            return self.e.list("boot")[memory.boot]
        shape, dtype = self.specs[memory.previous]
        if min(shape) < 0:
            self.e.refuse(f"the width of its memory {memory.state!r} is not known; declare it")
        return self.e.graph.constant(np.full(shape, memory.boot_value, dtype))


@emits("recurrent")
def recurrent(e: Emission) -> None:
    loop = _Loop.of(e)
    if e.op.outputs.get("sum"):
        e.refuse("sums over its steps are of gradients")
    statics = dict(zip(loop.step.statics, e.op.inputs.get("static", ()), strict=True))
    arrays = {inner: e.values.array_of(outer) for inner, outer in statics.items()}
    arrays.update({name: np.ones(1) for name in _ones(loop)})
    known = {name: array for name, array in arrays.items() if array is not None}
    cell = find_cell(loop.step, known, loop.specs)
    if cell is not None and set(loop.step.outputs) <= {cell.output}:
        _emit_cell(loop, cell)
    else:
        _emit_scan(loop)


def _ones(loop: _Loop) -> set[str]:
    """In-links that are 1 everywhere at inference."""
    links = zip(loop.step.inputs, loop.e.op.inputs["x"], strict=True)
    return {inner for inner, outer in links if loop.e.values.is_ones(outer)}


def _emit_cell(loop: _Loop, cell: Cell) -> None:
    """One operator over [T, 1, K]; its results are [T, 1, 1, H] and, in the end, [1, 1, H]."""
    e, dtype = loop.e, loop.specs[cell.output][1]
    links = dict(zip(loop.step.inputs, e.op.inputs["x"], strict=True))
    specs = {**e.values.specs}
    widths = {n: s[1] for n, (s, _) in specs.items() if len(s) == 2 and s[1] >= 0}
    cell, reads = with_products(cell, links, e.values.made, e.values.arrays, widths)
    x = e.unsqueeze(e.concat([e.values.name_of(name) for name in reads], 1), 1)
    title = e.op.output_vars()[0]
    parts = {"W": cell.w, "R": cell.r, "B": cell.b}
    weights = [e.graph.constant(a, f"{title}/{part}", dtype) for part, a in parts.items()]
    memories = [memory.previous for memory in loop.step.memories]
    starts: list[str | None] = []
    for previous in cell.memories:
        memory = loop.step.memories[memories.index(previous)]
        is_zero = memory.boot < 0 and not memory.boot_value
        start = None if is_zero else e.unsqueeze(loop.start(memories.index(previous)), 0)
        starts.append(start)
    more = [] if cell.p is None else [e.graph.constant(cell.p, f"{title}/P", dtype)]
    found = e.node(
        cell.type, x, *weights, None, *starts, *more, outputs=1 + len(starts),
        hidden_size=cell.r.shape[-1], direction="reverse" if loop.step.reverse else "forward",
        **cell.attributes,
    )  # fmt: skip
    for previous, last in zip(cell.memories, found[1:], strict=True):
        memory = loop.step.memories[memories.index(previous)]
        if memory.final >= 0:
            e.set_one("final", memory.final, e.squeeze(last, 0))
    if loop.step.outputs:
        e.set("out", *[e.squeeze(found[0], 1, 2)] * len(loop.step.outputs))


def _emit_scan(loop: _Loop) -> None:
    e, step = loop.e, loop.step
    body = e.graph.sub_graph(f"{e.values.prefix}{step.name}")
    inner = Values(body, dict(loop.specs), refused=e.values.refused)
    inner.prefix = f"{body.message.name}/"
    for name, value, outer in zip(
        step.statics, e.list("static"), e.op.inputs.get("static", ()), strict=True
    ):
        inner.names[name] = value
        array = e.values.array_of(outer)
        if array is not None:
            inner.arrays[name] = array
    for memory in step.memories:
        inner.names[memory.previous] = _body_input(inner, memory.previous)
    inner.ones.update(_ones(loop))
    links = dict(zip(step.inputs, e.op.inputs["x"], strict=True))
    sliced = [name for name in step.inputs if name not in inner.ones]
    slices = [_body_input(inner, name) for name in sliced]
    for name, value in zip(sliced, slices, strict=True):
        rows = [value, body.ints(0)]
        inner.names[name] = body.node("Unsqueeze", rows, f"{inner.prefix}{name}/row")
    emit_operators(inner, step.operators)
    if inner.broken:
        raise RefusedError  # the operators of the step net have told why
    for memory in step.memories:
        state = body.node(
            "Identity", [inner.name_of(memory.state)], f"{inner.prefix}{memory.state}/next"
        )
        body.output(state, loop.specs[memory.previous][1])
    for name in step.outputs:
        row = [inner.name_of(name), body.ints(0)]
        row_out = body.node("Squeeze", row, f"{inner.prefix}{name}/out")
        body.output(row_out, loop.specs[name][1])
    count = len(step.memories)
    direction = int(step.reverse)
    starts = [loop.start(number) for number in range(count)]
    found = e.node(
        "Scan", *starts, *(e.values.name_of(links[name]) for name in sliced),
        outputs=count + len(step.outputs), body=body, num_scan_inputs=len(sliced),
        scan_input_directions=[direction] * len(sliced),
        scan_output_directions=[direction] * len(step.outputs) or None,
    )  # fmt: skip
    found = found if isinstance(found, list) else [found]
    for memory, last in zip(step.memories, found, strict=False):
        if memory.final >= 0:
            e.set_one("final", memory.final, last)
    e.set("out", *found[count:])


def _body_input(inner: Values, name: str) -> str:
    """An input of the step's graph; its type follows from what the Scan is given."""
    unique = inner.graph.unique(inner.prefix + name)
    inner.graph.message.input.add(name=unique)
    return unique
