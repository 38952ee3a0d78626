"""A run on a GPU as a CUDA graph: its launches are recorded once, and replayed by one.

Recorded are frames whose calls do the same in each run. A kernel that decides something on the
host, or draws random numbers, would be frozen with what it decided when it was recorded, so calls
must be known: functions and kernels of CuPy with their arguments, and what `recordable` marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import is_
from typing import Any

from ..fusion.team import nothing
from ..ir.kernel_args import Call
from .plans.plan import PlanStep

_RUNS_BEFORE = 2
"""Runs before a frame is recorded: kernels are compiled by then, and few frames run once."""
_OF_CUBLAS = {"dot", "matmul", "vdot", "inner", "tensordot", "einsum"}
"""CuPy's functions that may call cuBLAS, which it refuses while a stream records."""
_CROSSING = {"get", "set", "item", "tolist", "asnumpy", "asarray", "array", "tobytes"}


class Recording:
    """The calls of a frame, as a graph from the third run on."""

    def __init__(self, xp: Any, calls: Sequence[Call], steps: Sequence[PlanStep]) -> None:
        self._xp = xp
        self._calls = list(calls)
        self._runs = 0
        self._graph: Any = None
        self._pool: Any = None
        self._stream: Any = None
        self._steps = steps
        self._refused = ""

    @property
    def obstacles(self) -> dict[str, str]:
        """Why that cannot be: operator types, and what each of them does."""
        if self._refused:
            return {"": self._refused}
        pairs = zip(self._calls, self._steps, strict=True)
        found = {step.operators[0].type: obstacle(call) for call, step in pairs}
        return {kind: why for kind, why in found.items() if why}

    def has(self, calls: Sequence[Call]) -> bool:
        """Whether these are the frame's calls still: those that read other arrays are new."""
        return len(calls) == len(self._calls) and all(map(is_, calls, self._calls))

    def replay(self, each: Call) -> None:
        """Replay the graph, or run all calls by `each`."""
        if self._graph is not None:
            self._graph.launch()
            return
        self._runs += 1
        # Some calls are bound in the first run.
        if self._runs != _RUNS_BEFORE + 1 or self.obstacles:
            each()
        else:
            self._record(each)

    def _record(self, each: Call) -> None:
        """Run once more, on a stream that then records: CuPy's functions take memory within it from
        a pool that stays the graph's, which has had it all once."""
        cuda = self._xp.cuda
        current, own = cuda.get_current_stream(), cuda.Stream(non_blocking=True)
        # It stays too: products have a workspace for each stream, and another recording on a stream
        # of the same number would share the one that this graph writes to.
        self._stream = own
        self._pool = cuda.MemoryPool()
        own.wait_event(current.record())
        try:
            with own, cuda.using_allocator(self._pool.malloc):
                each()
                self._graph = self._recorded(own)
        finally:
            current.wait_event(own.record())

    def _recorded(self, stream: Any) -> Any:
        graph = None
        stream.begin_capture()
        try:
            try:
                for call in self._calls:
                    call()
            finally:
                graph = stream.end_capture()
        except Exception as error:
            # Nothing of it was computed, and nothing on the host has changed. CuPy and CUDA have
            # errors of many types; whichever it is, the frame runs as before.
            self._refused = f"CUDA does not record it: {error}"
            self._pool = None
            return None
        return graph


def obstacle(call: Call) -> str:
    """Why a call cannot be recorded; "" where it can."""
    left: list[Any] = [call]
    while left:
        one = left.pop()
        if one is nothing or getattr(one, "recordable", False):
            continue
        parts = getattr(one, "parts", None)
        if parts is not None:
            left += parts
            continue
        function = one.func if isinstance(one, partial) else one
        name = getattr(function, "__name__", "")
        if not _is_of_cupy(function):
            return "decides on the host, or draws random numbers, in each run"
        if name in _OF_CUBLAS:
            return f"multiplies by CuPy's {name}, which cannot be recorded"
        if name in _CROSSING:
            return f"copies between host and GPU by {name}"
    return ""


def _is_of_cupy(function: Any) -> bool:
    """Whether it is a function, a kernel, or a method of an array, of CuPy; generators are not."""
    owner = getattr(function, "__self__", None)
    places = (
        getattr(function, "__module__", None),
        type(function).__module__,
        type(owner).__module__,
    )
    modules = [place for place in places if isinstance(place, str) and place.startswith("cupy")]
    return bool(modules) and not any(module.startswith("cupy.random") for module in modules)
