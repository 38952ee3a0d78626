"""Numbers that the C files and the package share; each C file has them as macros."""

from __future__ import annotations

from enum import IntEnum

PARALLEL_WORK = 400_000
"""Work (elements times cost) from which a loop may use threads: some 10 us. See pool.h."""

SHARES = 4
"""Parts for a thread of an item that is alone, or long: whoever is free takes the next one."""

ARRAY, COLUMN, ONE = 0, 1, 2
"""Operands of chains: an element for each place, for each row, or one."""

OF_FLOAT16, OF_BFLOAT16, OF_FLOAT32, OF_FLOAT64, OF_INT32, OF_INT64 = range(6)
"""Their dtypes."""

LEAST_BUCKETS, BUCKETS_EACH = 1000, 2
"""Of Kaldi's hash of tokens: at first, and for each token of a frame."""

PRECISE = 1e-9
"""A run of arcs whose part of the sum up to its end is smaller is added up arc by arc."""

NO_MEMORY, MANY_STATES, NEGATIVE_LOOP, MANY_TOKENS, NO_PATH = 1, 2, 3, 4, 5
"""Why a search fails: no memory, too many states of a graph, a loop of epsilons whose costs are
below zero, too many tokens of a frame, or none."""


class BadLattice(IntEnum):
    """Why a lattice cannot be determinized: it has no path, a loop, a transition-id that is none,
    or an arc that leads to no later state."""

    EMPTY = 48
    LOOP = 49
    NO_ID = 50
    BAD_ARC = 51


class Undetermined(IntEnum):
    """Why a transducer cannot be determinized: one input has two outputs; too many output labels
    are still to come; a loop of epsilons has no sum; too many steps through epsilons, or states."""

    NOT_FUNCTIONAL = 16
    STILL_OPEN = 17
    NO_SUM = 18
    MANY_STEPS = 19
    MANY_SETS = 20


class Asking(IntEnum):
    """Of a function that asks while it works: it wants an answer; it was given; there is none."""

    WANTED = 32
    ANSWERED = 33
    CANCELED = 34


def macros() -> dict[str, str]:
    """The text of each number, by its name."""
    return {name: repr(value) for name, value in globals().items() if name.isupper()}
