"""Recurrent layers as LSTM, GRU or Scan: their steps are op lists, which the tables of ONNX write.

What a step reads of others is computed before, for all times at once. A layer that reads itself d
rows back is d chains that know nothing of each other; they run side by side, like more sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .....framework.base.shape import ArraySpec
from .....framework.ir.desc import RECURRENT
from .....framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from .....framework.ir.operation import Operator
from .....framework.loops.recurrent.net import recurrent_op
from .....nnet3.graph.loops import Loop, Term
from ....nnet3_rows.loops import GeneralLoop
from ....nnet3_rows.reads import NotExportedError, Read
from ....nnet3_rows.steps import LoopStep, Product
from ...cells import Cell, find_cell
from ...export.emission import Emission, Values
from ...export.net import folded
from ...export.tables.recurrent import Recurrence, emit_cell, emit_scan
from ...files.graph import Graph, plain_name
from ..emit import F32, F64, Value
from ..rows import Rows, Writer
from ..rowwise import matrix
from .chains import Chains

_MOST_WIDE = 2**18
"""Weights up to which a step computes in float64: they stay in a processor's cache, so that this
costs little. What a step rounds, all later ones see: in float32 errors may grow tenfold."""
_FULL = 2
"""A cell may have that many times more weights than the layer, which a bottleneck makes few."""
_FLOATS_ALONE = ("ConvolutionComponent", "CompositeComponent")  # runtimes convolve in float32


def write_loop(w: Writer, loop: Loop) -> None:
    """Write all members of a recurrent layer, and set the rows of those that others read."""
    if w.reader.streaming and loop.offset > 0:
        raise NotExportedError("a layer that runs backwards cannot be streamed")
    wanted = w.plan.read_elsewhere(loop)
    if not isinstance(loop, GeneralLoop):
        if _write_cell(w, loop, wanted):
            return
    elif w.reader.streaming:
        name = w.topology.nodes[loop.members[0]].name
        raise NotExportedError(
            f"the loop of '{name}' reads itself at several offsets, or its first steps are not like"
            " others: no streams"
        )
    _write_scan(w, loop, wanted)


class _Recurrent:
    """The `recurrent` operator of a layer.

    Args:
        outputs: the variables of a step that it gives, by their names outside.
    """

    def __init__(self, step: LoopStep, outputs: Mapping[str, str]) -> None:
        self.step = step
        operators, specs = step.ops.checked({})
        known = Values(Graph("step"), specs, arrays=dict(step.ops.arrays))
        net = OpList(step.ops.title)
        needed = {*step.after.values(), *outputs.values()}
        for op in reversed(folded(known, operators)):
            if needed.intersection(op.output_vars()):
                net.ops.insert(0, op.node)
                needed.update(op.input_vars())
        self.arrays = {name: a for name, a in known.arrays.items() if name in needed}
        decl = StepDecl(net, reverse=step.loop.offset > 0)
        decl.in_links = [Link(name, name) for name in step.taken]
        decl.out_links = [Link(outer, inner) for outer, inner in outputs.items()]
        decl.memories = [
            MemoryDecl(new, old, f"{old}/first", final=f"{old}/last")
            for old, new in step.after.items()
        ]
        self.firsts = {memory.boot: memory.previous for memory in decl.memories}
        self.node = recurrent_op(OpList(step.ops.title, RECURRENT, steps=[decl]))

    def emission(self, graph: Graph, given: Mapping[str, str]) -> Emission:
        """The operator while it is emitted, for values of its inputs."""
        dims, dtype = self.step.ops.inputs, np.dtype(self.step.ops.dtype)
        specs: dict[str, ArraySpec] = {name: (a.shape, a.dtype) for name, a in self.arrays.items()}
        specs |= {name: ((-1, dims[name]), dtype) for name in self.step.taken}
        specs |= {name: ((-1, dims[old]), dtype) for name, old in self.firsts.items()}
        values = Values(graph, specs, dict(given), self.arrays, side_by_side=True)
        return Emission(values, Operator(self.node, 0))


def _write_cell(w: Writer, loop: Loop, wanted: Sequence[int]) -> bool:
    """Write a layer as LSTM or GRU and set the rows of `wanted`; False where it is neither."""
    nodes = w.topology.nodes
    step = LoopStep(w.topology, loop, _title(w, loop), F32, whole=True)
    found = _cell(_Recurrent(step, {}), w.e.graph)
    chains = abs(loop.offset) // w.plan.grids[loop.members[0]].step
    if found is None or (found.type == "LSTM" and w.reader.streaming and chains > 1):
        return False  # the cells that a stream keeps are those of the last step alone
    copies = _copies(w, step, found.output, wanted)
    if copies is None:
        return False
    name = next(
        step.name(number)
        for number, value in step.members.items()
        if found.output in step.pieces(value)
    )
    made = _Recurrent(step, {plain_name(name): found.output})
    cells, term_of = found.r.shape[-1], {value: term for term, value in step.states.items()}
    values = [_outside(w, loop, step.taken[each]) for each in found.inputs]
    joined = w.e.plain(w.e.join(values, name))
    sides = Chains(w, joined, chains, loop.offset > 0)
    kept = [step.name(term_of[each].node) for each in found.memories]
    nodes_of = dict(zip(found.memories, kept, strict=True))
    given = {f"{each}/first": sides.first(node, cells) for each, node in nodes_of.items()}
    e = made.emission(w.e.graph, given)
    emit_cell(Recurrence.of(e), found, sides.blocks(joined))
    rows = sides.rows(e.values.names[plain_name(name)], cells, name)
    if w.reader.streaming:
        sides.keep(kept[0], rows)
        for each, node in list(nodes_of.items())[1:]:
            last = w.e.op("Unsqueeze", e.values.names[f"{each}/last"], w.e.graph.ints(2))
            w.reader.set_new(f"cache_{node}_state", last)
    for number in copies:
        grid = w.plan.grids[loop.members[0]]
        w.rows[number] = Rows(Value(rows, cells), grid, nodes[number].name)
    return True


def _title(w: Writer, loop: Loop) -> str:
    return f"loop.{w.topology.nodes[loop.members[0]].name}"


def _cell(made: _Recurrent, graph: Graph) -> Cell | None:
    """What a step is to ONNX; None where it is neither LSTM nor GRU."""
    names = dict.fromkeys([*made.step.taken, *made.firsts], "")
    loop = Recurrence.of(made.emission(graph, names))
    found = find_cell(loop.step, made.arrays, loop.specs)
    # A plain RNN stays a Scan, whose steps compute in float64: its errors grow.
    if found is None or found.type == "RNN":
        return None
    weights = sum(array.size for array in made.arrays.values() if array.ndim == 2)
    return found if found.w.size + found.r.size <= _FULL * weights else None


def _copies(w: Writer, step: LoopStep, output: str, wanted: Iterable[int]) -> list[int] | None:
    """The nodes that are the cell's output, for members that are read elsewhere.

    Where others read columns of a member alone, these column ranges stand for it. None: something
    else is read, too.
    """
    found = list[int]()
    for number in wanted:
        value = step.members[number]
        if value == output:
            found.append(number)
            continue
        for reader in w.topology.readers_of[number]:
            if reader in step.loop.members or reader not in w.plan.grids:
                continue
            node = w.topology.nodes[reader]
            if node.kind != "dim-range" or step.piece(value, node.dim_offset, node.dim) != output:
                return None
            found.append(reader)
    return found


def _write_scan(w: Writer, loop: Loop, wanted: Iterable[int]) -> None:
    """The Scan, its inputs in its order of axes, and its outputs in ours."""
    numbers = sorted({term.node for term in loop.states} | set(wanted))
    wide = _is_wide(w, loop)
    step = LoopStep(w.topology, loop, _title(w, loop), F64 if wide else F32)
    outputs = {f"{plain_name(step.name(number))}/rows": step.members[number] for number in numbers}
    made = _Recurrent(step, outputs)
    if not step.taken:
        raise NotExportedError("a loop reads nothing but itself")
    taken = {name: w.e.plain(_outside(w, loop, read)) for name, read in step.taken.items()}
    grid = w.plan.grids[loop.members[0]]
    like = next(iter(taken.values()))
    sides = Chains(w, like, abs(loop.offset) // grid.step, loop.offset > 0)
    given = {name: sides.blocks(value) for name, value in taken.items()}
    of_state = {before: step.name(term.node) for term, before in step.states.items()}
    for boot, before in made.firsts.items():
        name = of_state.get(before, step.count)
        given[boot] = sides.first(name, step.ops.inputs[before])
    if wide:
        given = {name: w.e.cast(value, F64) for name, value in given.items()}
    e = made.emission(w.e.graph, given)
    emit_scan(Recurrence.of(e))
    if e.values.refused:
        raise NotExportedError("; ".join(e.values.refused))
    for number, outer in zip(numbers, outputs, strict=True):
        name, dim, rows = step.name(number), step.dim(number), e.values.names[outer]
        rows = sides.rows(w.e.cast(rows, F32) if wide else rows, dim, name)
        w.set(number, Value(rows, dim))
        if w.reader.streaming and any(term.node == number for term in loop.states):
            sides.keep(name, rows)


def _is_wide(w: Writer, loop: Loop) -> bool:
    """Whether a step computes in float64."""
    nodes = [w.topology.nodes[number] for number in loop.members]
    components = [node.component for node in nodes if node.kind == "component"]
    if any(component.type in _FLOATS_ALONE for component in components):
        return False
    return sum(component.num_parameters for component in components) <= _MOST_WIDE


# What is computed before a loop


def _outside(w: Writer, loop: Loop, read: Term | Product) -> Value:
    """What a step takes, for all times."""
    if not isinstance(read, Product):
        return _rows(w, loop, read)
    total, bias = None, read.bias
    for term, weights in read.reads:
        found = matrix(w.e, _rows(w, loop, term), weights, bias, f"{read.name}.outside")
        total = found if total is None else w.e.add(total, found, read.name)
        bias = None
    assert total is not None
    return total


def _rows(w: Writer, loop: Loop, term: Term) -> Value:
    """A term that reads a node outside, for all times."""
    read, grid = Read(term.node, 1.0, (term.offset,)), w.plan.grids[loop.members[0]]
    if not term.optional:
        value = w.reader.at(w.rows[term.node], grid, read)
    else:
        moved = grid.moved(term.offset)
        border = w.plan.border(w.plan.reach[term.node], moved)
        if border.masked:
            raise NotExportedError("optional rows inside of a loop may all be missing")
        value = w.reader.at(w.rows[term.node], border.inner, Read(term.node, 1.0))
        name = f"{w.topology.nodes[term.node].name}.optional"
        value = w.with_border(value, border.left, border.right, moved, name)
    if value.still:
        value = w.e.spread(value, _like(w, loop))
    return value.times(term.scale)


def _like(w: Writer, loop: Loop) -> Value:
    """A value with the rows of a loop."""
    for term in loop.reads:
        if not term.optional and not w.rows[term.node].value.still:
            read = Read(term.node, 1.0, (term.offset,))
            return w.reader.at(w.rows[term.node], w.plan.grids[loop.members[0]], read)
    raise NotExportedError("a loop reads no rows that move with time")
