"""Components whose rows are computed from the same row of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...nnet3_rows.affine import AFFINE, affine_of, diagonal
from ...nnet3_rows.components import WRITTEN, component_net
from ..files.graph import plain_name
from .emit import F32, Emitter, Value

Parts = Sequence[Value]


def matrix(e: Emitter, value: Value, w: np.ndarray, b: Any, name: str) -> Value:
    """w [out, in] times every row, plus b [out] where there is one."""
    w = np.asarray(w, np.float64)
    bias = np.zeros(len(w)) if b is None else np.asarray(b, np.float64)
    if value.offset is not None:
        bias, b = bias + w @ value.offset, bias
    if value.scale is not None:
        w = w * value.scale
    weights = e.graph.constant(w[:, :, None].astype(F32), f"{name}.weight")
    given = None if b is None else e.graph.constant(bias.astype(F32), f"{name}.bias")
    made = e.op("Conv", value.name, weights, given, name=name)
    return Value(made, len(w), value.still)


def _permute(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.join(parts, name)
    order = np.array(c.column_map, np.int64)
    made = e.op("Gather", value.name, e.graph.constant(order), axis=1, name=name)
    scale = None if value.scale is None else value.scale[order]
    offset = None if value.offset is None else value.offset[order]
    return Value(made, value.dim, value.still, scale, offset)


def _constant_function(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    return constant(e, c.output, name)


def constant(e: Emitter, values: Any, name: str) -> Value:
    """The same row for all times."""
    array = np.asarray(values, F32).reshape(1, -1, 1)
    return Value(e.graph.constant(array, name), array.shape[1], True)


def _composite(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    for number, part in enumerate(c.components):
        parts = [row_by_row(e, part, parts, f"{name}.{number}")]
    return parts[0]


def _affine(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    w, b = affine_of(c)
    return matrix(e, e.join(parts, name), w, b, name)


_ROWS: Final[dict[str, Callable[[Emitter, Any, Parts, str], Value]]] = {
    **dict.fromkeys(AFFINE, _affine),
    "PermuteComponent": _permute,
    "ConstantFunctionComponent": _constant_function,
    "CompositeComponent": _composite,
}


def why_not(component: Any) -> str:
    """Why a component is not computed row by row here; empty where it is."""
    kind = component.type
    if kind == "CompositeComponent":
        return "; ".join(filter(None, (why_not(part) for part in component.components)))
    if kind in _ROWS or kind in WRITTEN or diagonal(component) is not None:
        return ""
    if kind == "DistributeComponent":
        return (
            f"{kind} reads rows of another x, and an ONNX model has times alone; dim-range nodes"
            " cut columns without it"
        )
    if getattr(component, "test_mode", True) is False:
        return f"{kind} is in training mode: its result is random or follows from the batch"
    return f"{kind} has no form in ONNX here"


def row_by_row(e: Emitter, component: Any, parts: Parts, name: str) -> Value:
    """The output of a component for values side by side, its input."""
    found = diagonal(component)
    if found is not None:
        return e.join(parts, name).times(found[0]).plus(found[1])
    if component.type in WRITTEN:
        net = component_net(component, plain_name(name), 3)
        return e.written(net, e.split(parts, list(net.inputs.values()), name))
    return _ROWS[component.type](e, component, parts, name)
