"""Breadth-first exploration of the rows that a request depends on, one at a time, as in Kaldi.

Recurrent networks could be followed back for ever. Kaldi's ComputationGraphBuilder therefore works
in breadth-first rounds, finds out early which rows cannot be computed, counts for every row how
many rows that may still be computed want it (its usable count), and does not expand a row that
nothing wants. The order of its queue decides how many rows it touches; this module keeps it,
so that the numbers agree. Rows of different n never depend on each other: one exploration serves
all n with the same pattern, see graph.py. Rows are numbered; all tables are lists by number.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from ...framework.base.errors import CycleError, ShapeError
from ..index.indexes import MAX_T, MAX_X, X_BITS
from .topology import Topology

UNKNOWN, COMPUTABLE, NOT_COMPUTABLE = 0, 1, 2
STATE_NAMES = ("kUnknown", "kComputable", "kNotComputable")
_MAX_ROUNDS = 10000

Row = tuple[int, int, int]  # node, t, x


class Explorer:
    """All rows that the outputs may depend on, with their computable states.

    Attributes:
        rows: (node, t, x) by number, given rows first, then outputs.
        candidates: for an expanded row the rows that it may read, in the node's order.
        state: UNKNOWN, COMPUTABLE or NOT_COMPUTABLE.
        usable: how many rows that may be computed want this row.
        rounds: how many rounds the exploration took.
    """

    def __init__(self, topology: Topology, available: Iterable[Row], outputs: Iterable[Row]):
        self.topology = topology
        self.rows: list[Row] = []
        self.candidates: list[list[int]] = []
        self.state: list[int] = []
        self.usable: list[int] = []
        self._ids: dict[int, int] = {}
        self._dependencies: list[list[int]] = []  # candidates, sorted, each once
        self._readers: list[list[int]] = []
        self._queued: list[bool] = []
        self._expanded: list[bool] = []
        self._next: list[int] = []
        self._needs_all = topology.needs_all
        for row in available:
            self.state[self._id(*row)] = COMPUTABLE
        self.num_available = len(self.rows)
        self.outputs = [self._id(*row) for row in outputs]
        for row in self.outputs:
            self.usable[row] = 1
            self._queued[row] = True
            self._next.append(row)
        self._explore()

    def _id(self, node: int, t: int, x: int) -> int:
        key = ((t << X_BITS) + x + MAX_X) * len(self.topology) + node
        number = self._ids.get(key)
        if number is None:
            if not (-MAX_T < t < MAX_T and -MAX_X < x < MAX_X):
                name = self.topology.nodes[node].name
                raise ShapeError(f"node '{name}' would be read at t={t}, x={x}: out of range")
            number = self._ids[key] = len(self.rows)
            self.rows.append((node, t, x))
            self.candidates.append([])
            self.state.append(UNKNOWN)
            self.usable.append(0)
            self._dependencies.append([])
            self._readers.append([])
            self._queued.append(False)
            self._expanded.append(False)
        return number

    def _explore(self) -> None:
        expanded, queued, usable, state = self._expanded, self._queued, self.usable, self.state
        for self.rounds in range(_MAX_ROUNDS):
            current = self._next
            self._next = []
            if not current:
                return
            while current:
                row = current.pop()
                queued[row] = False
                if not expanded[row] and usable[row]:
                    expanded[row] = True
                    self._expand(row)
                    if not queued[row]:
                        queued[row] = True
                        self._next.append(row)
                elif state[row] == UNKNOWN and usable[row]:
                    self._update(row)
        raise CycleError(
            f"following the dependencies did not end after {_MAX_ROUNDS} rounds:"
            f" {self._endless(self._next)}"
        )

    def _endless(self, rows: list[int]) -> str:
        """What goes on for ever: the loop of nodes that the newest rows come from, and whether it
        leads to earlier or to later times."""
        row = max(rows)
        before = list[int]()
        nodes = self.topology.nodes
        passed = set[int]()
        while self._readers[row] and self.rows[row][0] not in passed:
            before.append(row)
            passed.add(self.rows[row][0])
            row = min(self._readers[row])
        path = [*before, row]
        first = next(n for n, other in enumerate(path) if self.rows[other][0] == self.rows[row][0])
        loop = path[first:][::-1]  # from the reader to what it reads
        names = " <- ".join(nodes[self.rows[other][0]].name for other in loop)
        shift = self.rows[loop[-1]][1] - self.rows[loop[0]][1]
        where = "earlier" if shift < 0 else "later"
        return (
            f"the loop {names} reads {where} times for ever (t={shift:+} in each round), and"
            " nothing that is given ends it"
        )

    def _expand(self, row: int) -> None:
        node, t, x = self.rows[row]
        steps = self.topology.steps[node]
        if steps is None:
            places = self.topology.dependencies(node, t, x)
        else:
            places = [(source, t + dt, x + dx) for source, dt, dx in steps]
        before = len(self.rows)
        candidates = [self._id(*place) for place in places]
        for new in range(before, len(self.rows)):
            self._queued[new] = True
            self._next.append(new)
        self.candidates[row] = candidates
        if len(candidates) > 1:
            self._dependencies[row] = dependencies = sorted(set(candidates))
        else:
            self._dependencies[row] = dependencies = candidates
        for dependency in dependencies:
            self._readers[dependency].append(row)
            if self.usable[dependency]:
                self.usable[dependency] += 1
            else:
                self._wake(dependency)

    def _wake(self, row: int) -> None:
        """Raise the usable count of a row from 0 to 1, and the counts of the rows that it reads."""
        stack = [(row, 0)]
        while stack:
            row, position = stack.pop()
            if position == 0:
                self.usable[row] += 1
                if self.usable[row] > 1 or self.state[row] == NOT_COMPUTABLE:
                    continue
            dependencies = self._dependencies[row]
            if position < len(dependencies):
                stack += [(row, position + 1), (dependencies[position], 0)]
            elif self.state[row] == UNKNOWN and not self._queued[row]:
                self._queued[row] = True
                self._next.append(row)

    def _release(self, row: int) -> None:
        """Lower the usable counts of the rows that `row` reads, and of rows not wanted any more."""
        stack = list(self._dependencies[row])
        while stack:
            row = stack.pop()
            self.usable[row] -= 1
            if not self.usable[row] and self.state[row] != NOT_COMPUTABLE:
                stack += self._dependencies[row]

    def _update(self, row: int) -> None:
        state = self._evaluate(row)
        if state == UNKNOWN:
            return
        self.state[row] = state
        for reader in self._readers[row]:
            if self.state[reader] == UNKNOWN and not self._queued[reader]:
                self._queued[reader] = True
                self._next.append(reader)
        if state == NOT_COMPUTABLE:
            self._release(row)

    def _evaluate(self, row: int) -> int:
        node, t, _ = self.rows[row]
        candidates = self.candidates[row]
        state = self.state
        if self._needs_all[node]:
            worst = COMPUTABLE
            for candidate in candidates:
                if state[candidate] == NOT_COMPUTABLE:
                    return NOT_COMPUTABLE
                if state[candidate] == UNKNOWN:
                    worst = UNKNOWN
            return worst
        if self._combine(node, t, [state[c] == COMPUTABLE for c in candidates])[0]:
            return COMPUTABLE
        maybe = [state[c] != NOT_COMPUTABLE for c in candidates]
        return UNKNOWN if self._combine(node, t, maybe)[0] else NOT_COMPUTABLE

    def _combine(self, node: int, t: int, present: list[bool]) -> tuple[int, list[int]]:
        """As `Topology.combine`, of one row."""
        allowed = -int(self.topology.allowed(node, t))
        return self.topology.combine(node, [-int(there) for there in present], allowed, -1)

    def used(self, row: int) -> list[int]:
        """The numbers of the rows that a computable row really reads, sorted, each once."""
        if row < self.num_available:
            return []
        node, t, _ = self.rows[row]
        if self._needs_all[node]:
            return self._dependencies[row]
        candidates = self.candidates[row]
        masks = self._combine(node, t, [self.state[c] == COMPUTABLE for c in candidates])[1]
        return sorted({c for c, mask in zip(candidates, masks, strict=True) if mask})

    def required(self) -> list[int]:
        """The numbers of all rows that the outputs need, and of the given ones."""
        keep = [row < self.num_available for row in range(len(self.rows))]
        stack = list(self.outputs)
        for row in stack:
            keep[row] = True
        while stack:
            for dependency in self.used(stack.pop()):
                if not keep[dependency]:
                    keep[dependency] = True
                    stack.append(dependency)
        return [row for row, kept in enumerate(keep) if kept]

    def levels(self, rows: list[int]) -> dict[int, int]:
        """The level of each row: one more than the highest of the rows it reads in its own epoch.

        Raises:
            CycleError: rows wait for each other.
        """
        epochs = self.topology.epochs
        inside: dict[int, list[int]] = {}
        waiting: dict[int, int] = {}
        ready: list[int] = []
        for row in rows:
            if row < self.num_available:
                continue
            epoch = epochs[self.rows[row][0]]
            same = [
                d
                for d in self.used(row)
                if d >= self.num_available and epochs[self.rows[d][0]] == epoch
            ]
            waiting[row] = len(same)
            for dependency in same:
                inside.setdefault(dependency, []).append(row)
            if not same:
                ready.append(row)
        level = dict.fromkeys(ready, 0)
        for row in ready:  # grows while it is walked
            for reader in inside.get(row, ()):
                waiting[reader] -= 1
                level[reader] = max(level.get(reader, 0), level[row] + 1)
                if not waiting[reader]:
                    ready.append(reader)
        if len(ready) < len(waiting):
            raise CycleError(self._cycle({row for row in waiting if waiting[row]}))
        return level

    def _cycle(self, waiting: set[int]) -> str:
        """A circle of rows that wait for each other, by nodes, and how it runs in time."""
        path: dict[int, None] = {}
        row = min(waiting)
        while row not in path:
            path[row] = None
            row = next(other for other in self.used(row) if other in waiting)
        circle = list(path)
        circle = [*circle[circle.index(row) :], row]
        names = [self.topology.nodes[self.rows[other][0]].name for other in circle]
        shown = " <- ".join(dict.fromkeys(names))
        if len({self.rows[other][1] for other in circle}) == 1:
            return f"the network has a cycle without delay through the nodes {shown} <- {names[-1]}"
        return (
            "the network has a cycle that runs both to earlier and to later times through the nodes"
            f" {shown} <- {names[-1]}"
        )

    def explain(self, output: int, n: int, max_lines: int = 100) -> str:
        """Why an output row is not computable: Kaldi's ExplainWhyNotComputable."""

        cindex = self._cindex(output, n)
        lines = [f"*** cindex {cindex} is not computable for the following reason: ***"]
        queue = [output]
        seen = {output}
        for row in queue:  # grows while it is walked
            if len(lines) > max_lines:
                break
            for dependency in self._dependencies[row]:
                if self.state[dependency] != COMPUTABLE and dependency not in seen:
                    seen.add(dependency)
                    queue.append(dependency)
            lines.append(self.describe(row, n))
        return "\n".join(lines)

    def describe(self, row: int, n: int) -> str:
        """The states of a row of sequence n and of the rows it may read, as Kaldi logs them."""
        parts = [
            f"{self._cindex(dependency, n)}[{STATE_NAMES[self.state[dependency]]}]"
            for dependency in self._dependencies[row]
        ]
        state = STATE_NAMES[self.state[row]]
        return f"{self._cindex(row, n)} is {state}, dependencies: {', '.join(parts)}"

    def _cindex(self, row: int, n: int) -> str:
        node, t, x = self.rows[row]
        return f"{self.topology.nodes[node].name}({n}, {t}, {x})"

    def missing(self) -> list[Row]:
        """Rows of input nodes that are wanted and were not given, sorted."""
        nodes = self.topology.nodes
        rows = [
            row
            for i, row in enumerate(self.rows)
            if i >= self.num_available and nodes[row[0]].kind == "input"
        ]
        return sorted(rows, key=itemgetter(0, 1, 2))
