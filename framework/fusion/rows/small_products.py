"""Products outside of nets, computed by NumPy on one thread."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

from ...base.cpu.numpy_blas import controllers, hold
from ...base.python.cached import new_rlock
from ..team import one_blas_thread


@contextlib.contextmanager
def on_one_blas_thread() -> Iterator[None]:
    """Within the block NumPy's OpenBLAS has one thread; another BLAS is left as it is.

    Its other threads wait awake for the next product, so that small ones now and then cost as much
    processor time again; and the last bits of products follow their number.
    """
    compiled = one_blas_thread()
    counted = None if compiled else _counted()
    if compiled is not None:
        compiled[0](0)
    elif counted is not None:
        counted.enter()
    try:
        yield
    finally:
        if compiled is not None:
            compiled[1](0)
        elif counted is not None:
            counted.leave()


class Counted:
    """A library of products that has one thread while something is inside.

    What `one_blas_thread` does in C, for machines without a compiler.

    Args:
        library: of threadpoolctl.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._lock = new_rlock()
        self._inside = self._outside = 0  # how many are; threads that it has otherwise
        hold(library.filepath, self.threads)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def enter(self) -> None:
        """One more is inside."""
        with self._lock:
            if not self._inside:
                self._outside = self._library.get_num_threads()
                self._set(1)
            self._inside += 1

    def leave(self) -> None:
        """One less is inside; after the last one the library has its threads again."""
        with self._lock:
            # 0 in the child of a fork, which may leave what its parent entered.
            if self._inside:
                self._inside -= 1
                if not self._inside:
                    self._set(self._outside)

    def threads(self, wanted: int) -> int:
        """See `numpy_blas.hold`."""
        with self._lock:
            if not self._inside:
                if wanted:
                    self._set(wanted)
                return self._library.get_num_threads()
            self._outside = wanted or self._outside
            return self._outside

    def _set(self, wanted: int) -> None:
        if self._library.get_num_threads() != wanted:
            self._library.set_num_threads(wanted)

    def _forget(self) -> None:
        """In the child of a fork nothing is inside."""
        if self._inside:
            self._inside = 0
            self._set(self._outside)
        hold(self._library.filepath, self.threads)


@functools.cache
def _counted() -> Counted | None:
    openblas = [one for one in controllers() if one.internal_api == "openblas"]
    return Counted(openblas[0]) if len(openblas) == 1 else None
