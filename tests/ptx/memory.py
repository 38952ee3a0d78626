"""Memory as lanes see it: every access is inside a variable, aligned, and in no race.

Within a block, barriers order accesses. Between blocks, only what one lane wrote before a fence and
an atomic operation, and another read after an atomic operation on the same word and a fence, is in
order. Lanes may write the same value to a word.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .python import Program

_TIME = 24
"""Bits below the time of an access, for its lane."""
_LANE = (1 << _TIME) - 1
_ATOMIC = 1 << 62


class KernelError(Exception):
    """What a kernel does wrong, with its name, the lines of PTX and CUDA, and the thread."""


class Region:
    """A piece of memory, and who accessed each of its parts last.

    A part is as large as the smallest access so far.

    Args:
        start: its address. memory: bytes. ready: whether it may be read before it is written.
        checked: whether several lanes see it.

    Attributes:
        writes, reads: the time and the lane of the last access to each part; -1: none. others: of
            the last read by another lane than that. written: whether there was a write.
    """

    def __init__(self, start: int, memory: np.ndarray, ready: bool, checked: bool = True) -> None:
        self.start = start
        self.memory = memory
        self.ready = ready
        self.checked = checked
        self.written = False
        self._part = 8
        parts = -(-(len(memory) + start % 8) // 8)
        self.writes, self.reads, self.others = (np.full(parts, -1, np.int64) for _ in range(3))

    def parts(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """The places of accesses among the parts [lanes, parts of an access]."""
        if size < self._part:
            times = self._part // size
            names = "writes", "reads", "others"
            for name in names:
                setattr(self, name, np.repeat(getattr(self, name), times))
            self._part = size
        first = (offsets + self.start % 8) // self._part
        return first[:, None] + np.arange(size // self._part)

    def values(self, dtype: Any) -> np.ndarray:
        size = np.dtype(dtype).itemsize
        return self.memory[: len(self.memory) // size * size].view(dtype)


def region_at(address: int, size: int) -> Region:
    """A piece of this process's memory, which kernels may read and write."""
    held = (ctypes.c_uint8 * size).from_address(address)
    return Region(address, np.frombuffer(held, np.uint8), ready=True)


@dataclass
class _Order:
    """What a lane has made visible by a fence, or what a block has seen of another.

    Attributes:
        lane: whose writes are visible up to `time`; those of its block are up to `barrier`.
        seen_by, seen_at: the lane that saw it, and when.
    """

    lane: int
    time: int
    barrier: int
    seen_by: int = -1
    seen_at: int = -1


@dataclass
class Memory:
    """What the lanes of one launch see.

    Args:
        regions: of global memory, which do not overlap.
        fail: raises an error about (what, lane, number of the instruction's place).
    """

    program: Program
    regions: list[Region]
    blocks: int
    threads: int
    fail: Callable[[str, int, int], None]
    SHARED = 1 << 60
    LOCAL = 1 << 61

    def __post_init__(self) -> None:
        self.now = 1
        self.barriers = np.zeros(self.blocks, np.int64)
        self.warps = np.zeros((self.blocks, -(-self.threads // 32)), np.int64)
        self._constants: dict[str, int] = {}
        held = list(self.regions)
        for one in self.program.constants:
            values = np.zeros(one.size + 64, np.uint8)
            shift = -values.ctypes.data % 64
            own = values[shift : shift + one.size]
            own[: len(one.values)] = np.frombuffer(one.values, np.uint8)
            self._constants[one.name] = own.ctypes.data
            held.append(Region(own.ctypes.data, own, ready=True))
        held.sort(key=lambda region: region.start)
        self._global = held
        starts, sizes = [one.start for one in held], [len(one.memory) for one in held]
        self._starts = np.array(starts or [0], np.int64)
        self._ends = self._starts + np.array(sizes or [0], np.int64)
        shared, local = self.program.shared_size, self.program.local_size
        lanes = self.blocks * self.threads
        self._shared = Region(0, np.zeros(shared * self.blocks, np.uint8), ready=False)
        self._local = Region(0, np.zeros(local * lanes, np.uint8), ready=False, checked=False)
        self._fences: dict[int, _Order] = {}
        self._released: dict[int, list[_Order]] = {}
        self._observed: dict[int, list[_Order]] = {}
        self._seen: dict[tuple[int, int], list[_Order]] = {}

    def constant(self, name: str) -> np.uint64:
        return np.uint64(self._constants[name])

    # -- accesses ----------------------------------------------------------------------------------

    def load(
        self, space: str, address: Any, lanes: np.ndarray, dtype: Any, count: int, place: int
    ) -> list[np.ndarray]:
        """`count` neighboring values for each lane."""
        size = np.dtype(dtype).itemsize
        if address.shape != lanes.shape and space == "global" and count == 1:
            return [self._load_one(address, lanes, dtype, size, place)]
        found = []
        for number in range(count):
            values = np.empty(len(lanes), dtype)
            for chosen, region, offsets in self._located(
                space, address, number * size, lanes, size, size * count, place
            ):
                own = lanes if chosen is None else lanes[chosen]
                self._note_read(region, offsets, own, size, place)
                given = region.values(dtype)[offsets // size]
                if chosen is None:
                    values = given
                else:
                    values[chosen] = given
            found.append(values)
        return found

    def _load_one(
        self, address: Any, lanes: np.ndarray, dtype: Any, size: int, place: int
    ) -> np.ndarray:
        """One value for all lanes: they need not be looked at one by one."""
        ends = lanes[[0, -1]]
        ((_, region, offsets),) = self._located("global", address, 0, ends, size, size, place)
        if region.written:
            self._check(region.writes[region.parts(offsets[:1], size)], lanes, place, "wrote")
        self._note_read(region, offsets, ends, size, place)
        return np.full(len(lanes), region.values(dtype)[offsets[0] // size])

    def store(
        self,
        space: str,
        address: Any,
        lanes: np.ndarray,
        dtype: Any,
        values: Sequence[Any],
        place: int,
    ) -> None:
        size = np.dtype(dtype).itemsize
        for number, value in enumerate(values):
            whole = np.broadcast_to(np.asarray(value, dtype), lanes.shape).view(f"u{size}")
            for chosen, region, offsets in self._located(
                space, address, number * size, lanes, size, size * len(values), place
            ):
                own = lanes if chosen is None else lanes[chosen]
                given = whole if chosen is None else whole[chosen]
                self._write(region, offsets, own, given, size, place)

    def atomic(
        self,
        space: str,
        address: Any,
        lanes: np.ndarray,
        dtype: Any,
        operation: str,
        operands: Sequence[Any],
        place: int,
    ) -> np.ndarray:
        """What was there before, lane after lane."""
        size = np.dtype(dtype).itemsize
        found = np.empty(len(lanes), dtype)
        given = [np.broadcast_to(np.asarray(one, dtype), lanes.shape) for one in operands]
        functions = {
            "add": np.add,
            "exch": lambda old, new: new,
            "min": np.minimum,
            "max": np.maximum,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "cas": lambda old, expected, new: new if old == expected else old,
        }
        for chosen, region, offsets in self._located(space, address, 0, lanes, size, size, place):
            picked = np.arange(len(lanes)) if chosen is None else np.flatnonzero(chosen)
            values = region.values(dtype)
            parts = region.parts(offsets, size)
            self.now += 1
            for n, offset, own in zip(picked, offsets, parts, strict=True):
                lane = np.array([lanes[n]])
                self._check(region.writes[own][None], lane, place, "wrote", spare=_ATOMIC)
                self._check(region.reads[own][None], lane, place, "read")
                old = values[offset // size]
                found[n] = old
                values[offset // size] = functions[operation](old, *(one[n] for one in given))
                region.writes[own] = self.now << _TIME | int(lanes[n]) | _ATOMIC
                region.written = True
                self._synchronize(region.start + int(offset), int(lanes[n]))
        return found

    def _located(
        self,
        space: str,
        address: Any,
        shift: int,
        lanes: np.ndarray,
        size: int,
        whole: int,
        place: int,
    ) -> list[tuple[np.ndarray | None, Region, np.ndarray]]:
        """The lanes of each region, None for all of them, and where they access it."""
        at = address.view(np.int64)
        if at.shape != lanes.shape:
            at = np.full(lanes.shape, at)
        if space == "generic":
            kinds = np.select([at >= self.LOCAL, at >= self.SHARED], [2, 1], 0)
            found = []
            for kind in np.unique(kinds):
                chosen = np.flatnonzero(kinds == kind)
                name = ("global", "shared", "local")[kind]
                base = (0, self.SHARED, self.LOCAL)[kind]
                for inner, region, offsets in self._located(
                    name,
                    (at[chosen] - base).view(np.uint64),
                    shift,
                    lanes[chosen],
                    size,
                    whole,
                    place,
                ):
                    found.append((chosen if inner is None else chosen[inner], region, offsets))
            return found
        off = at % whole != 0
        if off.any():
            lane = int(np.argmax(off))
            self.fail(f"an access of {whole} bytes at {at[lane]:#x}", int(lanes[lane]), place)
        at = at + shift
        if space == "shared":
            self._inside(self.program.shared, "shared", at, size, lanes, place)
            offsets = lanes // self.threads * self.program.shared_size + at
            return [(None, self._shared, offsets)]
        if space == "local":
            self._inside(self.program.local, "local", at, size, lanes, place)
            return [(None, self._local, lanes * self.program.local_size + at)]
        which = np.searchsorted(self._starts, at, "right") - 1
        outside = (which < 0) | (at + size > self._ends[which])
        if outside.any():
            self._outside(int(np.argmax(outside)), at, size, lanes, place)
        first = which[0]
        if (which == first).all():
            return [(None, self._global[first], at - self._starts[first])]
        found = []
        for one in np.unique(which):
            chosen = np.flatnonzero(which == one)
            found.append((chosen, self._global[one], at[chosen] - self._starts[one]))
        return found

    def _outside(self, n: int, at: np.ndarray, size: int, lanes: np.ndarray, place: int) -> None:
        distances = [
            (max(start - at[n], at[n] + size - end), start, end)
            for start, end in zip(self._starts, self._ends, strict=True)
        ]
        _, start, end = min(distances)
        self.fail(
            f"an access outside all arrays: {size} bytes at {int(at[n] - start)} of the nearest, "
            f"which has {end - start} bytes",
            int(lanes[n]),
            place,
        )

    def _inside(
        self,
        variables: Mapping[str, tuple[int, int]],
        space: str,
        at: np.ndarray,
        size: int,
        lanes: np.ndarray,
        place: int,
    ) -> None:
        inside = np.zeros(len(at), bool)
        for begin, end in variables.values():
            inside |= (at >= begin) & (at + size <= end)
            if inside.all():
                return
        n = int(np.argmin(inside))
        self.fail(f"an access outside all {space} variables, at {at[n]}", int(lanes[n]), place)

    # -- races -------------------------------------------------------------------------------------

    def _note_read(
        self, region: Region, offsets: np.ndarray, lanes: np.ndarray, size: int, place: int
    ) -> None:
        parts = region.parts(offsets, size)
        if region.written or not region.ready:
            writes = region.writes[parts]
            if not region.ready and writes.min() < 0:
                n = int(np.argmax((writes < 0).any(1)))
                self.fail("a read of memory that was not written", int(lanes[n]), place)
            if region.checked:
                self._check(writes, lanes, place, "wrote")
        if not region.checked:
            return
        self.now += 1
        mine = (self.now << _TIME | lanes)[:, None]
        before = region.reads[parts]
        if before.max() >= 0:
            another = (before >= 0) & (before & _LANE != lanes[:, None])
            region.others[parts[another]] = before[another]
        region.reads[parts] = mine
        lost = region.reads[parts] != mine  # several lanes read the same part
        if lost.any():
            region.others[parts[lost]] = np.broadcast_to(mine, parts.shape)[lost]

    def _write(
        self,
        region: Region,
        offsets: np.ndarray,
        lanes: np.ndarray,
        values: np.ndarray,
        size: int,
        place: int,
    ) -> None:
        memory, at = region.values(f"u{size}"), offsets // size
        parts = region.parts(offsets, size)
        if region.checked:
            changes = memory[at] != values
            writes = region.writes[parts]
            # Lanes may write the same value; atomic operations count nevertheless.
            self._check(
                np.where(changes[:, None] | (writes >= _ATOMIC), writes, -1), lanes, place, "wrote"
            )
            self._check(region.reads[parts], lanes, place, "read")
            self._check(region.others[parts], lanes, place, "read")
        memory[at] = values
        if region.checked:
            differs = memory[at] != values
            if differs.any():
                n = int(np.argmax(differs))
                self.fail("a race: lanes write different values at once", int(lanes[n]), place)
        self.now += 1
        region.written = True
        region.writes[parts] = (self.now << _TIME | lanes)[:, None]

    def _check(
        self, entries: np.ndarray, lanes: np.ndarray, place: int, what: str, spare: int = -1
    ) -> None:
        """Whether accesses by other lanes, [lanes, parts], are in order with one of these lanes."""
        others = (entries >= 0) & (entries & _LANE != lanes[:, None])
        if spare > 0:
            others &= entries < spare
        if not others.any():
            return
        rows, columns = np.nonzero(others)
        entries, own = entries[rows, columns], lanes[rows]
        other, time = entries & _LANE, (entries & (_ATOMIC - 1)) >> _TIME
        block = own // self.threads
        same = other // self.threads == block
        since = self.barriers[block]
        warp = own % self.threads // 32
        near = same & (other % self.threads // 32 == warp)
        since = np.where(near, np.maximum(since, self.warps[block, warp]), since)
        bad = same & (time > since)
        for n in np.flatnonzero(~same):
            bad[n] = not self._visible(int(own[n]), int(other[n]), int(time[n]))
        if bad.any():
            n = int(np.argmax(bad))
            thread, of = int(other[n] % self.threads), int(other[n] // self.threads)
            where = "" if same[n] else f" of block {of}"
            self.fail(
                f"a race: thread {thread}{where} {what} this without a barrier between",
                int(own[n]),
                place,
            )

    def _visible(self, lane: int, other: int, time: int) -> bool:
        block = lane // self.threads
        for order in self._seen.get((block, other // self.threads), []):
            came = order.seen_by == lane or order.seen_at < self.barriers[block]
            if came and (time <= (order.time if order.lane == other else order.barrier)):
                return True
        return False

    # -- order -------------------------------------------------------------------------------------

    def fence(self, lanes: np.ndarray) -> None:
        self.now += 1
        for lane in lanes.tolist():
            block = lane // self.threads
            self._fences[lane] = _Order(lane, self.now, int(self.barriers[block]))
            for order in self._observed.pop(lane, []):
                seen = _Order(order.lane, order.time, order.barrier, lane, self.now)
                self._seen.setdefault((block, order.lane // self.threads), []).append(seen)

    def _synchronize(self, address: int, lane: int) -> None:
        released = self._released.setdefault(address, [])
        self._observed.setdefault(lane, []).extend(released)
        if lane in self._fences:
            released.append(self._fences[lane])

    def barrier(self, blocks: np.ndarray) -> None:
        self.now += 1
        self.barriers[blocks] = self.now

    def warp_barrier(self, block: int, warp: int) -> None:
        self.now += 1
        self.warps[block, warp] = self.now
