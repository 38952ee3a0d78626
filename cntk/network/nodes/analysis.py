"""Roots, evaluation order and recurrent loops of a network.

The orders are the same as in CNTK (ComputationNetworkAnalysis.cpp), since they show in its logs and
decide the order of random numbers. Nothing here recurses: networks may be thousands of nodes deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....framework.base.algorithms.strongly_connected import strongly_connected
from ....framework.base.errors import CycleError
from ...base.text import located
from .node import Node


@dataclass
class Loop:
    """A strongly connected part of a network, in the order in which one time step is computed.

    `direction` is 1 if it runs from the past to the future, -1 if backwards. `source` is the node
    by which it was entered.
    """

    source: Node
    nodes: list[Node]
    direction: int


def roots(nodes: Sequence[Node], groups: Iterable[Sequence[Node]]) -> list[Node]:
    """Nodes that no node reads, nodes of the `groups` and nodes to precompute, sorted by name."""
    read = {id(child) for node in nodes for child in node.inputs}
    wanted = {id(node) for group in groups for node in group}
    result = [
        node for node in nodes if id(node) not in read or id(node) in wanted or node.kind.precompute
    ]
    return sorted(result, key=lambda node: node.name)


def depth_first(starts: Iterable[Node]) -> list[Node]:
    """All nodes below `starts`, each after its inputs (except for loops)."""
    order: list[Node] = []
    seen: set[int] = set()
    for start in starts:
        if id(start) in seen:
            continue
        seen.add(id(start))
        stack = [(start, iter(start.inputs))]
        while stack:
            node, children = stack[-1]
            for child in children:
                if child is not None and id(child) not in seen:
                    seen.add(id(child))
                    stack.append((child, iter(child.inputs)))
                    break
            else:
                order.append(node)
                stack.pop()
    return order


def _components(starts: Iterable[Node]) -> list[list[Node]]:
    """Strongly connected components of more than one node, or of one that reads itself."""
    starts = list(starts)
    order = depth_first(starts)
    place = {id(node): number for number, node in enumerate(order)}
    # Most networks have no loops: each node then stands after all that it reads.
    reads = [(child, node) for node in order for child in node.inputs if child is not None]
    if all(place[id(child)] < place[id(node)] for child, node in reads):
        return []
    nodes = {id(node): node for node in (*starts, *order)}
    numbers = {key: number for number, key in enumerate(nodes)}
    graph = [
        [numbers[id(child)] for child in node.inputs if child is not None]
        for node in nodes.values()
    ]
    ordered = list(nodes.values())
    components = [[ordered[number] for number in part] for part in strongly_connected(graph)]
    return [part for part in components if len(part) > 1 or part[0] in part[0].inputs]


def _direction(part: Sequence[Node]) -> int:
    delays = {node.delay: node for node in part if node.delay}
    if len(delays) > 1:
        ways = [f"{node.name} ({node.operation})" for _, node in sorted(delays.items())]
        raise located(
            CycleError,
            f"the loop of {part[0].name} ({part[0].operation}) runs both to the past and to the"
            f" future, through {' and '.join(ways)}",
            part[0].location,
        )
    if not delays:
        raise _without_delay(part[::-1])
    return next(iter(delays))


def _without_delay(cycle: Sequence[Node]) -> CycleError:
    chain = [(f"{node.name} = {node.operation}", node.location) for node in cycle[1:]]
    first = cycle[0]
    return located(
        CycleError,
        f"a loop without delay: {first.name} = {first.operation} is computed from itself",
        first.location,
        chain,
    )


def _need_steps(part: Sequence[Node]) -> None:
    """Refuse a loop with a node that cannot be computed one time step after the other. CNTK finds
    that out when it runs such a network."""
    for node in part:
        if node.kind.whole:
            delay = next(node for node in part if node.delay)
            raise node.error(
                "it needs all time steps at once, but it is part of the loop that is closed by"
                f" {delay.name} ({delay.operation})",
                CycleError,
            )


def _step_order(part: Sequence[Node]) -> list[Node]:
    """The nodes of a loop, each after the nodes that it reads in the same time step.

    Raises:
        CycleError: some read each other in the same time step.
    """
    inside = {id(node) for node in part}
    read = {
        id(child) for node in part if not node.delay for child in node.inputs if id(child) in inside
    }
    order: list[Node] = []
    seen: set[int] = set()
    for start in [*(n for n in part if id(n) not in read), *part]:
        if id(start) in seen:
            continue
        path = {id(start)}
        seen.add(id(start))
        stack = [(start, iter(() if start.delay else start.inputs))]
        while stack:
            node, children = stack[-1]
            for child in children:
                if id(child) not in inside:
                    continue
                if id(child) not in seen:
                    seen.add(id(child))
                    path.add(id(child))
                    stack.append((child, iter(() if child.delay else child.inputs)))
                    break
                if id(child) in path:
                    nodes = [entry[0] for entry in stack]
                    raise _without_delay(nodes[nodes.index(child) :])
            else:
                order.append(node)
                path.discard(id(node))
                stack.pop()
    return order


def find_loops(
    starts: Iterable[Node],
) -> tuple[list[Loop], list[tuple[list[Node], CycleError]]]:
    """All recurrent loops below `starts`, and the loops that cannot be computed, with the reason:
    no delay, delays in both directions, or a node that looks at all time steps."""
    loops, wrong = [], []
    for part in _components(starts):
        try:
            direction = _direction(part)
            _need_steps(part)
            loops.append(Loop(part[-1], _step_order(part), direction))
        except CycleError as error:
            wrong.append((part, error))
    return loops, wrong


def dependents(nodes: Iterable[Node], wrong: Iterable[Node]) -> set[int]:
    """Ids of the nodes `wrong` and of all that read them, directly or not."""
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for child in node.inputs:
            readers.setdefault(id(child), []).append(node)
    reached = {id(node) for node in wrong}
    waiting = list(reached)
    while waiting:
        for node in readers.get(waiting.pop(), ()):
            if id(node) not in reached:
                reached.add(id(node))
                waiting.append(id(node))
    return reached


def evaluation_order(starts: Sequence[Node], loops: Sequence[Loop]) -> list[Node]:
    """Depth-first order with the nodes of each loop together, where its last one was."""
    order = depth_first(starts)
    if not loops:
        return order
    loop_of = {id(node): loop for loop in loops for node in loop.nodes}
    position = {id(node): k for k, node in enumerate(order)}
    last = {id(loop): max(position[id(node)] for node in loop.nodes) for loop in loops}

    def place(node: Node) -> int:
        loop = loop_of.get(id(node))
        return last[id(loop)] if loop else position[id(node)]

    result: list[Node] = []
    done: set[int] = set()
    for node in sorted(order, key=place):
        loop = loop_of.get(id(node))
        if loop is None:
            result.append(node)
        elif id(loop) not in done:
            done.add(id(loop))
            result += loop.nodes
    return result
