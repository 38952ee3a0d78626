"""How operators become ONNX nodes: the registry of emitters, and what an emitter works with.

    @emits("relu")
    def relu(e: Emission) -> None:
        e.set("out", e.node("Relu", e["x"]))

A net with sequences becomes a graph over one sequence: what is [rows, ...] with offsets here is
[T, ...] there, and an operator over sequences is one over the first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ArraySpec
from ....framework.ir.operation import Operator
from ...inference.reading import Reading, RefusedError
from ..cells import Cell
from ..files.graph import Graph
from ..files.tensors import number_of

FIRST_OPSET, LAST_OPSET = 17, 22
"""Operator sets that can be written."""
END = np.iinfo(np.int64).max
"""The end of a Slice that takes all that follows."""

Emit = Callable[["Emission"], None]
EMITTERS: dict[str, Emit] = {}
"""Operator type -> the function that emits it."""
REFUSALS: dict[str, str] = {}
"""Operators without a form in ONNX: type -> why, and what would help."""


def emits(*types: str) -> Callable[[Emit], Emit]:
    """Decorator: the emitter of some operators."""

    def add(emit: Emit) -> Emit:
        EMITTERS.update(dict.fromkeys(types, emit))
        return emit

    return add


def refuses(reason: str, *types: str) -> None:
    """Say why operators are not exported."""
    REFUSALS.update(dict.fromkeys(types, reason))


@dataclass
class Values:
    """What is known of the variables of a net while its graph is built.

    Attributes:
        graph: takes the nodes.
        specs: variable -> shape, with -1 for unknown dimensions, and dtype.
        names: variable -> its value in the graph.
        arrays: parameters and states.
        around: the values of the net that this one is a step of; its variables are seen here.
        prefix: of the names of values: names in a step net differ from the names around it.
        writers: the operator that writes each variable, so far.
        side_by_side: whether loops take and give [T, N, ...], N sequences of one length.
        cells: of these, those that are an operator of ONNX, by what they make: it, and what it
            reads.
        blocks: initializers of a matrix in blocks, by what they are made of.
        sizes: dimensions of values at run time, by these and the axis.
        refused: a line for each operator that cannot be exported; broken: what these write.
    """

    graph: Graph
    specs: dict[str, ArraySpec] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    around: Values | None = None
    refused: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    prefix: str = ""
    writers: dict[str, Operator] = field(default_factory=dict)
    side_by_side: bool = False
    cells: Mapping[str, tuple[Cell, str]] = field(default_factory=dict)
    blocks: dict[tuple[Any, ...], tuple[str, ...]] = field(default_factory=dict)
    sizes: dict[tuple[str, int], str] = field(default_factory=dict)

    def name_of(self, variable: str) -> str:
        """The value of a variable; a parameter becomes an initializer when it is first read."""
        known = self.names.get(variable)
        if known is not None:
            return known
        if variable in self.arrays:
            array = self.arrays[variable]
            name = self.graph.unique(variable)
            self.graph.root.arrays[name] = np.asarray(array)
            self.names[variable] = name
            return name
        if self.around is not None:
            return self.around.name_of(variable)
        raise RefusedError(f"nothing computes {variable!r}")

    def array_of(self, variable: str) -> np.ndarray | None:
        """The array of a parameter or state; None for what is computed."""
        if variable in self.arrays:
            return self.arrays[variable]
        return None if self.around is None else self.around.array_of(variable)

    def owner_of(self, variable: str) -> Values:
        """The values that a parameter is among, these or those around them."""
        owner = self
        while variable not in owner.arrays and owner.around is not None:
            owner = owner.around
        return owner

    def spec_of(self, variable: str) -> ArraySpec | None:
        spec = self.specs.get(variable)
        if spec is None and self.around is not None:
            return self.around.spec_of(variable)
        return spec


class Emission(Reading):
    """One operator while it is emitted.

    Attributes:
        graph: that takes its nodes.
    """

    values: Values
    system = "onnx"

    def __init__(self, values: Values, op: Operator) -> None:
        super().__init__(values, op)
        self.graph = values.graph
        self._first = len(values.graph.message.node)
        self._given: set[str] = set()  # values of this operator's nodes that have their names

    def value(self, variable: str) -> str:
        return self.values.name_of(variable)

    def array(self, slot: str) -> np.ndarray | None:
        """The array of an input that is a parameter; None where it is computed or left out."""
        names = self.op.inputs.get(slot)
        return self.values.array_of(names[0]) if names else None

    # -- what is written -----------------------------------------------------------------------

    def node(self, op_type: str, *inputs: str | None, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; returns the name of its output, or a list of several. See `Graph.node`."""
        name = f"{self._label()}/{op_type}"
        return self.graph.node(op_type, inputs, name, outputs=outputs, **attributes)

    def _label(self) -> str:
        return self.values.prefix + next(iter(self.op.output_vars()), self.op.type)

    def set(self, slot: str, *values: str) -> None:
        """Say which values the variables of an output slot have."""
        for variable, value in zip(self.op.outputs.get(slot, ()), values, strict=False):
            self.values.names[variable] = self._named(variable, value)

    def set_one(self, slot: str, number: int, value: str) -> None:
        """Say which value the variable at a place of an output slot has."""
        variables = self.op.outputs.get(slot, ())
        if number < len(variables):
            variable = variables[number]
            self.values.names[variable] = self._named(variable, value)

    def _named(self, variable: str, value: str) -> str:
        """A value that a node of this operator makes, called as the variable is."""
        nodes = self.graph.message.node
        for index in range(len(nodes) - 1, self._first - 1, -1):
            outputs = list(nodes[index].output)
            if value not in outputs:
                continue
            if value in self._given:
                return value
            name = self.graph.unique(self.values.prefix + variable)
            self._given.add(name)
            nodes[index].output[outputs.index(value)] = name
            if outputs[0] == value:
                nodes[index].name = name
            for number in range(index + 1, len(nodes)):
                inputs = nodes[number].input
                for at, read in enumerate(inputs):
                    if read == value:
                        inputs[at] = name
            return name
        return value

    # -- constants and common forms ------------------------------------------------------------

    def const(self, value: Any, dtype: Any = None, like: str = "x") -> str:
        """A constant; without a dtype it has an input's."""
        return self.graph.constant(value, dtype=dtype or self.dtype(like))

    def ints(self, *values: int) -> str:
        return self.graph.ints(*values)

    def cast(self, value: str, dtype: Any) -> str:
        return self.node("Cast", value, to=int(number_of(np.dtype(dtype))))

    def reduce(self, op_type: str, value: str, axes: Sequence[int] = (), keep: bool = False) -> str:
        """A reduction; no axes are all of them. Axes are an input from opset 18 on."""
        axes = list(axes)
        if op_type == "ReduceSum" or self.graph.opset >= 18:
            given = self.ints(*axes) if axes else None
            return self.node(op_type, value, given, keepdims=int(keep))
        return self.node(op_type, value, axes=axes or None, keepdims=int(keep))

    def reshape(self, value: str, *dims: int) -> str:
        """0 keeps a dimension, one -1 takes what is left."""
        return self.node("Reshape", value, self.ints(*dims))

    def unsqueeze(self, value: str, *axes: int) -> str:
        return self.node("Unsqueeze", value, self.ints(*axes))

    def squeeze(self, value: str, *axes: int) -> str:
        return self.node("Squeeze", value, self.ints(*axes))

    def cut(self, value: str, axis: int, begin: int, end: int = END, step: int = 1) -> str:
        """Elements begin:end along an axis, as in Python."""
        steps = None if step == 1 else self.ints(step)
        return self.node("Slice", value, self.ints(begin), self.ints(end), self.ints(axis), steps)

    def concat(self, values: Sequence[str], axis: int) -> str:
        return values[0] if len(values) == 1 else self.node("Concat", *values, axis=axis)

    def dims(self, value: str, begin: int = 0, end: int | None = None) -> str:
        """Dimensions begin:end of a value at run time, as a list."""
        return self.node("Shape", value, start=begin or None, end=end)

    def size(self, value: str, axis: int) -> str:
        """A dimension at run time, as a scalar."""
        return self.node("Gather", self.node("Shape", value), self.graph.constant(np.int64(axis)))

    def range(self, count: str) -> str:
        """0, 1, 2, ... below a scalar."""
        zero, one = self.graph.constant(np.int64(0)), self.graph.constant(np.int64(1))
        return self.node("Range", zero, count, one)

    def split(self, value: str, axis: int, sizes: Sequence[int]) -> list[str]:
        """Parts of known sizes along an axis."""
        if len(sizes) == 1:
            return [value]
        given = self.ints(*sizes)
        return self.node("Split", value, given, outputs=len(sizes), axis=axis)

    def as_bool(self, value: str, dtype: Any) -> str:
        return value if np.dtype(dtype) == np.bool_ else self.cast(value, np.bool_)
