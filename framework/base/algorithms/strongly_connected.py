"""Searches of graphs, depth first and without recursion: orders, strongly connected components."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Graph = Sequence[Sequence[int]]
"""The successors of each node."""


def depth_first(graph: Graph, roots: Iterable[int]) -> list[int] | None:
    """The nodes that `roots` lead to, each after all its successors; None where there is a loop.

    A search continues from the roots, and from each node's successors, in the order given; the
    nodes are in the order in which it leaves them. Orders of states in Kaldi's files depend on it.
    """
    order: list[int] = []
    entered, left = bytearray(len(graph)), bytearray(len(graph))
    for root in roots:
        if entered[root]:
            continue
        entered[root] = 1
        stack = [(root, iter(graph[root]))]
        while stack:
            node, successors = stack[-1]
            for successor in successors:
                if not entered[successor]:
                    entered[successor] = 1
                    stack.append((successor, iter(graph[successor])))
                    break
                if not left[successor]:
                    return None
            else:
                left[node] = 1
                order.append(node)
                stack.pop()
    return order


def strongly_connected(graph: Graph) -> list[list[int]]:
    """The strongly connected components of `graph[node] = successors`, sinks first (Tarjan).

    The nodes of a component are the last one first that the search has come to: the numbers of
    Kaldi's nodes and the order of CNTK's loops depend on both orders.
    """
    index = [-1] * len(graph)
    low = [0] * len(graph)
    on_stack = [False] * len(graph)
    stack: list[int] = []
    components: list[list[int]] = []
    count = 0
    for root in range(len(graph)):
        if index[root] >= 0:
            continue
        # Networks unrolled over time are deeper than Python's stack; (node, next successor) stands
        # for a call that was interrupted there.
        path = [(root, 0)]
        while path:
            node, position = path.pop()
            if position == 0:
                index[node] = low[node] = count
                count += 1
                stack.append(node)
                on_stack[node] = True
            # Back from the successor just before `position`: what a recursive call would have
            # returned.
            elif low[graph[node][position - 1]] < low[node]:
                low[node] = low[graph[node][position - 1]]
            while position < len(graph[node]):
                successor = graph[node][position]
                position += 1
                if index[successor] < 0:
                    path += [(node, position), (successor, 0)]
                    break
                # A finished component is not on the stack; its nodes must not pull `low` down.
                if on_stack[successor]:
                    low[node] = min(low[node], index[successor])
            else:
                if low[node] == index[node]:
                    members: list[int] = []
                    while on_stack[node]:
                        members.append(stack.pop())
                        on_stack[members[-1]] = False
                    components.append(members)
    return components
