"""Recurrent layers: `simple_rnn`, `lstm` and `gru` over sequences, one cell at every step.

A net holds a layer whole, so that people and exporters see what was meant. What runs is the
operator `recurrent` whose step net is the cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...framework.ir.desc import INPUT, RECURRENT, make_op, make_var
from ...framework.ir.op_list import Link, MemoryDecl, OpList, OpNode, StepDecl
from ...framework.ir.operation import Operator
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...framework.loops.recurrent.net import recurrent_op
from .cells import gru_cell, lstm_cell, rnn_cell

LAST = "last_"
"""Begins the output slots with last states; a cell's name of the state before follows."""

_SIZE = AttrSpec("size", "int", "columns H of a state", minimum=1)


@dataclass(frozen=True)
class RecurrentLayer:
    """A layer of a cell.

    Attributes:
        entry: the operator. cell: the operator of one step.
        states: of the cell, by the slot of the state before: the slot of the state after.
    """

    entry: OperatorDef
    cell: OperatorDef
    states: Mapping[str, str]

    def widths(self, op: Operator) -> dict[str, int]:
        """Columns of the states; the first is what the layer gives out."""
        first, *others = self.states
        return {first: op.attrs.get("projection") or op.attrs["size"]} | {
            state: op.attrs["size"] for state in others
        }

    def expand(self, node: OpNode) -> list[OpNode]:
        """The operator `recurrent` that runs the cell."""
        op = Operator(node)
        (x,), (out,) = op.inputs["x"], op.outputs["out"]
        # Weights keep their names inside, and `recurrent_op` makes static links of such names.
        weights = {
            slot.name: op.inputs[slot.name][0]
            for slot in self.cell.inputs
            if slot.name in op.inputs and slot.name != "x" and slot.name not in self.states
        }
        outside = {x, out, *weights.values()}

        def inner(name: str) -> str:
            # A step's own variable must not hide one of the same name outside, which it reads.
            while name in outside:
                name += "_"
            return name

        first = next(iter(self.states))
        (last,) = op.outputs.get(LAST + first, (f"{out}.{first}",))
        title = last.removesuffix(f".{first}")
        row, after = inner(f"{x}.row"), inner(f"{title}.step_0")
        before = {state: inner(f"{title}.{state}_before") for state in self.states}
        results = {
            slot: after if slot == "out" else inner(f"{after}.{slot}")
            for slot in self.states.values()
        }
        attrs = {name: op.attrs[name] for name in self.cell.attr_specs}
        widths = self.widths(op)
        dtype = op.attrs["dtype"]
        step = StepDecl(OpList(out), reverse=op.attrs["reverse"])
        for state, previous in before.items():
            (boot,), (last,) = op.inputs.get(state, ("",)), op.outputs.get(LAST + state, ("",))
            # A memory with a boot value has the dtype of that value.
            own = None if boot else dtype
            step.net.vars.append(make_var(previous, (-1, widths[state]), own, INPUT))
            memory = MemoryDecl(results[self.states[state]], previous, boot, delay=1, final=last)
            step.memories.append(memory)
        step.net.ops.append(
            make_op(self.cell.type, {"x": row, **before, **weights}, results, attrs)
        )
        step.in_links.append(Link(x, row))
        step.out_links.append(Link(out, after))
        (steps,) = op.outputs.get("steps", ("",))
        loop = recurrent_op(OpList(out, RECURRENT, steps=[step]), steps)
        # The slot is there for a gradient alone, which asks for it by naming a variable.
        if not steps:
            slots = {slot: names for slot, names in loop.outputs.items() if slot != "steps"}
            loop = loop.changed(outputs=slots)
        return [loop.changed(device=node.device)]


def _layer(type_: str, cell: OperatorDef, doc: str, states: Mapping[str, str]) -> RecurrentLayer:
    """Register the layer of a cell, which takes the cell's weights under the cell's names."""
    slots = {slot.name: slot for slot in cell.inputs}
    starts = [
        Slot(
            state,
            f"{slots[state].doc.partition(';')[0].replace('N', 'sequences')}, the first state;"
            " zeros without it",
            optional=True,
        )
        for state in states
    ]
    weights = [slot for name, slot in slots.items() if name != "x" and name not in states]
    lasts = [
        Slot(LAST + state, "[sequences, columns of the state], its last values", optional=True)
        for state in states
    ]
    attrs = list(cell.attrs)
    if "size" not in cell.attr_specs:
        attrs.insert(0, _SIZE)
    if "w_proj" in slots:
        attrs.append(AttrSpec("projection", "int", "columns P of w_proj", 0, minimum=0))
    attrs += [
        AttrSpec("reverse", "bool", "begin with the last step of each sequence", False),
        AttrSpec("dtype", "dtype", "of states that start from zeros", np.dtype("float32")),
    ]
    entry = operator(
        type_,
        doc=f"{doc} over sequences: `{cell.type}` at every step, in a `recurrent`. {cell.doc}",
        inputs=[Slot("x", "sequences [rows, K]"), *weights, *starts],
        outputs=[
            Slot("out", "sequences [rows, H], or [rows, P]: the first state after each step"),
            *lasts,
            Slot("steps", "values that the gradient reads", optional=True, intermediate=True),
        ],
        attrs=attrs,
        source=cell.source,
        whole=True,
        beside=tuple(last.name for last in lasts),
    )
    layer = RecurrentLayer(entry, cell, states)
    entry.expansion(layer.expand)
    return layer


RECURRENT_LAYERS = {
    layer.entry.type: layer
    for layer in (
        _layer("simple_rnn", rnn_cell, "A simple RNN", {"h": "out"}),
        _layer("lstm", lstm_cell, "An LSTM", {"h": "out", "c": "memory"}),
        _layer("gru", gru_cell, "A GRU", {"h": "out"}),
    )
}
"""The recurrent layers, by their operators' types."""
