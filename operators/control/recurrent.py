"""`recurrent`: a step net over the steps of sequences, and its gradient.

framework/loops/recurrent/net.py runs it; this module holds its schema, shape rule and binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...framework.base.sequence import EvenOffsets, OpenOffsets
from ...framework.base.sizes.dims import Dim
from ...framework.base.sizes.shape import ArraySpec, Levels, ShapeArgs
from ...framework.ir.kernel_args import KernelArgs
from ...framework.ir.operation import Operator
from ...framework.ir.registry import EVERYWHERE, AttrSpec, Slot, operator
from ...framework.loops.inner_gradient import saving_of
from ...framework.loops.inner_links import Memory
from ...framework.loops.recurrent.description import StepNet, describe_lengths, step_net
from ...framework.loops.recurrent.grad import make_gradient
from ...framework.loops.recurrent.links import (
    RecurrentBinding,
    make_static_track,
    make_track,
    outer_levels,
    plain_schedule,
)
from ...framework.loops.recurrent.net import (
    RecurrentGradientProgram,
    known_program,
    make_program,
)
from ...framework.runtime.binding import frame_of
from .nets import LINK_GRADS, check_links, link_grad_shapes

recurrent = operator(
    "recurrent",
    doc=(
        "A step net run once for each step of a batch of sequences. `net` is a RECURRENT NetDesc:"
        " its links and memories say, in this order, which inner variable each variable of a slot"
        " stands for. Sequences of different lengths run side by side without padding; where the"
        " in-links hold sequences of sequences, a step sees inner sequences. A memory starts from"
        " its row of `boot`, or from a constant. Empty sequences run no step; their final state is"
        " the boot value."
    ),
    inputs=[
        Slot("x", "in-links: sequences of the same lengths, [rows, ...]", duplicable=True),
        Slot(
            "static",
            "static links: the same at each step; with sequences, as many as the in-links have,"
            " each of these sees its own",
            duplicable=True,
            optional=True,
        ),
        Slot(
            "boot",
            "first values of the memories that name one, [sequences, ...]",
            duplicable=True,
            optional=True,
            not_in_gradient=True,
        ),
    ],
    outputs=[
        Slot("out", "out-links, [rows, ...]", duplicable=True, optional=True, not_in_gradient=True),
        Slot(
            "final",
            "last states of the memories that name one, [sequences, ...]",
            duplicable=True,
            optional=True,
            not_in_gradient=True,
        ),
        Slot(
            "sum",
            "sum links: sums over all steps",
            duplicable=True,
            optional=True,
            not_in_gradient=True,
        ),
        Slot(
            "steps", "values of each step that the gradient reads", optional=True, intermediate=True
        ),
    ],
    attrs=[AttrSpec("net", "net", "the RECURRENT net")],
    source="Paddle: paddle/operators/recurrent_op.cc, doc/design/ops/rnn.md",
    takes_halves=EVERYWHERE,
    beside=("final",),
)


def _step_of(s: ShapeArgs) -> StepNet:
    """The parsed net, checked to have as many links as the slots have variables."""
    step = step_net(s.attrs["net"])
    check_links(
        s,
        step.title,
        x=len(step.inputs),
        static=len(step.statics),
        boot=step.boots,
        out=len(step.outputs),
        final=step.finals,
        sum=len(step.sums),
    )
    return step


@recurrent.shape_rule
def recurrent_shape(s: ShapeArgs) -> None:
    step = _step_of(s)
    # A placeholder: the variable holds the scopes of the steps, and no array.
    s.set("steps", ((0,), np.bool_))
    s.set_offsets("steps", ())
    names = s.op.inputs["x"]
    offsets = [s.input_offsets(name) for name in names]
    # Offsets come with data: while a net is built there are none.
    if offsets[0] is None:
        _infer_while_building(s, step)
        return
    levels = [own or () for own in offsets]
    outer = levels[0][0] if levels[0] else None
    if isinstance(outer, (EvenOffsets, OpenOffsets)) and all(own == (outer,) for own in levels):
        _infer_open(s, step, outer)
        return
    outer = _outer_offsets(s, step, names, levels)
    schedule = plain_schedule(outer)
    sequences = len(outer) - 1
    memories = _memory_specs(s, step)
    for name, (shape, _) in zip(s.op.inputs.get("boot", ()), s.specs("boot"), strict=True):
        if not shape or shape[0] != sequences:
            rows = shape[0] if shape else "no"
            s.fail(f"{step.title}: boot {name!r} has {rows} rows for {sequences} sequences")
    tracks = [make_track(one, schedule) for one in levels]
    statics = [
        (s.input_offsets(name) or (), _own_track(s.input_offsets(name), outer, schedule))
        for name in s.op.inputs.get("static", ())
    ]
    known = _Known(step, s, tracks, statics, memories)
    every = range(schedule.steps)
    inferred = [known.infer(number, int(schedule.sizes[number])) for number in every[:1]]
    # Lengths of inner sequences differ from step to step, and shapes may follow from them.
    nested = any(len(one) > 1 for one in levels) or _tracked(statics)
    if nested or any(inner.get(link) for _, inner in inferred for link in step.outputs):
        rest = every[1:]
    elif inferred and schedule.sizes[0] != schedule.sizes[-1]:
        rest = every[-1:]  # shapes are linear in between
    else:
        rest = every[:0]  # steps of one size are alike
    inferred += [known.infer(number, int(schedule.sizes[number])) for number in rest]
    specs, _ = inferred[0] if inferred else known.infer_empty()
    for name, link in zip(s.op.outputs.get("out", ()), step.outputs, strict=True):
        own = [offsets.get(link, ()) for _, offsets in inferred]
        shape, dtype = specs[link]
        if own and own[0]:
            lengths = sum(one[link][0][0] for one, _ in inferred)
            full = outer_levels(schedule, outer, own)
        else:
            lengths = int(outer[-1])
            full = (outer,)
        s.results[name] = ((lengths, *shape[1:]), dtype)
        s.result_offsets[name] = full
    _set_ends(s, step, memories, sequences, specs)


def _set_ends(
    s: ShapeArgs,
    step: StepNet,
    memories: list[ArraySpec],
    rows: Any,
    specs: Mapping[str, ArraySpec],
) -> None:
    """Give the shapes of what is there once: last states of so many sequences, and sums."""
    s.set("final", *_final_spec(step, memories, rows))
    s.set_offsets("final", ())
    s.set("sum", *(specs[link] for link in step.sums))
    s.set_offsets("sum", ())


def _tracked(statics: Any) -> bool:
    return any(track is not None for _, track in statics)


def _own_track(levels: Levels | None, outer: np.ndarray, schedule: Any) -> Any:
    """The track of a static variable that has a sequence for each sequence; None for others."""
    if not levels or len(levels[0]) != len(outer):
        return None
    return make_static_track(levels, schedule)


def _final_spec(step: StepNet, memories: list[ArraySpec], rows: int) -> list[ArraySpec]:
    # In the order of the slot, which may differ from the order of the memories.
    numbered = sorted(
        (memory.final, ((rows, *row), dtype))
        for memory, (row, dtype) in zip(step.memories, memories, strict=True)
        if memory.final >= 0
    )
    return [spec for _, spec in numbered]


def _outer_offsets(s: ShapeArgs, step: StepNet, names: Any, levels: list[Levels]) -> np.ndarray:
    for name, own in zip(names, levels, strict=True):
        if not own:
            s.fail(
                f"{step.title}: in-link {name!r} holds no sequences; declare the input with"
                " levels=1 and feed it a list of arrays, or `Sequences`"
            )
        if len(own) > 2:
            s.fail(
                f"{step.title}: in-link {name!r} has {len(own)} levels of sequences, want 1 or 2"
            )
    outer = levels[0][0]
    for name, own in zip(names[1:], levels[1:], strict=True):
        if not np.array_equal(own[0], outer):
            s.fail(
                f"{step.title}: in-links {names[0]!r} and {name!r} have sequences of different"
                f" lengths: {describe_lengths(outer)} and {describe_lengths(own[0])}"
            )
    return outer


def _memory_specs(s: ShapeArgs, step: StepNet, *, building: bool = False) -> list[ArraySpec]:
    specs = []
    for memory in step.memories:
        if memory.boot >= 0:
            shape, dtype = s.specs("boot")[memory.boot]
            spec = (shape[1:], dtype)
        else:
            spec = step.declared_row(memory)
        if spec is None and not building:
            s.fail(
                f"{step.title}: the memory {memory.state!r} has neither a boot variable nor a"
                f" declared shape; declare {memory.previous!r} in the step net with its dims"
            )
        specs.append(spec)
    return specs


def _infer_while_building(s: ShapeArgs, step: StepNet) -> None:
    """Shapes with an unknown number of rows; outputs that depend on unknown ones are left open."""
    known = {
        name: ((-1, *shape[1:]), dtype)
        for name, (shape, dtype) in zip(step.inputs, s.specs("x"), strict=True)
    }
    known |= dict(zip(step.statics, s.specs("static"), strict=True))
    memories = _memory_specs(s, step, building=True)
    for memory, spec in zip(step.memories, memories, strict=True):
        if spec is not None:
            known[memory.previous] = ((-1, *spec[0]), spec[1])
    specs = step.infer(known, -1, None)
    for slot, links in (("out", step.outputs), ("sum", step.sums)):
        for name, link in zip(s.op.outputs.get(slot, ()), links, strict=True):
            if link in specs:
                shape, dtype = specs[link]
                s.results[name] = ((-1, *shape[1:]) if slot == "out" else shape, dtype)
    if None not in memories:
        s.set("final", *_final_spec(step, memories, -1))


def _infer_open(s: ShapeArgs, step: StepNet, outer: Any) -> None:
    """Shapes where the number of sequences and their lengths may vary.

    Args:
        outer: `EvenOffsets` or `OpenOffsets`, for the offsets of all in-links.
    """
    if any(s.input_offsets(name) for name in s.op.inputs.get("static", ())):
        s.fail(f"{step.title}: a static link holds sequences of lengths that vary")
    memories = _memory_specs(s, step)
    if any(not shape or shape[0] != outer.count for shape in s.shapes("boot")):
        s.fail(f"{step.title}: a boot variable has no row for each sequence")
    specs = _infer_step(s, step, memories, outer.first)
    levels: Any = (outer,)
    if isinstance(outer, OpenOffsets):  # as the first and the last step of such a batch
        last = _infer_step(s, step, memories, outer.last)
        rows = [(name, *one[name][0][1:]) for one in (specs, last) for name in step.outputs]
        if any(isinstance(size, Dim) for own in rows for size in own):
            s.fail(f"{step.title}: a row of an out-link has a size that varies")
    for name, link in zip(s.op.outputs.get("out", ()), step.outputs, strict=True):
        shape, dtype = specs[link]
        s.results[name] = (outer.rows, *shape[1:]), dtype
        s.result_offsets[name] = levels
    _set_ends(s, step, memories, outer.count, specs)


def _infer_step(
    s: ShapeArgs, step: StepNet, memories: list[ArraySpec], rows: Any
) -> dict[str, ArraySpec]:
    """Shapes in a step of so many sequences, which may vary."""
    known = {
        name: ((rows, *shape[1:]), dtype)
        for name, (shape, dtype) in zip(step.inputs, s.specs("x"), strict=True)
    }
    known |= dict(zip(step.statics, s.specs("static"), strict=True))
    for memory, (row, dtype) in zip(step.memories, memories, strict=True):
        known[memory.previous] = (rows, *row), dtype
    made: dict[str, Levels] = {}
    # Whatever sizes there are: a static link may have some that vary where the rows do not.
    specs = step.infer(known, rows, made, remember=False)
    if any(made.get(link) for link in step.outputs):
        s.fail(f"{step.title}: an out-link makes sequences of its own in each step")
    return specs


class _Known:
    """Shapes and offsets of the variables given to a step net, step by step."""

    def __init__(
        self, step: StepNet, s: ShapeArgs, tracks: Any, statics: Any, memories: list[ArraySpec]
    ) -> None:
        self.step = step
        self.tracks = tracks
        self.statics = statics
        self.memories = memories
        self.inputs = s.specs("x")
        self.static_specs = s.specs("static")

    def infer(self, number: int, size: int) -> tuple[dict[str, ArraySpec], dict[str, Levels]]:
        """Shapes and offsets of everything in step `number`."""
        known, offsets = self._given(size)
        for name, track, (shape, dtype) in zip(
            self.step.inputs, self.tracks, self.inputs, strict=True
        ):
            span = track.span(number)
            known[name] = ((span.stop - span.start, *shape[1:]), dtype)
            offsets[name] = track.inner[number]
        for name, (levels, track), (shape, dtype) in zip(
            self.step.statics, self.statics, self.static_specs, strict=True
        ):
            rows = shape if track is None else (int(track.starts[number]), *shape[1:])
            known[name] = (rows, dtype)
            offsets[name] = levels if track is None else track.inner[number]
        return self.step.infer(known, size, offsets), offsets

    def infer_empty(self) -> tuple[dict[str, ArraySpec], dict[str, Levels]]:
        """As `infer`, where there is no step at all: without rows."""
        known, offsets = self._given(0)
        for name, (shape, dtype) in zip(self.step.inputs, self.inputs, strict=True):
            known[name] = ((0, *shape[1:]), dtype)
        known |= dict(zip(self.step.statics, self.static_specs, strict=True))
        return self.step.infer(known, 0, offsets), offsets

    def _given(self, size: int) -> tuple[dict[str, ArraySpec], dict[str, Levels]]:
        known = {
            memory.previous: ((size, *row), dtype)
            for memory, (row, dtype) in zip(self.step.memories, self.memories, strict=True)
        }
        return known, {}


@recurrent.kernel
def recurrent_kernel(k: KernelArgs) -> Any:
    frame = frame_of(k)
    plan, scope = frame.plan, frame.scope
    saving = saving_of(k.op, plan)
    known = None if saving.wanted else known_program(k)
    if known is not None:
        return known
    step = step_net(k.attrs["net"])
    levels = [frame.offsets(name) for name in k.op.inputs["x"]]
    outer = levels[0][0]
    schedule = plain_schedule(outer)
    statics = k.list("static")
    static_levels = [frame.offsets(name) for name in k.op.inputs.get("static", ())]
    boots = k.list("boot")
    saved_in = saving.steps if saving.wanted else None
    return make_program(
        RecurrentBinding(
            step=step,
            owner=k.op,
            frame=frame,
            offsets=outer,
            schedule=schedule,
            tracks=[make_track(one, schedule) for one in levels],
            arrays=k.list("x"),
            statics=statics,
            static_levels=static_levels,
            static_tracks=[_own_track(one, outer, schedule) for one in static_levels],
            memory_specs=[_row_of(step, memory, boots) for memory in step.memories],
            initial_states=boots,
            outputs=k.list("out"),
            out_tracks=[
                make_track(plan.offsets[name], schedule) for name in k.op.outputs.get("out", ())
            ],
            final_states=k.list("final"),
            sums=k.list("sum"),
            sum_tracks=[None] * len(step.sums),
            steps=None if saved_in is None else (scope.find(saved_in) or scope.var(saved_in)),
            # If the steps outlive the plan, their readers are not known and every value is kept.
            to_save=None if saving.everything else _gradient_reads(saving.readers),
        )
    )


def _row_of(step: StepNet, memory: Memory, boots: list[Any]) -> ArraySpec:
    """Shape without rows, and dtype, of a memory."""
    if memory.boot >= 0:
        return boots[memory.boot].shape[1:], boots[memory.boot].dtype
    declared = step.declared_row(memory)
    assert declared is not None  # the shape rule refuses a memory of an unknown shape
    return declared


def _gradient_reads(readers: Iterable[Operator]) -> frozenset[str]:
    """Inner variables of the forward steps that the gradient step nets of these operators read."""
    return frozenset().union(*(step_net(op.attrs["net"]).values for op in readers))


recurrent.gradient_maker(make_gradient)

recurrent_grad = operator(
    "recurrent_grad",
    doc=(
        "Gradient of `recurrent`: a RECURRENT net over the gradient step net, in the opposite"
        " direction. Its first in-links are the gradients of the forward out-links; the others name"
        " values in the steps of the forward run. Memories carry the gradients of states; their"
        " boot values are the gradients of final states, their final ones the gradients of boot"
        " values."
    ),
    inputs=[
        Slot("x", "in-links of the forward run", duplicable=True),
        Slot("static", "its static links", duplicable=True, optional=True),
        Slot("boot", "its boot values", duplicable=True, optional=True, shape_only=True),
        Slot("steps", "the step values that it saved"),
        Slot("out_grad", "gradients of its out-links", duplicable=True, optional=True),
        Slot("final_grad", "gradients of its final states", duplicable=True, optional=True),
        Slot("sum_grad", "gradients of its sums", duplicable=True, optional=True),
    ],
    outputs=LINK_GRADS,
    attrs=[
        AttrSpec("net", "net", "the RECURRENT net over the gradient step net"),
        AttrSpec("like", "strings", "for each memory the forward variable of its shape", ()),
    ],
    no_gradient="the gradient of a gradient is not built",
    takes_halves=EVERYWHERE,
)


recurrent_grad.shape_rule(link_grad_shapes)


@recurrent_grad.kernel
def recurrent_grad_kernel(k: KernelArgs) -> Any:
    return RecurrentGradientProgram(k)
