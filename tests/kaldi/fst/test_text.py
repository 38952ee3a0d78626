"""Text of FSTs with words: what is read and printed, against kaldifst, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import random_transducer, rows
from opscope.framework.base.errors import FormatError
from opscope.kaldi.fst.files.text import FstCompiler, parse_symbols, print_fst
from opscope.nnet3.programs.base.graphs import open_fst

TEXT = "4 7 a x 0.1\n4 5 b y\n7 1 a x 1e-3\n\n 1 0.333333343\n3\n"
PRINTED = "0\t1\ta\tx\t0.100000001\n0\t2\tb\ty\n1\t3\ta\tx\t0.00100000005\n2\tInfinity\n"
SYMBOLS = "<eps> 0\na 1\nb 2\nx 3\ny 4\n"


def table(name="words.txt"):
    return parse_symbols(SYMBOLS, name)


def test_words_and_numbers_of_states():
    fst = FstCompiler(table(), table()).compile(TEXT, "t")
    assert print_fst(fst, table(), table()) == PRINTED + "3\t0.333333343\n4\n"
    kept = FstCompiler(table(), table(), keep_numbers=True).compile(TEXT, "t")
    assert (kept.start, kept.states) == (4, 8) and np.isfinite(kept.final).nonzero()[
        0
    ].tolist() == [1, 3]


def test_acceptors():
    fst = FstCompiler(table(), acceptor=True).compile("0 1 a\n1 1 b 2\n1\n", "t")
    assert fst.olabel.tolist() == fst.ilabel.tolist() == [1, 2]
    text = print_fst(fst, table(), acceptor=True, show_weight_one=True)
    assert text == "0\t1\ta\t0\n1\t1\tb\t2\n1\t0\n"


@pytest.mark.parametrize("seed", range(4))
def test_states_are_numbered_as_by_openfst(seed, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    text = print_fst(random_transducer(np.random.default_rng(seed), loops=True))
    lines = text.splitlines(keepends=True)
    text = "".join(np.random.default_rng(seed).permutation(lines))
    kaldifst.compile(text).write(str(tmp_path / "x.fst"))
    wanted, found = open_fst(str(tmp_path / "x.fst")), FstCompiler().compile(text, "t")
    assert (found.start, rows(found)) == (wanted.start, rows(wanted))
    np.testing.assert_array_equal(found.final, wanted.final)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0 1 a x\n0 1 a\n", "t: line 2: 'from to ilabel olabel"),
        ("0 1 a z\n", "t: line 1: 'z' is none of the symbols of words.txt"),
        ("0 1 a x y\n", "t: line 1: 'y' is no weight"),
        ("0 1 a x nan\n", "t: line 1: 'nan' is no weight"),
        ("s 1 a x\n", "t: line 1: 's' is no whole number"),
        ("0 -1 a x\n", "t: line 1: '-1' is no whole number"),
    ],
)
def test_mistakes(text, part):
    with pytest.raises(FormatError, match=part):
        FstCompiler(table(), table()).compile(text, "t")


def test_other_mistakes():
    with pytest.raises(FormatError, match="a state 1000000, but far fewer lines"):
        FstCompiler(keep_numbers=True).compile("0 1000000 1 1\n", "t")
    with pytest.raises(FormatError, match="words.txt: no symbol has the label 9"):
        print_fst(FstCompiler().compile("0 1 9 9\n1\n", "t"), table())
    for lines, part in (("a 1\nb\n", "line 2: a symbol and"), ("a 1\nb 1\n", "line 2: .* twice")):
        with pytest.raises(FormatError, match=part):
            parse_symbols(lines, "w")
