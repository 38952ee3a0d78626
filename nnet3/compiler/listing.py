"""A computation as a person reads it: matrices with their rows, commands in words, ranges whole.

`Computation.to_kaldi` has Kaldi's notation, which leaves out the middle of long lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ..graph.topology import Topology
from ..index.ranges import format_numbers, format_rows
from .command import Command


class Listed(Protocol):
    """What is read of a `Computation`, whose module imports this one."""

    @property
    def topology(self) -> Topology:
        """The network's nodes."""
        ...

    @property
    def matrices(self) -> Sequence[Any]:
        """Its `MatrixInfo`s."""
        ...

    @property
    def submatrices(self) -> Sequence[Any]:
        """Its `SubMatrix`es."""
        ...

    @property
    def commands(self) -> Sequence[Command]:
        """Its commands."""
        ...

    @property
    def need_model_derivative(self) -> bool:
        """Whether parameters get derivatives."""
        ...

    def explicit(self) -> Listed:
        """The same with a command for each matrix that takes memory."""
        ...

    def is_whole(self, submatrix: int) -> bool:
        """Whether a sub-matrix is the whole of its matrix."""
        ...


def readable(computation: Listed) -> str:
    """The matrices, then the commands of each part."""
    return "\n".join(_lines(computation.explicit())) + "\n"


def matrix_table(computation: Listed) -> Iterator[str]:
    """A line for each matrix: its size, what it holds, of which node, and its rows."""
    listed = list(enumerate(computation.matrices))[1:]
    sizes = [f"{m.rows} x {m.cols}" for _, m in listed]
    nodes = [_node(computation, m) for _, m in listed]
    of_size, of_node = (max(map(len, texts), default=0) for texts in (sizes, nodes))
    of_number = len(f"m{len(listed)}")
    for (number, matrix), size, node in zip(listed, sizes, nodes, strict=True):
        kind = "deriv" if matrix.is_deriv else "value"
        rows = "" if matrix.indexes is None else format_rows(matrix.indexes)
        line = f"m{number:<{of_number - 1}}  {size:>{of_size}}  {kind}  {node:<{of_node}}  {rows}"
        yield line.rstrip()


def _node(computation: Listed, matrix: Any) -> str:
    return computation.topology.nodes[matrix.node].name if matrix.node >= 0 else ""


def _lines(computation: Listed) -> Iterator[str]:
    yield "matrices"
    for line in matrix_table(computation):
        yield f"  {line}"
    words = _Words(computation)
    width = len(str(len(computation.commands)))
    types = [command.type for command in computation.commands]
    middle = -1  # the end of the forward part, where a backward part follows
    if "NoOperationMarker" in types and "GotoLabel" not in types:
        last = len(types) - 1 - types[::-1].index("NoOperationMarker")
        middle = last if "AcceptInput" in types[last:] else -1
    yield "forward" if middle >= 0 else "commands"
    for number, command in enumerate(computation.commands):
        yield f"{number:>{width + 2}}  {words.of(command)}"
        if number == middle:
            yield "backward"


class _Words:
    """The texts of the commands of a computation."""

    def __init__(self, computation: Listed) -> None:
        self.computation = computation
        self.nodes = computation.topology.nodes
        self.names = list(map(self._name, range(len(computation.submatrices))))

    def _name(self, number: int) -> str:
        """`m3`, or `m3[0:17, 0:39]` for some of its rows and columns; `:` for all."""
        matrix, row, rows, col, cols = self.computation.submatrices[number]
        if not number or self.computation.is_whole(number):
            return f"m{matrix}" if number else "nothing"
        whole = self.computation.matrices[matrix]
        within = ":" if rows == whole.rows else _span(row, rows)
        return f"m{matrix}[{within}, {':' if cols == whole.cols else _span(col, cols)}]"

    def of(self, c: Command) -> str:
        """One command."""
        target, source = self.names[c.target], self.names[c.source]
        scale = "" if c.alpha == 1 else f"{c.alpha:g} * "
        s = self.computation.submatrices[c.target]
        match c.type:
            case "AllocMatrix":
                return f"take {target}, {s.rows} x {s.cols}"
            case "DeallocMatrix":
                return f"free {target}"
            case "SwapMatrix":
                return f"{target} takes over the memory of {source}"
            case "CompressMatrix":
                return f"compress {target} to {c.storage}, limit {c.alpha:g}"
            case "DecompressMatrix":
                return f"restore {target}"
            case "SetConst":
                return f"{target} = {c.alpha:g}"
            case "MatrixCopy":
                return f"{target} = {scale}{source}"
            case "MatrixAdd":
                return f"{target} += {scale}{source}"
            case "CopyRows" | "AddRows":
                sign = "=" if c.type == "CopyRows" else "+="
                return f"{target} {sign} {scale}{source} rows {_numbers(c.listed())}"
            case "CopyRowsMulti" | "AddRowsMulti":
                sign = "=" if c.type == "CopyRowsMulti" else "+="
                return f"{target} {sign} {scale}{self._pairs(c.listed())}"
            case "CopyToRowsMulti" | "AddToRowsMulti":
                sign = "=" if c.type == "CopyToRowsMulti" else "+="
                return f"{self._pairs(c.listed())} {sign} {scale}{target}"
            case "AddRowRanges":
                pairs = [
                    "none" if begin < 0 or end <= begin else _span(begin, end - begin)
                    for begin, end in c.listed().tolist()
                ]
                return f"{target} += {scale}{source} sums of rows {','.join(pairs)}"
            case "AcceptInput":
                return f"{target} = given '{self.nodes[c.node].name}'"
            case "ProvideOutput":
                return f"give {target} as '{self.nodes[c.node].name}'"
            case "Propagate":
                return f"{target} = {self._component(c)}({source}){self._marks(c)}"
            case "Backprop" | "BackpropNoModelUpdate":
                return self._backprop(c)
            case "GotoLabel":
                return f"go to {c.step}"
            case "NoOperationMarker":
                return "- end of the part"
            case "NoOperationLabel":
                return "- the loop begins"
            case _:
                return "-"

    def _component(self, c: Command) -> str:
        return self.nodes[c.node].component_name

    def _backprop(self, c: Command) -> str:
        names = [self.names[number] for number in c.deriv]
        read = f"in {names[0]}, out {names[1]}, deriv {names[2]}"
        updates = self.computation.need_model_derivative and c.type == "Backprop"
        updates = updates and self.nodes[c.node].component.is_updatable
        into = [names[3]] if c.deriv[3] else []
        into += [f"parameters of {self._component(c)}"] if updates else []
        target = ", ".join(into) or "nothing"
        return f"{target} = {self._component(c)} backward ({read}){self._marks(c)}"

    def _marks(self, c: Command) -> str:
        marks = [f"indexes {c.precomputed}"] if c.precomputed else []
        marks += ["statistics"] if c.store_stats else []
        marks += ["memo"] if c.use_memo else []
        return f", {', '.join(marks)}" if marks else ""

    def _pairs(self, pairs: np.ndarray) -> str:
        """`m1 rows 0:5, none x 2, m2[:, 0:3] rows 7`: runs of rows of the same sub-matrix."""
        numbers = pairs[:, 0]
        starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]
        parts = []
        for begin, end in zip(starts, [*starts[1:], len(pairs)], strict=True):
            number = int(numbers[begin])
            if number < 0:
                parts.append(f"none x {end - begin}")
                continue
            s = self.computation.submatrices[number]
            whole = self.computation.matrices[s.matrix]
            columns = "" if s.cols == whole.cols else f"[:, {_span(s.col, s.cols)}]"
            parts.append(f"m{s.matrix}{columns} rows {format_numbers(pairs[begin:end, 1] + s.row)}")
        return "; ".join(parts)


def _numbers(rows: np.ndarray) -> str:
    """Numbers of rows; -1, of which nothing is read, is `none`."""
    missing = rows < 0
    ends = np.flatnonzero(missing[1:] != missing[:-1]) + 1
    parts = []
    for part in np.split(rows, ends):
        count = f" x {len(part)}" if len(part) > 1 else ""
        parts.append(format_numbers(part) if part[0] >= 0 else f"none{count}")
    return ",".join(parts)


def _span(begin: int, count: int) -> str:
    return str(begin) if count == 1 else f"{begin}:{begin + count - 1}"
