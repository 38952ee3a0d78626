"""Compiled computations by request; requests for many equal sequences are compiled for two.

Source: Kaldi's CachingOptimizingCompiler (nnet-optimize.cc).
"""

from __future__ import annotations

from collections.abc import Hashable

from ...framework.base.errors import OpscopeError, check_kind
from ...framework.base.python.bounded_cache import BoundedCache
from ...framework.base.python.cached import cached_property
from ...framework.base.python.gc_disabled import gc_disabled
from ..compiler.computation import Computation
from ..graph.request import ComputationRequest
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions, compile_optimized
from .on_disk import kept
from .structure import structure

Computed = tuple[ComputationRequest, Computation]


class CachingCompiler:
    """Compiles and optimizes requests for one network.

    Args:
        nnet: the network; its structure must not change meanwhile.
        optimize: True: all passes; False: none; or the options that choose them.
        shortcut: whether a request for many equal sequences is compiled for two of them and the
            computation expanded; the result is the same.
        capacity: the greatest number of cached computations.

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
        check_kind(nnet, Nnet, "the network")
        check_kind(optimize, bool | OptimizeOptions, "optimize")
        self._nnet = nnet
        self._topology = nnet.topology()
        self._options = OptimizeOptions.chosen(optimize)
        self._shortcut = shortcut
        if capacity < 1:
            raise OpscopeError(f"a cache of {capacity} computations")
        self._cache: BoundedCache[Hashable, Computed] = BoundedCache(
            capacity, lambda computed: computed[1].nbytes()
        )
        self._for_two: BoundedCache[Hashable, Computation] = BoundedCache(
            capacity, Computation.nbytes
        )

    def __len__(self) -> int:
        return len(self._cache)

    def compile(self, request: ComputationRequest) -> Computation:
        """The computation of a request.

        Raises:
            NotComputableError: an output needs rows that the request does not give.
            FormatError, ShapeError: the request does not fit the network.
        """
        return self._cache.get_or_make(
            request.key(), lambda: (request, self.compile_anew(request))
        )[1]

    @gc_disabled()
    def compile_anew(self, request: ComputationRequest) -> Computation:
        """Compile a request without the cache; what is kept on disk is taken from there.

        Raises:
            OpscopeError: as `compile`.
        """

        def compiled() -> Computation:
            return compile_optimized(
                self._topology, request, self._options, self._shortcut, self._for_two
            )

        settings = f"whole {self.settings} {self._shortcut}"
        return kept(lambda: self._structure, [request], settings, self._topology, compiled)

    @cached_property
    def _structure(self) -> str:
        return structure(self._nnet)

    @property
    def settings(self) -> str:
        """The passes that run, as text for the file of a cache."""
        options = self._options
        if options is None:
            return "none"
        skipped = f" without {', '.join(sorted(options.skip))}" if options.skip else ""
        return f"{options}{skipped}"

    def computed(self) -> list[Computed]:
        """The cached computations with their requests, the most recently used last."""
        return self._cache.values()

    def add(self, request: ComputationRequest, computation: Computation) -> None:
        """Put a computation into the cache that was compiled elsewhere with the same settings."""
        self._cache.get_or_make(request.key(), lambda: (request, computation))
