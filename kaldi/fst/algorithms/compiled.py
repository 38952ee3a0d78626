"""Operations on transducers in C, where there is the native library."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import Block, bind
from ....framework.fusion.compiled.libraries import Library
from ....native.constants import NO_MEMORY, Asking
from ..arcs import ARC
from ..fst import Fst


def library(file: str = "transducers") -> Library | None:
    """The functions of a C file; None where Python computes."""
    return native.load(file)


def fst_block(functions: Library, fst: Fst) -> Block:
    """An FST as an argument."""
    arrays = {
        "final": np.ascontiguousarray(fst.final, np.float32),
        "begin": np.ascontiguousarray(fst.begin, np.int64),
        "arcs": np.ascontiguousarray(fst.arcs),
    }
    sizes = {"start": fst.start, "states": fst.states, "count": len(fst.arcs)}
    return bind(functions, "fst", **sizes, **arrays)


class Failed(Exception):
    """An operation failed.

    Attributes:
        status: why, as native/constants.py has it. labels: those that its message needs.
    """

    def __init__(self, status: int, labels: list[np.ndarray]) -> None:
        super().__init__(status)
        self.status = status
        self.labels = labels


def _taken(address: int, dtype: np.dtype | type, count: int) -> np.ndarray:
    """An array that C allocated, which is freed with the last view of it.

    A copy would take as much memory again as the FST.
    """
    if not address:
        return np.empty(0, dtype)
    functions = library()
    assert functions is not None, "it allocated the array"
    memory = (ctypes.c_char * max(count * np.dtype(dtype).itemsize, 1)).from_address(address)
    weakref.finalize(memory, _free, functions, address).atexit = False
    return np.frombuffer(memoryview(memory), dtype, count)


def _free(functions: Library, address: int) -> None:
    bind(functions, "memory_free", memory=address).run()


def make(
    functions: Library,
    name: str,
    counted: tuple[str, ...] = (),
    answer: Callable[[Any], None] | None = None,
    /,
    **values: Any,
) -> Fst:
    """The FST that a function makes.

    Args:
        counted: fields that count the labels of a failure.
        answer: is given the argument as often as the function asks for more, and puts it there.
        values: of its argument.

    Raises:
        MemoryError: there is none. Failed: for another reason.
    """
    block = bind(functions, name, **values)
    block.run()
    result = block.struct
    while answer is not None and result.status == Asking.WANTED:
        try:
            answer(result)
        except BaseException:
            result.status = Asking.CANCELED
            block.run()
            raise
        result.status = Asking.ANSWERED
        block.run()
    if result.status == NO_MEMORY:
        raise MemoryError("a transducer")
    if result.status:
        counts = [getattr(result, each) for each in counted]
        labels = _taken(result.labels if counts else 0, np.int32, sum(counts))
        raise Failed(result.status, np.split(labels, np.cumsum(counts)[:-1]))
    final = _taken(result.final, np.float32, result.states)
    begin = _taken(result.begin, np.int64, result.states + 1)
    arcs = _taken(result.arcs, ARC, result.count)
    return Fst.of_states(final, begin, arcs, result.start)


def kept_states(functions: Library, fst: Fst) -> np.ndarray:
    """Whether each state is on a path from the start to an end: bool, [states].

    Raises:
        MemoryError: there is none.
    """
    kept = np.empty(fst.states, np.uint8)
    block = bind(functions, "kept", fst=fst_block(functions, fst), kept=kept)
    block.run()
    if block.struct.status:
        raise MemoryError("a transducer")
    return kept.view(bool)
