"""A net in a table: a row an operator, with shapes and parameters, and what they take in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import is_whole
from ..base.errors import OpscopeError, ShapeError, VariableError, format_shape, nearest
from ..base.sizes.byte_sizes import size_text
from ..base.sizes.shape import ArraySpec, Levels
from ..ir.desc import BACKWARD, FORWARD, INPUT, OPTIMIZE, PARAMETER, STATE
from ..ir.infer import infer_specs
from ..ir.messages import as_op_list
from ..ir.names import outer_name, stage_of_device
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.operation import Operator
from ..ir.registry import lookup
from ..ir.results import net_results

_FIRST, _LAST = 150, 50  # rows of a long table that are shown
_HEAD = ("operator", "result", "shape", "parameters")


@dataclass(frozen=True)
class Row:
    """An input, or a forward operator; or several, which one of the builder's was expanded to.

    Attributes:
        operator: its type; "input" for an input.
        result: the variables it writes, except for states and what only gradients read.
        shape: the first one's dtype and shape, -1 for unknown dimensions.
        parameters: numbers in the parameters that no operator before it reads.
    """

    operator: str
    result: str
    shape: str
    parameters: int


@dataclass(frozen=True)
class Memory:
    """Some variables: how many numbers they hold, and in how many bytes."""

    numbers: int = 0
    size: int = 0

    def __str__(self) -> str:
        return f"{self.numbers:,} ({size_text(self.size)})"


@dataclass(frozen=True)
class Summary:
    """What a net holds. `print` it, or let a notebook show it.

    Attributes:
        name: of the net.
        rows: its inputs and forward operators, in order.
        results: what it is there for; see `net_results`.
        operators: how many there are: forward, backward, optimizer.
        parameters: trained or not. frozen: those that no gradient reaches (`trainable=False`).
        states: kept from run to run, optimizer states among them.
        values: results of all forward operators together, of one run; a run shares memory among
            them, so it takes less where no gradients need them. None where shapes are not known.
        assumed: what is said of the shapes that `values` is for.
        stages: into which several ranks cut it (`NetBuilder.stage`); 0 where it says none.
    """

    name: str
    rows: tuple[Row, ...]
    results: tuple[str, ...]
    operators: tuple[int, int, int]
    parameters: Memory
    frozen: Memory
    states: Memory
    values: Memory | None
    assumed: str
    stages: int

    def __str__(self) -> str:
        cells = [_HEAD, *(_cells(row) for row in _bounded(self.rows))]
        widths = [max(len(line[column]) for line in cells) for column in range(4)]
        lines = [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(line[:3], widths, strict=False))]
                + [line[3].rjust(widths[3])]
            ).rstrip()
            for line in cells
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        totals = [f"{what}: {number}" for what, number in self._totals()]
        return "\n".join([f"net {self.name!r}" if self.name else "net", *lines, "", *totals])

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        head = "".join(f"<th>{cell}</th>" for cell in _HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) + "</tr>"
            for row in _bounded(self.rows)
        )
        totals = "<br/>".join(f"{what}: {escape(str(number))}" for what, number in self._totals())
        title = f"net {escape(self.name)}" if self.name else "net"
        return (
            f"<b>{title}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{totals}</p>"
        )

    def _totals(self) -> list[tuple[str, object]]:
        forward, backward, optimizer = self.operators
        counts = f"{forward:,} forward, {backward:,} backward, {optimizer:,} optimizer"
        totals: list[tuple[str, object]] = [("results", ", ".join(self.results) or "none")]
        totals.append(("operators", counts))
        if self.stages:
            more = self.stages - 1
            bubble = f"of m minibatches an update, a rank waits {more} / (m + {more}) of the time"
            totals.append(("stages", f"{self.stages}; {bubble}"))
        totals.append(("parameters", self.parameters))
        if self.frozen.numbers:
            totals.append(("of them not trained", self.frozen))
        if self.states.numbers:
            totals.append(("states", self.states))
        if self.values is not None:
            totals.append(("results of a forward run", f"{self.values}, {self.assumed}"))
        return totals


def summarize(
    net: OpList | pb.NetDesc,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
) -> Summary:
    """The summary of a net.

    Args:
        shapes: of inputs, by name, in place of those that are declared.
        batch: what other unknown dimensions of inputs are taken as; by default 1, to compute the
            memory of results, and the table leaves them open.

    Raises:
        VariableError: `shapes` names no input.
        ShapeError: shapes that do not fit an input, or that an operator refuses.
    """
    if batch is not None and not (is_whole(batch) and batch >= 1):
        raise ShapeError(f"summary: batch is a whole number from 1 on, not {batch!r}")
    whole = as_op_list(net)
    declared = {var.name: var for var in whole.vars}
    forward = [op for op in whole.ops if op.role == FORWARD]
    given = _given_shapes(declared, shapes or {})
    wanted = bool(shapes) or batch is not None
    specs = _specs(forward, declared, given, 1 if batch is None else batch, strict=wanted)
    shown = specs if wanted and specs is not None else {}
    rows = [
        Row("input", var.name, _shape(var.name, declared, shown), 0)
        for var in whole.vars
        if var.kind == INPUT
    ]
    seen: set[str] = set()
    for group in (list(ops) for _, ops in groupby(forward, _made_for)):
        read = dict.fromkeys(name for op in group for name in op.input_names())
        # A shared parameter counts where it is read first; the column adds up to the total.
        new = [n for n in read if n in declared and declared[n].kind == PARAMETER and n not in seen]
        seen.update(new)
        size = sum(_numbers(declared[name].shape) for name in new)
        results = _main_results(group[-1], declared)
        shape = _shape(results[0], declared, shown) if results else ""
        rows.append(Row(" + ".join(op.type for op in group), ", ".join(results), shape, size))
    parameters = [var for var in whole.vars if var.kind == PARAMETER]
    sizes = ", ".join(f"{name} {format_shape(tuple(shape))}" for name, shape in given.items())
    unknown = f"unknown dimensions taken as {1 if batch is None else batch}"
    return Summary(
        whole.name,
        tuple(rows),
        tuple(net_results(whole)),
        _counts(whole.ops),
        _memory((var.shape, var.dtype) for var in parameters),
        _memory((var.shape, var.dtype) for var in parameters if var.stop_gradient),
        _memory((var.shape, var.dtype) for var in whole.vars if var.kind == STATE),
        None if specs is None else _memory(_results(forward, declared, specs)),
        "; ".join(filter(None, [sizes and f"of {sizes}", unknown])),
        _stages(whole.ops),
    )


def _stages(ops: Iterable[OpNode]) -> int:
    said = [stage_of_device(op.device) for op in ops]
    return 1 + max((stage for stage in said if stage is not None), default=-1)


def _made_for(op: OpNode) -> str:
    """The first result of the operator that `op` is, or was expanded from."""
    first = next(iter(op.output_names()), "")
    return outer_name(first) or first


def _main_results(op: OpNode, declared: Mapping[str, VarDecl]) -> list[str]:
    """What an operator is there for: neither states nor what only its gradient reads."""
    entry = lookup(op.type)
    written = op.output_names()
    aside = {
        name
        for slot, names in op.outputs.items()
        for name in names
        if entry.output_slots[slot].intermediate
        or "@" in name
        or (name in declared and declared[name].kind in (PARAMETER, STATE))
    }
    return [name for name in written if name not in aside] or written


def _counts(ops: Iterable[OpNode]) -> tuple[int, int, int]:
    roles = [op.role for op in ops]
    return roles.count(FORWARD), roles.count(BACKWARD), roles.count(OPTIMIZE)


def _results(
    forward: Iterable[OpNode], declared: Mapping[str, VarDecl], specs: Mapping[str, ArraySpec]
) -> list[ArraySpec]:
    """What the operators write, states and parameters aside; a variable counts once."""
    names = dict.fromkeys(name for op in forward for name in op.output_names())
    kept = {name for name, var in declared.items() if var.kind in (PARAMETER, STATE)}
    return [specs[name] for name in names if name in specs and name not in kept]


def _given_shapes(
    declared: Mapping[str, VarDecl], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    inputs = [name for name, var in declared.items() if var.kind == INPUT]
    known = {}
    for key, given in shapes.items():
        name = str(key)
        shape = tuple(int(dim) for dim in given)
        if name not in inputs:
            raise VariableError(f"summary: the net has no input {name!r}{nearest(name, inputs)}")
        wanted = declared[name].shape
        if wanted is not None and (
            len(wanted) != len(shape)
            or any(a not in (-1, b) for a, b in zip(wanted, shape, strict=True))
        ):
            raise ShapeError(
                f"summary: shape {list(shape)} for input {name!r}, which wants"
                f" {format_shape(wanted)}"
            )
        known[name] = shape
    return known


def _specs(
    forward: Sequence[OpNode],
    declared: Mapping[str, VarDecl],
    given: Mapping[str, tuple[int, ...]],
    batch: int,
    strict: bool,
) -> dict[str, ArraySpec] | None:
    """Shapes and dtypes of a forward run; None where they cannot be inferred, unless `strict`."""
    known, offsets = assumed_inputs(declared, given, batch)
    try:
        return infer_specs([Operator(op) for op in forward], known, declared, offsets)
    except OpscopeError:
        if strict:
            raise
        return None


def assumed_inputs(
    declared: Mapping[str, VarDecl], given: Mapping[str, tuple[int, ...]], batch: int
) -> tuple[dict[str, ArraySpec], dict[str, Levels]]:
    """Shapes, dtypes and offsets of what a net is given, where nothing is fed.

    Args:
        given: shapes of some inputs. batch: what other unknown dimensions are taken as.
    """
    known: dict[str, ArraySpec] = {}
    offsets: dict[str, Levels] = {}
    for name, var in declared.items():
        if var.kind not in (INPUT, PARAMETER, STATE) or var.shape is None or var.dtype is None:
            continue
        shape = tuple(batch if dim < 0 else dim for dim in given.get(name, var.shape))
        known[name] = shape, var.dtype
        if var.sequence_levels:  # of one sequence, which holds all rows
            inner = np.array([0, shape[0]])
            outer = [np.array([0, 1])] * (var.sequence_levels - 1)
            offsets[name] = (*outer, inner)
    return known, offsets


def _shape(name: str, declared: Mapping[str, VarDecl], specs: Mapping[str, ArraySpec]) -> str:
    var = declared.get(name)
    shape, dtype = (var.shape, var.dtype) if var is not None else (None, None)
    shape, dtype = specs.get(name, (shape, dtype))
    return f"{dtype or '?'} {format_shape(shape)}"


def _numbers(shape: tuple[int, ...] | None) -> int:
    return math.prod(max(dim, 0) for dim in shape) if shape is not None else 0


def _memory(specs: Iterable[tuple[tuple[int, ...] | None, np.dtype | None]]) -> Memory:
    numbers = size = 0
    for shape, dtype in specs:
        numbers += _numbers(shape)
        size += _numbers(shape) * (dtype.itemsize if dtype is not None else 0)
    return Memory(numbers, size)


def _bounded(rows: Sequence[Row]) -> list[Row | int]:
    """The rows that are shown, and a number in place of those that are not."""
    if len(rows) <= _FIRST + _LAST:
        return list(rows)
    return [*rows[:_FIRST], len(rows) - _FIRST - _LAST, *rows[-_LAST:]]


def _cells(row: Row | int) -> tuple[str, str, str, str]:
    if isinstance(row, int):
        return (f"... {row:,} more ...", "", "", "")
    parameters = f"{row.parameters:,}" if row.parameters else ""
    return (row.operator, row.result, row.shape, parameters)
