"""One lattice in the bytes of an archive.

    "LAT " version, header, "NODS" nodes, "EDGS" edges, "ALNS" tokens, "END "

Everything is little-endian; a tag is followed by a number of 32 bits. Node: time, 16 bits. Edge: 64
bits (`_EDGE`). Token: 32 bits (`_UNIT`). In version 2 edges of the same phones share their tokens,
after the acoustic score (if there is any) and the score of the language model; a pause
at the end of a word is a bit of the edge and takes the frames that are left. In version 1 (tags
NODE, EDGE, ALIG) each edge has scores and tokens of its own.

Source: CNTK's `Common/Include/latticestorage.h` and `latticearchive.h`.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

from ...framework.base.errors import FormatError, SaveError, ShapeError
from ...framework.base.sequence import bincount, offsets_of, repeated, runs
from .lattice import Lattice, LatticeHeader

HEADER = np.dtype(
    [
        ("nodes", "<u4"),
        ("edges", "<u4"),
        ("language", "<f4"),
        ("penalty", "<f4"),
        ("period", "<f8"),
        ("frames", "<u4"),
        ("pause", "<u4"),  # symbol of the pause that edges imply, and _SCORED
    ]
)
NO_PAUSE = (1 << 31) - 1
_SCORED = 1 << 31  # acoustic scores are there
_SCORED_EDGE = np.dtype([("bits", "<u8"), ("acoustic", "<f4"), ("language", "<f4")])
_EDGE = {"begin": (0, 19), "end": (20, 19), "pause": (39, 1), "first": (40, 24)}
_UNIT = {"symbol": (0, 19), "frames": (19, 11), "last": (31, 1)}
_OLD_UNIT = {"symbol": (0, 19), "frames": (19, 13)}
_NODE_BITS = 16


def _field(bits: np.ndarray, field: tuple[int, int]) -> np.ndarray:
    begin, width = field
    return (bits >> begin & ((1 << width) - 1)).astype(np.int64)


class _Source:
    """A file and a position in it; reading beyond its end is an error."""

    def __init__(self, file: BinaryIO, path: str, offset: int) -> None:
        self.file = file
        self.path = path
        self._size = file.seek(0, 2)
        if offset > self._size:
            raise FormatError(f"{path}: a lattice at byte {offset}, but there are {self._size}")
        file.seek(offset)

    def place(self, back: int = 0) -> str:
        return f"{self.path}: byte {self.file.tell() - back}: "

    def take(self, dtype: np.dtype | str, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(dtype)
        left = self._size - self.file.tell()
        if count * dtype.itemsize > left:
            raise FormatError(f"{self.place()}{count} {what} were expected, there are {left} bytes")
        return np.frombuffer(self.file.read(count * dtype.itemsize), dtype)

    def tag(self, *wanted: str) -> str:
        raw = self.take("u1", 4, "bytes of a tag").tobytes()
        if raw.decode("latin-1") not in wanted:
            names = " or ".join(repr(tag) for tag in wanted)
            raise FormatError(f"{self.place(4)}{names} was expected, not {raw!r}")
        return raw.decode("latin-1")

    def number(self, tag: str) -> int:
        self.tag(tag)
        return int(self.take("<u4", 1, "number")[0])

    def table(self, tag: str, dtype: np.dtype | str, count: int | None, what: str) -> np.ndarray:
        size = self.number(tag)
        if count is not None and size != count:
            raise FormatError(f"{self.place(4)}{size} {what}; the header says {count}")
        return self.take(dtype, size, what)


def read_lattice(
    file: BinaryIO, path: str, offset: int, numbers: np.ndarray, pause: int | None = None
) -> Lattice:
    """The lattice at a place of an archive.

    Args:
        numbers: phone of each symbol of the archive, int64, [symbols].
        pause: the phone of the short pause. Archives whose header names another one may have edges
            without phones.

    Raises:
        FormatError: with path and byte: it is no lattice, or the file ends within it.
    """
    source = _Source(file, path, offset)
    version = source.number("LAT ")
    if version not in (1, 2):
        raise FormatError(f"{source.place(4)}a lattice of version {version}; 1 or 2 is known")
    head = source.take(HEADER, 1, "header")[0]
    old = version == 1
    times = source.table("NODE" if old else "NODS", "<u2", int(head["nodes"]), "nodes")
    edge_type = _SCORED_EDGE if old else "<u8"
    edges = source.table("EDGE" if old else "EDGS", edge_type, int(head["edges"]), "edges")
    tokens = source.table("ALIG" if old else "ALNS", "<u4", None, "phones")
    source.tag("END ")
    times = times.astype(np.int64)
    if not len(times) or times[-1] != head["frames"]:
        last = times[-1] if len(times) else "nowhere"
        raise FormatError(
            f"{path}: byte {offset}: the last node stands at {last}, the header says "
            f"{head['frames']} frames"
        )
    try:
        with np.errstate(invalid="ignore"):
            unpack = _unpack_old if old else _unpack
            return unpack(head, times, edges, tokens, numbers, pause)
    except ShapeError as error:
        raise FormatError(f"{path}: byte {offset}: {error}") from None


def _header(head: np.void) -> LatticeHeader:
    return LatticeHeader(float(head["language"]), float(head["penalty"]), float(head["period"]))


def _phones(symbols: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    if symbols.size and symbols.max() >= len(numbers):
        raise ShapeError(f"a lattice has the symbol {symbols.max()} of {len(numbers)}")
    return numbers[symbols]


def _unpack_old(
    head: np.void,
    times: np.ndarray,
    edges: np.ndarray,
    tokens: np.ndarray,
    numbers: np.ndarray,
    pause: int | None,
) -> Lattice:
    bits = edges["bits"]
    first = np.append(_field(bits, _EDGE["first"]), len(tokens))
    ends = np.stack([_field(bits, _EDGE[name]) for name in ("begin", "end")], axis=1)
    phones = _phones(_field(tokens, _OLD_UNIT["symbol"]), numbers)
    units = np.stack([phones, _field(tokens, _OLD_UNIT["frames"])], axis=1)
    scores = edges["language"]
    acoustic = edges["acoustic"].astype(np.float64)
    return Lattice(times, ends, scores, units, first, None, acoustic, _header(head))


def _unpack(
    head: np.void,
    times: np.ndarray,
    edges: np.ndarray,
    tokens: np.ndarray,
    numbers: np.ndarray,
    pause: int | None,
) -> Lattice:
    coded = int(head["pause"])
    scored = bool(coded & _SCORED)
    symbol = coded & NO_PAUSE
    skipped = 2 if scored else 1
    begin = _field(edges, _EDGE["first"])
    implied = _field(edges, _EDGE["pause"])
    if len(begin) and not skipped <= begin.min() <= begin.max() <= len(tokens):
        raise ShapeError(f"an edge of a lattice begins outside of its {len(tokens)} phones")
    ends = np.stack([_field(edges, _EDGE[name]) for name in ("begin", "end")], axis=1)
    if ends.size and ends.max() >= len(times):
        raise ShapeError(f"an edge of a lattice leaves its {len(times)} nodes")
    if symbol > len(numbers):
        own = None
    else:  # the number after the last symbol means the pause, too
        own = int(numbers[symbol]) if symbol < len(numbers) else pause
    counts = _counts(tokens, begin, skipped, own == pause)
    at = runs(begin, counts)
    phones = _phones(_field(tokens[at], _UNIT["symbol"]), numbers)
    frames = _field(tokens[at], _UNIT["frames"])
    edge = repeated(np.arange(len(edges)), counts)
    spent = bincount(edge, frames, len(edges)).astype(np.int64)
    if implied.any() and own is None:
        raise ShapeError("edges of a lattice end with a pause, which has no symbol")
    first = offsets_of(counts + implied)
    units = np.empty((first[-1], 2), np.int64)
    units[runs(first[:-1], counts)] = np.stack([phones, frames], axis=1)
    pauses = first[1:][implied == 1] - 1
    left = (times[ends[:, 1]] - times[ends[:, 0]] - spent)[implied == 1]
    units[pauses, 0], units[pauses, 1] = own or 0, left
    scores = tokens.view("<f4")
    acoustic = scores[begin - 2].astype(np.float64) if scored else None
    return Lattice(times, ends, scores[begin - 1], units, first, None, acoustic, _header(head))


def _counts(tokens: np.ndarray, begin: np.ndarray, skipped: int, sound: bool) -> np.ndarray:
    """Phones of each edge: the last one has a mark, and scores follow it.

    Args:
        begin: the first phone of each edge.
        skipped: scores in front of phones.
        sound: False: edges may have no phones, and other edges' phones begin there.
    """
    last = np.flatnonzero(_field(tokens, _UNIT["last"]))
    ending = np.searchsorted(last, begin)
    stop = np.append(last + 1, len(tokens))[ending]
    if not sound:
        following = np.unique(np.append(begin, len(tokens) + skipped)) - skipped
        stop = np.minimum(stop, following[np.searchsorted(following, begin)])
    elif (begin[:-1] == len(tokens)).any():
        raise ShapeError("an edge of a lattice that is not the last one has no phones")
    elif ((begin < len(tokens)) & (ending == len(last))).any():
        raise ShapeError("the phones of an edge of a lattice have no end")
    counts = stop - begin
    if counts.sum() >= 1 << _EDGE["first"][1]:
        raise ShapeError(f"the edges of a lattice have {counts.sum()} phones, too many to count")
    return counts


# -- writing -------------------------------------------------------------------------------------


def pack_lattice(lattice: Lattice, pause: int | None = None) -> bytes:
    """The bytes of a lattice, version 2, with phones as symbols.

    Edges are put in the order of the nodes where they end, as CNTK needs them.

    Args:
        pause: the phone that is left out at the end of an edge.

    Raises:
        SaveError: a number is too large for its bits; an edge but the last one has no phones; or
            there is more than one first or last node.
    """
    order = np.lexsort(lattice.edges.T)
    _check(lattice, order)
    first = lattice.first
    acoustic = lattice.scores if lattice.acoustic is None else lattice.acoustic
    scored = lattice.acoustic is not None and bool(np.any(lattice.acoustic))
    counts = np.diff(first)
    ending = np.flatnonzero(counts > 1)
    implied = np.zeros(len(counts), np.int64)
    if pause is not None:
        implied[ending] = lattice.units[first[ending + 1] - 1, 0] == pause
    bits = _joined_bits(_UNIT, symbol=lattice.units[:, 0], frames=lattice.units[:, 1])
    heads = np.stack([acoustic, lattice.scores], axis=1)
    heads = heads.astype("<f4").view("<u4")[:, 0 if scored else 1 :]
    places: dict[bytes, int] = {}
    tokens: list[np.ndarray] = []
    size = 0
    begin = np.zeros(len(counts), np.int64)
    for edge in order.tolist():
        body = bits[first[edge] : first[edge + 1] - implied[edge]].copy()
        body[-1:] |= np.uint64(1 << 31)
        block = np.concatenate([heads[edge], body]).astype("<u4")
        key = block.tobytes()
        if key not in places:
            places[key] = size + heads.shape[1]
            tokens.append(block)
            size += len(block)
        begin[edge] = places[key]
    ends = lattice.edges
    edges = _joined_bits(_EDGE, begin=ends[:, 0], end=ends[:, 1], pause=implied, first=begin)
    if lattice.times[-1] >= 1 << _NODE_BITS:
        raise SaveError(f"a lattice of {lattice.frames} frames; an archive takes {_NODE_BITS} bits")
    head = np.zeros((), HEADER)
    header = lattice.header
    head["nodes"], head["edges"] = len(lattice.times), len(edges)
    head["language"], head["penalty"], head["period"] = (
        header.language,
        header.penalty,
        header.period,
    )
    head["frames"] = lattice.frames
    head["pause"] = (NO_PAUSE if pause is None else pause) | (_SCORED if scored else 0)
    parts = [b"LAT ", struct.pack("<i", 2), head.tobytes()]
    tables = {
        b"NODS": lattice.times.astype("<u2"),
        b"EDGS": edges[order].astype("<u8"),
        b"ALNS": np.concatenate([np.zeros(0, "<u4"), *tokens]).astype("<u4"),
    }
    for tag, table in tables.items():
        parts += [tag, struct.pack("<i", len(table)), table.tobytes()]
    return b"".join([*parts, b"END "])


def _check(lattice: Lattice, order: np.ndarray) -> None:
    ends = lattice.edges
    count = len(lattice.times)
    into, out = (bincount(column, minlength=count) for column in (ends[:, 1], ends[:, 0]))
    if (into[1:] == 0).any() or (out[:-1] == 0).any():
        raise SaveError("an archive takes lattices of one first and one last node")
    empty = np.flatnonzero((np.diff(lattice.first) == 0) | (lattice.lengths == 0))
    if len(empty) and empty.tolist() != order[-1:].tolist():
        raise SaveError(f"edge {empty[0]} of a lattice has no phones or frames; only the last may")


def _joined_bits(fields: dict[str, tuple[int, int]], **values: np.ndarray) -> np.ndarray:
    total = np.zeros(len(next(iter(values.values()))), np.uint64)
    for name, value in values.items():
        begin, width = fields[name]
        if value.size and value.max() >= 1 << width:
            raise SaveError(f"a lattice with the {name} {value.max()}; an archive has {width} bits")
        total |= value.astype(np.uint64) << np.uint64(begin)
    return total
