"""Fusion: which neighbouring elementwise operators become one compiled loop, and binding them.

Operators give scalar expressions (`registry.operator(scalar=...)`). Neighbours of one shape and
dtype become one loop, whose inner temporaries stay in registers. Loops that write only to what
outlives the run (updates of several parameters, say) share one call on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from ..base.backend import address
from ..base.shape import Meta
from ..fusion import compiler
from ..fusion.codegen import COLUMN, FULL, GPU_ARRAYS, ONE, ROW, Loop, Operand, gpu_source
from ..fusion.expression import Tree, replace_names
from ..fusion.pointwise import ABSENT, Pointwise, count_arrays, pointwise
from ..fusion.team import ParallelTask, with_task
from ..ir.operation import Operator
from .executor import CannotFuseError, Frame
from .plan import Plan, Step

_MAX_OPERATORS, _MAX_LOOPS = 64, 32
"""Bounds of one loop and of one call; more would only make compiling and grouping slow."""


@dataclass
class _Group:
    """A group under construction: loops, each a list of operators."""

    views: Mapping[str, str]
    survivors: set[str]
    device: str
    loops: list[list[Pointwise]] = field(default_factory=list)

    def take(self, new: Pointwise) -> bool:
        """Make `new` part of the group if that is right."""
        if self.loops and self._joins(self.loops[-1], new):
            self.loops[-1].append(new)
        elif not self.loops or (self.device == "cpu" and self._stands_beside(new)):
            self.loops.append([new])
        else:
            return False
        return True

    def root(self, name: str) -> str:
        return self.views.get(name, name)

    def _joins(self, loop: list[Pointwise], new: Pointwise) -> bool:
        """Whether `new` fits into a loop: every value is read and written at one place."""
        first = loop[0]
        if first.shape != new.shape or first.dtype != new.dtype or len(loop) == _MAX_OPERATORS:
            return False
        if len(self.loops) > 1 and not self._apart(new, self.loops[:-1]):
            return False
        members = [*loop, new]
        if self.device != "cpu" and count_arrays(members) > GPU_ARRAYS:
            return False
        written = {self.root(name): name for p in members for name in p.writes}
        for p in members:
            for name in (*p.reads, *p.writes):
                if written.get(self.root(name), name) != name:
                    return False  # another view of memory that the loop writes
            if any(o.kind != FULL and self.root(name) in written for name, o in p.reads.items()):
                return False
        return len({p.columns for p in members if p.columns}) < 2

    def _stands_beside(self, new: Pointwise) -> bool:
        """Whether `new` may be a loop of its own in the same call."""
        old = (p for loop in self.loops for p in loop)
        small = len(self.loops) < _MAX_LOOPS
        return small and all(map(self._outlives, old)) and self._apart(new, self.loops)

    def _outlives(self, p: Pointwise) -> bool:
        return all(self.root(name) in self.survivors for name in p.writes)

    def _apart(self, new: Pointwise, loops: Sequence[Sequence[Pointwise]]) -> bool:
        """Whether nothing passes between `new` and `loops`, not even memory that is reused."""
        old = [p for loop in loops for p in loop]
        reads = {self.root(name) for p in old for name in p.reads}
        writes = {self.root(name) for p in old for name in p.writes}
        mine = {self.root(name) for name in new.writes}
        touched = mine | {self.root(name) for name in new.reads}
        return self._outlives(new) and not writes & touched and not reads & mine


def group_chains(
    operators: Sequence[Operator],
    metas: Mapping[str, Meta],
    survivors: set[str],
    views: Mapping[str, str],
    device: str = "cpu",
) -> list[list[Operator]]:
    """Cut a list of operators into groups that run as one step each.

    Args:
        metas: shape and dtype of every variable. survivors: what must be in memory after the run.
        views: view variable -> its base. device: "cpu" or "gpu".
    """
    if device == "cpu" and not compiler.available():
        return [[op] for op in operators]
    operators = _with_epilogues(operators, metas, device)
    return [ops for ops, _ in _grouped(operators, metas, survivors, views, device)]


def _with_epilogues(
    operators: Sequence[Operator], metas: Mapping[str, Meta], device: str
) -> list[Operator]:
    """The list with the epilogues taken off operators whose result a loop reads next.

    The bias of a layer is then added in the loop of its activation, not in a pass of its own.
    """
    result: list[Operator] = []
    for index, op in enumerate(operators):
        split = op.entry.split_epilogue
        following = operators[index + 1] if index + 1 < len(operators) else None
        parts = split(op) if split is not None and following is not None else []
        if (
            following is not None
            and parts
            and not set(op.output_vars()).isdisjoint(following.value_reads())
        ):
            made = [Operator(part, op.index) for part in parts]
            if all(pointwise(one, metas, device) for one in (*made[1:], following)):
                for one in made:
                    one.location = op.location
                result += made
                continue
        result.append(op)
    return result


def _grouped(
    operators: Sequence[Operator],
    metas: Mapping[str, Meta],
    survivors: set[str],
    views: Mapping[str, str],
    device: str,
) -> list[tuple[list[Operator], list[list[Pointwise]]]]:
    """Groups of operators with their loops; operators that do not fuse have none."""
    groups: list[tuple[list[Operator], list[list[Pointwise]]]] = []
    open_group: _Group | None = None
    for op in operators:
        found = pointwise(op, metas, device)
        if found is None:
            open_group = None
            groups.append(([op], []))
        elif open_group is not None and open_group.take(found):
            groups[-1][0].append(op)
        else:
            open_group = _Group(views, survivors, device)
            open_group.take(found)
            groups.append(([op], open_group.loops))
    return groups


@dataclass(frozen=True)
class BoundLoop:
    """A loop and the variables that are its operands."""

    loop: Loop
    variables: tuple[str, ...]
    columns: int


def build_loop(members: Sequence[Pointwise], stored: set[str]) -> BoundLoop:
    """The structure of a loop.

    Args:
        stored: variables that need their memory; others stay in registers.
    """
    operands: list[Operand] = []
    variables: dict[str, int] = {}
    values: list[Tree] = []
    held: dict[str, Tree] = {}

    def place(name: str, operand: Operand) -> int:
        if name not in variables:
            variables[name] = len(operands)
            operands.append(operand)
        return variables[name]

    for p in members:
        known: dict[str, Tree] = {
            name: ("num", float(p.op.attrs[name]))
            for name in p.op.attrs
            if isinstance(p.op.attrs[name], (int, float))
        }
        known.update((name, ("num", value)) for name, value in ABSENT.items())
        for operand, name in p.operands.items():
            if name not in p.reads:
                continue
            if name not in held:
                held[name] = ("var", f"x{place(name, p.reads[name])}")
            known[operand] = held[name]
        for slot, tree in p.values.items():
            known[slot] = ("var", f"v{len(values)}")
            values.append(replace_names(tree, known))
        held.update((names[0], known[slot]) for slot, names in p.op.outputs.items())
    dtype = members[0].dtype.name
    written = dict.fromkeys(name for p in members for name in p.writes if name in stored)
    stores = tuple((place(name, Operand(FULL, dtype)), held[name][1]) for name in written)
    loop = Loop(dtype, tuple(operands), tuple(values), stores)
    columns = next((p.columns for p in members if p.columns), 0)
    return BoundLoop(loop, tuple(variables), columns)


def bind_chain(frame: Frame, step: Step) -> Callable[[], Any] | None:
    """One callable for a step; None for a lone operator that is better off with its kernel.

    Raises:
        CannotFuseError: several operators, but compiler or arrays do not allow it.
    """
    bound = plan_loops(frame.plan, step, frame.place.kind, frame.least_cost)
    call = None
    if bound:
        call = _bind_cpu(frame, bound) if frame.place.kind == "cpu" else _bind_gpu(frame, bound)
    if call is None and len(step.operators) > 1:
        raise CannotFuseError
    return call


def plan_loops(plan: Plan, step: Step, device: str, least_cost: int) -> list[BoundLoop]:
    """The loops of a step; none for a lone operator of a lower cost."""
    found = plan.loops.get(id(step))
    if found is None:
        found = plan.loops[id(step)] = _find_loops(plan, step, device, least_cost)
    return found


def _find_loops(plan: Plan, step: Step, device: str, least_cost: int) -> list[BoundLoop]:
    if len(step.operators) == 1:  # as most steps are
        alone = pointwise(step.operators[0], plan.metas, device)
        if alone is None or alone.cost() < least_cost:
            return []
        return [build_loop([alone], set(step.writes))]
    views = {
        name: plan.declared[name].view.base
        for name in (*step.reads, *step.writes)
        if name in plan.declared and plan.declared[name].HasField("view")
    }
    groups = _grouped(step.operators, plan.metas, plan.survivors, views, device)
    if len(groups) != 1:
        return []
    return [build_loop(members, set(step.writes)) for members in groups[0][1]]


def _bind_cpu(frame: Frame, bound: Sequence[BoundLoop]) -> Callable[[], Any] | None:
    arrays = [[frame.arrays[name] for name in b.variables] for b in bound]
    if not _no_overlap(bound, arrays):
        return None
    blocks = []
    for b, operands in zip(bound, arrays, strict=True):
        block = _words(b, operands)
        if block is None:
            return None
        blocks.append(block)
    if not compiler.loaded(b.loop for b in bound):
        plan = frame.plan  # all loops of a plan go through the compiler together
        everything = [
            b.loop for s in plan.steps for b in plan_loops(plan, s, "cpu", frame.least_cost)
        ]
        compiler.compile_loops(everything)
    found = compiler.functions([b.loop for b in bound])
    if found is None:
        return None
    function, words = found[0].function, blocks[0]
    if len(bound) > 1:
        function, words = found[0].run_list, [len(bound)]
        for one, block in zip(found, blocks, strict=True):
            words += [compiler.address(one.function), block.ctypes.data]
        words = np.array(words, np.int64)
    call = partial(function, words.ctypes.data)
    # What the addresses point to lives as long as the call.
    items = [(one.share, block.ctypes.data) for one, block in zip(found, blocks, strict=True)]
    work = sum(
        int(block[0] * block[1]) * b.loop.work() for b, block in zip(bound, blocks, strict=True)
    )
    return with_task(call, ParallelTask(tuple(items), work, (words, blocks, arrays)))


def _words(bound: BoundLoop, arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    """The argument of a compiled loop; None where an array's strides do not suit it."""
    shape = arrays[bound.loop.stores[0][0]].shape
    total = prod(shape)
    full = [a for a, o in zip(arrays, bound.loop.operands, strict=True) if o.kind == FULL]
    if bound.columns:
        columns = bound.columns
    elif all(array.flags.c_contiguous for array in full):
        columns = max(total, 1)
    else:
        columns = shape[-1]
    words = [total // columns if columns else 0, columns]
    for array, operand in zip(arrays, bound.loop.operands, strict=True):
        if not array.flags.aligned:
            return None
        step = {FULL: columns, COLUMN: 1}.get(operand.kind, 0)
        if operand.kind != ONE and not array.flags.c_contiguous:
            steps = [stride // array.itemsize for stride in array.strides]
            if operand.kind == ROW and array.size == array.shape[-1] and steps[-1] == 1:
                step = 0
            elif operand.kind == COLUMN and array.ndim == 2:
                step = steps[0]
            elif operand.kind == FULL and array.shape == (words[0], columns) and steps[1] == 1:
                step = steps[0]
            else:
                return None
        words += [array.ctypes.data, step]
    return np.array(words, np.int64)


def _no_overlap(bound: Sequence[BoundLoop], arrays: Sequence[Sequence[Any]]) -> bool:
    """Whether arrays under different names that are written share no memory, or all of it."""
    spans = []
    for number, (b, operands) in enumerate(zip(bound, arrays, strict=True)):
        stored = {operand for operand, _ in b.loop.stores}
        for i, (name, array) in enumerate(zip(b.variables, operands, strict=True)):
            first = address(array)
            steps = zip(array.shape, array.strides, strict=True)
            end = first + sum((dim - 1) * step for dim, step in steps) + array.itemsize
            if array.size:
                spans.append((first, end, number, i in stored, name, array))
    spans.sort(key=lambda span: span[:3])
    for at, (_, end, number, writes, name, array) in enumerate(spans):
        for first, _, other_number, other_writes, other_name, other in spans[at + 1 :]:
            if first >= end:
                break
            right = number == other_number and _same_memory(array, other)
            right = right or _side_by_side(array, other)
            if (writes or other_writes) and name != other_name and not right:
                return False
    return True


def _same_memory(a: Any, b: Any) -> bool:
    same = address(a) == address(b) and a.nbytes == b.nbytes
    both = a.flags.c_contiguous and b.flags.c_contiguous
    return same and (both or (a.shape == b.shape and a.strides == b.strides))


def _side_by_side(a: Any, b: Any) -> bool:
    """Whether both are columns of one matrix, and no column is in both."""
    if a.ndim != 2 or b.ndim != 2 or a.strides != b.strides or a.strides[1] != a.itemsize:
        return False
    row = a.strides[0]
    apart = (address(b) - address(a)) % row if row > 0 else 0
    return a.shape[1] * a.itemsize <= apart and apart + b.shape[1] * b.itemsize <= row


def _bind_gpu(frame: Frame, bound: Sequence[BoundLoop]) -> Callable[[], Any] | None:
    arrays = [frame.arrays[name] for name in bound[0].variables]
    if not _no_overlap(bound, [arrays]):
        return None
    kernel, inputs, outputs = _gpu_kernel(frame.xp, bound[0].loop)
    return partial(kernel, *(arrays[i] for i in inputs), *(arrays[i] for i in outputs))


@cache
def _gpu_kernel(xp: Any, loop: Loop) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    source = gpu_source(loop)
    kernel = xp.ElementwiseKernel(
        source.in_params, source.out_params, source.operation, source.name
    )
    return kernel, source.inputs, source.outputs
