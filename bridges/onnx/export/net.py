"""The graph of an op list in inference form.

Operators that the outputs do not need fall away: gradients, updates, losses, metrics and with them
labels. What is left is in test phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....framework.base.errors import OpscopeError, VariableError, nearest
from ....framework.base.scope import Scope
from ....framework.base.shape import ArraySpec
from ....framework.ir.desc import FORWARD, INPUT, OUTPUT, PARAMETER, make_var
from ....framework.ir.infer import declared_spec, infer_specs
from ....framework.ir.names import EMPTY
from ....framework.ir.op_list import OpList, OpNode, VarDecl
from ....framework.ir.operation import Operator
from ....framework.passes.lowering import lower
from ....framework.runtime.initialize import PERSISTENT
from ....framework.runtime.predict import Predictor
from ..files.graph import OPSET, Graph
from .checking import ExportError
from .emission import FIRST_OPSET, LAST_OPSET, RefusedError, Values, emit_operators
from .tables import all_tables as all_tables

_TRAINING_ONLY = {
    "batch_norm_apply": {"batch_mean", "batch_variance", "count"},
    "cntk.batch_norm": {"seen", "time", "blend"},
    "cntk.dropout_mask": {"rate", "seed", "drawn", "columns", "grid"},
}
"""Input slots that operators read in training alone."""
_WRITE_IN_TRAINING = {"cntk.batch_norm", "cntk.dropout_mask"}
"""Operators that leave their states alone in test phase, beside those whose slots say so."""
_LOSSES = "opscope.operators.loss"
_JUDGED = ("x",)
"""Slots of losses and metrics that hold what is judged; the others hold labels and weights."""
_BESIDE = {"recurrent": ("final",), "recursive": ("final",)}
"""Output slots that are results only where somebody names them."""
_NO_LOSSES = {"masked_mean", "sequence_mean", "element_count", "label_weight"}


@dataclass(frozen=True)
class Inference:
    """A net cut down to what some outputs need.

    Attributes:
        net: its operators are plain and FORWARD ones.
        operators: of `net`, checked.
        inputs: declarations, in the order of the net. outputs: names.
        specs: shape (-1: unknown) and dtype of each variable, where that is known.
        whole: the net that it was cut from, in plain operators.
        steps: inputs that hold a sequence -> the name of its length; equal ones are equally long.
    """

    net: OpList
    whole: OpList
    operators: list[Operator]
    inputs: list[VarDecl]
    outputs: list[str]
    specs: dict[str, ArraySpec]
    steps: dict[str, str]


def inference_form(net: OpList, outputs: Iterable[str] | None = None) -> Inference:
    """The operators that outputs need.

    Args:
        net: any; composites are expanded.
        outputs: names of variables. None: the variables of kind OUTPUT, else what the operators end
            in once losses, metrics and what follows from them are left out.

    Raises:
        VariableError: there is no such variable, or nothing to export.
    """
    whole = lower(net)
    forward = [op for op in whole.ops if op.role == FORWARD]
    wanted = list(dict.fromkeys(_results(whole, forward) if outputs is None else outputs))
    declared = {var.name: var for var in whole.vars}
    written = {name for op in forward for name in op.output_names()}
    for name in wanted:
        if name not in declared and name not in written:
            raise VariableError(f"ONNX: the net has no variable {name!r}{nearest(name, declared)}")
        if name not in written:
            raise VariableError(f"ONNX: no forward operator computes {name!r}")
    if not wanted:
        raise VariableError(
            "ONNX: nothing but losses and metrics is computed from the inputs; name the outputs"
        )
    kept = _needed(forward, wanted)
    operators = [Operator(op, index) for index, op in enumerate(kept)]
    externals = _externals(operators)
    inputs = [var for var in whole.vars if var.name in externals and var.kind == INPUT]
    _refuse_carried(forward, operators, declared, externals)
    known: dict[str, ArraySpec] = {}
    given = (INPUT, *PERSISTENT)
    for name in {name for op in operators for name in op.input_vars()}:
        var = declared.get(name)
        fits = var is not None and (name in externals or var.kind in given)
        spec = declared_spec(var) if var is not None and fits else None
        if spec is not None:
            known[name] = spec
    specs = infer_specs(operators, known, declared, partial=True)
    for name, var in declared.items():
        spec = declared_spec(var)
        if name not in specs and spec is not None:
            specs[name] = spec
    cut = whole.copy()
    cut.ops = kept
    used = externals | {name for op in kept for name in op.output_names()}
    cut.vars = [var for var in whole.vars if var.name in used or var.view is not None]
    long = [var.name for var in inputs if var.sequence_levels]
    steps = {name: "T" if len(long) == 1 else f"T_{name}" for name in long}
    return Inference(cut, whole, operators, inputs, wanted, specs, steps)


def _reads(op: OpNode) -> list[str]:
    skipped = _TRAINING_ONLY.get(op.type, set[str]())
    return [name for slot, names in op.inputs.items() if slot not in skipped for name in names]


def _needed(ops: list[OpNode], wanted: Iterable[str]) -> list[OpNode]:
    needed, kept = set(wanted), list[OpNode]()
    for op in reversed(ops):
        if needed.intersection(op.output_names()):
            kept.append(op)
            needed.update(_reads(op))
    return kept[::-1]


def _externals(operators: Iterable[Operator]) -> set[str]:
    """Variables that are read before anything writes them."""
    found: set[str] = set()
    written: set[str] = set()
    for op in operators:
        found.update(name for name in _reads(op.node) if name and name not in written)
        written.update(op.output_vars())
    return found


def _results(net: OpList, forward: list[OpNode]) -> list[str]:
    """The outputs where nobody names them."""
    written = [name for op in forward for name in op.output_names()]
    declared = [var.name for var in net.vars if var.kind == OUTPUT and var.name in written]
    if declared:
        return declared
    persistent = {var.name for var in net.vars if var.kind in PERSISTENT}
    lost: set[str] = set()
    labels: set[str] = set()
    judged: set[str] = set()
    kept: list[Operator] = []
    for number, node in enumerate(forward):
        op = Operator(node, number)
        is_loss = op.entry.module.startswith(_LOSSES) and op.type not in _NO_LOSSES
        if not is_loss and not lost.intersection(op.input_vars()):
            kept.append(op)
            continue
        lost.update(op.output_vars())
        for slot, names in op.inputs.items():
            (judged if slot in _JUDGED else labels).update(names)
    read = {name for op in kept for name in op.input_vars()}
    found: list[str] = []
    for op in kept:
        for slot, names in op.outputs.items():
            if op.entry.output_slots[slot].intermediate or slot in _BESIDE.get(op.type, ()):
                continue
            found += [name for name in names if name != EMPTY and name not in read | persistent]
    of_losses = [name for name in found if name in judged]
    return of_losses or [name for name in found if name not in labels]


def _refuse_carried(
    forward: list[OpNode],
    kept: list[Operator],
    declared: Mapping[str, VarDecl],
    externals: set[str],
) -> None:
    """Refuse states that go on from run to run: a graph starts anew in each."""
    read = {name for name in externals if name in declared and declared[name].kind in PERSISTENT}
    for number, node in enumerate(forward):
        op = Operator(node, number)
        if op.type in _WRITE_IN_TRAINING:
            continue
        for slot, names in op.outputs.items():
            carried = read.intersection(names)
            if carried and not op.entry.output_slots[slot].intermediate:
                name = min(carried)
                raise ExportError(
                    f"ONNX: {op.title()} writes {name!r}, which the outputs read: a state that goes"
                    " on from run to run, while a graph starts anew in each; feed it as an input"
                )


def graph_of(
    inference: Inference,
    arrays: Mapping[str, np.ndarray],
    *,
    opset: int = OPSET,
    name: str = "",
) -> Graph:
    """The graph of a net in inference form.

    Args:
        arrays: its parameters and states.
        opset: of the standard operators, 17 to 22.
        name: of the graph; by default that of the net.

    Raises:
        ExportError: operators without a form in ONNX, all of them, each with what it makes, where
            it was written and why; or an opset that cannot be written.
    """
    if not FIRST_OPSET <= opset <= LAST_OPSET:
        raise ExportError(
            f"ONNX: opset {opset} cannot be written: {FIRST_OPSET} to {LAST_OPSET} can"
        )
    graph = Graph(name or inference.net.name or "net", opset)
    values = Values(graph, dict(inference.specs))
    externals = _externals(inference.operators)
    given = {var.name for var in inference.inputs}
    for variable in sorted(externals - given):
        if variable not in arrays:
            raise VariableError(
                f"ONNX: {variable!r} has no value: give the scope that was trained or loaded, or"
                " run the net once"
            )
        values.arrays[variable] = np.asarray(arrays[variable])
    for var in inference.inputs:
        values.names[var.name] = graph.input(
            var.name, *_declared(var, inference.steps.get(var.name))
        )
    emit_operators(values, _folded(values, inference.operators))
    if values.refused:
        count = len(values.refused)
        lines = "\n  ".join(dict.fromkeys(values.refused))
        plural = "s" * (count != 1)
        raise ExportError(f"ONNX: {count} operator{plural} cannot be exported:\n  {lines}")
    for output in inference.outputs:
        _put_output(values, output)
    drop_unread(graph)
    return graph


def _folded(values: Values, operators: Iterable[Operator]) -> list[Operator]:
    """The operators that are left once those of parameters alone have been computed."""
    left: list[Operator] = []
    for op in operators:
        reads = _reads(op.node)
        entry = op.entry
        if reads and all(name in values.arrays for name in reads) and not entry.random:
            most = sum(values.arrays[name].nbytes for name in reads)
            found = _computed(op, {name: values.arrays[name] for name in reads})
            if found and sum(array.nbytes for array in found.values()) <= most:
                values.arrays.update(found)
                values.specs.update({n: (a.shape, a.dtype) for n, a in found.items()})
                continue
        left.append(op)
    return left


def _computed(op: Operator, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What an operator makes of parameters; nothing where it cannot be run alone."""
    wanted = op.results()
    net = OpList("constants", ops=[op.node])
    net.vars = [make_var(name, a.shape, a.dtype, PARAMETER) for name, a in arrays.items()]
    net.vars += [make_var(name, None, None) for name in op.output_vars()]
    scope = Scope()
    for name, array in arrays.items():
        scope.var(name).set(array)
    try:
        found = Predictor(net).predict(scope, {}, wanted, None)
    except OpscopeError:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def drop_unread(graph: Graph) -> None:
    """Take away nodes and constants that no output needs."""
    needed = {info.name for info in graph.message.output}
    kept = list[Any]()
    for node in reversed(graph.message.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed |= _names_read(node)
    if len(kept) < len(graph.message.node):
        del graph.message.node[:]
        graph.message.node.extend(kept[::-1])
    for name in set(graph.arrays) - needed:
        del graph.arrays[name]


def _names_read(node: Any) -> set[str]:
    """What a node reads, in the graphs inside it too."""
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found.update(name for inner in attribute.g.node for name in _names_read(inner))
            found.update(info.name for info in attribute.g.output)
    return found


def _declared(var: VarDecl, steps: str | None) -> tuple[np.dtype, list[int | str]]:
    """Dtype and dimensions of an input: N rows or, of a sequence, its length; others are called
    after the variable."""
    if var.shape is None or var.dtype is None:
        raise ExportError(f"ONNX: input {var.name!r} has no declared shape or dtype")
    if var.sequence_levels > 1:
        raise ExportError(
            f"ONNX: input {var.name!r} holds sequences of sequences; a graph takes one sequence"
        )
    first = steps or "N"
    dims: list[int | str] = []
    for axis, size in enumerate(var.shape):
        unknown = first if axis == 0 else f"{var.name}_{axis}"
        dims.append(size if size >= 0 else unknown)
    return var.dtype, dims


def _put_output(values: Values, name: str) -> None:
    """Declare an output; where a value has another name, or is an input, it is copied."""
    try:
        value = values.name_of(name)
    except RefusedError:
        raise ExportError(f"ONNX: the output {name!r} is computed in training alone") from None
    inputs = {info.name for info in values.graph.message.input}
    if value != name:
        copies = [name] if name not in inputs and not _is_made(values, name) else None
        value = values.graph.node("Identity", [value], name, outputs=copies or 1)
    if value != name:
        raise ExportError(f"ONNX: the name of the output {name!r} is taken by another value")
    spec = values.spec_of(name)
    if spec is None:
        raise ExportError(f"ONNX: the rank of the output {name!r} is not known; declare its shape")
    shape, dtype = spec
    dims = [size if size >= 0 else f"{name}_{axis}" for axis, size in enumerate(shape)]
    values.graph.output(name, dtype, dims)


def _is_made(values: Values, name: str) -> bool:
    nodes = values.graph.message.node
    return name in values.graph.arrays or any(name in node.output for node in nodes)
