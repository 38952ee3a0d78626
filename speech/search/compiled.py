"""The tokens of a search in C, where there is the native library."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...framework.base.python.cached import new_waiting_rlock
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block, bind
from ...framework.fusion.compiled.libraries import Library
from ...kaldi.fst.algorithms.compiled import fst_block
from ..fst.graph import Graph, StaticGraph
from .frames import LINK, TOKEN, TRACED, FrameBlock
from .options import SearchOptions

_MOST_STATES = (1 << 31) - 8
_making = new_waiting_rlock()


def available() -> bool:
    """Whether the search is there in C."""
    return native.load("search") is not None


_LAZY = "epsilons", "interval_begin", "intervals", "interval_set", "labels", "sums"


class _CompiledGraph:
    """A graph of the library, with the arcs that searches composed and share.

    Attributes:
        address: of it.
    """

    def __init__(self, library: Library, graph: Graph) -> None:
        self.library = library
        self._block = _new_graph(library, graph)  # it keeps the arrays
        self.address = self._block.struct.graph
        if not self.address:
            raise MemoryError("a decoding graph")
        weakref.finalize(self, _run_with, library, "graph_free", graph=self.address)


def _graph_of(library: Library, graph: Graph) -> _CompiledGraph:
    """The graph for a search: one for all searches, where its arcs are composed."""
    if isinstance(graph, StaticGraph):
        return _CompiledGraph(library, graph)
    with _making:
        kept = graph.kept.get(_CompiledGraph)
        if kept is None or kept.library is not library:
            kept = graph.kept[_CompiledGraph] = _CompiledGraph(library, graph)
        return kept


def _new_graph(library: Library, graph: Graph) -> Block:
    """A graph of the library; it is 0 where there is no memory."""
    fields: dict[str, Any] = {"most": _MOST_STATES, "lazy": not isinstance(graph, StaticGraph)}
    if isinstance(graph, StaticGraph):
        first = second = fst_block(library, graph.fst)
        fields |= {"emitting": np.ascontiguousarray(graph.emitting), "sets": 0, "final_label": 0}
    else:
        first, second = fst_block(library, graph.first), fst_block(library, graph.second)
        fields |= {name: np.ascontiguousarray(getattr(graph, name)) for name in _LAZY}
        fields |= {"sets": len(graph.interval_begin) - 1, "final_label": graph.final_label}
    block = bind(library, "graph_new", first=first, second=second, **fields)
    block.run()
    return block


class CompiledTokens:
    """`Tokens` in C, over a graph whose arrays it keeps.

    Args:
        graph: to search. pdf: output of the network of each input label, int32. outputs: how many
            the network has. options: of pruning.
    """

    def __init__(self, graph: Graph, pdf: np.ndarray, outputs: int, options: SearchOptions) -> None:
        library = native.load("search")
        if library is None:
            raise RuntimeError("there is no native library")  # callers ask `available` first
        self._library = library
        self._outputs = outputs
        self._graph = _graph_of(library, graph)
        self._search_block = bind(
            library,
            "search_new",
            graph=self._graph.address,
            pdf=np.maximum(pdf, 0),  # -1 stands for the pdf of label 0, which is not read
            labels=len(pdf),
            outputs=outputs,
            beam=options.beam,
            most=options.max_active,
            least=options.min_active,
            beam_delta=options.beam_delta,
            most_tokens=options.frame_tokens,
            lattice_beam=options.lattice_beam,
            prune_delta=options.lattice_beam * options.prune_scale,
            prune_interval=options.prune_interval,
            most_arcs=options.graph_arcs,
        )
        self._search_block.run()
        self._search = self._search_block.struct.search
        if not self._search:
            raise MemoryError("tokens of a search")
        weakref.finalize(self, _free_search, library, self._search, self._graph)
        self.count = 0

    def _run(self, name: str, **fields: Any) -> Any:
        """Call a function of the search; returns its argument, with what it has written there."""
        block = bind(self._library, name, search=self._search, **fields)
        block.run()
        return block.struct

    def start(self) -> int:
        """See `Tokens`."""
        status = self._run("search_start").status
        self.count = 0 if status else 1
        return status

    def accept(self, likelihoods: np.ndarray) -> int:
        """See `Tokens`."""
        result = self._run(
            "search_accept",
            rows=len(likelihoods),
            outputs=self._outputs,
            likelihoods=likelihoods,
        )
        self.count = result.frames
        return result.status

    def prune(self) -> None:
        """See `Tokens`."""
        self._run("search_prune")

    def finalize(self) -> None:
        """See `Tokens`."""
        if self._run("search_finalize").status:
            raise MemoryError("tokens of a search")

    def best(self) -> int:
        """See `Tokens`."""
        return self._run("search_best").token

    def newest(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Tokens`."""
        ((count, *_),) = self.sizes(self.count - 1, self.count).tolist()
        costs, finals = np.empty((2, count), np.float32)
        self._run("search_newest", count=count, costs=costs, finals=finals)
        return costs, finals

    def traced(self, frame: int, token: int, most: int) -> tuple[int, np.ndarray, int, int]:
        """See `Tokens`."""
        path = np.empty(most, TRACED)
        result = self._run("search_trace", frame=frame, token=token, most=most, path=path)
        return result.status, path[: result.count], result.frame_reached, result.token_reached

    def sizes(self, begin: int, end: int) -> np.ndarray:
        """See `Tokens`."""
        sizes = np.empty((end - begin, 4), np.int64)
        self._run("search_sizes", first=begin, rows=end - begin, sizes=sizes)
        return sizes

    def frames(self, begin: int, end: int) -> FrameBlock:
        """See `Tokens`."""
        sizes = self.sizes(begin, end)
        tokens, links, onward = sizes[:, :3].sum(axis=0).tolist()
        block = FrameBlock(
            sizes,
            np.empty(tokens, TOKEN),
            np.empty(tokens, np.int32),
            np.empty(links, LINK),
            np.empty(onward, LINK),
            np.empty(end - begin, np.float32),
        )
        self._run(
            "search_copy",
            first=begin,
            rows=end - begin,
            tokens=tokens,
            epsilons=links,
            emitting=onward,
            offsets=block.offsets,
            all_tokens=block.tokens,
            names=block.names,
            links=block.links,
            onward=block.onward,
        )
        return block


def _run_with(library: Library, name: str, **values: int) -> None:
    bind(library, name, **values).run()


def _free_search(library: Library, search: int, graph: _CompiledGraph) -> None:
    """Free a search, and only then the graph that it reads."""
    _run_with(library, "search_free", search=search)


__all__ = ["CompiledTokens", "available"]
