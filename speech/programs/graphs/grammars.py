"""Kaldi's program that makes files of grammars.

Source: Kaldi's `fstbin/make-grammar-fst.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import whole_number
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.fst.files.fst_io import CONST, write_fst
from ....kaldi.graphs.nonterminals import FIRST_NAME
from ....nnet3.programs.base.graphs import open_fst, save_fst
from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.saving import save
from ...fst.grammar_graph import GrammarGraph
from ...fst.grammar_making import expanded, prepared, write_grammar

_MOST = (1 << 31) - 2


@program(
    "make-grammar-fst",
    "Make a grammar of graphs that call each other: the top one, then each nonterminal's phone and"
    " graph, then the output. With one graph and an output alone: prepare it for that.",
    ("<top-level-fst>", "<symbols-graphs-and-output>..."),
    Option("nonterm-phones-offset", -1, "The phone #nonterm_bos in phones.txt"),
    Option("write-as-grammar", True, "Write a GrammarFst; else one graph, of all calls' copies"),
    Option("make-mutable", False, "Write the graphs of a GrammarFst as vector, in place of const"),
)
def make_grammar_fst(options: SimpleNamespace, top: str, *more: str) -> None:
    offset = options.nonterm_phones_offset
    if offset < 2:
        raise FormatError(f"--nonterm-phones-offset={offset}: the phone #nonterm_bos is wanted")
    log = options.program.log
    *pairs, output = more
    if len(pairs) % 2:
        raise FormatError(f"{pairs[-1]}: a nonterminal is a phone and a graph, before the output")
    graph = open_fst(top)
    if not pairs:
        made = prepared(graph, offset, top)
        log(f"Added {made.states - graph.states} new states while preparing for grammar FST.")
        save_fst(made, output)
        return
    names = [whole_number(name, top, offset + FIRST_NAME, _MOST) for name in pairs[::2]]
    if len(set(names)) < len(names):
        raise FormatError(f"a nonterminal is there twice among {names}")
    parts = dict(zip(names, map(open_fst, pairs[1::2]), strict=True))
    numbers = {name: number for number, name in enumerate(parts, 1)}
    grammar = GrammarGraph.of([graph, *parts.values()], numbers, offset, output)
    writer = Writer(True, header=options.write_as_grammar)
    if options.write_as_grammar:
        write_grammar(graph, parts, offset, writer, vectors=options.make_mutable)
    else:
        write_fst(expanded(grammar), writer, CONST)
    save(writer, output)
    log(f"Created grammar FST and wrote it to {output}")
