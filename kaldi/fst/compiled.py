"""Operations on transducers in C, where there is the native library."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion import native
from ...framework.fusion.arguments import Block, bind
from ...framework.fusion.libraries import Library
from ...native.constants import NO_MEMORY
from .arcs import ARC
from .fst import Fst


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


def make(functions: Library, name: str, counted: tuple[str, ...] = (), /, **values: Any) -> Fst:
    """The FST that a function makes.

    Args:
        counted: fields that count the labels of a failure. values: of its argument.

    Raises:
        MemoryError: there is none. Failed: for another reason.
    """
    shared = library()
    assert shared is not None, "there is the other file"
    block = bind(functions, name, **values)
    block.run()
    result = block.struct
    if result.status == NO_MEMORY:
        raise MemoryError("a transducer")
    try:
        if result.status:
            counts = [getattr(result, each) for each in counted]
            labels = np.empty(sum(counts), np.int32)
            given = {"made": result.made, "count": len(labels), "labels": labels}
            bind(shared, "labels_copy", **given).run()
            raise Failed(result.status, np.split(labels, np.cumsum(counts)[:-1]))
        final = np.empty(result.states, np.float32)
        begin = np.empty(result.states + 1, np.int64)
        arcs = np.empty(result.count, ARC)
        sizes = {"made": result.made, "states": result.states, "count": result.count}
        bind(shared, "made_copy", final=final, begin=begin, arcs=arcs, **sizes).run()
    finally:
        bind(shared, "made_free", made=result.made).run()
    return Fst.of_states(final, begin, arcs, getattr(result, "start", 0))


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
