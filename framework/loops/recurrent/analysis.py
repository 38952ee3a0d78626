"""Facts about a step net that hold for any batch: phases, variables with rows, what to save.

Shapes are inferred for two made-up numbers of rows: what follows both of them has rows. So the
result does not depend on the batch, and one analysis serves all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import OpscopeError
from ...base.python.cached import cached_property
from ...base.sizes.shape import ArraySpec, Levels
from ...ir.infer import infer_specs
from ...ir.op_list import OpList
from ...ir.operation import Operator
from .description import StepNet
from .links import RecurrentBinding
from .sharing import Sharing, share
from .split import Phases, live_operators, split, with_cuts, without_copies
from .store import PerStepArrays, SavedSteps

_SIZES = (7919, 6007)
"""Numbers of rows that no other dimension is likely to have."""

Given = tuple[dict[str, ArraySpec], dict[str, Levels]]
"""Shapes and offsets of the given variables at a step."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """The operators of a step net by phase, and what binding must know of its variables.

    Attributes:
        specs: shapes for some number of rows.
        rows: variables that have one row for each sequence of a step.
        odd: other variables whose shape depends on the number of rows.
        saved: variables to save for the gradient: those that it reads, and those whose shape it
            cannot know otherwise.
        step_reads: what the loop reads. late_reads: what operators after the loop read.
        once_reads: what operators before or after the loop read.
        live_out: what must be there after the loop.
        ragged: whether steps see sequences.
        sharing: the operators of the loop once variables share memory.
        key: the signature that it holds for; None where it holds for this one batch.
    """

    phases: Phases
    specs: dict[str, ArraySpec]
    rows: frozenset[str]
    odd: frozenset[str]
    saved: frozenset[str]
    step_reads: frozenset[str]
    late_reads: frozenset[str]
    once_reads: frozenset[str]
    live_out: frozenset[str]
    ragged: bool
    sharing: Sharing
    key: Any

    @cached_property
    def nested(self) -> bool:
        """Whether an operator of the loop holds a net, which has variables in a scope."""
        attrs = (op.attrs for op in self.phases.loop)
        return any(isinstance(value, OpList) for one in attrs for value in one.values())

    def specs_at(self, size: int, names: Iterable[str]) -> dict[str, ArraySpec]:
        """Shapes and dtypes of some variables, where those with rows have `size` of them."""
        return _sized({name: self.specs[name] for name in names}, self.rows, size)


def given_at(binding: RecurrentBinding, forward: SavedSteps, step: int) -> Given:
    """Shapes and offsets of what is given to the step net at a step.

    Args:
        forward: in a gradient, what the forward run saved; else empty.
    """
    size = int(binding.schedule.sizes[step])
    known: dict[str, ArraySpec] = {}
    offsets: dict[str, Levels] = {}
    inputs = binding.step.inputs
    for name, array, track in zip(inputs, binding.arrays, binding.tracks, strict=False):
        span = track.span(step)
        known[name] = ((span.stop - span.start, *array.shape[1:]), array.dtype)
        offsets[name] = track.inner[step]
    for name, array, levels, track in zip(
        binding.step.statics,
        binding.statics,
        binding.static_levels,
        binding.static_tracks,
        strict=True,
    ):
        rows = array.shape if track is None else (int(track.starts[step]), *array.shape[1:])
        known[name] = (rows, array.dtype)
        offsets[name] = levels if track is None else track.inner[step]
    for name in binding.saved_names:
        shape, dtype = forward.specs[name]
        known[name] = ((size, *shape[1:]) if name in forward.rows else shape, dtype)
        value = forward.values.get(name)
        if isinstance(value, PerStepArrays) or (forward.ragged and value is not None):
            known[name] = (value.at(step).shape, dtype)
    if forward.offsets:
        offsets.update((n, own) for n, own in forward.offsets[step].items() if n in known)
    for memory, (row, dtype) in zip(binding.step.memories, binding.memory_specs, strict=True):
        known[memory.previous] = ((size, *row), dtype)
    return known, {name: own for name, own in offsets.items() if own}


def analysis_of(binding: RecurrentBinding, forward: SavedSteps) -> Analysis:
    """The analysis of a bound operator; remembered with its step net.

    Args:
        forward: in a gradient, what the forward run saved; else empty.
    """
    if forward.ragged or any(
        track is not None and bool(track.inner[0])
        for track in (*binding.tracks, *binding.static_tracks, *binding.out_tracks)
    ):
        return _of_sequences(binding, forward)
    known, rows, fixed = _signature(binding, forward)
    ends = (0, binding.schedule.steps - 1)
    actual = tuple(int(binding.schedule.sizes[step]) for step in ends)
    # Their shapes differ from step to step in ways that no two made-up numbers show.
    if any(isinstance(value, PerStepArrays) for value in forward.values.values()):
        at_ends = [given_at(binding, forward, step)[0] for step in ends]
        return _analyze(binding, at_ends, actual, fixed)
    key = (tuple(known.items()), fixed, binding.to_save, binding.steps is None)
    analysis = binding.step.analyses.get(key)
    if analysis is None:
        # What varies with the rows shows by comparing two numbers of them; made-up ones give an
        # analysis that serves all batches.
        made_up = [_sized(known, rows, size) for size in _SIZES]
        try:
            analysis = _analyze(binding, made_up, _SIZES, fixed, key)
        except OpscopeError:  # it fits these numbers of rows alone
            at_ends = [_sized(known, rows, size) for size in actual]
            return _analyze(binding, at_ends, actual, fixed)
        binding.step.analyses.add(key, analysis)
    return analysis


def _signature(
    binding: RecurrentBinding, forward: SavedSteps
) -> tuple[dict[str, ArraySpec], frozenset[str], frozenset[str]]:
    """Shapes of the given variables, those that have rows, and those that are the same always."""
    step = binding.step
    (known, _) = given_at(binding, forward, 0)
    names, in_rows, values = binding.saved_names, forward.rows, forward.values
    rows = {*step.inputs[: len(binding.arrays)], *(memory.previous for memory in step.memories)}
    rows.update(name for name in names if name in in_rows)
    fixed = {*step.statics}
    fixed.update(
        name
        for name in names
        if name not in in_rows and not isinstance(values.get(name), PerStepArrays)
    )
    specs = {n: ((0, *shape[1:]) if n in rows else shape, t) for n, (shape, t) in known.items()}
    return specs, frozenset(rows), frozenset(fixed)


def _sized(known: dict[str, ArraySpec], rows: frozenset[str], size: int) -> dict[str, ArraySpec]:
    return {n: ((size, *shape[1:]) if n in rows else shape, t) for n, (shape, t) in known.items()}


def _of_sequences(binding: RecurrentBinding, forward: SavedSteps) -> Analysis:
    """Steps see sequences: nothing is taken out of the loop, everything is saved."""
    step = binding.step
    (known, offsets) = given_at(binding, forward, 0)
    specs = infer_specs(step.operators, known, step.vars, dict(offsets))
    all_names = frozenset({*step.given, *step.writes})
    saved = all_names if binding.steps is not None else frozenset[str]()
    phases = Phases(loop=live_operators(step, saved))
    size = int(binding.schedule.sizes[0])
    rows = frozenset(name for name, (shape, _) in specs.items() if shape[:1] == (size,))
    sharing = Sharing(phases.loop)
    return _finish(step, phases, specs, rows, frozenset(), saved, True, sharing, None)


def _analyze(
    binding: RecurrentBinding,
    known: Sequence[Mapping[str, ArraySpec]],
    sizes: tuple[int, ...],
    fixed: frozenset[str],
    key: Any = None,
) -> Analysis:
    """The analysis for two numbers of rows, `sizes`, with what is `known` for each."""
    step = binding.step
    specs, others = (infer_specs(step.operators, one, step.vars, {}) for one in known)
    rows = frozenset(
        name
        for name, (shape, _) in specs.items()
        if name not in fixed and shape[:1] + others[name][0][:1] == sizes
    )
    odd = frozenset(n for n in step.writes if n not in rows and specs[n] != others[n])
    saved = frozenset[str]()
    if binding.steps is not None:
        saved = frozenset({*step.given, *step.writes})
        if binding.to_save is not None:
            # The gradient cannot know the shape of an odd one from the rows of a step, so its value
            # is kept.
            saved &= binding.to_save | odd
    live = without_copies(step, live_operators(step, saved), specs, saved)
    phases = split(step, live, specs, rows, fixed)
    states = [memory.state for memory in step.memories]
    phases = with_cuts(phases, step.inputs, specs, {*states, *step.outputs, *step.sums, *saved})
    sharing = share(step, phases, specs, rows, saved)
    return _finish(step, phases, specs, rows, odd, saved, False, sharing, key)


def _finish(
    step: StepNet,
    phases: Phases,
    specs: dict[str, ArraySpec],
    rows: frozenset[str],
    odd: frozenset[str],
    saved: frozenset[str],
    ragged: bool,
    sharing: Sharing,
    key: Any,
) -> Analysis:
    late_reads = _reads(phases.post)
    return Analysis(
        phases=phases,
        specs=specs,
        rows=rows,
        odd=odd,
        saved=saved,
        step_reads=_reads(phases.loop),
        late_reads=late_reads,
        once_reads=late_reads | _reads(phases.pre),
        live_out=late_reads | saved | frozenset(step.outputs),
        ragged=ragged,
        sharing=sharing,
        key=key,
    )


def _reads(operators: Collection[Operator]) -> frozenset[str]:
    return frozenset(name for op in operators for name in op.value_reads())
