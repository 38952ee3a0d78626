"""The rows that a recurrent network needs, found by whole arrays over time.

Every node has flags over a window of times. They are spread along the dependencies, within a loop
of nodes again and again until nothing changes. Rows outside of the window are taken for
computable. Where some row would really use one, nothing is said, and rows are explored one by one
(computable.py); mostly there is none, since before the first input nothing can be computed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .indexes import pack_tx, unpack_tx
from .topology import Topology

Keys = dict[int, np.ndarray]  # node -> sorted keys of (t, x)
_MOST_TIMES = 1 << 16
_NONE = np.zeros(0, np.int64)


class RecurrentRows:
    """What outputs need.

    Args:
        given: for every node the keys that are there.
        outputs: the keys of the output nodes.

    Attributes:
        state: whether all outputs can be computed; None where it cannot be said here.
        rows: for every node the keys that are computed.
        levels: for every node of a loop, the level of each of its rows within the epoch.
    """

    def __init__(self, topology: Topology, given: Keys, outputs: Keys):
        self.topology = topology
        self.rows: Keys = {}
        self.levels: Keys = {}
        self.state: bool | None = None
        if self._lay_out(given, outputs):
            self._reach()
            self._compute()
            self.state = bool(self._computable[self._wanted].all())
            if self.state and not (self._use() and self._number()):
                self.state = None

    def _lay_out(self, given: Keys, outputs: Keys) -> bool:
        """The window, and where in it each node reads; False where x makes it too complicated."""
        topology = self.topology
        t, x = unpack_tx(np.concatenate([*given.values(), *outputs.values()]))
        if not len(t) or x.min() != x.max():
            return False
        if any(dx for steps in topology.steps for _, _, dx in steps or ()):
            return False
        # Two steps: a row that only seems computable, as it reads one outside, is not read itself.
        margin = 2 * topology.reach + 1
        self.first, self.x = int(t.min()) - margin, int(x[0])
        self.count = count = int(t.max()) + margin + 1 - self.first
        if count > _MOST_TIMES:
            return False
        self.times = self.first + np.arange(count)
        places = np.full(count + 2 * margin, count)
        places[margin:-margin] = np.arange(count)
        self.reads: list[list[np.ndarray]] = []  # per node and leaf: places among all flags
        width = count + 1  # the last flag of a node stands for all times outside of the window
        for node, steps in enumerate(topology.steps):
            if steps is not None:
                starts = [(source * width, margin + dt) for source, dt, _ in steps]
                self.reads.append([base + places[at : at + count] for base, at in starts])
                continue
            leaves = []
            found = topology.dependencies(node, self.times, np.full(count, self.x))
            for source, at, px in found:
                if (px != self.x).any():
                    return False
                inside = (at >= self.first) & (at < self.first + count)
                leaves.append(source * width + np.where(inside, at - self.first, count))
            self.reads.append(leaves)
        shape = len(topology), width
        self._given = self._flags(shape, given)
        self._wanted = self._flags(shape, outputs)
        return True

    def _flags(self, shape: tuple[int, int], keys: Keys) -> np.ndarray:
        flags = np.zeros(shape, bool)
        for node, listed in keys.items():
            flags[node, unpack_tx(listed)[0] - self.first] = True
        return flags

    def _sweeps(self, backward: bool) -> Iterator[list[int]]:
        """The nodes of every epoch, in order; those of a loop until told to stop by `_settled`."""
        members = self.topology.epoch_members
        for epoch in sorted(members, reverse=backward):
            nodes = sorted(members[epoch], reverse=backward)
            self._settled = False
            while not self._settled:
                self._settled = True
                yield nodes

    def _spread(self, follow: list[list[np.ndarray] | None]) -> np.ndarray:
        """The flags of all rows that the outputs reach; given rows are not followed.

        Args:
            follow: for every node a mask for each leaf; None: all are followed.
        """
        reached = self._wanted.copy()
        done = self._given.copy()
        done[:, -1] = True
        flat = reached.reshape(-1)
        for nodes in self._sweeps(backward=True):
            for node in nodes:
                new = reached[node] & ~done[node]
                if not new.any():
                    continue
                done[node] |= new
                self._settled = False
                masks = follow[node]
                for leaf, places in enumerate(self.reads[node]):
                    chosen = new[:-1] if masks is None else new[:-1] & masks[leaf]
                    flat[places[chosen]] = True
        return reached

    def _reach(self) -> None:
        self._reached = self._spread([None] * len(self.topology))

    def _compute(self) -> None:
        """Which rows can be computed; `_used` says which leaves they then use."""
        topology = self.topology
        inputs = [i for i, node in enumerate(topology.nodes) if node.kind == "input"]
        computable = self._reached | self._given
        computable[:, -1] = True
        computable[inputs] = self._given[inputs]
        flat = computable.reshape(-1)
        self._used: list[list[np.ndarray] | None] = [None] * len(topology)
        for nodes in self._sweeps(backward=False):
            for node in nodes:
                if node in inputs or not self._reached[node].any():
                    continue
                present = [flat[places] for places in self.reads[node]]
                ok, masks = topology.combine(node, present, self.times)
                self._used[node] = [mask & ok for mask in masks]
                now = (self._reached[node, :-1] & ok) | self._given[node, :-1]
                if (now != computable[node, :-1]).any():
                    computable[node, :-1] = now
                    self._settled = False
        self._computable = computable

    def _use(self) -> bool:
        """Fills `rows`; False where a row uses one outside of the window."""
        needed = self._spread(self._used) & ~self._given
        if needed[:, -1].any():
            return False
        self._needed = needed
        for node in np.flatnonzero(needed.any(axis=1)).tolist():
            times = self.first + np.flatnonzero(needed[node])
            self.rows[node] = pack_tx(times, np.full(len(times), self.x))
        return True

    def _number(self) -> bool:
        """Fills `levels`: one more than the highest level in its epoch that a row uses.

        False where rows wait for each other. Rows are gone through one by one, in the order in
        which they can be computed: in a loop few of them can be at a time.
        """
        topology, count = self.topology, self._needed.size
        level = [0] * count
        for members in topology.epoch_members.values():
            if not topology.is_loop(members):
                continue
            reader, read = self._reads_within(members)
            order = np.argsort(read, kind="stable")
            readers = reader[order].tolist()  # of row i they stand at begin[i] .. begin[i + 1]
            uses = np.bincount(read, minlength=count)
            begin = [0, *np.cumsum(uses).tolist()]
            waits = np.bincount(reader, minlength=count)
            waiting = waits.tolist()
            ready = np.flatnonzero((uses > 0) & (waits == 0)).tolist()
            for row in ready:  # grows while it is walked
                above = level[row] + 1
                for one in readers[begin[row] : begin[row + 1]]:
                    if above > level[one]:
                        level[one] = above
                    waiting[one] -= 1
                    if not waiting[one]:
                        ready.append(one)
            if any(waiting):
                return False
            numbers = np.array(level).reshape(self._needed.shape)
            for node in members:
                if node in self.rows:
                    self.levels[node] = numbers[node, self._needed[node]]
        return True

    def _reads_within(self, members: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Rows of an epoch, and for each a row of it that it uses, as places among all flags."""
        width, needed = self.count + 1, self._needed.reshape(-1)
        member = np.zeros(len(self.topology), bool)
        member[members] = True
        readers, reads = [_NONE], [_NONE]
        for node in (node for node in sorted(members) if node in self.rows):
            for leaf, places in enumerate(self.reads[node]):
                mask = self._used[node][leaf] & needed[places]  # type: ignore[index]
                at = np.flatnonzero(mask & self._needed[node, :-1] & member[places // width])
                readers.append(node * width + at)
                reads.append(places[at])
        return np.concatenate(readers), np.concatenate(reads)
