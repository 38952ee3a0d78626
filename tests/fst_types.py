"""A small FST in each type of OpenFst's files, byte by byte, and the same in arrays."""

from __future__ import annotations

import struct

import numpy as np

from opscope.kaldi.fst.files.openfst import TYPES
from opscope.kaldi.fst.fst import Fst
from speech_graphs import (
    Context,
    Row,
    arc_fst,
    const_bytes,
    header,
    lookahead_bytes,
    ngram_bytes,
    vector_bytes,
)

TEXT = "text"
KINDS = (*TYPES, TEXT)
"""What FSTs are read from: a type that is added to the reader has its sample here."""

_LOOP: list[list[Row]] = [[(1, 1, 0.5, 0), (2, 2, 0.25, 1)], [(1, 1, 1.5, 0), (2, 2, 0.75, 1)]]
_WORDS: list[list[Row]] = [[(1, 3, 0.5, 0), (2, 4, 0.25, 1)], [(1, 5, 1.5, 0)]]
_CHAIN: list[list[Row]] = [[(1, 1, 0.5, 1)], [(2, 2, 0.25, 2)], []]
_CONTEXTS = (Context((), {1: 1.0, 2: 2.0}, final=4.0), Context((0,), {1: 0.5}, backoff=0.1))
_UNSIGNED = {"8": "B", "16": "H", "": "I", "64": "Q"}


def sample(kind: str) -> tuple[Fst, bytes]:
    """What a file of a type holds, and the file."""
    name, bits = _parts(kind)
    if name == TEXT:
        fst = arc_fst(_WORDS, {1: 0.125})
        return fst, _text(fst)
    if name == "ngram":
        shorter = (0, 0, float(np.float32(0.1)), 0)
        rows = [[(1, 1, 1.0, 0), (2, 2, 2.0, 0)], [shorter, (1, 1, 0.5, 0)]]
        return arc_fst(rows, {0: 4.0}, 1), ngram_bytes(_CONTEXTS)
    if name.endswith("lookahead"):
        fst = arc_fst(_LOOP, {1: 0.125})
        return fst, lookahead_bytes(fst, 9, name)
    if name in ("vector", "const"):
        fst = arc_fst(_WORDS, {1: 0.125})
        return fst, vector_bytes(fst) if name == "vector" else const_bytes(fst, bits=bits)
    return _compact(name, kind, _UNSIGNED[bits])


def _parts(kind: str) -> tuple[str, str]:
    """The type without the size of its numbers, and the size."""
    for bits in ("8", "16", "64"):
        for name in ("const", "compact"):
            if kind.startswith(name + bits):
                return name + kind.removeprefix(name + bits), bits
    return kind, ""


def _compact(name: str, kind: str, unsigned: str) -> tuple[Fst, bytes]:
    """A compact FST: elements hold what its name does not tell."""
    name = name.removeprefix("compact_")
    weighted = name in ("weighted_string", "acceptor")
    rows = _CHAIN if name.endswith("string") else _WORDS if name == "unweighted" else _LOOP
    if not weighted:
        rows = [[(i, o, 0.0, target) for i, o, _, target in row] for row in rows]
    last = len(rows) - 1
    fst = arc_fst(rows, {last: 0.125 if weighted else 0.0})
    states, elements, begin = b"", b"", 0
    for row, final in zip(rows, fst.final.tolist(), strict=True):
        states += struct.pack(f"<{unsigned}", begin)
        ends = [] if np.isinf(final) else [(-1, -1, final, -1)]
        begin += len(ends) + len(row)
        for i, o, cost, target in [*ends, *row]:
            elements += struct.pack("<i", i) + (
                struct.pack("<i", o) if name == "unweighted" else b""
            )
            elements += struct.pack("<f", cost) if weighted else b""
            elements += b"" if name.endswith("string") else struct.pack("<i", target)
    states += struct.pack(f"<{unsigned}", begin)
    table = b"" if name.endswith("string") else states
    return fst, header(kind, 2, 0, len(rows), len(fst.arcs)) + table + elements


def _text(fst: Fst) -> bytes:
    lines = [
        f"{source}\t{arc['nextstate']}\t{arc['ilabel']}\t{arc['olabel']}\t{arc['weight']}"
        for source, arc in zip(fst.source(), fst.arcs, strict=True)
    ]
    lines += [f"{state}\t{fst.final[state]}" for state in np.flatnonzero(np.isfinite(fst.final))]
    return ("\n".join(lines) + "\n").encode()
