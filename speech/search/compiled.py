"""The inner loops of a search in C, where there is the native library."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...framework.fusion import native
from ...framework.fusion.arguments import Block, bind
from ...framework.fusion.libraries import Library
from ..fst.graph import Graph, StaticGraph
from .frames import LINK, NO_MEMORY, TOKEN, Frame
from .options import SearchOptions

_MOST_STATES = (1 << 31) - 8


def available() -> bool:
    """Whether the loops are there in C."""
    return native.load("search") is not None


def _copied(address: int, dtype: np.dtype[Any], count: int) -> np.ndarray:
    if not count:
        return np.empty(0, dtype)
    import ctypes  # noqa: PLC0415 - only compiled loops need it

    size = count * dtype.itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype).copy()


def _fst(library: Library, fst: Any) -> Block:
    arrays = {name: np.ascontiguousarray(getattr(fst, name)) for name in ("final", "begin", "arcs")}
    sizes = {"start": fst.start, "states": len(arrays["final"]), "count": len(arrays["arcs"])}
    return bind(library, "fst", **sizes, **arrays)


_LAZY = "epsilons", "interval_begin", "intervals", "interval_set", "labels", "sums"


def _new_graph(library: Library, graph: Graph) -> Block:
    """A graph of the library; it is 0 where there is no memory."""
    fields: dict[str, Any] = {"most": _MOST_STATES, "lazy": not isinstance(graph, StaticGraph)}
    if isinstance(graph, StaticGraph):
        first = second = _fst(library, graph.fst)
        fields |= {"emitting": np.ascontiguousarray(graph.emitting), "sets": 0, "final_label": 0}
    else:
        first, second = _fst(library, graph.first), _fst(library, graph.second)
        fields |= {name: np.ascontiguousarray(getattr(graph, name)) for name in _LAZY}
        fields |= {"sets": len(graph.interval_begin) - 1, "final_label": graph.final_label}
    block = bind(library, "graph_new", first=first, second=second, **fields)
    block.run()
    return block


class CompiledLoops:
    """`Loops` in C, over a graph whose arrays it keeps.

    Args:
        graph: to search. pdf: output of the network of each input label, int32.
    """

    def __init__(self, graph: Graph, pdf: np.ndarray, options: SearchOptions) -> None:
        library = native.load("search")
        if library is None:
            raise RuntimeError("there is no native library")  # callers ask `available` first
        self._pdf = np.ascontiguousarray(pdf, np.int32)
        self._options = options
        self._library = library
        self._block = _new_graph(library, graph)  # it keeps the arrays
        step = bind(library, "step_new")
        step.run()
        self._graph = self._block.struct.graph
        self._step = step.struct.step
        if not (self._graph and self._step):
            raise MemoryError("a decoding graph")
        weakref.finalize(self, _free, library, self._graph, self._step)

    def _run(self, name: str, **fields: Any) -> Any:
        """Call a function; returns its argument, with what it has written there."""
        block = bind(self._library, name, **fields)
        block.run()
        return block.struct

    def start(self) -> int:
        """The start state."""
        return self._run("graph_start", graph=self._graph).state

    def step(
        self, states: np.ndarray, tokens: np.ndarray, likelihood: np.ndarray | None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """See `Loops`."""
        options = self._options
        result = self._run(
            "step_frame",
            step=self._step,
            graph=self._graph,
            tokens=tokens,
            states=states,
            count=len(tokens),
            likelihood=likelihood,
            outputs=0 if likelihood is None else len(likelihood),
            pdf=self._pdf,
            labels=len(self._pdf),
            beam=options.beam,
            most=options.max_active,
            least=options.min_active,
            beam_delta=options.beam_delta,
            most_tokens=options.frame_tokens,
        )
        if result.status:
            nothing = np.empty(0, LINK)
            return result.status, np.empty(0, np.int32), np.empty(0, TOKEN), nothing, nothing, 0.0
        links = _copied(result.new_links, LINK, result.emitting + result.epsilons)
        return (
            0,
            _copied(result.new_states, np.dtype(np.int32), result.new_count),
            _copied(result.new_tokens, TOKEN, result.new_count),
            links[: result.emitting],
            links[result.emitting :],
            result.offset,
        )

    def prune(
        self, frame: Frame, base: np.ndarray, after: np.ndarray, beam: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """See `Loops`."""
        fresh = np.empty(len(frame.tokens), np.float32)
        result = self._run(
            "prune_frame",
            tokens=frame.tokens,
            count=len(frame.tokens),
            base=base,
            after=after,
            emitting_links=frame.onward,
            emitting=len(frame.onward),
            epsilon_links=frame.links,
            epsilons=len(frame.links),
            beam=beam,
            delta=delta,
            fresh=fresh,
        )
        onward, links = frame.onward[: result.kept_emitting], frame.links[: result.kept_epsilons]
        return onward, links, bool(result.changed)

    def finals(self, states: np.ndarray) -> np.ndarray:
        """See `Loops`."""
        costs = np.empty(len(states), np.float32)
        self._run("graph_finals", graph=self._graph, states=states, count=len(states), out=costs)
        return costs

    def shrink(self, states: np.ndarray, most: int) -> np.ndarray:
        """See `Loops`."""
        if self._run("graph_sizes", graph=self._graph).arcs > most:
            states = states.copy()
            self._run("graph_shrink", graph=self._graph, states=states, count=len(states))
        return states


def _free(library: Library, graph: int, step: int) -> None:
    bind(library, "graph_free", graph=graph).run()
    bind(library, "step_free", step=step).run()


__all__ = ["NO_MEMORY", "CompiledLoops", "available"]
