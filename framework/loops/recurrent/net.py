"""RecurrentNet: a step net run once for each step of a batch of sequences.

Semantics. All in-links are sequences of the same lengths. At step t the step net runs once, on the
rows t of all sequences that have a step t: those are ordered by falling length, so that they are
always the first ones. A memory's `previous` is the `state` of `delay` steps before, or the boot
value where the sequence has no such step. Reversed nets begin with the last step of each sequence.
Where in-links hold sequences of sequences, steps run along the outer level and see inner sequences.

A net runs in one of two ways, by the switch OPSCOPE_RECURRENT, with the same results:
`steps`: a scope for each step (scopes.py), the reference; `fast`: over whole sequences
wherever the step net allows it (fast.py).

Sources: Paddle's `recurrent_op.cc` and design of RNN operators (step scopes, memories, links);
CNTK's PastValue and FutureValue (delays, both directions).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ....proto import net_pb2 as pb
from ...base import settings
from ...base.errors import VariableError
from ...base.scope import Variable
from ...ir.desc import RECURRENT, make_op
from ...ir.messages import as_op_list
from ...ir.names import EMPTY, steps_name
from ...ir.op_list import Link, OpList, OpNode
from ...runtime.executor import CannotFuseError
from ...runtime.net import register_net
from ..inner_net import InnerNet
from .chunks import PiecewiseProgram, piece_steps
from .description import free_names, step_net
from .fast import FastProgram
from .links import Bound, make_static_track, make_track, plain_schedule
from .scopes import StepScopes
from .store import KeptSteps


def make_program(bound: Bound) -> Any:
    """The callable that runs all steps of a bound recurrent operator.

    A gradient runs as its forward run did.
    """
    if bound.kept is None:
        fast = settings.switch("OPSCOPE_RECURRENT") == "fast" and bound.step.regular
    else:
        fast = isinstance(bound.kept, KeptSteps)
    if not fast:
        return StepScopes(bound)
    options, length = bound.frame.plan.options, piece_steps(bound)
    make = partial(PiecewiseProgram, length=length) if length else FastProgram
    try:
        return make(bound, options)
    except CannotFuseError:
        return make(bound, replace(options, fuse=False))


class GradientProgram:
    """The kernel of `recurrent_grad`: bound to the steps that the forward run has left.

    They are known when it runs, not before: the forward operators may run by themselves, and in
    another frame.
    """

    def __init__(self, k: Any) -> None:
        self._k = k
        self._kept: list[Any] | None = None
        self._program: Any = None
        self._steps: Variable = k.frame.scope.find(k.op.inputs["steps"][0]) or k.frame.scope.var(
            k.op.inputs["steps"][0]
        )

    def __call__(self) -> None:
        kept = self._steps.step_scopes
        if kept is None:
            raise VariableError(
                self._k.describe("the forward operator has not run, or was not told to keep steps")
            )
        if kept is not self._kept:
            self._program = make_program(self._bind(kept))
            self._kept = kept
        self._program()

    def _bind(self, kept: list[Any]) -> Bound:
        k = self._k
        step, frame = step_net(k.attrs["net"]), k.frame
        x_names = k.op.inputs["x"]
        outer = frame.offsets(x_names[0])[0]
        schedule = plain_schedule(outer)
        arriving = k.op.inputs.get("out_grad", ())
        levels = [frame.offsets(name) for name in arriving]
        forward = k.op.inputs.get("static", ())
        static_names = (*forward, *k.op.inputs.get("sum_grad", ()))
        static_levels = [frame.offsets(name) for name in static_names]
        static_tracks = [
            make_static_track(own, schedule) if own and len(own[0]) == len(outer) else None
            for own in static_levels
        ]
        wanted = k.op.outputs.get("static_grad", ())
        track_of = dict(zip(wanted, static_tracks[: len(forward)], strict=False))
        x_grads = [
            (name, array, frame.offsets(x))
            for x, name, array in zip(
                x_names, k.op.outputs.get("x_grad", ()), k.list("x_grad"), strict=False
            )
            if name != EMPTY
        ]
        return Bound(
            step,
            frame,
            outer,
            schedule,
            [make_track(own, schedule) for own in levels],
            k.list("out_grad"),
            k.list("static") + k.list("sum_grad"),
            static_levels,
            static_tracks,
            [kept_row(kept, name) for name in k.attrs["like"]] if schedule.steps else [],
            k.list("final_grad"),
            [array for _, array, _ in x_grads],
            [make_track(own, schedule) for _, _, own in x_grads],
            [array for array in k.list("boot_grad") if array is not None],
            [a for n, a in zip(wanted, k.list("static_grad"), strict=True) if n != EMPTY],
            [track_of[name] for name in wanted if name != EMPTY],
            kept=kept,
            owner=k.op,
            kept_names=tuple(step.inputs[len(arriving) :]),
        )


def kept_row(kept: list[Any], name: str) -> Any:
    """Shape without rows, and dtype, of a variable that the forward run has kept."""
    if isinstance(kept, KeptSteps):
        shape, dtype = kept.metas[name]
        return shape[1:], dtype
    array = kept[0].get(name).array
    return array.shape[1:], array.dtype


def recurrent_op(desc: OpList | pb.NetDesc, steps: str = "") -> OpNode:
    """The operator `recurrent` that runs `desc` over the outer names of its links.

    Variables that the step net reads and nobody links or writes become static links to the
    variables of the same names outside, as a step scope would find them there.

    Args:
        steps: variable for what the gradient needs; by default named after the net.
    """
    net = as_op_list(desc).copy()
    if net.type == RECURRENT and len(net.steps) == 1:
        step = net.steps[0]
        linked = [link.inner for link in (*step.in_links, *step.static_links)]
        linked += [memory.previous for memory in step.memories]
        for name in free_names(step.net, linked):
            step.static_links.append(Link(name, name))
    held = OpList(net.name, net.type, steps=net.steps)
    step_net(held)  # refuses what is wrong with it
    step = held.steps[0]
    inputs = {
        "x": [link.outer for link in step.in_links],
        "static": [link.outer for link in step.static_links],
        "boot": [memory.boot for memory in step.memories if memory.boot],
    }
    outputs = {
        "out": [link.outer for link in step.out_links],
        "final": [memory.final for memory in step.memories if memory.final],
        "sum": [link.outer for link in step.sum_links],
        "steps": steps or steps_name(net.name or "recurrent"),
    }
    return make_op("recurrent", inputs, outputs, {"net": held})


@register_net(RECURRENT)
class RecurrentNet(InnerNet):
    """A recurrent net as a net of its own: one operator `recurrent` over the outer names."""

    @staticmethod
    def make_op(desc: OpList, steps: str = "") -> OpNode:
        """See `recurrent_op`."""
        return recurrent_op(desc, steps)
