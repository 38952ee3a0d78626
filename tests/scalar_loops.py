"""The fused loop of one operator by itself, for tests of all scalar expressions."""

from __future__ import annotations

from opscope.framework.fusion.codegen import FULL, Loop, Operand
from opscope.framework.fusion.expression import names, parse, replace_names, written_out
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
