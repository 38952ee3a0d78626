"""From nodes to operators: the emitter that lowering functions work with.

Values. A sample of CNTK's shape [d1 x ... x dk], the first dimension fastest, is an array
[dk, ..., d1] in C order, so its bytes are CNTK's. A node with a dynamic axis is
[rows, dk, ..., d1]: a row for each sample, sequence after sequence, without gaps. Samples then
broadcast as NumPy's arrays do, once all ranks are equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from ...framework.ir.desc import INPUT, OUTPUT, PARAMETER, STATE, make_op, make_var
from ...framework.ir.names import inner_name
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ..network.nodes.node import DynamicAxis, Node


@dataclass(frozen=True)
class Sparse:
    """Names of the variables that hold sparse rows: values [E], the number of each in its sample
    [E], and how many each row has [rows]. Without a dynamic axis rows are a matrix's columns."""

    values: str
    indices: str
    counts: str

    @property
    def slots(self) -> dict[str, str]:
        """As an operator takes them."""
        return {"values": self.values, "indices": self.indices, "counts": self.counts}

    @classmethod
    def of(cls, name: str) -> Sparse:
        return cls(f"{name}@VALUES", f"{name}@INDICES", f"{name}@COUNTS")


@dataclass(eq=False)
class Delayed:
    """A delay whose state continues from one minibatch to the next.

    Attributes:
        node: the delay.
        states: INPUT variables with the rows before each sequence, [sequences, ...], the nearest
            row first; one for each step of the delay.
        fresh: INPUT variable with 1 for sequences that begin here, [sequences], where a node gives
            the initial state; "" where that is the delay's own number.
        before: variables with the states before these rows, initial states included.
    """

    node: Node
    states: list[str]
    fresh: str = ""
    before: list[str] = field(default_factory=list)


@dataclass
class Lowered:
    """A network in operators, and how it is joined to minibatches.

    Attributes:
        op_list: forward operators only.
        inputs: input nodes that the net reads, and whether their samples are sparse rows.
        sequences: dynamic axes whose sequences matter; the rows of others are fed without offsets.
        columns: for some dynamic axes INPUT variables with what `Emitter.columns` tells.
        conditions: `Where` nodes, whose positions are INPUT variables found before the net runs.
        delays: their states continue with truncated sequences.
        states: variables kept from run to run: shape, dtype, and the number they hold at first.
        backwards: a node that looks into the future, which truncated sequences do not allow.
        lattices: criteria that read the lattices of minibatches.
        values: the variable of each node.
    """

    op_list: OpList
    inputs: dict[Node, bool] = field(default_factory=dict)
    sequences: set[DynamicAxis] = field(default_factory=set)
    columns: dict[DynamicAxis, tuple[str, str]] = field(default_factory=dict)
    conditions: list[Node] = field(default_factory=list)
    delays: list[Delayed] = field(default_factory=list)
    states: dict[str, tuple[tuple[int, ...], np.dtype, float]] = field(default_factory=dict)
    backwards: Node | None = None
    lattices: list[Node] = field(default_factory=list)
    values: dict[Node, str] = field(default_factory=dict)


class Emitter:
    """Emits the operators of a network's nodes.

    Attributes:
        dtype: of all values.
        carried: whether sequences may continue from minibatch to minibatch.
        inference: whether the operators are for another runtime; see `lower`.
        lowered: the result, as far as it is there.
    """

    def __init__(
        self, dtype: np.dtype, *, carried: bool = False, inference: bool = False, name: str = ""
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.carried = carried
        self.inference = inference
        self.lowered = Lowered(OpList(name))
        self._vars: set[str] = set()
        self._written: set[str] = set()  # by operators
        self._sparse: dict[Node, Sparse] = {}
        self._count: Counter[str] = Counter()
        self._owner = "cntk"

    # -- values of nodes -----------------------------------------------------------------------

    def value(self, node: Node) -> str:
        """The variable with a node's value: [rows, dk, ..., d1], or [dk, ..., d1]."""
        if node not in self.lowered.values and node in self._sparse:
            self.lowered.values[node] = self._dense(node)
        return self.lowered.values[node]

    def sparse(self, node: Node) -> Sparse | None:
        """The variables with a node's sparse rows, or None for one that is dense."""
        return self._sparse.get(node)

    def set_sparse(self, node: Node, rows: Sparse) -> None:
        """Say that a node's value is in these variables."""
        self._sparse[node] = rows

    def _dense(self, node: Node) -> str:
        rows = self._sparse[node]
        if node.axis is None:  # the columns of a matrix
            return self.op("cntk.to_dense", rows.slots, {"width": node.shape[0]})
        flat = self.op("cntk.to_dense", rows.slots, {"width": size(node)})
        return self.reshape(flat, (0, *dims(node))) if len(dims(node)) != 1 else flat

    def flat(self, node: Node) -> str:
        """A node's value as a matrix: [rows, elements], or without an axis [d2 * ... * dk, d1]."""
        shape = dims(node)
        if node.axis is not None:
            return self.shaped(node, (math.prod(shape),))
        return self.shaped(node, (math.prod(shape[:-1]), shape[-1] if shape else 1))

    def shaped(self, node: Node, shape: Sequence[int]) -> str:
        """A node's value with other dimensions of its samples, slowest first."""
        name = self.value(node)
        shape = tuple(shape)
        if shape == dims(node):
            return name
        return self.reshape(name, (0, *shape) if node.axis is not None else shape)

    def ranked(self, node: Node, rank: int) -> str:
        """A node's value with ones in front of its dimensions, so that all broadcast with samples
        of this rank."""
        shape = dims(node)
        if node.axis is None or len(shape) == rank:
            return self.value(node)
        return self.shaped(node, (1,) * (rank - len(shape)) + shape)

    def aligned(self, *nodes: Node) -> list[str]:
        """Values that broadcast with each other as CNTK's do."""
        rank = max(len(dims(node)) for node in nodes)
        return [self.ranked(node, rank) for node in nodes]

    # -- operators -----------------------------------------------------------------------------

    def op(
        self,
        op_type: str,
        inputs: Mapping[str, str | Sequence[str]],
        attrs: Mapping[str, Any] | None = None,
        *,
        out: str | Sequence[str] = "out",
    ) -> str:
        """Append an operator; returns the variable of its (first) output slot."""
        slots = (out,) if isinstance(out, str) else tuple(out)
        names = [self.temporary() for _ in slots]
        self.append(make_op(op_type, inputs, dict(zip(slots, names, strict=True)), attrs))
        return names[0]

    def outside(self, node: Node, make: Callable[[Emitter, bool], str]) -> str:
        """A variable that `make` emits, outside of a loop for the rows of all its steps. It gets
        the emitter, and whether steps run backwards."""
        return make(self, False)

    def columns(self, axis: DynamicAxis) -> tuple[str, str]:
        """Variables with the column of each row of an axis, [rows], and with the columns side by
        side and the steps of the minibatch, [2]."""
        if axis not in self.lowered.columns:
            names = f"{axis.name}@COLUMNS", f"{axis.name}@GRID"
            self.var(names[0], (-1,), INPUT, "int64", stop_gradient=True)
            self.var(names[1], (2,), INPUT, "int64", stop_gradient=True)
            self.lowered.columns[axis] = names
        return self.lowered.columns[axis]

    def append(self, op: OpNode) -> None:
        """Append an operator as it is."""
        self.lowered.op_list.ops.append(op)
        self._written.update(op.output_names())

    def temporary(self) -> str:
        """A new name, after the node that is being lowered."""
        self._count[self._owner] += 1
        return inner_name(self._owner, str(self._count[self._owner]))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The elements of a variable in another shape; 0 keeps a dimension."""
        return self.op("reshape", {"x": name}, {"shape": tuple(shape)})

    def scale(self, name: str, factor: float, bias: float = 0.0) -> str:
        return self.op("scale", {"x": name}, {"scale": factor, "bias": bias})

    def constant(self, value: float, like: str) -> str:
        """An array like a variable, filled with a number."""
        return self.op("fill_like", {"x": like}, {"value": value})

    def reshaped(self, name: str, shape: Sequence[int], wanted: Sequence[int]) -> str:
        """A variable of a known shape in another one."""
        return name if tuple(shape) == tuple(wanted) else self.reshape(name, wanted)

    def cut(self, name: str, axis: int, begin: int, end: int) -> str:
        """Elements begin:end along an axis."""
        return self.op("slice", {"x": name}, {"axes": (axis,), "starts": (begin,), "ends": (end,)})

    def some_rows(self, node: Node) -> str:
        """A variable with the rows that a node has: the value of an input with its dynamic axis."""
        return self.value(next(child for child in node.inputs if child.axis is not None))

    def unflat(self, name: str, node: Node) -> str:
        """A matrix as `flat` makes it, in the shape of a node's value."""
        shape = dims(node)
        if node.axis is not None:
            return name if len(shape) == 1 else self.reshape(name, (0, *shape))
        return name if len(shape) == 2 else self.reshape(name, shape)

    def total(self, name: str) -> str:
        """The sum of all elements, [1]."""
        return self.reshape(self.op("reduce_sum", {"x": name}), (1,))

    # -- variables -----------------------------------------------------------------------------

    def var(
        self,
        name: str,
        shape: Sequence[int],
        kind: int,
        dtype: DTypeLike | None = None,
        *,
        stop_gradient: bool = False,
        lr_factor: float | None = None,
    ) -> str:
        """Declare a variable, once. Without a dtype it has the dtype of all values."""
        if name not in self._vars:
            self._vars.add(name)
            var = make_var(
                name,
                shape,
                dtype or self.dtype,
                kind,
                stop_gradient=stop_gradient,
                lr_factor=lr_factor,
            )
            self.lowered.op_list.vars.append(var)
        return name

    def parameter(self, node: Node, kind: int = PARAMETER) -> str:
        """The variable that holds a node's own value; no gradient flows to one that is constant."""
        constant = node.learning_rate == 0
        rate = None if constant else node.learning_rate
        return self.var(node.name, dims(node), kind, stop_gradient=constant, lr_factor=rate)

    def state(
        self,
        node: Node,
        part: str,
        shape: Sequence[int],
        value: float = 0.0,
        dtype: DTypeLike | None = None,
    ) -> str:
        """A variable whose value continues from run to run: a statistic, a count, a rate.

        Args:
            part: ends the name, after the node's name.
            value: fills the variable before the first run.
            dtype: by default the dtype of all values.
        """
        name = f"{node.name}@{part}"
        self.lowered.states[name] = (tuple(shape), np.dtype(dtype or self.dtype), value)
        return self.var(name, shape, STATE, dtype, stop_gradient=True)

    def sequences(self, axis: DynamicAxis | None) -> None:
        """Say that the lengths of an axis's sequences matter."""
        if axis is not None:
            self.lowered.sequences.add(axis)

    # -- nodes ---------------------------------------------------------------------------------

    def emit(self, node: Node, function: Lowering) -> str:
        """Emit a node whose inputs have been emitted, by the function for its operation."""
        self._owner = node.name
        first = len(self.lowered.op_list.ops)
        name = function(self, node)
        if not isinstance(name, str):
            raise TypeError(f"it gives a {type(name).__name__}, not the name of a variable")
        if name and name not in self._vars and name not in self._written:
            raise ValueError(f"it gives {name!r}, which no operator writes")
        if name:
            self.lowered.values[node] = self._named(name, node, first)
        return name

    def _named(self, name: str, node: Node, first: int) -> str:
        """Call a variable that the operators from `first` on write after its node."""
        ops = self.lowered.op_list.ops
        if name in self._vars or not any(name in op.output_names() for op in ops[first:]):
            return name
        ops[first:] = [op.renamed({name: node.name}) for op in ops[first:]]
        self._written.discard(name)
        self._written.add(node.name)
        return node.name

    def mark_live_out(self, node: Node) -> str:
        """Let a node's value be read after a run; returns its variable."""
        name = self.value(node)
        if name in self._written and name not in self._vars:
            self._vars.add(name)
            self.lowered.op_list.vars.append(VarDecl(name, kind=OUTPUT))
        return name


Lowering: TypeAlias = Callable[[Emitter, Node], str]
"""Emits the operators of a node, and returns the variable with its value."""


def dims(node: Node) -> tuple[int, ...]:
    """Dimensions of a sample, slowest first."""
    return tuple(reversed(node.shape or ()))


def size(node: Node) -> int:
    """Elements of a sample."""
    return math.prod(node.shape or ())


__all__ = [
    "INPUT",
    "PARAMETER",
    "STATE",
    "Delayed",
    "Emitter",
    "Lowered",
    "Lowering",
    "Sparse",
    "dims",
    "size",
]
