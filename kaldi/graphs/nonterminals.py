"""Labels of nonterminals in graphs that call each other: their numbers, and what they stand for.

Source: Kaldi's `fstext/grammar-context-fst.h`.
"""

from __future__ import annotations

BEGIN, END, REENTER, FIRST_NAME = 1, 2, 3, 4
"""Symbols by how far they are beyond the phone `#nonterm_bos`; names of graphs follow."""
FIRST_LABEL = 10_000_000
"""Input labels of graphs from here on stand for a nonterminal and the phone before it."""
_MULTIPLE = 1000


def multiple(offset: int) -> int:
    """How far the labels of two nonterminals are apart. `offset`: the phone `#nonterm_bos`."""
    return (offset // _MULTIPLE + 1) * _MULTIPLE


def label_of(nonterminal: int, phone: int, offset: int) -> int:
    """The input label of a nonterminal after a phone."""
    return FIRST_LABEL + nonterminal * multiple(offset) + phone
