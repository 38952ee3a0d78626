"""The reference program of a recurrent net: one scope for each step, the step net run in each.

Slow and plain: links are copied in and out, memories are carried from scope to scope. A gradient
runs in the step scopes of its forward run, where it finds what that has computed.
"""

from __future__ import annotations

from typing import Any

from ...base.scope import Scope
from ...runtime.plain_net import PlainNet
from ..inner_links import Memory
from .links import RecurrentBinding


class StepScopeProgram:
    """A recurrent operator as a loop over scopes; calling it runs all steps."""

    def __init__(self, binding: RecurrentBinding) -> None:
        self._binding = binding
        self._net = PlainNet(binding.step.net, check=False)
        self._names = frozenset(binding.step.writes)
        self._xp = binding.frame.xp

    def __call__(self) -> None:
        b = self._binding
        outer = b.frame.state.context
        context = outer.derive(train=outer.train, live_out=self._names)
        context.device = b.frame.place
        self._start_results()
        scopes = list(b.saved or [Scope(parent=b.frame.scope) for _ in b.order])
        before: Scope | None = None
        for step in b.order:
            scope = scopes[step]
            self._fill(scope, step, before)
            self._net.run(scope, context)
            self._collect(scope, step)
            before = scope
        if b.steps is not None:
            b.steps.step_scopes = scopes

    def _start_results(self) -> None:
        b = self._binding
        for total in b.sums:
            if total is not None:
                total.fill(0)
        idle = self._index(b.schedule.order[b.running :])
        for memory in b.step.memories:
            if memory.final >= 0 and b.final_states[memory.final] is not None:
                b.final_states[memory.final][idle] = self._initial_rows(memory, idle)

    def _index(self, rows: Any) -> Any:
        return self._xp.asarray(rows)

    def _initial_rows(self, memory: Memory, sequences: Any) -> Any:
        if memory.boot < 0:
            return memory.boot_value
        return self._binding.initial_states[memory.boot][sequences]

    def _fill(self, scope: Scope, step: int, before: Scope | None) -> None:
        """Bring links, and states of the step that ran before, into a step's scope."""
        b = self._binding
        # Local, or a state would be found, and overwritten, in the scope outside.
        scope.declare(self._names)
        for name, array, track in zip(b.step.inputs, b.arrays, b.tracks, strict=False):
            rows = self._index(track.rows[track.span(step)])
            scope.var(name).bind(array[rows], track.inner[step])
        for name, array, track, levels in zip(
            b.step.statics, b.statics, b.static_tracks, b.static_levels, strict=True
        ):
            if track is None:
                scope.var(name).bind(array, levels)
            else:
                rows = self._index(track.rows[: int(track.starts[step])])
                scope.var(name).bind(array[rows], track.inner[step])
        size = int(b.schedule.sizes[step])
        for memory, (row, dtype) in zip(b.step.memories, b.memory_specs, strict=True):
            value = self._xp.empty((size, *row), dtype)
            begins = b.begins(step)
            value[begins] = self._initial_rows(memory, self._index(b.schedule.order[begins]))
            if before is not None:
                state = before.get(memory.state).array
                carried = size if begins.start == begins.stop else begins.start
                value[:carried] = state[:carried]
            scope.var(memory.previous).bind(value)

    def _collect(self, scope: Scope, step: int) -> None:
        """Bring a step's results to where they are wanted outside."""
        b = self._binding
        for name, array, track in zip(b.step.outputs, b.outputs, b.out_tracks, strict=True):
            if array is not None:
                array[self._index(track.rows[track.span(step)])] = scope.get(name).array
        for name, total, track in zip(b.step.sums, b.sums, b.sum_tracks, strict=True):
            if total is None:
                continue
            value = scope.get(name).array
            if track is None:
                total += value
            else:
                total[self._index(track.rows[: int(track.starts[step])])] += value
        ends = b.ends(step)
        for memory in b.step.memories:
            if memory.final >= 0 and b.final_states[memory.final] is not None:
                rows = self._index(b.schedule.order[ends])
                b.final_states[memory.final][rows] = scope.get(memory.state).array[ends]
