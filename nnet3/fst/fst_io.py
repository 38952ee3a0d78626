"""OpenFst's files of acceptors and transducers.

Forms: OpenFst's binary `vector` and `compact_acceptor` FSTs over the tropical semiring (arc type
`standard`), and the text that `fstprint` and Kaldi's archives use. Format: OpenFst 1.6's `fst.cc`,
`vector-fst.h`, `compact-fst.h`; Kaldi's `fstext/kaldi-fst-io-inl.h`.
"""

from __future__ import annotations

import struct

import numpy as np

from ...framework.base.errors import FormatError
from ..files.kaldi_io import Reader, Writer
from ..files.tokens import format_number
from .fst import MUTABLE, Fst, Header
from .fst_properties import acceptor_properties

MAGIC = 2125659606
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_STATE = struct.Struct("<fq")
_ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
_COMPACT = np.dtype([("label", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
_NO_LABEL = -1
_HAS_SYMBOLS = 3  # flags for tables of input and output symbols
_ALIGNED = 4
_ALIGNMENT = 16
_VERSIONS = {"vector": (2,), "compact_acceptor": (1, 2)}
_LONGEST_NAME = 64


def read_fst(reader: Reader) -> Fst:
    """Read one: binary if its first bytes say so (Kaldi's header is not part of it), else text.

    Raises:
        FormatError: the bytes are something else, are cut off, or it names states that it does
            not have.
    """
    start = reader.offset
    if bytes(reader.data[start : start + 4]) == struct.pack("<i", MAGIC):
        return _read_binary(reader)
    if reader.binary:
        raise reader.error("an FST of OpenFst was expected here")
    return _read_text(reader)


def write_fst(fst: Fst, writer: Writer, kind: str | None = None) -> None:
    """Write it: in text without symbols and with an empty line behind, else as OpenFst does.

    Args:
        kind: `vector` or `compact_acceptor`; by default that of the file it came from.

    Raises:
        FormatError: a transducer cannot be written as an acceptor.
    """
    if not writer.binary:
        _write_text(fst, writer)
    elif (kind or fst.header.kind) == "compact_acceptor":
        _write_compact(fst, writer)
    else:
        _write_vector(fst, writer)


# Binary


def _read_binary(reader: Reader) -> Fst:
    begin = reader.offset
    reader.read_bytes(4)
    kind = _read_name(reader)
    if kind not in _VERSIONS:
        raise reader.error(f"an FST of type {kind!r}: only {', '.join(_VERSIONS)} are read", begin)
    arc = _read_name(reader)
    if arc != "standard":
        raise reader.error(f"an FST with arcs of type {arc!r}: only 'standard' is read", begin)
    version, flags, properties, start, states, arcs = _HEADER.unpack(
        reader.read_bytes(_HEADER.size)
    )
    if version not in _VERSIONS[kind]:
        raise reader.error(f"version {version} of a {kind} FST is not known", begin)
    if flags & _HAS_SYMBOLS:
        raise reader.error("an FST with tables of symbols is not read", begin)
    header = Header(kind, arc, version, flags, properties, arcs)
    least = _STATE.size if kind == "vector" else 4
    if states < 0 or states * least > reader.remaining():
        raise reader.error(f"an FST of {states} states cannot stand here", begin)
    read = _read_vector if kind == "vector" else _read_compact
    fst = read(reader, header, start, states)
    _check(reader, fst, begin)
    return fst


def _read_name(reader: Reader) -> str:
    start = reader.offset
    (length,) = struct.unpack("<i", reader.read_bytes(4))
    if not 0 < length <= _LONGEST_NAME:
        raise reader.error("the name of a type was expected here", start)
    return reader.read_bytes(length).decode("latin-1")


def _read_vector(reader: Reader, header: Header, start: int, states: int) -> Fst:
    final = np.empty(states, np.float32)
    counts = np.empty(states, np.int64)
    pieces = []
    for state in range(states):
        final[state], count = _STATE.unpack(reader.read_bytes(_STATE.size))
        counts[state] = count
        pieces.append(reader.read_bytes(count * _ARC.itemsize))
    arcs = np.frombuffer(b"".join(pieces), _ARC)
    begin = np.concatenate([[0], np.cumsum(counts)])
    ilabel, olabel, weight, nextstate = (
        arcs[name].copy() for name in ("ilabel", "olabel", "weight", "nextstate")
    )
    return Fst(start, final, begin, ilabel, olabel, weight, nextstate, header)


def _read_compact(reader: Reader, header: Header, start: int, states: int) -> Fst:
    _skip_alignment(reader, header)
    begin = reader.read_array("<u4", states + 1).astype(np.int64)
    _skip_alignment(reader, header)
    if begin[0] != 0 or np.any(np.diff(begin) < 0):
        raise reader.error("the states of the FST do not follow each other")
    items = reader.read_array(_COMPACT, int(begin[-1]))
    # A final weight is an arc without a label, the first of its state.
    ends = items["label"] == _NO_LABEL
    state = np.repeat(np.arange(states), np.diff(begin))
    final = np.full(states, np.inf, np.float32)
    final[state[ends]] = items["weight"][ends]
    arcs = items[~ends]
    counts = np.bincount(state[~ends], minlength=states)
    label = arcs["label"].copy()
    return Fst(
        start,
        final,
        np.concatenate([[0], np.cumsum(counts)]),
        label,
        label,
        arcs["weight"].copy(),
        arcs["nextstate"].copy(),
        header,
    )


def _skip_alignment(reader: Reader, header: Header) -> None:
    if header.version == 1 or header.flags & _ALIGNED:
        reader.read_bytes(-(reader.before + reader.offset) % _ALIGNMENT)


def _check(reader: Reader, fst: Fst, begin: int) -> None:
    if not -1 <= fst.start < fst.states:
        raise reader.error(f"the start state {fst.start} is none of {fst.states}", begin)
    if fst.arcs and not 0 <= fst.nextstate.min() <= fst.nextstate.max() < fst.states:
        raise reader.error(f"an arc leads to a state that is none of {fst.states}", begin)
    if np.isnan(fst.weight).any() or np.isnan(fst.final).any():
        raise reader.error("a weight of the FST is not a number", begin)


def _write_header(fst: Fst, writer: Writer, header: Header) -> None:
    for name in (header.kind, header.arc):
        if name == header.kind:
            writer.write_raw(struct.pack("<i", MAGIC))
        writer.write_raw(struct.pack("<i", len(name)) + name.encode("latin-1"))
    writer.write_raw(
        _HEADER.pack(
            *(header.version, header.flags & ~_ALIGNED, header.properties),
            *(fst.start, fst.states, header.arcs),
        )
    )


def _write_vector(fst: Fst, writer: Writer) -> None:
    known = fst.header
    if known.kind != "vector":
        known = Header(properties=known.properties | MUTABLE, arcs=fst.arcs)
    _write_header(fst, writer, known)
    arcs = np.empty(fst.arcs, _ARC)
    arcs["ilabel"], arcs["olabel"] = fst.ilabel, fst.olabel
    arcs["weight"], arcs["nextstate"] = fst.weight, fst.nextstate
    counts = np.diff(fst.begin)
    for state in range(fst.states):
        writer.write_raw(_STATE.pack(fst.final[state], counts[state]))
        writer.write_raw(arcs[fst.begin[state] : fst.begin[state + 1]].tobytes())


def _write_compact(fst: Fst, writer: Writer) -> None:
    if not np.array_equal(fst.ilabel, fst.olabel):
        raise FormatError("an FST whose labels differ cannot be written as an acceptor")
    header = fst.header
    if header.kind != "compact_acceptor":
        header = Header("compact_acceptor", properties=acceptor_properties(fst), arcs=fst.arcs)
    _write_header(fst, writer, header)
    final = ~np.isinf(fst.final)
    counts = np.diff(fst.begin) + final
    begin = np.concatenate([[0], np.cumsum(counts)])
    items = np.empty(int(begin[-1]), _COMPACT)
    ends = np.zeros(len(items), bool)
    ends[begin[:-1][final]] = True
    items["label"][ends], items["weight"][ends] = _NO_LABEL, fst.final[final]
    items["nextstate"][ends] = -1
    items["label"][~ends], items["weight"][~ends] = fst.ilabel, fst.weight
    items["nextstate"][~ends] = fst.nextstate
    writer.write_raw(begin.astype("<u4").tobytes() + items.tobytes())


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
    _check(reader, fst, reader.offset)
    return fst


def _write_text(fst: Fst, writer: Writer) -> None:
    """The start state comes first; a weight of zero is left out."""
    lines = [""]
    order = [fst.start, *(s for s in range(fst.states) if s != fst.start)] if fst.states else []
    for state in order:
        for arc in range(fst.begin[state], fst.begin[state + 1]):
            line = f"{state}\t{fst.nextstate[arc]}\t{fst.ilabel[arc]}\t{fst.olabel[arc]}"
            weight = fst.weight[arc]
            lines.append(line if weight == 0 else f"{line}\t{_weight(weight)}")
        if not np.isinf(fst.final[state]):
            weight = fst.final[state]
            lines.append(f"{state}" if weight == 0 else f"{state}\t{_weight(weight)}")
    writer.write_raw("\n".join(lines) + "\n\n")


def _weight(value: np.floating) -> str:
    return "Infinity" if np.isinf(value) else format_number(value)
