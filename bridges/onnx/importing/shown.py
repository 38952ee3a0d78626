"""An ONNX model as an op list to look at: its own nodes, which need not be known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....framework.ir.desc import INPUT, OUTPUT, PARAMETER
from ....framework.ir.names import EMPTY
from ....framework.ir.op_list import OpList, OpNode, VarDecl
from .graph import Graph, InputInfo, Model

DIALECT = "onnx"
_FEW = 8  # whole numbers that are shown where they are read


def shown_model(model: Model) -> tuple[OpList, dict[str, np.ndarray]]:
    """A model in the dialect `onnx`; functions are written out, graphs in attributes are nets.

    Returns:
        The net, in which a type is that of the node, its domain before it; and initializers by
        variable, but few numbers, which are attributes.
    """
    numbers = {name: a.tolist() for name, a in model.arrays.items() if _is_setting(a)}
    net = _net(model.graph, numbers)
    net.metadata["dialect"] = DIALECT
    ends = ((INPUT, model.inputs, model.graph.inputs), (OUTPUT, model.outputs, model.graph.outputs))
    known = set(model.arrays)
    arrays = {name: array for name, array in model.arrays.items() if name not in numbers}
    net.vars = [VarDecl(n, a.shape, a.dtype, PARAMETER) for n, a in arrays.items()]
    for kind, listed, names in ends:
        for info, name in zip(listed, names, strict=False):
            if name not in known:
                net.vars.append(VarDecl(name, _shape(info), info.dtype, kind))
                known.add(name)
    return net, arrays


def _is_setting(array: np.ndarray) -> bool:
    """Whether an initializer says how a node works: axes, sizes, one number."""
    return array.size <= (_FEW if array.dtype.kind in "iub" else 1)


def _shape(info: InputInfo) -> tuple[int, ...] | None:
    if info.shape is None:
        return None
    return tuple(size if isinstance(size, int) else -1 for size in info.shape)


def _net(graph: Graph, numbers: Mapping[str, Any]) -> OpList:
    """A graph's nodes; what is left out keeps its place, numbers are shown beside attributes."""
    net = OpList()
    for node in graph.nodes:
        attrs = {
            name: _net(value, numbers) if isinstance(value, Graph) else value
            for name, value in node.attrs.items()
        }
        if node.name:
            attrs.setdefault("node", node.name)
        for place, name in enumerate(node.inputs):
            if name in numbers:
                attrs[f"input {place}"] = numbers[name]
        given = tuple(EMPTY if name in numbers else name or EMPTY for name in node.inputs)
        outs = tuple(name or EMPTY for name in node.outputs)
        kind = f"{node.domain}.{node.op}" if node.domain else node.op
        net.ops.append(OpNode(kind, {"inputs": given}, {"out": outs}, attrs))
    return net
