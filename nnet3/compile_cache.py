"""Compiled computations of a network by request: each request is compiled once."""

from __future__ import annotations

from collections import OrderedDict

from ..framework.backend import Place
from ..framework.errors import OpscopeError
from ..framework.scope import Scope
from .computer import NnetComputer
from .nnet import Nnet
from .optimize import OptimizeOptions
from .pipeline import compile_request
from .request import ComputationRequest


class ComputerCache:
    """Ready computers by request. They share one copy of the network's parameters.

    Args:
        nnet: the network; it must not change while the cache is used.
        place: where to compute; the CPU by default.
        optimize: as `compile_request` takes it.
        capacity: of how many requests computers are kept; the least recently used goes first.

    Raises:
        OpscopeError: the capacity is not positive.
    """

    def __init__(
        self,
        nnet: Nnet,
        place: Place | None = None,
        optimize: bool | OptimizeOptions = True,
        capacity: int = 64,
    ) -> None:
        if capacity < 1:
            raise OpscopeError(f"a cache of {capacity} computations")
        self.nnet = nnet
        self.optimize = optimize
        self.capacity = capacity
        self._shared = Scope(place)
        self._computers: OrderedDict[object, NnetComputer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._computers)

    def computer(self, request: ComputationRequest) -> NnetComputer:
        """The computer for a request, ready to accept inputs.

        Raises:
            As `compile_request`.
        """
        key = request.key()
        computer = self._computers.get(key)
        if computer is not None:
            self._computers.move_to_end(key)
            return computer
        desc = compile_request(self.nnet, request, self.optimize)
        computer = self._computers[key] = NnetComputer(desc, self.nnet, shared=self._shared)
        if len(self._computers) > self.capacity:
            self._computers.popitem(last=False)
        return computer
