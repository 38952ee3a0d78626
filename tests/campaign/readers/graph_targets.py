"""The campaign's readers of decoding graphs and of the language models that rescore their lattices:
files are read, searched, and kept nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.speech.fst.graph import Graph, LookaheadGraph, StaticGraph
from opscope.speech.fst.graph_folder import read_graph_fst, read_labels
from opscope.speech.fst.words import Words
from opscope.speech.language_model.arpa import read_arpa
from opscope.speech.language_model.const_arpa import ConstArpa, ConstArpaAutomaton, const_arpa
from opscope.speech.search import compiled
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions
from opscope.speech.search.raw_lattice import raw_lattice
from speech_graphs import (
    Context,
    const_bytes,
    lookahead_bytes,
    lookahead_file,
    ngram_bytes,
    random_first,
    random_grammar,
    vector_bytes,
)

from ..inputs import Target
from .mutate import BYTES, TEXT

_WORDS = 6
_RANDOM = np.random.default_rng(0)
_FIRST, _SECOND = random_first(_RANDOM, _WORDS, 7), random_grammar(_RANDOM, _WORDS)
_LIKES = np.random.default_rng(1).normal(-1, 1, (6, 7)).astype(np.float32)
_OPTIONS = SearchOptions(beam=8.0, lattice_beam=4.0, frame_tokens=2000, prune_interval=2)
_CONTEXTS = (
    Context((), {1: 1.0, 2: 2.0, 3: 3.0}, final=4.0),
    Context((0,), {1: 0.5}, backoff=0.1),
    Context((1,), {2: 0.25}, backoff=0.2, final=2.0),
    Context((2, 1), {3: 0.8}, backoff=0.45),
)


def _search(graph: Graph) -> None:
    for in_c in {compiled.available(), False}:
        decoder = Decoder(graph, np.arange(-1, 7), _OPTIONS, compiled_loops=in_c)
        decoder.accept(_LIKES)
        decoder.finalize()
        decoder.best_path()
        raw_lattice(decoder)


def _firsts(_: Path) -> Sequence[bytes]:
    return [lookahead_bytes(_FIRST, 9)]


def _reads_first(path: Path) -> None:
    _search(LookaheadGraph.of(read_graph_fst(str(path)), _SECOND))


def _seconds(_: Path) -> Sequence[bytes]:
    words = {label: f"word{label}" for label in range(_WORDS + 1)}
    return [vector_bytes(_SECOND, words), const_bytes(_SECOND), ngram_bytes(_CONTEXTS)]


def _reads_second(path: Path) -> None:
    found = read_graph_fst(str(path))
    if found.header.output_symbols is not None:
        Words.of(found.header.output_symbols.texts, str(path))
    _search(LookaheadGraph.of(lookahead_file(_FIRST, 9), found))
    _search(StaticGraph.of(found))


def _tables(_: Path) -> Sequence[bytes]:
    return [b"<eps> 0\nuno 1\ndos 2\n[unk] 3\n"]


_ARPA = """\\data\\
ngram 1=4
ngram 2=3
ngram 3=1

\\1-grams:
-99 1 -0.25
-1 2
-0.5 3 -0.5
-0.75 4 -0.125

\\2-grams:
-0.25 1 3 -0.5
-0.5 3 4 -0.0625
-0.75 4 2

\\3-grams:
-0.125 1 3 4

\\end\\
"""


def _const_arpas(folder: Path) -> Sequence[bytes]:
    (folder / "whole.arpa").write_text(_ARPA)
    model = read_arpa(folder / "whole.arpa")
    found = []
    for unknown in (3, -1):
        writer = Writer(True)
        const_arpa(model, 1, 2, unknown).write_to(writer)
        found.append(writer.getvalue())
    return found


def _reads_const_arpa(path: Path) -> None:
    automaton = ConstArpaAutomaton(ConstArpa.read(Reader(str(path))))
    state = automaton.start
    for word in (3, 4, 9, 4, 3, 3, 4):
        found = automaton.arc(state, word)
        if found is not None:
            state = found[0]
        automaton.final(state)


TARGETS = (
    Target("look-ahead FSTs", ".fst", _firsts, _reads_first, BYTES),
    Target("grammars and static graphs", ".fst", _seconds, _reads_second, BYTES),
    Target("const-ARPA", ".carpa", _const_arpas, _reads_const_arpa, BYTES),
    Target("words of a graph", ".txt", _tables, lambda path: Words.read(str(path)), TEXT),
    Target("labels of a graph", ".int", lambda _: [b"5\n6\n"], lambda p: read_labels(str(p)), TEXT),
)
