"""Truncated back-propagation: states of delays that continue from one minibatch to the next.

A sequence that continues lies in the same slot of the next minibatch, at its beginning. Source:
CNTK's `DelayedValueNodeBase` (`ComputationNetworkLib/RecurrentNodes.cpp`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.dtypes import to_dtype
from ...framework.base.errors import RunError
from ...framework.base.scope import Scope
from ..lower import Delayed, Lowered
from ..lower.emitter import dims
from ..lower.kinds.delays import delay_start
from ..network.nodes.node import DynamicAxis
from ..readers.base.layout import Layout
from ..readers.base.pack import Minibatch

Layouts = Mapping[DynamicAxis | None, tuple[np.ndarray, Layout]]


def goes_on(minibatch: Minibatch) -> bool:
    """Whether a minibatch holds sequences that began before it or continue after it."""
    return any(
        bool((layout.begin < 0).any() or (layout.end > layout.steps).any())
        for layout in minibatch.layouts.values()
    )


class Carrier:
    """The states of all delays of a net, by slot."""

    def __init__(self, scope: Scope, lowered: Lowered) -> None:
        self._scope = scope
        self._lowered = lowered
        self._saved: dict[Delayed, np.ndarray] = {}  # [slots, steps, ...], the nearest row first

    def feed(self, layouts: Layouts) -> None:
        """Set the states of all sequences of a minibatch.

        Raises:
            RunError: a node looks beyond the end of the minibatch, or a sequence continues that no
                earlier minibatch held.
        """
        future = self._lowered.backwards
        if future is not None:
            layout = layouts[future.axis][1]
            if (layout.end > layout.steps).any():
                raise future.error("it looks beyond the end of a truncated sequence", RunError)
        for delayed in self._lowered.delays:
            self._feed(delayed, layouts[delayed.node.axis][1])

    def _feed(self, delayed: Delayed, layout: Layout) -> None:
        node = delayed.node
        old = layout.begin < 0
        saved = self._saved.get(delayed)
        slot = layout.slot + layout.first_slot
        if old.any() and (saved is None or len(saved) <= slot[old].max()):
            raise node.error(
                "a sequence of this minibatch began in an earlier one, which was not seen", RunError
            )
        initial = 0.0 if delayed.fresh else delay_start(node)
        shape = (len(layout.slot), *dims(node))
        for number, name in enumerate(delayed.states):
            variable = self._scope.var(name)
            state = np.full(shape, initial, self._dtype(delayed))
            if saved is not None:
                state[old] = saved[slot[old], number]
            variable.set(state)
        if delayed.fresh:
            self._scope.var(delayed.fresh).set(~old)

    def _dtype(self, delayed: Delayed) -> np.dtype:
        names = {var.name: var.dtype for var in self._lowered.op_list.vars}
        return to_dtype(names[delayed.states[0]])

    def save(self, layouts: Layouts) -> None:
        """Save the states of the sequences that go on, from the values of a run."""
        for delayed in self._lowered.delays:
            offsets, layout = layouts[delayed.node.axis]
            self._save(delayed, offsets, layout)

    def _save(self, delayed: Delayed, offsets: np.ndarray, layout: Layout) -> None:
        values = self._scope.get(self._lowered.values[delayed.node.inputs[0]]).numpy()
        on = np.flatnonzero(layout.end > layout.steps)
        count = len(delayed.states)
        slot = layout.slot + layout.first_slot
        saved = self._room(delayed, layout, (count, *dims(delayed.node)), values.dtype)
        before = [self._scope.get(name).numpy() for name in delayed.before]
        for number in range(count):
            row = offsets[on + 1] - 1 - number
            inside = row >= offsets[on]
            saved[slot[on[inside]], number] = values[row[inside]]
            short = on[~inside]  # this piece is shorter than the delay: states before it
            back = number - (offsets[short + 1] - offsets[short])
            for sequence, steps in zip(short.tolist(), back.tolist(), strict=True):
                saved[slot[sequence], number] = before[steps][sequence]

    def _room(
        self, delayed: Delayed, layout: Layout, shape: tuple[int, ...], dtype: np.dtype
    ) -> np.ndarray:
        """The states of a delay; a layout's slots have empty ones, others belong to other parts."""
        old = self._saved.get(delayed, np.zeros((0, *shape), dtype))
        first = layout.first_slot
        last = layout.first_slot + layout.parallel
        saved = np.zeros((max(len(old), last), *shape), dtype)
        saved[: len(old)] = old
        saved[first:last] = 0
        self._saved[delayed] = saved
        return saved


__all__ = ["Carrier", "goes_on"]
