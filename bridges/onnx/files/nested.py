"""Nodes and graphs inside of the nodes of a message."""

from __future__ import annotations

from collections.abc import Iterable

from ....proto import onnx_pb2 as pb


def graphs_of(node: pb.NodeProto) -> list[pb.GraphProto]:
    """The graphs that a node holds itself."""
    graphs: list[pb.GraphProto] = []
    for attribute in node.attribute:
        graphs += [attribute.g] if attribute.HasField("g") else attribute.graphs
    return graphs


def all_nodes(nodes: Iterable[pb.NodeProto]) -> list[pb.NodeProto]:
    """Nodes, each before the nodes of the graphs inside of it."""
    listed: list[pb.NodeProto] = []
    waiting = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        listed.append(node)
        inner = [one for graph in graphs_of(node) for one in graph.node]
        waiting += reversed(inner)
    return listed


def all_graphs(graph: pb.GraphProto) -> list[pb.GraphProto]:
    """A graph, and those inside of its nodes."""
    return [graph, *(inner for node in all_nodes(graph.node) for inner in graphs_of(node))]


def names_read(node: pb.NodeProto) -> set[str]:
    """The values that a node reads; graphs inside of it give on what they capture."""
    nodes = all_nodes([node])
    names = {name for one in nodes for name in one.input if name}
    for graph in (graph for one in nodes for graph in graphs_of(one)):
        names.update(info.name for info in graph.output)
    return names
