"""The inner loops of a search in C, where there is the native library."""

from __future__ import annotations

import struct
import weakref
from typing import Any

import numpy as np

from ...framework.fusion import native
from ..fst.graph import Graph, StaticGraph
from .frames import LINK, NO_MEMORY, TOKEN, Frame
from .options import SearchOptions

_MOST_STATES = (1 << 31) - 8


def available() -> bool:
    """Whether the loops are there in C."""
    return native.load("search") is not None


def _double(value: float) -> int:
    return struct.unpack("<q", struct.pack("<d", value))[0]


def _call(function: Any, *words: int | np.ndarray) -> None:
    """Call a function with numbers and the addresses of arrays."""
    told = [w.ctypes.data if isinstance(w, np.ndarray) else w for w in words]
    packed = np.array(told, np.int64)
    function(packed.ctypes.data)


def _copied(address: int, dtype: np.dtype[Any], count: int) -> np.ndarray:
    if not count:
        return np.empty(0, dtype)
    import ctypes  # noqa: PLC0415 - only compiled loops need it

    size = count * dtype.itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype).copy()


def graph_words(graph: Graph, most: int = _MOST_STATES) -> list[int | np.ndarray]:
    """What the compiled `graph_new` is given of a graph, in the order of native/graph.h."""
    if isinstance(graph, StaticGraph):
        first = graph.fst
        empty = [0] * 9
        head = [0, first.start, first.final, first.begin, first.arcs]
        return [*head, *empty, first.states, graph.emitting, most, 0, 0]
    first, second = graph.first, graph.second
    return [
        *(1, first.start, first.final, first.begin, first.arcs),
        *(second.start, second.final, second.begin, second.arcs, graph.epsilons),
        *(graph.interval_begin, graph.intervals, graph.final_label),
        *(graph.sums, 0, 0, most, graph.interval_set, graph.labels),
    ]


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
        names = ("start", "shrink", "finals", "sizes", "new", "free")
        self._graph_calls = {name: library.function(f"graph_{name}") for name in names}
        self._frame = library.function("step_frame")
        self._prune = library.function("prune_frame")
        words = [
            np.ascontiguousarray(w) if isinstance(w, np.ndarray) else w for w in graph_words(graph)
        ]
        self._kept = words
        handles = np.zeros(2, np.int64)
        _call(self._graph_calls["new"], handles[:1], *words)
        _call(library.function("step_new"), handles[1:])
        if not handles.all():
            raise MemoryError("a decoding graph")
        self._graph, self._step = handles.tolist()
        free = (self._graph_calls["free"], library.function("step_free"))
        weakref.finalize(self, _free, free, handles)
        self._told = np.zeros(8, np.int64)
        self._counts = np.zeros(3, np.int64)

    def start(self) -> int:
        """The start state."""
        start = np.zeros(1, np.int64)
        _call(self._graph_calls["start"], self._graph, start)
        return int(start[0])

    def step(
        self, states: np.ndarray, tokens: np.ndarray, likelihood: np.ndarray | None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """See `Loops`."""
        options = self._options
        _call(
            self._frame,
            *(self._step, self._graph, tokens, states, len(tokens)),
            *(0 if likelihood is None else likelihood, self._pdf),
            *(_double(options.beam), options.max_active, options.min_active),
            *(_double(options.beam_delta), options.frame_tokens, self._told),
        )
        status, count, emitting, epsilons, *places, offset = self._told.tolist()
        if status:
            nothing = np.empty(0, LINK)
            return status, np.empty(0, np.int32), np.empty(0, TOKEN), nothing, nothing, 0.0
        links = _copied(places[2], LINK, emitting + epsilons)
        return (
            0,
            _copied(places[0], np.dtype(np.int32), count),
            _copied(places[1], TOKEN, count),
            links[:emitting],
            links[emitting:],
            struct.unpack("<d", struct.pack("<q", offset))[0],
        )

    def prune(
        self, frame: Frame, base: np.ndarray, after: np.ndarray, beam: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """See `Loops`."""
        fresh = np.empty(len(frame.tokens), np.float32)
        _call(
            self._prune,
            *(frame.tokens, len(frame.tokens), base, after),
            *(frame.onward, len(frame.onward), frame.links, len(frame.links)),
            *(_double(beam), _double(delta), fresh, self._counts),
        )
        many, few, changed = self._counts.tolist()
        return frame.onward[:many], frame.links[:few], bool(changed)

    def finals(self, states: np.ndarray) -> np.ndarray:
        """See `Loops`."""
        costs = np.empty(len(states), np.float32)
        _call(self._graph_calls["finals"], self._graph, states, len(states), costs)
        return costs

    def shrink(self, states: np.ndarray, most: int) -> np.ndarray:
        """See `Loops`."""
        sizes = np.zeros(2, np.int64)
        _call(self._graph_calls["sizes"], self._graph, sizes)
        if int(sizes[1]) > most:
            states = states.copy()
            _call(self._graph_calls["shrink"], self._graph, states, len(states))
        return states


def _free(functions: tuple[Any, Any], handles: np.ndarray) -> None:
    for function, place in zip(functions, handles.tolist(), strict=True):
        _call(function, place)


__all__ = ["NO_MEMORY", "CompiledLoops", "available", "graph_words"]
