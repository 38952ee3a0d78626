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

What comes out is one flat list of calls. Where sequences are equally long and only the loop is left
of the step net, what is bound lies in memory of the loop's own: batches of other lengths go through
no stage, but copy their arrays there and back (`known_loop`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...base.options.settings import Options
from ...base.python.cached import cached_property
from ...base.scope import Variable
from ...base.sizes.shape import ArraySpec
from ...fusion.rows.row_copies import copy_call, fill_call, take_call
from ...fusion.team import Alone, in_order, merge, task_of
from ...ir.kernel_args import Call, KernelArgs
from ...runtime.binding import BoundSteps, frame_of
from .boundary import (
    bind_links,
    bind_memories,
    bind_outputs,
    bind_states,
    initial_call,
    saved_steps,
)
from .description import StepNet, step_net
from .frame import (
    LoopContext,
    StepFrame,
    fixed_arrays,
    last_arena,
    loop_context,
    run_calls,
    use_arena,
)
from .links import RecurrentBinding
from .loop import Loop, bind_loop
from .once import bind_once
from .step_calls import StepCalls
from .store import Arena, SavedSteps, Slots, Stage, StepSlices, StepValues, WholeArray


@dataclass(frozen=True, eq=False)
class LoopCalls:
    """A recurrent operator as lists of calls.

    Attributes:
        early: calls up to where every array has its value that the loop does not change.
        late: all calls after these.
        saved: what the run saves for the gradient.
        arena: the memory that it works on; None where no sequence has a step.
        frames: of its operators, for `run_calls`.
        loop: which of the late calls is the loop, where it is one.
    """

    early: list[Call]
    late: list[Call]
    saved: SavedSteps
    arena: Arena | None
    frames: Sequence[StepFrame] = ()
    loop: int | None = None

    def listed(self, *, prepare: bool = True) -> list[Call]:
        """See `LoopProgram.all_calls`."""
        preparing = self.arena.prepared.calls() if prepare and self.arena is not None else []
        return [*self.early, *preparing, *self.late]

    @cached_property
    def merged(self) -> list[Call]:
        """All calls, neighbors made one where a team can run them."""
        return merge(self.listed())

    @cached_property
    def in_parts(self) -> tuple[Call, Alone, Call] | None:
        """What comes before the loop, the loop, which touches the memory of the arena alone, and
        what follows; None where one thread does not do all of it in native functions."""
        at = self.loop
        alone: Alone | None = None if at is None else getattr(self.late[at], "alone", None)
        if at is None or alone is None:
            return None
        after = self.late[at + 1 :]
        calls = self.listed()
        before = calls[: len(calls) - len(after) - 1]
        if any(task_of(call) is None for call in (*before, *after)):
            return None
        return in_order(*before), alone, in_order(*after)


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
    context.arena.even = _even_loop(context, static, loop)
    after = bind_once(context, phases.post, loop.values)
    outputs = bind_outputs(context, after.values)
    saved = SavedSteps()
    if binding.steps is not None:
        saved = saved_steps(context, after.values, loop.scopes, loop.offsets)
    early = [*states.opening, *links.calls, *static.calls]
    late = [*before.calls, *loop.calls, *after.calls, *outputs, *states.closing]
    return LoopCalls(early, late, saved, context.arena, context.frames)


class LoopProgram:
    """A recurrent operator as bound calls; calling it runs all steps.

    Args:
        frame: of the net around. title: of the recurrent net.
    """

    def __init__(self, frame: BoundSteps, title: str, calls: LoopCalls) -> None:
        self._frame = frame
        self._title = title
        self._calls = calls

    @property
    def arena(self) -> Arena | None:
        """The memory that it works on; None where no sequence has a step."""
        return self._calls.arena

    @property
    def frames(self) -> Sequence[StepFrame]:
        """The frames of its operators, for `run_calls`."""
        return self._calls.frames

    def all_calls(self, *, prepare: bool = True) -> list[Call]:
        """All calls in the order in which they run.

        Args:
            prepare: with those that fill what the arena prepares for the loop. Of several programs
                on one arena only the first one needs them, asked for when all of them are bound.
        """
        return self._calls.listed(prepare=prepare)

    @property
    def in_parts(self) -> tuple[Call, Alone, Call] | None:
        """See `LoopCalls.in_parts`."""
        return self._calls.in_parts

    def begin(self) -> None:
        """Hand the context of the run under way to the operators; before the calls run."""
        if self._calls.arena is not None:
            self._calls.arena.state.context = self._frame.state.context

    def __call__(self) -> None:
        self.begin()
        run_calls(self._calls.merged, self._title, self.frames)


class RecurrentProgram(LoopProgram):
    """A recurrent operator bound over whole sequences.

    Raises:
        CannotFuseError: as `bind_recurrent`.
    """

    def __init__(self, binding: RecurrentBinding, options: Options) -> None:
        super().__init__(binding.frame, binding.step.title, bind_recurrent(binding, options))
        self._steps: Variable | None = binding.steps

    @property
    def parts(self) -> list[Call]:
        """What a call does, for those who look whether it does the same in each run.

        Raises:
            AttributeError: it leaves its steps to gradients of another frame, in each run.
        """
        steps, frame = self._steps, self._frame
        if steps is not None:
            read = (n for op in frame.plan.operators for n in op.inputs.get("steps", ()))
            if not any(frame.scope.find(name) is steps for name in read):
                raise AttributeError("parts")
        return self.all_calls()

    def __call__(self) -> None:
        super().__call__()
        if self._steps is not None:
            self._steps.step_scopes = self._calls.saved


# -- other lengths -------------------------------------------------------------------------------

_MOST_LENGTHS = 256
"""Of a loop, for which what was made is kept: some kilobytes each."""


class _Outside(NamedTuple):
    """Arrays outside of a loop, by slot of its operator."""

    x: list[Any]
    boot: list[Any]
    final: list[Any]
    out: list[Any]


@dataclass(eq=False)
class EvenLoop:
    """What batches of other lengths take of a loop over sequences that are all equally long.

    Attributes:
        rows: shapes without rows, and dtypes, of in-links and of initial states; see `_rows_of`.
        inputs: the slots of each in-link; None where the loop does not read it.
        memories: both sides of each, at all steps. outputs: the slots of each out-link.
        static: the calls of operators that depend on static links alone.
        known: what was made for arrays that lie as `lies` says, by length.
    """

    rows: list[ArraySpec | None]
    inputs: list[Any]
    memories: list[tuple[Slots, Slots]]
    outputs: list[Any]
    static: list[Call]
    known: dict[int, LoopCalls] = field(default_factory=dict)
    lies: Any = None

    def calls(
        self,
        step: StepNet,
        arena: Arena,
        steps: StepCalls,
        size: tuple[int, int],
        outside: _Outside,
    ) -> LoopCalls:
        """The calls for so many sequences of a length.

        Args:
            steps: as they are bound, all of that length among them.
        """
        count, length = size
        first, last = (length - 1, 0) if step.reverse else (0, length - 1)
        total = count * length
        inside = outwards = None  # outside, sequence follows sequence; inside, step follows step
        if count > 1:
            numbers = np.arange(total)
            inside = numbers.reshape(count, length).T.reshape(-1)
            outwards = numbers.reshape(length, count).T.reshape(-1)
        early = [
            _taken(array, inside, target[:total])
            for array, target in zip(outside.x, self.inputs, strict=True)
            if target is not None
        ]
        late: list[Call] = [
            initial_call(np, memory, outside.boot, previous.at(first), slice(0, count))
            for memory, (previous, _) in zip(step.memories, self.memories, strict=True)
        ]
        loop = steps.over(range(length))
        at = len(late) if len(loop) == 1 else None
        late += loop
        for memory, (_, state) in zip(step.memories, self.memories, strict=True):
            final = None if memory.final < 0 else outside.final[memory.final]
            if final is not None:
                late.append(copy_call(np, state.at(last), final))
        late += [
            _taken(source[:total], outwards, array)
            for array, source in zip(outside.out, self.outputs, strict=True)
            if array is not None
        ]
        return LoopCalls([*early, *self.static], late, SavedSteps(), arena, loop=at)


def _rows_of(step: StepNet, arrays: Sequence[Any], boots: Sequence[Any]) -> list[ArraySpec | None]:
    """Shapes without rows, and dtypes: of in-links, and of each memory's initial states."""
    initial = [None if memory.boot < 0 else boots[memory.boot] for memory in step.memories]
    return [one if one is None else (one.shape[1:], one.dtype) for one in (*arrays, *initial)]


def _even_loop(context: LoopContext, static: Stage, loop: Loop) -> EvenLoop | None:
    """What other lengths take of a loop; None where they are bound stage by stage."""
    binding, step, slots = context.binding, context.step, context.slots
    phases = context.analysis.phases
    # Without gaps: as many sequences have each step as there is room for.
    if not loop.serves_others or not slots.gapless or context.xp is not np:
        return None
    if binding.steps is not None or binding.saved is not None or phases.pre or phases.post:
        return None
    # Calls of Python might hold the frame that they were bound in, with all its arrays.
    if any(binding.static_tracks) or any(task_of(call) is None for call in static.calls):
        return None
    found = {name: one for name, one in loop.values.items() if isinstance(one, StepValues)}
    inputs, outputs = ([found[name] for name in names] for names in (step.inputs, step.outputs))
    if any(value.compact is not None for value in (*inputs, *outputs)):
        return None
    count, most = slots.room, context.arena.steps

    def at_all_steps(name: str) -> Slots:
        own = found[name].slots
        assert own is not None
        if not isinstance(own, StepSlices):
            return replace(own, sizes=[count] * most)
        begins, ends = (range(first, first + count * most, count) for first in (0, count))
        return replace(own, begins=begins, ends=ends)

    return EvenLoop(
        _rows_of(step, binding.arrays, binding.initial_states),
        [_array_of(value) for value in inputs],
        [(at_all_steps(one.previous), at_all_steps(one.state)) for one in step.memories],
        [_array_of(value) for value in outputs],
        static.calls,
    )


def _array_of(value: StepValues) -> Any:
    """The slots of all steps in one array; None where a value has none."""
    return value.slots.array if isinstance(value.slots, StepSlices) else None


def even_size(k: KernelArgs) -> tuple[int, int] | None:
    """How many sequences an operator runs over, and how long each is; None where they differ, or
    static links hold sequences."""
    frame = frame_of(k)
    levels = [frame.offsets(name) for name in k.op.inputs["x"]]
    outer = levels[0][0]
    count = len(outer) - 1
    length = int(outer[1]) if count else 0
    statics = k.op.inputs.get("static", ())
    if not length or any(len(own) > 1 for own in levels) or any(map(frame.offsets, statics)):
        return None
    if count > 1 and not np.array_equal(outer, length * np.arange(count + 1)):
        return None
    return count, length


def known_loop(k: KernelArgs, count: int, length: int) -> LoopProgram | None:
    """The program of an operator that saves nothing, made of what is bound for another length; None
    where that does not serve.

    Args:
        count, length: see `even_size`.
    """
    frame, step = frame_of(k), step_net(k.attrs["net"])
    key, arena = last_arena(frame, k.op)
    even: EvenLoop | None = arena and arena.even
    outside = _Outside(*[k.list(slot) for slot in ("x", "boot", "final", "out")])
    if arena is None or even is None or _rows_of(step, outside.x, outside.boot) != even.rows:
        return None
    statics = k.list("static")
    serves = count == arena.room and arena.serves(count, length, fixed_arrays(frame, statics))
    steps = arena.frames.get((True, count))
    if not serves or steps is None or steps.missing(range(length)):
        return None
    use_arena(frame, key, statics)
    # Frames share memory: arrays of all lengths begin at one place. Where they do not, larger
    # memory has replaced it, and what was made before would keep it.
    lies = [
        None if array is None else (array.ctypes.data, array.strides)
        for arrays in outside
        for array in arrays
    ]
    if lies != even.lies or len(even.known) >= _MOST_LENGTHS:
        even.lies, even.known = lies, {}
    calls = even.known.get(length)
    if calls is None:
        calls = even.known[length] = even.calls(step, arena, steps, (count, length), outside)
    return LoopProgram(frame, step.title, calls)


def _taken(source: Any, rows: np.ndarray | None, target: Any) -> Call:
    """A call for target = source[rows]; without rows, of all."""
    return copy_call(np, source, target) if rows is None else take_call(np, source, rows, target)
