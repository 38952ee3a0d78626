"""Phones in context: FSTs of phones composed with the transducer from windows of phones to phones.

That transducer is never made as a whole: its inverse is deterministic, and what it does in a state
is computed when a path first needs it. States and labels have the numbers that Kaldi gives them.

Source: Kaldi's `fstext/context-fst.cc`, `fstext/grammar-context-fst.cc`,
`fstext/deterministic-fst-inl.h`; Mohri, Pereira and Riley 2008, "Speech recognition with weighted
finite-state transducers".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.limits import check_limit, limit
from ..files.kaldi_io import Reader, Writer
from ..fst.algorithms import compiled
from ..fst.algorithms.operations import add_arcs
from ..fst.arcs import spread
from ..fst.fst import Fst
from .nonterminals import BEGIN, END, FIRST_NAME, REENTER

Window = tuple[int, ...]
"""A phone with those around it, 0 beyond either end of the utterance; or what else a label of
phones in context stands for: () for epsilon, (0,) for the symbol before the first phone,
(-s,) for the disambiguation symbol s, (-n, phone) for the nonterminal n after a phone."""

_ARC_BYTES = 64  # that an arc takes while a graph is made
BEGIN_SYMBOL: Window = (0,)
BEYOND = -1
"""The label that stands after the last phone."""


class Context:
    """From phones to windows of phones: what each symbol leads to in each state.

    Args:
        symbols: disambiguation symbols, which pass. width: phones of a window. central: the place
            of the phone that it stands for.

    Attributes:
        windows: what labels stand for, in the order in which they came up.
    """

    def __init__(self, symbols: Collection[int], width: int, central: int) -> None:
        if not 0 <= central < width:
            raise FormatError(f"place {central} in a window of {width} phones")
        check_limit("context", width, "the window of phones in context")
        self.windows: list[Window] = [()]
        self._labels: dict[Window, int] = {(): 0}
        self._central = central
        self._symbols = frozenset(symbols)
        self.looks_ahead = central < width - 1
        """Whether what stands last in a window comes later than its central phone."""
        self._states: list[Window] = []
        self._numbers: dict[Window, int] = {}
        self._state((0,) * (width - 1))
        # Symbols come earlier in windows than among phones. This one separates symbols before
        # the first phone from symbols after it.
        self._silent = self._label(BEGIN_SYMBOL) if self.looks_ahead and symbols else 0

    def _label(self, window: Window) -> int:
        label = self._labels.setdefault(window, len(self.windows))
        if label == len(self.windows):
            self.windows.append(window)
        return label

    def _state(self, history: Window) -> int:
        number = self._numbers.setdefault(history, len(self._states))
        if number == len(self._states):
            self._states.append(history)
        return number

    def step(self, state: int, symbol: int) -> tuple[int, int] | None:
        """The label and the state that a symbol gives; None: it cannot come there.

        Args:
            state: 0 at the beginning. symbol: a phone, a disambiguation symbol, or `BEYOND`.
        """
        if symbol in self._symbols:
            return self._label((-symbol,)), state
        history = self._states[state]
        if symbol == BEYOND:
            if history[self._central] == BEYOND:
                return None
        elif self.looks_ahead and history[-1] == BEYOND:
            return None
        whole = (*history, symbol)
        window = tuple(max(phone, 0) for phone in whole)
        label = self._label(window) if window[self._central] else self._silent
        return label, self._state(whole[1:])

    def ends(self, state: int) -> bool:
        """Whether a path may end in a state: no phone waits for its window to be full."""
        return not self.looks_ahead or self._states[state][self._central] == BEYOND

    @property
    def states(self) -> int:
        """How many states have come up."""
        return len(self._states)


def is_symbol(window: Window) -> bool:
    """Whether a label stands for a disambiguation symbol, or the one before the first phone."""
    return len(window) == 1 and window[0] <= 0


def read_windows(reader: Reader) -> list[Window]:
    """What labels stand for, as `fstcomposecontext` writes it.

    Raises:
        FormatError: the file is something else, or its first label is not epsilon.
    """
    start = reader.offset
    count = reader.read_int32()
    if not 1 <= count <= reader.remaining():
        raise reader.error(f"{count} labels of phones in context cannot follow here", start)
    windows = [tuple(reader.read_int_vector().tolist()) for _ in range(count)]
    if windows[0] or not all(windows[1:]):
        raise reader.error("the first label is not the one without phones, or another one is")
    return windows


def write_windows(windows: Sequence[Window], writer: Writer) -> None:
    """Write what labels stand for."""
    writer.write_int32(len(windows))
    for window in windows:
        writer.write_int_vector(np.array(window, np.int32))


class GrammarContext(Context):
    """The same for left biphones of graphs that call each other by nonterminals.

    Args:
        symbols: as of `Context`. offset: the phone `#nonterm_bos`; all phones are below it.
    """

    def __init__(self, symbols: Collection[int], offset: int) -> None:
        super().__init__(symbols, 2, 1)
        if offset < 1 or not {offset + kind for kind in range(FIRST_NAME)}.isdisjoint(symbols):
            raise FormatError(
                f"{offset} as the phone #nonterm_bos: a disambiguation symbol is a nonterminal"
            )
        self._offset = offset

    def step(self, state: int, symbol: int) -> tuple[int, int] | None:
        (here,) = self._states[state]
        offset = self._offset
        kind = symbol - offset
        if here in (offset + BEGIN, offset + FIRST_NAME):  # a graph begins, or goes on
            if kind > 0 or symbol in self._symbols:
                return None
            entered = offset + (BEGIN if here == offset + BEGIN else REENTER)
            return self._label((-entered, symbol)), self._state((symbol if kind else 0,))
        if here > offset:
            return None
        if symbol in self._symbols or kind < 0:
            return super().step(state, symbol)
        if kind == BEGIN and not here:
            return 0, self._state((symbol,))
        if kind == END or kind >= FIRST_NAME:
            label = self._label((-symbol, here or offset))
            return label, self._state((offset + min(kind, FIRST_NAME),))
        return None

    def ends(self, state: int) -> bool:
        here = self._states[state][0]
        return here < self._offset or here == self._offset + END


def compose_context(context: Context, fst: Fst) -> Fst:
    """The paths of an FST of phones with windows of phones in their place.

    States are numbered as they are reached: all that are equally far from the start at once.

    Args:
        context: gets the windows that come up. fst: its input labels are phones and symbols.

    Raises:
        FormatError: the graph grows beyond the limit `graph`.
    """
    if context.looks_ahead:
        fst = _with_end_symbol(fst)
    if fst.start < 0:
        return fst
    functions = compiled.library()
    if functions is None:
        return _Composition(context, fst).run()

    def answer(asked: Any) -> None:
        symbol, here = asked.symbol, asked.here
        step = context.step(here, symbol) if symbol else (0, here)
        asked.label, asked.there = step or (0, -1)
        asked.ends = step is not None and context.ends(step[1])

    block = compiled.fst_block(functions, fst)
    most = limit("graph") // _ARC_BYTES
    begin = {"label": 0, "there": 0, "ends": context.ends(0)}
    try:
        return compiled.make(
            functions, "context_composed", (), answer, fst=block, most=most, **begin
        )
    except compiled.Failed:
        _check_size(most + 1)
        raise


def _check_size(arcs: int) -> None:
    check_limit("graph", arcs * _ARC_BYTES, "the graph of phones in context")


def _with_end_symbol(fst: Fst) -> Fst:
    """With the label that stands after the last phone, as often as a window wants it."""
    ends = np.flatnonzero(~np.isinf(fst.final))
    source = np.append(ends, fst.states)
    end = np.full(len(source), fst.states)
    weight, final = np.append(fst.final[ends], 0), np.append(fst.final, 0)
    return add_arcs(fst, source, end, ilabel=BEYOND, weight=weight, final=final)


class _Composition:
    """Composed states are one number each: the context's state, then the FST's."""

    def __init__(self, context: Context, fst: Fst) -> None:
        self._context = context
        self._fst = fst
        self._counts = np.diff(fst.begin)
        self._steps: dict[int, tuple[int, int]] = {}
        self._span = int(fst.ilabel.max(initial=0)) + 2  # `BEYOND` and all labels
        self._number: dict[int, int] = {}  # of composed states

    def run(self) -> Fst:
        fst = self._fst
        level = np.array([fst.start])
        self._numbered(level)
        levels: list[np.ndarray] = []
        parts: list[tuple[np.ndarray, ...]] = []
        done = made = 0
        while len(level):
            state, here = level % fst.states, level // fst.states
            levels.append(level)
            owner, arc = spread(fst.begin[state], self._counts[state])
            label, there = self._stepped(here[owner], fst.ilabel[arc])
            kept = np.flatnonzero(there >= 0)
            owner, arc, label = owner[kept], arc[kept], label[kept]
            key = there[kept] * fst.states + fst.nextstate[arc]
            target, fresh = self._numbered(key)
            parts.append((owner + done, label, arc, target))
            done += len(level)
            level = fresh
            made += len(arc)
            _check_size(made)
        source, label, arc, target = (np.concatenate(part) for part in zip(*parts, strict=True))
        keys = np.concatenate(levels)
        ends = np.array([self._context.ends(at) for at in range(self._context.states)])
        final = np.where(ends[keys // fst.states], fst.final[keys % fst.states], np.float32(np.inf))
        return Fst.of_arcs(source, label, fst.weight[arc], target, final, fst.olabel[arc])

    def _stepped(self, here: np.ndarray, symbol: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The labels and states of the context that symbols give in its states; -1: none."""
        pair = here * self._span + symbol - BEYOND
        distinct, first, which = np.unique(pair, return_index=True, return_inverse=True)
        steps = self._steps
        for at in np.sort(first).tolist():  # numbers are given in the order of arcs
            key = int(pair[at])
            if key not in steps:
                symbol_here = int(symbol[at])
                state = int(here[at])
                step = self._context.step(state, symbol_here) if symbol_here else (0, state)
                steps[key] = (0, -1) if step is None else step
        table = np.array([steps[key] for key in distinct.tolist()], np.int64).reshape(-1, 2)
        label, there = table[which.ravel()].T
        return label, there

    def _numbered(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of composed states, and those states that are new, as they come."""
        known = len(self._number)
        number = [self._number.setdefault(key, len(self._number)) for key in keys.tolist()]
        fresh = list(itertools.islice(reversed(self._number), len(self._number) - known))[::-1]
        return np.array(number, np.int64), np.array(fresh, np.int64)
