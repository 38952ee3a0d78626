"""Inputs, parameters, and nodes that depend on the run."""

from __future__ import annotations

from ....framework.ir.desc import INPUT
from ...network.nodes.node import Node
from ..emitter import Emitter, Sparse, dims
from ..table import lowers


@lowers("InputValue")
def lower_input_value(e: Emitter, node: Node) -> str:
    e.lowered.inputs[node] = False
    return e.var(node.name, (-1, *dims(node)), INPUT)


@lowers("SparseInputValue")
def lower_sparse_input_value(e: Emitter, node: Node) -> str:
    e.lowered.inputs[node] = True
    if e.inference:
        return e.var(node.name, (-1, *dims(node)), INPUT)
    rows = Sparse.of(node.name)
    e.var(rows.values, (-1,), INPUT)
    e.var(rows.indices, (-1,), INPUT, "int64")
    e.var(rows.counts, (-1,), INPUT, "int64")
    e.set_sparse(node, rows)
    return ""


@lowers("LearnableParameter")
def lower_learnable_parameter(e: Emitter, node: Node) -> str:
    return e.parameter(node)


@lowers("DynamicAxis")
def lower_dynamic_axis(e: Emitter, node: Node) -> str:
    return ""
