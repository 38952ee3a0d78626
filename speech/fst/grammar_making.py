"""Files of grammars made: graphs prepared to call each other, written together or as one graph.

`grammar_graph` reads and searches them.

Source: Kaldi's `decoder/grammar-fst.cc`, `fstext/grammar-context-fst.h`; OpenFst's `const-fst.h`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.limits import check_limit
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.fst.arcs import ARC, Arc
from ...kaldi.fst.files.fst_io import CONST, write_fst
from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.nonterminals import BEGIN, END, FIRST_LABEL, FIRST_NAME, REENTER
from .grammar_graph import SPECIAL, GrammarArcs, GrammarGraph
from .key_table import KeyTable

_Category = tuple[int, int, int]
"""Where an arc leads out of the graph: the nonterminal, the state that a call returns to, the
word; 0 within the graph."""
_WITHIN = 0, -1, 0


def prepared(fst: Fst, offset: int, name: str) -> Fst:
    """The graph of a grammar as a grammar's file wants it.

    States that call graphs or return call one alone, without a word, and have the final cost that
    marks them; arcs without labels lead to them where a state does more. Arcs that return lead to
    an end without a cost, and the graph has one arc for each phone to the left that it begins with.

    Args:
        fst: a whole graph, HCLG. offset: the phone `#nonterm_bos`. name: for messages.

    Raises:
        FormatError: it is empty or prepared already, or the labels of nonterminals stand where none
            can be.
    """
    if fst.start < 0:
        raise FormatError(f"{name}: the graph is empty")
    if (fst.final == SPECIAL).any():
        raise FormatError(f"{name}: the graph is prepared for grammars already")
    return _Preparation(fst, offset, name).run()


class _Preparation:
    def __init__(self, fst: Fst, offset: int, name: str) -> None:
        self._labels = GrammarGraph(fst, [fst.start], {}, offset, name)
        self._name = name
        self._start = fst.start
        arcs = fst.arcs.tolist()
        begin = fst.begin.tolist()
        self._arcs: list[list[Arc]] = [
            arcs[low:high] for low, high in zip(begin[:-1], begin[1:], strict=True)
        ]
        self._final: list[float] = fst.final.tolist()
        self._end = -1

    def run(self) -> Fst:
        for state, arcs in enumerate(self._arcs):  # grows in the loop
            if all(arc[0] < FIRST_LABEL for arc in arcs):
                continue
            categories = {self._category(arc) for arc in arcs}
            if self._final[state] < math.inf:
                categories.add(_WITHIN)
            self._check(state, categories)
            if len(categories) > 1 or next(iter(categories))[2]:
                self._part(state, sorted(categories - {_WITHIN}))
            else:
                self._mark(state, next(iter(categories))[0])
        return Fst.of_lists(self._arcs, self._final, self._start)

    def _kind(self, arc: Arc) -> int:
        """The nonterminal of an arc, counted from the offset; 0: none."""
        return self._labels.symbol(arc[0])[0] if arc[0] >= FIRST_LABEL else 0

    def _category(self, arc: Arc) -> _Category:
        kind = self._kind(arc)
        called = kind >= FIRST_NAME
        return kind, arc[3] if called else -1, arc[1] if called or kind == END else 0

    def _check(self, state: int, categories: set[_Category]) -> None:
        """Refuse nonterminals where none can be."""
        kinds = {kind for kind, _, _ in categories}
        if len(categories) > 1 and kinds & {BEGIN, REENTER}:
            raise FormatError(
                f"{self._name}: state {state} has arcs of #nonterm_begin or #nonterm_reenter beside"
                " others"
            )
        if BEGIN in kinds and state != self._start:
            raise FormatError(f"{self._name}: #nonterm_begin is in state {state}, not at the start")
        for arc in self._arcs[state]:
            kind, after = self._kind(arc), self._arcs[arc[3]]
            if kind >= FIRST_NAME and (not after or self._kind(after[0]) != REENTER):
                raise FormatError(
                    f"{self._name}: no #nonterm_reenter follows the label {arc[0]} of state {state}"
                )
            if kind == END and (after or self._final[arc[3]] == math.inf):
                raise FormatError(f"{self._name}: #nonterm_end of state {state} is not at an end")

    def _new(self, final: float = math.inf) -> int:
        self._arcs.append([])
        self._final.append(final)
        return len(self._arcs) - 1

    def _part(self, state: int, categories: Iterable[_Category]) -> None:
        """Move the arcs that lead out of the graph to new states, one for each category."""
        arcs = self._arcs[state]
        leading: list[Arc] = []
        for category in categories:
            mine = [arc for arc in arcs if self._category(arc) == category]
            cost = _sum(mine)
            new = self._new()
            self._arcs[new] = [(arc[0], 0, arc[2] - cost, arc[3]) for arc in mine]
            leading.append((0, category[2], cost, new))
        self._arcs[state] = leading + [arc for arc in arcs if not self._kind(arc)]

    def _mark(self, state: int, kind: int) -> None:
        """A state all of whose arcs lead out of the graph in one way, or into it."""
        if kind == END:
            self._arcs[state] = [self._to_a_free_end(arc) for arc in self._arcs[state]]
        if kind == END or kind >= FIRST_NAME:
            self._final[state] = float(SPECIAL)
        elif kind == BEGIN:
            self._join_phones(state)

    def _to_a_free_end(self, arc: Arc) -> Arc:
        cost = self._final[arc[3]]
        if not cost:
            return arc
        if self._end < 0:
            self._end = self._new(0.0)
        return arc[0], arc[1], arc[2] + cost, self._end

    def _join_phones(self, state: int) -> None:
        """One arc for each input label; where there are several, those without a label follow."""
        groups: dict[int, list[Arc]] = {}
        for arc in self._arcs[state]:
            groups.setdefault(arc[0], []).append(arc)
        joined: list[Arc] = []
        for label, arcs in groups.items():
            if len(arcs) == 1:
                joined += arcs
                continue
            cost = _sum(arcs)
            new = self._new()
            self._arcs[new] = [(0, word, weight - cost, after) for _, word, weight, after in arcs]
            joined.append((label, 0, cost, new))
        self._arcs[state] = joined


def _sum(arcs: Iterable[Arc]) -> float:
    """The weight that stands for the sum of the probabilities of arcs."""
    return -float(np.logaddexp.reduce([-arc[2] for arc in arcs]))


def write_grammar(
    top: Fst, parts: dict[int, Fst], offset: int, writer: Writer, *, vectors: bool = False
) -> None:
    """Write a grammar as Kaldi's `GrammarFst`.

    Args:
        top: the graph that calls others. parts: the graph of each nonterminal, by its phone.
        offset: the phone `#nonterm_bos`.
        vectors: write the graphs as OpenFst's `vector`, which only Kaldi's `VectorGrammarFst`
            reads, in place of `const`.
    """
    writer.write_token("<GrammarFst>")
    for number in (1, len(parts), offset):
        writer.write_int32(number)
    for name, fst in ((None, top), *parts.items()):
        if name is not None:
            writer.write_int32(name)
        if vectors:
            write_fst(fst, writer, "vector")
        else:
            write_fst(fst, writer, CONST)
    writer.write_token("</GrammarFst>")


def expanded(graph: GrammarGraph) -> Fst:
    """A grammar as one graph, whose calls are copies of the graphs that they call.

    Raises:
        FormatError: a call leads nowhere; or the graph grows beyond the limit `alternatives`, as
            one does that calls itself.
    """
    calls, numbers = GrammarArcs(graph), KeyTable(2)
    border = calls.start()
    numbers.numbers(*border)
    finals, counts, arcs = [], [], []
    while len(border[0]):
        made, known = calls.arcs(*border), numbers.count
        rows = np.empty(len(made.ilabel), ARC)
        for name in ("ilabel", "olabel", "weight"):
            rows[name] = getattr(made, name)
        rows["nextstate"] = numbers.numbers(made.first, made.second)
        check_limit("alternatives", numbers.count, "the states of a grammar as one graph")
        arcs.append(rows)
        finals.append(calls.finals(*border))
        counts.append(made.counts)
        first, second = numbers.keys
        new = np.arange(known, numbers.count)
        border = first[new], second[new]
    begin = np.cumsum([0, *np.concatenate(counts)]).astype(np.int64)
    return Fst(0, np.concatenate(finals).astype(np.float32), begin, np.concatenate(arcs))
