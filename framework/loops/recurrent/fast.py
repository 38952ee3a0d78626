"""The fast program of a recurrent net: the same operators, over whole sequences where possible.

Bound once for each plan: in-links are brought into time-major order, operators run in the phases of
split.py, those of the loop on slots of arrays that batches share, and out-links are
brought back. Running it is one flat list of calls.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np

from ...base.scope import Scope
from ...base.shape import Levels, Meta
from ...fusion.team import merge
from ...ir.op_list import OpList
from ...ir.operation import Operator
from ...runtime.plan import PlanOptions
from .analysis import Analysis, analysis_of, given_at
from .description import Memory
from .frame import StepFrame, step_plan
from .links import Bound, copy_into, fill, put_into, take_into
from .sharing import Sharing, share_memory
from .store import (
    Alternating,
    Arena,
    Each,
    KeptSteps,
    Layout,
    Prefixes,
    Rows,
    Sheet,
    Stored,
    Whole,
    row_of,
)
from .sums import StepSums

_MOST_FRAMES = 4096


class FastProgram:
    """A recurrent operator over whole sequences; calling it runs all steps.

    Raises:
        CannotFuseError: with `options.fuse`, the arrays do not allow a fused chain.
    """

    def __init__(self, bound: Bound, options: PlanOptions) -> None:
        self.bound, self.options = bound, options
        self.step, self.schedule = bound.step, bound.schedule
        self.place, self.xp = bound.frame.place, bound.frame.xp
        self.calls: list[Any] = []
        self.stored: dict[str, Stored] = {}
        self.kept = KeptSteps() if bound.steps is not None else None
        self.forward = bound.kept if isinstance(bound.kept, KeptSteps) else KeptSteps()
        self.about: Analysis | None = None
        self._start = 0
        self._bind_boots()
        self._bind_final_states()
        if self.schedule.steps:
            self._bind_steps()
        else:
            self.calls += [fill(total, 0) for total in self.bound.sums if total is not None]
        self._bind_finals()

    @functools.cached_property
    def _merged(self) -> list[Any]:
        return merge(self.all_calls())

    def all_calls(self, *, prepare: bool = True) -> list[Any]:
        """Everything in the order in which it runs.

        Args:
            prepare: with what the arena prepares for the loop; a second program on it needs none.
        """
        if not prepare or self.about is None:
            return self.calls
        preparing = self.arena.prepared.calls()
        return [*self.calls[: self._start], *preparing, *self.calls[self._start :]]

    def begin(self) -> None:
        """What comes before the calls: they see the context of the run under way."""
        if self.about is not None:
            self.arena.state.context = self.bound.frame.state.context

    def __call__(self) -> None:
        self.begin()
        for call in self._merged:
            call()
        if self.bound.steps is not None:
            self.bound.steps.step_scopes = self.kept

    def _bind_steps(self) -> None:
        self.about = analysis_of(self.bound, self.forward)
        self.phases, self.rows = self.about.phases, self.about.rows
        self.late_reads = {name for op in self.phases.post for name in op.value_reads()}
        self.once_reads = self.late_reads | {
            name for op in self.phases.pre for name in op.value_reads()
        }
        self.keep = self.about.keep
        self.sharing = self.about.sharing
        if not self.options.inplace:
            self.sharing = Sharing(self.phases.loop)
        self.lasting = self.late_reads | self.keep | set(self.step.outputs)
        self.arena = self._find_arena()
        self.layout = Layout(self.schedule, self.arena.room)
        self._bind_links()
        self._bind_memories()
        self._bind_once(self.phases.static)
        self._start = len(self.calls)
        constant = (held.array for held in self.stored.values() if isinstance(held, Whole))
        self.arena.prepared.declare(constant)
        self._bind_once(self.phases.pre)
        self._bind_loop()
        self._bind_once(self.phases.post)
        self._bind_outputs()
        self._keep_steps()

    def _find_arena(self) -> Arena:
        """The memory that this operator used before in this scope, if it still serves."""
        b, about = self.bound, self.about
        room, steps = int(self.schedule.sizes[0]), self.schedule.steps
        if self.forward.arena is not None:  # slots of the forward run are read here
            room, steps = self.forward.arena.room, self.forward.arena.steps
        fixed = [
            *(a for a, track in zip(b.statics, b.static_tracks, strict=True) if track is None),
            self.forward.arena,
        ]
        if about.key is None:
            return Arena(self.place, room, steps, fixed)
        key = ("recurrent", b.owner, about.key, self.options, b.frame.train, self.place)
        held = b.frame.scope.bound.get(key)
        if held is None or not held.serves(room, steps, fixed):
            if held is not None and self.forward.arena is None:
                room, steps = max(room, held.room), max(steps, held.steps)
            held = b.frame.scope.bound[key] = Arena(self.place, room, steps, fixed)
        return held

    # -- links ---------------------------------------------------------------------------------

    def _bind_links(self) -> None:
        b, ragged = self.bound, self.about.ragged
        for name, array, track in zip(self.step.inputs, b.arrays, b.tracks, strict=False):
            if ragged:
                gathered = self._gathered(array, track)
                slots = Rows(gathered, track.starts[:-1].tolist(), track.starts[1:].tolist())
                self.stored[name] = Sheet(slots)
                continue
            sheet = self.stored[name] = Sheet()
            if name in self.once_reads or name in self.keep:
                sheet.compact = self._gathered(array, track, ("compact", name))
            if name in self.about.step_reads:
                rows = track.rows if self.layout.gapless else track.rows[self.layout.filling]
                target = self.arena.slots(("slots", name), array.shape[1:], array.dtype)
                self.calls.append(take_into(self.xp, array, rows, target[: len(rows)]))
                sheet.slots = self._slots(target)
        for name, array, track in zip(self.step.statics, b.statics, b.static_tracks, strict=True):
            if track is None:
                self.stored[name] = Whole(array)
            else:
                self.stored[name] = Prefixes(self._gathered(array, track), track.starts)
        for name in b.kept_names:
            held = self.forward.stored.get(name)
            if held is not None:  # other forms of a sheet are this program's own
                own = Sheet(held.slots, held.compact) if isinstance(held, Sheet) else held
                self.stored[name] = own

    def _gathered(self, array: Any, track: Any, key: Any = None) -> Any:
        if track.in_order:
            return array[: len(track.rows)]
        meta = ((len(track.rows), *array.shape[1:]), array.dtype)
        if key is None:
            target = self.xp.empty(*meta)
        else:
            target = self.arena.slots(key, *row_of(meta))[: len(track.rows)]
        self.calls.append(take_into(self.xp, array, track.rows, target))
        return target

    def _slots(self, array: Any) -> Rows:
        return Rows(array, self.layout.begins, self.layout.ends)

    def _compact(self, name: str) -> Any:
        """A variable's value for all steps at once."""
        held = self.stored[name]
        if not isinstance(held, Sheet):
            return held.array
        if held.compact is None:
            slots, total = held.slots, self.layout.total
            if self.layout.gapless:
                held.compact = slots.array[:total]
            else:
                row = slots.array.shape[1:]
                target = self.arena.slots(("compact", name), row, slots.array.dtype)[:total]
                self.calls.append(take_into(self.xp, slots.array, slots.rows, target))
                held.compact = target
        return held.compact

    def _in_slots(self, name: str) -> None:
        """Bring a variable that the loop reads into slots."""
        held = self.stored.get(name)
        if not isinstance(held, Sheet) or held.slots is not None:
            return
        row, dtype = row_of(held.meta)
        target = self.arena.slots(("slots", name), row, dtype)
        rows = self.layout.filling
        self.calls.append(take_into(self.xp, held.compact, rows, target[: len(rows)]))
        held.slots = self._slots(target)

    # -- memories ------------------------------------------------------------------------------

    def _bind_boots(self) -> None:
        """Boot values in the schedule's order, by slot position."""
        self.boots = list(self.bound.boots)
        if self._in_order():
            return
        for number, array in enumerate(self.boots):
            target = self.xp.empty(array.shape, array.dtype)
            self.calls.append(take_into(self.xp, array, self.schedule.order, target))
            self.boots[number] = target

    def _in_order(self) -> bool:
        """Whether the schedule takes the sequences as they come."""
        return np.array_equal(self.schedule.order, np.arange(self.bound.sequences))

    def _bind_memories(self) -> None:
        """The arrays of both sides of each memory."""
        reverse, room = self.step.reverse, self.arena.room
        self.copied_states: list[tuple[Memory, Sheet]] = []
        for number, memory in enumerate(self.step.memories):
            row, dtype = self.bound.memory_metas[number]
            if memory.state in self.lasting or memory.previous in self.lasting:
                buffer = self.arena.slots(("memory", number), row, dtype, extra=1)
                sides = [Sheet(self._slots(buffer)), Sheet(self._slots(buffer[room:]))]
                previous, state = sides[::-1] if reverse else sides
            else:
                pair = tuple(
                    self.arena.array(("turn", number, side), ((room, *row), dtype))
                    for side in range(2)
                )
                previous = Sheet(Alternating(pair, self.layout.sizes, 0))
                state = Sheet(Alternating(pair, self.layout.sizes, -1 if reverse else 1))
            self.stored[memory.previous] = previous
            if memory.state in self.stored:
                self.copied_states.append((memory, state))
            else:
                self.stored[memory.state] = state

    def _boot_call(self, memory: Memory, target: Any, places: slice) -> Any:
        if memory.boot < 0:
            return fill(target, memory.boot_value)
        return copy_into(self.xp, self.boots[memory.boot][places], target)

    def _bind_final_states(self) -> None:
        """Memory for the wanted last states in the schedule's order; those that have no step."""
        running = int(self.schedule.sizes[0]) if self.schedule.steps else 0
        self.finals: list[Any] = []
        for memory in self.step.memories:
            wanted = self.bound.finals[memory.final] if memory.final >= 0 else None
            held = wanted
            if wanted is not None and not self._in_order():
                held = self.xp.empty(wanted.shape, wanted.dtype)
            if held is not None and running < len(held):
                places = slice(running, None)
                self.calls.append(self._boot_call(memory, held[places], places))
            self.finals.append(held)

    def _bind_finals(self) -> None:
        """Brings last states into the order of the batch."""
        inverse = np.argsort(self.schedule.order, kind="stable")
        for memory, held in zip(self.step.memories, self.finals, strict=True):
            target = self.bound.finals[memory.final] if memory.final >= 0 else None
            if held is not target:
                self.calls.append(take_into(self.xp, held, inverse, target))

    # -- operators that run once ---------------------------------------------------------------

    def _bind_once(self, operators: list[Operator]) -> None:
        """Operators that run on the rows of all steps."""
        if not operators:
            return
        written = {name for op in operators for name in op.output_vars()}
        wanted = self.lasting | self.about.step_reads | self.once_reads | set(self.step.sums)
        inputs = {name for op in operators for name in op.input_vars()} - written
        values = {name for op in operators for name in op.value_reads()} - written
        known = {name: self._whole_meta(name) for name in inputs}
        arrays = {name: self._compact(name) for name in sorted(values)}
        plan = self._plan(operators, known, self._outside(operators, wanted & written))
        for name in sorted(plan.survivors):
            arrays[name] = self._result(name, plan.metas[name])
        self.calls += self._frame(plan, arrays, "once", self.bound.frame.scope).calls

    def _outside(self, operators: list[Operator], names: set[str]) -> set[str]:
        """Those of the names that somebody reads besides these operators."""
        phases = (self.phases.static, self.phases.pre, self.phases.loop, self.phases.post)
        others = [op for phase in phases if phase is not operators for op in phase]
        read = {name for op in others for name in op.value_reads()}
        return names & (read | self.keep | {*self.step.outputs, *self.step.sums})

    def _whole_meta(self, name: str) -> Meta:
        shape, dtype = self.about.metas[name]
        return ((self.layout.total, *shape[1:]), dtype) if name in self.rows else (shape, dtype)

    def _result(self, name: str, meta: Meta) -> Any:
        """Where an operator that runs once puts a result."""
        if name in self.phases.sums and name in self.step.sums:
            for inner, total in zip(self.step.sums, self.bound.sums, strict=True):
                if inner == name and total is not None:
                    self.stored[name] = Whole(total)
                    return total
        if name not in self.rows:
            array = self.arena.array(("whole", name), meta)
            self.stored[name] = Whole(array)
            return array
        # Without gaps the loop works on the same memory; else this is another form of it.
        form = "slots" if self.layout.gapless else "compact"
        array = self.arena.slots((form, name), *row_of(meta))
        sheet = self.stored[name] = Sheet(compact=array[: meta[0][0]])
        if self.layout.gapless:
            sheet.slots = self._slots(array)
        return sheet.compact

    def _plan(
        self, operators: list[Operator], known: Any, lasting: Any, offsets: Any = None
    ) -> Any:
        return step_plan(self.step, operators, known, lasting, self.options, self.place, offsets)

    def _frame(self, plan: Any, arrays: dict[str, Any], tag: str, scope: Scope) -> StepFrame:
        return StepFrame(plan, arrays, self.bound.frame, self.arena, tag, scope)

    # -- the loop ------------------------------------------------------------------------------

    def _bind_loop(self) -> None:
        """Everything that runs step by step, in the order in which it runs."""
        self.scopes = self._step_scopes()
        self.offsets: list[dict[str, Levels]] = []
        written = {name for op in self.sharing.operators for name in op.output_vars()}
        for name in sorted(self.about.step_reads - written):
            self._in_slots(name)
        states = {memory.state for memory in self.step.memories}
        settled = set(self.step.sums) | states | self.sharing.names
        self.surviving = written & (self.lasting | settled)
        share_memory(
            self.sharing, self.stored, self.about.metas, self.lasting, self.arena, self.layout
        )
        self.step_sums = StepSums(self.bound, self.phases.sums)
        self.calls += self.step_sums.first_calls()
        self._make_room_before()
        calls = [self._step_calls(step) for step in range(self.schedule.steps)]
        for step in self.bound.order:
            self.calls += calls[step]
        self.calls += self.step_sums.last_calls()

    def _step_calls(self, step: int) -> list[Any]:
        return [
            *self._boot_calls(step),
            *self._loop_calls(step),
            *self._ending_calls(step),
            *self.step_sums.calls(step, self.stored),
        ]

    def _loop_calls(self, step: int) -> list[Any]:
        """The step's operators, as they were bound for an earlier batch where that fits."""
        if not self.sharing.operators:
            return []
        if not self.reusable:
            return self._bind_step(step)
        key = (self.layout.gapless, step, self.layout.sizes[step])
        frames = self.arena.frames
        calls = frames.get(key)
        if calls is None:
            if len(frames) >= _MOST_FRAMES:
                frames.clear()
            calls = frames[key] = self._bind_step(step)
        return calls

    def _bind_step(self, step: int) -> list[Any]:
        known, offsets = self._given(step) if self.about.ragged else (None, None)
        if known is None:
            known = self._step_metas(step)
        plan = self._plan(self.sharing.operators, known, self.surviving, offsets)
        if self.about.ragged:
            self.offsets.append(dict(plan.offsets))
        for name in sorted(plan.survivors):
            self._make_room(name, plan.metas[name], step)
        arrays = {
            name: self.stored[name].at(step)
            for name in (*plan.externals, *plan.survivors)
            if self._at_hand(name)
        }
        return self._frame(plan, arrays, "loop", self.scopes[step]).calls

    def _given(self, step: int) -> Any:
        return given_at(self.bound, self.forward, step)

    def _at_hand(self, name: str) -> bool:
        held = self.stored.get(name)
        return held is not None and not (isinstance(held, Sheet) and held.slots is None)

    def _step_metas(self, step: int) -> dict[str, Meta]:
        size = self.layout.sizes[step]
        metas = {
            name: ((size, *meta[0][1:]), meta[1]) if name in self.rows else meta
            for name, meta in self.about.metas.items()
        }
        for name, held in self.stored.items():
            if isinstance(held, Each) and len(held.arrays) > step:
                metas[name] = (held.arrays[step].shape, held.arrays[step].dtype)
        return metas

    def _make_room_before(self) -> None:
        """Memory for what the loop writes and outlives its step, where that is known before."""
        about = self.about
        for name in sorted(self.surviving - self.stored.keys()):
            if about.ragged:
                break
            if name in self.rows:
                array = self.arena.slots(("slots", name), *row_of(about.metas[name]))
                self.stored[name] = Sheet(self._slots(array))
            elif name not in self.lasting and name not in about.odd:
                self.stored[name] = Whole(self.arena.array(("step", name), about.metas[name]))
        known = about.key is not None and self.surviving <= self.stored.keys()
        self.reusable = known and not self.nested

    def _make_room(self, name: str, meta: Meta, step: int) -> None:
        """Memory for other variables of the loop that outlive their step."""
        held = self.stored.get(name)
        if held is None and name in self.step.outputs:
            track = self.bound.out_tracks[self.step.outputs.index(name)]
            array = self.xp.empty((len(track.rows), *meta[0][1:]), meta[1])
            starts = track.starts.tolist()
            self.stored[name] = Sheet(Rows(array, starts[:-1], starts[1:]))
        elif held is None or isinstance(held, Each):
            each = self.stored.setdefault(name, Each())
            each.arrays.append(self.xp.empty(*meta))

    def _boot_calls(self, step: int) -> list[Any]:
        places = self.bound.begins(step)
        if places.start == places.stop:
            return []
        return [
            self._boot_call(memory, self.stored[memory.previous].at(step)[places], places)
            for memory in self.step.memories
        ]

    def _ending_calls(self, step: int) -> list[Any]:
        copy = partial(copy_into, self.xp)
        calls = [
            copy(self.stored[memory.state].at(step), state.at(step))
            for memory, state in self.copied_states
        ]
        places = self.bound.ends(step)
        if places.start < places.stop:
            calls += [
                copy(self.stored[memory.state].at(step)[places], held[places])
                for memory, held in zip(self.step.memories, self.finals, strict=True)
                if held is not None
            ]
        return calls

    def _step_scopes(self) -> list[Scope]:
        """A scope for each step where operators hold nets, which keep variables there."""
        self.nested = any(
            isinstance(value, OpList) for op in self.phases.loop for value in op.attrs.values()
        )
        if self.forward:
            return list(self.forward)
        outer = self.bound.frame.scope
        steps = range(self.schedule.steps)
        return [Scope(parent=outer) if self.nested else outer for _ in steps]

    # -- results -------------------------------------------------------------------------------

    def _bind_outputs(self) -> None:
        """Out-links go back to the order of the batch; sums that are wanted twice are copied."""
        b = self.bound
        for name, array, track in zip(self.step.outputs, b.outputs, b.out_tracks, strict=True):
            if array is None:
                continue
            sheet = self.stored[name]
            source, rows = sheet.compact, None
            if source is None:
                source, rows = sheet.slots.array, sheet.slots.rows
            if len(track.rows) == len(array):
                inverse = np.argsort(track.rows, kind="stable")
                rows = inverse if rows is None else rows[inverse]
                self.calls.append(take_into(self.xp, source, rows, array))
            else:  # one piece of a longer run
                self.calls.append(put_into(self.xp, source, rows, track.rows, array))
        for name, total in zip(self.step.sums, b.sums, strict=True):
            if total is not None and name in self.phases.sums:
                source = self.stored[name].array
                if source is not total:
                    self.calls.append(copy_into(self.xp, source, total))

    def _keep_steps(self) -> None:
        if self.kept is None:
            return
        self.kept += self.scopes if self.nested else []
        self.kept.stored = {n: self.stored[n] for n in self.keep if n in self.stored}
        self.kept.metas, self.kept.rows = self.about.metas, self.rows
        self.kept.ragged, self.kept.offsets = self.about.ragged, self.offsets
        self.kept.arena = self.arena
