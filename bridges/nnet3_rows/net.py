"""Values while a network is lowered: columns on axis 1, rows on axis 2, scales put off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ArraySpec
from ...framework.ir.desc import make_op
from ...framework.ir.infer import infer_one
from ...framework.ir.op_list import OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.registry import lookup
from . import operators as operators
from .components import ComponentNet

F32, F64 = np.float32, np.float64
FAR = 2**62
"""The end of a slice that takes all that follows."""
_SMALL = 1024
"""Bytes of constants that are compared, so that equal ones are one."""


@dataclass(frozen=True)
class Value:
    """Rows of a node: `name` times `scale` plus `offset`, both for each column and not yet applied.

    Attributes:
        name: of the variable, [N, columns, rows].
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

    def picked(self, name: str, columns: Any) -> Value:
        """Some columns, as another variable holds them."""
        scale = None if self.scale is None else self.scale[columns]
        offset = None if self.offset is None else self.offset[columns]
        return Value(name, np.arange(self.dim)[columns].size, self.still, scale, offset)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is put off."""
        return self.scale is None and self.offset is None


class RowsNet:
    """The op list of a network; equal operators are one.

    Args:
        title: what a variable is called.

    Attributes:
        ops: the operators, each with its number. specs: shape and dtype of all variables.
        arrays: constants. parameters: variables, and the component and attribute of their arrays.
    """

    def __init__(self, title: Callable[[str], str] = str) -> None:
        self.title = title
        self.ops: list[Operator] = []
        self.specs: dict[str, ArraySpec] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.parameters: dict[str, tuple[str, str]] = {}
        self._equal: dict[Any, list[str]] = {}
        self._constants: dict[Any, str] = {}
        self._plain: dict[int, tuple[Value, Value]] = {}
        self._joined: dict[str, list[Value]] = {}

    # Variables and operators

    def variable(self, name: str, spec: ArraySpec | None = None) -> str:
        """A new variable, called so or nearly so."""
        name = self.title(name)
        free_name = name
        count = 1
        while free_name in self.specs:
            count += 1
            free_name = f"{name}_{count}"
        self.specs[free_name] = spec or ((), np.dtype(F32))
        return free_name

    def given(self, name: str, *shape: int) -> str:
        """A new variable that comes from outside, float32."""
        return self.variable(name, (shape, np.dtype(F32)))

    def __call__(self, op_type: str, *inputs: Any, name: str = "", **attrs: Any) -> str:
        """Append an operator of one result; returns it."""
        return self.several(op_type, *inputs, names=[name or op_type], **attrs)[0]

    def several(
        self, op_type: str, *inputs: str | list[str] | None, names: Sequence[str], **attrs: Any
    ) -> list[str]:
        """Append an operator of several results; None stands for an input that is left out."""
        given = [
            (name, value.tobytes() if isinstance(value, np.ndarray) else repr(value))
            for name, value in sorted(attrs.items())
        ]
        key = repr((op_type, inputs, len(names), given))
        if key not in self._equal:
            slots = zip([slot.name for slot in lookup(op_type).inputs], inputs, strict=False)
            read = {slot: given for slot, given in slots if given is not None}
            out = [self.variable(each) for each in names]
            self.put(make_op(op_type, read, {"out": out}, attrs))
            self._equal[key] = out
        return self._equal[key]

    def put(self, node: OpNode, specs: Mapping[str, ArraySpec] | None = None) -> None:
        """Append an operator whose results are variables already.

        Args:
            specs: shape and dtype of these, where no rule gives them.
        """
        op = Operator(node, len(self.ops))
        self.ops.append(op)
        self.specs |= infer_one(op, self.specs, {}) if specs is None else specs

    def constant(self, value: Any, name: str = "constant", dtype: Any = F32) -> str:
        """A variable with an array."""
        array = np.asarray(value, dtype)
        key = None
        if array.nbytes <= _SMALL:
            key = (array.dtype.str, array.shape, array.tobytes())
            if key in self._constants:
                return self._constants[key]
        variable = self.variable(name, (array.shape, array.dtype))
        self.arrays[variable] = array
        if key is not None:
            self._constants[key] = variable
        return variable

    def vector(self, values: Any, name: str = "constant") -> str:
        """A constant with a number for each column."""
        return self.constant(np.asarray(values, F32).reshape(-1, 1), name)

    # Values

    def written(
        self,
        net: ComponentNet,
        given: Sequence[Value],
        more: Mapping[str, str] | None = None,
        component: str = "",
    ) -> Value:
        """The operators of a component, for the pieces of its input.

        Args:
            more: its variables that hold int64 [rows], and their variables here.
            component: what the parameters are parts of.
        """
        factor = 1.0
        last = net.ops[-1]
        if last.type == "scale" and not last.attrs.get("bias"):  # those who read it apply it
            factor = last.attrs["scale"]
            net.ops[-1] = make_op("assign", last.inputs, last.outputs)
        names = dict(zip(net.inputs, [self.name(each) for each in given], strict=True))
        names |= more or {}
        for name, array in net.arrays.items():
            if name in net.parameters and component:
                names[name] = self.variable(name, (array.shape, array.dtype))
                self.arrays[names[name]] = array
                self.parameters[names[name]] = component, net.parameters[name]
            else:
                names[name] = self.constant(array, name, array.dtype)
        titles = dict.fromkeys(net.outputs, net.title) if len(net.outputs) == 1 else {}
        for op in net.ops:
            for name in op.output_names():
                names[name] = self.variable(titles.get(name, name))
            self.put(op.renamed(names))
        still = all(each.still for each in given)
        outputs = [Value(names[one], dim, still) for one, dim in net.outputs.items()]
        return self.join(outputs, net.title).times(factor)

    def plain(self, value: Value) -> Value:
        """The value with scale and offset applied."""
        if value.is_plain:
            return value
        known = self._plain.get(id(value))
        if known is not None:
            return known[1]
        name = value.name
        if value.scale is not None:
            name = self("mul", name, self._factor(value.scale), name=f"{value.name}.scaled")
        if value.offset is not None:
            name = self("add", name, self._factor(value.offset), name=f"{value.name}.shifted")
        plain = Value(name, value.dim, value.still)
        self._plain[id(value)] = value, plain
        return plain

    def _factor(self, values: np.ndarray) -> str:
        same = np.all(values == values[0])
        return self.constant(float(values[0])) if same else self.vector(values)

    def name(self, value: Value) -> str:
        """The variable of a value with scale and offset applied."""
        return self.plain(value).name

    def add(self, a: Value, b: Value, name: str) -> Value:
        """The sum. Offsets are added here: put off further they would cost digits."""
        offset = 0.0
        for value in (a, b):
            offset = offset if value.offset is None else offset + value.offset
        a, b = replace(a, offset=None), replace(b, offset=None)
        scale = None
        if a.scale is not None and b.scale is not None and np.array_equal(a.scale, b.scale):
            scale = a.scale
            a = replace(a, scale=None)
            b = replace(b, scale=None)
        sum_name = self("add", self.name(a), self.name(b), name=name)
        total = Value(sum_name, a.dim, a.still and b.still, scale)
        return self.unshifted(total.plus(offset))

    def unshifted(self, value: Value) -> Value:
        """The value with its offset applied, and with its scale only where that is needed."""
        if value.scale is None or (value.scale == 0).any():
            return self.plain(value)
        if value.offset is None:
            return value
        bare = Value(value.name, value.dim, value.still)
        return replace(self.plain(bare.plus(value.offset / value.scale)), scale=value.scale)

    def columns(self, value: Value, begin: int, size: int, name: str = "") -> Value:
        """Some columns."""
        if begin == 0 and size == value.dim:
            return value
        place = 0
        for part in self.parts_of(value):
            if (place, part.dim) == (begin, size):
                return part
            place += part.dim
        ends = {"axes": [1], "starts": [begin], "ends": [begin + size]}
        slice_name = self("slice", value.name, name=name or f"{value.name}.columns", **ends)
        return value.picked(slice_name, slice(begin, begin + size))

    def split(self, parts: Sequence[Value], sizes: Sequence[int], name: str) -> list[Value]:
        """Values side by side cut into pieces of other sizes, without joining where these fit."""
        left = list(sizes)
        cuts = list[tuple[Value, list[int]]]()
        for part in parts:
            inside: list[int] = []
            while left and sum(inside) + left[0] <= part.dim:
                inside.append(left.pop(0))
            if sum(inside) != part.dim:
                return self._cut(self.join(parts, name), list(sizes), name)
            cuts.append((part, inside))
        return [piece for part, inside in cuts for piece in self._cut(part, inside, name)]

    def _cut(self, value: Value, sizes: list[int], name: str) -> list[Value]:
        if len(sizes) == 1:
            return [value]
        titles = [f"{name}.part"] * len(sizes)
        pieces = self.several("split", value.name, names=titles, axis=1, sections=sizes)
        values = list[Value]()
        begin = 0
        for piece, size in zip(pieces, sizes, strict=True):
            values.append(value.picked(piece, slice(begin, begin + size)))
            begin += size
        return values

    def join(self, parts: Sequence[Value], name: str) -> Value:
        """Values side by side."""
        if len(parts) == 1:
            return parts[0]
        still = all(part.still for part in parts)
        if not still:
            like = next(part for part in parts if not part.still)
            parts = [self.spread(part, like) for part in parts]
        parts = [self.plain(part) for part in parts]
        joined = self("concat", [part.name for part in parts], name=f"{name}.joined", axis=1)
        self._joined[joined] = parts
        return Value(joined, sum(part.dim for part in parts), still)

    def parts_of(self, value: Value) -> list[Value]:
        """The values that were joined to one; itself where it is no such."""
        return self._joined.get(value.name, [value]) if value.is_plain else [value]

    def spread(self, value: Value, like: Value) -> Value:
        """A still value repeated for all times (and sequences) of another."""
        if not value.still or like.still:
            return value
        value = self.plain(value)
        return Value(self("rows.spread", value.name, like.name, name=value.name), value.dim)

    def rows(
        self, value: Value, start: int, end: int = 0, stride: int = 1, name: str = ""
    ) -> Value:
        """Rows from one to another, from the end where that is negative; 0: all that follow."""
        if not start and not end and stride == 1:
            return value
        ends = {"axes": [2], "starts": [start], "ends": [end or FAR]}
        steps = {} if stride == 1 else {"steps": [stride]}
        return replace(value, name=self("slice", value.name, name=name, **ends, **steps))
