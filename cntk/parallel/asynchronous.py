"""Ranks that train apart and bring their changes to shared parameters, each in its own time.

The shared parameters stand for CNTK's server of parameters (Multiverso).
Source: CNTK's `SGDLib/ASGDHelper.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.communicator import Request, SharedArray
from ...framework.base.scope import Scope
from .ranks import Ranks


class Asynchronous:
    """The parameters of a rank beside those that all ranks share.

    Args:
        ranks: that train; all have the same parameters.
        scope: of the network.
        shapes: of the parameters that learn, by name.
        dtype: of the network.
    """

    def __init__(
        self, ranks: Ranks, scope: Scope, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype
    ) -> None:
        self._ranks = ranks
        self._scope = scope
        self._shapes = shapes
        self._dtype = dtype
        self._done = 0  # changes that were brought
        self._since = 0
        self._period = 1
        self._begun = np.zeros(0, dtype)  # what this rank went on from
        self._shared: SharedArray | None = None
        self._coming: tuple[Request, np.ndarray] | None = None

    def begin_epoch(self, period: int) -> None:
        """Share the parameters; a rank brings its change after so many samples."""
        self._period = period
        self._since = 0
        self._begun = self._own()
        self._ranks.communicator.operator = "the shared parameters"
        self._shared = self._ranks.communicator.share(self._begun)
        if self._ranks.options.pipelined:
            self._coming = Request(), self._begun.copy()

    def step(self, samples: int) -> None:
        """Called after each minibatch with its samples."""
        self._since += samples
        if self._since >= self._period:
            self._ranks.communicator.check()
            self._since = 0
            self._bring()

    def _bring(self) -> None:
        request, received = self._start()
        if self._coming is not None:
            # What the last exchange gave is used now; this one goes on beside the next minibatches.
            pending = request, received
            request, received = self._coming
            self._coming = pending
        request.wait()
        self._take(received)

    def _start(self) -> tuple[Request, np.ndarray]:
        """Begin to bring this rank's change; the array gets the shared parameters with it."""
        assert self._shared is not None
        self._done += 1
        change = self._own() - self._begun
        change *= self._dtype.type(self._ranks.options.share_of_change(self._done))
        received = np.empty_like(change)
        return self._shared.start_add(change, received), received

    def finish(self) -> None:
        """Called at the end of this rank's data: all ranks end with the same parameters."""
        request, received = self._start()
        request.wait()
        if self._coming is not None:
            self._coming[0].wait()
            self._coming = None
        self._ranks.barrier()
        assert self._shared is not None
        self._shared.start_add(np.zeros_like(received), received).wait()
        self._take(received)
        self._shared.close()
        self._shared = None

    def _own(self) -> np.ndarray:
        parts = [self._scope.numpy(name).reshape(-1) for name in self._shapes]
        return np.concatenate([np.zeros(0, self._dtype), *parts])

    def _take(self, values: np.ndarray) -> None:
        """Go on from these parameters."""
        self._begun = values
        at = 0
        for name, shape in self._shapes.items():
            size = int(np.prod(shape))
            self._scope.var(name).set(values[at : at + size].reshape(shape))
            at += size
