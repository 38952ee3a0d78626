"""The results of a net for which none are named: one rule for all that runs, shows, writes nets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

from .desc import FORWARD, INPUT, OUTPUT, PARAMETER, STATE
from .names import EMPTY
from .op_list import OpList
from .operation import Operator

_MOST_LEFT_OUT = 3
"""Inputs that are left out at most: their combinations grow fast, and a net has few labels."""


def net_results(net: OpList, given: Collection[str] | None = None) -> list[str]:
    """The variables that a net is there for.

    These are the variables of kind OUTPUT. Without any, they are what losses and metrics judge,
    unless more is made of it, or else what no operator reads. Losses, metrics, what follows from
    them, and single numbers beside rows are no results. Where a loss is made of other operators, so
    that all ends in single numbers, inputs are left out, labels say: as few as leave a result, and
    those that leave most operators.

    Args:
        given: what has a value; None: all inputs. What computes a variable that is given is left
            out.

    Returns:
        Names in the order in which they are computed; none where nothing can be.
    """
    inputs = {var.name for var in net.vars if var.kind == INPUT}
    fed = inputs if given is None else inputs & set(given)
    ends = _Ends(net, set(given or ()) - inputs)
    for count in range(min(len(fed), _MOST_LEFT_OUT) + 1):
        tried = [ends.without({*inputs - fed, *out}) for out in combinations(sorted(fed), count)]
        _, found = max(tried, key=lambda one: (bool(one[1]), one[0]))
        if found:
            return found
    return ends.without(inputs - fed, numbers=True)[1]


class _Ends:
    """What the forward operators of a net end in, but for those that compute some variables."""

    def __init__(self, net: OpList, known: set[str]) -> None:
        forward = [
            op for op in net.ops if op.role == FORWARD and known.isdisjoint(op.output_names())
        ]
        self._operators = [Operator(op, index) for index, op in enumerate(forward)]
        self._declared = {var.name: var for var in net.vars}
        self._bases = {var.name: var.view.base for var in net.vars if var.view is not None}
        shapes = [var.shape for var in net.vars if var.kind == INPUT]
        self._has_rows = any(shape is not None and shape[:1] == (-1,) for shape in shapes)

    def without(self, inputs: set[str], numbers: bool = False) -> tuple[int, list[str]]:
        """How many operators run without some inputs, and the results that they end in.

        Args:
            numbers: whether single numbers are results.
        """
        ran = self._apart_from(inputs, self._operators)
        written = dict.fromkeys(name for op in ran for name in _mains(op))
        outputs = [name for name in written if self._kind(name) == OUTPUT]
        if outputs:
            return len(ran), outputs
        judges = [op for op in ran if op.entry.judges]
        losses = {name for op in judges for name in self._roots(op.output_vars())}
        kept = self._apart_from(losses, [op for op in ran if op not in judges])
        written = dict.fromkeys(name for op in kept for name in _mains(op))
        read = self._read_by(ran)
        ends = [n for n in written if self._root(n) not in read and self._is_end(n, numbers)]
        judged = {name for op in judges for name in op.inputs[op.entry.judges]}
        judged -= self._read_by(self._needed(kept, ends))
        return len(ran), [name for name in written if name in judged] or ends

    def _apart_from(self, names: set[str], operators: Sequence[Operator]) -> list[Operator]:
        """The operators that need none of some variables, themselves or by others."""
        lost = set(names)
        left: list[Operator] = []
        for op in operators:
            if lost.isdisjoint(self._roots(op.input_vars())):
                left.append(op)
            else:
                lost.update(self._roots(op.output_vars()))
        return left

    def _needed(self, operators: Sequence[Operator], names: Iterable[str]) -> list[Operator]:
        """The operators that some variables need."""
        wanted = self._roots(names)
        needed: list[Operator] = []
        for op in reversed(operators):
            if not wanted.isdisjoint(self._roots(op.output_vars())):
                needed.append(op)
                wanted |= self._roots(op.input_vars())
        return needed

    def _read_by(self, operators: Iterable[Operator]) -> set[str]:
        return {name for op in operators for name in self._roots(op.value_reads())}

    def _root(self, name: str) -> str:
        return self._bases.get(name, name)

    def _roots(self, names: Iterable[str]) -> set[str]:
        return {self._bases.get(name, name) for name in names}

    def _kind(self, name: str) -> int | None:
        return self._declared[name].kind if name in self._declared else None

    def _is_end(self, name: str, numbers: bool) -> bool:
        """Whether a variable is kept for nothing, and has a row for each row fed."""
        var = self._declared.get(name)
        if var is not None and var.kind in (PARAMETER, STATE):
            return False
        shape = None if var is None else var.shape
        if numbers or shape is None:
            return True
        return shape[:1] == (-1,) if self._has_rows else shape != ()


def _mains(op: Operator) -> list[str]:
    """What an operator is there for."""
    slots = op.entry.output_slots
    aside = op.entry.beside
    return [
        name
        for slot, names in op.outputs.items()
        if not slots[slot].intermediate and slot not in aside
        for name in names
        if name != EMPTY
    ]
