"""Descriptors in a forward function: what a node reads of others, a line of text each.

Values are [N, columns, T]. A row of another node is read by a slice, counted from both ends so that
it holds for any T, or by its number where the rows are no plain sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....nnet3.graph.topology import Topology
from ....nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from ...nnet3_rows.components import WRITTEN, ComponentNet, component_net
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.plan import Plan
from ...nnet3_rows.reads import Read
from ..folder import NotInTorchError
from ..formatting import WIDTH, atom, bare
from ..naming import Names
from ..op_list.emission import Lines, Module, Values, nested, read_lines, write_operators
from ..op_list.tables import all_tables as all_tables
from .layer import Layer, number_text
from .layers import any_layer, layer_of
from .rows import Rows, cut

_WHOLE_ROWS = (-1,), np.dtype(np.int64)


class DescriptorWriter:
    """Lines of a forward function, and the rows that they have computed.

    Args:
        topology: of the network.
        plan: the rows of all nodes.
        taken: names that the module's source uses already.

    Attributes:
        lines: of the function, without indentation.
        methods: text of the module's other methods.
        layers: by the component's name.
        attributes: the module's attribute of each component that has one.
        helpers: names of the functions and classes that the lines use.
        notes: what the module does not do as the network does.
        rows: of the nodes that are written, by number.
    """

    def __init__(self, topology: Topology, plan: Plan, taken: set[str]) -> None:
        self.topology, self.plan = topology, plan
        self.lines: list[str] = []
        self.methods: list[str] = []
        self.layers: dict[str, Layer] = {}
        self.attributes: dict[str, str] = {}
        self.helpers: set[str] = set()
        self.notes: list[str] = []
        self.rows: dict[int, Rows] = {}
        self.reserved = ("self", "torch", "nn", "F", "Path", *taken)
        self.names = Names(*self.reserved)
        self._members = Names()
        self._known: dict[str, str] = {}

    # Names and lines

    def variable(self, name: str) -> str:
        """A new name of a variable."""
        return self.names.unique(name)

    def attribute(self, name: str) -> str:
        """A new name of an attribute or method of the module."""
        return self._members.unique(name)

    def assigned(self, name: str, text: str) -> str:
        """A variable that holds an expression."""
        found = self.variable(name)
        self.lines.append(f"{found} = {bare(text)}")
        return found

    def set(self, number: int, name: str, text: str, grid: Grid, still: bool = False) -> None:
        """Assign the rows of a node."""
        self.rows[number] = Rows(self.assigned(name, text), grid, still)

    def member(self, node: Any, layer: Layer) -> str:
        """The module of a component node; it is made where the component has none yet."""
        name = node.component_name
        if layer.helper:
            self.helpers.add(layer.helper)
        if not layer.make:
            return ""
        if name not in self.attributes:
            self.attributes[name] = self.attribute(name)
            self.layers[name] = layer
        elif self.layers[name].make != layer.make:
            raise NotInTorchError(
                f"'{node.name}': other nodes use component '{name}' in other steps"
            )
        return f"self.{self.attributes[name]}"

    def applied(self, node: Any, layer: Layer, x: str) -> str:
        """A layer applied to an expression."""
        if layer.note:
            self.notes.append(f"{node.name}: {layer.note}")
        x = bare(x) if "({x})" in layer.call else atom(x)
        return layer.call.format(m=self.member(node, layer), x=x)

    def component(
        self, lines: list[str], names: Names, node: Any, parts: Sequence[tuple[str, int]], rank: int
    ) -> str:
        """A component of rows, for what its descriptor appends: expressions and columns.

        Args:
            lines: of the function that takes what is computed before. names: of this function.
            rank: axes of rows.
        """
        c, layer = node.component, layer_of(node.component)
        if layer.note:
            self.notes.append(f"{node.name}: {layer.note}")
        module, chain = self.member(node, layer), [(c, layer)]
        members = [module]
        if c.type == "CompositeComponent":
            chain = [(part, any_layer(part)) for part in c.components]
            members = [f"{module}[{place}]" for place in range(len(chain))]
        for (part, of_part), member in zip(chain, members, strict=True):
            if part.type in WRITTEN:
                net = component_net(part, node.name, rank)
                pieces = self._pieces((lines, names), net, parts)
                x = self.written(lines, names, net, pieces, member)
            else:
                x = side_by_side([text for text, _ in parts])
                spread = of_part.over_time and rank == 2
                x = f"{atom(x)}[:, :, None]" if spread else x
                x = bare(x) if "({x})" in of_part.call else atom(x)
                x = of_part.call.format(m=member, x=x)
                x = f"{atom(x)}[:, :, 0]" if spread else x
            parts = [(x, part.output_dim)]
        return parts[0][0]

    @staticmethod
    def _pieces(
        function: tuple[list[str], Names], net: ComponentNet, parts: Sequence[tuple[str, int]]
    ) -> list[str]:
        """The input of a component in the pieces that its operators want."""
        lines, names = function
        sizes = list(net.inputs.values())
        if [size for _, size in parts] == sizes:
            return [text for text, _ in parts]
        x = side_by_side([text for text, _ in parts])
        if len(sizes) == 1:
            return [x]
        pieces = [names.unique(variable.rpartition(".")[2]) for variable in net.inputs]
        lines.append(f"{', '.join(pieces)} = {atom(x)}.split({sizes}, 1)")
        return pieces

    def written(
        self,
        lines: list[str],
        names: Names,
        net: ComponentNet,
        pieces: Sequence[str],
        module: str = "",
        more: Mapping[str, str] | None = None,
    ) -> str:
        """The operators of a component as lines; the expression of its output.

        Args:
            pieces: of the input. module: holds the parameters.
            more: variables that hold whole numbers [rows], and their texts.
        """
        values = Values(Module(names=names), {})
        values.names |= {name: f"{module}.{own}" for name, own in net.parameters.items()}
        values.names |= more or {}
        reads = [name for op in net.ops for name in op.input_names()]
        for variable, text in zip(net.inputs, pieces, strict=True):
            if reads.count(variable) > 1 and not text.isidentifier():
                lines.append(f"{(found := names.unique(variable))} = {bare(text)}")
                text = found
            values.names[variable] = atom(text)
        operators, values.specs = net.checked(dict.fromkeys(more or {}, _WHOLE_ROWS))
        write_operators(values, operators)
        if values.module.refused:
            raise NotInTorchError("; ".join(values.module.refused))
        result = Lines(("return",), [side_by_side([values.text(name) for name in net.outputs])])
        named = {values.names[name] for op in net.ops for name in op.output_names()}
        values.lines = nested([*values.lines, result], named, WIDTH)
        lines += read_lines(values, ["return"])
        return lines.pop()

    # Times

    def end(self) -> str:
        """The time of the last frame; the last one of a row of output where the plan says so."""
        if "end" not in self._known:
            text, unit = "input.shape[1] - 1", self.plan.unit
            if self.plan.exact_end and unit > 1:
                text = f"({text}) // {unit} * {unit}"
            self._known["end"] = self.assigned("end", text)
        return self._known["end"]

    def count(self, grid: Grid) -> str:
        """The number of rows of a grid."""
        if not grid.moving:
            return str(grid.rows(0))
        text = plus(self.end(), grid.last - grid.first + grid.step)
        return f"({text}) // {grid.step}" if grid.step > 1 else text

    def times(self, grid: Grid) -> str:
        """The times of the rows of a grid, [rows]."""
        key = f"times {grid}"
        if key not in self._known:
            stop = grid.last + 1
            behind = plus(self.end(), stop) if grid.moving else str(stop)
            bounds = f"{grid.first}, {behind}" if grid.first or grid.step > 1 else behind
            step = f", {grid.step}" if grid.step > 1 else ""
            text = f"torch.arange({bounds}{step}, device=input.device)"
            self._known[key] = self.assigned("times", text)
        return self._known[key]

    def inside(self, grid: Grid, low: float, high: float) -> str:
        """For the rows of a grid, whether their times are between bounds; bool [rows]."""
        key = f"inside {grid} {low} {high}"
        if key not in self._known:
            times, tests = self.times(grid), list[str]()
            if low > -float("inf"):
                tests.append(f"({times} >= {int(low)})")
            if high < float("inf"):
                tests.append(f"({times} <= {plus(self.end(), int(high))})")
            self._known[key] = self.assigned("there", " & ".join(tests))
        return self._known[key]

    # Descriptors

    def columns(self, number: int) -> list[int]:
        """How many columns each part has that a descriptor node appends."""
        parts = self.topology.nodes[number].expression().parts
        return [part.dim(self.topology.dims) for part in parts]

    def takes_parts(self, number: int) -> bool:
        """Whether a component takes what its descriptor appends piece by piece."""
        c = self.topology.nodes[number].component
        return c.type in WRITTEN and self.columns(number - 1) == [
            *component_net(c, "", 3).inputs.values()
        ]

    def parts(self, number: int, grid: Grid, name: str) -> list[Rows]:
        """What a descriptor node appends, one by one."""
        listed = self.topology.nodes[number].expression().parts
        return [self.part(part, grid, name) for part in listed]

    def joined(self, number: int, grid: Grid, name: str) -> Rows:
        """What a descriptor node appends, on a grid."""
        parts = self.parts(number, grid, name)
        if len(parts) == 1:
            return parts[0]
        moving = next((rows for rows in parts if not rows.still), None)
        texts = [rows.text for rows in parts]
        if moving is not None and any(rows.still for rows in parts):
            like = self.assigned(f"{name}_rows", moving.text)
            texts = [
                spread(rows, like).text if rows.still else (like if rows is moving else rows.text)
                for rows in parts
            ]
        return Rows(f"torch.cat([{', '.join(texts)}], 1)", grid, moving is None)

    def part(self, part: SumDescriptor, grid: Grid, name: str) -> Rows:
        """A part of a descriptor on a grid."""
        if isinstance(part, ConstantSumDescriptor):
            shape = f"(input.shape[0], {part.columns}, 1)"
            return Rows(f"input.new_full({shape}, {part.value!r})", grid, True)
        if isinstance(part, OptionalSumDescriptor):
            return self._optional(part.src, grid, name)
        if isinstance(part, BinarySumDescriptor):
            if part.op == "Failover":
                return self._failover(part, grid, name)
            a, b = self.part(part.a, grid, name), self.part(part.b, grid, name)
            return Rows(f"({a.text} + {b.text})", grid, a.still and b.still)
        assert isinstance(part, SimpleSumDescriptor)
        terms: list[Rows] = []
        for read in self.plan.reads(part.src):
            here = read.on(grid)
            if here is not None:
                terms.append(self.read(self.rows[here.node], here, grid))
        text = " + ".join(rows.text for rows in terms)
        still = all(rows.still for rows in terms)
        return Rows(f"({text})" if len(terms) > 1 else text, grid, still)

    def _optional(self, part: SumDescriptor, grid: Grid, name: str) -> Rows:
        """A part where it can be computed, else zeros."""
        border = self.plan.border(self.plan.reach_of(part), grid)
        found = self.part(part, border.inner, name)
        if border.masked:
            there = self.inside(grid, border.reach.low, border.reach.high)
            return Rows(f"{atom(found.text)}.where({there}, 0.0)", grid)
        return self.with_border(found, border.left, border.right, grid)

    @staticmethod
    def with_border(rows: Rows, left: int, right: int, grid: Grid) -> Rows:
        """Rows with zeros around them, which makes them those of a grid."""
        if not left and not right:
            return rows
        if rows.still:
            raise NotInTorchError(f"'{rows.text}' is one row for all times, but some are missing")
        text = rows.text
        if left > 0 or right > 0:
            text = f"F.pad({text}, ({max(left, 0)}, {max(right, 0)}))"
        if left < 0 or right < 0:  # behind the zeros: there may be fewer rows without them
            ends = f"{-left if left < 0 else ''}:{right if right < 0 else ''}"
            text = f"{atom(text)}[:, :, {ends}]"
        return Rows(text, grid)

    def _failover(self, part: BinarySumDescriptor, grid: Grid, name: str) -> Rows:
        reach = self.plan.reach_of(part.a)
        if reach.covers(grid):
            return self.part(part.a, grid, name)
        first, second = (self._optional(each, grid, name) for each in (part.a, part.b))
        there = self.inside(grid, reach.low, reach.high)
        return Rows(f"{atom(first.text)}.where({there}, {second.text})", grid)

    def read(self, rows: Rows, read: Read, grid: Grid) -> Rows:
        """The rows of another node that a grid reads."""
        still = rows.still or read.at is not None
        if rows.still:
            text = rows.text
        elif read.at is not None:
            row = (read.at - rows.grid.first) // rows.grid.step
            text = f"{atom(rows.text)}[:, :, {row}:{row + 1}]"
        elif read.offset is not None and rows.grid.has_slice(grid, read.offset):
            stride = grid.step // rows.grid.step
            text = cut(rows, grid, read.offset, read.offset, stride)
        else:
            text = self._gathered(rows, read, grid)
        if read.scale != 1:
            text = f"{number_text(read.scale)} * {text}"
        return Rows(text, grid, still)

    def _gathered(self, rows: Rows, read: Read, grid: Grid) -> str:
        """Rows by their numbers, where these are no plain sequence."""
        times, have = self.times(grid), rows.grid
        moves, period = [offset or 0 for offset in read.offsets], len(read.offsets)
        if read.offset is not None:
            wanted = times
        elif moves == [-place for place in range(period)]:
            wanted, moves = f"{times} // {period} * {period}", [0]
        else:
            wanted, moves = f"{times} + {_periodic(times, moves)}", [0]
        wanted = plus(wanted, moves[0] - have.first)
        if have.step > 1:
            product = f" * {have.step}"  # of a division before
            exact = wanted.endswith(f"// {have.step}{product}")
            wanted = wanted.removesuffix(product) if exact else f"({wanted}) // {have.step}"
        if None in read.offsets:
            wanted = f"({wanted}).clamp(0, {rows.text}.shape[2] - 1)"
        picked = f"{atom(rows.text)}[:, :, {self.assigned('rows_read', wanted)}]"
        if None not in read.offsets:
            return picked
        own = _periodic(times, [offset is not None for offset in read.offsets])
        return f"{picked}.where({own}, 0.0)"


def side_by_side(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"torch.cat([{', '.join(texts)}], 1)"


def spread(rows: Rows, like: str) -> Rows:
    """A still row repeated for all rows of another."""
    return Rows(f"{atom(rows.text)}.expand(-1, -1, {like}.shape[2])", rows.grid)


def plus(text: str, number: int) -> str:
    return text if not number else f"{text} {'+' if number > 0 else '-'} {abs(number)}"


def _periodic(times: str, values: list[int] | list[bool]) -> str:
    """Values that repeat with the time."""
    return f"torch.tensor({values}, device=input.device)[{times} % {len(values)}]"
