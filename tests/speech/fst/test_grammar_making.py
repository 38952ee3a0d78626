"""make-grammar-fst: graphs prepared to call each other, in one file and as one graph."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fst_relations import relation
from kaldi_models import call_main, done
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.fst.files.fst_io import CONST, write_fst
from opscope.kaldi.tables.streams import open_reader
from opscope.nnet3.programs.base.graphs import open_fst
from opscope.speech.fst.grammar_graph import GrammarGraph
from opscope.speech.fst.grammar_making import expanded, prepared
from speech_graphs import arc_fst, const_bytes, vector_bytes

BOS = 5  # after four phones
BEGIN, END, REENTER, NAMED = (BOS + kind for kind in range(1, 5))
EVEN = math.log(BOS)


def symbol(kind, phone):
    return 10_000_000 + 1000 * kind + phone


def entered(kind, target, cost=EVEN):
    """Arcs for each phone that may come before, one of which has all of the probability."""
    return [(symbol(kind, phone), 0, cost, target) for phone in range(1, BOS + 1)]


TOP = arc_fst(
    [
        [(2, 1, 1.0, 1)],
        # a word and a call, another word, or the end
        [(symbol(NAMED, 2), 9, 0.5, 2), (3, 5, 0.25, 3)],
        entered(REENTER, 3),
        [],
    ],
    {1: 8.0, 3: 0.125},
)
TWICE = math.log(2)
PART = arc_fst(
    [
        [*entered(BEGIN, 1, EVEN + TWICE), *entered(BEGIN, 2, EVEN + TWICE)],
        [(1, 6, 0.5, 3)],
        [(1, 7, 1.5, 3)],
        [(symbol(END, 1), 0, 0.25, 4)],
        [],
    ],
    {4: 0.75},
)
SAID = {
    ((2,), (1,)): 1.0 + 8.0,
    ((2, 3), (1, 5)): 1.0 + 0.25 + 0.125,
    ((2, 1), (1, 9, 6)): 1.0 + 0.5 + TWICE + 0.5 + 0.25 + 0.75 + 0.125,
    ((2, 1), (1, 9, 7)): 1.0 + 0.5 + TWICE + 1.5 + 0.25 + 0.75 + 0.125,
}
PROGRAM = "make-grammar-fst", f"--nonterm-phones-offset={BOS}"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, fst in (("top", TOP), ("part", PART)):
        Path(name).write_bytes(vector_bytes(fst))
        told = "Added 1 new states" if name == "top" else "Added 6 new states"
        done(call_main(*PROGRAM, name, f"{name}.fst"), told)


def test_the_grammar_says_what_its_graphs_do():
    words = *PROGRAM, "top.fst", str(NAMED), "part.fst"
    done(call_main(*words, "grammar.fst"), "Created grammar FST and wrote it to grammar.fst")
    grammar = GrammarGraph.read(open_reader("grammar.fst"))
    assert relation(expanded(grammar)) == pytest.approx(SAID)
    done(call_main(*words[:1], "--write-as-grammar=false", *words[1:], "flat.fst"))
    assert open_fst("flat.fst").header.kind == "const"
    assert relation(open_fst("flat.fst")) == pytest.approx(SAID)
    done(call_main(*words[:1], "--make-mutable", *words[1:], "vectors.fst"))
    again = GrammarGraph.read(open_reader("vectors.fst"))
    assert again.fst.arcs.tolist() == grammar.fst.arcs.tolist()


def test_const_files():
    writer = Writer(True, header=False)
    write_fst(TOP, writer, CONST)
    found, wanted = writer.getvalue(), const_bytes(TOP)
    properties = slice(33, 41)  # of which the second knows none
    assert len(found) == len(wanted) and found[:33] == wanted[:33]
    assert found[properties] == b"\1" + b"\0" * 7 and found[41:] == wanted[41:]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([[*entered(BEGIN, 1), (1, 1, 0.0, 1)], []], "or #nonterm_reenter beside others"),
        ([[(1, 1, 0.0, 1)], entered(BEGIN, 2), []], "state 1, not at the start"),
        ([[(symbol(NAMED, 1), 0, 0.0, 1)], []], "no #nonterm_reenter follows the label"),
        ([[(symbol(END, 1), 0, 0.0, 0)]], "#nonterm_end of state 0 is not at an end"),
        ([[(symbol(2, 1), 0, 0.0, 1)], []], "is no nonterminal with a phone"),
    ],
)
def test_graphs_that_fit_no_grammar(rows, told):
    with pytest.raises(FormatError, match=told):
        prepared(arc_fst(rows, {len(rows) - 1: 0.0}), BOS, "x")


def test_mistakes():
    for words, told in (
        (("make-grammar-fst", "top", "x"), "the phone #nonterm_bos is wanted"),
        ((*PROGRAM, "top.fst", "x"), "is prepared for grammars already"),
        ((*PROGRAM, "top.fst", str(NAMED), "x"), "a phone and a graph, before the output"),
        ((*PROGRAM, "top.fst", "8", "part.fst", "x"), "top.fst"),
        ((*PROGRAM, "top.fst", *(str(NAMED), "part.fst") * 2, "x"), "is there twice"),
    ):
        code, _, err = call_main(*words)
        assert code == 1 and told in err.splitlines()[-1], err
    done(call_main(*PROGRAM, "top.fst", str(NAMED + 1), "part.fst", "x.fst"))
    with pytest.raises(FormatError, match=f"the nonterminal {NAMED} has no graph"):
        expanded(GrammarGraph.read(open_reader("x.fst")))
