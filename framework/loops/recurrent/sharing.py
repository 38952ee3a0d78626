"""Which variables of a recurrent net's loop share memory, so that operators fall away.

    sums    g + x y, where g was computed for all steps before the loop and has no other reader:
            the product is added to g in place.
    pieces  a matrix cut into columns, or put together from columns: these are views of it. What
            writes or reads them takes rows that are not side by side; every kernel reads such,
            and elementwise ones write them.

Operators say what they are able to in the registry: `accumulates`, `column_views`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ...base.shape import Meta
from ...ir.names import EMPTY
from ...ir.operation import Operator
from .description import StepNet
from .split import Phases
from .store import Alternating, Arena, Layout, Rows, Sheet, Stored, row_of

_SUM = {"out": "x + y"}
"""The scalar expression of a sum of two."""


@dataclass
class Sharing:
    """What is left of a loop, and who shares memory in it.

    Attributes:
        operators: the loop. onto: sum -> variable computed before the loop whose memory it takes.
        columns: piece -> (matrix, first column, column after the last).
    """

    operators: list[Operator]
    onto: dict[str, str] = field(default_factory=dict)
    columns: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """All variables whose memory is not for a plan to choose."""
        return {*self.onto, *self.columns, *(whole for whole, _, _ in self.columns.values())}


def share(
    step: StepNet,
    phases: Phases,
    metas: Mapping[str, Meta],
    rows: Collection[str],
    keep: Collection[str],
) -> Sharing:
    """What the loop of a step net may share.

    Args:
        metas: shapes in some step. rows: variables with one row for each sequence of a step.
        keep: what is read after the run.
    """
    return _Sharer(step, phases, metas, rows, keep).run()


def share_memory(
    sharing: Sharing,
    stored: dict[str, Stored],
    metas: Mapping[str, Meta],
    lasting: Collection[str],
    arena: Arena,
    layout: Layout,
) -> None:
    """Give these variables their memory; `lasting`: what is read after its step."""
    for name, base in sharing.onto.items():
        stored[name] = Sheet(stored[base].slots)
    columns = sharing.columns
    last = {whole for part, (whole, *_) in columns.items() if part in lasting or whole in lasting}
    for name, (whole, begin, end) in columns.items():
        if whole not in stored:
            row, dtype = row_of(metas[whole])
            if whole in last:
                array = arena.slots(("slots", whole), row, dtype)
                slots = Rows(array, layout.begins, layout.ends)
            else:
                array = arena.array(("step", whole), ((arena.room, *row), dtype))
                slots = Alternating((array, array), layout.sizes, 0)
            stored[whole] = Sheet(slots)
        stored[name] = Sheet(stored[whole].slots.columns(begin, end))


class _Sharer:
    def __init__(
        self,
        step: StepNet,
        phases: Phases,
        metas: Mapping[str, Meta],
        rows: Collection[str],
        keep: Collection[str],
    ) -> None:
        self.metas, self.rows, self.loop = metas, rows, phases.loop
        everything = (*phases.static, *phases.pre, *phases.loop, *phases.post)
        self.readers = Counter(name for op in everything for name in op.input_vars())
        self.early = {name for op in phases.pre for name in op.output_vars()}
        self.writer = {name: op for op in phases.loop for name in op.output_vars()}
        states = {memory.state for memory in step.memories}
        self.linked = states | {*step.outputs, *step.sums}
        self.held = self.linked | set(keep)
        self.found = Sharing([])

    def run(self) -> Sharing:
        changed: dict[int, Operator | None] = {}
        for op in self.loop:
            changed.update(self._as_sum(op) or self._as_column_views(op))
        left = (changed.get(id(op), op) for op in self.loop)
        self.found.operators = [op for op in left if op is not None]
        return self.found

    def _as_sum(self, op: Operator) -> dict[int, Operator | None]:
        """The product that takes the place of a sum; nothing where it is none of the kind."""
        inputs, outputs = op.input_vars(), op.output_vars()
        if op.entry.scalar != _SUM or len(inputs) != 2 or not outputs or outputs[0] in self.linked:
            return {}
        out = outputs[0]
        for base, term in (inputs, inputs[::-1]):
            product = self.writer.get(term)
            if (
                base in self.early
                and product is not None
                and product.entry.accumulates
                and all(len(self.metas[name][0]) == 2 for name in product.input_vars())
                and not any(self.readers[name] > 1 or name in self.held for name in (base, term))
                and self._alike(base, term, out)
            ):
                adding = copy.copy(product)
                adding.outputs = {slot: (out,) for slot in product.outputs}
                adding.accumulate = True
                self.found.onto[out] = base
                return {id(product): adding, id(op): None}
        return {}

    def _alike(self, *names: str) -> bool:
        return all(n in self.rows and self.metas[n] == self.metas[names[0]] for n in names)

    def _as_column_views(self, op: Operator) -> dict[int, Operator | None]:
        """No operator in place of one that only moves columns."""
        if op.entry.column_views is None:
            return {}
        slots = {**op.inputs, **op.outputs}
        (whole,), pieces = (slots[slot] for slot in op.entry.column_views)
        joins = whole in op.output_vars()
        shared, columns = self.found.names, self.found.columns
        if (
            EMPTY in (whole, *pieces)
            or len(set(pieces)) < len(pieces)
            or len(self.metas[whole][0]) != 2
            or op.attrs["axis"] % 2 != 1
            or whole in columns
            or not all(name in self.rows and name in self.writer for name in (whole, *pieces))
            or any(name in self.linked for name in (whole, *pieces))
            or any(name in shared for name in pieces)
        ):
            return {}
        if joins and not all(self.writer[name].entry.scalar for name in pieces):
            return {}
        widths = [self.metas[name][0][1] for name in pieces]
        spans = pairwise(accumulate(widths, initial=0))
        columns.update((name, (whole, *span)) for name, span in zip(pieces, spans, strict=True))
        return {id(op): None}
