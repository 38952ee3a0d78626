"""Runs translated kernels: all lanes of some blocks at once, those with the lowest place first.

Lanes that took different branches come together again where their places in the text are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .memory import KernelError, Memory, Region
from .python import Program, translate
from .text import Module

_DONE = 1 << 30
_WAITS = 1 << 29
_MOST_LANES = 1 << 13
"""Of blocks that run side by side."""
_MOST_STEPS = 1 << 20
"""Basic blocks of a group; a kernel with more of them waits for what never comes."""


@lru_cache(maxsize=64)
def module_of(ptx: str) -> Module:
    return Module(ptx)


@lru_cache(maxsize=1024)
def program_of(module: Module, name: str) -> Program:
    return translate(module, name)


def launch(
    ptx: str,
    name: str,
    blocks: int,
    threads: int,
    arguments: Sequence[bytes],
    regions: Sequence[Region],
    cuda: str = "",
) -> None:
    """Runs a kernel.

    Args:
        arguments: the bytes of each parameter; arrays are passed as addresses.
        regions: the memory that it may access.
        cuda: the text of which errors name the lines.

    Raises:
        KernelError: it does what it must not; the message says what, where and which thread.
        PtxError: the text has an instruction without a meaning here.
    """
    program = program_of(module_of(ptx), name)
    if len(arguments) != len(program.parameters):
        raise ValueError(f"{name}: {len(arguments)} arguments for {len(program.parameters)}")
    given = {}
    for parameter, value in zip(program.parameters, arguments, strict=True):
        if len(value) != parameter.size:
            raise ValueError(f"{parameter.name}: {len(value)} bytes for {parameter.size}")
        given[parameter.name] = np.frombuffer(value, np.uint8)
    lines = cuda.splitlines()

    def fail(what: str, lane: int, place: int) -> None:
        where = program.places[place]
        text = f"{name}: {what}; PTX line {where.line}: `{where.text}`"
        if where.cuda:
            own = lines[where.cuda - 1].strip() if where.cuda <= len(lines) else ""
            text += f"; CUDA line {where.cuda}: `{own}`"
        raise KernelError(f"{text}; block {lane // threads}, thread {lane % threads}")

    memory = Memory(program, list(regions), blocks, threads, fail)
    together = max(1, _MOST_LANES // threads)
    with np.errstate(all="ignore"):
        for first in range(0, blocks, together):
            count = min(together, blocks - first)
            _Run(program, memory, given, first, count, (blocks, threads)).run()


class _Run:
    """The lanes of blocks that run side by side.

    Attributes:
        pc: the number of the basic block that each lane comes to. lanes: numbers among all lanes.
        special: registers that only the hardware writes.
    """

    def __init__(
        self,
        program: Program,
        memory: Memory,
        parameters: dict[str, np.ndarray],
        first: int,
        count: int,
        sizes: tuple[int, int],
    ) -> None:
        blocks, threads = sizes
        self.memory = memory
        self._program = program
        self._parameters = parameters
        self._threads = threads
        self._first = first
        self._count = count
        size = count * threads
        self.lanes = np.arange(first * threads, first * threads + size)
        self.pc = np.zeros(size, np.int64)
        self._next = np.zeros(size, np.int64)
        self._barrier = np.zeros((size, 2), np.int64)
        thread = self.lanes % threads
        self.special = {
            "tid.x": thread,
            "ctaid.x": self.lanes // threads,
            "ntid.x": np.full(size, threads),
            "nctaid.x": np.full(size, blocks),
            "laneid": thread % 32,
            "warpid": thread // 32,
            **{f"{name}.{axis}": np.zeros(size) for name in ("tid", "ctaid") for axis in "yz"},
            **{f"{name}.{axis}": np.ones(size) for name in ("ntid", "nctaid") for axis in "yz"},
        }
        self.special = {name: one.astype(np.uint32) for name, one in self.special.items()}
        self._registers = [np.zeros(size, dtype) for dtype in program.registers]

    def run(self) -> None:
        whole = slice(None)
        steps = 0
        while True:
            at = int(self.pc.min())
            if at >= _WAITS:
                if at == _DONE:
                    return
                self._release()
                continue
            chosen = np.flatnonzero(self.pc == at)
            self._program.blocks[at](
                self._registers, whole if len(chosen) == len(self.pc) else chosen, self
            )
            steps += 1
            if steps > _MOST_STEPS:
                raise KernelError(f"{self._program.name}: no end after {steps} basic blocks")

    # -- what translated text calls ----------------------------------------------------------------

    def parameter(self, name: str, offset: int, dtype: Any) -> Any:
        size = np.dtype(dtype).itemsize
        return self._parameters[name][offset : offset + size].view(dtype)[0]

    def leave(self, m: Any) -> None:
        self.pc[m] = _DONE

    def trap(self, m: Any, place: int) -> None:
        self.memory.fail("trap", int(self.lanes[m][0]), place)

    def refuse_zero(self, divisor: Any, m: Any, place: int) -> None:
        if not np.all(divisor):
            lanes = self.lanes[m]
            zero = np.broadcast_to(divisor == 0, lanes.shape)
            self.memory.fail("a division of integers by 0", int(lanes[np.argmax(zero)]), place)

    def wait(self, m: Any, number: Any, then: int, place: int) -> None:
        self.pc[m] = _WAITS
        self._next[m] = then
        self._barrier[m, 0] = number
        self._barrier[m, 1] = place

    def _release(self) -> None:
        """Lets all blocks go on, whose lanes wait for each other."""
        shape = self._count, self._threads
        waits = (self.pc == _WAITS).reshape(shape)
        barriers = self._barrier.reshape(*shape, 2)
        same = (barriers == barriers[:, :1]).all((1, 2))
        blocks = waits.any(1)
        for block in np.flatnonzero(blocks & ~(waits.all(1) & same)):
            n = int(np.argmax(waits[block]))
            lane, place = int(self.lanes[block * self._threads + n]), int(barriers[block, n, 1])
            if not waits[block].all():
                gone = self._threads - int(waits[block].sum())
                what = f"a barrier that {gone} of {self._threads} threads do not reach: they ended"
            else:
                other = self._program.places[int(barriers[block, :, 1].max())].line
                what = f"a barrier where others wait at another one, at PTX line {other}"
            self.memory.fail(what, lane, place)
        self.memory.barrier(self._first + np.flatnonzero(blocks))
        chosen = np.flatnonzero(waits)
        self.pc[chosen] = self._next[chosen]

    def _warps(self, m: Any, mask: Any, place: int) -> np.ndarray:
        """The places [lanes] of lanes that meet within their warps, which must all be here."""
        here = np.zeros(len(self.pc), bool)
        here[m] = True
        chosen = np.flatnonzero(here)
        masks = np.broadcast_to(np.asarray(mask, np.uint32), chosen.shape)
        for lane, wanted in zip(chosen.tolist(), masks.tolist(), strict=True):
            thread = lane % self._threads
            base = lane - thread % 32
            for other in range(32):
                is_thread = thread - thread % 32 + other < self._threads
                if wanted >> other & 1 and is_thread and not here[base + other]:
                    what = f"thread {thread - thread % 32 + other} of its mask is not here"
                    self.memory.fail(what, int(self.lanes[lane]), place)
            if not wanted >> thread % 32 & 1:
                self.memory.fail("a thread that its mask lacks", int(self.lanes[lane]), place)
        return chosen

    def meet(self, m: Any, mask: Any, place: int) -> None:
        chosen = self._warps(m, mask, place)
        whole = np.broadcast_to(np.asarray(mask, np.uint32), chosen.shape) == 0xFFFFFFFF
        for block, warp in {
            (lane // self._threads, lane % self._threads // 32)
            for lane in self.lanes[chosen[whole]].tolist()
        }:
            self.memory.warp_barrier(block, warp)

    def shuffle(
        self, mode: str, m: Any, value: Any, offset: Any, clamp: Any, mask: Any, place: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """A value of another lane of the warp, and whether there was one."""
        chosen = self._warps(m, mask, place)
        thread = chosen % self._threads
        lane = thread % 32
        offset, clamp = (
            np.broadcast_to(np.asarray(one, np.int64), chosen.shape) for one in (offset, clamp)
        )
        segment, most = clamp >> 8 & 31, clamp & 31
        low, high = lane & segment, (lane & segment) | (most & ~segment)
        offset = offset & 31
        source, inside = {
            "up": (lane - offset, lane - offset >= high),
            "down": (lane + offset, lane + offset <= high),
            "bfly": (lane ^ offset, lane ^ offset <= high),
            "idx": (low | (offset & ~segment), (low | (offset & ~segment)) <= high),
        }[mode]
        if mode == "bfly":
            inside = (lane ^ offset) <= high
        source = np.where(inside, source, lane)
        held = np.zeros(len(self.pc), np.uint32)
        here = np.zeros(len(self.pc), bool)
        held[chosen], here[chosen] = value, True
        at = chosen - lane + source
        bad = ~here[np.minimum(at, len(held) - 1)]
        if bad.any():
            n = int(np.argmax(bad))
            self.memory.fail(f"lane {source[n]} has no value", int(self.lanes[chosen[n]]), place)
        return held[at], inside

    def vote(self, mode: str, m: Any, value: Any, mask: Any, place: int) -> np.ndarray:
        chosen = self._warps(m, mask, place)
        votes = np.zeros(len(self.pc), bool)
        votes[chosen] = value
        warps = chosen - chosen % self._threads % 32
        found = np.zeros(len(chosen), np.uint32)
        counts = np.zeros(len(chosen), np.int64)
        for lane in range(32):
            at = warps + lane
            own = np.isin(at, chosen) & votes[np.minimum(at, len(votes) - 1)]
            found |= (own.astype(np.uint32) << np.uint32(lane)).astype(np.uint32)
            counts += np.isin(at, chosen)
        if mode == "ballot":
            return found
        total = np.bitwise_count(found)
        return {"any": total > 0, "all": total == counts, "uni": (total == 0) | (total == counts)}[
            mode
        ]
