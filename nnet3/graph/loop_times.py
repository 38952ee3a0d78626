"""The times of the steps of recurrent layers, computed without going through the steps.

Kaldi follows a recurrence row by row. Where a loop is the same step again and again (loops.py), its
rows can be computed where all that it reads besides itself can, and those are needed from the last
one that is read elsewhere back to the first: two questions about sets of times, which are arrays of
flags here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..index.indexes import distinct
from .loops import IrregularError, Loop
from .request import ComputationRequest, IoSpecification
from .topology import Topology

_MOST_TIMES = 1 << 20
_Candidate = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For all times the node that is read, its place in the flags, and whether that lies inside."""


class LoopTimes:
    """When the loops of a network run for a request.

    Args:
        loops: from `find_loops`.

    Attributes:
        sequences: the numbers n of the sequences, which are all alike.
        x: of all rows.
        runs: for each loop its times: an ascending list for each remainder by its offset that has
            some.
        outputs: for each loop its components that are read outside, sorted.

    Raises:
        IrregularError: sequences differ, or a step would not see what Kaldi's computation sees.
    """

    def __init__(self, topology: Topology, request: ComputationRequest, loops: Sequence[Loop]):
        self._topology = topology
        of_member = {member: loop for loop in loops for member in loop.members}
        self.sequences, self.x, listed = _like_sequences([*request.inputs, *request.outputs])
        margin = 2 * topology.reach + 1
        self._first = min([int(times[0]) for times in listed]) - margin
        self._t = np.arange(self._first, max([int(t[-1]) for t in listed]) + margin + 1)
        if len(self._t) > _MOST_TIMES:
            raise IrregularError("times lie far apart")
        self._there = np.zeros((len(topology), len(self._t)), bool)
        self._needed = np.zeros_like(self._there)
        self._reads: dict[int, list[tuple[_Candidate, np.ndarray]]] = {}
        ios = zip([*request.inputs, *request.outputs], listed, strict=True)
        for place, (io, times) in enumerate(ios):
            flags = self._there if place < len(request.inputs) else self._needed
            node = topology.number(io.name)
            flags[node, times - self._first] = True
            if flags is self._there and topology.nodes[node].kind != "input":
                raise IrregularError("values of a component are given")
        for members, _ in topology.stages:
            loop = of_member.get(members[-1])
            for node in loop.members if loop else members[-1:]:
                self._compute(node)
        ran = {}
        for members, _ in reversed(topology.stages):
            loop = of_member.get(members[-1])
            if loop:
                ran[id(loop)] = self._run(loop)
            else:  # one node, or a component that reads nothing after its descriptor
                self._follow(members[-1], self._needed[members[-1]])
        self.runs = [ran[id(loop)][0] for loop in loops]
        self.outputs = [ran[id(loop)][1] for loop in loops]

    def _compute(self, node: int) -> None:
        """Which rows of a node can be computed, and which candidates they use."""
        if self._topology.nodes[node].kind == "input":
            return
        candidates = [self._candidate(*place) for place in self._dependencies(node)]
        present = [self._there[nodes, at] & inside for nodes, at, inside in candidates]
        allowed = self._topology.allowed(node, self._t)
        ok, used = self._topology.combine(node, present, allowed)
        self._there[node] = ok
        self._reads[node] = list(zip(candidates, used, strict=True))

    def _dependencies(self, node: int) -> list[tuple]:
        return self._topology.dependencies(node, self._t, np.full(len(self._t), self.x))

    def _candidate(self, node: int | np.ndarray, t: np.ndarray, x: np.ndarray) -> _Candidate:
        if (np.asarray(x) != self.x).any():
            raise IrregularError("rows differ in x")
        at = np.broadcast_to(t, self._t.shape) - self._first
        inside = (at >= 0) & (at < len(self._t))
        return np.broadcast_to(node, at.shape), np.where(inside, at, 0), inside

    def _steps(self, loop: Loop) -> np.ndarray:
        """The times at which a whole step of a loop can be computed."""
        there = np.logical_and.reduce(self._there[loop.members])
        sources = list({term.node for term in loop.states})
        # Else a step would see zeros where Kaldi's computation sees a state.
        if (self._there[sources] != there).any() or there[0] or there[-1]:
            raise IrregularError("states can be computed where the whole step cannot")
        needed = self._needed[loop.members].any(axis=0)
        if (needed & self._there[loop.members].any(axis=0) & ~there).any():
            raise IrregularError(
                "parts of steps are needed where the whole step cannot be computed"
            )
        return there

    def _follow(self, node: int, needed: np.ndarray) -> None:
        """Note what needed rows of a node use."""
        needed = needed & self._there[node]
        for (nodes, at, inside), used in self._reads.get(node, ()):
            rows = needed & used & inside
            self._needed[nodes[rows], at[rows]] = True

    def _run(self, loop: Loop) -> tuple[list[np.ndarray], list[int]]:
        """The times of a loop, and its components that are read outside; notes what it uses."""
        nodes = self._topology.nodes
        there = self._steps(loop)
        wanted = np.flatnonzero(self._needed[loop.members].any(axis=1))
        outputs = set()
        for node in [loop.members[place] for place in wanted.tolist()]:
            while nodes[node].kind == "dim-range":
                node = nodes[node].source
            outputs.add(node)
        needed = self._needed[loop.members].any(axis=0) & there
        rows = np.zeros_like(there)
        runs = []
        step = abs(loop.offset)
        turn = -1 if loop.offset > 0 else 1
        for first in range(step):
            # Views, in the order in which the loop runs.
            needed_of, there_of, rows_of, t_of = (
                flags[first::step][::turn] for flags in (needed, there, rows, self._t)
            )
            if not needed_of.any():
                continue
            end = int(np.flatnonzero(needed_of)[-1]) + 1
            gaps = np.flatnonzero(~there_of[:end])
            begin = int(gaps[-1]) + 1
            if needed_of[:begin].any():
                raise IrregularError("a loop restarts")
            rows_of[begin:end] = True
            runs.append(t_of[begin:end][::turn])
        for node in loop.members:
            self._follow(node, rows)
        return runs, sorted(outputs)


def _like_sequences(ios: Sequence[IoSpecification]) -> tuple[np.ndarray, int, list[np.ndarray]]:
    """The sequences of a request, the x of all rows, and the times of each input and output.

    Raises:
        IrregularError: rows differ in more than n and t, or sequences in their times.
    """
    listed = []
    sequences = np.zeros(0, np.int32)
    x = 0
    for number, io in enumerate(ios):
        if io.has_deriv or not len(io.indexes):
            raise IrregularError("derivatives, or no rows")
        ns, times = distinct(io.indexes[:, 0]), distinct(io.indexes[:, 1])
        if not number:
            sequences = ns
            x = int(io.indexes[0, 2])
        same = np.array_equal(ns, sequences) and (io.indexes[:, 2] == x).all()
        places = np.searchsorted(ns, io.indexes[:, 0]) * len(times)
        places += np.searchsorted(times, io.indexes[:, 1])
        if not same or not np.array_equal(np.sort(places), np.arange(len(ns) * len(times))):
            raise IrregularError("sequences differ")
        listed.append(times)
    return sequences, x, listed
