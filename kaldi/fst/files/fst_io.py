"""Files of FSTs: read in OpenFst's binary form, of any type, or in text; written.

Written are `vector` and `compact_acceptor` FSTs, `const` and `ngram` ones for grammars, look-ahead
ones for graphs that are composed while they are searched, and the text that `fstprint` and Kaldi's
archives use. Format: OpenFst 1.6's `fst.cc`, `vector-fst.h`, `const-fst.h`, `compact-fst.h`,
`ngram-fst.h`, `add-on.h`, `label-reachable.h`, `symbol-table.cc`; Kaldi's
`fstext/kaldi-fst-io-inl.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.sequence import bincount
from ...files.kaldi_io import Reader, Writer
from ...files.tokens import MAGIC as KALDI
from ..arcs import runs
from ..fst import EXPANDED, MUTABLE, Fst, Header, Reachability
from .bodies import ALIGNED, COMPACT_ACCEPTOR, NO_LABEL
from .byte_file import ByteFile
from .openfst import (
    ADD_ON_MAGIC,
    INPUT_SYMBOLS,
    LOOK_AHEAD,
    MAGIC,
    OUTPUT_SYMBOLS,
    SYMBOLS_MAGIC,
    is_openfst,
    read_openfst,
)

VECTOR, COMPACT, CONST, NGRAM = WRITTEN = ("vector", "compact_acceptor", "const", "ngram")
"""The types of binary FSTs that any one can be written as."""

_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_VERSION = 2
_LOOK_AHEAD_VERSION = 1
_NGRAM_VERSION = 4
_NGRAM_PROPERTIES = 0x25A555550001  # those that hold of all n-gram models
_STATE_WORDS, _ARC_WORDS = 3, 4  # of 4 bytes
_BLOCK = 1 << 16  # states that are laid out at once
_CONST_STATE = np.dtype(
    [("final", "<f4"), *((name, "<u4") for name in ("pos", "arcs", "ilabel", "olabel"))]
)
_TABLE = struct.Struct("<qq")
_LABEL = struct.Struct("<q")
_DIGITS = 7  # Kaldi's precision
_TEXT = b" \t\r\n0123456789"  # what text begins with


def read_fst(reader: Reader) -> Fst:
    """Read one: binary if its first bytes say so (after Kaldi's header or without), else text.

    Raises:
        FormatError: the bytes are something else, are cut off, or it names states that it does
            not have.
    """
    start = reader.offset
    head = bytes(reader.data[start : start + 6])
    if is_openfst(head.removeprefix(KALDI)):
        file = ByteFile(reader.data, reader.name, reader.before)
        file.offset = start + (len(KALDI) if head.startswith(KALDI) else 0)
        fst = read_openfst(file)
        reader.offset = file.offset
        return fst
    if reader.binary:
        raise reader.error("an FST of OpenFst was expected here")
    return _read_text(reader)


def read_whole(file: ByteFile) -> Fst:
    """The FST of a file that holds nothing else. Arrays of a binary one may be views of the file.

    Raises:
        FormatError: as `read_fst`; or bytes follow it.
    """
    head = bytes(file.data[file.offset : file.offset + 2])
    if head[:1] and head[:1] in _TEXT:
        reader = Reader(file.data.tobytes(), name=file.name, binary=False, offset=file.offset)
        fst = _read_text(reader)
        reader.skip_space()
        file.offset = reader.offset
    else:
        file.skip(len(KALDI) if head == KALDI else 0, "Kaldi's header")
        fst = read_openfst(file)
    if file.remaining:
        raise file.error(f"{file.remaining} bytes follow the FST")
    return fst


def write_fst(fst: Fst, writer: Writer, kind: str | None = None) -> None:
    """Write it: in text without symbols and with an empty line after, else as OpenFst does.

    Args:
        kind: one of `WRITTEN`, or the look-ahead type that it has; by default `vector`, or
            `compact_acceptor` where it came from a file of that type.

    Raises:
        FormatError: a transducer cannot be written as an acceptor, an FST without reachability
            data for looking ahead, one whose states are no contexts of words as `ngram`.
    """
    if not writer.binary:
        from .text import print_fst  # archives of graphs are seldom text

        writer.write_raw("\n" + print_fst(fst, digits=_DIGITS) + "\n")
    else:
        _WRITERS[kind or (COMPACT if fst.header.kind == COMPACT else VECTOR)](fst, writer)


def fst_bytes(fst: Fst, kind: str = VECTOR) -> bytes:
    """The contents of a binary file that holds nothing else; kind and errors as for `write_fst`."""
    writer = Writer(header=False)
    write_fst(fst, writer, kind)
    return writer.getvalue()


def save_whole(fst: Fst, file: BinaryIO, kind: str) -> None:
    """Write what `fst_bytes` gives into a file; it never lies in memory as a whole."""
    _WRITERS[kind](fst, _Direct(file))


class _Direct:
    """Raw bytes go to a file at once."""

    def __init__(self, file: BinaryIO) -> None:
        self.write_raw = file.write


# Binary


def _write_header(
    writer: Writer | _Direct, header: Header, start: int, states: int, version: int = _VERSION
) -> None:
    tables = header.input_symbols, header.output_symbols
    flags = header.flags & ~(ALIGNED | INPUT_SYMBOLS | OUTPUT_SYMBOLS)
    for flag, table in zip((INPUT_SYMBOLS, OUTPUT_SYMBOLS), tables, strict=True):
        flags |= flag if table is not None else 0
    writer.write_raw(struct.pack("<i", MAGIC) + _text(header.kind) + _text(header.arc))
    writer.write_raw(_HEADER.pack(version, flags, header.properties, start, states, header.arcs))
    for table in tables:
        if table is not None:
            writer.write_raw(struct.pack("<i", SYMBOLS_MAGIC) + _text(table.name))
            writer.write_raw(_TABLE.pack(table.available, len(table.texts)))
            for label, text in table.texts.items():
                writer.write_raw(_text(text) + _LABEL.pack(label))


def _text(text: str) -> bytes:
    """A string after its length."""
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<i", len(data)) + data


def _header_as(fst: Fst, kind: str, properties: int) -> Header:
    """The header of its file where that was of this type, else one of this type."""
    known = fst.header
    if known.kind == kind:
        return known
    header = Header(kind, properties=properties, arcs=len(fst.arcs))
    header.input_symbols = known.input_symbols
    header.output_symbols = known.output_symbols
    return header


def _write_vector(fst: Fst, writer: Writer | _Direct) -> None:
    header = _header_as(fst, VECTOR, fst.header.properties | MUTABLE)
    _write_header(writer, header, fst.start, fst.states)
    counts = np.diff(fst.begin)
    for first in range(0, fst.states, _BLOCK):
        writer.write_raw(_states(fst, counts, slice(first, first + _BLOCK)).tobytes())


def _states(fst: Fst, counts: np.ndarray, some: slice) -> np.ndarray:
    """Some states of a `vector` FST: the weight of ending, how many arcs, an int64, and these."""
    final, count = fst.final[some], counts[some]
    begin = fst.begin[some]
    arcs = fst.arcs[begin[0] : begin[-1] + count[-1]]
    size = _STATE_WORDS + _ARC_WORDS * count
    at = np.cumsum(size) - size
    words = np.empty(int(size.sum()), "<i4")
    is_arc = np.ones(len(words), bool)
    for word, values in enumerate((final.astype("<f4").view("<i4"), count, 0)):
        words[at + word] = values
        is_arc[at + word] = False
    words[is_arc] = np.ascontiguousarray(arcs).view("<i4")
    return words


def _write_compact(fst: Fst, writer: Writer | _Direct) -> None:
    if not np.array_equal(fst.ilabel, fst.olabel):
        raise FormatError("an FST whose labels differ cannot be written as an acceptor")
    header = fst.header
    if header.kind != COMPACT:
        from ..fst_properties import acceptor_properties

        header = _header_as(fst, COMPACT, acceptor_properties(fst))
    _write_header(writer, header, fst.start, fst.states)
    final = ~np.isinf(fst.final)
    counts = np.diff(fst.begin) + final
    begin = np.concatenate([[0], np.cumsum(counts)])
    items = np.empty(int(begin[-1]), COMPACT_ACCEPTOR)
    ends = np.zeros(len(items), bool)
    ends[begin[:-1][final]] = True
    items["ilabel"][ends], items["weight"][ends] = NO_LABEL, fst.final[final]
    items["nextstate"][ends] = -1
    for name in COMPACT_ACCEPTOR.names or ():
        items[name][~ends] = fst.arcs[name]
    writer.write_raw(begin.astype("<u4").tobytes() + items.tobytes())


def _write_const(fst: Fst, writer: Writer | _Direct, header: Header | None = None) -> None:
    """Without a file's alignment: what Kaldi's decoders map."""
    source = fst.source()
    states = np.empty(fst.states, _CONST_STATE)
    states["final"], states["pos"] = fst.final, fst.begin[:-1]
    states["arcs"] = np.diff(fst.begin)
    for side in ("ilabel", "olabel"):
        states[side] = bincount(source[fst.arcs[side] == 0], minlength=fst.states)
    header = header or _header_as(fst, CONST, EXPANDED)
    _write_header(writer, header, fst.start, fst.states)
    writer.write_raw(states.view(np.uint8).data)
    writer.write_raw(np.ascontiguousarray(fst.arcs).view(np.uint8).data)


def _write_ngram(fst: Fst, writer: Writer | _Direct) -> None:
    from .ngram import ngram_body  # language models are seldom FSTs of this type

    body = ngram_body(fst)
    header = replace(_header_as(fst, NGRAM, _NGRAM_PROPERTIES), arcs=0)
    _write_header(writer, header, 1, fst.states, _NGRAM_VERSION)
    writer.write_raw(body)


def _write_look_ahead(fst: Fst, writer: Writer | _Direct) -> None:
    """A header that says no more than the type; a `const` FST; what can come next."""
    known, kind = fst.header.reachability, fst.header.kind
    if known is None:
        raise FormatError(f"an {kind} FST without reachability data cannot be written")
    outer = Header(kind, properties=fst.header.properties)
    _write_header(writer, outer, -1, 0, _LOOK_AHEAD_VERSION)
    writer.write_raw(struct.pack("<i", ADD_ON_MAGIC))
    inner = replace(fst.header, kind=CONST, arcs=len(fst.arcs))
    _write_const(fst, writer, inner)
    # there is an add-on, of input labels or not, then of output labels or not
    before, after = (b"\1\1", b"\0") if known.of_input else (b"\1\0\1", b"")
    writer.write_raw(before + _reachability(known) + after)


def _reachability(known: Reachability) -> bytes:
    pairs = known.relabeled
    kept = struct.pack("<q", len(pairs)) + pairs.astype("<i4").tobytes() if len(pairs) else b""
    states = len(known.begin) - 1
    head = struct.pack("<??", known.of_input, bool(len(pairs))) + kept
    head += struct.pack("<iq", known.final_label, states)
    # of each state: how many intervals, an int64; these; how many labels they have together
    counts = np.diff(known.begin)
    labels = np.concatenate(([0], np.cumsum(known.intervals[:, 1] - known.intervals[:, 0])))
    size = 3 + 2 * counts
    first = np.cumsum(size) - size
    words = np.empty(int(size.sum()), "<i4")
    words[first], words[first + 1] = counts, 0
    words[runs(first + 2, 2 * counts)] = known.intervals.ravel()
    words[first + 2 + 2 * counts] = labels[known.begin[1:]] - labels[known.begin[:-1]]
    return head + words.tobytes()


_WRITERS: dict[str, Callable[[Fst, Writer | _Direct], None]] = {
    VECTOR: _write_vector,
    COMPACT: _write_compact,
    CONST: _write_const,
    NGRAM: _write_ngram,
    **dict.fromkeys(LOOK_AHEAD, _write_look_ahead),
}


# Text


def _read_text(reader: Reader) -> Fst:
    """Lines `from to ilabel olabel [weight]` and `final [weight]`; an empty line ends them."""
    while reader.data[reader.offset : reader.offset + 1] in (b" ", b"\t", b"\r"):
        reader.offset += 1
    if reader.data[reader.offset : reader.offset + 1] == b"\n":
        reader.offset += 1
    arcs: list[tuple[int, int, int, int, float]] = []
    finals: dict[int, float] = {}
    start = -1
    while reader.offset < reader.size:
        place = reader.offset
        words = reader.read_line().split()
        if not words:
            break
        try:
            state = int(words[0])
            if len(words) <= 2:
                finals[state] = float(words[1]) if len(words) == 2 else 0.0
            elif len(words) <= 5:
                to, ilabel, olabel = map(int, words[1:4])
                arcs.append((state, to, ilabel, olabel, float(words[4]) if words[4:] else 0.0))
                if min(to, ilabel, olabel) < 0 or max(to, ilabel, olabel) >= 1 << 31:
                    raise ValueError
            if not 0 <= state < 1 << 31 or len(words) == 3 or len(words) > 5:
                raise ValueError
        except ValueError:
            wanted = "'from to ilabel olabel [weight]' or 'final [weight]'"
            raise reader.error(f"a line of an FST, {wanted}, was expected here", place) from None
        start = state if start < 0 else start
    top = max([*finals, *(max(arc[:2]) for arc in arcs)], default=-1)
    if top > 2 * (len(arcs) + len(finals)):
        raise reader.error(f"the FST has a state {top}, but far fewer lines")
    columns = np.array(arcs, np.float64).reshape(-1, 5).T
    final = np.full(top + 1, np.inf, np.float32)
    final[list(finals)] = list(finals.values())
    source, nextstate, ilabel, olabel = columns[:4].astype(np.int64)
    fst = Fst.of_arcs(source, ilabel, columns[4], nextstate, final, olabel, start)
    if np.isnan(fst.weight).any() or np.isnan(fst.final).any():
        raise reader.error("a weight of the FST is not a number")
    return fst
