"""A run on a GPU as CUDA graphs: its launches are recorded once, and replayed by one.

Recorded are calls that do the same in each run. A kernel that decides something on the host, or
draws random numbers, would be frozen with what it decided when it was recorded, so calls must be
known: functions and kernels of CuPy with their arguments, and what `recordable` marks. Calls that
are not known run between two graphs.

A call that takes one of a few ways, which the host knows before the run, is a `Choosing`; frames
have graphs for each combination of ways.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import is_
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..fusion.cuda.cublas import launched_on, recorded_for
from ..fusion.team import nothing
from ..ir.kernel_args import Call
from .plans.plan import PlanStep

_RUNS_BEFORE = 2
"""Runs before a frame is recorded: kernels are compiled by then, and few frames run once."""
_MOST_WAYS = 8
"""Combinations of ways that a frame has graphs for."""
_OF_CUBLAS = {"dot", "matmul", "vdot", "inner", "tensordot", "einsum"}
"""CuPy's functions that may call cuBLAS, which it refuses while a stream records."""
_CROSSING = {"get", "set", "item", "tolist", "asnumpy", "asarray", "array", "tobytes"}


@runtime_checkable
class Choosing(Protocol):
    """A call whose launches depend on what the host knows.

    Attributes:
        fixed: the way that it takes while it is recorded; else None.
    """

    fixed: Hashable

    def choose(self) -> Hashable:
        """The way of the next run; None for one that cannot be recorded."""

    def count(self) -> None:
        """Note on the host that one more run was replayed."""

    def __call__(self) -> None: ...


class Recording:
    """The calls of a frame, as graphs from the third run on."""

    def __init__(self, xp: Any, calls: Sequence[Call], steps: Sequence[PlanStep]) -> None:
        self._xp = xp
        self._calls = list(calls)
        self._runs = 0
        # By ways, and the stream that launches them: products on it work in its memory.
        self._graphs: dict[tuple[Hashable, ...], list[Any]] = {}
        self._pool: Any = None
        self._stream: Any = None
        self._steps = steps
        self._refused = ""
        self._parts: list[_Part] = []
        self._choosing: list[Choosing] = []

    @property
    def obstacles(self) -> dict[str, str]:
        """What cannot be recorded: operator types, and what each of them does."""
        if self._refused:
            return {"": self._refused}
        pairs = zip(self._calls, self._steps, strict=True)
        return {step.operators[0].type: why for call, step in pairs if (why := obstacle(call))}

    @property
    def graphs(self) -> int:
        """How many graphs a run is."""
        return 0 if self._refused else sum(part.is_graph for part in _parts(self._calls))

    def has(self, calls: Sequence[Call]) -> bool:
        """Whether these are the frame's calls still: those that read other arrays are new."""
        return len(calls) == len(self._calls) and all(map(is_, calls, self._calls))

    def replay(self, each: Call, fail: Callable[[int, Exception], Any]) -> None:
        """Replay the graphs, or run all calls by `each`; `fail` names the call that failed."""
        self._runs += 1
        if self._refused or self._runs <= _RUNS_BEFORE:
            each()
            return
        if not self._parts:  # some calls are bound in the first run
            self._parts = _parts(self._calls)
            recorded = (call for part in self._parts if part.is_graph for call in part.calls)
            self._choosing = [
                one for call in recorded for one in _single(call) if isinstance(one, Choosing)
            ]
        ways = tuple(call.choose() for call in self._choosing)
        stream = self._xp.cuda.get_current_stream().ptr
        graphs = self._graphs.get((*ways, launched_on(stream)))
        if graphs is not None:
            self._launch(graphs, fail)
        elif None in ways or len(self._graphs) == _MOST_WAYS:
            each()
        else:
            self._record(ways, each)

    def _launch(self, graphs: Sequence[Any], fail: Callable[[int, Exception], Any]) -> None:
        for part, graph in zip(self._parts, graphs, strict=True):
            if graph is not None:
                graph.launch()
                continue
            for number, call in enumerate(part.calls, part.first):
                try:
                    call()
                except Exception as error:
                    fail(number, error)
        for call in self._choosing:
            call.count()

    def _record(self, ways: tuple[Hashable, ...], each: Call) -> None:
        """Run once more, on a stream that then records: CuPy's functions take memory within it from
        a pool that stays the graph's, which has had it all once."""
        cuda = self._xp.cuda
        if self._stream is None:
            self._stream, self._pool = cuda.Stream(non_blocking=True), cuda.MemoryPool()
        current, own = cuda.get_current_stream(), self._stream
        own.wait_event(current.record())
        try:
            with (
                own,
                cuda.using_allocator(self._pool.malloc),
                recorded_for(own.ptr, current.ptr),
            ):
                each()
                for call, way in zip(self._choosing, ways, strict=True):
                    call.fixed = way
                try:
                    graphs = [self._recorded(part) for part in self._parts]
                    self._graphs[*ways, launched_on(current.ptr)] = graphs
                except Exception as error:
                    # Nothing of it was computed, and nothing on the host has changed. CuPy and CUDA
                    # have errors of many types; whichever it is, the frame runs as before.
                    self._refused = f"CUDA does not record it: {error}"
                    self._graphs, self._pool = {}, None
                finally:
                    for call in self._choosing:
                        call.fixed = None
        finally:
            current.wait_event(own.record())

    def _recorded(self, part: _Part) -> Any:
        """The graph of calls; None for those between two graphs."""
        if not part.is_graph:
            return None
        self._stream.begin_capture()
        try:
            for call in part.calls:
                call()
        except BaseException:
            self._stream.end_capture()
            raise
        return self._stream.end_capture()


class _Part(NamedTuple):
    """Calls of a frame from the number `first` on, which are a graph or stand between two."""

    first: int
    calls: list[Call]
    is_graph: bool


def _parts(calls: Sequence[Call]) -> list[_Part]:
    known = [not obstacle(call) for call in calls]
    runs = [[*run] for _, run in groupby(range(len(known)), known.__getitem__)]
    return [_Part(run[0], [calls[number] for number in run], known[run[0]]) for run in runs]


def obstacle(call: Call) -> str:
    """Why a call cannot be recorded; "" where it can."""
    for one in _single(call):
        if one is nothing or getattr(one, "recordable", False) or isinstance(one, Choosing):
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


def _single(call: Call) -> Iterator[Any]:
    """The calls that a call consists of."""
    left: list[Any] = [call]
    while left:
        one = left.pop()
        parts = None if getattr(one, "recordable", False) else getattr(one, "parts", None)
        if parts is None:
            yield one
        else:
            left += parts


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
