"""Recurrent layers: nn.RNN, nn.GRU, nn.LSTM where PyTorch has the cell, else loops over steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from .....framework.ir.operation import Operator, expand_op
from .....operators.control.layers import LAST, RECURRENT_LAYERS
from ....inference.reading import Recurrence, RefusedError
from ...formatting import WIDTH, unpacked
from ..emission import (
    SEQUENCES,
    Emission,
    Lines,
    Values,
    dtype_text,
    lists,
    nested,
    read_lines,
    shortest,
    write_operators,
    writes,
)
from ..expressions import number_text
from ..joining import with_biases

_WEIGHTS: Final = {
    "weight_ih_l0": "w_x", "weight_hh_l0": "w_h", "bias_ih_l0": "b", "bias_hh_l0": "b_h",
}  # fmt: skip
"""Weights of PyTorch's layers: gates are in the same order, in rows there and in columns here."""


class _Loop(Recurrence):
    """A loop over the steps of its step net."""

    e: Emission

    def start(self, number: int) -> str:
        """The first value of a memory, [N, ...]."""
        memory = self.step.memories[number]
        if memory.boot >= 0:
            return self.e.list("boot")[memory.boot]
        shape, dtype = self.specs[memory.previous]
        stack = self.e.values.stacks.get(self.e.op.inputs["x"][0])
        count = SEQUENCES if stack is None else f"{stack}.shape[0]"
        sizes = lists([count, *map(str, shape[1:])])
        value = number_text(shortest(memory.boot_value, dtype))
        return f"{stack or self.e.list('x')[0]}.new_full({sizes}, {value})"

    @property
    def statics(self) -> dict[str, str]:
        """Parameters among the static links, by what the step net calls them."""
        outer = self.e.op.inputs.get("static", ())
        held = self.e.values.parameters
        links = zip(self.step.statics, outer, strict=True)
        return {inner: held[name] for inner, name in links if name in held}


@writes("recurrent")
def recurrent(e: Emission) -> None:
    if e.op.outputs.get("sum"):
        e.refuse("sums over its steps are of gradients")
    _write_loop(_Loop.of(e))


@writes(*RECURRENT_LAYERS)
def recurrent_layer(e: Emission) -> None:
    """A layer of PyTorch where it has one and nothing else reads the weights; else a loop."""
    make = _LAYERS[e.op.type](e)
    weights = {key: e.op.inputs[slot][0] for key, slot in _WEIGHTS.items() if e.has(slot)}
    bias = weights["bias_ih_l0"]
    more = dict[str, np.ndarray]()
    if bias in e.values.sums and "bias_hh_l0" not in weights and e.module.uses[bias] == 1:
        weights["bias_ih_l0"], weights["bias_hh_l0"] = e.values.sums[bias]
    held = {key: (e.values.owned(name), name) for key, name in weights.items()}
    tensors = {key: (array.T, name) for key, (array, name) in held.items() if array is not None}
    if not make or len(tensors) < len(weights):
        recurrent(Emission(e.values, expanded(e.op)))
        return
    if "bias_hh_l0" not in weights:  # PyTorch has two biases
        more["bias_hh_l0"] = np.zeros_like(tensors["bias_ih_l0"][0])
    w, _ = tensors["weight_ih_l0"]
    dtype = "" if w.dtype == np.float32 else f", dtype={dtype_text(w.dtype)}"
    sizes = f"{w.shape[1]}, {e.attrs['size']}"
    layer = f"nn.{make.format(sizes)}, batch_first=True{dtype})"
    _call_layer(e, e.layer_of(layer, tensors, more))


def _rnn(e: Emission) -> str:
    kind = e.attrs["activation"]
    more = {"tanh": "", "relu": ', nonlinearity="relu"'}.get(kind)
    return "" if more is None else f"RNN({{}}{more}"


def _lstm(e: Emission) -> str:
    ours = ("p_i", "p_f", "p_o", "w_proj")  # what a projection reads of the gates differs, too
    return "" if any(map(e.has, ours)) else "LSTM({}"


def _gru(e: Emission) -> str:
    return "GRU({}" if e.has("b_h") else ""  # else the reset gate comes before the product


_LAYERS: Final = {"simple_rnn": _rnn, "lstm": _lstm, "gru": _gru}
"""What makes a layer, without its sizes; "" where PyTorch has none."""


def expanded(op: Operator) -> Operator:
    """The operator `recurrent` of a layer."""
    (loop,) = expand_op(op.node)
    return Operator(loop, op.index)


def _call_layer(e: Emission, layer: str) -> None:
    """Apply a layer of PyTorch, whose states have an axis for the layers of a stack."""
    states = RECURRENT_LAYERS[e.op.type].states
    x = e["x"]
    back = ".flip(1)" if e.attrs["reverse"] else ""
    zeros = f"{x}.new_zeros({SEQUENCES}, {e.attrs['size']})"
    starts = ""
    if any(map(e.has, states)):
        given = [f"{e.get(state) or zeros}.unsqueeze(0)" for state in states]
        starts = f", {given[0] if len(given) == 1 else lists(given)}"
    title = e.op.output_vars()[0]
    rows, last = e.values.name(title, "rows"), e.values.name(title, "last")
    e.values.write([rows, last], f"{rows}, {last} = {layer}({e.sequences()}{back}{starts})")
    e.set("out", f"{rows}{back}.flatten(0, 1)")
    for number, state in enumerate(states):
        if e.has(LAST + state):
            part = last if len(states) == 1 else f"{last}[{number}]"
            e.set_rows(LAST + state, f"{part}[0]")


def _set_final(e: Emission, place: int, text: str) -> None:
    """Say what the last state of a memory is: a row a sequence."""
    names = e.op.outputs.get("final", ())
    if 0 <= place < len(names):
        name = e.values.name(names[place])
        e.values.write([name], f"{name} = {text}")
        e.values.names[names[place]] = name


def _write_loop(loop: _Loop) -> None:
    e, step = loop.e, loop.step
    inner = Values(e.module, dict(loop.specs))
    inner.parameters.update(loop.statics)
    for name, outer in zip(step.statics, e.op.inputs.get("static", ()), strict=True):
        if name not in inner.parameters:
            inner.names[name] = e.values.text(outer)
    states = [inner.name(memory.previous) for memory in step.memories]
    rows = [inner.name(name, "t") for name in step.inputs]
    for memory, name in zip(step.memories, states, strict=True):
        inner.names[memory.previous] = name
    inner.names.update(zip(step.inputs, rows, strict=True))
    wanted = [*(memory.state for memory in step.memories), *step.outputs]
    write_operators(inner, with_biases(inner, step.operators, wanted))
    if inner.broken:
        raise RefusedError  # the operators of the step net have said why
    after = [inner.text(memory.state) for memory in step.memories]
    given = [inner.text(name) for name in step.outputs]
    function = e.values.name("step")
    result = f"return [{', '.join(after)}], [{', '.join(given)}]"
    inner.lines.append(Lines(("return",), [result]))
    own = {name for lines in inner.lines for name in lines.targets} - {"return"}
    inner.lines = nested(inner.lines, own, WIDTH)
    body = read_lines(inner, ["return"])
    text = [
        "",
        f"def {function}(states, rows):",
        *([f"    {unpacked(states)} = states"] if states else []),
        f"    {unpacked(rows)} = rows",
        *(f"    {line}" if line else "" for line in body),
        "",
    ]
    starts = ", ".join(loop.start(number) for number in range(len(step.memories)))
    sequences = [e.sequences("x", number) for number in range(len(rows))]
    names = [e.values.name(name, "steps") for name in step.outputs]
    last = e.values.name(step.memories[0].state, "last") if e.has("final") else "_"
    stacked = e.op.inputs["x"][0] in e.values.stacks
    back = ", backward=True" if step.reverse and not stacked else ""
    call = f"{e.helper('loop')}({function}, [{starts}], [{', '.join(sequences)}]{back})"
    e.values.write([last, *names], *text, f"{last}, {lists(names)} = {call}")
    for number, memory in enumerate(step.memories):
        _set_final(e, memory.final, f"{last}[{number}]")
    if stacked:
        e.values.stacks |= zip(e.op.outputs["out"], names, strict=True)
        return
    e.set("out", *(f"{name}.flatten(0, 1)" for name in names))
