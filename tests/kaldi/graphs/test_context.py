"""Phones in context: what Kaldi makes of the same FSTs, to the number of each state and label."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import random_transducer, rows
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.fst.algorithms import compiled
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.graphs.context import (
    Context,
    GrammarContext,
    compose_context,
    read_windows,
    write_windows,
)
from opscope.nnet3.programs.base.graphs import open_fst, save_fst

SYMBOLS = [4, 5]
PLACES = [(1, 0), (2, 1), (2, 0), (3, 1), (3, 2), (4, 1)]


@pytest.mark.parametrize("symbols", [SYMBOLS, []])
@pytest.mark.parametrize(("width", "central"), PLACES)
def test_as_kaldi(width, central, symbols, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    rng = np.random.default_rng(width * 10 + central)
    labels = 5 if symbols else 3
    path = str(tmp_path / "fst")
    for loops in (False, True):
        fst = random_transducer(rng, arcs=20, labels=labels, loops=loops)
        context = Context(symbols, width, central)
        made = compose_context(context, fst)
        save_fst(fst, path)
        theirs, windows = kaldifst.compose_context(
            symbols, width, central, kaldifst.StdVectorFst.read(path)
        )
        theirs.write(path)
        wanted = open_fst(path)
        assert context.windows == [tuple(window) for window in windows]
        assert rows(made) == rows(wanted)
        assert np.array_equal(made.final, wanted.final)


@pytest.mark.skipif(compiled.library() is None, reason="no compiler")
@pytest.mark.parametrize(("width", "central"), PLACES)
def test_c_is_python(width, central, monkeypatch):
    found = []
    for _ in range(2):
        rng = np.random.default_rng(width)
        for loops in (False, True):
            context = Context(SYMBOLS, width, central)
            fst = random_transducer(rng, arcs=20, labels=5, loops=loops)
            made = compose_context(context, fst)
            found.append((context.windows, rows(made), made.final.tolist()))
        monkeypatch.setattr(compiled, "library", lambda *_: None)
    assert found[:2] == found[2:]


def test_an_error_in_between():
    context = Context(SYMBOLS, 2, 1)
    context.step = lambda *_: {}[1]
    with pytest.raises(KeyError):
        compose_context(context, linear([1, 2]))


def linear(labels):
    count = len(labels)
    final = np.append(np.full(count, np.inf), 0)
    return Fst.of_arcs(np.arange(count), labels, np.zeros(count), np.arange(1, count + 1), final)


def test_symbols_pass():
    """The example in the source of Kaldi's program."""
    context = Context(SYMBOLS, 3, 1)
    made = compose_context(context, linear([1, 2, 4, 3, 5]))
    said = [context.windows[label] for label in made.ilabel]
    assert said == [(0,), (0, 1, 2), (-4,), (1, 2, 3), (-5,), (2, 3, 0)]
    assert made.olabel.tolist() == [1, 2, 4, 3, 5, 0]


BOS = 6
BEGIN, END, REENTER, NAMED = (BOS + kind for kind in range(1, 5))


@pytest.mark.parametrize(
    ("phones", "windows"),
    [
        ([1, 4, 2], [(0, 1), (-4,), (1, 2)]),
        ([BEGIN, 1, 2, END], [(), (-BEGIN, 1), (1, 2), (-END, 2)]),
        ([1, NAMED + 3, 2], [(0, 1), (-NAMED - 3, 1), (-REENTER, 2)]),
        ([NAMED, BOS, 2], [(-NAMED, BOS), (-REENTER, BOS), (0, 2)]),
        ([1, BEGIN], None),  # a graph begins at its start alone
        ([NAMED, END], None),
        ([END, 1], None),
    ],
)
def test_nonterminals(phones, windows):
    context = GrammarContext([4], BOS)
    made = compose_context(context, linear(phones))
    if windows is None:
        assert np.isinf(made.final).all()
    else:
        assert [context.windows[label] for label in made.ilabel] == windows
        assert made.final[-1] == 0


def test_windows_in_files():
    windows = [(), (0,), (-4,), (1, 2, 3), (0, 1, 0)]
    for binary in (True, False):
        writer = Writer(binary)
        write_windows(windows, writer)
        assert read_windows(Reader(writer.getvalue())) == windows
    for text in ("2 [ 1 ] [ ]\n", "3 [ ]\n", "0"):
        with pytest.raises(FormatError):
            read_windows(Reader(text.encode()))


def test_limits(monkeypatch):
    with pytest.raises(FormatError, match="place 2 in a window of 2"):
        Context([], 2, 2)
    with pytest.raises(FormatError, match="is a nonterminal"):
        GrammarContext([END], BOS)
    monkeypatch.setenv("OPSCOPE_LIMITS", "graph=100")
    with pytest.raises(FormatError, match="phones in context: .* bytes, beyond the limit of 100"):
        compose_context(Context([], 1, 0), linear([1, 2]))
