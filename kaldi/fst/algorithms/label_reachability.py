"""Look-ahead FSTs: labels are renumbered so that those that can come next from a state are few
intervals of numbers.

A search, depth first, goes through the arcs without labels, and numbers labels as it meets them; so
those that come next from one state follow each other.

Source: OpenFst's `label-reachable.h`, `state-reachable.h`, `connect.h` (`Condense`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....framework.base.algorithms.strongly_connected import strongly_connected
from ....framework.base.sequence import bincount
from ..arcs import runs
from ..files.openfst import LOOK_AHEAD
from ..fst import EXPANDED, Fst, Header, Reachability
from ..fst_properties import label_properties
from .symbols import SIDES, changed, sort_by

_Intervals = list[tuple[int, int]] | np.ndarray
"""First number and the one after the last; they rise, and there is a gap between any two. More than
`_MANY` are an array, [intervals, 2]."""
_MANY = 64
"""Fewer are joined faster in lists."""


def make_look_ahead(fst: Fst, *, of_input: bool = False) -> tuple[Fst, np.ndarray]:
    """The look-ahead FST, of type `olabel_lookahead` or `ilabel_lookahead`.

    Returns:
        the FST with new labels on one side, by which its arcs are sorted; and the old and the new
        number of labels, int32, [labels, 2], by which the other FST of a composition is relabeled.
        There are also pairs of labels that the FST lacks, where these would meet new ones.
    """
    side = SIDES[not of_input]
    labels = np.unique(fst.arcs[side])
    labels = labels[labels > 0]
    nodes = _graph(fst, side, labels)
    member, sets = _reached(nodes, 1 + fst.states)
    counts = np.array([len(each) for each in sets])
    begin = np.cumsum(counts) - counts
    intervals = _rows(sets)
    first = np.where(counts > 0, np.append(intervals[:, 0], 0)[begin], 0)
    number = first[member[1 + fst.states :]]  # of each label, and of ends
    absent = np.setdiff1d(np.arange(1, len(number) + 1), labels)
    new = np.concatenate((number[:-1], np.full(len(absent), len(number) + 1)))
    pairs = np.stack((np.concatenate((labels, absent)), new), axis=1).astype(np.int32)
    mine = member[1 : 1 + fst.states]
    reached = Reachability(
        np.concatenate([[0], np.cumsum(counts[mine])]),
        intervals[runs(begin[mine], counts[mine])],
        int(number[-1]),
        np.zeros((0, 2), np.int32),
        of_input,
    )
    made = sort_by(relabel_by(fst, pairs, side), side)
    header = Header(
        LOOK_AHEAD[not of_input],
        version=1,
        properties=EXPANDED | label_properties(made),
        arcs=len(made.arcs),
        input_symbols=fst.header.input_symbols,
        output_symbols=fst.header.output_symbols,
        reachability=reached,
    )
    return replace(made, header=header), pairs


def relabel_by(fst: Fst, pairs: np.ndarray, side: str) -> Fst:
    """With other labels on one side; those that no pair names stay.

    Args:
        pairs: the old and the new number, int32, [labels, 2].
    """
    known = dict(pairs.tolist())
    labels, place = np.unique(fst.arcs[side], return_inverse=True)
    new = np.array([known.get(label, label) for label in labels.tolist()], np.int32)
    return changed(fst, **{side: new[place.ravel()]})


def _graph(fst: Fst, side: str, labels: np.ndarray) -> list[list[int]]:
    """What each node leads to: 0, a new start; the states; the labels; the end of paths.

    Arcs with labels lead to these, and nowhere else. From the new start all states are reached that
    then no arc leads to.
    """
    states = fst.states
    used = fst.arcs[side]
    target = np.where(
        used == 0, fst.nextstate + 1, 1 + states + np.searchsorted(labels, used)
    ).astype(np.int64)
    end = 1 + states + len(labels)
    ends = np.flatnonzero(~np.isinf(fst.final))
    target = np.insert(target, fst.begin[ends + 1], end)
    counts = np.diff(fst.begin)
    counts[ends] += 1
    begin = [0, *np.cumsum(counts).tolist()]
    following = target.tolist()
    free = np.flatnonzero(bincount(target, minlength=end + 1)[1 : 1 + states] == 0) + 1
    return [
        free.tolist(),
        *(following[begin[state] : begin[state + 1]] for state in range(states)),
        *([] for _ in range(len(labels) + 1)),
    ]


def _reached(graph: list[list[int]], leaves: int) -> tuple[np.ndarray, list[_Intervals]]:
    """The strongly connected component of each node, [nodes], and the leaves that each component
    leads to; the nodes from `leaves` on are leaves."""
    components = strongly_connected(graph)[::-1]
    member = np.empty(len(graph), np.int64)
    following: list[list[int]] = []
    sizes = [len(nodes) for nodes in components]
    member[[node for nodes in components for node in nodes]] = np.repeat(
        np.arange(len(components)), sizes
    )
    where = member.tolist()
    for mine, nodes in enumerate(components):
        after = [where[node] for one in sorted(nodes) for node in graph[one]]
        following.append([other for other in after if other != mine])
    is_leaf = [nodes[0] >= leaves for nodes in components]
    return member, _intervals(following, is_leaf, where[0])


def _intervals(following: list[list[int]], is_leaf: list[bool], start: int) -> list[_Intervals]:
    """The intervals of each node of a graph without loops; leaves have the numbers from 1 on."""
    sets: list[_Intervals] = [[] for _ in following]
    entered = bytearray(len(following))
    count = 0
    for root in (start, *range(len(following))):
        if entered[root]:
            continue
        stack = [(root, iter(following[root]))]
        entered[root] = 1
        while stack:
            node, rest = stack[-1]
            if is_leaf[node]:
                count += 1
                sets[node] = [(count, count + 1)]
            for other in rest:
                if not entered[other]:
                    entered[other] = 1
                    stack.append((other, iter(following[other])))
                    break
            else:
                if not is_leaf[node]:
                    sets[node] = _union([sets[other] for other in set(following[node])])
                stack.pop()
    return sets


def _rows(sets: list[_Intervals]) -> np.ndarray:
    """All intervals of some sets, int32, [intervals, 2]."""
    return np.concatenate([np.array(each, np.int32).reshape(-1, 2) for each in sets])


def _union(sets: list[_Intervals]) -> _Intervals:
    if len(sets) == 1:
        return sets[0]
    if sum(map(len, sets)) > _MANY:
        pairs = _rows(sets)
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        last = np.maximum.accumulate(pairs[:, 1])
        begins = np.flatnonzero(np.append(True, pairs[1:, 0] > last[:-1]))
        ends = np.append(begins[1:], len(pairs)) - 1
        joined = np.stack((pairs[begins, 0], last[ends]), axis=1)
        return joined if len(joined) > _MANY else [(a, b) for a, b in joined.tolist()]
    found: list[tuple[int, int]] = []
    for first, last in sorted(pair for each in sets for pair in each):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
