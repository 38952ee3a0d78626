"""The part of a decoding graph that says a known text: all pronunciations, silence where it may be.

Source: Kaldi's `decoder/training-graph-compiler.cc`, for graphs that are there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.untrusted.limits import check_limit
from ...kaldi.fst.arcs import ARC, spread
from ...kaldi.fst.fst import Fst
from ..fst.graph import Graph, LookaheadGraph, StaticGraph


def text_graph(graph: Graph, labels: Sequence[int]) -> Graph:
    """The graph whose paths say these words.

    Args:
        labels: of the words, each above 0. Costs are the graph's; where it holds a language
            model, as HCLG.fst does, they include the costs of the words.

    Raises:
        OpscopeError: the graph cannot say them. FormatError: it grows beyond the limit `lattice`.
    """
    if isinstance(graph, LookaheadGraph):
        return graph.with_grammar(linear(labels))
    return StaticGraph.of(_saying(graph.fst, labels))


def linear(labels: Sequence[int]) -> Fst:
    """An acceptor of one sequence of labels."""
    count = len(labels)
    arcs = np.array([(label, label, 0.0, at + 1) for at, label in enumerate(labels)], ARC)
    final = np.full(count + 1, np.inf, np.float32)
    final[count] = 0
    return Fst(0, final, np.minimum(np.arange(count + 2), count).astype(np.int64), arcs)


class _Layer(NamedTuple):
    """States of a graph between two words.

    Attributes:
        states: sorted. arcs: places of arcs without a word among them.
        leaving: places of arcs with the next word.
    """

    states: np.ndarray
    arcs: np.ndarray
    leaving: np.ndarray


def _saying(fst: Fst, labels: Sequence[int]) -> Fst:
    """The paths of an FST that have these output labels."""
    source = fst.source()
    seen = np.zeros(fst.states, bool)
    layers: list[_Layer] = []
    entered = np.array([fst.start])
    total = 0
    for place, label in enumerate((*labels, 0)):
        states, arcs = _reached(fst, entered, seen)
        outputs = fst.arcs["olabel"][arcs]
        leaving = arcs[outputs == label] if label else arcs[:0]
        ends = source[leaving] if label else states[np.isfinite(fst.final[states])]
        states, inner = _leading(fst, source, states, arcs[outputs == 0], ends)
        total += len(states)
        check_limit("lattice", total, "the states of the graph of a text")
        if not len(states):
            what = f"word {place + 1} of {len(labels)} there" if label else "the end there"
            raise OpscopeError(f"the graph cannot say the text: no path leads to {what}")
        layers.append(_Layer(states, inner, leaving))
        entered = np.unique(fst.arcs["nextstate"][leaving])
    return _joined(fst, source, layers)


def _reached(fst: Fst, entered: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states that arcs without a word lead to, and all arcs that leave them; `seen` is clear
    before and after."""
    parts = [entered]
    leaving = [np.empty(0, np.int64)]
    front = entered
    seen[front] = True
    while len(front):
        _, arcs = spread(fst.begin[front], np.diff(fst.begin)[front])
        leaving.append(arcs)
        targets = fst.arcs["nextstate"][arcs[fst.arcs["olabel"][arcs] == 0]]
        front = np.unique(targets[~seen[targets]])
        seen[front] = True
        parts.append(front)
    states = np.sort(np.concatenate(parts))
    seen[states] = False
    return states, np.concatenate(leaving)


def _leading(
    fst: Fst, source: np.ndarray, states: np.ndarray, arcs: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The states from which some end is reached, and the arcs among them."""
    begin, end = (np.searchsorted(states, x) for x in (source[arcs], fst.arcs["nextstate"][arcs]))
    order = np.argsort(end, kind="stable")
    first = np.searchsorted(end[order], np.arange(len(states) + 1))
    good = np.zeros(len(states), bool)
    front = np.unique(np.searchsorted(states, ends))
    while len(front):
        good[front] = True
        _, which = spread(first[front], np.diff(first)[front])
        before = np.unique(begin[order[which]])
        front = before[~good[before]]
    return states[good], np.sort(arcs[good[begin] & good[end]])


def _joined(fst: Fst, source: np.ndarray, layers: Sequence[_Layer]) -> Fst:
    """One FST of all layers; states from which later words cannot be reached stay in it."""
    offsets = np.cumsum([0, *(len(layer.states) for layer in layers)])
    parts, sources = [], []
    for at, layer in enumerate(layers):
        for places, ahead in ((layer.arcs, 0), (layer.leaving, 1)):
            target = layers[min(at + ahead, len(layers) - 1)].states
            arcs = fst.arcs[places].copy()
            place = np.searchsorted(target, arcs["nextstate"])
            there = target[np.minimum(place, len(target) - 1)] == arcs["nextstate"]
            arcs, place = arcs[there], place[there]
            arcs["nextstate"] = offsets[at + ahead] + place if len(arcs) else 0
            parts.append(arcs)
            begin = np.searchsorted(layer.states, source[places[there]])
            sources.append(offsets[at] + begin)
    arcs, begins = np.concatenate(parts), np.concatenate(sources)
    order = np.argsort(begins, kind="stable")
    final = np.full(int(offsets[-1]), np.inf, np.float32)
    final[offsets[-2] :] = fst.final[layers[-1].states]
    begin = np.searchsorted(begins[order], np.arange(len(final) + 1)).astype(np.int64)
    start = int(np.searchsorted(layers[0].states, fst.start))
    if start == len(layers[0].states) or layers[0].states[start] != fst.start:
        raise OpscopeError("the graph cannot say the text: no path leads from its start")
    return Fst(start, final, begin, arcs[order])
