"""Memory of frames: blocks of bytes, and views of them as arrays.

On the host a block begins with a cache line, as vectors that reach over two cost twice as much.
Large blocks of one allocator all begin at the same place of a page, where a processor takes a read
from one for a read of what was just written to another; so they are shifted against each other.
"""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...base.backend import Place
from ...base.errors import RunError
from ...base.options.settings import read_options
from ...base.scope import Scope
from ...base.sizes.shape import ArraySpec
from ...fusion import team
from ...fusion.compiled.arguments import TRACING
from ...fusion.rows import row_blocks

# 576 is nine cache lines: no multiple of it below 64 blocks comes back to the same line of a page.
_ALIGN, _SHIFT, _PAGE = 64, 576, 4096
_HUGE = 1 << 24
"""Bytes from which a block that grows has less room than half as much again."""
_LARGE = 1 << 15
"""Bytes from which it is worth saying where an array begins."""


def fresh(xp: Any, size: int, number: int = 0) -> Any:
    """New memory of so many bytes.

    Args:
        number: of the block among its neighbors, for its place within a page.
    """
    if xp is not np or size < _LARGE:
        return _empty(xp, size, size, np.uint8)
    raw = _empty(np, size, size + _PAGE, np.uint8)
    start = -(raw.ctypes.data - _SHIFT * number) % _PAGE // _ALIGN * _ALIGN
    start += -(raw.ctypes.data + start) % _ALIGN
    return raw[start : start + size]


def fresh_array(xp: Any, shape: Sequence[int], dtype: np.dtype) -> Any:
    """A new array; its values are whatever was there."""
    size = math.prod(shape) * dtype.itemsize
    if xp is not np or size < _LARGE:
        return _empty(xp, size, shape, dtype)
    raw = _empty(np, size, size + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + size].view(dtype).reshape(shape)


class NoMemoryError(RunError):
    """A place has no memory for what a run asks for."""


def _empty(xp: Any, size: int, shape: Any, dtype: Any) -> Any:
    """An array of so many bytes. Raises NoMemoryError: there is no memory for it."""
    try:
        return xp.empty(shape, dtype)
    except MemoryError as error:  # also CuPy's
        raise NoMemoryError(f"there is no memory for {size} bytes that the run asks for") from error


class ScratchPool:
    """Memory that operators use one after the other: each starts again from the beginning."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._blocks: list[Any] = []
        self._block = 0
        self._used = 0

    def restart(self) -> None:
        self._block = self._used = 0

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._blocks)

    def take(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Memory as an array."""
        block, start = self._room(math.prod(shape) * dtype.itemsize)
        return as_view(block[start:], (shape, dtype))

    def span(self, nbytes: int) -> int:
        """The address of so many bytes, on the host, for one operator."""
        self.restart()
        block, start = self._room(nbytes)
        return block.ctypes.data + start

    def _room(self, nbytes: int) -> tuple[Any, int]:
        """A block, and where so many bytes of it begin."""
        size = padded(nbytes)
        while self._block < len(self._blocks):
            block = self._blocks[self._block]
            if self._used + size <= block.nbytes:
                break
            # Blocks that are in use already stay: kernels hold views of them.
            self._block = self._block + 1
            self._used = 0
        else:
            largest = max((block.nbytes for block in self._blocks), default=0)
            # Twice the largest: the number of blocks stays small, whatever the kernels ask for.
            self._blocks.append(fresh(self._xp, max(size, 2 * largest, 4096), len(self._blocks)))
        start = self._used
        self._used += size
        return self._blocks[self._block], start


def padded(size: Any) -> Any:
    """Bytes of a block for so many, or for each of an array of sizes."""
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def as_view(block: Any, spec: ArraySpec, *, channels_last: bool = False) -> Any:
    """An array of a shape and dtype in the first bytes of a block of memory."""
    shape, dtype = spec
    if type(block) is np.ndarray:
        strides = _channels_last(shape, dtype.itemsize) if channels_last else None
        return np.ndarray(shape, dtype, block, 0, strides)
    size = math.prod(shape) * dtype.itemsize
    if channels_last:
        stored = block[:size].view(dtype).reshape(shape[0], *shape[2:], shape[1])
        return stored.transpose(0, len(shape) - 1, *range(1, len(shape) - 1))
    return block[:size].view(dtype).reshape(shape)


def _channels_last(shape: Sequence[int], step: int) -> tuple[int, ...]:
    """The strides of an array [N, C, ...] that lies in memory as [N, ..., C]."""
    strides = [step]
    for size in (shape[1], *shape[:1:-1]):
        strides.append(strides[-1] * size)
    return (strides[-1], step, *strides[-2:0:-1])


class FreeBlocks:
    """Free blocks by size: the nearest is found without looking at all of them."""

    def __init__(self) -> None:
        self._sizes: list[int] = []  # that some free block has, ascending
        self._blocks: dict[int, deque[tuple[int, int]]] = {}  # size -> (when it came, block)
        self._count = 0

    def add(self, block: int, size: int) -> None:
        """Note a free block."""
        if size not in self._blocks:
            insort(self._sizes, size)
            self._blocks[size] = deque()
        self._count += 1
        self._blocks[size].append((self._count, block))

    def take(self, size: int) -> int | None:
        """The block of the nearest size, of several the one that came first; None without any."""
        if not self._sizes:
            return None
        best = size
        if size not in self._blocks:
            place = bisect_left(self._sizes, size)
            near = self._sizes[max(place - 1, 0) : place + 1]
            # Nearest, not smallest that fits: blocks grow to their largest holder in any case.
            best = min(near, key=lambda own: (abs(own - size), self._blocks[own][0]))
        blocks = self._blocks[best]
        _, block = blocks.popleft()
        if not blocks:
            del self._blocks[best]
            del self._sizes[bisect_left(self._sizes, best)]
        return block


_bound = threading.local()


class Panels:
    """Memory for packed factors that the products of one frame share.

    A product that packs a factor right before it multiplies needs the memory for no longer. A net
    has hundreds of products, one after another: all of those that a frame binds get the same
    memory. Those that may be done together, a block of rows after another, get memory in turn.
    """

    def __init__(self) -> None:
        self._memory: list[Any] = [None] * (1 + row_blocks.MOST_ITEMS)
        self._turn = 0
        self._held: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        memory = [*self._memory, *self._held.values()]
        return sum(block.nbytes for block in memory if block is not None)

    def restart(self) -> None:
        """The products of another frame follow, which is done before or after the others."""
        self._turn = 0

    def take(self, size: int, *, in_turn: bool) -> Any:
        """Memory for a product.

        Args:
            in_turn: not what any of the products has that were bound right before it, with which
                it may be done in blocks of rows.
        """
        place = 0
        if in_turn:
            self._turn = self._turn % row_blocks.MOST_ITEMS + 1
            place = self._turn
        block = self._memory[place]
        if block is None or block.nbytes < size:  # twice as much: frames keep what was too small
            least = 0 if block is None else 2 * block.nbytes
            block = self._memory[place] = team.aligned(max(size, least))
        return block[:size]

    def held(self, key: Any, make: Callable[[], Any]) -> Any:
        """The memory of a key, as long as somebody holds a view of it; else what `make` returns,
        which is `aligned`."""
        # Views keep the array that owns the memory, and not the one that they were cut out of.
        whole = self._held.get(key)
        if whole is None:
            memory = make()
            self._held[key] = memory.base
            return memory
        return team.aligned_part(whole)


@contextmanager
def shared_panels(panels: Panels | None = None) -> Iterator[None]:
    """While it lasts, products that this thread binds share memory: those of one frame.

    Args:
        panels: memory that other frames also use; None: new one.
    """
    before = getattr(_bound, "panels", None)
    panels = panels or Panels()
    panels.restart()
    _bound.panels = panels if read_options().reuse else None
    try:
        yield
    finally:
        _bound.panels = before


class _TracedPanels:
    """Panels of a frame of which each product that is traced asks again: where they lie depends on
    others."""

    def take(self, size: int, *, in_turn: bool) -> Any:
        return TRACING.trace.panels(size, in_turn)

    def held(self, key: Any, make: Callable[[], Any]) -> Any:
        return TRACING.trace.held(key, make)


@contextmanager
def traced_panels() -> Iterator[None]:
    """While it lasts, products that this thread binds are traced, with what stands for memory."""
    before = getattr(_bound, "panels", None)
    _bound.panels = None if before is None else _TracedPanels()
    try:
        yield
    finally:
        _bound.panels = before


def panel_memory(size: int, *, in_turn: bool = False) -> Any:
    """Bytes for packed factors, which begin with a cache line; see `Panels.take`.

    Where no frame is being bound they are the product's own.
    """
    panels: Panels | None = getattr(_bound, "panels", None)
    return team.aligned(size) if panels is None else panels.take(size, in_turn=in_turn)


def memory_of(key: Any, make: Callable[[], Any]) -> Any:
    """Memory that keeps its contents from run to run; frames that ask for one key share it.

    Args:
        make: gives it new, see `Panels.held`.
    """
    panels: Panels | None = getattr(_bound, "panels", None)
    return make() if panels is None else panels.held(key, make)


class Held(ABC):
    """What operators keep in a scope, as long as frames there use it."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes that it takes on the place of the scope, beside the memory of plans."""


_REPLACED = "has replaced"
"""Where a scope notes that it keeps something else in place of what it kept."""


def hold(scope: Scope, key: Any, held: Any) -> None:
    """Keep something in a scope; frames that use what the key had before are outgrown."""
    if key in scope.bound:
        scope.bound[_REPLACED] = True
    scope.bound[key] = held


def was_replaced(scope: Scope) -> bool:
    """Whether `hold` has replaced something in a scope since this was asked last."""
    return bool(scope.bound.pop(_REPLACED, False))


class Workspace:
    """Memory of temporaries, scratch memory and panels of frames that run one after another.

    Frames of one scope share it. So do the scopes of one owner who runs one of them at a time: the
    stages of an imported model, the computers of a network. On a GPU all blocks lie in one array,
    so that its pool is asked once.

    Attributes:
        blocks: of temporaries, by number; `ARENA` for the one array.
        scratch, panels: see there.
        scopes: those that use it.
        has_replaced: whether a block is another one since frames were last looked through.
    """

    ARENA = -1

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self.has_replaced = False
        self.blocks: dict[int, Any] = {}
        self.scratch = ScratchPool(xp)
        self.panels = Panels()
        self.scopes: weakref.WeakSet[Scope] = weakref.WeakSet()

    def take(
        self, sizes: Sequence[int], starts: Sequence[int] | None = None
    ) -> tuple[list[Any], dict[int, Any]]:
        """Blocks of at least these sizes, and the arrays that they lie in, by their numbers in
        `blocks`. An array that was too small is another one now.

        Args:
            starts: see `Plan.starts`.
        """
        exact = starts is not None
        if starts is None and self._xp is not np:
            from .packing import in_a_row  # without a GPU it is not needed

            starts = in_a_row(sizes)
        if starts is None:
            held = {number: self._room(number, size, False) for number, size in enumerate(sizes)}
            return list(held.values()), held
        if not sizes:
            return [], {}
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        whole = self._room(self.ARENA, max(ends), exact)
        blocks = [whole[start:end] for start, end in zip(starts, ends, strict=True)]
        return blocks, {self.ARENA: whole}

    def is_short_of(self, size: int) -> bool:
        """Whether the one array is there, and smaller."""
        known = self.blocks.get(self.ARENA)
        return known is not None and known.nbytes < size

    def give_up(self) -> None:
        """Let go of all memory; no frame uses it any more."""
        self.blocks = {}
        self.scratch = ScratchPool(self._xp)
        self.panels = Panels()

    @property
    def beside(self) -> int:
        """The bytes of scratch memory and panels, and of what loops have in its scopes."""
        held = [one for scope in self.scopes for one in scope.bound.values()]
        loops = sum(one.nbytes for one in held if isinstance(one, Held))
        return self.scratch.nbytes + self.panels.nbytes + loops

    def _room(self, number: int, size: int, exact: bool) -> Any:
        """A block of at least a size; `exact`: no more, where it grows."""
        block = self.blocks.get(number)
        if block is not None and block.nbytes >= size:
            return block
        room = 0
        if block is not None:
            # With some room: every larger one makes all frames be bound anew.
            room = 0 if exact else size // 2 if size < _HUGE else size // 8
            self.has_replaced = True
        block = self.blocks[number] = fresh(self._xp, padded(size + room), max(number, 0))
        return block


def workspace_of(scope: Scope, place: Place) -> Workspace:
    """The workspace of the frames that run in a scope."""
    workspaces: dict[Place, Workspace] = scope.bound.setdefault("workspaces", {})
    if place not in workspaces:
        workspaces[place] = Workspace(place.xp)
    workspaces[place].scopes.add(scope)
    return workspaces[place]


class WorkspaceOwner:
    """Who makes scopes of which one runs at a time: they share their workspaces."""

    def __init__(self) -> None:
        self._workspaces: dict[Place, Workspace] = {}

    def lend(self, scope: Scope) -> Scope:
        """Let a new scope share them."""
        scope.bound["workspaces"] = self._workspaces
        return scope
