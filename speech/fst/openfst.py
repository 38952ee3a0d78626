"""OpenFst's files of decoding graphs: `vector`, `const`, `olabel_lookahead` and `ngram`, as arrays.

Format: OpenFst's `fst.cc`, `vector-fst.h`, `const-fst.h`, `add-on.h`, `label-reachable.h`,
`symbol-table.cc`. What a file says is checked once here; whoever holds the arrays may trust them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.untrusted.values import shown
from .arcs import ARC, ArcFst, runs
from .byte_file import ByteFile
from .ngram import read_ngram

MAGIC = 2125659606
_SYMBOLS_MAGIC = 2125658996
_ADD_ON_MAGIC = 446681434
_INPUT_SYMBOLS, _OUTPUT_SYMBOLS, _ALIGNED = 1, 2, 4
_ALIGNMENT = 16
_VERSIONS = {"vector": (2,), "const": (1, 2), "olabel_lookahead": (1,), "ngram": (4,)}
_CONST_STATE = np.dtype(
    [("final", "<f4"), ("pos", "<u4"), ("arcs", "<u4"), ("iepsilons", "<u4"), ("oepsilons", "<u4")]
)
_MOST_COST = 1e9  # of an arc or an end, but for infinity
_MOST = (1 << 31) - 2  # states and labels that OpenFst's 32-bit numbers hold


@dataclass
class Reachability:
    """Which output labels can come next from each state of an FST, as intervals of labels.

    Attributes:
        begin: where the intervals of each state begin, int64, [states + 1].
        intervals: first label and the one behind the last, int32, [intervals, 2], sorted.
        final_label: the label that stands for the end of a path.
        relabelled: old and new label, int32, [labels, 2]; empty where the file has none.
    """

    begin: np.ndarray
    intervals: np.ndarray
    final_label: int
    relabelled: np.ndarray


@dataclass
class FstFile:
    """What a file holds.

    Attributes:
        kind: its FST type. fst: the FST. symbols: text of each output label that it names; None
            where it has no table. reachability: of an `olabel_lookahead`.
    """

    kind: str
    fst: ArcFst
    symbols: dict[int, str] | None = None
    reachability: Reachability | None = None


def read_openfst(file: ByteFile) -> FstFile:
    """Read a binary FST over the tropical semiring.

    Raises:
        FormatError: the bytes are something else, are cut off, or an arc leads to a state that
            there is not, has a negative label, or a weight that is not a number.
    """
    start = file.offset
    if bytes(file.data[start : start + 4]) != MAGIC.to_bytes(4, "little"):
        raise file.error("a binary FST of OpenFst was expected here", start)
    file.skip(4, "the magic number")
    kind, arc = file.text("the FST type"), file.text("the arc type")
    if kind not in _VERSIONS:
        raise file.error(
            f"an FST of type {shown(kind)}: only {', '.join(_VERSIONS)} are read", start
        )
    if arc != "standard":
        raise file.error(f"an FST with arcs of type {shown(arc)}: only 'standard' is read", start)
    version, flags, _, first, states, arcs = file.unpack("iiQqqq", "the header of an FST")
    if version not in _VERSIONS[kind]:
        raise file.error(f"version {version} of a {kind} FST is not known", start)
    symbols = _read_tables(file, flags)
    if kind == "olabel_lookahead":
        found = _read_lookahead(file, start)
        found.symbols = found.symbols if symbols is None else symbols
        return found
    if kind == "ngram":
        fst = read_ngram(file, start)
    else:
        if not 0 <= states <= _MOST:
            raise file.error(f"an FST of {states} states", start)
        aligned = kind == "const" and (version == 1 or bool(flags & _ALIGNED))
        read = _read_const if kind == "const" else _read_vector
        fst = read(file, first, states, arcs, aligned)
    _check(file, fst, start)
    return FstFile(kind, fst, symbols)


def _read_tables(file: ByteFile, flags: int) -> dict[int, str] | None:
    """The output symbols, where there are any, behind the input symbols."""
    start, symbols = file.offset, None
    if flags & _INPUT_SYMBOLS:
        symbols = _read_symbols(file)
    if not flags & _OUTPUT_SYMBOLS:
        return None
    size = file.offset - start
    if symbols is not None and size <= file.remaining:
        # Grammars have the same table twice: half a million words are taken apart once.
        table = file.data[start : start + size]
        if np.array_equal(table, file.data[start + size : start + 2 * size]):
            file.skip(size, "a table of symbols")
            return symbols
    return _read_symbols(file)


def _read_symbols(file: ByteFile) -> dict[int, str]:
    start = file.offset
    (magic,) = file.unpack("i", "a table of symbols")
    if magic != _SYMBOLS_MAGIC:
        raise file.error("a table of symbols was expected here", start)
    file.text("the name of a table of symbols")
    _, count = file.unpack("qq", "a table of symbols")
    if not 0 <= count * 12 <= file.remaining:
        raise file.error(f"a table of {count} symbols cannot stand here", start)
    return file.labelled_texts(count, _MOST, "a symbol")


def _align(file: ByteFile, aligned: bool) -> None:
    if aligned:
        file.skip(-file.offset % _ALIGNMENT, "the padding of an FST")


def _read_const(file: ByteFile, first: int, states: int, arcs: int, aligned: bool) -> ArcFst:
    _align(file, aligned)
    start = file.offset
    table = file.array(_CONST_STATE, states, f"a table of {states} states")
    _align(file, aligned)
    items = file.array(ARC, arcs, f"a table of {arcs} arcs")
    begin = np.zeros(states + 1, np.int64)
    np.cumsum(table["arcs"], out=begin[1:])
    wrong = np.flatnonzero(table["pos"] != begin[:-1])
    if len(wrong) or begin[-1] != arcs:
        place = start + int(wrong[0]) * _CONST_STATE.itemsize if len(wrong) else start
        raise file.error(f"the arcs of the states do not follow each other to {arcs}", place)
    return ArcFst(first, table["final"].copy(), begin, items)


def _read_vector(file: ByteFile, first: int, states: int, _: int, __: bool) -> ArcFst:
    starts = file.record_starts(states, 12, 4, ARC.itemsize, "states of an FST")
    counts = (np.diff(starts) - 12) // ARC.itemsize
    begin = np.zeros(states + 1, np.int64)
    np.cumsum(counts, out=begin[1:])
    final = _gathered(file, starts[:-1], np.ones(states, np.int64), 4).view("<f4")
    items = _gathered(file, starts[:-1] + 12, counts, ARC.itemsize).view(ARC)
    return ArcFst(first, final, begin, items)


def _gathered(file: ByteFile, starts: np.ndarray, counts: np.ndarray, item: int) -> np.ndarray:
    """The bytes of runs of items of 4-byte words that begin at `starts`, joined.

    Args:
        starts: they differ by whole words. item: bytes of one.
    """
    if not len(starts):
        return np.empty(0, np.uint8)
    base = int(starts[0]) % 4
    words = np.frombuffer(file.data, "<u4", (len(file.data) - base) // 4, base)
    return words[runs((starts - base) // 4, counts * (item // 4))].view(np.uint8)


def _read_lookahead(file: ByteFile, start: int) -> FstFile:
    (magic,) = file.unpack("i", "the header of an add-on")
    if magic != _ADD_ON_MAGIC:
        raise file.error("the FST inside of an olabel_lookahead FST was expected here")
    inner = file.offset
    found = read_openfst(file)
    if found.kind != "const":
        raise file.error(f"a {found.kind} FST inside of an olabel_lookahead FST", inner)
    if not file.unpack("?", "the add-on")[0]:
        raise file.error("the FST has no reachability data", start)
    if file.unpack("?", "the add-on")[0]:
        raise file.error("reachability of input labels: only output labels are read")
    if not file.unpack("?", "the add-on")[0]:
        raise file.error("the FST has no reachability data of output labels", start)
    reach_input, relabels = file.unpack("??", "reachability data")
    if reach_input:
        raise file.error("reachability of input labels: only output labels are read")
    pairs = np.zeros((0, 2), np.int32)
    if relabels:
        (count,) = file.unpack("q", "a table of labels")
        pairs = file.array("<i4", count * 2, f"a table of {count} labels").reshape(-1, 2).copy()
    (final_label,) = file.unpack("i", "the final label")
    place = file.offset
    (states,) = file.unpack("q", "the sets of intervals")
    if states != found.fst.states:
        raise file.error(f"sets of intervals of {states} states, of {found.fst.states}", place)
    starts = file.record_starts(states, 12, 0, 8, "sets of intervals")
    counts = (np.diff(starts) - 12) // 8
    begin = np.zeros(states + 1, np.int64)
    np.cumsum(counts, out=begin[1:])
    intervals = _gathered(file, starts[:-1] + 8, counts, 8).view("<i4").reshape(-1, 2)
    _check_intervals(file, begin, intervals, starts)
    label = found.fst.arcs["olabel"]
    if not _sorted_by(found.fst, label):
        raise file.error("the arcs of a look-ahead FST are not sorted by output label", inner)
    found.kind = "olabel_lookahead"
    found.reachability = Reachability(begin, intervals, final_label, pairs)
    return found


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


def _sorted_by(fst: ArcFst, label: np.ndarray) -> bool:
    falls = np.flatnonzero(label[1:] < label[:-1]) + 1
    return bool(np.isin(falls, fst.begin).all())


def _check(file: ByteFile, fst: ArcFst, start: int) -> None:
    if not 0 <= fst.start < fst.states:
        raise file.error(f"the start state {fst.start} is none of {fst.states}", start)
    arcs = fst.arcs
    for name, most, what in (
        ("nextstate", fst.states - 1, "leads to the state"),
        ("ilabel", _MOST, "has the input label"),
        ("olabel", _MOST, "has the output label"),
    ):
        values = arcs[name]
        if len(values) and not 0 <= values.min() <= values.max() <= most:
            at = int(np.flatnonzero((values < 0) | (values > most))[0])
            raise file.error(
                f"arc {at} of the FST {what} {values[at]}, which is not from 0 to {most}", start
            )
    for values in (arcs["weight"], fst.final):
        if not (np.isposinf(values) | (np.abs(values) <= _MOST_COST)).all():
            raise file.error(
                f"a weight of the FST is no number, or not from {-_MOST_COST:g} to {_MOST_COST:g}",
                start,
            )
