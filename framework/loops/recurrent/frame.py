"""The context that all stages of binding a recurrent net share, and frames over given arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from operator import length_hint
from typing import Any

from ...base.backend import Place
from ...base.errors import OpscopeError, RunError
from ...base.options.settings import Options
from ...base.python.bounded_cache import HashedOnce
from ...base.scope import Scope
from ...base.sizes.shape import ArraySpec, Levels
from ...ir.operation import Operator
from ...runtime.binding import BoundSteps
from ...runtime.plain_net import bind_chain, grouping
from ...runtime.plans.memory import hold, shared_panels
from ...runtime.plans.plan import Plan, Range, make_plan
from .analysis import Analysis, analysis_of
from .description import StepNet
from .links import RecurrentBinding
from .sharing import Sharing
from .store import Arena, SavedSteps, SlotRanges


class StepFrame(BoundSteps):
    """A plan bound to arrays; `calls` does the work.

    Args:
        arrays: of all externals of the plan and all that outlives it; temporaries are added.
        outer: the frame of the recurrent operator, whose place and phase also hold here.
        arena: holds temporaries; frames of one `tag` share the memory of their temporaries.
        scope: where operators that hold nets find their variables.
    """

    least_cost = 1  # so that a team can run them

    def __init__(
        self,
        plan: Plan,
        arrays: dict[str, Any],
        outer: BoundSteps,
        arena: Arena,
        tag: str,
        scope: Scope,
    ) -> None:
        arrays |= arena.temporaries(plan, tag)
        kernels = arena.state, arrays, arena.scratch, outer.share
        super().__init__(plan, scope, outer.place, outer.train, *kernels, bind_chain)
        self.prepared = arena.prepared
        self.kept = outer.kept
        self.bind()

    def tell(self, title: str, call: Callable[[], Any], error: Exception) -> None:
        """Raise the error of a call as its operator's error, if the call is the frame's."""
        for index, own in enumerate(self.calls):
            if own is call:
                try:
                    self.fail(index, error)
                except RunError as named:
                    raise RunError(f"{title}, in its step net: {named}") from error


def run_calls(calls: Sequence[Callable[[], Any]], title: str, frames: Iterable[StepFrame]) -> None:
    """Run the calls of a loop.

    Args:
        title: of the recurrent net. frames: of the calls that are operators.

    Raises:
        RunError: an operator of the step net failed. Own errors pass through.
    """
    rest = iter(calls)
    try:
        for call in rest:
            call()
    except OpscopeError:
        raise
    except Exception as error:
        failed = calls[len(calls) - 1 - length_hint(rest)]
        for frame in frames:
            frame.tell(title, failed, error)
        raise


def step_plan(
    step: StepNet,
    operators: Sequence[Operator],
    known: Mapping[str, ArraySpec],
    live_out: Collection[str],
    options: Options,
    place: Place,
    offsets: Mapping[str, Levels] | None = None,
) -> Plan:
    """The plan of some of a step net's operators; remembered with the net.

    Args:
        known: shapes of what they read from outside.
        live_out: what must be in memory afterwards; names that they do not write are ignored.
        offsets: of the variables that hold sequences.
    """
    written: set[str] = set()
    externals: dict[str, None] = {}
    for op in operators:
        externals.update((name, None) for name in op.input_vars() if name not in written)
        written.update(op.output_vars())
    known = {name: known[name] for name in externals}
    outlive = written.intersection(live_out)
    levels = {name: own for name, own in (offsets or {}).items() if own}
    options = replace(options, channels_last=False)  # steps share memory with whole sequences
    span = Range(list(operators), list(externals), outlive, {})
    # By identity: plans and forms hold their operators, so that no other ones get their ids.
    key = (tuple(map(id, operators)), frozenset(outlive), options, place)
    forms = step.forms.get_or_make(key, list)
    # Offsets are new in nearly every batch: remembering plans by them would only fill the cache.
    if levels:
        return make_plan(span, known, step.vars, options, grouping(place), levels, forms)
    key = (*key, tuple(known.items()))
    plan: Plan | None = step.plans.get(key)
    if plan is None:
        plan = make_plan(span, known, step.vars, options, grouping(place), forms=forms)
        step.plans.add(key, plan)
    return plan


@dataclass(frozen=True, eq=False)
class LoopContext:
    """Facts that every stage of binding reads; no stage changes them.

    Attributes:
        sharing: the operators of the loop, and who shares memory in it.
        arena: memory that later batches use again.
        slots: where the rows of each step are in arrays of the arena.
        forward: in a gradient, the values that the forward run saved; else empty.
        frames: that were bound, for `run_calls`.
    """

    binding: RecurrentBinding
    options: Options
    analysis: Analysis
    sharing: Sharing
    arena: Arena
    slots: SlotRanges
    forward: SavedSteps
    frames: list[StepFrame] = field(default_factory=list)

    @property
    def step(self) -> StepNet:
        return self.binding.step

    @property
    def xp(self) -> Any:
        return self.binding.frame.xp

    def plan(
        self,
        operators: Sequence[Operator],
        known: Mapping[str, ArraySpec],
        live_out: Collection[str],
        offsets: Mapping[str, Levels] | None = None,
    ) -> Plan:
        """See `step_plan`."""
        place = self.binding.frame.place
        return step_plan(self.step, operators, known, live_out, self.options, place, offsets)

    def bind(
        self, plan: Plan, arrays: dict[str, Any], tag: str, scope: Scope
    ) -> list[Callable[[], Any]]:
        """The calls of a plan over given arrays; see `StepFrame`."""
        return self.frame(plan, arrays, tag, scope).calls

    def frame(self, plan: Plan, arrays: dict[str, Any], tag: str, scope: Scope) -> StepFrame:
        """A plan, bound to given arrays."""
        panels = shared_panels(self.arena.panels) if tag == "loop" else nullcontext()
        with panels:
            frame = StepFrame(plan, arrays, self.binding.frame, self.arena, tag, scope)
        self.frames.append(frame)
        return frame


def loop_context(binding: RecurrentBinding, options: Options) -> LoopContext:
    """The context of a recurrent operator that has a step to run."""
    saved = binding.saved
    forward = saved if isinstance(saved, SavedSteps) else SavedSteps()
    analysis = analysis_of(binding, forward)
    sharing = analysis.sharing if options.inplace else Sharing(analysis.phases.loop)
    arena = _find_arena(binding, options, analysis, forward)
    slots = SlotRanges(binding.schedule, arena.room)
    return LoopContext(binding, options, analysis, sharing, arena, slots, forward)


def fixed_arrays(
    frame: BoundSteps, constant: Sequence[Any], forward: Arena | None = None
) -> list[Any]:
    """What the calls of an arena are bound for: arrays that do not change in the loop, the arena of
    the forward run, and which of the arrays stay packed from run to run."""
    kept = frame.kept
    return [*constant, forward, *[kept is not None and kept.holds(one) for one in constant]]


def use_arena(frame: BoundSteps, key: Any, constant: Sequence[Any]) -> None:
    """Note that a frame works on the arena of a key, and reads what was packed of arrays."""
    kept = frame.kept
    if kept is not None:
        for array in constant:
            if kept.holds(array):
                kept.reuse(array)
    frame.share(frame.scope.bound, key)


def _place_of(frame: BoundSteps, owner: Any) -> tuple[Any, ...]:
    """Where a scope notes the key of the arena that an operator used last."""
    return "last arena", owner, frame.plan.options, frame.train, frame.place


def last_arena(frame: BoundSteps, owner: Any) -> tuple[Any, Arena | None]:
    """The key of the arena that an operator used last in a scope, and the arena, if it is there."""
    bound = frame.scope.bound
    key = bound.get(_place_of(frame, owner))
    return key, bound.get(key)


def _find_arena(
    binding: RecurrentBinding, options: Options, analysis: Analysis, forward: SavedSteps
) -> Arena:
    """The memory that this operator used before in this scope; new memory where it does not fit."""
    frame = binding.frame
    room = int(binding.schedule.sizes[0])
    steps = binding.schedule.steps
    if forward.arena is not None:  # slots of the forward run are read here
        room, steps = forward.arena.room, forward.arena.steps
    statics = zip(binding.statics, binding.static_tracks, strict=True)
    constant = [array for array, track in statics if track is None]
    fixed = fixed_arrays(frame, constant, forward.arena)
    # An analysis for this one batch: nothing that is bound serves another.
    if analysis.key is None:
        return Arena(frame.place, room, steps, fixed)
    parts = "recurrent", binding.owner, analysis.key, options, frame.train, frame.place
    key = HashedOnce(parts)
    arena: Arena | None = frame.scope.bound.get(key)
    if arena is None or not arena.serves(room, steps, fixed):
        if arena is not None and forward.arena is None:
            # Never smaller than before: batches that go up and down would make a new arena each
            # time.
            room = max(room, arena.room)
            if steps > arena.steps:  # with some more, so that batches which grow need few arenas
                steps = max(steps, 2 * arena.steps)
            else:
                steps = arena.steps
        trains = frame.train and forward.arena is None
        arena = Arena(frame.place, room, steps, fixed, trains=trains)
        hold(frame.scope, key, arena)
    frame.scope.bound[_place_of(frame, binding.owner)] = key
    use_arena(frame, key, constant)
    return arena
