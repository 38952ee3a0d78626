"""What is packed before a loop, or a whole net, starts to run: weights that it does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..team import ParallelTask, aligned


class Prepared:
    """Memory filled before a loop runs, from arrays that it does not change: packed weights, say.

    Attributes:
        in_loop: whether for a loop; else for a whole net, whose other products are none of a step.
    """

    def __init__(self, *, in_loop: bool = True) -> None:
        self.in_loop = in_loop
        self._constant: dict[int, Any] = {}
        self._entries: dict[Any, tuple[Any, ParallelTask | Callable[[], Any]]] = {}
        self._buffer: Any = None
        self._calls: list[Callable[[], Any]] = []

    def declare(self, arrays: Iterable[Any]) -> None:
        """Note that nothing writes to these arrays while the loop runs."""
        for array in arrays:
            if type(array) is np.ndarray and array.size:
                self._constant[array.ctypes.data] = array  # so that no other one takes its place

    def holds(self, array: Any) -> bool:
        """Whether an array was declared, or begins where a declared one does."""
        return type(array) is np.ndarray and array.ctypes.data in self._constant

    def get(
        self, key: Any, make: Callable[[], tuple[Any, ParallelTask | Callable[[], Any]]]
    ) -> Any:
        """The memory of a key. For a new key, `make` returns it with what fills it.

        That is a task or a call; these run in the order of the keys.
        """
        if key not in self._entries:
            self._entries[key] = make()
        return self._entries[key][0]

    def has(self, key: Any) -> bool:
        """Whether there is memory of a key."""
        return key in self._entries

    def buffer(self, size: int) -> Any:
        """Memory for use within one call; the next call may write over its contents."""
        if self._buffer is None or self._buffer.nbytes < size:
            self._buffer = aligned(size)
        return self._buffer

    @property
    def nbytes(self) -> int:
        """The memory that is filled."""
        return sum(memory.nbytes for memory, _ in self._entries.values())

    def calls(self) -> list[Callable[[], Any]]:
        """The calls that fill this memory; they run before the loop."""
        # Made late, as steps ask for more while they are bound.
        if len(self._calls) != len(self._entries):
            self._calls = [fill for _, fill in self._entries.values()]
        return self._calls
