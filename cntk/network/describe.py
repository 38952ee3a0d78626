"""Networks as text, in the lines of CNTK's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .graph import NodeGraph
from .nodes.analysis import Loop
from .nodes.node import Node


def shape_text(node: Node) -> str:
    """`[5 x 3 x *]`: dimensions of a sample, then the dynamic axis."""
    dims = " x ".join(map(str, node.shape or ()))
    return f"[{dims} x {node.axis.name}]" if node.axis is not None else f"[{dims}]"


def _extra(node: Node) -> str:
    values = node.attributes
    if node.operation == "RowRepeat":
        return f", numRepeats={values['numRepeats']}"
    if node.operation == "LegacyReshape":
        size = ", ".join(f"{k}={values[k]}" for k in ("imageWidth", "imageHeight", "imageChannels"))
        return f", NumOfRows={values['numRows']}, {size})"
    return ""


def prototype(node: Node) -> str:
    """`z = Times (W, x) : [5 x 2], [2 x *] -> [5 x *]`."""
    if not node.inputs:
        return f"{node.name} = {node.operation}() :  -> {shape_text(node)}"
    names = ", ".join(i.name if i is not None else "NULL" for i in node.inputs)
    shapes = ", ".join(shape_text(i) if i is not None else "NULL" for i in node.inputs)
    extra = _extra(node)
    return (
        f"{node.name} = {node.operation} ({names}{extra}) : {shapes}{extra} -> {shape_text(node)}"
    )


def root_lines(roots: Sequence[Node], log: Callable[[str], None]) -> None:
    log("")
    log(f"{len(roots)} roots:")
    for node in roots:
        log(f"\t{node.name} = {node.operation}()")


def loop_lines(loops: Iterable[Loop], log: Callable[[str], None]) -> None:
    for number, loop in enumerate(loops):
        log("")
        log(f"Loop[{number}] --> Loop_{loop.source.name} -> {len(loop.nodes)} nodes")
        log("")
        for start in range(0, len(loop.nodes), 3):
            log("".join(f"\t{node.name}" for node in loop.nodes[start : start + 3]))


def describe(network: NodeGraph) -> str:
    """All nodes of a validated network in evaluation order, one line each, then the groups."""
    lines = [prototype(node) for node in network.order]
    for group, nodes in network.groups.items():
        if nodes:
            lines.append(f"{group}: {', '.join(node.name for node in nodes)}")
    lines.append(f"{len(network.nodes)} nodes, {network.parameter_count()} parameters")
    return "\n".join(lines) + "\n"
