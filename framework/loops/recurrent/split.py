"""Which operators of a step net run once on the rows of all steps, and which step by step.

    static  what depends on static links alone: once
    pre     row-wise, independent of memories: once on all rows, before the steps
    loop    what states depend on, and everything that is not known to be row-wise: at each step
    post    row-wise, and no state depends on it: once on all rows, after the steps

A gradient operator whose outputs belong to different phases is split in two. Sums over rows (the
gradients of weights) in `post` are sums over all steps at once: one product for a whole batch.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...base.sizes.shape import ArraySpec
from ...ir.names import COPY_OP, EMPTY, SUM_OP
from ...ir.operation import Operator
from ...ir.row_kinds import EACH, SUM, row_kinds
from .description import StepNet

_LINEAR = (SUM_OP, COPY_OP)
"""Operators whose result is a sum over rows where their inputs are sums over rows."""


@dataclass(frozen=True, eq=False)
class Phases:
    """The operators of a step net by phase, each in their order.

    Attributes:
        sums: variables of `post` that are sums over all rows.
    """

    static: list[Operator] = field(default_factory=list)
    pre: list[Operator] = field(default_factory=list)
    loop: list[Operator] = field(default_factory=list)
    post: list[Operator] = field(default_factory=list)
    sums: set[str] = field(default_factory=set)


def live_operators(step: StepNet, wanted: Collection[str]) -> list[Operator]:
    """The operators that states, links or `wanted` depend on, and those that must run anyway.

    These draw random numbers, or touch the world outside.
    """
    needed = {*wanted, *step.outputs, *step.sums, *(memory.state for memory in step.memories)}
    live = []
    for op in reversed(step.operators):
        must = op.entry.random or op.entry.world
        if must or any(name in needed for name in op.output_vars()):
            live.append(op)
            needed.update(op.input_vars())
    return live[::-1]


def without_copies(
    step: StepNet,
    operators: Sequence[Operator],
    specs: Mapping[str, ArraySpec],
    wanted: Collection[str],
) -> list[Operator]:
    """The operators without copies: readers of a copy read its source.

    An output is a copy where its scalar expression is the name of an input, as in `assign` and in
    the gradients of sums. Every variable is written once, so the original keeps its value.
    """
    live_out = {*wanted, *step.outputs, *step.sums, *(memory.state for memory in step.memories)}
    names: dict[str, str] = {}
    left = []
    for op in operators:
        outputs = op.output_vars()
        for slot, expression in op.entry.expressions.items():
            for name in op.outputs.get(slot, ()):
                (source, *_) = op.inputs.get(expression, (EMPTY,))
                if name not in live_out and source in specs and specs[source] == specs[name]:
                    names[name] = names.get(source, source)
        left_outputs = [name for name in outputs if name not in names]
        if not left_outputs and outputs:
            continue
        if len(left_outputs) < len(outputs) or any(name in names for name in op.input_vars()):
            op = _changed(op, names, left_outputs)
        left.append(op)
    return left


def split(
    step: StepNet,
    operators: Sequence[Operator],
    specs: Mapping[str, ArraySpec],
    rows: Collection[str],
    fixed: Collection[str],
) -> Phases:
    """Sort operators of a step net into phases.

    Args:
        specs: shapes in some step. rows: variables with one row for each sequence of a step.
        fixed: given variables that are the same at each step.
    """
    return _Splitter(step, specs, rows, fixed).run(operators)


def with_cuts(
    phases: Phases,
    inputs: Collection[str],
    specs: Mapping[str, ArraySpec],
    wanted: Collection[str],
) -> Phases:
    """The phases, with cuts of in-links into columns in the loop where it alone reads these: there
    they are views of the in-link (sharing.py).

    Args:
        inputs: the in-links. wanted: states, and what is read after the run.
    """
    once = (*phases.static, *phases.pre, *phases.post)
    elsewhere = {name for op in once for name in op.input_vars()}.union(wanted)
    cut: set[str] = set()  # in-links: a matrix is cut in one way, other cuts stay before the loop

    def is_cut(op: Operator) -> bool:
        if op.entry.column_views is None or not elsewhere.isdisjoint(op.output_vars()):
            return False
        names = op.inputs.get(op.entry.column_views[0], ())
        if len(names) != 1 or names[0] not in inputs or names[0] in cut.union(wanted):
            return False
        if len(specs[names[0]][0]) != 2 or op.attrs["axis"] % 2 != 1:
            return False
        cut.update(names)
        return True

    cuts = [op for op in phases.pre if is_cut(op)]
    if not cuts:
        return phases
    left = [op for op in phases.pre if op not in cuts]
    return replace(phases, pre=left, loop=[*cuts, *phases.loop])


class _Splitter:
    def __init__(
        self,
        step: StepNet,
        specs: Mapping[str, ArraySpec],
        rows: Collection[str],
        fixed: Collection[str],
    ) -> None:
        self.step = step
        self.specs = specs
        self.rows = rows
        self.fixed = set(fixed)
        self.states = {memory.state for memory in step.memories}
        self.linked = self.states | set(step.outputs) | set(step.sums)
        previous = {memory.previous for memory in step.memories}
        self.early = {name for name in step.given if name in rows and name not in previous}
        self.kinds: dict[str, str] = {}  # of variables written by row-wise operators

    def run(self, operators: Sequence[Operator]) -> Phases:
        static: list[Operator] = []
        pre: list[Operator] = []
        rest: list[tuple[Operator, bool]] = []
        for op in operators:
            if self._is_static(op):
                static.append(op)
                # What follows from fixed values is fixed in turn.
                self.fixed.update(op.output_vars())
                continue
            kinds = row_kinds(op, self.specs, self.rows, self.fixed) or self._sum_kinds(op)
            self.kinds.update(kinds or {})
            if kinds is not None and self._is_early(op, kinds):
                pre.append(op)
                self.early.update(op.output_vars())
            else:
                rest.append((op, kinds is not None))
        wanted = self._wanted([op for op, _ in rest])
        # Cut before the late ones are looked for: a gradient of weights can wait, the one of a
        # state, from the same operator, cannot.
        rest = [(part, able) for op, able in rest for part in self._cut(op, wanted, able)]
        late = self._late(rest, wanted)
        loop = [op for op, _ in rest if id(op) not in late]
        post = [op for op, _ in rest if id(op) in late]
        sums = {name for op in post for name in op.output_vars() if self.kinds[name] == SUM}
        return Phases(static, pre, loop, post, sums)

    def _is_static(self, op: Operator) -> bool:
        outputs = op.output_vars()
        return (
            not (op.entry.random or op.entry.world)
            and all(name in self.fixed for name in op.input_vars())
            and not any(name in self.linked for name in outputs)
        )

    def _sum_kinds(self, op: Operator) -> dict[str, str] | None:
        """Kinds of the results of an operator that adds up or copies sums over rows."""
        summed = [self.kinds.get(name) == SUM for name in op.input_vars()]
        if op.type in _LINEAR and summed and all(summed):
            return dict.fromkeys(op.output_vars(), SUM)
        return None

    def _is_early(self, op: Operator, kinds: Mapping[str, str]) -> bool:
        return all(name in self.fixed or name in self.early for name in op.input_vars()) and all(
            kind == EACH and name not in self.states and name not in self.step.sums
            for name, kind in kinds.items()
        )

    def _wanted(self, rest: list[Operator]) -> set[str]:
        """Variables that some state depends on."""
        wanted = set(self.states)
        for op in reversed(rest):
            if any(name in wanted for name in op.output_vars()):
                wanted.update(op.input_vars())
        return wanted

    def _cut(self, op: Operator, wanted: set[str], able: bool) -> list[Operator]:
        """Split an operator in two: one writes what states depend on, the other the rest.

        An operator stays whole where its outputs are all of one sort, where it must write all of
        them, or where it does not work row by row (`able`).
        """
        outputs = op.output_vars()
        inside = [name for name in outputs if name in wanted]
        optional = all(slot.optional for slot in op.entry.outputs)
        if not able or not optional or not inside or len(inside) == len(outputs):
            return [op]
        return [
            _changed(op, {}, inside),
            _changed(op, {}, [name for name in outputs if name not in inside]),
        ]

    def _late(self, rest: list[tuple[Operator, bool]], wanted: set[str]) -> set[int]:
        """Operators (their ids) that can run after all steps.

        First all are taken that no state depends on; then those are dropped, again and again, whose
        results are needed earlier or which read a sum that is not complete before the last step.
        """
        readers: dict[str, list[Operator]] = {}
        for op, _ in rest:
            for name in op.input_vars():
                readers.setdefault(name, []).append(op)
        late = {
            id(op)
            for op, able in rest
            if able and not any(name in wanted for name in op.output_vars())
        }
        while True:
            wrong = {
                id(op)
                for op, _ in rest
                if id(op) in late
                and not all(self._may_wait(name, readers, late) for name in op.output_vars())
            }
            written = {name for op, _ in rest if id(op) not in late for name in op.output_vars()}
            wrong |= {  # it hands on a sum over rows that is made step by step
                id(op)
                for op, _ in rest
                if id(op) in late
                and any(self.kinds.get(n) == SUM and n in written for n in op.input_vars())
            }
            if not wrong:
                return late
            # Taking one away may make those wrong that it reads: until nothing changes.
            late -= wrong

    def _may_wait(self, name: str, readers: Mapping[str, list[Operator]], late: set[int]) -> bool:
        using = readers.get(name, [])
        if not all(id(op) in late for op in using):
            return False
        if self.kinds[name] == EACH:
            return name not in self.step.sums
        # A sum over the rows of one step is another value than that over all: only sums of sums may
        # see it.
        return name not in self.step.outputs and all(op.type in _LINEAR for op in using)


def _changed(op: Operator, names: Mapping[str, str], outputs: Collection[str]) -> Operator:
    """The operator with inputs renamed, and only some of its outputs."""
    new = copy.copy(op)
    new.inputs = {
        slot: tuple(names.get(name, name) for name in own) for slot, own in op.inputs.items()
    }
    cut = {
        slot: tuple(name if name in outputs else EMPTY for name in own)
        for slot, own in op.outputs.items()
    }
    new.outputs = {slot: own for slot, own in cut.items() if set(own) != {EMPTY}}
    return new
