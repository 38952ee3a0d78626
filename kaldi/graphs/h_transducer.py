"""The transducer from transition-ids to phones in context, without self-loops.

One state is where all HMMs begin and end, each of which it holds once; labels whose HMMs are equal
share one.

Source: Kaldi's `GetHTransducer` and `GetHmmAsFsa` in `hmm/hmm-utils.cc`, `MakeLoopFst` in
`fstext/fstext-utils-inl.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...framework.base.errors import FormatError
from ..fst.algorithms.acceptors import Arc as HmmArc
from ..fst.algorithms.acceptors import acceptor
from ..fst.algorithms.local_epsilons import remove_epsilons_locally
from ..fst.arcs import Arc
from ..fst.fst import Fst
from .context import Window, is_symbol
from .hmms import PhoneHmms
from .nonterminals import label_of


def h_transducer(
    windows: Sequence[Window], hmms: PhoneHmms, *, scale: float = 1.0, offset: int = 0
) -> tuple[Fst, list[int]]:
    """The transducer, and the labels that disambiguation symbols have in it.

    Args:
        windows: what its output labels stand for. scale: of the probabilities of transitions.
        offset: the phone `#nonterm_bos`, where there are nonterminals.

    Raises:
        FormatError: the tree has no output for a window, or the model no such state; or a window
            is something else.
    """
    made = _Loop(hmms, scale)
    symbols: list[int] = []
    for label, window in enumerate(windows):
        if is_symbol(window):
            symbols.append(hmms.count + len(symbols))
            made.add_single(symbols[-1], label)
        elif window and window[0] < 0:
            if not -window[0] > offset >= window[-1] > 0 or not offset or len(window) != 2:
                raise FormatError(
                    f"the label {label} stands for {window}: a nonterminal and a phone up to"
                    f" #nonterm_bos, the phone {offset}, are wanted"
                )
            made.add_single(label_of(-window[0], window[1], offset), label)
        elif window:
            made.add(hmms.of_window(window), label)
    return made.fst(), symbols


class _Loop:
    """State 0, and what leads from it back to it."""

    def __init__(self, hmms: PhoneHmms, scale: float) -> None:
        self._hmms = hmms.hmms
        self._scale = np.float32(scale)
        self._arcs: list[list[Arc]] = [[]]
        self._entries: dict[int, tuple[int, float, int]] = {}

    def add_single(self, ilabel: int, olabel: int) -> None:
        """A path of one arc."""
        end = len(self._arcs)
        self._arcs[0].append((ilabel, olabel, 0.0, end))
        self._arcs.append([(0, 0, 0.0, 0)])

    def add(self, number: int, olabel: int) -> None:
        """An HMM."""
        entry = self._entries.get(number)
        if entry is None:
            entry = self._entries[number] = self._copied(self._hmms[number])
        ilabel, weight, target = entry
        self._arcs[0].append((ilabel, olabel, weight, target))

    def _copied(self, states: list[list[HmmArc]]) -> tuple[int, float, int]:
        """Put an HMM there; returns the label, weight and target of the arc that leads into it."""
        final = np.full(len(states), np.inf)
        final[-1] = 0
        fst = acceptor(states, final)
        if (fst.ilabel == 0).any():
            fst = remove_epsilons_locally(fst)
        weight = (fst.weight * self._scale).tolist()
        entered = bool((fst.nextstate == fst.start).any())
        is_shared = not entered and np.diff(fst.begin)[fst.start] == 1 and fst.final[0] == np.inf
        base = len(self._arcs) - is_shared
        self._arcs += [[] for _ in range(fst.states - is_shared)]
        source = fst.source().tolist()
        columns = source, fst.ilabel.tolist(), weight, fst.nextstate.tolist()
        entry = 0, 0.0, base
        for state, label, cost, target in zip(*columns, strict=True):
            if is_shared and state == fst.start:
                entry = label, cost, base + target
            else:
                self._arcs[base + state].append((label, 0, cost, base + target))
        for state in np.flatnonzero(~np.isinf(fst.final)).tolist():
            self._arcs[base + state].append((0, 0, float(fst.final[state] * self._scale), 0))
        return entry

    def fst(self) -> Fst:
        return Fst.of_lists(self._arcs, [0.0, *[np.inf] * (len(self._arcs) - 1)])
