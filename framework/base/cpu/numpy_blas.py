"""The BLAS that NumPy computes products with, and the number of its threads."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_NAMES = (  # of the functions: their ends around the name, and the bits of a size
    ("scipy_", "64_", 64),
    ("", "64_", 64),
    ("scipy_", "", 32),
    ("", "", 32),
)
_LETTERS = {"float32": "s", "float64": "d"}


class OpenBlas(NamedTuple):
    """NumPy's OpenBLAS.

    Attributes:
        gemm: dtype -> address of its product. bits: of a size.
        get, set: addresses of the functions that read and set the number of its threads.
        path: of its file. handle: of the library, which it keeps loaded.
    """

    gemm: dict[str, int]
    bits: int
    get: int
    set: int
    path: str
    handle: Any


@functools.cache
def is_there() -> bool:
    """Whether NumPy was built with a BLAS at all: else it multiplies number by number."""
    built: Any = np.show_config("dicts")
    return bool(built["Build Dependencies"]["blas"].get("found"))


def openblas() -> OpenBlas | None:
    """NumPy's OpenBLAS; None where NumPy has another BLAS."""
    for one in controllers():
        if one.internal_api != "openblas":
            continue
        for begin, end, bits in _NAMES:
            names = [f"{begin}cblas_{letter}gemm{end}" for letter in _LETTERS.values()]
            # Product and threads from one library: a mixture would set the threads of another one.
            names += [f"{begin}openblas_{verb}_num_threads{end}" for verb in ("get", "set")]
            if all(hasattr(one.dynlib, name) for name in names):
                at = [ctypes.cast(one.dynlib[n], ctypes.c_void_p).value or 0 for n in names]
                gemm = dict(zip(_LETTERS, at, strict=False))
                return OpenBlas(gemm, bits, at[2], at[3], one.filepath, one.dynlib)
    return None


def controllers() -> list[Any]:
    """What threadpoolctl finds of NumPy's BLAS; nothing where that is not known to it."""
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    # Another library (PyTorch, SciPy) may have brought a BLAS of its own into the process, whose
    # threads are not ours to set.
    own = [one for one in libraries if np.__name__ in one.filepath]  # which its wheels bring along
    return own or (libraries if len(libraries) == 1 else [])


_held: dict[str, Callable[[int], int]] = {}
if hasattr(os, "register_at_fork"):
    # In the child nothing runs that keeps a library at one thread, and what counts that may be
    # locked by a thread that is not there.
    os.register_at_fork(after_in_child=_held.clear)


def hold(path: str, threads: Callable[[int], int]) -> None:
    """Let a function set and read the number of threads of a library that is at one now and then.

    Args:
        path: of the library. threads: takes the number that it shall have otherwise, or 0 to leave
            that; returns it.
    """
    _held[path] = threads


def _threads(one: Any, wanted: int = 0) -> int:
    """The number of threads of a library, after setting it where `wanted` is not 0."""
    held = _held.get(getattr(one, "filepath", ""))
    if held is not None:
        return held(wanted)
    if wanted and one.get_num_threads() != wanted:
        one.set_num_threads(wanted)
    return one.get_num_threads()


class BlasThreads:
    """Carries the number of threads to NumPy's BLAS.

    A number that somebody chose goes there. One that follows the load goes there only where
    products are left to its own threads; then it never exceeds what it was in the beginning.

    Attributes:
        always: whether products are left to its own threads.
    """

    def __init__(self, libraries: list[Any]) -> None:
        self._libraries = libraries
        self._first = [_threads(one) for one in libraries]
        self.always = False

    def __call__(self, number: int, chosen: bool) -> None:
        for one, first in zip(self._libraries, self._first, strict=True):
            wanted = number if chosen else min(number, first) if self.always else first
            _threads(one, wanted)
