"""Values while a graph is written: columns on axis 1, times on axis 2, scales put off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....framework.base.shape import ArraySpec
from ....framework.ir.desc import make_op
from ...nnet3_rows.components import ComponentNet
from ...nnet3_rows.reads import NotExportedError
from ..export.emission import Values
from ..export.net import folded
from ..export.operators import emit_operators
from ..files.graph import Graph, plain_name
from ..files.tensors import number_of

F32, F64 = np.float32, np.float64


@dataclass(frozen=True)
class Value:
    """Rows of a node: `name` times `scale` plus `offset`, both for each column and not yet applied.

    Attributes:
        name: of the ONNX value, [N, columns, times].
        dim: columns.
        still: the same for all times: the last axis is 1.
        scale, offset: [columns]; None: 1 and 0.
    """

    name: str
    dim: int
    still: bool = False
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None

    def times(self, scale: Any) -> Value:
        """The value times a number, or one for each column."""
        if np.all(np.asarray(scale) == 1):
            return self
        factor = np.broadcast_to(np.asarray(scale, np.float64), (self.dim,))
        old = 1.0 if self.scale is None else self.scale
        offset = None if self.offset is None else self.offset * factor
        return replace(self, scale=old * factor, offset=offset)

    def plus(self, offset: Any) -> Value:
        """The value plus a number, or one for each column."""
        if np.all(np.asarray(offset) == 0):
            return self
        term = np.broadcast_to(np.asarray(offset, np.float64), (self.dim,))
        return replace(self, offset=term if self.offset is None else self.offset + term)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is put off."""
        return self.scale is None and self.offset is None


class Emitter:
    """Writes operators into a graph.

    Args:
        graph: where to.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._plain: dict[int, tuple[Value, Value]] = {}
        self._joined: dict[str, list[Value]] = {}

    def op(self, op_type: str, *inputs: str | None, name: str = "", **attributes: Any) -> str:
        """Add an operator of one output; returns its name."""
        return self.graph.node(op_type, inputs, plain_name(name), **attributes)

    def cast(self, value: str, dtype: type[np.floating[Any]]) -> str:
        """The value in another precision."""
        return self.op("Cast", value, name=value, to=number_of(np.dtype(dtype)))

    def vector(self, values: Any, name: str = "") -> str:
        """A constant with a number for each column."""
        return self.graph.constant(np.asarray(values, F32).reshape(-1, 1), plain_name(name))

    def number(self, value: float) -> str:
        """A constant number."""
        return self.graph.constant(np.array(value, F32))

    def written(
        self, net: ComponentNet, given: Sequence[Value], more: Mapping[str, str] | None = None
    ) -> Value:
        """The operators of a component, for the pieces of its input.

        Args:
            more: its variables that hold int64 [rows], and their values here.
        """
        factor, last = 1.0, net.ops[-1]
        if last.type == "scale" and not last.attrs.get("bias"):  # those who read it apply it
            factor = last.attrs["scale"]
            net.ops[-1] = make_op("assign", last.inputs, last.outputs)
        values = Values(self.graph, arrays=dict(net.arrays))
        values.names.update(zip(net.inputs, [self.name(each) for each in given], strict=True))
        values.names |= more or {}
        whole: ArraySpec = ((-1,), np.dtype(np.int64))
        operators, values.specs = net.checked(dict.fromkeys(more or {}, whole))
        emit_operators(values, folded(values, operators))
        if values.refused:
            raise NotExportedError("; ".join(values.refused))
        still = all(each.still for each in given)
        found = [Value(values.name_of(one), dim, still) for one, dim in net.outputs.items()]
        return self.join(found, net.title).times(factor)

    def plain(self, value: Value) -> Value:
        """The value with scale and offset applied."""
        if value.is_plain:
            return value
        known = self._plain.get(id(value))
        if known is not None:
            return known[1]
        name = value.name
        if value.scale is not None:
            name = self.op("Mul", name, self._factor(value.scale), name=f"{value.name}.scaled")
        if value.offset is not None:
            name = self.op("Add", name, self._factor(value.offset), name=f"{value.name}.shifted")
        made = Value(name, value.dim, value.still)
        self._plain[id(value)] = value, made
        return made

    def _factor(self, values: np.ndarray) -> str:
        same = np.all(values == values[0])
        return self.number(float(values[0])) if same else self.vector(values)

    def name(self, value: Value) -> str:
        """The ONNX value of a value with scale and offset applied."""
        return self.plain(value).name

    def add(self, a: Value, b: Value, name: str) -> Value:
        """The sum. Offsets are added here: put off further they would cost digits."""
        offset = 0.0
        for value in (a, b):
            offset = offset if value.offset is None else offset + value.offset
        a, b = replace(a, offset=None), replace(b, offset=None)
        if a.scale is not None and b.scale is not None and np.array_equal(a.scale, b.scale):
            made = self.op("Add", a.name, b.name, name=name)
            found = Value(made, a.dim, a.still and b.still, a.scale)
        else:
            made = self.op("Add", self.name(a), self.name(b), name=name)
            found = Value(made, a.dim, a.still and b.still)
        return self.unshifted(found.plus(offset))

    def unshifted(self, value: Value) -> Value:
        """The value with its offset applied, and with its scale only where that is needed."""
        if value.scale is None or (value.scale == 0).any():
            return self.plain(value)
        if value.offset is None:
            return value
        shifted = self.plain(
            Value(value.name, value.dim, value.still).plus(value.offset / value.scale)
        )
        return replace(shifted, scale=value.scale)

    def columns(self, value: Value, begin: int, size: int, name: str = "") -> Value:
        """Some columns."""
        if begin == 0 and size == value.dim:
            return value
        place = 0
        for part in self.parts_of(value):
            if (place, part.dim) == (begin, size):
                return part
            place += part.dim
        ends = [self.graph.ints(number) for number in (begin, begin + size, 1)]
        made = self.op("Slice", value.name, *ends, name=name or f"{value.name}.columns")
        cut = slice(begin, begin + size)
        return Value(
            made,
            size,
            value.still,
            None if value.scale is None else value.scale[cut],
            None if value.offset is None else value.offset[cut],
        )

    def split(self, parts: Sequence[Value], sizes: Sequence[int], name: str) -> list[Value]:
        """Values side by side cut into pieces of other sizes, without joining where these fit."""
        left, cuts = list(sizes), list[tuple[Value, list[int]]]()
        for part in parts:
            inside: list[int] = []
            while left and sum(inside) + left[0] <= part.dim:
                inside.append(left.pop(0))
            if sum(inside) != part.dim:
                whole = self.join(parts, name)
                return self._cut(whole, list(sizes), name)
            cuts.append((part, inside))
        return [piece for part, inside in cuts for piece in self._cut(part, inside, name)]

    def _cut(self, value: Value, sizes: list[int], name: str) -> list[Value]:
        if len(sizes) == 1:
            return [value]
        made = self.graph.node(
            "Split",
            [value.name, self.graph.ints(*sizes)],
            plain_name(f"{name}.part"),
            outputs=len(sizes),
            axis=1,
        )
        found, begin = list[Value](), 0
        for piece, size in zip(made, sizes, strict=True):
            cut = slice(begin, begin + size)
            scale = None if value.scale is None else value.scale[cut]
            offset = None if value.offset is None else value.offset[cut]
            found.append(Value(piece, size, value.still, scale, offset))
            begin += size
        return found

    def join(self, parts: Sequence[Value], name: str) -> Value:
        """Values side by side."""
        if len(parts) == 1:
            return parts[0]
        still = all(part.still for part in parts)
        if not still:
            like = next(part for part in parts if not part.still)
            parts = [self.spread(part, like) for part in parts]
        parts = [self.plain(part) for part in parts]
        made = self.op("Concat", *[part.name for part in parts], name=f"{name}.joined", axis=1)
        self._joined[made] = parts
        return Value(made, sum(part.dim for part in parts), still)

    def parts_of(self, value: Value) -> list[Value]:
        """The values that were joined to one; itself where it is no such."""
        return self._joined.get(value.name, [value]) if value.is_plain else [value]

    def spread(self, value: Value, like: Value) -> Value:
        """A still value repeated for all times (and sequences) of another."""
        if not value.still or like.still:
            return value
        value = self.plain(value)
        shape = self.op("Shape", like.name, name=f"{like.name}.shape")
        part = [self.op("Gather", shape, self.graph.ints(axis)) for axis in (0, 2)]
        wanted = self.op("Concat", part[0], self.graph.ints(1), part[1], axis=0)
        return Value(self.op("Expand", value.name, wanted, name=value.name), value.dim)

    def blocks(self, value: Value, *sizes: int, name: str = "") -> str:
        """[N, columns, times] with the columns as several axes: [N, *sizes, times]."""
        shape = self.graph.ints(0, *sizes, -1)
        return self.op("Reshape", self.name(value), shape, name=name)

    def flat(self, name: str, dim: int, still: bool) -> Value:
        """Back from several axes to `dim` columns."""
        made = self.op("Reshape", name, self.graph.ints(0, dim, -1), name=name)
        return Value(made, dim, still)
