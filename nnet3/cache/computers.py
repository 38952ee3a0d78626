"""Computers of a network by request; each request is compiled once."""

from __future__ import annotations

from collections.abc import Hashable

from ...framework.base.backend import Place
from ...framework.base.python.bounded_cache import BoundedCache
from ...framework.base.python.gc_disabled import gc_disabled
from ...framework.base.scope import Scope
from ...framework.runtime.plans.memory import WorkspaceOwner
from ..compiler.computation import Computation
from ..compiler.verbose import VERBOSE
from ..graph.request import ComputationRequest
from ..lower.requests import lower_request
from ..lower.spans import lower_with_spans
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions
from ..run.computer import NnetComputer
from .computations import CachingCompiler


class ComputerCache:
    """Computers by request. They share one copy of the network's parameters, and memory for
    temporaries: one of them runs at a time.

    Args:
        nnet: the network; it must not change while the cache is used.
        place: where to compute; the CPU by default.
        optimize: as `compile_request` takes it.
        capacity: the greatest number of cached computers; the least recently used goes first.
        shortcut: as `CachingCompiler` takes it.

    Attributes:
        compiler: compiles and caches the computations; `files` writes and reads them. Requests
            whose recurrences are long have none: see `lower_request`.

    Raises:
        OpscopeError: the capacity is not positive.
    """

    def __init__(
        self,
        nnet: Nnet,
        place: Place | None = None,
        optimize: bool | OptimizeOptions = True,
        capacity: int = 64,
        shortcut: bool = True,
    ) -> None:
        self.nnet = nnet
        self.compiler = CachingCompiler(nnet, optimize, shortcut, capacity)
        self._options = OptimizeOptions.chosen(optimize)
        self._shared = Scope(place)
        self._workspaces = WorkspaceOwner()
        self._computers: BoundedCache[Hashable, NnetComputer] = BoundedCache(
            capacity, NnetComputer.nbytes, NnetComputer.release
        )

    def __len__(self) -> int:
        return len(self._computers)

    def computer(self, request: ComputationRequest) -> NnetComputer:
        """The computer for a request, ready to accept inputs.

        Raises:
            As `compile_request`.
        """
        return self._computers.get_or_make(request.key(), lambda: self._make(request))

    @gc_disabled()
    def _make(self, request: ComputationRequest) -> NnetComputer:
        def compiled() -> Computation:
            return self.compiler.compile(request)

        listener = VERBOSE.get()
        if listener is None or not listener.tells_commands:
            desc = lower_request(self.nnet.topology(), request, self._options, compiled)
            return NnetComputer(desc, self.nnet, shared=self._shared, owner=self._workspaces)
        # Who wants to see the commands gets them, also where a recurrence could be one operator.
        desc, spans = lower_with_spans(compiled())
        say = listener.log
        return NnetComputer(
            desc, self.nnet, shared=self._shared, spans=spans, say=say, owner=self._workspaces
        )
