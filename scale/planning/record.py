"""What one rank does in a training step: measured times of its operators, and its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import ShapeError, VariableError, format_shape, nearest
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.ir.desc import INPUT, PLAIN
from ...framework.ir.op_list import OpList, VarDecl
from ...framework.ir.registry import lookup
from ...framework.parallel.dry import EchoCommunicator
from ...framework.passes.ranks.all_reduce import InsertAllReduce
from ...framework.runtime.executor import Frame
from ...framework.runtime.feeding import Feeder
from ...framework.runtime.hooks import Profiler, step_label
from ...framework.runtime.plain_net import PlainNet
from .plan import COMPUTE, Event, Line

_RANKS = 2
"""Ranks that the recorded one stands for: what it sends does not depend on their number."""


def on_ranks(net: OpList, weight: str) -> OpList:
    """The net with sums over ranks: itself, if it has such operators, else by `InsertAllReduce`.

    Args:
        net: with backward and update operators. weight: see `InsertAllReduce`.

    Raises:
        GradientError: no update operator reads a gradient, or the loss does not say how the losses
            of ranks make up the loss of all.
        VariableError: the net is not a plain list of operators, or has no variable `weight`.
    """
    if net.type != PLAIN:
        raise VariableError(
            f"net {net.name!r} is of type {net.type}: a plan wants a plain list of operators"
        )
    if any(lookup(op.type).world for op in net.ops):
        return net
    return InsertAllReduce(weight=weight).apply(net)


class _Recorder(Profiler):
    """Times as the profiler takes them, with what each step of the loop sends.

    Of nets that operators run, a recurrent layer's say, the operators count as one.
    """

    def __init__(self, communicator: EchoCommunicator) -> None:
        super().__init__(max_events=0)
        self.order: list[tuple[str, str, str, list[tuple[str, int]]]] = []
        self._communicator = communicator
        self._outer: Frame | None = None

    def before_run(self, frame: Frame) -> None:
        self._outer = self._outer or frame

    def after_run(self, frame: Frame) -> None:
        if frame is self._outer:
            super().after_run(frame)
            self._outer = None

    def before_op(self, frame: Frame, index: int) -> None:
        if frame is self._outer:
            super().before_op(frame, index)

    def after_op(self, frame: Frame, index: int) -> None:
        if frame is not self._outer:
            return
        super().after_op(frame, index)
        sent = [(one.kind, one.nbytes) for one in self._communicator.messages]
        self._communicator.messages.clear()
        if self.runs:
            return  # every run is the same row of steps
        step = frame.plan.steps[index]
        begins = ends = ""
        if any(lookup(op.type).world for op in step.operators):
            begins = next((n for op in step.operators for n in op.outputs.get("ticket", ())), "")
            ends = next((n for op in step.operators for n in op.inputs.get("ticket", ())), "")
            self.order.append(("", begins, ends, sent))
        else:
            self.order.append((step_label(step), "", "", sent))


def record_step(
    net: OpList, scope: Scope, feeds: Sequence[tuple[int, Mapping[str, object]]], repeats: int
) -> list[Event]:
    """The events of a training step, by runs with two numbers of rows.

    Every step runs once unmeasured, then `repeats` times; an operator's time is the shortest of
    these. Operators of ranks count by their messages alone. Parameters change as they do in
    training.

    Args:
        net: with operators of ranks. scope: holds its parameters and states.
        feeds: two of (rows, inputs), the one with fewer rows first. repeats: at least 1.

    Raises:
        ShapeError: the two runs send different messages.
        OpscopeError: an input that does not fit, or an operator that fails.
    """
    plain = PlainNet(net, check=False)
    runs: list[_Recorder] = []
    for _, values in feeds:
        communicator = EchoCommunicator(_RANKS)
        recorder = _Recorder(communicator)
        warm = OpContext(train=True, seed=0, live_out=(), communicator=communicator)
        timed = OpContext(
            train=True, seed=0, live_out=(), communicator=communicator, hooks=[recorder]
        )
        Feeder(net, scope)(values, lambda: "the inputs of the plan")
        plain.run(scope, warm)
        communicator.messages.clear()
        for _ in range(repeats):
            plain.run(scope, timed)
        runs.append(recorder)
    return _events(runs, [rows for rows, _ in feeds])


def _events(runs: Sequence[_Recorder], rows: Sequence[int]) -> list[Event]:
    few, many = runs
    if [_kinds(one) for one in few.order] != [_kinds(one) for one in many.order]:
        raise ShapeError(
            f"a step sends other messages with {rows[0]} rows than with {rows[1]}, so that no other"
            " number of rows can be planned"
        )

    def line(low: float, high: float) -> Line:
        return Line.through((rows[0], low), (rows[1], high))

    events: list[Event] = []
    for (label, begins, ends, sent), (_, _, _, others) in zip(few.order, many.order, strict=True):
        if label:
            low, high = (one.steps[label].fastest * 1e-9 for one in runs)
            events.append(Event(COMPUTE, line(low, high)))
        for (kind, nbytes), (_, more) in zip(sent, others, strict=True):
            events.append(Event(kind, line(nbytes, more), begins))
        if ends:
            events.append(Event("wait", ticket=ends))
    return events


def _kinds(one: tuple[str, str, str, list[tuple[str, int]]]) -> tuple[object, ...]:
    label, begins, ends, sent = one
    return label, begins, ends, [kind for kind, _ in sent]


def random_inputs(
    net: OpList,
    rows: int,
    shapes: Mapping[str, Sequence[int]],
    below: Mapping[str, int],
    length: int,
) -> dict[str, object]:
    """Values for all inputs of a net.

    Args:
        rows: of the first dimension, where it is unknown; sequences where an input holds these.
        shapes: rows of an input by name, without the first dimension, which hold where the net
            leaves dimensions unknown.
        below: integers of an input by name are drawn from 0 to below this; others are 0.
        length: of sequences.

    Raises:
        VariableError: `shapes` or `below` names no input.
        ShapeError: a dimension is unknown, or an input has two levels of sequences.
    """
    inputs = {var.name: var for var in net.vars if var.kind == INPUT}
    for name in (*shapes, *below):
        if name not in inputs:
            raise VariableError(f"net {net.name!r} has no input {name!r}{nearest(name, inputs)}")
    rng = np.random.default_rng(0)
    feed: dict[str, object] = {}
    for name, var in inputs.items():
        first, rest = _dims(var, shapes.get(name))
        if var.sequence_levels > 1:
            raise ShapeError(f"input {name!r} holds sequences of sequences, which are not planned")
        if var.sequence_levels:
            packed = _draw(rng, (rows * length, *rest), var, below.get(name, 1))
            feed[name] = Sequences.from_list(list(packed.reshape(rows, length, *rest)))
        else:
            shape = (*((rows if first < 0 else first,) if var.shape else ()), *rest)
            feed[name] = _draw(rng, shape, var, below.get(name, 1))
    return feed


def _dims(var: VarDecl, given: Sequence[int] | None) -> tuple[int, tuple[int, ...]]:
    if var.shape is None or any(dim < 0 for dim in var.shape[1:]):
        if given is None:
            shape = "of unknown shape" if var.shape is None else format_shape(var.shape)
            raise ShapeError(
                f"input {var.name!r} {shape}: say its dimensions after the first,"
                f" --shape {var.name}=N,N"
            )
        if var.shape is not None and len(given) != len(var.shape) - 1:
            wanted = ",".join("N" if dim < 0 else str(dim) for dim in var.shape)
            raise ShapeError(f"--shape {var.name}: the net says {wanted}")
        return -1, tuple(given)
    if given is not None and tuple(given) != tuple(var.shape[1:]):
        wanted = ",".join(map(str, var.shape[1:]))
        raise ShapeError(f"--shape {var.name}: the net says {wanted}")
    return (var.shape[0] if var.shape else 0), tuple(var.shape[1:])


def _draw(rng: np.random.Generator, shape: tuple[int, ...], var: VarDecl, below: int) -> np.ndarray:
    dtype = np.dtype("float32") if var.dtype is None else var.dtype
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return rng.integers(0, below, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)
