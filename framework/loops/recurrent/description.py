"""A recurrent net's description, read once: step net, links and memories, checked.

Delays are lowered here: a memory that looks d > 1 steps back becomes a chain of d memories that
look one step back, joined by `assign`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...base.errors import OpscopeError, ShapeError, VariableError, format_shape, nearest
from ...base.python.bounded_cache import BoundedCache
from ...base.python.cached import cached_property
from ...base.sizes.shape import ArraySpec, Levels
from ...base.untrusted.limits import check_limit
from ...ir.desc import (
    INPUT,
    RECURRENT,
    make_op,
    make_var,
    the_step,
)
from ...ir.equal_nets import shared_by_equal_nets
from ...ir.infer import infer_specs
from ...ir.names import COPY_OP, delayed_name
from ...ir.op_list import MemoryDecl, OpList
from ...ir.operation import Operator, expand_op
from ...passes.lowering import lower
from ..inner_links import (
    Memory,
    check_given,
    check_reads,
    check_taken,
    declared_row,
    slot_positions,
)


class StepNet:
    """The net that runs at each step, and its links to the outside.

    Attributes:
        net: the step net as a PLAIN net, composites expanded and delays lowered.
        operators, vars: of `net`.
        inputs, statics, outputs, sums: inner names, in the order of the links.
        given: what comes from outside or from the step before. writes: how often each is written.
        memories: all with delay 1. boots, finals: how many variables their slots hold.

    Raises:
        FormatError: not one step net. VariableError: a link or memory that does not fit it.
    """

    def __init__(self, desc: OpList) -> None:
        self.name = desc.name or "recurrent"
        self.title = f"recurrent net {desc.name!r}" if desc.name else "recurrent net"
        step = the_step(desc, RECURRENT, self.title)
        self.reverse: bool = step.reverse
        self.inputs = [link.inner for link in step.in_links]
        self.statics = [link.inner for link in step.static_links]
        self.outputs = [link.inner for link in step.out_links]
        self.sums = [link.inner for link in step.sum_links]
        self.net = step.net.copy()
        self.memories = self._lower_delays(step.memories)
        self.given = [*self.inputs, *self.statics, *(memory.previous for memory in self.memories)]
        self._declare_given()
        self.net = lower(self.net)
        self.boots = sum(bool(memory.boot) for memory in step.memories)
        self.finals = sum(bool(memory.final) for memory in step.memories)
        self.operators = [Operator(op, index) for index, op in enumerate(self.net.ops)]
        self.vars = {var.name: var for var in self.net.vars}
        self.plans: BoundedCache[Any, Any] = BoundedCache(512)  # of frame.py
        self.forms: BoundedCache[Any, list[Any]] = BoundedCache(32)  # of these plans
        self.analyses: BoundedCache[Any, Any] = BoundedCache(256)  # of analysis.py
        self._check()

    def _lower_delays(self, given: Iterable[MemoryDecl]) -> list[Memory]:
        lowered: list[Memory] = []
        given = list(given)
        boots = slot_positions(memory.boot for memory in given)
        finals = slot_positions(memory.final for memory in given)
        for memory, boot, final in zip(given, boots, finals, strict=True):
            state = memory.state
            delay = max(memory.delay, 1)
            # Each step back is an operator and an array of its own.
            check_limit("delay", delay, f"{self.title}: the delay of memory {state!r}")
            declared = [var for var in self.net.vars if var.name == memory.previous]
            for back in range(1, delay + 1):
                previous = delayed_name(memory.previous, back) if back < delay else memory.previous
                lowered.append(Memory(state, previous, boot, memory.boot_value, final))
                # Only the nearest of the chain holds the last state; the others hold earlier ones.
                final = -1
                if back < delay:
                    self.net.vars += [var.changed(name=previous) for var in declared]
                    state = delayed_name(memory.previous, back, copied=True)
                    self.net.ops.append(make_op(COPY_OP, {"x": previous}, {"out": state}))
        return lowered

    def _declare_given(self) -> None:
        """Variables that links and memories set are INPUTs of the step net."""
        given = dict.fromkeys(self.given)
        declared = {var.name for var in self.net.vars}
        self.net.vars = [
            var.changed(kind=INPUT) if var.name in given else var for var in self.net.vars
        ]
        for name in given:
            if name not in declared:
                self.net.vars.append(make_var(name, None, None, INPUT))

    # -- checks --------------------------------------------------------------------------------

    def _check(self) -> None:
        self.writes: dict[str, int] = {}
        for op in self.operators:
            for name in op.output_vars():
                self.writes[name] = self.writes.get(name, 0) + 1
        part = "step net"
        check_given(self.title, part, self.given, self.writes)
        taken = [("its out link takes", name) for name in self.outputs]
        taken += [("its sum link takes", name) for name in self.sums]
        taken += [("a memory keeps", memory.state) for memory in self.memories]
        check_taken(self.title, part, taken, self.writes)
        check_reads(self.title, part, self.given, self.operators, self.vars)
        read = {name for op in self.operators for name in op.input_vars()}
        for memory in self.memories:
            if memory.previous not in read and self.vars[memory.previous].shape is None:
                hint = nearest(memory.previous, read)
                raise VariableError(
                    f"{self.title}: the step net has no variable {memory.previous!r}, the previous"
                    f" {memory.state!r}{hint}"
                )

    @cached_property
    def values(self) -> frozenset[str]:
        """Variables whose values, and not only their shapes, the step net reads."""
        return frozenset(name for op in self.operators for name in op.value_reads())

    @property
    def regular(self) -> bool:
        """Whether every variable is written once and none is a view of another."""
        views = any(var.view is not None for var in self.net.vars)
        return not views and all(times == 1 for times in self.writes.values())

    # -- shapes --------------------------------------------------------------------------------

    def declared_row(self, memory: Memory) -> ArraySpec | None:
        """Shape (without rows) and dtype that the step net declares for a memory; None: nothing."""
        return declared_row(self.vars.get(memory.previous), self.vars.get(memory.state))

    def infer(
        self,
        known: Mapping[str, ArraySpec],
        rows: int,
        offsets: dict[str, Levels] | None,
        *,
        remember: bool = True,
    ) -> dict[str, ArraySpec]:
        """Shapes and dtypes of everything in one step.

        Args:
            known: of `given`. rows: sequences in this step; -1 while a net is built.
            offsets: of the given variables that hold sequences; others are added.
            remember: see `infer_specs`.

        Raises:
            ShapeError: an operator refuses its inputs, or a link or memory has the wrong shape.
        """
        building = rows < 0
        try:
            specs = infer_specs(
                self.operators, known, self.vars, offsets, partial=building, remember=remember
            )
        except OpscopeError as error:
            raise type(error)(f"{self.title}, in its step net: {error}") from None
        for memory in self.memories:
            self._check_memory(memory, specs)
        for name in self.outputs:
            own = (offsets or {}).get(name, ())
            shape = specs[name][0] if name in specs else None
            if building or shape is None or (own and len(own[0]) - 1 == rows):
                continue
            if not shape or shape[0] != rows:
                raise ShapeError(
                    f"{self.title}: its out link takes {name!r} {format_shape(shape)}, which"
                    f" has no row for each of the {rows} sequences of a step"
                )
        return specs

    def _check_memory(self, memory: Memory, specs: Mapping[str, ArraySpec]) -> None:
        state, previous = specs.get(memory.state), specs.get(memory.previous)
        if state is None or previous is None:
            return
        same = len(state[0]) == len(previous[0]) and all(
            a == b or min(a, b) < 0 for a, b in zip(state[0], previous[0], strict=True)
        )
        if not same or state[1] != previous[1]:
            raise ShapeError(
                f"{self.title}: the memory {memory.state!r} is {state[1]}{format_shape(state[0])}"
                f" and its previous value {memory.previous!r}"
                f" {previous[1]}{format_shape(previous[0])}"
            )


@shared_by_equal_nets
def step_net(net: OpList) -> StepNet:
    """The `StepNet` of a net; equal nets share one."""
    return StepNet(net)


def free_names(net: OpList, given: Iterable[str]) -> list[str]:
    """Variables that the operators of a net read and that are neither given nor written before, in
    the order in which plain operators read them."""
    known = set(given)
    free = dict[str, None]()
    for op in (plain for whole in net.ops for plain in expand_op(whole)):
        free.update((name, None) for name in op.input_names() if name not in known)
        known.update(op.output_names())
    return list(free)


def describe_lengths(offsets: np.ndarray) -> str:
    """`3, 1, 2` with the lengths of sequences, the first few where there are many."""
    lengths: list[Any] = np.diff(offsets).tolist()
    shown = ", ".join(map(str, lengths[:6]))
    return shown + (", ..." if len(lengths) > 6 else "")
