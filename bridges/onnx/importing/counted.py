"""A Loop that reads the rows of tensors one after another, as the Scan that it stands for.

Exporters write recurrent layers of Keras so: a counter that is a state, or the number of the round,
chooses the row, and a comparison of it ends the loop. What counts depends on no data, so that its
rounds are found beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .calls import Attributes, Value
from .graph import Graph, Node, instantiated

Find = Callable[[str], Value | None]
Evaluate = Callable[[Node, Mapping[str, Any]], Sequence[Any]]

OF_NUMBERS = frozenset(
    "Add Sub Mul Cast Identity Not And Or Equal Less LessOrEqual Greater GreaterOrEqual".split()
)
"""Operators that compute numbers one by one."""


def as_scan(n: Attributes, find: Find, evaluate: Evaluate) -> list[Node] | None:
    """A Scan, and the nodes of results that it does not give; None for another loop.

    Args:
        find: the value of a name around the loop; None where it is made later.
        evaluate: the outputs of a node for arrays by the names of its inputs.
    """
    body = n.graph("body")
    states = len(n.node.inputs) - 2
    if len(body.inputs) != 2 + states or len(body.outputs) < 1 + states:
        return None
    loop = _CountedLoop(n.node, body, find)
    scan = loop.scan()
    if scan is None or not loop.reads_all(evaluate):
        return None
    return [scan, *loop.others()]


class _CountedLoop:
    """A loop and its body, in which what never changes has the name that it has outside.

    Attributes:
        states: those that change: name -> first one outside, name of the next.
        counters: those that rows are chosen by and that the end depends on, and the number of the
            round. counting: the nodes that compute them.
        rows: nodes that read a row of a tensor outside, by the number in a counter.
    """

    def __init__(self, node: Node, body: Graph, find: Find) -> None:
        self._node = node
        self._find = find
        given = node.inputs[2:]
        nexts = body.outputs[1 : 1 + len(given)]
        makers = _makers(body)
        pairs = zip(body.inputs[2:], nexts, given, strict=True)
        fixed = {state: name for state, after, name in pairs if _source(after, makers) == state}
        self._is_fixed = [state in fixed for state in body.inputs[2:]]
        suffix = f"@{next(filter(None, node.outputs), node.name)}"
        self._body = body = instantiated(body, fixed, suffix)
        self._makers = _makers(body)
        nexts = body.outputs[1 : 1 + len(given)]
        each = zip(self._is_fixed, body.inputs[2:], given, nexts, strict=True)
        self.states = {own: (name, after) for is_fixed, own, name, after in each if not is_fixed}
        self._rounds = 0
        self._starts: dict[str, np.ndarray] = {}
        self.counting, self.counters = self._counted()
        self.rows = self._read_rows()

    def _counted(self) -> tuple[list[Node], set[str]]:
        counts = {own: after for own, (_, after) in self.states.items() if self._counts(own)}
        wanted = {self._body.outputs[0], *counts.values()}
        counters = {self._body.inputs[0], *counts}
        while True:  # states that what is wanted is computed from are wanted, too
            nodes = self._needed(wanted)
            new = (_reads(nodes, wanted) & self.states.keys()) - counters
            if not new:
                return nodes, counters
            counters |= new
            wanted |= {self.states[name][1] for name in new}

    def _counts(self, own: str) -> bool:
        """Whether a state is a number that follows from nothing but the number before."""
        first, after = self.states[own]
        start = self._known(first)
        nodes = self._needed({after})
        read = _reads(nodes) & {*self.states, *self._body.inputs}
        numbers = all(one.op in OF_NUMBERS for one in nodes)
        return start is not None and start.size == 1 and numbers and read <= {own}

    def _read_rows(self) -> dict[str, tuple[str, str, Value]]:
        """The result of each such node -> the tensor's name, the counter, the tensor."""
        found = {}
        for one in self._body.nodes:
            if one.op != "Gather" or one.domain or one.attrs.get("axis", 0):
                continue
            name, at = one.inputs
            value = None if name in self._makers or at not in self.counters else self._find(name)
            if value is not None and value.ndim:
                found[one.outputs[0]] = name, at, value
        return found

    def scan(self) -> Node | None:
        """The Scan, if all tensors have as many rows as there are rounds; None where something
        else reads what counts, or depends on what is not there yet."""
        node, body = self._node, self._body
        kept = {own: pair for own, pair in self.states.items() if own not in self.counters}
        count = len(self._is_fixed)
        results = (*(after for _, after in kept.values()), *body.outputs[1 + count :])
        nodes = self._needed(results, self.rows)
        made = {name for one in nodes for name in one.outputs}
        inside = made | kept.keys() | self.rows.keys()
        around = tuple(sorted(name for name in _reads(nodes) if name and name not in inside))
        hidden = {*self.counters, body.inputs[1]}
        if not self.rows or not made.issuperset(results) or not hidden.isdisjoint(around):
            return None
        if any(self._find(name) is None for name in around):
            return None
        inner = Graph((*kept, *self.rows), results, nodes, around)
        finals = self._finals()
        outputs = (*(finals.get(own, "") for own in kept), *node.outputs[count:])
        tensors = (name for name, _, _ in self.rows.values())
        inputs = (*(name for name, _ in kept.values()), *tensors)
        attrs = {"body": inner, "num_scan_inputs": len(self.rows)}
        return Node("Scan", "", 16, node.name, inputs, outputs, attrs, captures=around)

    def reads_all(self, evaluate: Evaluate) -> bool:
        """Whether the rounds read all tensors from the first row to the last; False also where that
        depends on data, or is counted in another way than one by one."""
        number, condition = self._body.inputs[:2]
        rows = {value.shape[0] for _, _, value in self.rows.values()}
        inside = {*self._makers, *self.counters, condition}
        given = {name: self._known(name) for name in _reads(self.counting) - inside}
        given |= {name: self._known(self.states[name][0]) for name in self.counters - {number}}
        known = {name: one for name, one in given.items() if one is not None and one.size == 1}
        limits = [self._known(name) if name else None for name in self._node.inputs[:2]]
        if any(name and one is None for name, one in zip(self._node.inputs, limits, strict=False)):
            return False
        if len(known) < len(given):
            return False
        if len(rows) > 1 or any(one.op not in OF_NUMBERS or one.domain for one in self.counting):
            return False
        known[number] = np.array(0)
        self._starts = {name: one for name, one in known.items() if name in self.counters}
        choosing = [self._starts[at] for _, at, _ in self.rows.values()]
        if any(start.ndim or start for start in choosing):
            return False
        # All rounds side by side: each node computes numbers alone.
        (self._rounds,) = rows
        steps = np.arange(self._rounds + 1)
        env: dict[str, Any] = {name: one.reshape(1) for name, one in known.items()}
        env |= {
            name: start.reshape(1) + steps.astype(start.dtype)
            for name, start in self._starts.items()
        }
        env[condition] = np.ones(1, bool)
        for one in self.counting:
            results = evaluate(one, {name: env[name] for name in one.reads()})
            env.update(zip(one.outputs, results, strict=False))
        counted = all(
            np.array_equal(env[self.states[name][1]][:-1], env[name][1:])
            for name in self.counters - {number}
        )
        return counted and self._ends(env[self._body.outputs[0]], *limits)

    def _ends(
        self, goes_on: np.ndarray, trips: np.ndarray | None, start: np.ndarray | None
    ) -> bool:
        """Whether the loop ends after its rounds, and not before."""
        rounds = self._rounds
        if not rounds or (start is not None and not start.all()):
            return False
        *before, last = np.broadcast_to(goes_on, rounds + 1)[:rounds]
        limit = rounds + 1 if trips is None else int(trips.reshape(-1)[0])
        return all(before) and (limit == rounds or (limit > rounds and not last))

    def others(self) -> list[Node]:
        """The nodes of the results that never change, and of those that count."""
        title = self._node.name
        pairs = zip(self._is_fixed, self._node.inputs[2:], self._node.outputs, strict=False)
        nodes = [
            Node("Identity", "", 13, title, (name,), (out,), {})
            for is_fixed, name, out in pairs
            if is_fixed and out
        ]
        for own, out in self._finals().items():
            if own in self.counters and out:
                start = self._starts[own]
                value = {"value": start + np.array(self._rounds, start.dtype)}
                nodes.append(Node("Constant", "", 13, title, (), (out,), value))
        return nodes

    def _finals(self) -> dict[str, str]:
        """States that change -> the names of the last ones outside."""
        outs = zip(self._is_fixed, self._node.outputs, strict=False)
        return dict(zip(self.states, (out for fixed, out in outs if not fixed), strict=False))

    def _needed(self, names: Collection[str], given: Collection[str] = ()) -> list[Node]:
        """The nodes of the body that compute values, in order, where some are given."""
        wanted = {*names}
        nodes: list[Node] = []
        for one in reversed(self._body.nodes):
            if any(out in wanted and out not in given for out in one.outputs):
                nodes.append(one)
                wanted.update(one.reads())
        return nodes[::-1]

    def _known(self, name: str) -> np.ndarray | None:
        value = self._find(name)
        return None if value is None or value.is_parameter else value.array


def _makers(graph: Graph) -> dict[str, Node]:
    return {out: node for node in graph.nodes for out in node.outputs if out}


def _source(name: str, makers: Mapping[str, Node]) -> str:
    while name in makers and makers[name].op == "Identity":
        name = makers[name].inputs[0]
    return name


def _reads(nodes: Sequence[Node], more: Collection[str] = ()) -> set[str]:
    return {name for node in nodes for name in node.reads()} | {*more}
