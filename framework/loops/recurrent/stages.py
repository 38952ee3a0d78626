"""Recurrent nets over whole sequences: the same operators, on the rows of all steps where possible.

Binding is a pipeline of stages, each a function that takes what the stages before it have made:

    loop_context   the phases of the step net's operators, and memory       frame.py
    bind_states    initial and final states                                 boundary.py
    bind_links     values of links, step by step                            boundary.py
    bind_memories  values of both sides of each memory                      boundary.py
    bind_once      operators that run once: static, then before the loop    once.py
    bind_loop      operators that run step by step                          loop.py
    bind_once      operators that run once after the loop
    bind_outputs   out-links and sums                                       boundary.py

What comes out is one flat list of calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...base.options.settings import Options
from ...base.python.cached import cached_property
from ...fusion.rows.row_copies import fill_call
from ...fusion.team import merge
from ...ir.kernel_args import Call
from .boundary import (
    bind_links,
    bind_memories,
    bind_outputs,
    bind_states,
    saved_steps,
)
from .frame import StepFrame, loop_context, run_calls
from .links import RecurrentBinding
from .loop import bind_loop
from .once import bind_once
from .store import Arena, SavedSteps, WholeArray


@dataclass(frozen=True, eq=False)
class LoopCalls:
    """A recurrent operator as lists of calls.

    Attributes:
        early: calls up to where every array has its value that the loop does not change.
        late: all calls after these.
        saved: what the run saves for the gradient.
        arena: the memory that it works on; None where no sequence has a step.
        frames: of its operators, for `run_calls`.
    """

    early: list[Call]
    late: list[Call]
    saved: SavedSteps
    arena: Arena | None
    frames: Sequence[StepFrame] = ()


def bind_recurrent(binding: RecurrentBinding, options: Options) -> LoopCalls:
    """Bind a recurrent operator over whole sequences: all stages, in their order.

    Raises:
        CannotFuseError: with `options.fuse`, the arrays do not allow a fused chain.
    """
    states = bind_states(binding)
    if not binding.schedule.steps:
        zeros = [fill_call(total, 0) for total in binding.sums if total is not None]
        return LoopCalls(states.opening, [*zeros, *states.closing], SavedSteps(), None)
    context = loop_context(binding, options)
    phases = context.analysis.phases
    links = bind_links(context)
    memories = bind_memories(context, links.values)
    static = bind_once(context, phases.static, memories.values)
    # After the static operators, before all others: what they write does not change in the loop
    # either, and may be packed.
    constant = (value.array for value in static.values.values() if isinstance(value, WholeArray))
    context.arena.prepared.declare(constant)
    before = bind_once(context, phases.pre, static.values)
    loop = bind_loop(context, before.values, memories, states)
    after = bind_once(context, phases.post, loop.values)
    outputs = bind_outputs(context, after.values)
    saved = SavedSteps()
    if binding.steps is not None:
        saved = saved_steps(context, after.values, loop.scopes, loop.offsets)
    early = [*states.opening, *links.calls, *static.calls]
    late = [*before.calls, *loop.calls, *after.calls, *outputs, *states.closing]
    return LoopCalls(early, late, saved, context.arena, context.frames)


class RecurrentProgram:
    """A recurrent operator bound over whole sequences; calling it runs all steps.

    Raises:
        CannotFuseError: as `bind_recurrent`.
    """

    def __init__(self, binding: RecurrentBinding, options: Options) -> None:
        self._binding = binding
        self._calls = bind_recurrent(binding, options)

    @property
    def arena(self) -> Arena | None:
        """The memory that it works on; None where no sequence has a step."""
        return self._calls.arena

    @property
    def frames(self) -> Sequence[StepFrame]:
        """The frames of its operators, for `run_calls`."""
        return self._calls.frames

    @cached_property
    def _merged(self) -> list[Call]:
        return merge(self.all_calls())

    def all_calls(self, *, prepare: bool = True) -> list[Call]:
        """All calls in the order in which they run.

        Args:
            prepare: with those that fill what the arena prepares for the loop. Of several programs
                on one arena only the first one needs them, asked for when all of them are bound.
        """
        early, late, arena = self._calls.early, self._calls.late, self._calls.arena
        preparing = arena.prepared.calls() if prepare and arena is not None else []
        return [*early, *preparing, *late]

    @property
    def parts(self) -> list[Call]:
        """What a call does, for those who look whether it does the same in each run.

        Raises:
            AttributeError: it leaves its steps to gradients of another frame, in each run.
        """
        steps, frame = self._binding.steps, self._binding.frame
        if steps is not None:
            read = (n for op in frame.plan.operators for n in op.inputs.get("steps", ()))
            if not any(frame.scope.find(name) is steps for name in read):
                raise AttributeError("parts")
        return self.all_calls()

    def begin(self) -> None:
        """Hand the context of the run under way to the operators; before the calls run."""
        if self._calls.arena is not None:
            self._calls.arena.state.context = self._binding.frame.state.context

    def __call__(self) -> None:
        self.begin()
        run_calls(self._merged, self._binding.step.title, self.frames)
        if self._binding.steps is not None:
            self._binding.steps.step_scopes = self._calls.saved
