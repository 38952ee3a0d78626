"""The graph of a net in inference form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ....framework.base.errors import OpscopeError
from ....framework.base.scope import Scope
from ....framework.ir.desc import PARAMETER, make_var
from ....framework.ir.op_list import OpList, VarDecl
from ....framework.ir.operation import Operator
from ....framework.runtime.predict import Predictor
from ...inference.form import ExportError, Inference, reads_of, values_of
from ...inference.reading import RefusedError
from ..files.graph import OPSET, Graph
from .emission import FIRST_OPSET, LAST_OPSET, Values
from .operators import emit_operators
from .tables import all_tables as all_tables


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
        name: of the graph; by default the net's.

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
    values.arrays.update(values_of(inference, arrays))
    for var in inference.inputs:
        values.names[var.name] = graph.input(
            var.name, *_declared(var, inference.steps.get(var.name))
        )
    emit_operators(values, folded(values, inference.operators))
    if values.refused:
        count = len(values.refused)
        lines = "\n  ".join(dict.fromkeys(values.refused))
        plural = "s" * (count != 1)
        raise ExportError(f"ONNX: {count} operator{plural} cannot be exported:\n  {lines}")
    for output in inference.outputs:
        _put_output(values, output)
    graph.drop_unread()
    return graph


def folded(values: Values, operators: Iterable[Operator]) -> list[Operator]:
    """The operators that are left once all that depends on parameters alone has been computed."""
    left: list[Operator] = []
    for op in operators:
        reads = reads_of(op.node)
        entry = op.entry
        if reads and all(name in values.arrays for name in reads) and not entry.random:
            most = sum(values.arrays[name].nbytes for name in reads)
            constants = _computed(op, {name: values.arrays[name] for name in reads})
            if constants and sum(array.nbytes for array in constants.values()) <= most:
                values.arrays.update(constants)
                values.specs.update({n: (a.shape, a.dtype) for n, a in constants.items()})
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
        values = Predictor(net).predict(scope, {}, wanted, None)
    except OpscopeError:
        return {}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


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
        copies = [name] if name not in inputs and not _is_computed(values, name) else None
        value = values.graph.node("Identity", [value], name, outputs=copies or 1)
    if value != name:
        raise ExportError(f"ONNX: the name of the output {name!r} is taken by another value")
    spec = values.spec_of(name)
    if spec is None:
        raise ExportError(f"ONNX: the rank of the output {name!r} is not known; declare its shape")
    shape, dtype = spec
    dims = [size if size >= 0 else f"{name}_{axis}" for axis, size in enumerate(shape)]
    values.graph.output(name, dtype, dims)


def _is_computed(values: Values, name: str) -> bool:
    nodes = values.graph.message.node
    return name in values.graph.arrays or any(name in node.output for node in nodes)
