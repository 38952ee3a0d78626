"""What no round of a Loop changes, outside of it.

These are states that stay as they are, and what is computed of values around the loop alone.

Paddle's exporter makes every weight that a loop reads a state of it. As values from around the loop
they are parameters again, which nets pack; and a product of them is computed once, not in each
round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from .calls import Kind
from .graph import Graph, Node, instantiated, renamed

_MOVED = frozenset(
    "MatMul Gemm Add Sub Mul Tanh Sigmoid Relu Softmax Transpose Unsqueeze Cast Identity".split()
)
"""Operators that are computed before a loop: those whose results nets read as they read inputs.

Shapes and places stay inside, where the shapes of what a round reads tell them beforehand.
"""
_BEGINS = "Loop.begins"
"""The operator that tells of a loop's first two inputs whether there is a first round."""
_VERSION = 13
"""The operator set of the nodes that are written."""


def without_invariants(graph: Graph, arrays: Collection[str]) -> None:
    """Change the loops of a graph, and of graphs inside it.

    Args:
        arrays: names of constants and parameters. What is computed of these alone stays inside,
            where a net computes it beforehand.
    """
    for node in graph.nodes:
        for inner in node.graphs():
            without_invariants(inner, arrays)
    nodes: list[Node] = []
    for node in graph.nodes:
        loops = node.op == "Loop" and not node.domain
        nodes += _settled(node, arrays) if loops else [node]
    graph.nodes = nodes


def _settled(loop: Node, arrays: Collection[str]) -> Iterator[Node]:
    """The nodes in place of a loop."""
    body = loop.attrs.get("body")
    givens = loop.inputs[2:]
    if (
        not isinstance(body, Graph)
        or len(body.inputs) != len(loop.inputs)
        or len(body.outputs) < 1 + len(givens)
    ):
        yield loop  # damaged, which the rule of the operator says
        return
    stays = _unchanged(body, givens)
    named = zip(body.inputs[2:], givens, stays, strict=True)
    names = {own: given for own, given, is_same in named if is_same}
    inner = renamed(body, names)
    moved, kept = _parted(inner, arrays)
    outputs = _chosen(inner.outputs, [False, *stays])
    read = {*outputs}
    nodes: list[Node] = []
    for node in reversed(kept):
        if not read.isdisjoint(node.outputs):  # else it was a copy of a state
            nodes.append(node)
            read.update(node.reads())
    outside = [*body.captures, *names.values(), *(out for node in moved for out in node.outputs)]
    settled = Graph(
        _chosen(inner.inputs, [False, False, *stays]),
        outputs,
        nodes[::-1],
        tuple(dict.fromkeys(name for name in outside if name in read)),
    )
    left = _chosen(loop.outputs, stays)
    if any(left):  # else no round gives what is read
        yield from _in_case(loop, moved, settled.captures)
        yield replace(
            loop,
            inputs=_chosen(loop.inputs, [False, False, *stays]),
            outputs=left,
            attrs={**loop.attrs, "body": settled},
            captures=settled.captures,
        )
    for is_same, given, out in zip(stays, givens, loop.outputs, strict=False):
        if is_same and out:
            yield Node("Identity", "", _VERSION, out, (given,), (out,), {})


def _in_case(loop: Node, moved: Sequence[Node], read: Collection[str]) -> Iterator[Node]:
    """What computes nodes of a body before the loop where it has a round.

    A loop of none computes nothing, so that nothing of it may fail.

    Args:
        read: what the loop reads then.
    """
    made = {out for node in moved for out in node.outputs}
    outs = tuple(name for name in read if name in made)
    if not outs:
        return
    begins = f"{next(filter(None, loop.outputs))}/begins"
    yield Node(_BEGINS, "", _VERSION, loop.name, loop.inputs[:2], (begins,), {}, kind=_KIND)
    around = dict.fromkeys(name for node in moved for name in node.reads() if name not in made)
    none = {"value": np.zeros(0, np.float32)}  # which no round reads
    empty = [Node("Constant", "", _VERSION, loop.name, (), (name,), none) for name in outs]
    graphs = Graph((), outs, [*moved], (*around,)), Graph((), outs, empty)
    keys = "then_branch", "else_branch"
    branches = {
        key: instantiated(graph, {}, f"/{key}") for key, graph in zip(keys, graphs, strict=True)
    }
    yield Node("If", "", _VERSION, loop.name, (begins,), outs, branches, (*around,))


def _begins(n: object, most: np.ndarray | None = None, goes_on: np.ndarray | None = None) -> Any:
    rounds = most is None or most.reshape(-1)[0] > 0
    return np.array(rounds and (goes_on is None or bool(goes_on.reshape(-1)[0])))


_KIND = Kind(_begins, takes_sizes=True)


def _unchanged(body: Graph, givens: Sequence[str]) -> list[bool]:
    """Which states of a loop each round hands on as they are."""
    copies = {node.outputs[0]: node.inputs[0] for node in body.nodes if node.op == "Identity"}
    stays = []
    for own, after, given in zip(body.inputs[2:], body.outputs[1:], givens, strict=False):
        while after in copies:
            after = copies[after]
        stays.append(bool(given) and after == own)
    return stays


def _chosen(names: Sequence[str], left_out: Sequence[bool]) -> tuple[str, ...]:
    pairs = zip_longest(names, left_out[: len(names)], fillvalue=False)
    return tuple(str(name) for name, is_left in pairs if not is_left)


def _parted(body: Graph, arrays: Collection[str]) -> tuple[list[Node], list[Node]]:
    """The nodes of a body that may stand before the loop, and the others."""
    changing = {*body.inputs, *(name for node in body.nodes for name in node.outputs)}
    moved: list[Node] = []
    kept: list[Node] = []
    for node in body.nodes:
        reads = node.reads()
        movable = _is_moved(node) and changing.isdisjoint(reads)
        if movable and (node.op == _BEGINS or not all(name in arrays for name in reads)):
            moved.append(node)
            changing.difference_update(node.outputs)
        else:
            kept.append(node)
    return moved, kept


def _is_moved(node: Node) -> bool:
    """Whether a node is one to move; what an inner loop has before it is one, too."""
    ones = [one for graph in node.graphs() for one in graph.nodes] if node.op == "If" else [node]
    return all(one.op in (*_MOVED, _BEGINS, "Constant") and not one.domain for one in ones)
