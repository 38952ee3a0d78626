"""RecurrentNet: a step net run once for each step of a batch of sequences.

Semantics. All in-links are sequences of the same lengths. At step t the step net runs once, on the
rows t of all sequences that have a step t: those are ordered by falling length, so that they are
always the first ones. A memory's `previous` is the `state` of `delay` steps before, or the boot
value where the sequence has no such step. Reversed nets begin with the last step of each sequence.
Where in-links hold sequences of sequences, steps run along the outer level and see inner sequences.

A net runs in one of two ways, by the option `recurrent`, with the same results:
`steps`: a scope for each step (scopes.py), the reference; `fast`: over whole sequences
wherever the step net allows it (stages.py).

Sources: Paddle's `recurrent_op.cc` and design of RNN operators (step scopes, memories, links);
CNTK's PastValue and FutureValue (delays, both directions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ....proto import net_pb2 as pb
from ...base.errors import VariableError
from ...base.options.settings import read_once
from ...base.python.gc_disabled import gc_disabled
from ...base.scope import Scope, Variable
from ...base.sizes.shape import ArraySpec
from ...ir.desc import RECURRENT, make_op
from ...ir.kernel_args import KernelArgs
from ...ir.messages import as_op_list
from ...ir.names import EMPTY, steps_name
from ...ir.op_list import Link, OpList, OpNode
from ...runtime.binding import CannotFuseError, frame_of
from ...runtime.net import register_net
from ..inner_net import InnerNet
from .chunks import ChunkedProgram, chunk_length, chunk_steps
from .description import free_names, step_net
from .links import RecurrentBinding, make_static_track, make_track, plain_schedule
from .scopes import StepScopeProgram
from .stages import RecurrentProgram, even_size, known_loop
from .store import SavedSteps


def make_program(binding: RecurrentBinding) -> Callable[[], None]:
    """The callable that runs all steps of a bound recurrent operator.

    A gradient runs as its forward run did.
    """
    options = binding.frame.plan.options
    if binding.saved is None:
        fast = options.recurrent == "fast" and binding.step.regular
    else:
        # The options may have changed since: what was saved decides.
        fast = isinstance(binding.saved, SavedSteps)
    if not fast:
        return StepScopeProgram(binding)
    length = chunk_steps(binding)
    make = partial(ChunkedProgram, length=length) if length else RecurrentProgram
    try:
        return make(binding, options)
    except CannotFuseError:
        return make(binding, replace(options, fuse=False))


def known_program(k: KernelArgs) -> Callable[[], None] | None:
    """The program of an operator that saves nothing for a gradient, over sequences of one length,
    where what is bound for another length serves; else None."""
    size = even_size(k)
    if size is None or chunk_length(size[0]) < size[1]:
        return None
    return known_loop(k, *size)


class RecurrentGradientProgram:
    """The kernel of `recurrent_grad`: bound to the steps that the forward run has left.

    They are known when it runs, not before: the forward operators may run by themselves, and in
    another frame.
    """

    def __init__(self, k: KernelArgs) -> None:
        self._k = k
        self._saved: list[Scope] | None = None
        self._program: Callable[[], None] | None = None
        (steps,) = k.op.inputs["steps"]
        self._steps: Variable = k.scope.find(steps) or k.scope.var(steps)

    @property
    def parts(self) -> list[Callable[[], None]]:
        """See `RecurrentProgram.parts`.

        Raises:
            AttributeError: it depends on what forward operators of another frame will leave.
        """
        (steps,) = self._k.op.inputs["steps"]
        operators = frame_of(self._k).plan.operators
        if self._program is None or not any(steps in one.output_vars() for one in operators):
            raise AttributeError("parts")
        return [self._program]

    def __call__(self) -> None:
        saved = self._steps.step_scopes
        if saved is None:
            raise VariableError(
                self._k.describe("the forward operator has not run, or kept no steps")
            )
        # A run of the forward operator leaves a new list only where it was bound anew.
        if self._program is None or saved is not self._saved:
            with read_once(), gc_disabled():
                self._program = make_program(self._bind(saved))
            self._saved = saved
        self._program()

    def _bind(self, saved: list[Scope]) -> RecurrentBinding:
        k = self._k
        step = step_net(k.attrs["net"])
        frame = frame_of(k)
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
        likes = k.attrs["like"] if schedule.steps else ()
        return RecurrentBinding(
            step=step,
            owner=k.op,
            frame=frame,
            offsets=outer,
            schedule=schedule,
            tracks=[make_track(own, schedule) for own in levels],
            arrays=k.list("out_grad"),
            statics=k.list("static") + k.list("sum_grad"),
            static_levels=static_levels,
            static_tracks=static_tracks,
            memory_specs=[_saved_row(saved, name) for name in likes],
            initial_states=k.list("final_grad"),
            outputs=[array for _, array, _ in x_grads],
            out_tracks=[make_track(own, schedule) for _, _, own in x_grads],
            final_states=[array for array in k.list("boot_grad") if array is not None],
            sums=[a for n, a in zip(wanted, k.list("static_grad"), strict=True) if n != EMPTY],
            sum_tracks=[track_of[name] for name in wanted if name != EMPTY],
            saved=saved,
            saved_names=tuple(step.inputs[len(arriving) :]),
        )


def _saved_row(saved: list[Scope], name: str) -> ArraySpec:
    """Shape without rows, and dtype, of a variable that the forward run has saved."""
    if isinstance(saved, SavedSteps):
        shape, dtype = saved.specs[name]
        return shape[1:], dtype
    array = saved[0].get(name).array
    return array.shape[1:], array.dtype


def recurrent_op(desc: OpList | pb.NetDesc, steps: str = "") -> OpNode:
    """The operator `recurrent` that runs `desc` over the outer names of its links.

    Variables that the step net reads and nothing links or writes become static links to the
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
    inner = OpList(net.name, net.type, steps=net.steps)
    step_net(inner)  # refuses what is wrong with it
    step = inner.steps[0]
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
    return make_op("recurrent", inputs, outputs, {"net": inner})


@register_net(RECURRENT)
class RecurrentNet(InnerNet):
    """A recurrent net as a net of its own: one operator `recurrent` over the outer names."""

    @staticmethod
    def make_op(desc: OpList, steps: str = "") -> OpNode:
        """See `recurrent_op`."""
        return recurrent_op(desc, steps)
