"""The rows that a request needs, computed for all times at once.

Where rows differ in time alone, the rows of a node are a set of times, and such a set is an integer
with a bit for each time: reading at an offset is a shift, and what is computable follows from & and
|. Sets are spread along the dependencies, within a loop of nodes again and again until nothing
changes. Rows outside of a window of times are taken for computable. Where some row would really use
one, nothing is said, and the graph is built another way (graph.py); mostly there is none, since
before the first input nothing can be computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..index.indexes import MAX_X, X_BITS, X_MASK, distinct
from ..index.time_sets import flags_of, series, set_of
from .levels import Levels
from .topology import Topology

Keys = dict[int, np.ndarray]  # node -> keys of (t, x), sorted
Masks = dict[int, list[int]]  # unit -> for which rows each candidate is used
Level = tuple[int, int, np.ndarray]  # level within the epoch, node, keys of (t, x), sorted
_MOST_TIMES = 1 << 20
_MOST_TIMES_OF_LOOPS = 1 << 16
_MOST_PASSES = 64
"""With more times than these, no more passes over a loop than these."""


class _TooManyTimesError(Exception):
    """A loop is to be followed over more times than is quick: a pass for each of its steps."""


@dataclass
class _Jump:
    """A candidate that is more than an offset: for the times of a unit, the places it reads.

    Attributes:
        sources: (node, places among the reader's bits, places among the node's bits).
    """

    sources: list[tuple[int, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _UsedRun:
    """What rows of a unit use of a run of candidates.

    Attributes:
        rows: those that can be computed. there: the rows of the run's node that they may read.
    """

    rows: int
    there: int


_EVERY = _UsedRun(-1, -1)


class TimeRows:
    """The rows that outputs need, as sets of times.

    Args:
        available: for every node the keys that are there.
        outputs: the keys of the output nodes.

    Attributes:
        state: whether all outputs can be computed; None where it cannot be said here.
        available, wanted: for every node the set of times that are there, and that the request
            wants.
        sets: the keys of all sets in `rows` and `loops`.
        rows: for every node the keys that are computed.
        loops: for every epoch that is a loop, its rows by level and node.
        all_computable: every row that the outputs may read can be computed.
    """

    def __init__(self, topology: Topology, available: Keys, outputs: Keys):
        self.topology = topology
        self.units = topology.units
        self.sets: dict[int, np.ndarray] = {}
        self.rows: Keys = {}
        self.loops: dict[int, list[Level]] = {}
        self.state: bool | None = None
        if not self._lay_out(available, outputs):
            return
        with suppress(_TooManyTimesError):
            self._reached = self._spread({}, {})
            self._compute()
            wanted = zip(self.wanted, self._computable, strict=True)
            self.state = not any(bits & ~there for bits, there in wanted)
            if self.state and not self._use():
                self.state = None

    def _lay_out(self, available: Keys, outputs: Keys) -> bool:
        """The window, and where in it each unit reads; False where x makes it too complicated."""
        topology, units = self.topology, self.units
        listed = [keys for keys in (*available.values(), *outputs.values()) if len(keys)]
        if not listed or topology.shifts_x:
            return False
        together = np.concatenate(listed)
        self._x = (int(together[0]) & X_MASK) - MAX_X
        if ((together ^ together[0]) & X_MASK).any():
            return False
        first = min([int(keys[0]) for keys in listed]) >> X_BITS
        last = max([int(keys[-1]) for keys in listed]) >> X_BITS
        # Two steps: a row that only seems computable, as it reads one outside, is not read itself.
        margin = 2 * topology.reach + 1
        outside = topology.reach + 1
        count = last - first + 2 * margin + 1
        if count > _MOST_TIMES:
            return False
        self._first = first - margin - outside
        self._size = count + 2 * outside
        self._inside = ((1 << count) - 1) << outside
        self._jumps: dict[int, list[_Jump]] = {}
        self._allowed = dict.fromkeys(units.limited, -1)
        if units.jumping or units.limited:
            times = first - margin + np.arange(count)
            for unit in units.limited:
                allowed = np.zeros(self._size, bool)
                allowed[outside : outside + count] = topology.allowed(unit, times)
                self._allowed[unit] = set_of(allowed)
            for unit in units.jumping:
                jumps = self._jumps_of(unit, times, outside)
                if jumps is None:
                    return False
                self._jumps[unit] = jumps
        self.available = self._sets(available)
        self.wanted = self._sets(outputs)
        return True

    def _jumps_of(self, unit: int, times: np.ndarray, outside: int) -> list[_Jump] | None:
        """The candidates of a unit, those outside of the window being the first bit."""
        jumps = []
        at = outside + np.arange(len(times))
        node = self.units.rule[unit]
        x_of = np.full(len(times), self._x)
        for source, t, x in self.topology.dependencies(node, times, x_of):
            if x is not x_of and (x != self._x).any():
                return None
            to = np.broadcast_to(t, times.shape) - self._first
            to = np.where((to >= outside) & (to < outside + len(times)), to, 0)
            if not isinstance(source, np.ndarray):
                jumps.append(_Jump([(source, at, to)]))
                continue
            sources = np.broadcast_to(source, times.shape)
            masks = [(one, sources == one) for one in distinct(sources).tolist()]
            jumps.append(_Jump([(one, at[mask], to[mask]) for one, mask in masks]))
        return jumps

    def _sets(self, keys: Keys) -> list[int]:
        sets = [0] * len(self.topology)
        for node, listed in keys.items():
            if not len(listed):
                continue
            start = (int(listed[0]) >> X_BITS) - self._first
            end = (int(listed[-1]) >> X_BITS) - self._first + 1
            if end - start == len(listed):
                sets[node] = ((1 << len(listed)) - 1) << start
                continue
            flags = np.zeros(self._size, bool)
            flags[(listed >> X_BITS) - self._first] = True
            sets[node] = set_of(flags)
        return sets

    def _read(self, jump: _Jump, sets: list[int]) -> int:
        """For each candidate of a unit the times at which it is in `sets`."""
        read = np.zeros(self._size, bool)
        for source, at, to in jump.sources:
            read[at] = flags_of(sets[source], self._size)[to]
        return set_of(read)

    def _present(self, unit: int, sets: list[int]) -> list[int]:
        """For every candidate of a unit, for which rows it is in `sets`."""
        if unit in self._jumps:
            return [self._read(jump, sets) for jump in self._jumps[unit]]
        return [sets[node] << left >> right for node, left, right in self.units.reads[unit]]

    def _spread(self, used: Masks, used_runs: Mapping[int, _UsedRun]) -> list[int]:
        """The rows that the outputs reach; given rows and those outside are not followed.

        Args:
            used: for a unit, for which rows each candidate is followed; if not there, for all.
            used_runs: the same for units whose candidates are a run.
        """
        reached = self.wanted.copy()
        outside = ~self._inside
        reads = self.units.reads
        done = [bits | outside for bits in self.available]
        for members, is_loop in reversed(self.units.stages):
            again = True
            passes = 0
            while again:
                again = False
                passes = passes + 1
                if passes > _MOST_PASSES and self._size > _MOST_TIMES_OF_LOOPS:
                    raise _TooManyTimesError
                for unit in reversed(members):
                    new = reached[unit] & ~done[unit]
                    if not new:
                        continue
                    done[unit] |= new
                    again = is_loop
                    masks = used.get(unit)
                    run = self.units.runs.get(unit)
                    if run is not None:
                        known = used_runs.get(unit, _EVERY)
                        reached[run.node] |= run.read(new & known.rows) & known.there
                    elif unit in self._jumps:
                        self._follow(unit, new, masks, reached)
                    elif masks is None:
                        for node, left, right in reads[unit]:
                            reached[node] |= new << right >> left
                    else:
                        for (node, left, right), mask in zip(reads[unit], masks, strict=True):
                            reached[node] |= (new & mask) << right >> left
        return reached

    def _follow(self, unit: int, new: int, masks: list[int] | None, reached: list[int]) -> None:
        """Adds what new rows of a unit with jumps reach."""
        for number, jump in enumerate(self._jumps[unit]):
            flags = flags_of(new if masks is None else new & masks[number], self._size)
            for node, at, to in jump.sources:
                there = np.zeros(self._size, bool)
                there[to[flags[at]]] = True
                reached[node] |= set_of(there)

    def _compute(self) -> None:
        """Which rows can be computed; `_used` says which candidates they then use."""
        units = self.units
        outside = ~self._inside
        reached = self._reached
        available = [bits | outside for bits in self.available]
        computable = [a | b for a, b in zip(reached, available, strict=True)]
        self._used: Masks = {}
        self._used_runs: dict[int, _UsedRun] = {}
        for node in units.inputs:
            computable[node] = available[node]
        for members, is_loop in units.stages:
            again = True
            while again:
                again = False
                for unit in members:
                    if not reached[unit]:
                        continue
                    now = reached[unit] & self._allows(unit, computable) | available[unit]
                    if now != computable[unit]:
                        computable[unit] = now
                        again = is_loop
        self._computable = computable

    def _allows(self, unit: int, computable: list[int]) -> int:
        """The rows of a unit whose candidates are there; notes which candidates they use."""
        units = self.units
        allowed = self._allowed.get(unit, -1)
        run = units.runs.get(unit)
        if run is not None:
            there = computable[run.node]
            ok = run.readers(there) & allowed
            self._used_runs[unit] = _UsedRun(ok, there)
            return ok
        present = self._present(unit, computable)
        if units.needs_all[unit]:
            ok = -1
            for there in present:
                ok &= there
            return ok
        ok, masks = self.topology.combine(units.rule[unit], present, allowed, -1)
        self._used[unit] = [mask & ok for mask in masks]
        return ok

    def _use(self) -> bool:
        """Set the results; False where a row uses one outside, or rows wait for each other."""
        new = [a & ~b for a, b in zip(self._reached, self.available, strict=True)]
        missing = [a & ~b for a, b in zip(new, self._computable, strict=True)]
        self.all_computable = not any(missing)
        used = self._used.items()
        simple = (
            self.all_computable
            and not any(new[unit] & ~mask for unit, masks in used for mask in masks)
            and not any(
                new[unit] & ~known.rows or self.units.runs[unit].read(new[unit]) & ~known.there
                for unit, known in self._used_runs.items()
            )
        )
        if not simple:
            reached = self._spread(self._used, self._used_runs)
            new = [a & ~b for a, b in zip(reached, self.available, strict=True)]
        outside = ~self._inside
        if any(bits & outside for bits in new):
            return False
        loops = {
            epoch: Levels(self.units, loop, new, self._used, self._read_through_jumps)
            for epoch, loop in self.units.loops.items()
        }
        if not all([loop.complete for loop in loops.values()]):
            return False
        listed = [level for loop in loops.values() for level in loop.levels]
        sets = {*new, *[bits for _, _, bits in listed]} - {0}
        self.sets = keys = {bits: self._keys(bits) for bits in sets}
        for unit in self.units.joined:
            new[unit - 1] = new[unit]
        self.rows = {node: keys[bits] for node, bits in enumerate(new) if bits}
        self.loops = {
            epoch: [(level, node, keys[bits]) for level, node, bits in loop.levels]
            for epoch, loop in loops.items()
            if loop.levels
        }
        return True

    def _read_through_jumps(self, unit: int, sets: list[int]) -> int:
        """For which rows of a unit a candidate that they use is in `sets`."""
        masks = self._used.get(unit)
        reading = 0
        for number, there in enumerate(self._present(unit, sets)):
            reading |= there if masks is None else there & masks[number]
        return reading

    @property
    def num_reached(self) -> int:
        """How many rows the outputs may read, without the given ones."""
        pairs = zip(self._reached, self.available, strict=True)
        counts = [(reached & ~available).bit_count() for reached, available in pairs]
        return sum(counts) + sum([counts[unit] for unit in self.units.joined])

    def _keys(self, bits: int) -> np.ndarray:
        """The keys of a set that is not empty."""
        regular = series(bits)
        if regular is None:
            times = flags_of(bits, self._size).nonzero()[0]
            return (times + self._first << X_BITS) + (self._x + MAX_X)
        start, step, count = regular
        start = (start + self._first << X_BITS) + self._x + MAX_X
        return np.arange(start, start + (count * step << X_BITS), step << X_BITS)
