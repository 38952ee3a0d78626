"""The decoding graph of a folder, as Vosk's models have it: HCLG.fst, or HCLr.fst and Gr.fst."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import path_text, read_text
from ...framework.base.untrusted.values import whole_number
from ...kaldi.fst.files.byte_file import ByteFile
from ...kaldi.fst.files.fst_io import read_whole
from ...kaldi.fst.fst import Fst
from . import graph_cache
from .graph import Graph, LookaheadGraph, StaticGraph
from .words import Words

_LABEL_MOST = (1 << 31) - 2
_MOST_COST = 1e9  # of an arc or an end, but for infinity


@dataclass(frozen=True)
class DecodingGraph:
    """A graph and the words of its output labels."""

    graph: Graph
    words: Words


def load_graph(folder: str | os.PathLike[str], *, keep: bool = True) -> DecodingGraph:
    """The graph of a folder with HCLG.fst, or HCLr.fst, Gr.fst and disambig_tid.int.

    Words come from the table of output symbols in HCLG.fst or Gr.fst, else from words.txt.

    Args:
        keep: whether the arrays are kept on disk (`OPSCOPE_CACHE`), from where the next call
            memory-maps them.

    Raises:
        FormatError: a file is missing, is cut or damaged, or the files do not fit each other.
    """
    name = path_text(folder)
    files = {each: os.path.join(name, each) for each in _NAMES}
    static = os.path.exists(files["HCLG.fst"])
    wanted = ["HCLG.fst"] if static else ["HCLr.fst", "Gr.fst", "disambig_tid.int"]
    missing = [each for each in wanted if not os.path.exists(files[each])]
    if missing:
        raise FormatError(
            f"{name}: {', '.join(missing)} is missing; a graph is HCLG.fst, or HCLr.fst, Gr.fst"
            " and disambig_tid.int"
        )
    used = [files[each] for each in wanted]
    if os.path.exists(files["words.txt"]):
        used.append(files["words.txt"])
    key = graph_cache.key_of(used)
    known = graph_cache.load(key) if keep else None
    if known is not None and known[1] is not None:
        return DecodingGraph(known[0], known[1])
    graph, symbols, source = _static(files) if static else _composed(files)
    if symbols is not None:
        words = Words.of(symbols, source)
    elif os.path.exists(files["words.txt"]):
        words = Words.read(files["words.txt"])
    else:
        raise FormatError(f"{source} has no table of words, and {files['words.txt']} is missing")
    _check_words(graph, words, source)
    if keep:
        graph_cache.keep(key, graph, words)
    return DecodingGraph(graph, words)


_NAMES = ("HCLG.fst", "HCLr.fst", "Gr.fst", "disambig_tid.int", "words.txt")


def read_graph_fst(path: str) -> Fst:
    """The FST of a file, with nothing after it.

    Raises:
        FormatError: see `graph_fst`.
    """
    return graph_fst(ByteFile.open(path))


def graph_fst(file: ByteFile) -> Fst:
    """The FST of a file that holds nothing else; a search may trust its costs.

    Raises:
        FormatError: see `read_whole`; or there is no start, or a cost beyond 1e9.
    """
    begin = file.offset
    fst = read_whole(file)
    if fst.start < 0:
        raise file.error(f"the start state {fst.start} is none of {fst.states}", begin)
    for costs in (fst.weight, fst.final):
        if not (np.isposinf(costs) | (np.abs(costs) <= _MOST_COST)).all():
            raise file.error(
                f"a weight of the FST is not from {-_MOST_COST:g} to {_MOST_COST:g}", begin
            )
    return fst


def _static(files: dict[str, str]) -> tuple[Graph, dict[int, str] | None, str]:
    path = files["HCLG.fst"]
    fst = read_graph_fst(path)
    return StaticGraph.of(fst), _texts(fst), path


def _composed(files: dict[str, str]) -> tuple[Graph, dict[int, str] | None, str]:
    first, second = read_graph_fst(files["HCLr.fst"]), read_graph_fst(files["Gr.fst"])
    labels = read_labels(files["disambig_tid.int"])
    graph = composed_graph(first, second, labels, files["HCLr.fst"])
    return graph, _texts(second), files["Gr.fst"]


def composed_graph(first: Fst, second: Fst, labels: list[int], name: str) -> LookaheadGraph:
    """The composition of two FSTs; see `LookaheadGraph`.

    Args:
        labels: input labels that are epsilons to the search. name: of the first one's file.

    Raises:
        FormatError: the first one has no reachability data of output labels.
    """
    reached = first.header.reachability
    if reached is None or reached.of_input:
        raise FormatError(f"{name}: a {first.header.kind} FST; an olabel_lookahead FST is wanted")
    return LookaheadGraph.of(first, second, labels)


def _texts(fst: Fst) -> dict[int, str] | None:
    """The words of output labels, where the file has them."""
    table = fst.header.output_symbols
    return None if table is None else table.texts


def read_labels(path: str) -> list[int]:
    """The labels of a file with one in each line."""
    labels = []
    at = 0
    for number, line in enumerate(read_text(path, "replace").split("\n"), 1):
        if line.strip():
            what = f"{path}: line {number} (byte {at})"
            labels.append(whole_number(line.strip(), what, 1, _LABEL_MOST))
        at += len(line.encode()) + 1
    return labels


def _check_words(graph: Graph, words: Words, source: str) -> None:
    fst = graph.fst if isinstance(graph, StaticGraph) else graph.second
    largest = int(fst.arcs["olabel"].max(initial=0))
    if largest >= len(words):
        raise FormatError(f"{source}: the word {largest} of an arc is none of {len(words)}")
