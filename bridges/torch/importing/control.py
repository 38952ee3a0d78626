"""Operators that call graphs: `cond`, `while_loop`, `scan`, `map` as ONNX's If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...onnx.importing.graph import Graph, Node

OPSET = 16
"""The operator set of the nodes."""
Parts = tuple[str, Sequence[str], dict[str, Any]]
"""An operator of ONNX, its inputs and its attributes, graphs among them."""


class ReadsBlocks(Protocol):
    """The reader of a program, as far as it is wanted here."""

    def names(self, values: Sequence[Any]) -> list[str]:
        """The names of values."""
        ...

    def fresh(self, values: Sequence[Any]) -> list[str]:
        """New names, one for each value."""
        ...

    def block(self, holder: Any, given: Sequence[str]) -> list[str]:
        """Read the nodes of a block for some values; the names of its results."""
        ...

    def inside(self) -> AbstractContextManager[list[Node]]:
        """Nodes that are read meanwhile go into a list of their own."""
        ...


def graph_of(inputs: Sequence[str], outputs: Sequence[str], nodes: list[Node]) -> Graph:
    """A graph that reads what it lacks from around it."""
    own = {*inputs, *(out for node in nodes for out in node.outputs)}
    reads = [*(name for node in nodes for name in node.reads()), *outputs]
    captures = tuple(dict.fromkeys(name for name in reads if name not in own))
    return Graph(tuple(inputs), tuple(outputs), nodes, captures)


def _cond(
    r: ReadsBlocks, chosen: Any, then: Any, other: Any, operands: Sequence[Any] = ()
) -> Parts:
    given = r.names(operands)
    graphs = {}
    for key, holder in (("then_branch", then), ("else_branch", other)):
        with r.inside() as nodes:
            outputs = r.block(holder, given)
        graphs[key] = graph_of((), outputs, nodes)
    return "If", r.names([chosen]), graphs


def _while(
    r: ReadsBlocks, condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> Parts:
    begin, around = r.names(carried), r.names(more)
    goes_on = r.block(condition, [*begin, *around])
    with r.inside() as nodes:
        step, went_on, *states = r.fresh([None, None, *carried])
        results = r.block(body, [*states, *around])
        again = r.block(condition, [*results, *around])
    graph = graph_of([step, went_on, *states], [*again, *results], nodes)
    return "Loop", ["", *goes_on, *begin], {"body": graph}


def _scan(
    r: ReadsBlocks, body: Any, first: Sequence[Any], rows: Sequence[Any], more: Sequence[Any] = ()
) -> Parts:
    around = r.names(more)
    with r.inside() as nodes:
        inputs = r.fresh([*first, *rows])
        outputs = r.block(body, [*inputs, *around])
    graph = graph_of(inputs, outputs, nodes)
    return "Scan", r.names([*first, *rows]), {"body": graph, "num_scan_inputs": len(rows)}


def _map(r: ReadsBlocks, body: Any, rows: Sequence[Any], more: Sequence[Any] = ()) -> Parts:
    return _scan(r, body, (), rows, more)


CONTROL_CALLS: dict[str, Callable[..., Parts]] = {
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "map_impl": _map,
}
"""What calls graphs: how it is said in ONNX's words."""


def calls_of(module: Any) -> Iterator[tuple[Any, Any]]:
    """The nodes of a module and of the blocks that it calls, each after the module it is of."""
    waiting = [module]
    while waiting:
        holder = waiting.pop()
        for node in holder.graph.nodes:
            yield holder, node
            if node.op == "get_attr" and is_block(holder, node):
                waiting.append(holder.get_submodule(node.target))


def is_block(module: Any, node: Any) -> bool:
    """Whether a node gives a graph that the module holds, for operators that call graphs."""
    found = dict(module.named_modules()).get(node.target)
    return hasattr(found, "graph") and all(
        getattr(user.target, "__name__", "") in CONTROL_CALLS for user in node.users
    )
