"""Symbols of transducers: replaced, penalized, removed with their arcs, passed through by loops.

Disambiguation symbols are such: they stand in a lexicon until it is determinized, pass through the
graphs that it is composed with, and are removed from the result.

Source: Kaldi's `fstbin/fstrmsymbols.cc`, `fstext/fstext-utils.h`, `fstext/pre-determinize.h`;
OpenFst's `arcsort.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....framework.base.algorithms.std_sort import std_argsort
from ....framework.base.errors import ShapeError
from ....framework.base.sequence import repeated
from ..fst import Fst
from ..fst_properties import sorted_properties
from .acceptors import connect
from .operations import add_arcs

SIDES = ("ilabel", "olabel")
"""The columns of arcs that symbols may stand in."""


def with_header_of(fst: Fst, source: Fst) -> Fst:
    """The same FST with the tables of symbols of another one, written as type `vector`."""
    known = source.header
    header = replace(
        fst.header, input_symbols=known.input_symbols, output_symbols=known.output_symbols
    )
    return replace(fst, header=header)


def changed(fst: Fst, **columns: np.ndarray) -> Fst:
    """With other labels or weights of arcs; what the header said of them is dropped."""
    return Fst.of_states(fst.final, fst.begin, fst.with_columns(**columns).arcs, fst.start)


def has_symbols(fst: Fst, symbols: Sequence[int], side: str = "ilabel") -> np.ndarray:
    """Whether each arc has one of the symbols: bool, [arcs]."""
    return np.isin(fst.arcs[side], np.asarray(symbols, np.int64))


def remove_symbols(fst: Fst, symbols: Sequence[int], side: str = "ilabel") -> Fst:
    """With label 0 in the place of the symbols."""
    return changed(fst, **{side: np.where(has_symbols(fst, symbols, side), 0, fst.arcs[side])})


def penalize_symbols(fst: Fst, symbols: Sequence[int], penalty: float, side: str = "ilabel") -> Fst:
    """With `penalty` added to the weight of each arc that has one of the symbols."""
    more = np.where(has_symbols(fst, symbols, side), np.float32(penalty), np.float32(0))
    return changed(fst, weight=fst.weight + more)


def remove_arcs(fst: Fst, symbols: Sequence[int], side: str = "ilabel") -> Fst:
    """Without the arcs that have one of the symbols, and the states that are then on no path."""
    kept = np.flatnonzero(~has_symbols(fst, symbols, side))
    arcs = fst.arcs[kept]
    columns = arcs["ilabel"], arcs["weight"], arcs["nextstate"]
    return connect(Fst.of_arcs(fst.source()[kept], *columns, fst.final, arcs["olabel"], fst.start))


def add_self_loops(fst: Fst, inputs: Sequence[int], outputs: Sequence[int]) -> Fst:
    """With loops that let symbols pass, `inputs[i]` in and `outputs[i]` out.

    They stand last at each state that is final, or that an arc with an output label leaves: each
    place where a symbol may come that the other FST of a composition has there.

    Raises:
        ShapeError: there are not as many of both, or a symbol is not above 0, stands there twice,
            or is already in the FST.
    """
    if len(inputs) != len(outputs):
        raise ShapeError(f"{len(inputs)} input symbols, but {len(outputs)} output symbols")
    for side, symbols in zip(SIDES, (inputs, outputs), strict=True):
        if len(set(symbols)) < len(symbols) or min(symbols, default=1) <= 0:
            raise ShapeError(f"symbols of loops must differ and be above 0, not {list(symbols)}")
        there = fst.arcs[side][has_symbols(fst, symbols, side)]
        if len(there):
            raise ShapeError(f"the FST already has the {side} {there[0]}")
    needed = ~np.isinf(fst.final)
    needed[fst.source()[fst.olabel != 0]] = True
    states = np.flatnonzero(needed)
    loops = repeated(states, np.full(len(states), len(inputs)))
    labels = (np.tile(np.asarray(side, np.int32), len(states)) for side in (inputs, outputs))
    return add_arcs(fst, loops, loops, **dict(zip(SIDES, labels, strict=True)))


def sort_by(fst: Fst, side: str) -> Fst:
    """With the arcs of each state in the order of one label, and of the other where it is equal.

    Arcs with equal labels are in the order that OpenFst's sorting leaves them in.
    """
    other = SIDES[1 - SIDES.index(side)]
    source = fst.source()
    key = fst.arcs[side].astype(np.int64) << 32 | fst.arcs[other]
    order = np.lexsort((key, source))
    equal = (key[order[1:]] == key[order[:-1]]) & (source[1:] == source[:-1])
    for state in np.unique(source[1:][equal]).tolist():
        arcs = slice(fst.begin[state], fst.begin[state + 1])
        order[arcs] = fst.begin[state] + std_argsort(key[arcs])
    made = Fst.of_states(fst.final, fst.begin, fst.arcs[order], fst.start)
    made.header.properties = sorted_properties(made, other)
    return made
