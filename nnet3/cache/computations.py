"""Compiling each request once, and requests for many like sequences by way of two.

Source: Kaldi's CachingOptimizingCompiler (nnet-optimize.cc).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ...framework.base.errors import OpscopeError
from ...framework.base.garbage import uncollected
from ..compile.compiler import Compiler
from ..compile.computation import Computation
from ..compile.shortcut import decompose, expand
from ..graph.request import ComputationRequest
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions
from ..optimize import optimize as run_passes

Value = TypeVar("Value")
Computed = tuple[ComputationRequest, Computation]


class RecentCache(Generic[Value]):
    """Values by key; at most `capacity` are kept, the least recently used goes first.

    Raises:
        OpscopeError: the capacity is not positive.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise OpscopeError(f"a cache of {capacity} computations")
        self.capacity = capacity
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> list[Value]:
        """All values, the most recently used last."""
        return list(self._values.values())

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, which `make` makes where it is not there."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = self._values[key] = make()
        if len(self._values) > self.capacity:
            self._values.popitem(last=False)
        return value


class CachingCompiler:
    """Compiles and optimises requests for one network.

    Args:
        nnet: the network; its structure must not change meanwhile.
        optimize: all passes, none, or those that the options switch on.
        shortcut: whether requests for many like sequences are compiled for two and expanded; the
            result is the same.
        capacity: of how many requests the computations are kept.

    Raises:
        OpscopeError: the capacity is not positive.
    """

    def __init__(
        self,
        nnet: Nnet,
        optimize: bool | OptimizeOptions = True,
        shortcut: bool = True,
        capacity: int = 64,
    ) -> None:
        self._topology = nnet.topology()
        self._options = optimize if isinstance(optimize, OptimizeOptions) else None
        self._optimize = bool(optimize)
        self._shortcut = shortcut
        self._cache: RecentCache[Computed] = RecentCache(capacity)
        self._few: RecentCache[Computation] = RecentCache(capacity)

    def __len__(self) -> int:
        return len(self._cache)

    def compile(self, request: ComputationRequest) -> Computation:
        """The computation of a request.

        Raises:
            NotComputableError: an output needs rows that the request does not give.
            FormatError, ShapeError: the request does not fit the network.
        """
        return self._cache.get(request.key(), lambda: (request, self.compile_anew(request)))[1]

    @uncollected()
    def compile_anew(self, request: ComputationRequest) -> Computation:
        """As `compile`, but neither looked for among those that are held nor held.

        Raises:
            OpscopeError: as `compile`.
        """
        parts = decompose(request) if self._shortcut else None
        if parts is not None:
            few, count = parts
            of_few = self._few.get(few.key(), lambda: self._compile_whole(few))
            computation = expand(of_few, count)
            if computation is not None:
                return computation
        return self._compile_whole(request)

    def _compile_whole(self, request: ComputationRequest) -> Computation:
        computation = Compiler(self._topology, request).compile()
        if not self._optimize:
            return computation.explicit()
        return run_passes(computation, self._options)

    @property
    def settings(self) -> str:
        """Which passes run, in words."""
        return str(self._options or OptimizeOptions()) if self._optimize else "none"

    def computed(self) -> list[Computed]:
        """The computations that are held, with their requests."""
        return self._cache.values()

    def add(self, request: ComputationRequest, computation: Computation) -> None:
        """Take the computation of a request that was compiled elsewhere, with the same settings."""
        self._cache.get(request.key(), lambda: (request, computation))
