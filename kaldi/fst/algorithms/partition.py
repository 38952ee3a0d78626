"""FSTs with as few states as merging of equal ones gives, weights being part of labels.

States are equal where the same labels with the same weights lead to equal states. For an acceptor
with several arcs of a label from one state this is bisimulation, not the least number of states.

Source: OpenFst's `minimize.h`; Moore 1956, "Gedanken-experiments on sequential machines".
"""

from __future__ import annotations

import numpy as np

from ....framework.base.sequence import bincount
from ..fst import Fst
from . import compiled
from .acceptors import connect

_HALF = np.float32(0.5)


def quantized(weight: np.ndarray, step: float) -> np.ndarray:
    """Weights rounded to multiples of `step`, float32; infinity stays."""
    step32 = np.float32(step)
    return (np.floor(weight / step32 + _HALF) * step32).astype(np.float32)


def minimize_unpushed(fst: Fst, step: float) -> Fst:
    """Merge equal states of an FST; weights are rounded to multiples of `step`, not pushed.

    Arcs of label 0 are arcs as any others.
    """
    fst = connect(fst)
    if not fst.states:
        return fst
    functions = compiled.library("minimization")
    if functions is not None:
        block = compiled.fst_block(functions, fst)
        return compiled.make(functions, "minimized", fst=block, step=step)
    weight, final = quantized(fst.weight, step), quantized(fst.final, step)
    code = _codes(fst.ilabel, fst.olabel, weight)
    source = fst.source()
    member = _codes(final)
    count = int(member.max()) + 1
    while True:
        finer = _split(source, code, member[fst.nextstate], member, fst.states)
        blocks = int(finer.max()) + 1
        if blocks == count:
            break
        member, count = finer, blocks
    first = np.full(count, fst.states, np.int64)
    np.minimum.at(first, member, np.arange(fst.states))
    kept = np.sort(first)
    number = np.empty(count, np.int64)
    number[member[kept]] = np.arange(count)
    arcs = np.flatnonzero(first[member[source]] == source)
    rows = np.stack((number[member[source[arcs]]], code[arcs], number[member[fst.nextstate[arcs]]]))
    _, places = np.unique(rows, axis=1, return_index=True)  # arcs that have become the same
    arcs = arcs[np.sort(places)]
    return Fst.of_arcs(
        number[member[source[arcs]]],
        fst.ilabel[arcs],
        weight[arcs],
        number[member[fst.nextstate[arcs]]],
        final[kept],
        fst.olabel[arcs],
        int(number[member[fst.start]]),
    )


def _codes(*columns: np.ndarray) -> np.ndarray:
    """A number for each row, the same for equal rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, one = np.unique(column, return_inverse=True)
        code = code * (int(one.max(initial=0)) + 1) + one.ravel()
        _, code = np.unique(code, return_inverse=True)
    return code.ravel()


def _split(
    source: np.ndarray, code: np.ndarray, target: np.ndarray, member: np.ndarray, states: int
) -> np.ndarray:
    """The class of each state by its own class and the set of its arcs, int64, [states].

    States with equally many different arcs are compared as rows of one matrix.
    """
    arc = code * (int(target.max(initial=0)) + 1) + target
    order = np.lexsort((arc, source))
    arc, source = arc[order], source[order]
    new = np.ones(len(arc), bool)
    new[1:] = (arc[1:] != arc[:-1]) | (source[1:] != source[:-1])
    arc, source = arc[new], source[new]
    degree = bincount(source, minlength=states)
    begin = np.concatenate(([0], np.cumsum(degree)[:-1]))
    finer = np.empty(states, np.int64)
    count = 0
    for size in np.unique(degree).tolist():
        mine = np.flatnonzero(degree == size)
        rows = np.empty((len(mine), size + 1), np.int64)
        rows[:, 0] = member[mine]
        rows[:, 1:] = arc[begin[mine, None] + np.arange(size)]
        _, group = np.unique(rows, axis=0, return_inverse=True)
        finer[mine] = group.ravel() + count
        count += int(group.max()) + 1
    return finer
