"""Which variables of a recurrent net's loop share memory, so that operators fall away.

    sums          g + x y, where g was computed for all steps before the loop and has no other
                  reader: the product is added to g in place.
    column views  a matrix cut into columns, or put together from columns: these are views of it.
                  Their rows do not lie side by side; every kernel reads such arrays, and
                  elementwise ones write them.

Operators say what they are able to in the registry: `accumulates`, `column_views`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ...base.python.cached import cached_property
from ...base.sizes.shape import ArraySpec
from ...ir.names import EMPTY
from ...ir.operation import Operator
from .description import StepNet
from .split import Phases
from .store import Arena, DoubleBuffer, SlotRanges, Slots, StepValues, Values, row_of

_SUM = {"out": "x + y"}
"""The scalar expression of a sum of two."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """The operators that remain in a loop, and the variables that share memory.

    Attributes:
        operators: the loop. onto: sum -> variable computed before the loop whose memory it takes.
        columns: column view -> (matrix, first column, column after the last).
    """

    operators: list[Operator]
    onto: dict[str, str] = field(default_factory=dict)
    columns: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    @cached_property
    def written(self) -> frozenset[str]:
        """Variables that the operators write."""
        return frozenset(name for op in self.operators for name in op.output_vars())

    @cached_property
    def given(self) -> frozenset[str]:
        """Variables that the operators read and do not write."""
        reads = frozenset(name for op in self.operators for name in op.input_vars())
        return reads - self.written

    @property
    def names(self) -> set[str]:
        """All variables whose memory is not for a plan to choose."""
        return {*self.onto, *self.columns, *(whole for whole, _, _ in self.columns.values())}


def share(
    step: StepNet,
    phases: Phases,
    specs: Mapping[str, ArraySpec],
    rows: Collection[str],
    saved: Collection[str],
) -> Sharing:
    """Finds variables of a loop that may share memory.

    Args:
        specs: shapes in some step. rows: variables with one row for each sequence of a step.
        saved: what is read after the run.
    """
    return _Sharer(step, phases, specs, rows, saved).run()


def shared_values(
    sharing: Sharing,
    values: Values,
    specs: Mapping[str, ArraySpec],
    live_out: Collection[str],
    arena: Arena,
    slots: SlotRanges,
) -> dict[str, StepValues]:
    """Where the variables that share memory are, and the matrices whose columns they view.

    Args:
        values: of the variables computed before the loop.
        live_out: what is read after the loop; other matrices need memory for one step only.
    """
    shared: dict[str, StepValues] = {}

    def slots_of(name: str) -> Slots:
        value = shared.get(name) or values[name]
        assert isinstance(value, StepValues) and value.slots is not None
        return value.slots

    for name, base in sharing.onto.items():
        shared[name] = StepValues(slots_of(base))
    columns = sharing.columns
    live_bases = {
        base for view, (base, *_) in columns.items() if view in live_out or base in live_out
    }
    for view, (base, begin, end) in columns.items():
        if base not in shared and base not in values:
            row, dtype = row_of(specs[base])
            if base in live_bases:
                array = arena.slots(("slots", base), row, dtype)
                shared[base] = StepValues(slots.slices(array))
            else:
                array = arena.array(("step", base), ((arena.room, *row), dtype))
                # Nothing reads it after its step, so all steps have the same memory.
                shared[base] = StepValues(DoubleBuffer((array, array), slots.sizes, 0))
        shared[view] = StepValues(slots_of(base).columns(begin, end))
    return shared


class _Sharer:
    def __init__(
        self,
        step: StepNet,
        phases: Phases,
        specs: Mapping[str, ArraySpec],
        rows: Collection[str],
        saved: Collection[str],
    ) -> None:
        self.specs = specs
        self.rows = rows
        self.inputs = set(step.inputs)
        self.loop = phases.loop
        everything = (*phases.static, *phases.pre, *phases.loop, *phases.post)
        # Of all phases: an operator after the loop may read what a sum would write over.
        self.readers = Counter(name for op in everything for name in op.input_vars())
        self.early = {name for op in phases.pre for name in op.output_vars()}
        self.writer = {name: op for op in phases.loop for name in op.output_vars()}
        states = {memory.state for memory in step.memories}
        self.linked = states | {*step.outputs, *step.sums}
        self.read_outside = self.linked | set(saved)
        self.onto: dict[str, str] = {}
        self.columns: dict[str, tuple[str, int, int]] = {}

    def run(self) -> Sharing:
        changed: dict[int, Operator | None] = {}
        for op in self.loop:
            changed.update(self._as_sum(op) or self._as_column_views(op))
        left = (changed.get(id(op), op) for op in self.loop)
        return Sharing([op for op in left if op is not None], self.onto, self.columns)

    def _as_sum(self, op: Operator) -> dict[int, Operator | None]:
        """The product that takes the place of a sum; empty where there is none."""
        inputs, outputs = op.input_vars(), op.output_vars()
        if (
            op.entry.expressions != _SUM
            or len(inputs) != 2
            or not outputs
            or outputs[0] in self.linked
        ):
            return {}
        out = outputs[0]
        for base, term in (inputs, inputs[::-1]):
            product = self.writer.get(term)
            # The product overwrites `base` and is never there by itself: nothing else reads them.
            if (
                base in self.early
                and product is not None
                and product.entry.accumulates
                and all(len(self.specs[name][0]) == 2 for name in product.input_vars())
                and not any(
                    self.readers[name] > 1 or name in self.read_outside for name in (base, term)
                )
                and self._alike(base, term, out)
            ):
                # A copy: the step net's own operator serves other analyses as well.
                adding = copy.copy(product)
                adding.outputs = {slot: (out,) for slot in product.outputs}
                adding.accumulate = True
                self.onto[out] = base
                return {id(product): adding, id(op): None}
        return {}

    def _alike(self, *names: str) -> bool:
        return all(n in self.rows and self.specs[n] == self.specs[names[0]] for n in names)

    def _as_column_views(self, op: Operator) -> dict[int, Operator | None]:
        """No operator in place of one that only moves columns."""
        if op.entry.column_views is None:
            return {}
        slots = {**op.inputs, **op.outputs}
        (whole,), views = (slots[slot] for slot in op.entry.column_views)
        joins = whole in op.output_vars()
        columns = self.columns
        shared = Sharing([], self.onto, columns).names
        if (
            EMPTY in (whole, *views)
            or len(set(views)) < len(views)
            or len(self.specs[whole][0]) != 2
            or op.attrs["axis"] % 2 != 1
            or whole in columns
            or not all(name in self.rows for name in (whole, *views))
            or not all(name in self.writer for name in views)
            or not (whole in self.writer or whole in self.inputs)  # which has slots here
            or any(name in self.linked for name in (whole, *views))
            or any(name in shared for name in views)
        ):
            return {}
        # All kernels read columns of a wider matrix, only elementwise ones write them.
        if joins and not all(self.writer[name].entry.expressions for name in views):
            return {}
        widths = [self.specs[name][0][1] for name in views]
        spans = pairwise(accumulate(widths, initial=0))
        columns.update((name, (whole, *span)) for name, span in zip(views, spans, strict=True))
        return {id(op): None}
