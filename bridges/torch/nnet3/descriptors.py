"""Descriptors in a forward function: what a node reads of others, a line of text each.

Values are [N, columns, T]. A row of another node is read by a slice, counted from both ends so that
it holds for any T, or by its number where the rows are no plain sequence.
"""

from __future__ import annotations

from typing import Any

from ....nnet3.graph.topology import Topology
from ....nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from ...onnx.from_nnet3.grids import Grid
from ...onnx.from_nnet3.plan import Plan
from ...onnx.from_nnet3.reads import Read
from ..folder import NotInTorchError
from .layer import Layer, number_text
from .rows import Rows, atom, bare, cut, is_regular, unique

_MODULE = """
add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float forward
get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
named_buffers named_children named_modules named_parameters parameters register_buffer
register_module register_parameter requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad T_destination call_super_init dump_patches
"""  # names of nn.Module, which a layer must not take


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
        self.reserved = frozenset({"self", "torch", "nn", "F", "Path"} | taken)
        self._variables: set[str] = set(self.reserved)
        self._members: set[str] = set(_MODULE.split())
        self._known: dict[str, str] = {}

    # Names and lines

    def variable(self, name: str) -> str:
        """A new name of a variable."""
        return unique(name, self._variables)

    def attribute(self, name: str) -> str:
        """A new name of an attribute or method of the module."""
        return unique(name, self._members)

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
        text = _plus(self.end(), grid.last - grid.first + grid.step)
        return f"({text}) // {grid.step}" if grid.step > 1 else text

    def times(self, grid: Grid) -> str:
        """The times of the rows of a grid, [rows]."""
        key = f"times {grid}"
        if key not in self._known:
            stop = grid.last + 1
            behind = _plus(self.end(), stop) if grid.moving else str(stop)
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
                tests.append(f"({times} <= {_plus(self.end(), int(high))})")
            self._known[key] = self.assigned("there", " & ".join(tests))
        return self._known[key]

    # Descriptors

    def side_by_side(self, number: int) -> bool:
        """Whether a descriptor node appends parts that are as wide as its component's output."""
        parts, dims = self.topology.nodes[number].expression().parts, self.topology.dims
        columns = self.topology.nodes[number + 1].dim
        return len(parts) > 1 and all(part.dim(dims) == columns for part in parts)

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
        elif read.offset is not None and is_regular(rows.grid, grid, read.offset):
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
        wanted = _plus(wanted, moves[0] - have.first)
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


def spread(rows: Rows, like: str) -> Rows:
    """A still row repeated for all rows of another."""
    return Rows(f"{atom(rows.text)}.expand(-1, -1, {like}.shape[2])", rows.grid)


def _plus(text: str, number: int) -> str:
    return text if not number else f"{text} {'+' if number > 0 else '-'} {abs(number)}"


def _periodic(times: str, values: list[int] | list[bool]) -> str:
    """Values that repeat with the time."""
    return f"torch.tensor({values}, device=input.device)[{times} % {len(values)}]"
