"""Elementwise operators as scalar expressions: what fusion needs to know of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...base.dtypes import FLOATS, NAMES, wide
from ...base.sizes.shape import ArraySpec, Shape
from ...ir.operation import Operator
from .codegen import C_TYPES, COLUMN, FULL, HALF_NAMES, MOST_ARRAYS, ONE, ROW, Operand
from .expression import (
    ExpressionError,
    Tree,
    cost,
    names,
    parse,
    part_name,
    replace_names,
    written_out,
)

_COMPUTED = {dtype: wide(dtype) for dtype in FLOATS}
"""Dtype of elements -> dtype in which a loop computes."""

_COPIES = 8
"""Cost of copying halves to float32 and back, that a loop saves."""

ABSENT = {"grad_scale": 1.0}
"""Optional input slots, and what an expression takes for them where they are left out."""


def formulas(op: Operator) -> dict[str, Tree]:
    """The expressions of an operator for printing: output slot -> tree, with its numbers in it.

    The variables of a tree are input slots, parts of these (see `part_name`), and output slots
    whose trees come before it.

    Raises:
        ExpressionError: an expression reads what the operator is not given, or ignores an input.
    """
    numbers = {name: value for name, value in op.attrs.items() if isinstance(value, int | float)}
    counts = {slot: len(own) for slot, own in op.inputs.items() if own}
    known = set(operands(op))
    read = set[str]()
    trees = dict[str, Tree]()
    for slot, text in op.entry.expressions.items():
        tree = parse(text)
        read |= names(tree)
        trees[slot] = with_numbers(written_out(tree, counts), ABSENT | numbers, known)
        if lost := names(trees[slot]) - known:
            raise ExpressionError(f"its expression reads {min(lost)!r}, which it is not given")
        known.add(slot)
    for slot in counts:
        if slot not in read and not op.entry.input_slots[slot].shape_only:
            raise ExpressionError(f"its expression does not say what becomes of {slot!r}")
    return trees


def operands(op: Operator) -> dict[str, str]:
    """The names that input variables have in the trees of an operator: name -> variable."""
    inputs = {slot: own for slot, own in op.inputs.items() if own}
    variables = {slot: own[0] for slot, own in inputs.items() if len(own) == 1}
    for slot, own in inputs.items():
        variables.update((part_name(slot, place), name) for place, name in enumerate(own))
    return variables


def with_numbers(tree: Tree, numbers: Mapping[str, float], variables: Collection[str] = ()) -> Tree:
    """The tree with numbers in place of names that are no variables."""
    left = (names(tree) & numbers.keys()) - set(variables)
    by = {name: ("var", name) for name in names(tree)}
    return replace_names(tree, by | {name: ("num", float(numbers[name])) for name in left})


@dataclass(eq=False, slots=True)
class Pointwise:
    """An operator that can be part of a loop, of arrays of any sizes that meet as these do.

    Attributes:
        dtype: that the loop computes in; float32 for halves, which are rounded where they are
            stored.
        expressions: of the operator, shared with others of its kind.
        operands: name in the trees -> input variable.
        reads: input variable -> how it meets the loop, and its dtype.
        writes: output variable -> the same.
    """

    op: Operator
    dtype: np.dtype
    expressions: Expressions
    operands: dict[str, str]
    reads: dict[str, Operand]
    writes: dict[str, Operand]

    def shape(self, specs: Mapping[str, ArraySpec]) -> Shape:
        """The shape that the loop goes over."""
        return specs[next(iter(self.writes))][0]

    def widths(self, specs: Mapping[str, ArraySpec]) -> list[int]:
        """Where rows or columns are among the operands, the width of a row; a loop has one."""
        return [
            width_of(operand.kind, specs[name][0], self.shape(specs))
            for name, operand in self.reads.items()
            if operand.kind in (ROW, COLUMN)
        ]

    def cost(self) -> int:
        """Work of one element; with halves, also of the copies that a kernel would need."""
        operands = (*self.reads.values(), *self.writes.values())
        if any(operand.dtype in HALF_NAMES for operand in operands):
            return _COPIES + self.expressions.cost
        return self.expressions.cost + 2 * (len(self.writes) - 1)


def width_of(kind: str, own: Shape, shape: Shape) -> int:
    """The width of a row, of an operand that meets the loop over a shape as a row or a column."""
    return prod(own) if kind == ROW else prod(shape) // max(prod(own), 1)


_MOST_ALIKE = 1 << 10
_ALIKE: dict[Any, tuple[Any, ...] | None] = {}
"""Members of loops without their names, by what they depend on; see `pointwise`."""


def pointwise(op: Operator, specs: Mapping[str, ArraySpec], device: str) -> Pointwise | None:
    """`op` as a member of a fused loop; None where it cannot be one."""
    reads, writes = op.input_vars(), op.output_vars()
    signature = op.signature()
    if signature is None or len(set(reads)) < len(reads) or len(set(writes)) < len(writes):
        return _pointwise(op, specs, device)
    # Layers repeat: most operators differ from another one in names alone.
    key = (signature, device, *[specs[name] for name in (*reads, *writes)])
    alike = _ALIKE.get(key, ())
    if alike is None:
        return None
    if alike:
        dtype, expressions, operands_at, reads_at, stored = alike
        return Pointwise(
            op,
            dtype,
            expressions,
            {name: reads[at] for name, at in operands_at},
            {reads[at]: operand for at, operand in reads_at},
            dict(zip(writes, stored, strict=True)),
        )
    made = _pointwise(op, specs, device)
    if len(_ALIKE) >= _MOST_ALIKE:
        _ALIKE.clear()
    _ALIKE[key] = made and (
        made.dtype,
        made.expressions,
        [(name, reads.index(variable)) for name, variable in made.operands.items()],
        [(reads.index(variable), operand) for variable, operand in made.reads.items()],
        [made.writes[name] for name in writes],
    )
    return made


def _pointwise(op: Operator, specs: Mapping[str, ArraySpec], device: str) -> Pointwise | None:
    """As `pointwise`, anew."""
    scalar = op.entry.expressions
    inputs = op.inputs
    slots = op.entry.input_slots
    if not scalar or any(s not in scalar or len(names) != 1 for s, names in op.outputs.items()):
        return None
    writes = [names[0] for names in op.outputs.values()]
    if not writes or len({(specs[name][0], _COMPUTED.get(specs[name][1])) for name in writes}) > 1:
        return None
    shape, dtype = specs[writes[0]]
    if dtype not in _COMPUTED:
        return None
    dtype = _COMPUTED[dtype]
    counts = tuple((slot, len(own)) for slot, own in inputs.items())
    if sum(count for _, count in counts) > MOST_ARRAYS[device]:
        return None
    expressions = _expressions(tuple(scalar.items()), tuple(slots), counts, tuple(op.outputs))
    if expressions is None:
        return None
    if any(slot not in expressions.known and not slots[slot].shape_only for slot in inputs):
        return None  # an operand that the expressions ignore changes the meaning: sparse rows, say
    variables = operands(op)
    reads: dict[str, Operand] = {}
    for name in expressions.leaves:
        if name not in variables:
            if name not in ABSENT and not isinstance(op.attrs.get(name), (int, float)):
                return None
            continue
        variable = variables[name]
        kind = kind_of(specs[variable], shape, dtype)
        if kind is None or (name in slots and slots[name].shape_only):
            return None
        reads[variable] = _operand(kind, NAMES[specs[variable][1]])
    stored = {name: _operand(FULL, NAMES[specs[name][1]]) for name in writes}
    chain = Pointwise(op, dtype, expressions, variables, reads, stored)
    # A loop has one width of rows: a row of 4 and one of 8 elements do not go along together.
    fits = len(reads) == 1 or len(set(chain.widths(specs))) < 2
    return chain if fits and len(reads) + len(stored) <= MOST_ARRAYS[device] else None


@dataclass(frozen=True, eq=False)
class Expressions:
    """The expressions of an operator, without the names of its variables.

    There is one object for all operators that have the same ones, so it may be a key.

    Attributes:
        known: all names that they mention.
        values: output slot -> tree, in the order of computation; also of outputs only mentioned.
        leaves: names in these for inputs and attributes.
        cost: of all of them, for one element.
    """

    known: set[str]
    values: dict[str, Tree]
    leaves: list[str]
    cost: int


@lru_cache(maxsize=4096)
def _expressions(
    texts: tuple[tuple[str, str], ...],
    input_slots: tuple[str, ...],
    counts: tuple[tuple[str, int], ...],
    outputs: tuple[str, ...],
) -> Expressions | None:
    """Parsed expressions, for so many variables of each slot; None where they make no loop."""
    try:
        trees = {slot: parse(text) for slot, text in texts}
    except ExpressionError:
        return None
    known = set().union(*map(names, trees.values()))
    trees = {slot: written_out(tree, dict(counts)) for slot, tree in trees.items()}
    values = _needed(trees, input_slots, outputs)
    if values is None:
        return None
    mentioned = set().union(*map(names, values.values()))
    work = sum(map(cost, values.values()))
    return Expressions(known, values, sorted(mentioned - values.keys()), work)


def _needed(
    trees: Mapping[str, Tree], input_slots: Sequence[str], outputs: Sequence[str]
) -> dict[str, Tree] | None:
    """The expressions of present outputs, and of those that they mention.

    None where an expression mentions an output that is computed after it.
    """
    wanted = set(outputs)
    # Backwards: an output may mention only those before it.
    for slot in reversed(list(trees)):
        if slot in wanted:
            wanted |= names(trees[slot]) & trees.keys() - set(input_slots)
    values = {slot: tree for slot, tree in trees.items() if slot in wanted}
    slots = list(values)
    late = (names(values[slot]) & set(slots[i:]) for i, slot in enumerate(slots))
    return None if any(late) else values


_operand = lru_cache(maxsize=256)(Operand)


def kind_of(spec: ArraySpec, shape: Shape, dtype: np.dtype) -> str | None:
    """How an operand meets a loop over `shape`; None where it does not."""
    own, own_dtype = spec
    rank = len(shape)
    if len(own) > rank:
        return None
    if own_dtype not in _COMPUTED or _COMPUTED[own_dtype] != dtype:  # None equals float64 in NumPy
        # One number of another dtype is converted in the head; whole arrays would need other
        # vectors.
        return ONE if prod(own) == 1 and NAMES[own_dtype] in C_TYPES else None
    if own == shape:
        return FULL
    if prod(own) == 1:
        return ONE
    own = (1,) * (rank - len(own)) + own
    first = next(i for i, dim in enumerate(own) if dim != 1)
    if own[first:] == shape[first:]:
        return ROW
    last = next(i for i in reversed(range(rank)) if own[i] != 1) + 1
    return COLUMN if own[:last] == shape[:last] else None
