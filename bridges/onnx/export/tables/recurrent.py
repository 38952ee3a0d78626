"""Recurrent nets: RNN, GRU and LSTM where they are that, else Scan; over one sequence."""

from __future__ import annotations

import numpy as np

from .....framework.base.sizes.shape import ArraySpec
from .....framework.ir.operation import Operator, expand_op
from .....operators.control.layers import LAST, RECURRENT_LAYERS
from ....inference.reading import Recurrence, RefusedError
from ...cells import Cell, find_cell, layer_cell, with_products
from ..emission import Emission, Values, emits
from ..operators import emit_operators


class _Loop(Recurrence):
    """Its sequences are [T, ...], or [T, N, ...] where `Values.side_by_side` says so."""

    e: Emission

    def start(self, number: int) -> str:
        """The first value of a memory, [1, ...]."""
        memory = self.step.memories[number]
        if memory.boot >= 0:
            return self.e.list("boot")[memory.boot]
        shape, dtype = self.specs[memory.previous]
        if self.e.values.side_by_side:
            return self._zeros(shape[1], dtype)
        return self.e.graph.constant(np.full(shape, memory.boot_value, dtype))

    def _zeros(self, width: int, dtype: np.dtype) -> str:
        """Zeros [N, width] for sequences [T, N, ...]."""
        e = self.e
        x = self.e.list("x")[0]
        sizes = e.values.sizes
        key = (x, 1)
        if key not in sizes:
            sizes[key] = e.cut(e.node("Shape", x), 0, 1, 2)
        shape = e.node("Concat", sizes[key], e.ints(width), axis=0)
        return e.node("ConstantOfShape", shape, value=np.zeros(1, dtype))


@emits("recurrent")
def recurrent(e: Emission) -> None:
    loop = _Loop.of(e, -1 if e.values.side_by_side else 1)
    if e.op.outputs.get("sum"):
        e.refuse("sums over its steps are of gradients")
    if e.values.side_by_side:
        traced = e.values.cells.get(e.op.outputs["out"][0])
        if traced is None:
            emit_scan(loop)
        else:
            emit_cell(loop, traced[0], e.values.name_of(traced[1]))
        return
    statics = dict(zip(loop.step.statics, e.op.inputs.get("static", ()), strict=True))
    arrays = {inner: e.values.array_of(outer) for inner, outer in statics.items()}
    known = {name: array for name, array in arrays.items() if array is not None}
    cell = find_cell(loop.step, known, loop.specs)
    if cell is not None and set(loop.step.outputs) <= {cell.output}:
        emit_cell(loop, cell)
    else:
        emit_scan(loop)


def emit_cell(loop: _Loop, cell: Cell, x: str = "") -> None:
    """One operator over [T, N, K]; its results are [T, 1, N, H] and, in the end, [1, N, H].

    Args:
        x: [T, N, K], what the cell reads, where that is side by side already.
    """
    e = loop.e
    dtype = loop.specs[cell.output][1]
    if not x:
        links = dict(zip(loop.step.inputs, e.op.inputs["x"], strict=True))
        specs = {**e.values.specs}
        widths = {n: s[1] for n, (s, _) in specs.items() if len(s) == 2 and s[1] >= 0}
        cell, reads = with_products(cell, links, e.values.writers, e.values.arrays, widths)
        x = e.unsqueeze(e.concat([e.values.name_of(name) for name in reads], 1), 1)
    memories = [memory.previous for memory in loop.step.memories]
    starts: list[str | None] = []
    for previous in cell.memories:
        memory = loop.step.memories[memories.index(previous)]
        is_zero = memory.boot < 0 and not memory.boot_value
        starts.append(None if is_zero else loop.start(memories.index(previous)))
    outputs = _cell_node(e, cell, x, starts, dtype, loop.step.reverse)
    for previous, last in zip(cell.memories, outputs[1:], strict=True):
        memory = loop.step.memories[memories.index(previous)]
        if memory.final >= 0:
            e.set_one("final", memory.final, e.squeeze(last, 0))
    if loop.step.outputs:
        axes = (1,) if e.values.side_by_side else (1, 2)
        rows = e.squeeze(outputs[0], *axes)
        e.set("out", *[rows] * len(loop.step.outputs))


def _cell_node(
    e: Emission, cell: Cell, x: str, starts: list[str | None], dtype: np.dtype, reverse: bool
) -> list[str]:
    """The operator of ONNX: its results, and the last states.

    Args:
        starts: states [1, H] that it starts from; None for zeros.
    """
    title = e.op.output_vars()[0]
    parts = {"W": cell.w, "R": cell.r, "B": cell.b}
    weights = [e.graph.constant(a, f"{title}/{part}", dtype) for part, a in parts.items()]
    boots = [None if start is None else e.unsqueeze(start, 0) for start in starts]
    more = [] if cell.p is None else [e.graph.constant(cell.p, f"{title}/P", dtype)]
    return e.node(
        cell.type, x, *weights, None, *boots, *more, outputs=1 + len(starts),
        hidden_size=cell.r.shape[-1], direction="reverse" if reverse else "forward",
        **cell.attributes,
    )  # fmt: skip


@emits(*RECURRENT_LAYERS)
def recurrent_layer(e: Emission) -> None:
    layer = RECURRENT_LAYERS[e.op.type]
    arrays = {slot: e.array(slot) for slot in e.op.inputs if slot not in ("x", *layer.states)}
    known = {slot: array for slot, array in arrays.items() if array is not None}
    cell = layer_cell(e.op.type, e.attrs, known) if len(known) == len(arrays) else None
    if cell is None:  # a cell that ONNX does not have, or weights that are computed
        (plain,) = expand_op(e.op.node)
        recurrent(Emission(e.values, Operator(plain, e.op.index)))
        return
    x = e.unsqueeze(e["x"], 1)
    starts = [e.get(state) for state in layer.states]
    out, *last = _cell_node(e, cell, x, starts, e.dtype("out"), e.attrs["reverse"])
    for state, value in zip(layer.states, last, strict=True):
        e.set(LAST + state, e.squeeze(value, 0))
    e.set("out", e.squeeze(out, 1, 2))


def emit_scan(loop: _Loop) -> None:
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
    links = dict(zip(step.inputs, e.op.inputs["x"], strict=True))
    slices = [_body_input(inner, name) for name in step.inputs]
    alone = not e.values.side_by_side
    for name, value in zip(step.inputs, slices, strict=True):
        row = [value, body.ints(0)]
        title = f"{inner.prefix}{name}/row"
        inner.names[name] = body.node("Unsqueeze", row, title) if alone else value
    emit_operators(inner, step.operators)
    if inner.broken:
        raise RefusedError  # the operators of the step net have said why
    for memory in step.memories:
        state = body.node(
            "Identity", [inner.name_of(memory.state)], f"{inner.prefix}{memory.state}/next"
        )
        body.output(state, *_row(loop.specs[memory.previous], alone))
    for name in step.outputs:
        value = inner.name_of(name)
        title = f"{inner.prefix}{name}/out"
        shown = ("Squeeze", [value, body.ints(0)]) if alone else ("Identity", [value])
        row_out = body.node(*shown, title)
        body.output(row_out, *_row(loop.specs[name], alone))
    count = len(step.memories)
    direction = int(step.reverse)
    starts = [loop.start(number) for number in range(count)]
    results = e.node(
        "Scan", *starts, *(e.values.name_of(links[name]) for name in step.inputs),
        outputs=count + len(step.outputs), body=body, num_scan_inputs=len(slices),
        scan_input_directions=[direction] * len(slices),
        scan_output_directions=[direction] * len(step.outputs) or None,
    )  # fmt: skip
    results = results if isinstance(results, list) else [results]
    for memory, last in zip(step.memories, results, strict=False):
        if memory.final >= 0:
            e.set_one("final", memory.final, last)
    e.set("out", *results[count:])


def _row(spec: ArraySpec, alone: bool) -> tuple[np.dtype, list[int | str] | None]:
    """How an output of the step's graph is declared: runtimes want the shape of several rows."""
    shape, dtype = spec
    if alone or min(shape[1:], default=0) < 0:
        return dtype, None
    return dtype, ["M", *shape[1:]]


def _body_input(inner: Values, name: str) -> str:
    """An input of the step's graph; its type follows from what the Scan is given."""
    unique = inner.graph.unique(inner.prefix + name)
    inner.graph.message.input.add(name=unique)
    return unique
