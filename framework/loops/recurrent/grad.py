"""The gradient of a recurrent net: a recurrent net over the gradient step net, the other way round.

The gradient step net comes from the same backward pass as any gradient. At each step it is given
what arrives through out-links and, from the step that ran before it, what arrives through memories;
what it reads of the forward step it finds in that step's scope.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...ir.desc import BACKWARD, FORWARD, RECURRENT, make_op
from ...ir.gradient_args import GradientArgs
from ...ir.names import (
    COPY_OP,
    EMPTY,
    FILL_OP,
    SUM_OP,
    carry_name,
    delayed_name,
    grad_name,
    linked_grad_name,
    rows_name,
)
from ...ir.op_list import Link, MemoryDecl, OpList, OpNode, StepDecl
from ...passes.backward import BackwardResult, build_backward
from ..inner_gradient import dense_gradient, require_steps
from ..inner_links import Memory
from .description import StepNet, free_names, step_net


def make_gradient(g: GradientArgs) -> list[OpNode]:
    """The gradient maker of `recurrent`.

    Raises:
        GradientError: the operator has no variable in the slot `steps`, or its step net has no
            gradient.
    """
    return _Maker(g).ops()


@dataclass
class _Arriving:
    """A gradient from outside and what it is called in the step net."""

    outer: str
    target: str
    inner: str


class _Maker:
    def __init__(self, g: GradientArgs) -> None:
        self.g = g
        self.step: StepNet = step_net(g.attrs["net"])
        require_steps(g, self.step.title, "the steps of the forward run")
        self.outs = self._arriving("out", self.step.outputs)
        self.sums = self._arriving("sum", self.step.sums)
        self.finals = g.arriving_grads("final")
        self.wanted = {slot: g.input_grads(slot) for slot in ("x", "static", "boot")}

    def _arriving(self, slot: str, links: list[str]) -> list[_Arriving]:
        grads = self.g.arriving_grads(slot)
        return [
            _Arriving(grad, inner, linked_grad_name(f"{inner}@{slot.upper()}", number))
            for number, (inner, grad) in enumerate(zip(links, grads, strict=True))
            if grad != EMPTY
        ]

    def _final_grad(self, memory: Memory) -> str:
        return self.finals[memory.final] if memory.final >= 0 else EMPTY

    def _linked(self, slot: str, links: list[str]) -> list[tuple[str, str]]:
        """Inner name and gradient's outer name of the links whose gradient is wanted."""
        return [
            (inner, grad)
            for inner, grad in zip(links, self.wanted[slot], strict=True)
            if grad != EMPTY
        ]

    # -- the gradient step net -----------------------------------------------------------------

    def _build(self) -> tuple[BackwardResult, list[Memory]]:
        """The gradient operators, and the memories through which anything flows back."""
        net = self.step.net.copy()
        net.ops = [op.changed(role=FORWARD) for op in net.ops]
        inputs = self._linked("x", self.step.inputs) + self._linked("static", self.step.statics)
        carried = list(self.step.memories)
        # A memory through which nothing flows back is left out; that may stop the flow through
        # others.
        while True:
            targets: dict[str, list[str]] = {}
            for arriving in (*self.outs, *self.sums):
                targets.setdefault(arriving.target, []).append(arriving.inner)
            for memory in carried:
                targets.setdefault(memory.state, []).append(carry_name(memory.previous))
            wrt = [name for name, _ in inputs] + [memory.previous for memory in carried]
            result = build_backward(net, targets=targets, wrt=wrt, required=False)
            flowing = [
                memory
                for memory in carried
                if memory.previous in result.gradients or self._final_grad(memory) != EMPTY
            ]
            if len(flowing) == len(carried):
                return result, carried
            carried = flowing

    def _finish(self, result: BackwardResult, name: str) -> str:
        """The gradient of `name` as a dense variable that the gradient step net itself writes."""
        gradient = result.gradients[name]
        written = {name for op in result.ops for name in op.output_names()}
        own = f"{grad_name(name)}@LINK"
        if rows_name(gradient) in written:
            result.ops.append(dense_gradient(name, gradient, own))
        # The gradient is an arriving one as it is: a link needs a variable that the net itself
        # writes.
        elif gradient not in written:
            result.ops.append(make_op(COPY_OP, {"x": gradient}, {"out": own}, role=BACKWARD))
        else:
            return gradient
        return own

    # -- the operators outside -----------------------------------------------------------------

    def ops(self) -> list[OpNode]:
        result, carried = self._build()
        step = StepDecl(reverse=not self.step.reverse)
        desc = OpList(f"{self.step.name}_grad", RECURRENT, steps=[step])
        writes: dict[str, list[str]] = {}
        for slot, links, target in (
            ("x", self.step.inputs, step.out_links),
            ("static", self.step.statics, step.sum_links),
        ):
            writes[slot] = [EMPTY] * len(links)
            for number, (inner, grad) in enumerate(zip(links, self.wanted[slot], strict=True)):
                if grad != EMPTY and inner in result.gradients:
                    target.append(Link(grad, self._finish(result, inner)))
                    writes[slot][number] = grad
        boots, boot_grads, sums = self._memories(step, result, carried)
        self._links(step, result)
        g = self.g
        reads = {
            "x": g.inputs("x"),
            "static": g.inputs("static"),
            "boot": boots,
            "steps": g.outputs("steps"),
            "out_grad": [arriving.outer for arriving in self.outs],
            "sum_grad": [arriving.outer for arriving in self.sums],
            "final_grad": [self._final_grad(m) for m in carried if self._final_grad(m) != EMPTY],
        }
        outputs = {f"{slot}_grad": names for slot, names in writes.items()}
        outputs["boot_grad"] = boot_grads
        attrs: dict[str, Any] = {
            "net": desc,
            "like": [memory.previous for memory in carried],
        }
        ops = []
        if any(name != EMPTY for names in outputs.values() for name in names):
            ops.append(g.op("recurrent_grad", reads, outputs, attrs))
        return ops + sums + self._zeros({*boot_grads, *writes["x"], *writes["static"]}, sums)

    def _memories(
        self, step: StepDecl, result: BackwardResult, carried: Iterable[Memory]
    ) -> tuple[list[str], list[str], list[OpNode]]:
        """Adds the memories; boot variables, their gradients, and sums over chains of delays."""
        names = self.g.inputs("boot")
        boots, grads = [], []
        parts: dict[int, list[str]] = {}
        for memory in carried:
            carry = carry_name(memory.previous)
            if memory.previous in result.gradients:
                state = self._finish(result, memory.previous)
            else:
                state = grad_name(memory.previous)
                fill = make_op(FILL_OP, {"x": carry}, {"out": state}, {"value": 0.0}, role=BACKWARD)
                result.ops.append(fill)
            entry = MemoryDecl(state, carry)
            step.memories.append(entry)
            if self._final_grad(memory) != EMPTY:
                entry.boot = self._final_grad(memory)
            wanted = self.wanted["boot"][memory.boot] if memory.boot >= 0 else EMPTY
            if wanted != EMPTY:
                # A boot variable of a delayed memory starts several states: its gradient is the sum
                # over them.
                part = delayed_name(wanted, len(parts.setdefault(memory.boot, [])))
                parts[memory.boot].append(part)
                boots.append(names[memory.boot])
                grads.append(part)
                entry.final = part
        sums = []
        for boot, shares in parts.items():
            wanted = self.wanted["boot"][boot]
            if len(shares) == 1:
                grads[grads.index(shares[0])] = wanted
                for entry in step.memories:
                    entry.final = wanted if entry.final == shares[0] else entry.final
            else:
                sums.append(make_op(SUM_OP, {"x": shares}, {"out": wanted}, role=BACKWARD))
        return boots, grads, sums

    def _links(self, step: StepDecl, result: BackwardResult) -> None:
        """Adds operators, variables, in-links and static links."""
        step.net.ops.extend(result.ops)
        given = [memory.previous for memory in step.memories]
        for arriving in self.outs:
            step.in_links.append(Link(arriving.outer, arriving.inner))
            given.append(arriving.inner)
        for name, inner in zip(self.g.inputs("static"), self.step.statics, strict=True):
            step.static_links.append(Link(name, inner))
            given.append(inner)
        for arriving in self.sums:
            step.static_links.append(Link(arriving.outer, arriving.inner))
            given.append(arriving.inner)
        (steps,) = self.g.outputs("steps")
        # What is neither given nor written is a value of the forward step.
        free = free_names(step.net, given)
        for name in free:
            step.in_links.append(Link(steps, name))
        forward = {*free, *self.step.statics}
        step.net.vars.extend(var for var in self.step.net.vars if var.name in forward)
        step.net.vars.extend(var for var in result.vars if var.name in given)

    def _zeros(self, written: set[str], sums: list[OpNode]) -> list[OpNode]:
        """Fills the gradients that are wanted and that nothing flows to."""
        done = written | {name for op in sums for name in op.output_names()}
        return [
            self.g.op(FILL_OP, {"x": str(name)}, {"out": grad}, {"value": 0.0})
            for slot, grads in self.wanted.items()
            for name, grad in zip(self.g.inputs(slot), grads, strict=True)
            if grad != EMPTY and grad not in done
        ]
