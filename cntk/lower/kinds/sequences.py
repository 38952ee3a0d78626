"""Kinds that look along the dynamic axis: conditions on positions, packing, layouts."""

from __future__ import annotations

from ....framework.ir.desc import INPUT
from ...network.nodes.node import Node
from ..emitter import Emitter, dims
from ..table import lowers


@lowers("Where")
def lower_where(e: Emitter, node: Node) -> str:
    """How many positions there are is data, so they are found before the net runs."""
    e.lowered.conditions.append(node)
    e.sequences(node.axis)
    return e.var(node.name, (-1, 1), INPUT)


@lowers("PackedIndex")
def lower_packed_index(e: Emitter, node: Node) -> str:
    source, index = node.inputs
    e.sequences(source.axis)
    e.sequences(index.axis)
    return e.op("cntk.packed_index", {"x": e.value(index), "source": e.value(source)})


@lowers("GatherPacked")
def lower_gather_packed(e: Emitter, node: Node) -> str:
    index, source = node.inputs
    e.sequences(node.axis)
    shape = dims(source)
    table = e.value(source)
    if source.axis is None and len(shape) == 1:
        table = e.shaped(source, (*shape, 1))
    return e.op("cntk.gather_rows", {"x": table, "index": e.value(index)})


@lowers("ScatterPacked")
def lower_scatter_packed(e: Emitter, node: Node) -> str:
    layout, index, source = node.inputs
    e.sequences(node.axis)
    reads = {"x": e.value(source), "index": e.value(index), "like": e.value(layout)}
    return e.op("cntk.scatter_rows", reads)


@lowers("ReconcileDynamicAxis")
def lower_reconcile_dynamic_axis(e: Emitter, node: Node) -> str:
    data, layout = node.inputs
    if data.axis is layout.axis:
        return e.value(data)
    e.sequences(data.axis)
    e.sequences(layout.axis)
    return e.op("cntk.with_sequences", {"x": e.value(data), "like": e.value(layout)})
