"""OpenFst's binary files of FSTs over the tropical semiring, of all types, as arrays.

Format: OpenFst's `fst.cc`, `add-on.h`, `label-reachable.h`, `symbol-table.cc`; `bodies` and
`ngram` read states and arcs. What a file says is checked once here; whoever holds the arrays may
trust them.
"""

from __future__ import annotations

import numpy as np

from ....framework.base.untrusted.values import shown
from ..fst import Fst, Header, Reachability, SymbolTable
from .bodies import PACKED, Read, gathered, read_vector
from .byte_file import ByteFile

MAGIC = 2125659606
SYMBOLS_MAGIC = 2125658996
ADD_ON_MAGIC = 446681434
INPUT_SYMBOLS, OUTPUT_SYMBOLS = 1, 2
"""Flags of files with tables of symbols."""

_MOST = (1 << 31) - 2  # states and labels that OpenFst's 32-bit numbers hold


def _read_ngram(file: ByteFile, header: Header, start: int, states: int) -> Fst:
    from .ngram import read_ngram  # language models are seldom FSTs of this type

    return read_ngram(file, header, start, states)


_BODIES: dict[str, tuple[tuple[int, ...], Read]] = {
    "vector": ((2,), read_vector),
    **{kind: ((1, 2), read) for kind, read in PACKED.items()},
    "ngram": ((4,), _read_ngram),
}
LOOK_AHEAD = ("ilabel_lookahead", "olabel_lookahead")
"""The types that look ahead by labels."""
_ADDED = ("arc_lookahead", *LOOK_AHEAD)  # to an FST that comes first
_VERSIONS = {
    **{kind: versions for kind, (versions, _) in _BODIES.items()},
    **dict.fromkeys(_ADDED, (1,)),
}
TYPES = tuple(_VERSIONS)
"""The types of FSTs that are read."""


def is_openfst(data: bytes) -> bool:
    """Whether bytes begin as a binary FST."""
    return data[:4] == MAGIC.to_bytes(4, "little")


def read_header(file: ByteFile) -> tuple[Header, int, int]:
    """The header without its tables of symbols, the start state, how many states there are.

    Raises:
        FormatError: the bytes are something else, or are cut off.
    """
    start = file.offset
    if not is_openfst(bytes(file.data[start : start + 4])):
        raise file.error("a binary FST of OpenFst was expected here", start)
    file.skip(4, "the magic number")
    kind, arc = file.text("the FST type"), file.text("the arc type")
    version, flags, properties, first, states, arcs = file.unpack("iiQqqq", "the header of an FST")
    return Header(kind, arc, version, flags, properties, arcs), first, states


def read_openfst(file: ByteFile) -> Fst:
    """Read a binary FST over the tropical semiring.

    Raises:
        FormatError: the bytes are something else, are cut off, or an arc leads to a state that
            there is not, has a negative label, or a weight that is not a number.
    """
    begin = file.offset
    header, start, states = _read_known(file)
    if header.kind not in _ADDED:
        return _read_body(file, header, start, states, begin)
    (magic,) = file.unpack("i", "the header of an add-on")
    if magic != ADD_ON_MAGIC:
        raise file.error(f"the FST inside of an {header.kind} FST was expected here")
    inner = file.offset
    kept, start, states = _read_known(file)
    if not kept.kind.startswith("const"):
        raise file.error(f"a {kept.kind} FST inside of an {header.kind} FST", inner)
    fst = _read_body(file, kept, start, states, inner)
    header.properties = kept.properties
    header.arcs = kept.arcs
    header.input_symbols = header.input_symbols or kept.input_symbols
    header.output_symbols = header.output_symbols or kept.output_symbols
    header.reachability = _read_add_on(file, header.kind, fst, begin)
    fst.header = header
    reached = header.reachability
    if reached is not None and not _is_sorted(fst, fst.ilabel if reached.of_input else fst.olabel):
        problem = f"are not sorted by {_side(reached.of_input)} label"
        raise file.error(f"the arcs of a look-ahead FST {problem}", inner)
    return fst


def _read_known(file: ByteFile) -> tuple[Header, int, int]:
    """A header with its tables of symbols, of a type that is read."""
    begin = file.offset
    header, start, states = read_header(file)
    kind, arc, version = header.kind, header.arc, header.version
    if kind not in TYPES:
        raise file.error(f"an FST of type {shown(kind)}: only {', '.join(TYPES)} are read", begin)
    if arc != "standard":
        raise file.error(f"an FST with arcs of type {shown(arc)}: only 'standard' is read", begin)
    if version not in _VERSIONS[kind]:
        raise file.error(f"version {version} of a {kind} FST is not known", begin)
    if not 0 <= states <= _MOST and kind not in _ADDED:
        raise file.error(f"an FST of {states} states", begin)
    _read_tables(file, header)
    return header, start, states


def _read_body(file: ByteFile, header: Header, start: int, states: int, begin: int) -> Fst:
    fst = _BODIES[header.kind][1](file, header, start, states)
    _check(file, fst, begin)
    return fst


def _read_tables(file: ByteFile, header: Header) -> None:
    """The tables of symbols, those of input first."""
    start = file.offset
    if header.flags & INPUT_SYMBOLS:
        header.input_symbols = _read_symbols(file)
    if not header.flags & OUTPUT_SYMBOLS:
        return
    size = file.offset - start
    if 0 < size <= file.remaining:
        # Grammars have the same table twice: half a million words are taken apart once.
        table = file.data[start : start + size]
        if np.array_equal(table, file.data[start + size : start + 2 * size]):
            file.skip(size, "a table of symbols")
            header.output_symbols = header.input_symbols
            return
    header.output_symbols = _read_symbols(file)


def _read_symbols(file: ByteFile) -> SymbolTable:
    start = file.offset
    (magic,) = file.unpack("i", "a table of symbols")
    if magic != SYMBOLS_MAGIC:
        raise file.error("a table of symbols was expected here", start)
    name = file.text("the name of a table of symbols")
    available, count = file.unpack("qq", "a table of symbols")
    if not 0 <= count * 12 <= file.remaining:
        raise file.error(f"a table of {count} symbols cannot stand here", start)
    return SymbolTable(name, available, file.labeled_texts(count, _MOST, "a symbol"))


def _side(of_input: bool) -> str:
    return "input" if of_input else "output"


def _read_add_on(file: ByteFile, kind: str, fst: Fst, begin: int) -> Reachability | None:
    """What a look-ahead FST has after it: of input labels, or of output labels, or nothing."""
    wanted = kind == LOOK_AHEAD[0] if kind in LOOK_AHEAD else None
    there = file.unpack("?", "the add-on")[0]
    if not there and wanted is not None:
        raise file.error("the FST has no reachability data", begin)
    reachability = None
    for of_input in (True, False) if there else ():
        known = file.unpack("?", "the add-on")[0]
        if known and wanted is not None:
            if of_input is not wanted:
                raise file.error(f"reachability of {_side(of_input)} labels in an {kind} FST")
            reachability = _read_reachability(file, fst, of_input)
        elif of_input is wanted:
            message = f"the FST has no reachability data of {_side(of_input)} labels"
            raise file.error(message, begin)
    return reachability


def _read_reachability(file: ByteFile, fst: Fst, of_input: bool) -> Reachability:
    reach_input, relabels = file.unpack("??", "reachability data")
    if reach_input is not of_input:
        raise file.error(f"reachability of {_side(reach_input)} labels among {_side(of_input)}")
    pairs = np.zeros((0, 2), np.int32)
    if relabels:
        (count,) = file.unpack("q", "a table of labels")
        pairs = file.array("<i4", count * 2, f"a table of {count} labels").reshape(-1, 2).copy()
    (final_label,) = file.unpack("i", "the final label")
    place = file.offset
    (states,) = file.unpack("q", "the sets of intervals")
    if states != fst.states:
        raise file.error(f"sets of intervals of {states} states, of {fst.states}", place)
    starts = file.record_starts(states, 12, 0, 8, "sets of intervals")
    counts = (np.diff(starts) - 12) // 8
    begin = np.zeros(states + 1, np.int64)
    np.cumsum(counts, out=begin[1:])
    intervals = gathered(file, starts[:-1] + 8, counts, 8).view("<i4").reshape(-1, 2)
    _check_intervals(file, begin, intervals, starts)
    return Reachability(begin, intervals, final_label, pairs, of_input)


def _check_intervals(
    file: ByteFile, begin: np.ndarray, intervals: np.ndarray, starts: np.ndarray
) -> None:
    """Refuse intervals that are empty, or do not follow each other within a state."""
    wrong = intervals[:, 0] >= intervals[:, 1]
    wrong[1:] |= intervals[1:, 0] < intervals[:-1, 1]
    first = begin[:-1][begin[:-1] < begin[1:]]
    wrong[first] = intervals[first, 0] >= intervals[first, 1]
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        state = int(np.searchsorted(begin, at, "right")) - 1
        raise file.error(f"the intervals of state {state} are not in order", int(starts[state]))


def _is_sorted(fst: Fst, label: np.ndarray) -> bool:
    falls = np.flatnonzero(label[1:] < label[:-1]) + 1
    return bool(np.isin(falls, fst.begin).all())


def _check(file: ByteFile, fst: Fst, begin: int) -> None:
    if not -1 <= fst.start < fst.states:
        raise file.error(f"the start state {fst.start} is none of {fst.states}", begin)
    for name, most, what in (
        ("nextstate", fst.states - 1, "leads to the state"),
        ("ilabel", _MOST, "has the input label"),
        ("olabel", _MOST, "has the output label"),
    ):
        values = fst.arcs[name]
        if len(values) and not 0 <= values.min() <= values.max() <= most:
            at = int(np.flatnonzero((values < 0) | (values > most))[0])
            raise file.error(
                f"arc {at} of the FST {what} {values[at]}, which is not from 0 to {most}", begin
            )
    if np.isnan(fst.weight).any() or np.isnan(fst.final).any():
        raise file.error("a weight of the FST is not a number", begin)
