"""The fast program of a recurrent net: the same operators, over whole sequences where possible.

Bound once for each plan: in-links are brought into time-major order, operators run in the phases of
recurrent_split.py, those of the loop on views of time-major arrays, and out-links are brought back.
Running it is one flat list of calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from ..proto import net_pb2 as pb
from .infer import infer_metas
from .operation import Operator
from .plan import PlanOptions
from .recurrent_frame import Memory as SharedMemory
from .recurrent_frame import StepFrame, step_plan
from .recurrent_links import Bound, take_into
from .recurrent_split import Phases, live_operators, split, without_copies
from .recurrent_step import Memory
from .recurrent_store import (
    Alternating,
    Each,
    KeptSteps,
    Prefixes,
    Rows,
    Shifted,
    Stored,
    Whole,
    time_major,
)
from .scope import Scope
from .shape import Levels, Meta

_MOST_SPLITS = 256


class FastProgram:
    """A recurrent operator over whole sequences; calling it runs all steps.

    Raises:
        CannotFuseError: with `options.fuse`, the arrays do not allow a fused chain.
    """

    def __init__(self, bound: Bound, options: PlanOptions) -> None:
        self.bound, self.options = bound, options
        self.step, self.schedule = bound.step, bound.schedule
        self.xp, self.steps = bound.frame.xp, bound.schedule.steps
        self.total = int(bound.schedule.starts[-1]) if self.steps else 0
        self.calls: list[Any] = []
        self.stored: dict[str, Stored] = {}
        self.shared = SharedMemory(self.xp)
        self.kept: KeptSteps | None = None
        self._bind_boots()
        if bound.steps is not None:
            self.kept = KeptSteps()
        if self.steps:
            self._bind_steps()
        self._bind_finals()
        self.calls = list(self.calls)

    def __call__(self) -> None:
        for call in self.calls:
            call()
        if self.bound.steps is not None:
            self.bound.steps.step_scopes = self.kept

    # -- binding -------------------------------------------------------------------------------

    def _bind_steps(self) -> None:
        self._bind_links()
        self.ragged = self._sees_sequences()
        self.keep = self._names_to_keep()
        self._analyse()
        self.late_reads = {name for op in self.phases.post for name in op.value_reads()}
        self.step_reads = {name for op in self.phases.loop for name in op.value_reads()}
        self._bind_memories()
        self._bind_once(self.phases.static, self.step_reads | self.late_reads)
        self._bind_once(self.phases.pre, self.step_reads | self.late_reads)
        self._bind_loop()
        self._bind_once(self.phases.post, set())
        self._bind_outputs()
        self._keep_steps()

    def _bind_links(self) -> None:
        b = self.bound
        for name, array, track in zip(self.step.inputs, b.arrays, b.tracks, strict=False):
            self.stored[name] = Rows(self._gathered(array, track), track.starts)
        for name, array, track in zip(self.step.statics, b.statics, b.static_tracks, strict=True):
            if track is None:
                self.stored[name] = Whole(array)
            else:
                self.stored[name] = Prefixes(self._gathered(array, track), track.starts)
        kept = b.kept.stored if isinstance(b.kept, KeptSteps) else {}
        self.stored.update((name, kept[name]) for name in b.kept_names if name in kept)

    def _gathered(self, array: Any, track: Any) -> Any:
        if track.in_order:
            return array
        target = self.xp.empty((len(track.rows), *array.shape[1:]), array.dtype)
        self.calls.append(take_into(self.xp, array, track.rows, target))
        return target

    # -- what is known of one step -------------------------------------------------------------

    def _given(self, step: int) -> tuple[dict[str, Meta], dict[str, Levels]]:
        """Shapes and offsets of the given variables at a step."""
        b, size = self.bound, int(self.schedule.sizes[step])
        known: dict[str, Meta] = {}
        for name in self.step.given:
            if name in self.stored:
                array = self.stored[name].at(step)
                known[name] = (array.shape, array.dtype)
        if isinstance(b.kept, KeptSteps):
            for name in b.kept_names:
                if name not in known:
                    (rows, *row), dtype = b.kept.metas[name]
                    known[name] = ((size if name in b.kept.rows else rows, *row), dtype)
        for memory, (row, dtype) in zip(self.step.memories, b.memory_metas, strict=True):
            known[memory.previous] = ((size, *row), dtype)
        offsets = {
            name: track.inner[step]
            for name, track in zip(self.step.inputs, b.tracks, strict=False)
            if track.inner[step]
        }
        for name, levels, track in zip(
            self.step.statics, b.static_levels, b.static_tracks, strict=True
        ):
            own = levels if track is None else track.inner[step]
            if own:
                offsets[name] = own
        if isinstance(b.kept, KeptSteps) and b.kept.offsets:
            offsets.update(
                (name, own) for name, own in b.kept.offsets[step].items() if name in known
            )
        return known, offsets

    def _sees_sequences(self) -> bool:
        """Whether a step sees sequences, so that its shapes depend on more than its rows."""
        b = self.bound
        return (isinstance(b.kept, KeptSteps) and b.kept.ragged) or any(
            track is not None and bool(track.inner[0])
            for track in (*b.tracks, *b.static_tracks, *b.out_tracks)
        )

    def _analyse(self) -> None:
        self.known, self.known_offsets = self._given(0)
        last, _ = self._given(self.steps - 1)
        fixed = frozenset(name for name, stored in self.stored.items() if type(stored) is Whole)
        key = (tuple(self.known.items()), tuple(last.items()), fixed, frozenset(self.keep))
        found = None if self.ragged else self.step.splits.get(key)
        if found is None:
            found = self._split(last, fixed)
            if not self.ragged:
                while len(self.step.splits) >= _MOST_SPLITS:
                    self.step.splits.pop(next(iter(self.step.splits)), None)
                self.step.splits[key] = found
        self.phases, self.metas, self.rows = found

    def _split(
        self, last: dict[str, Meta], fixed: frozenset[str]
    ) -> tuple[Phases, dict[str, Meta], set[str]]:
        step, sizes = self.step, self.schedule.sizes
        levels = dict(self.known_offsets) if self.ragged else {}
        metas = infer_metas(step.operators, self.known, step.vars, levels)
        ends = metas
        if sizes[-1] != sizes[0] and not self.ragged:
            ends = infer_metas(step.operators, last, step.vars, {})
        rows = {
            name
            for name, (shape, _) in metas.items()
            if name not in fixed
            and shape[:1] == (sizes[0],)
            and (self.ragged or ends[name][0][:1] == (sizes[-1],))
        }
        live = live_operators(step, self.keep)
        if self.ragged:
            return Phases(loop=live), metas, rows
        live = without_copies(step, live, metas, self.keep)
        return split(step, live, metas, rows, fixed), metas, rows

    def _names_to_keep(self) -> set[str]:
        if self.bound.steps is None:
            return set()
        everything = {*self.step.given, *self.step.writes}
        if self.bound.keep is None or self.ragged:
            return everything
        return everything & self.bound.keep

    # -- memories ------------------------------------------------------------------------------

    def _bind_boots(self) -> None:
        """Boot values in the schedule's order, by slot position."""
        order = self.schedule.order
        self.boots = []
        for array in self.bound.boots:
            target = self.xp.empty(array.shape, array.dtype)
            self.calls.append(take_into(self.xp, array, order, target))
            self.boots.append(target)

    def _bind_memories(self) -> None:
        """The arrays of both sides of each memory."""
        first = int(self.schedule.sizes[0])
        reverse, lasting = self.step.reverse, self.late_reads | self.keep | set(self.step.outputs)
        self.copied_states: list[tuple[Memory, Stored]] = []
        for memory, (row, dtype) in zip(self.step.memories, self.bound.memory_metas, strict=True):
            previous: Stored
            state: Stored
            if memory.state in lasting or memory.previous in lasting:
                buffer = self.xp.empty((first + self.total, *row), dtype)
                straight = Rows(buffer[first:], self.schedule.starts)
                shifted = Shifted(buffer, self.schedule)
                previous, state = (straight, shifted) if reverse else (shifted, straight)
            else:
                pair = tuple(self.xp.empty((first, *row), dtype) for _ in range(2))
                previous = Alternating(pair, self.schedule, 0)
                state = Alternating(pair, self.schedule, -1 if reverse else 1)
            self.stored[memory.previous] = previous
            if memory.state in self.stored:
                self.copied_states.append((memory, state))
            else:
                self.stored[memory.state] = state

    def _boot_call(self, memory: Memory, target: Any, places: slice) -> Any:
        if memory.boot < 0:
            return partial(target.fill, memory.boot_value)
        return partial(self.xp.copyto, target, self.boots[memory.boot][places])

    def _bind_finals(self) -> None:
        """Brings last states into the order of the batch."""
        inverse = np.argsort(self.schedule.order, kind="stable")
        for memory, held in zip(self.step.memories, self._finals(), strict=True):
            if held is not None:
                target = self.bound.finals[memory.final]
                self.calls.append(take_into(self.xp, held, inverse, target))

    def _finals(self) -> list[Any]:
        """For each memory whose last states are wanted, these in the schedule's order."""
        if not hasattr(self, "final_states"):
            running = int(self.schedule.sizes[0]) if self.steps else 0
            self.final_states = []
            for memory in self.step.memories:
                wanted = self.bound.finals[memory.final] if memory.final >= 0 else None
                held = None if wanted is None else self.xp.empty(wanted.shape, wanted.dtype)
                if held is not None and running < len(held):
                    places = slice(running, None)
                    self.calls.append(self._boot_call(memory, held[places], places))
                self.final_states.append(held)
        return self.final_states

    # -- operators -----------------------------------------------------------------------------

    def _bind_once(self, operators: list[Operator], read_later: set[str]) -> None:
        """Operators that run once, on the rows of all steps."""
        if not operators:
            return
        written = {name for op in operators for name in op.output_vars()}
        lasting = (read_later | self.keep | set(self.step.outputs) | set(self.step.sums)) & written
        known = {
            name: self._whole_meta(name)
            for op in operators
            for name in op.input_vars()
            if name not in written
        }
        arrays = {
            name: time_major(self.stored[name], self.xp, self.calls)
            for op in operators
            for name in op.value_reads()
            if name not in written
        }
        plan = self._plan(operators, known, lasting)
        for name in sorted(plan.survivors):
            arrays[name] = self._result(name, plan.metas[name])
        frame = self._frame(plan, arrays, "once", self.bound.frame.scope)
        self.calls += frame.calls

    def _whole_meta(self, name: str) -> Meta:
        shape, dtype = self.metas[name]
        return ((self.total, *shape[1:]), dtype) if name in self.rows else (shape, dtype)

    def _result(self, name: str, meta: Meta) -> Any:
        """Where an operator that runs once puts a result."""
        if name in self.phases.sums and name in self.step.sums:
            for inner, total in zip(self.step.sums, self.bound.sums, strict=True):
                if inner == name and total is not None:
                    self.stored[name] = Whole(total)
                    return total
        array = self.xp.empty(*meta)
        self.stored[name] = Rows(array, self.schedule.starts) if name in self.rows else Whole(array)
        return array

    def _plan(
        self, operators: list[Operator], known: Any, lasting: Any, offsets: Any = None
    ) -> Any:
        place = self.bound.frame.place
        return step_plan(self.step, operators, known, lasting, self.options, place, offsets)

    def _frame(self, plan: Any, arrays: dict[str, Any], tag: str, scope: Scope) -> StepFrame:
        return StepFrame(plan, arrays, self.bound.frame, self.shared, tag, scope)

    # -- the loop ------------------------------------------------------------------------------

    def _bind_loop(self) -> None:
        """Everything that runs step by step, in the order in which it runs."""
        self.scopes = self._step_scopes()
        self.offsets: list[dict[str, Levels]] = []
        finals = self._finals()
        start = self._sum_arrays()
        calls: list[list[Any]] = []
        for step in range(self.steps):
            frame_calls = self._bind_step(step)
            calls.append([*self._boot_calls(step), *frame_calls, *self._ending_calls(step, finals)])
        self.calls += start
        for step in self.bound.order:
            self.calls += calls[step]
            self.calls += self._sum_calls(step)
        self._finish_sums()

    def _bind_step(self, step: int) -> list[Any]:
        operators = self.phases.loop
        if not operators:
            return []
        written = {name for op in operators for name in op.output_vars()}
        lasting = self._lasting(written)
        known, offsets = self._given(step) if self.ragged else (self._step_metas(step), {})
        plan = self._plan(operators, known, lasting, offsets)
        if self.ragged:
            self.offsets.append(dict(plan.offsets))
        for name in lasting:
            self._make_room(name, plan.metas[name], step)
        arrays = {
            name: self.stored[name].at(step)
            for name in (*plan.externals, *plan.survivors)
            if name in self.stored
        }
        return self._frame(plan, arrays, "loop", self.scopes[step]).calls

    def _step_metas(self, step: int) -> dict[str, Meta]:
        size = int(self.schedule.sizes[step])
        return {
            name: ((size, *meta[0][1:]), meta[1]) if name in self.rows else meta
            for name, meta in self.metas.items()
        }

    def _lasting(self, written: set[str]) -> set[str]:
        """What the loop writes and somebody reads who does not belong to the step."""
        wanted = self.late_reads | self.keep | set(self.step.outputs) | set(self.step.sums)
        return written & (wanted | {memory.state for memory in self.step.memories})

    def _make_room(self, name: str, meta: Meta, step: int) -> None:
        """Memory for a variable of the loop that outlives its step."""
        held = self.stored.get(name)
        if held is None and name in self.step.outputs:
            track = self.bound.out_tracks[self.step.outputs.index(name)]
            array = self.xp.empty((len(track.rows), *meta[0][1:]), meta[1])
            self.stored[name] = Rows(array, track.starts)
        elif held is None and name in self.rows and not self.ragged:
            array = self.xp.empty((self.total, *meta[0][1:]), meta[1])
            self.stored[name] = Rows(array, self.schedule.starts)
        elif held is None or (type(held) is Each and len(held.arrays) == step):
            if held is None:
                held = self.stored[name] = Each([])
            assert isinstance(held, Each)
            held.arrays.append(self.xp.empty(*meta))

    def _boot_calls(self, step: int) -> list[Any]:
        places = self.bound.begins(step)
        if places.start == places.stop:
            return []
        return [
            self._boot_call(memory, self.stored[memory.previous].at(step)[places], places)
            for memory in self.step.memories
        ]

    def _ending_calls(self, step: int, finals: list[Any]) -> list[Any]:
        copy = self.xp.copyto
        calls = [
            partial(copy, state.at(step), self.stored[memory.state].at(step))
            for memory, state in self.copied_states
        ]
        places = self.bound.ends(step)
        if places.start < places.stop:
            calls += [
                partial(copy, held[places], self.stored[memory.state].at(step)[places])
                for memory, held in zip(self.step.memories, finals, strict=True)
                if held is not None
            ]
        return calls

    def _step_scopes(self) -> list[Scope]:
        """A scope for each step where operators hold nets, which keep variables there."""
        outer = self.bound.frame.scope
        if isinstance(self.bound.kept, KeptSteps) and len(self.bound.kept):
            return list(self.bound.kept)
        nested = any(
            isinstance(value, pb.NetDesc) for op in self.phases.loop for value in op.attrs.values()
        )
        self.nested = nested
        return [Scope(parent=outer) if nested else outer for _ in range(self.steps)]

    # -- sums over steps -----------------------------------------------------------------------

    def _sum_arrays(self) -> list[Any]:
        """Sums of what the loop computes: where they gather, and the calls that clear them."""
        b = self.bound
        self.step_sums: list[tuple[str, Any, Any, Any]] = []
        calls: list[Any] = []
        for name, total, track in zip(self.step.sums, b.sums, b.sum_tracks, strict=True):
            if total is None or name in self.phases.sums:
                continue
            gathering = total
            if track is not None and not track.in_order:
                gathering = self.xp.empty(total.shape, total.dtype)
            calls.append(partial(gathering.fill, 0))
            self.step_sums.append((name, gathering, total, track))
        return calls

    def _sum_calls(self, step: int) -> list[Any]:
        calls = []
        for name, gathering, _, track in self.step_sums:
            target = gathering if track is None else gathering[: int(track.starts[step])]
            calls.append(partial(self.xp.add, target, self.stored[name].at(step), target))
        return calls

    def _finish_sums(self) -> None:
        for _, gathering, total, track in self.step_sums:
            if gathering is not total:
                inverse = np.argsort(track.rows, kind="stable")
                self.calls.append(take_into(self.xp, gathering, inverse, total))

    # -- results -------------------------------------------------------------------------------

    def _bind_outputs(self) -> None:
        """Out-links go back to the order of the batch; sums that are wanted twice are copied."""
        b = self.bound
        for name, array, track in zip(self.step.outputs, b.outputs, b.out_tracks, strict=True):
            if array is None:
                continue
            held = self.stored[name]
            rows = np.argsort(track.rows, kind="stable")
            if isinstance(held, Shifted):
                self.calls.append(take_into(self.xp, held.buffer, held.rows[rows], array))
            elif track.in_order:
                self.calls.append(partial(self.xp.copyto, array, held.array))
            else:
                self.calls.append(take_into(self.xp, held.array, rows, array))
        for name, total in zip(self.step.sums, b.sums, strict=True):
            if total is not None and name in self.phases.sums:
                source = self.stored[name].array
                if source is not total:
                    self.calls.append(partial(self.xp.copyto, total, source))

    def _keep_steps(self) -> None:
        if self.kept is None:
            return
        self.kept += self.scopes if self.nested else []
        self.kept.stored = _chosen(self.stored, self.keep)
        self.kept.metas, self.kept.rows, self.kept.ragged = self.metas, self.rows, self.ragged
        self.kept.offsets = self.offsets


def _chosen(stored: dict[str, Stored], names: Iterable[str]) -> dict[str, Stored]:
    return {name: stored[name] for name in names if name in stored}
