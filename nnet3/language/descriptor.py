"""Descriptors: the restricted expressions by which nodes of an nnet3 network read other nodes.

Three levels, as in Kaldi's nnet-descriptor.h: a `Descriptor` appends parts, a `SumDescriptor` sums
rows (with `Failover`, `IfDefined` and `Const`), a `ForwardingDescriptor` names one row of one node.
Everything here works on whole arrays of indexes: `t` and `x` are integer arrays of equal length (or
plain integers); `n` never changes on the way through a descriptor, so it is not passed at all.
Nodes are named; `nodes` maps the names to numbers where numbers are wanted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, ShapeError

Place = tuple[Any, Any, Any]  # node number, t, x: integers or arrays of one length


def format_scale(value: float) -> str:
    """A float32 as C++ streams print it (six digits), with more digits only where these lose it."""
    number = np.float32(value)
    text = f"{float(number):.6g}"
    return text if np.float32(text) == number else np.format_float_positional(number, trim="-")


@dataclass(frozen=True)
class ForwardingDescriptor:
    """One row of one node for every requested index."""

    def map_to_input(self, t: Any, x: Any, nodes: Mapping[str, int]) -> Place:
        """Node number(s), t and x of the row that index (n, t, x) is read from."""
        raise TypeError("an abstract descriptor")

    def modulus(self) -> int:
        """The period in t with which the pattern of dependencies repeats."""
        return 1

    def scales(self) -> Iterator[tuple[str, float]]:
        """(node name, scale) of every node that is read."""
        yield from ()


@dataclass(frozen=True)
class SimpleForwardingDescriptor(ForwardingDescriptor):
    """`node` or `Scale(scale, node)`."""

    node: str
    scale: float = 1.0

    def map_to_input(self, t: Any, x: Any, nodes: Mapping[str, int]) -> Place:
        return nodes[self.node], t, x

    def scales(self) -> Iterator[tuple[str, float]]:
        yield self.node, float(np.float32(self.scale))

    def __str__(self) -> str:
        if np.float32(self.scale) == 1:
            return self.node
        return f"Scale({format_scale(self.scale)}, {self.node})"


@dataclass(frozen=True)
class OffsetForwardingDescriptor(ForwardingDescriptor):
    """`Offset(src, t[, x])`: row (n, t + t_offset, x + x_offset) of `src`."""

    src: ForwardingDescriptor
    t: int
    x: int = 0

    def map_to_input(self, t: Any, x: Any, nodes: Mapping[str, int]) -> Place:
        return self.src.map_to_input(t + self.t, x + self.x if self.x else x, nodes)

    def modulus(self) -> int:
        return self.src.modulus()

    def scales(self) -> Iterator[tuple[str, float]]:
        return self.src.scales()

    def __str__(self) -> str:
        return f"Offset({self.src}, {self.t}{f', {self.x}' if self.x else ''})"


@dataclass(frozen=True)
class SwitchingForwardingDescriptor(ForwardingDescriptor):
    """`Switch(a, b, ...)`: the argument whose number is t modulo the number of arguments."""

    srcs: tuple[ForwardingDescriptor, ...]

    def map_to_input(self, t: Any, x: Any, nodes: Mapping[str, int]) -> Place:
        which = t % len(self.srcs)
        if not isinstance(t, np.ndarray):
            return self.srcs[which].map_to_input(t, x, nodes)
        places = [src.map_to_input(t, x, nodes) for src in self.srcs]
        return tuple(
            np.choose(which, [np.broadcast_to(place[i], t.shape) for place in places])
            for i in range(3)
        )

    def modulus(self) -> int:
        return math.lcm(len(self.srcs), *(src.modulus() for src in self.srcs))

    def scales(self) -> Iterator[tuple[str, float]]:
        for src in self.srcs:
            yield from src.scales()

    def __str__(self) -> str:
        return f"Switch({', '.join(map(str, self.srcs))})"


@dataclass(frozen=True)
class RoundingForwardingDescriptor(ForwardingDescriptor):
    """`Round(src, m)`: t is rounded down to the next multiple of m."""

    src: ForwardingDescriptor
    t_modulus: int

    def map_to_input(self, t: Any, x: Any, nodes: Mapping[str, int]) -> Place:
        return self.src.map_to_input(t - t % self.t_modulus, x, nodes)

    def modulus(self) -> int:
        return self.t_modulus

    def scales(self) -> Iterator[tuple[str, float]]:
        return self.src.scales()

    def __str__(self) -> str:
        return f"Round({self.src}, {self.t_modulus})"


@dataclass(frozen=True)
class ReplaceIndexForwardingDescriptor(ForwardingDescriptor):
    """`ReplaceIndex(src, t|x, value)`: t or x is replaced by a fixed value."""

    src: ForwardingDescriptor
    variable: str
    value: int

    def map_to_input(self, t: Any, x: Any, nodes: Mapping[str, int]) -> Place:
        if self.variable == "t":
            return self.src.map_to_input(t * 0 + self.value, x, nodes)
        return self.src.map_to_input(t, x * 0 + self.value, nodes)

    def scales(self) -> Iterator[tuple[str, float]]:
        return self.src.scales()

    def __str__(self) -> str:
        return f"ReplaceIndex({self.src}, {self.variable}, {self.value})"


Mask = Any  # a boolean array, or an integer whose bits are rows: 0 none, -1 all


@dataclass(frozen=True)
class SumDescriptor:
    """A sum of rows of other nodes, some of them optional."""

    def leaves(self) -> Iterator[ForwardingDescriptor]:
        """All rows that may take part, in the order in which they are written."""
        yield from ()

    def combine(self, present: Iterator[Mask], used: list[Mask], every: Mask = True) -> Mask:
        """Which indexes are computable, given which leaves are there (in the order of `leaves`).

        Appends to `used`, leaf by leaf, for which indexes the leaf takes part in the sum. `every`
        stands for all indexes: True among arrays, -1 among integers.
        """
        raise TypeError("an abstract descriptor")

    def dim(self, node_dims: Mapping[str, int]) -> int:
        """Columns of the result; ShapeError where summands differ."""
        raise TypeError("an abstract descriptor")

    def constant(self) -> float:
        """The sum of all `Const` expressions."""
        return 0.0

    def modulus(self) -> int:
        return math.lcm(1, *(leaf.modulus() for leaf in self.leaves()))

    def needs_all(self) -> bool:
        """True where every leaf is required (no Failover, no IfDefined)."""
        return True

    def scales(self) -> dict[str, float]:
        """Scale of every node that is read; an error where one node has two."""
        scale_of: dict[str, float] = {}
        for leaf in self.leaves():
            for node, scale in leaf.scales():
                if scale_of.setdefault(node, scale) != scale:
                    raise FormatError(
                        f"descriptor '{self}' reads node '{node}' with the scales"
                        f" {scale_of[node]:g} and {scale:g}; only one is possible"
                    )
        return scale_of


@dataclass(frozen=True)
class SimpleSumDescriptor(SumDescriptor):
    """One forwarding descriptor."""

    src: ForwardingDescriptor

    def leaves(self) -> Iterator[ForwardingDescriptor]:
        yield self.src

    def combine(self, present: Iterator[Mask], used: list[Mask], every: Mask = True) -> Mask:
        mask = next(present)
        used.append(mask)
        return mask

    def dim(self, node_dims: Mapping[str, int]) -> int:
        dims = {node: node_dims[node] for node, _ in self.src.scales()}
        if len(set(dims.values())) != 1:
            listed = ", ".join(f"'{node}' has {dim}" for node, dim in dims.items())
            raise ShapeError(f"descriptor '{self}' switches between different dimensions: {listed}")
        return next(iter(dims.values()))

    def __str__(self) -> str:
        return str(self.src)


@dataclass(frozen=True)
class OptionalSumDescriptor(SumDescriptor):
    """`IfDefined(src)`: `src`, or zero where it cannot be computed."""

    src: SumDescriptor

    def leaves(self) -> Iterator[ForwardingDescriptor]:
        return self.src.leaves()

    def combine(self, present: Iterator[Mask], used: list[Mask], every: Mask = True) -> Mask:
        return self.src.combine(present, used, every) | every

    def dim(self, node_dims: Mapping[str, int]) -> int:
        return self.src.dim(node_dims)

    def constant(self) -> float:
        if self.src.constant():
            raise FormatError(f"descriptor '{self}': Const inside IfDefined is not possible")
        return 0.0

    def needs_all(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"IfDefined({self.src})"


@dataclass(frozen=True)
class ConstantSumDescriptor(SumDescriptor):
    """`Const(value, dim)`: a constant in every column."""

    value: float
    columns: int

    def combine(self, present: Iterator[Mask], used: list[Mask], every: Mask = True) -> Mask:
        return every

    def dim(self, node_dims: Mapping[str, int]) -> int:
        return self.columns

    def constant(self) -> float:
        return float(np.float32(self.value))

    def __str__(self) -> str:
        return f"Const({format_scale(self.value)}, {self.columns})"


@dataclass(frozen=True)
class BinarySumDescriptor(SumDescriptor):
    """`Sum(a, b)`, or `Failover(a, b)`: a where it can be computed, else b."""

    op: str
    a: SumDescriptor
    b: SumDescriptor

    def leaves(self) -> Iterator[ForwardingDescriptor]:
        yield from self.a.leaves()
        yield from self.b.leaves()

    def combine(self, present: Iterator[Mask], used: list[Mask], every: Mask = True) -> Mask:
        start = len(used)
        first = self.a.combine(present, used, every)
        middle = len(used)
        second = self.b.combine(present, used, every)
        if self.op == "Sum":
            both = first & second
            for i in range(start, len(used)):
                used[i] = used[i] & both
            return both
        for i in range(start, middle):
            used[i] = used[i] & first
        rest = second & (first ^ every)
        for i in range(middle, len(used)):
            used[i] = used[i] & rest
        return first | second

    def dim(self, node_dims: Mapping[str, int]) -> int:
        first, second = self.a.dim(node_dims), self.b.dim(node_dims)
        if first != second:
            raise ShapeError(
                f"{self.op} of different dimensions: '{self.a}' has {first},"
                f" '{self.b}' has {second}"
            )
        return first

    def constant(self) -> float:
        first, second = self.a.constant(), self.b.constant()
        if self.op == "Sum":
            return float(np.float32(first) + np.float32(second))
        if first != second:
            raise FormatError(
                f"descriptor '{self}': Failover between different constants is not possible"
            )
        return first

    def needs_all(self) -> bool:
        return self.op == "Sum" and self.a.needs_all() and self.b.needs_all()

    def __str__(self) -> str:
        return f"{self.op}({self.a}, {self.b})"


@dataclass(frozen=True)
class Descriptor:
    """Parts appended column-wise. `str()` gives the normalized text, which parses to the same."""

    parts: tuple[SumDescriptor, ...]

    def __str__(self) -> str:
        if len(self.parts) == 1:
            return str(self.parts[0])
        return f"Append({', '.join(map(str, self.parts))})"

    def leaves(self) -> list[ForwardingDescriptor]:
        """All rows that may be read, in the order in which they are written."""
        return [leaf for part in self.parts for leaf in part.leaves()]

    def node_names(self) -> list[str]:
        """Names of the nodes that may be read, in order, with repetitions."""
        return [node for leaf in self.leaves() for node, _ in leaf.scales()]

    def dim(self, node_dims: Mapping[str, int]) -> int:
        """Columns of the result; ShapeError where the summands of a part differ."""
        return sum(part.dim(node_dims) for part in self.parts)

    def modulus(self) -> int:
        return math.lcm(1, *(part.modulus() for part in self.parts))

    def needs_all(self) -> bool:
        return all(part.needs_all() for part in self.parts)

    def get_dependencies(self, t: Any, x: Any, nodes: Mapping[str, int]) -> list[Place]:
        """Every row that may take part in the indexes (., t, x): one place for each leaf."""
        return [leaf.map_to_input(t, x, nodes) for leaf in self.leaves()]

    def combine(self, present: Iterator[Mask], used: list[Mask], every: Mask = True) -> Mask:
        """As `SumDescriptor.combine`, for all parts: all must be computable."""
        ok = every
        for part in self.parts:
            ok = part.combine(present, used, every) & ok
        return ok

    def renamed(self, names: Mapping[str, str]) -> Descriptor:
        """A copy that reads `names[node]` where it read `node`."""
        return Descriptor(tuple(_renamed(part, names) for part in self.parts))


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    fields = {}
    for field, value in vars(part).items():
        if field == "node":
            value = names.get(value, value)
        elif isinstance(value, tuple):
            value = tuple(_renamed(item, names) for item in value)
        elif isinstance(value, (ForwardingDescriptor, SumDescriptor)):
            value = _renamed(value, names)
        fields[field] = value
    return type(part)(**fields)
