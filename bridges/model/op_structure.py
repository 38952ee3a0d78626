"""Edits of what a net of operators is made of: operators that go, come, or read something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...framework.base.errors import ShapeError, SlotError, VariableError, nearest
from ...framework.editing import operations as edits
from ...framework.editing.patterns import matching
from ...framework.ir.desc import FORWARD, INPUT, OUTPUT, PARAMETER, TEMPORARY, make_op
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import lookup
from ...framework.ir.results import net_results
from ...framework.passes.prune import prune
from .op_net import OpNet, leaves, with_inputs

_ALONG: Final = ("softmax", "log_softmax", "sigmoid", "identity")
"""Types between the affine layer and the output that any size suits."""


def _results(net: OpNet) -> list[str]:
    """What operators are called: the first variable that each writes."""
    return [op.output_names()[0] for op in net.net.ops if op.output_names()]


def remove(net: OpNet, edit: edits.Remove) -> str:
    """Remove operators that no other one reads, or that are bypassed, and parameters that only they
    use."""
    known = leaves(net.net) if edit.outputs_only else _results(net)
    gone = matching(known, edit.names, "output" if edit.outputs_only else "result of an operator")
    if edit.outputs_only and len(gone) == len(known):
        raise VariableError("this would remove all outputs")
    for name in gone:
        number = net.writer(name)
        op = net.net.ops.pop(number)
        if edit.bypass:
            source = _only_input(net, op)
            net.net.ops = [with_inputs(one, {name: source}) for one in net.net.ops]
    for name in gone:
        readers = [net.net.ops[i].output_names()[0] for i in net.readers(name)]
        if readers:
            raise VariableError(
                f"{name!r} is read by {', '.join(map(repr, readers))}: also remove these, connect"
                f" them to something else, or bypass {name!r}"
            )
    net.drop_unused()
    net.settle()
    return f"Removed {len(gone)} operators."


def _only_input(net: OpNet, op: OpNode) -> str:
    """The one variable that an operator reads and that is no parameter."""
    names = [name for name in dict.fromkeys(op.input_names()) if net.var(name).kind != PARAMETER]
    if len(names) != 1:
        shown = ", ".join(map(repr, names)) or "none"
        raise VariableError(
            f"{op.type} {op.output_names()[0]!r}: one input is wanted that is no parameter; it has"
            f" {shown}"
        )
    return names[0]


def remove_orphans(net: OpNet, edit: edits.RemoveOrphans) -> str:
    """Remove variables that no operator reads or writes; all results count as wanted."""
    used = {name for op in net.net.ops for name in op.input_names()}
    count = net.drop_unused() if edit.parameters else 0
    lost = {v.name for v in net.net.vars if v.kind == INPUT and v.name not in used}
    if edit.inputs:
        net.net.vars = [var for var in net.net.vars if var.name not in lost]
        count += len(lost)
    return f"Removed {count} variables."


def _check_type(op: OpNode) -> None:
    """Refuse slots and attributes that a type does not have.

    Raises:
        OpscopeError: the type is unknown, or has other slots or attributes.
    """
    entry = lookup(op.type)
    for given, known, what in (
        (op.inputs, entry.input_slots, "input"),
        (op.attrs, entry.attr_specs, "attribute"),
    ):
        for name in given:
            if name not in known:
                raise SlotError(f"{op.type} has no {what} {name!r}{nearest(name, known)}")


def _same_slots(op: OpNode, type: str, settings: Mapping[str, Any]) -> OpNode:
    """An operator of another type with the same inputs and first result."""
    entry = lookup(type)
    outputs = {entry.outputs[0].name: (op.output_names()[0],)}
    inputs = op.inputs
    if not inputs.keys() <= entry.input_slots.keys() and len(op.inputs) == 1:
        inputs = {entry.inputs[0].name: next(iter(op.inputs.values()))}
    new = make_op(type, inputs, outputs, dict(settings), source=op.source)
    _check_type(new)
    return new


def replace(net: OpNet, edit: edits.Replace) -> str:
    """Let an operator of another type compute a variable, from the same inputs."""
    number = net.writer(edit.name)
    old = net.net.ops[number]
    net.net.ops[number] = new = _same_slots(old, edit.type, edit.settings)
    net.drop_unused()
    net.settle()
    return f"Replaced operator {edit.name}: {old.type} to {new.type}."


def insert(net: OpNet, edit: edits.Insert) -> str:
    """Put an operator after a variable, or before the operator that computes one."""
    if bool(edit.after) == bool(edit.before):
        raise VariableError("one of after= and before= says where the operator is put")
    if edit.name in net.names():
        raise VariableError(f"there is a variable {edit.name!r} already")
    entry = lookup(edit.type)
    place = net.var(edit.after or edit.before).name
    if edit.after:
        source = place
        readers = net.readers(place)
        given = net.var(place).kind == INPUT or not _is_written(net, place)
        position = 0 if given else net.writer(place) + 1
    else:
        position = net.writer(place)
        source = _only_input(net, net.net.ops[position])
        readers = [position]
    for number in readers:
        net.net.ops[number] = with_inputs(net.net.ops[number], {source: edit.name})
    slots: dict[str, Any] = {}
    given_inputs = edit.inputs
    if not isinstance(given_inputs, Mapping):
        names = [slot.name for slot in entry.inputs]
        if len(given_inputs) > len(names):
            raise SlotError(f"{edit.type} has {len(names)} inputs, not {len(given_inputs)}")
        given_inputs = dict(zip(names, given_inputs, strict=False))
    for slot, one in (given_inputs or {entry.inputs[0].name: source}).items():
        if isinstance(one, str):
            name = one
        else:
            dtype = net.var(source).dtype
            is_float = one.dtype.kind == "f" and dtype is not None and dtype.kind == "f"
            name = net.parameter(f"{edit.name}.{slot}", one.astype(dtype) if is_float else one)
        slots[slot] = (net.var(name).name,)
    op = make_op(edit.type, slots, {entry.outputs[0].name: edit.name}, dict(edit.settings))
    _check_type(op)
    net.net.ops.insert(position, op)
    net.settle()
    where = f"after {edit.after}" if edit.after else f"before {edit.before}"
    return f"Inserted operator {edit.name} ({edit.type}) {where}."


def _is_written(net: OpNet, name: str) -> bool:
    return any(name in op.output_names() for op in net.net.ops)


def connect(net: OpNet, edit: edits.Connect) -> str:
    """Let an operator read other variables, all in the order of its slots, or one of them."""
    number = net.writer(edit.name)
    op = net.net.ops[number]
    old = op.input_names()
    wanted = [net.var(name).name for name in edit.inputs]
    if edit.number >= 0:
        if edit.number >= len(old) or len(wanted) != 1:
            raise SlotError(f"{edit.name!r} has no input {edit.number}; it has {len(old)}")
        wanted = [*old[: edit.number], wanted[0], *old[edit.number + 1 :]]
    elif len(wanted) == 1 and len(old) > 1:
        source = _only_input(net, op)
        wanted = [wanted[0] if name == source else name for name in old]
    if len(wanted) != len(old):
        raise SlotError(f"{edit.name!r} reads {len(old)} variables, not {len(wanted)}")
    rest = iter(wanted)
    inputs = {
        slot: tuple(EMPTY if name == EMPTY else next(rest) for name in names)
        for slot, names in op.inputs.items()
    }
    net.net.ops[number] = op.changed(inputs=inputs)
    net.drop_unused()
    net.settle()
    return f"Operator {edit.name} reads {', '.join(wanted)}."


def cut(net: OpNet, edit: edits.Cut) -> str:
    """Keep what lies between some variables."""
    before = len(net.net.ops)
    outputs = edit.outputs or {name: name for name in leaves(net.net)}
    for origin in edit.inputs.values():
        var = net.var(origin)
        number = net.writer(origin)
        op = net.net.ops[number]
        if op.output_names() != [origin] and net.readers(origin):
            rest = [name for name in op.output_names() if name != origin and net.readers(name)]
            if rest:
                raise VariableError(f"{op.type} gives {', '.join(rest)} beside {origin!r}")
        del net.net.ops[number]
        net.declare(var.changed(kind=INPUT))
    for origin in outputs.values():
        net.writer(origin)
    inputs = list(edit.inputs.values())
    net.net = prune(net.net, outputs.values())
    lost = [name for name in inputs if not net.readers(name)]
    if lost:
        raise VariableError(f"no output depends on {lost[0]!r}, which was to be an input")
    kept = set(net.names())
    net.arrays = {name: array for name, array in net.arrays.items() if name in kept}
    for name, origin in [*edit.inputs.items(), *edit.outputs.items()]:
        if name != origin:
            if name in net.names():
                raise VariableError(f"there is a variable {name!r} already")
            net.net.ops = [op.renamed({origin: name}) for op in net.net.ops]
            net.net.vars = [
                var.changed(name=name) if var.name == origin else var for var in net.net.vars
            ]
    for name in edit.outputs:
        if net.var(name).kind == TEMPORARY:
            net.declare(net.var(name).changed(kind=OUTPUT))
    net.settle()
    return f"Cut out {len(net.net.ops)} of {before} operators."


def new_output(net: OpNet, edit: edits.NewOutput) -> str:
    """Replace the weights and the bias of the affine layer that computes an output."""
    if edit.size < 1:
        raise ShapeError(f"size={edit.size}: an output has at least one column")
    name = edit.output
    if not name:
        marked = net_results(net.net)
        if len(marked) != 1:
            raise VariableError(f"say which output: {', '.join(marked)}")
        name = marked[0]
    op = net.net.ops[net.writer(name)]
    while op.type in _ALONG:
        op = net.net.ops[net.writer(op.input_names()[0])]
    weights, biases = _layer(net, op, name)
    old = net.arrays[weights]
    rows, before = old.shape
    rng = np.random.default_rng(edit.seed)
    values = rng.normal(0, rows**-0.5, (rows, edit.size)) if edit.random else None
    new_weights = np.zeros((rows, edit.size)) if values is None else values
    for parameter, value in [(weights, new_weights), *((b, np.zeros(edit.size)) for b in biases)]:
        others = [i for i in net.readers(parameter) if net.net.ops[i].role == FORWARD]
        if len(others) > 1:
            readers = ", ".join(net.net.ops[i].output_names()[0] for i in others)
            raise VariableError(f"{parameter!r} is read by {readers}")
        net.arrays[parameter] = value.astype(old.dtype)
        var = net.var(parameter)
        net.declare(var.changed(shape=value.shape, initializer=_resized(var.initializer, value)))
    net.settle()
    return f"Replaced {weights}: {name} has {edit.size} columns, not {before}."


def _resized(initializer: OpNode | None, value: np.ndarray) -> OpNode | None:
    if initializer is None or "shape" not in initializer.attrs:
        return None
    return initializer.changed(attrs={**initializer.attrs, "shape": [*value.shape]})


def _layer(net: OpNet, op: OpNode, output: str) -> tuple[str, list[str]]:
    """The weights [in, out] and biases of an affine operator."""
    slots = {"affine": ("w", "b"), "matmul": ("y", "")}.get(op.type)
    weights = next(iter(op.inputs.get(slots[0], ())), "") if slots else ""
    turned = op.attrs.get("transpose_y", False)
    if not slots or turned or weights not in net.arrays or net.arrays[weights].ndim != 2:
        raise VariableError(
            f"{output!r} is no affine layer, with perhaps a softmax: {op.type}"
            f" {op.output_names()[0]!r} computes it"
        )
    return weights, list(op.inputs.get(slots[1], ()))
