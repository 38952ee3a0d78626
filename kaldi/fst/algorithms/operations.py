"""Operations on the arrays of FSTs: reversed, renumbered, sorted, relabeled, with more arcs.

Source: OpenFst's `reverse.h`, `statesort.h`, `arcsort.h`, `project.h`.
"""

from __future__ import annotations

import numpy as np

from ....framework.base.sequence import bincount
from ..arcs import ARC
from ..fst import Fst


def reverse(fst: Fst) -> Fst:
    """The FST of all paths backwards. State 0 is a new start, whose arcs of label 0 lead to what
    were the ends; every other state has the number that it had, plus 1."""
    ends = np.flatnonzero(~np.isinf(fst.final))
    final = np.full(fst.states + 1, np.inf, np.float32)
    if fst.start >= 0:
        final[fst.start + 1] = 0
    zeros = np.zeros(len(ends), np.int64)
    return Fst.of_arcs(
        np.concatenate((zeros, fst.nextstate.astype(np.int64) + 1)),
        np.concatenate((zeros, fst.ilabel)),
        np.concatenate((fst.final[ends], fst.weight)),
        np.concatenate((ends + 1, fst.source() + 1)),
        final,
        np.concatenate((zeros, fst.olabel)),
    )


def renumber(fst: Fst, number: np.ndarray) -> Fst:
    """With other numbers for states; `number` has the new one of each, [states]."""
    final = np.empty_like(fst.final)
    final[number] = fst.final
    return Fst.of_arcs(
        number[fst.source()],
        fst.ilabel,
        fst.weight,
        number[fst.nextstate],
        final,
        fst.olabel,
        int(number[fst.start]) if fst.start >= 0 else -1,
    )


def sort_arcs(fst: Fst) -> Fst:
    """With the arcs of each state in the order of their input labels."""
    order = np.argsort(fst.ilabel, kind="stable")
    return Fst.of_arcs(
        fst.source()[order],
        fst.ilabel[order],
        fst.weight[order],
        fst.nextstate[order],
        fst.final,
        fst.olabel[order],
        fst.start,
    )


def relabel(fst: Fst, label: np.ndarray) -> Fst:
    """An acceptor with label `label[l]` where the FST has the input label l."""
    new = label[fst.ilabel]
    arcs = fst.with_columns(ilabel=new, olabel=new).arcs
    return Fst.of_states(fst.final, fst.begin, arcs, fst.start)


def add_arcs(
    fst: Fst,
    source: np.ndarray,
    nextstate: np.ndarray,
    *,
    ilabel: np.ndarray | int = 0,
    olabel: np.ndarray | int = 0,
    weight: np.ndarray | int = 0,
    final: np.ndarray | None = None,
) -> Fst:
    """With more arcs, which come last at their states.

    Args:
        final: the weights of ending, [states], where there are new states as well.
    """
    more = np.empty(len(source), ARC)
    more["ilabel"], more["olabel"], more["weight"] = ilabel, olabel, weight
    more["nextstate"] = nextstate
    final = fst.final if final is None else final
    order = np.argsort(source, kind="stable")
    begin = np.append(fst.begin, np.full(len(final) - fst.states, fst.begin[-1]))
    place = begin[1:][source[order]] + np.arange(len(order))
    arcs = np.empty(len(fst.arcs) + len(more), ARC)
    known = np.ones(len(arcs), bool)
    known[place] = False
    arcs[known], arcs[place] = fst.arcs, more[order]
    begin[1:] += np.cumsum(bincount(source, minlength=len(final)))
    return Fst.of_states(np.asarray(final, np.float32), begin, arcs, fst.start)


def with_weights(fst: Fst, weight: np.ndarray, final: np.ndarray) -> Fst:
    """With other weights, float32 [arcs] and [states]."""
    return Fst.of_states(final, fst.begin, fst.with_columns(weight=weight).arcs, fst.start)
