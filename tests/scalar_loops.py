"""Fused loops by themselves, for tests: that of an operator, and the task of one over arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opscope.framework.fusion import chains
from opscope.framework.fusion.scalars.codegen import COLUMN, FULL, Loop, Operand
from opscope.framework.fusion.scalars.expression import names, parse, replace_names, written_out
from opscope.framework.fusion.team import ParallelTask
from opscope.framework.ir.registry import lookup


def loop_of(op_type: str, dtype: str, kind: str) -> Loop | None:
    """A loop of one operator whose inputs after the first are of this kind."""
    entry = lookup(op_type)
    slots = [slot.name for slot in entry.inputs]
    known = {name: ("num", 0.5) for name in entry.attr_specs}
    operands: list[Operand] = []
    values, stores = [], []
    for slot, text in entry.expressions.items():
        tree = written_out(parse(text), dict.fromkeys(slots, 1))
        for name in sorted(names(tree) - known.keys()):
            if name == "grad_scale" and name not in slots:
                known[name] = ("num", 1.0)
                continue
            known[name] = ("var", f"x{len(operands)}")
            operands.append(Operand(kind if operands else FULL, dtype))
        known[slot] = ("var", f"v{len(values)}")
        values.append(replace_names(tree, known))
    if not values:
        return None
    for number, slot in enumerate(entry.expressions):
        if slot in entry.output_slots:
            stores.append((len(operands), f"v{number}"))
            operands.append(Operand(FULL, dtype))
    return Loop(dtype, tuple(operands), tuple(values), tuple(stores))


def task_of_loop(loop: Loop, arrays: Sequence[np.ndarray]) -> ParallelTask:
    """The work of a loop over whole arrays: matrices, or vectors as one row."""
    program = chains.program(loop)
    assert program is not None, "a native library, and a loop that it takes"
    first = arrays[loop.stores[0][0]]
    rows, columns = (1, first.size) if first.ndim < 2 else first.shape
    steps = {FULL: columns, COLUMN: 1}
    placed = [
        (array, steps.get(operand.kind, 0))
        for array, operand in zip(arrays, loop.operands, strict=True)
    ]
    return chains.task(loop, chains.argument(program, (rows, columns), placed))
