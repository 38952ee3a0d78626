"""The order of nodes: strongly connected components of the network, in topological order.

All nodes of a loop (a recurrent layer) share an epoch; nodes of a later epoch never feed an earlier
one. The numbering follows Kaldi's nnet-graph.cc (Tarjan's algorithm, then a depth-first
topological sort), so that equal networks give equal numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from ...framework.base.algorithms.strongly_connected import Graph, strongly_connected


def topological_order(graph: Graph) -> list[int]:
    """The position of every node of an acyclic graph, predecessors first."""
    position = [-1] * len(graph)
    remaining = len(graph)
    for root in range(len(graph)):
        path = [(root, 0)] if position[root] < 0 else []
        while path:
            node, begin = path.pop()
            for i in range(begin, len(graph[node])):
                if position[graph[node][i]] < 0:
                    path += [(node, i + 1), (graph[node][i], 0)]
                    break
            else:
                if position[node] < 0:
                    remaining -= 1
                    position[node] = remaining
    return position


class ComponentGraph(NamedTuple):
    """The strongly connected components of a graph, and the graph that these form."""

    members: list[list[int]]
    graph: list[list[int]]


def component_graph(graph: Graph) -> ComponentGraph:
    """The components of `graph[node] = successors`, and those that each leads to, sorted."""
    components = strongly_connected(graph)
    number = [0] * len(graph)
    for i, members in enumerate(components):
        for node in members:
            number[node] = i
    reduced = [
        sorted({number[s] for node in members for s in graph[node]} - {i})
        for i, members in enumerate(components)
    ]
    return ComponentGraph(components, reduced)


def compute_epochs(graph: Graph) -> list[int]:
    """The epoch of every node of `graph[node] = nodes that read it`."""
    components = component_graph(graph)
    order = topological_order(components.graph)
    epochs = [0] * len(graph)
    for members, epoch in zip(components.members, order, strict=True):
        for node in members:
            epochs[node] = epoch
    return epochs
