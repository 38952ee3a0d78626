"""New words in a grammar: arcs without a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.fst.arcs import ARC
from ...kaldi.fst.fst import EXPANDED, Fst, Header
from ...kaldi.fst.fst_properties import label_properties

NewLabel = tuple[int, int, str]
"""Input label, output label and text of a word that a grammar lacks."""


class Unigrams:
    """The words of a grammar that can come after any history.

    Args:
        name: of the grammar, for messages. backoff: the label of arcs to shorter histories.

    Attributes:
        state: where they leave, and where all shorter histories end.
        weight: the median of theirs.

    Raises:
        FormatError: there is no such state: the grammar has certain sentences alone.
    """

    def __init__(self, fst: Fst, name: str, backoff: int = 0) -> None:
        self._fst = fst
        state = fst.start
        for _ in range(fst.states):
            arcs = fst.arcs[fst.begin[state] : fst.begin[state + 1]]
            shorter = arcs["nextstate"][arcs["ilabel"] == backoff]
            if not len(shorter):
                break
            state = int(shorter[0])
        self.state = state
        self._arcs = arcs = fst.arcs[fst.begin[state] : fst.begin[state + 1]]
        loops = (fst.nextstate == state) & ((fst.ilabel == backoff) | (fst.source() == state))
        if not loops.any() or not (arcs["ilabel"] > 0).any():
            raise FormatError(
                f"{name}: the grammar has no state of words without a history, where new ones could"
                " be added: make its graph with make-graph"
            )
        self.weight = float(np.median(arcs["weight"][arcs["ilabel"] > 0]))

    def label(self, word: int) -> int | None:
        """The input label of a word by its output label; None: the word is not there."""
        found = self._arcs["ilabel"][self._arcs["olabel"] == word]
        return int(found[0]) if len(found) else None

    def with_words(self, words: Sequence[NewLabel], weight: float) -> Fst:
        """The grammar with more words."""
        fst, end = self._fst, self._fst.begin[self.state + 1]
        rows = [(ilabel, olabel, weight, self.state) for ilabel, olabel, _ in words]
        begin = fst.begin.copy()
        begin[self.state + 1 :] += len(rows)
        arcs = np.concatenate((fst.arcs[:end], np.array(rows, ARC), fst.arcs[end:]))
        return Fst(fst.start, fst.final, begin, arcs)


def with_header_of(fst: Fst, old: Fst, words: Sequence[NewLabel]) -> Fst:
    """A grammar with new words as a file has it; `old` is that of a file without these."""
    header = Header(properties=EXPANDED | label_properties(fst))
    for side, labels in (("input_symbols", 0), ("output_symbols", 1)):
        table = getattr(old.header, side)
        if table is not None:
            texts = {**table.texts, **{word[labels]: word[2] for word in words}}
            table = replace(table, texts=texts, available=max(texts) + 1)
        setattr(header, side, table)
    return replace(fst, header=header)
