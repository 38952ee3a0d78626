"""States and arcs of OpenFst's files: `vector`, `const` and `compact` FSTs.

Format: OpenFst's `vector-fst.h`, `const-fst.h`, `compact-fst.h`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....framework.base.sequence import bincount, repeated
from ..arcs import ARC
from ..fst import Fst, Header
from .byte_file import ByteFile

Read = Callable[[ByteFile, Header, int, int], Fst]
"""Of a file, its header, the start state and how many states there are."""

COMPACT_ACCEPTOR = np.dtype([("ilabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
NO_LABEL = -1
ALIGNED = 4
"""The flag of files whose arrays begin at multiples of 16."""

_ALIGNMENT = 16
_ALIGNED_VERSION = 1
_UNSIGNED = {"8": "<u1", "16": "<u2", "": "<u4", "64": "<u8"}  # by what the name of a type says
# What a compact FST has of each arc; the rest follows from it: labels are the same, weights are
# zero, and a string goes on to the next state.
_STRINGS = {
    "string": np.dtype([("ilabel", "<i4")]),
    "weighted_string": np.dtype([("ilabel", "<i4"), ("weight", "<f4")]),
}
_ELEMENTS = {
    "acceptor": COMPACT_ACCEPTOR,
    "unweighted_acceptor": np.dtype([("ilabel", "<i4"), ("nextstate", "<i4")]),
    "unweighted": np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("nextstate", "<i4")]),
}


def read_vector(file: ByteFile, header: Header, start: int, states: int) -> Fst:
    """The states of a `vector` FST, each with its arcs."""
    starts = file.record_starts(states, 12, 4, ARC.itemsize, "states of an FST")
    counts = (np.diff(starts) - 12) // ARC.itemsize
    begin = np.zeros(states + 1, np.int64)
    np.cumsum(counts, out=begin[1:])
    final = gathered(file, starts[:-1], np.ones(states, np.int64), 4).view("<f4")
    arcs = gathered(file, starts[:-1] + 12, counts, ARC.itemsize).view(ARC)
    return Fst(start, final, begin, arcs, header)


def gathered(file: ByteFile, starts: np.ndarray, counts: np.ndarray, item: int) -> np.ndarray:
    """The bytes of runs of items of 4-byte words that begin at `starts`, joined.

    Args:
        starts: they differ by whole words. item: bytes of one.
    """
    if not len(starts):
        return np.empty(0, np.uint8)
    base = int(starts[0]) % 4
    words = np.frombuffer(file.data, "<u4", (len(file.data) - base) // 4, base)
    width = item // 4
    at = repeated((starts - base) // 4 - width * (np.cumsum(counts) - counts), counts)
    at += width * np.arange(len(at))
    # an index for each item: one for each word took as much memory again as the FST
    return np.lib.stride_tricks.sliding_window_view(words, width)[at].ravel().view(np.uint8)


def _const(unsigned: str) -> Read:
    counts = [(name, unsigned) for name in ("pos", "arcs", "iepsilons", "oepsilons")]
    state = np.dtype([("final", "<f4"), *counts], align=True)

    def read(file: ByteFile, header: Header, start: int, states: int) -> Fst:
        _align(file, header)
        place = file.offset
        table = file.array(state, states, f"a table of {states} states")
        _align(file, header)
        arcs = file.array(ARC, header.arcs, f"a table of {header.arcs} arcs")
        begin = np.zeros(states + 1, np.int64)
        np.cumsum(table["arcs"], out=begin[1:])
        wrong = np.flatnonzero(table["pos"] != begin[:-1])
        if len(wrong) or begin[-1] != header.arcs:
            place += int(wrong[0]) * state.itemsize if len(wrong) else 0
            message = f"the arcs of the states do not follow each other to {header.arcs}"
            raise file.error(message, place)
        return Fst(start, table["final"].copy(), begin, arcs, header)

    return read


def _compact(element: np.dtype, unsigned: str = "") -> Read:
    """Reads a compact FST.

    Args:
        unsigned: the numbers of the table of states; empty: each state has one element.
    """

    def read(file: ByteFile, header: Header, start: int, states: int) -> Fst:
        count = states
        begin = None
        if unsigned:
            _align(file, header)
            place = file.offset
            table = file.array(unsigned, states + 1, f"a table of {states} states")
            if table[0] or (table[1:] < table[:-1]).any() or table[-1] > file.remaining:
                raise file.error("the states of the FST do not follow each other", place)
            count = int(table[-1])
            begin = table.astype(np.int64)
        _align(file, header)
        items = file.array(element, count, f"a table of {count} arcs and ends")
        return _expanded(items, np.arange(states + 1) if begin is None else begin, start, header)

    return read


def _expanded(items: np.ndarray, begin: np.ndarray, start: int, header: Header) -> Fst:
    """The FST of compact elements; that of an end has no label."""
    states = len(begin) - 1
    source = repeated(np.arange(states), np.diff(begin))
    ends = items["ilabel"] == NO_LABEL
    final = np.full(states, np.inf, np.float32)
    names = items.dtype.names or ()
    final[source[ends]] = items["weight"][ends] if "weight" in names else 0
    arcs = np.zeros(len(items) - int(ends.sum()), ARC)
    arcs["olabel"] = items["ilabel"][~ends]
    arcs["nextstate"] = source[~ends] + 1
    for name in names:
        arcs[name] = items[name][~ends]
    counts = bincount(source[~ends], minlength=states)
    return Fst(start, final, np.concatenate([[0], np.cumsum(counts)]), arcs, header)


def _align(file: ByteFile, header: Header) -> None:
    if header.version == _ALIGNED_VERSION or header.flags & ALIGNED:
        file.skip(-(file.before + file.offset) % _ALIGNMENT, "the padding of an FST")


def _compacts(bits: str, unsigned: str) -> dict[str, Read]:
    begin = f"compact{bits}_"
    return {
        **{begin + name: _compact(element) for name, element in _STRINGS.items()},
        **{begin + name: _compact(element, unsigned) for name, element in _ELEMENTS.items()},
    }


PACKED: dict[str, Read] = {}
"""What reads an FST in one piece, by its type; versions are 1, whose arrays are aligned, and 2."""
for _bits, _unsigned in _UNSIGNED.items():
    PACKED[f"const{_bits}"] = _const(_unsigned)
    PACKED |= _compacts(_bits, _unsigned)
