"""The rows that a request needs, found for all times at once.

Where rows differ in time alone, the rows of a node are a set of times, and such a set is an integer
with a bit for each time: reading at an offset is a shift, and what is computable follows from & and
|. Sets are spread along the dependencies, within a loop of nodes again and again until nothing
changes. Rows outside of a window of times are taken for computable. Where some row would really use
one, nothing is said, and the graph is found another way (graph.py); mostly there is none, since
before the first input nothing can be computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .indexes import MAX_X, X_BITS, unpack_tx
from .topology import Topology

Keys = dict[int, np.ndarray]  # node -> keys of (t, x), sorted
Level = tuple[int, int, np.ndarray]  # level within the epoch, node, keys of (t, x), sorted
_MOST_TIMES = 1 << 16
_TOGETHER = 512  # sets that are turned into keys at once


@dataclass
class _Jump:
    """A candidate that is more than an offset: for the times of a node, the places it reads.

    Attributes:
        sources: (node, places among the reader's bits, places among the node's bits).
    """

    sources: list[tuple[int, np.ndarray, np.ndarray]]


_Read = tuple[int, int, int] | _Jump  # (node, t offset, 0), or what is more than an offset


class TimeRows:
    """What outputs need.

    Args:
        given: for every node the keys that are there.
        outputs: the keys of the output nodes.

    Attributes:
        state: whether all outputs can be computed; None where it cannot be said here.
        rows: for every node the keys that are computed.
        loops: for every epoch that is a loop, its rows by level and node.
        all_computable: every row that the outputs may read can be computed.
        num_reached: how many rows those are, without the given ones.
    """

    def __init__(self, topology: Topology, given: Keys, outputs: Keys):
        self.topology = topology
        self.rows: Keys = {}
        self.loops: dict[int, list[Level]] = {}
        self.state: bool | None = None
        if self._lay_out(given, outputs):
            self._reached = self._spread([None] * len(topology))
            self._compute()
            wanted = zip(self._wanted, self._computable, strict=True)
            self.state = not any(bits & ~there for bits, there in wanted)
            if self.state and not self._use():
                self.state = None

    def _lay_out(self, given: Keys, outputs: Keys) -> bool:
        """The window, and where in it each node reads; False where x makes it too complicated."""
        topology = self.topology
        t, x = unpack_tx(np.concatenate([*given.values(), *outputs.values()]))
        if not len(t) or topology.shifts_x:
            return False
        first, last, self._x = int(t.min()), int(t.max()), int(x[0])
        if (x != self._x).any():
            return False
        # Two steps: a row that only seems computable, as it reads one outside, is not read itself.
        margin, outside = 2 * topology.reach + 1, topology.reach + 1
        count = last - first + 2 * margin + 1
        if count > _MOST_TIMES:
            return False
        self._first, self._size = first - margin - outside, count + 2 * outside
        self._inside = ((1 << count) - 1) << outside
        self._reads: list[Sequence[_Read]] = []
        self._allowed = [-1] * len(topology)
        times = None
        for node, steps in enumerate(topology.steps):
            if times is None and (steps is None or topology.nodes[node].reads.allowed):
                times = first - margin + np.arange(count)
            if topology.nodes[node].reads.allowed:
                allowed = np.zeros(self._size, bool)
                allowed[outside : outside + count] = topology.allowed(node, times)
                self._allowed[node] = _bits(allowed)
            if steps is None:
                jumps = self._jumps(node, times, outside)  # type: ignore[arg-type]
                if jumps is None:
                    return False
                self._reads.append(jumps)
            else:
                self._reads.append(steps)
        self._given, self._wanted = self._sets(given), self._sets(outputs)
        return True

    def _jumps(self, node: int, times: np.ndarray, outside: int) -> list[_Jump] | None:
        """The candidates of a node, those outside of the window being the first bit."""
        jumps = []
        at = outside + np.arange(len(times))
        for source, t, x in self.topology.dependencies(node, times, np.full(len(times), self._x)):
            if (x != self._x).any():
                return None
            to = np.broadcast_to(t, times.shape) - self._first
            to = np.where((to >= outside) & (to < outside + len(times)), to, 0)
            sources = np.broadcast_to(source, times.shape)
            masks = [(one, sources == one) for one in np.unique(sources).tolist()]
            jumps.append(_Jump([(one, at[mask], to[mask]) for one, mask in masks]))
        return jumps

    def _sets(self, keys: Keys) -> list[int]:
        sets = [0] * len(self.topology)
        for node, listed in keys.items():
            flags = np.zeros(self._size, bool)
            flags[unpack_tx(listed)[0] - self._first] = True
            sets[node] = _bits(flags)
        return sets

    def _read(self, read: _Read, sets: list[int]) -> int:
        """For which rows what they read is in `sets`."""
        if isinstance(read, tuple):
            source, offset, _ = read
            return sets[source] >> offset if offset >= 0 else sets[source] << -offset
        found = np.zeros(self._size, bool)
        for source, at, to in read.sources:
            found[at] = self._flags(sets[source])[to]
        return _bits(found)

    def _flags(self, bits: int) -> np.ndarray:
        """The bits as an array."""
        data = (bits & ((1 << self._size) - 1)).to_bytes((self._size + 7) // 8, "little")
        flags = np.unpackbits(np.frombuffer(data, np.uint8), count=self._size, bitorder="little")
        return flags.view(bool)

    def _spread(self, used: list[list[int] | None]) -> list[int]:
        """The rows that the outputs reach; given rows and those outside are not followed.

        Args:
            used: for every node, for which rows each candidate is followed; None: for all.
        """
        reached, outside = self._wanted.copy(), ~self._inside
        done = [bits | outside for bits in self._given]
        for members, is_loop in reversed(self.topology.stages):
            again = True
            while again:
                again = False
                for node in reversed(members):
                    new = reached[node] & ~done[node]
                    if not new:
                        continue
                    done[node] |= new
                    again = is_loop
                    masks = used[node]
                    for number, read in enumerate(self._reads[node]):
                        chosen = new if masks is None else new & masks[number]
                        if isinstance(read, tuple):
                            source, offset, _ = read
                            reached[source] |= chosen >> -offset if offset < 0 else chosen << offset
                        elif chosen:
                            flags = self._flags(chosen)
                            for source, at, to in read.sources:
                                there = np.zeros(self._size, bool)
                                there[to[flags[at]]] = True
                                reached[source] |= _bits(there)
        return reached

    def _compute(self) -> None:
        """Which rows can be computed; `_used` says which candidates they then use."""
        topology, outside = self.topology, ~self._inside
        given = [bits | outside for bits in self._given]
        computable = [a | b for a, b in zip(self._reached, given, strict=True)]
        self._used: list[list[int] | None] = [None] * len(topology)
        for members, is_loop in topology.stages:
            for node in members:
                if topology.nodes[node].kind == "input":
                    computable[node] = given[node]
            again = True
            while again:
                again = False
                for node in members:
                    if topology.nodes[node].kind == "input" or not self._reached[node]:
                        continue
                    present = [self._read(read, computable) for read in self._reads[node]]
                    if topology.needs_all[node]:
                        ok = -1
                        for there in present:
                            ok &= there
                    else:
                        ok, masks = topology.combine(node, present, self._allowed[node], -1)
                        self._used[node] = [mask & ok for mask in masks]
                    now = self._reached[node] & ok | given[node]
                    if now != computable[node]:
                        computable[node] = now
                        again = is_loop
        self._computable = computable

    def _use(self) -> bool:
        """Fills what is found; False where a row uses one outside, or rows wait for each other."""
        new = [a & ~b for a, b in zip(self._reached, self._given, strict=True)]
        self.num_reached = sum(map(int.bit_count, new))
        self.all_computable = not any(a & ~b for a, b in zip(new, self._computable, strict=True))
        simple = self.all_computable and not any(
            rows & ~mask
            for rows, masks in zip(new, self._used, strict=True)
            for mask in masks or ()
        )
        if not simple:
            reached = self._spread(self._used)
            new = [a & ~b for a, b in zip(reached, self._given, strict=True)]
        self._needed, outside = new, ~self._inside
        if any(bits & outside for bits in new):
            return False
        stages = enumerate(self.topology.stages)
        loops = {epoch: self._levels(members) for epoch, (members, is_loop) in stages if is_loop}
        if None in loops.values():
            return False
        levels = [level for listed in loops.values() for level in listed or ()]
        keys = self._keys({*new, *(bits for _, _, bits in levels)} - {0})
        self.rows = {node: keys[bits] for node, bits in enumerate(new) if bits}
        self.loops = {
            epoch: [(level, node, keys[bits]) for level, node, bits in listed]
            for epoch, listed in loops.items()
            if listed
        }
        return True

    def _levels(self, members: list[int]) -> list[tuple[int, int, int]] | None:
        """The rows of a loop as (level, node, bits); None where rows wait for each other.

        The level of a row is one more than the highest of those that it uses in its epoch.
        """
        waiting = [0] * len(self.topology)
        for node in members:
            waiting[node] = self._needed[node]
        inside = set(members)
        readers = {
            node: [reader for reader in self.topology.readers_of[node] if reader in inside]
            for node in members
        }
        reads = {node: self._reads_within(node, inside) for node in members}
        levels: list[tuple[int, int, int]] = []
        level, turn = 0, members
        while turn:
            found = []
            for node in turn:
                ready = waiting[node]
                if not ready:
                    continue
                for read, used in reads[node]:
                    if isinstance(read, _Jump):
                        ready &= ~(self._read(read, waiting) & used)
                    elif waiting[read[0]]:
                        left, right = read[1:]
                        ready &= ~(waiting[read[0]] << left >> right & used)
                if ready:
                    found.append((node, ready))
            for node, ready in found:
                waiting[node] ^= ready
                levels.append((level, node, ready))
            turn = sorted({reader for node, _ in found for reader in readers[node]})
            level += 1
        return None if any(waiting) else levels

    def _reads_within(self, node: int, members: set[int]) -> list[tuple[_Read, int]]:
        """What a node reads in its loop, and for which of its rows.

        Offsets are given as (node, shift to the left, shift to the right).
        """
        masks = self._used[node] or [-1] * len(self._reads[node])
        found: list[tuple[_Read, int]] = []
        for read, used in zip(self._reads[node], masks, strict=True):
            if isinstance(read, _Jump):
                found.append((read, used))
            elif read[0] in members:
                found.append(((read[0], max(-read[1], 0), max(read[1], 0)), used))
        return found

    def _keys(self, sets: Iterable[int]) -> dict[int, np.ndarray]:
        """The keys of sets that are not empty."""
        keys: dict[int, np.ndarray] = {}
        listed = list(sets)
        for begin in range(0, len(listed), _TOGETHER):
            chunk = listed[begin : begin + _TOGETHER]
            lowest = [(bits & -bits).bit_length() - 1 for bits in chunk]
            # Most sets hold a few neighbouring times, so little is left without the zeros below.
            short = [bits >> low for bits, low in zip(chunk, lowest, strict=True)]
            width = (max(map(int.bit_length, short)) + 7) // 8
            data = b"".join([bits.to_bytes(width, "little") for bits in short])
            table = np.frombuffer(data, np.uint8).reshape(-1, width)
            number, place = np.nonzero(np.unpackbits(table, axis=1, bitorder="little"))
            times = place + (np.array(lowest) + self._first)[number]
            found = (times << X_BITS) + (self._x + MAX_X)
            ends = np.searchsorted(number, np.arange(1, len(chunk) + 1)).tolist()
            starts = [0, *ends]
            for bits, start, end in zip(chunk, starts, ends, strict=False):
                keys[bits] = found[start:end]
        return keys


def _bits(flags: np.ndarray) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
