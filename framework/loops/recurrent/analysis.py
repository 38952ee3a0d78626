"""What the fast program knows of a step net before it binds it: phases, rows, what to keep.

Shapes are inferred for two made-up numbers of rows: what follows both of them has rows. So the
result does not depend on the batch, and one analysis serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...base.errors import OpscopeError
from ...base.shape import Levels, Meta
from ...ir.infer import infer_metas
from .links import Bound
from .sharing import Sharing, share
from .split import Phases, live_operators, split, without_copies
from .store import Each, KeptSteps, Whole

_SIZES = (7919, 6007)
"""Numbers of rows that no other dimension is likely to have."""
_MOST = 256

Given = tuple[dict[str, Meta], dict[str, Levels]]
"""Shapes and offsets of the given variables at a step."""


@dataclass(frozen=True)
class Analysis:
    """See the module's text.

    Attributes:
        metas: shapes for some number of rows. rows: variables that have them.
        odd: other variables whose shape hangs on the number of rows.
        keep: variables that the gradient reads, and those whose shape it cannot tell otherwise.
        step_reads: what the loop reads. ragged: whether steps see sequences.
        sharing: what the loop may be instead.
        key: the signature it holds for; None where that is this one batch.
    """

    phases: Phases
    metas: dict[str, Meta]
    rows: frozenset[str]
    odd: frozenset[str]
    keep: frozenset[str]
    step_reads: frozenset[str]
    ragged: bool
    sharing: Sharing
    key: Any


def given_at(bound: Bound, kept: KeptSteps, step: int) -> Given:
    """What is given to the step net at a step."""
    size = int(bound.schedule.sizes[step])
    known: dict[str, Meta] = {}
    offsets: dict[str, Levels] = {}
    for name, array, track in zip(bound.step.inputs, bound.arrays, bound.tracks, strict=False):
        span = track.span(step)
        known[name] = ((span.stop - span.start, *array.shape[1:]), array.dtype)
        offsets[name] = track.inner[step]
    for name, array, levels, track in zip(
        bound.step.statics, bound.statics, bound.static_levels, bound.static_tracks, strict=True
    ):
        rows = array.shape if track is None else (int(track.starts[step]), *array.shape[1:])
        known[name] = (rows, array.dtype)
        offsets[name] = levels if track is None else track.inner[step]
    for name in bound.kept_names:
        shape, dtype = kept.metas[name]
        known[name] = ((size, *shape[1:]) if name in kept.rows else shape, dtype)
        held = kept.stored.get(name)
        if isinstance(held, Each) or (kept.ragged and held is not None):
            known[name] = (held.at(step).shape, dtype)
    if kept.offsets:
        offsets.update((n, own) for n, own in kept.offsets[step].items() if n in known)
    for memory, (row, dtype) in zip(bound.step.memories, bound.memory_metas, strict=True):
        known[memory.previous] = ((size, *row), dtype)
    return known, {name: own for name, own in offsets.items() if own}


def analysis_of(bound: Bound, kept: KeptSteps) -> Analysis:
    """The analysis of a bound operator; remembered with its step net."""
    if kept.ragged or any(
        track is not None and bool(track.inner[0])
        for track in (*bound.tracks, *bound.static_tracks, *bound.out_tracks)
    ):
        return _of_sequences(bound, kept)
    known, rows, fixed = _signature(bound, kept)
    ends = (0, bound.schedule.steps - 1)
    actual = tuple(int(bound.schedule.sizes[step]) for step in ends)
    if any(isinstance(held, Each) for held in kept.stored.values()):
        at_ends = [given_at(bound, kept, step)[0] for step in ends]
        return _analyse(bound, at_ends, actual, fixed)
    key = (tuple(known.items()), fixed, bound.keep, bound.steps is None)
    found = bound.step.analyses.get(key)
    if found is None:
        try:
            found = _analyse(
                bound, [_sized(known, rows, size) for size in _SIZES], _SIZES, fixed, key
            )
        except OpscopeError:  # it fits these numbers of rows alone
            return _analyse(bound, [_sized(known, rows, size) for size in actual], actual, fixed)
        while len(bound.step.analyses) >= _MOST:
            bound.step.analyses.pop(next(iter(bound.step.analyses)), None)
        bound.step.analyses[key] = found
    return found


def _signature(
    bound: Bound, kept: KeptSteps
) -> tuple[dict[str, Meta], frozenset[str], frozenset[str]]:
    """Shapes of the given variables, those that have rows, and those that are the same always."""
    step, (known, _) = bound.step, given_at(bound, kept, 0)
    stored, names = kept.stored, bound.kept_names
    rows = {*step.inputs[: len(bound.arrays)], *(memory.previous for memory in step.memories)}
    rows.update(name for name in names if name in kept.rows)
    fixed = {*step.statics}
    fixed.update(n for n in names if n not in kept.rows and type(stored.get(n, Whole)) is not Each)
    metas = {n: ((0, *shape[1:]) if n in rows else shape, t) for n, (shape, t) in known.items()}
    return metas, frozenset(rows), frozenset(fixed)


def _sized(known: dict[str, Meta], rows: frozenset[str], size: int) -> dict[str, Meta]:
    return {n: ((size, *shape[1:]) if n in rows else shape, t) for n, (shape, t) in known.items()}


def _of_sequences(bound: Bound, kept: KeptSteps) -> Analysis:
    """Steps see sequences: nothing is taken out of the loop, everything is kept."""
    step, (known, offsets) = bound.step, given_at(bound, kept, 0)
    metas = infer_metas(step.operators, known, step.vars, dict(offsets))
    keep = frozenset({*step.given, *step.writes}) if bound.steps is not None else frozenset()
    phases = Phases(loop=live_operators(step, keep))
    size = int(bound.schedule.sizes[0])
    rows = frozenset(name for name, (shape, _) in metas.items() if shape[:1] == (size,))
    return Analysis(
        phases, metas, rows, frozenset(), keep, _reads(phases), True, Sharing(phases.loop), None
    )


def _analyse(
    bound: Bound, known: Any, sizes: tuple[int, ...], fixed: frozenset[str], key: Any = None
) -> Analysis:
    """The analysis for two numbers of rows, `sizes`, with what is `known` for each."""
    step = bound.step
    metas, others = (infer_metas(step.operators, one, step.vars, {}) for one in known)
    rows = frozenset(
        name
        for name, (shape, _) in metas.items()
        if name not in fixed and shape[:1] + others[name][0][:1] == sizes
    )
    odd = frozenset(n for n in step.writes if n not in rows and metas[n] != others[n])
    keep: frozenset[str] = frozenset()
    if bound.steps is not None:
        keep = frozenset({*step.given, *step.writes})
        if bound.keep is not None:
            keep &= bound.keep | odd
    live = without_copies(step, live_operators(step, keep), metas, keep)
    phases = split(step, live, metas, rows, fixed)
    sharing = share(step, phases, metas, rows, keep)
    return Analysis(phases, metas, rows, odd, keep, _reads(phases), False, sharing, key)


def _reads(phases: Phases) -> frozenset[str]:
    return frozenset(name for op in phases.loop for name in op.value_reads())
