"""Grammars of several graphs, which call each other: Kaldi's GrammarFst, expanded as a search goes.

A graph calls another one by an arc to a state whose arcs return: input labels above ten million
name the nonterminal and the phone to the left, so that phones keep their left context across
graphs. Each call of a graph is an instance of it, and states are pairs of instance and state: left
and right recursion are possible. Source: Kaldi's `decoder/grammar-fst.h`,
`fstext/grammar-context-fst.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.python.cached import cached_property
from ...framework.base.sequence import repeated
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.fst.arcs import spread
from ...kaldi.fst.files.fst_io import read_fst
from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.nonterminals import BEGIN, END, FIRST_LABEL, FIRST_NAME, REENTER, multiple
from .composition import StateArcs
from .graph import Graph

SPECIAL = np.float32(4096)
"""The final cost of states whose arcs lead to other graphs."""
_LOW = 0xFFFFFFFF
_Arc = tuple[int, np.float32, int]
"""Output label, weight, next state."""


@dataclass(eq=False)
class GrammarGraph:
    """The top graph of a grammar and the graphs of its nonterminals, as the arcs of one FST.

    Attributes:
        fst: all graphs, the states of one after the states of another; the top graph is first.
        starts: the start state of the top graph, then of each nonterminal's (-1: it is empty).
        nonterminals: the number of the graph, from 1 on, by nonterminal.
        offset: the phone `#nonterm_bos`.
        name: of the file, for messages.
    """

    fst: Fst
    starts: list[int]
    nonterminals: dict[int, int]
    offset: int
    name: str

    @classmethod
    def read(cls, reader: Reader) -> GrammarGraph:
        """The grammar in a file of Kaldi's `make-grammar-fst`.

        Raises:
            FormatError: it is none, or its graphs do not fit each other.
        """
        start = reader.offset
        reader.expect_token("<GrammarFst>")
        version, count, offset = (reader.read_int32() for _ in range(3))
        if not reader.binary or version != 1 or count < 0 or offset < 2:
            raise reader.error(f"a grammar of form {version}, {count} graphs, {offset}", start)
        parts = [read_fst(reader)]
        nonterminals: dict[int, int] = {}
        for number in range(1, count + 1):
            name = reader.read_int32()
            if name in nonterminals or name < offset + FIRST_NAME:
                raise reader.error(f"the nonterminal {name} is used twice, or no phone for one")
            nonterminals[name] = number
            parts.append(read_fst(reader))
        reader.expect_token("</GrammarFst>")
        return cls.of(parts, nonterminals, offset, reader.name)

    @classmethod
    def of(
        cls, parts: list[Fst], nonterminals: dict[int, int], offset: int, name: str
    ) -> GrammarGraph:
        """The grammar of graphs, the top one first; see the attributes.

        Raises:
            FormatError: the top graph is empty, or a graph does not begin as Kaldi's do.
        """
        if parts[0].start < 0:
            raise FormatError(f"{name}: the top graph of the grammar is empty")
        base = np.cumsum([0, *(part.states for part in parts)])
        arcs = np.concatenate([part.arcs for part in parts])
        arcs["nextstate"] += repeated(base[:-1], [len(part.arcs) for part in parts])
        counts = np.concatenate([np.diff(part.begin) for part in parts])
        begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        final = np.concatenate([part.final for part in parts])
        starts = [
            int(part.start + at) if part.start >= 0 else -1
            for part, at in zip(parts, base[:-1], strict=True)
        ]
        graph = cls(Fst(starts[0], final, begin, arcs), starts, nonterminals, offset, name)
        for entry in starts[1:]:
            if entry >= 0:
                graph.arcs_by_phone(entry, BEGIN)
        return graph

    @cached_property
    def largest(self) -> int:
        """The largest transition-id."""
        labels = self.fst.arcs["ilabel"]
        return int(labels[labels < FIRST_LABEL].max(initial=0))

    @cached_property
    def kept(self) -> dict[type[Any], Any]:
        """What searches of this graph made and share, by its class."""
        return {}

    def symbol(self, label: int) -> tuple[int, int]:
        """The nonterminal, counted from `offset`, and the phone to the left of an input label.

        Raises:
            FormatError: it has none.
        """
        kind, phone = divmod(label - FIRST_LABEL, multiple(self.offset))
        if kind <= self.offset or not 0 < phone <= self.offset:
            raise FormatError(f"{self.name}: the label {label} is no nonterminal with a phone")
        return kind - self.offset, phone

    def arcs_by_phone(self, state: int, kind: int) -> dict[int, _Arc]:
        """The arcs of a state by the phone to the left, all of one kind of nonterminal.

        Raises:
            FormatError: they are of another kind, or two are of one phone.
        """
        found: dict[int, _Arc] = {}
        arcs = self.fst.arcs[self.fst.begin[state] : self.fst.begin[state + 1]]
        for label, olabel, weight, target in arcs.tolist():
            known, phone = self.symbol(label)
            if known != kind or phone in found:
                raise FormatError(
                    f"{self.name}: a state where a graph is entered or continued has the label"
                    f" {label}: #nonterm_begin or #nonterm_reenter for each phone once is wanted"
                )
            found[phone] = olabel, np.float32(weight), target
        return found


SearchGraph = Graph | GrammarGraph
"""What a search goes through."""


@dataclass
class _Instance:
    """A call of a graph: the instance to return to, and the arcs that go on there, by phone."""

    parent: int
    returns: dict[int, _Arc]


class GrammarArcs:
    """The arcs of pairs of instance and state, of many at once; see `Composition`."""

    def __init__(self, graph: GrammarGraph) -> None:
        self._graph = graph
        self._instances = [_Instance(-1, {})]
        self._children: dict[tuple[int, int, int], int] = {}
        self._entries: dict[int, dict[int, _Arc]] = {}

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys of the start state, [1] each."""
        return np.array([self._graph.fst.start]), np.zeros(1, np.int64)

    def finals(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32, by their keys: only the top graph ends."""
        costs = self._graph.fst.final[first & _LOW]
        return np.where((first >> 32 == 0) & (costs != SPECIAL), costs, np.float32(np.inf))

    def arcs(self, first: np.ndarray, second: np.ndarray) -> StateArcs:
        """The arcs of states, by their keys.

        Raises:
            FormatError: a call leads nowhere.
        """
        fst = self._graph.fst
        instance, state = first >> 32, first & _LOW
        special = fst.final[state] == SPECIAL
        counts = np.where(special, 0, fst.begin[state + 1] - fst.begin[state])
        which, place = spread(fst.begin[state], counts)
        owner = which
        plain = fst.arcs[place]
        ilabel, olabel = plain["ilabel"], plain["olabel"]
        weight = plain["weight"]
        target = instance[which] << 32 | plain["nextstate"].astype(np.int64)
        for at in np.flatnonzero(special).tolist():
            called = self._expanded(int(instance[at]), int(state[at]))
            counts[at] = len(called)
            owner = np.append(owner, np.full(len(called), at))
            ilabel = np.append(ilabel, np.zeros(len(called), np.int32))
            labels, weights, targets = zip(*called, strict=True) if called else ((), (), ())
            olabel = np.append(olabel, np.array(labels, np.int32))
            weight = np.append(weight, np.array(weights, np.float32))
            target = np.append(target, np.array(targets, np.int64))
        order = np.argsort(owner, kind="stable")
        return StateArcs(
            counts, ilabel[order], olabel[order], weight[order], target[order], order * 0
        )

    def _expanded(self, instance: int, state: int) -> list[_Arc]:
        """The arcs of a state that calls a graph or returns; next states are keys."""
        graph = self._graph
        arcs = graph.fst.arcs[graph.fst.begin[state] : graph.fst.begin[state + 1]].tolist()
        if any(olabel for _, olabel, _, _ in arcs):
            raise FormatError(f"{graph.name}: an arc out of a graph has a word")
        found: list[_Arc] = []
        for label, _, weight, target in arcs:
            kind, phone = graph.symbol(label)
            if kind == END and instance:
                there = self._instances[instance].parent
                entries = self._instances[instance].returns
            elif kind >= FIRST_NAME:
                there = self._child(instance, kind, target)
                entries = self._entered(kind)
                if not entries:
                    continue  # the empty graph
            else:
                raise FormatError(f"{graph.name}: the label {label} leads out of no graph")
            if phone not in entries:
                raise FormatError(
                    f"{graph.name}: the label {label} comes with the phone {phone}, which the graph"
                    " that continues does not expect"
                )
            olabel, entering, after = entries[phone]
            # The choice among phones, which has its cost in either graph, is none.
            cost = np.float32(-np.log(len(entries))) + np.float32(weight) + entering
            found.append((olabel, cost, there << 32 | after))
        return found

    def _child(self, instance: int, kind: int, state: int) -> int:
        """The instance that a call from `instance` is, which returns to `state`."""
        key = instance, kind, state
        if key not in self._children:
            self._children[key] = len(self._instances)
            returns = self._graph.arcs_by_phone(state, REENTER)
            self._instances.append(_Instance(instance, returns))
        return self._children[key]

    def _entered(self, kind: int) -> dict[int, _Arc]:
        """The arcs into a nonterminal's graph, by the phone before."""
        if kind not in self._entries:
            name = kind + self._graph.offset
            number = self._graph.nonterminals.get(name)
            if number is None:
                raise FormatError(f"{self._graph.name}: the nonterminal {name} has no graph")
            start = self._graph.starts[number]
            found = self._graph.arcs_by_phone(start, BEGIN) if start >= 0 else {}
            self._entries[kind] = found
        return self._entries[kind]
