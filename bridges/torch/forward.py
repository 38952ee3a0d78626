"""The forward function of a network: a line for each node, over the time grids of the ONNX export.

Values are [N, columns, T]. A row of another node is read by a slice, a window of rows at equal
distances by a convolution. Every slice is counted from both ends, so that it holds for any T.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...framework.base.errors import OpscopeError
from ...nnet3.components.base.dependence import NOTHING
from ...nnet3.graph.loops import IrregularError, find_loops
from ...nnet3.graph.topology import Topology
from ...nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from ..onnx.from_nnet3.grids import Grid
from ..onnx.from_nnet3.plan import Plan
from ..onnx.from_nnet3.reads import Read
from .layers import AFFINE, Layer, affine_layer, layer_of, number_text, why_not

_MODULE = """
add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float forward
get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
named_buffers named_children named_modules named_parameters parameters register_buffer
register_module register_parameter requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad T_destination call_super_init dump_patches
"""  # names of nn.Module, which a layer must not take


class NotInTorchError(OpscopeError):
    """A part of a network has no form in PyTorch; the message says which and why."""


@dataclass(frozen=True)
class Rows:
    """An expression and the times of its rows; `still`: one row, which holds for all times."""

    text: str
    grid: Grid
    still: bool = False


@dataclass(frozen=True)
class _Window:
    """How an affine component reads: rows of one source, by a convolution where taps are many."""

    source: Rows
    taps: int
    stride: int
    dilation: int


class ForwardWriter:
    """Writes the nodes that some outputs need.

    Args:
        topology: of the network in test mode.
        context: of the network, left and right.
        outputs: names of output nodes.
        unit: frames for one row of output.

    Attributes:
        lines: of the function, without indentation.
        layers: by the component's name.
        attributes: the module's attribute of each component that has one.
        notes: what the module does not do as the network does.
        arguments: of the function.

    Raises:
        NotInTorchError: parts have no form in PyTorch; all are named.
    """

    def __init__(
        self, topology: Topology, context: tuple[int, int], outputs: Sequence[str], unit: int
    ) -> None:
        self.topology, self.outputs, self.unit = topology, outputs, unit
        self._refuse_all()
        self.plan = Plan(topology, unit, *context)
        self.plan.make([topology.number(name) for name in outputs])
        if self.plan.exact_end and unit > 1:
            raise NotInTorchError(
                "rows at the end depend on where the request ends: this goes without"
                " frame subsampling only"
            )
        self.lines: list[str] = []
        self.layers: dict[str, Layer] = {}
        self.attributes: dict[str, str] = {}
        self.notes: list[str] = []
        self.arguments: list[str] = []
        self._variables: set[str] = {"self", "torch", "nn", "F", "Path"}
        self._members: set[str] = set(_MODULE.split())
        self._rows: dict[int, Rows] = {}
        self._windows = self._all_windows()
        self._write()

    def _refuse_all(self) -> None:
        needed, queue = set[int](), [self.topology.number(name) for name in self.outputs]
        while queue:
            number = queue.pop()
            if number not in needed:
                needed.add(number)
                queue += self.topology.inputs_of[number]
        told: list[str] = []
        try:
            loops = [loop for loop in find_loops(self.topology) if needed & set(loop.members)]
            for loop in loops:
                name = self.topology.nodes[min(loop.members)].name
                told.append(f"'{name}': it is part of a loop; recurrent layers are not written")
        except IrregularError as error:
            told.append(f"a loop is no recurrent layer: {error}")
        for number in sorted(needed):
            node = self.topology.nodes[number]
            if node.kind == "input" and node.name not in ("input", "ivector"):
                told.append(f"input '{node.name}': only 'input' and 'ivector' are known")
            elif node.kind == "component" and node.reads is NOTHING:
                told.append(f"'{node.name}': {node.component.type} has no input")
            elif node.kind == "component" and (reason := why_not(node.component)):
                told.append(f"'{node.name}': {reason}")
        if told:
            raise NotInTorchError("the network has no form in PyTorch: " + "; ".join(told))

    # Lines

    def _write(self) -> None:
        self._write_inputs()
        for members, _ in self.topology.stages:
            for number in members:
                if number in self.plan.grids and number not in self._rows:
                    self._write_node(number)
        found = {name: self._output(name) for name in self.outputs}
        if len(found) == 1:
            self.lines.append(f"return {next(iter(found.values()))}")
        else:
            listed = ", ".join(f"{name!r}: {text}" for name, text in found.items())
            self.lines.append(f"return {{{listed}}}")

    def _output(self, name: str) -> str:
        rows = self._rows[self.topology.number(name)]
        if rows.still:
            raise NotInTorchError(f"output '{name}' is the same for all frames")
        return f"{rows.text}.transpose(1, 2)"

    def _write_inputs(self) -> None:
        number = self.topology.index.get("input")
        if number is None or number not in self.plan.grids:
            raise NotInTorchError("no output depends on 'input'")
        grid = self.plan.grids[number]
        if not grid.moving:
            raise NotInTorchError("the frames that are read do not follow the length of the input")
        self.arguments.append(self._variable("input"))
        left, right = max(0, -grid.first), max(0, grid.last)
        turned = "input.transpose(1, 2)"
        if left or right:
            turned = f'F.pad({turned}, ({left}, {right}), mode="replicate")'
        self._set(number, "frames", turned, Grid(-left, 1, right))
        number = self.topology.index.get("ivector")
        if number is not None and number in self.plan.grids:
            self.arguments.append(self._variable("ivector"))
            self._rows[number] = Rows("ivector[:, :, None]", self.plan.grids[number], True)

    def _set(self, number: int, name: str, text: str, grid: Grid, still: bool = False) -> None:
        variable = self._variable(name)
        self.lines.append(f"{variable} = {text}")
        self._rows[number] = Rows(variable, grid, still)

    def _variable(self, name: str) -> str:
        return _unique(name, self._variables)

    def _write_node(self, number: int) -> None:
        node, grid = self.topology.nodes[number], self.plan.grids[number]
        if node.kind == "dim-range":
            source = self._rows[node.source]
            end = node.dim_offset + node.dim
            text = f"{source.text}[:, {node.dim_offset}:{end}]"
            self._set(number, node.name, text, source.grid, source.still)
        elif node.kind == "component":
            self._write_component(number, grid)
        elif node.is_output:
            found = self._joined(number, grid, node.name)
            self._set(number, node.name, found.text, grid, found.still)

    def _write_component(self, number: int, grid: Grid) -> None:
        node = self.topology.nodes[number]
        window = self._window(number) if node.component.type in AFFINE else None
        if window is not None:
            layer = affine_layer(node.component, window.taps, window.stride, window.dilation)
            source = window.source
        else:
            source = self._input(number, grid)
            layer = layer_of(node.component) if node.component.type not in AFFINE else None
            layer = layer or affine_layer(node.component, 1)
        text = layer.call.format(m=self._member(node, layer), x=source.text)
        if layer.note:
            self.notes.append(f"{node.name}: {layer.note}")
        self._set(number, node.name, text, grid, source.still)

    def _member(self, node: Any, layer: Layer) -> str:
        name = node.component_name
        if not layer.make:
            return ""
        if name not in self.attributes:
            self.attributes[name] = _unique(name, self._members)
            self.layers[name] = layer
        return f"self.{self.attributes[name]}"

    # Affine components

    def _all_windows(self) -> dict[str, tuple[int, int, int] | None]:
        """By component: taps, stride and dilation that its nodes share; None: there are none."""
        found: dict[str, tuple[int, int, int] | None] = {}
        for number in self.plan.grids:
            node = self.topology.nodes[number]
            if node.kind != "component" or node.component.type not in AFFINE:
                continue
            shape = self._shape(number)
            same = found.get(node.component_name, shape) == shape
            found[node.component_name] = shape if same else None
        return found

    def _taps(self, number: int) -> tuple[int, list[int]] | None:
        """The node whose rows at some offsets an affine component reads side by side."""
        node = self.topology.nodes[number]
        offsets = list(getattr(node.component, "time_offsets", [0]))
        reads: list[Read] = []
        for part in self.topology.nodes[number - 1].expression().parts:
            if not isinstance(part, SimpleSumDescriptor):
                return None
            listed = self.plan.reads(part.src)
            if len(listed) != 1 or listed[0].scale != 1 or listed[0].offset is None:
                return None
            reads += listed
        if len({read.node for read in reads}) != 1:
            return None
        if len(reads) > 1 and len(offsets) > 1:
            return None
        moves = [offset + (read.offset or 0) for offset in offsets for read in reads]
        return reads[0].node, moves

    def _shape(self, number: int) -> tuple[int, int, int] | None:
        """Taps, stride and dilation of a convolution, where the offsets have equal distances."""
        found, grid = self._taps(number), self.plan.grids[number]
        if found is None or self.plan.reach[found[0]].still:
            return None
        source, moves = found
        have = self._grid_of(source)
        steps = {b - a for a, b in zip(moves[:-1], moves[1:], strict=True)}
        distance = min(steps) if steps else have.step
        if len(steps) > 1 or distance <= 0 or distance % have.step or grid.step % have.step:
            return None
        if not have.moving or not grid.moving:
            return None
        if _start(have, grid, moves[0]) is None or _drop(have, grid, moves[-1]) is None:
            return None
        stride, taps = grid.step // have.step, len(moves)
        if taps == 1:  # every n-th row is a slice; the kernel has nothing to stride over
            stride = 1
        return taps, stride, distance // have.step if taps > 1 else 1

    def _grid_of(self, number: int) -> Grid:
        if number in self._rows:
            return self._rows[number].grid
        node = self.topology.nodes[number]
        if node.kind == "dim-range":
            return self._grid_of(node.source)
        grid = self.plan.grids[number]
        if node.kind == "input":
            return Grid(-max(0, -grid.first), 1, max(0, grid.last), grid.moving)
        return grid

    def _window(self, number: int) -> _Window | None:
        """What a component's convolution reads; None: its input is put together before."""
        shape = self._windows[self.topology.nodes[number].component_name]
        taps = self._taps(number)
        if shape is None or taps is None or shape[0] != len(taps[1]):
            return None
        source, moves = taps
        rows, grid = self._rows[source], self.plan.grids[number]
        stride = 1 if shape[0] > 1 else grid.step // rows.grid.step
        text = _cut(rows, grid, moves[0], moves[-1], stride)
        return _Window(Rows(text, grid), *shape)

    # Descriptors

    def _input(self, number: int, grid: Grid) -> Rows:
        """The input of a component for the rows of its output."""
        offsets = list(getattr(self.topology.nodes[number].component, "time_offsets", [0]))
        name = self.topology.nodes[number].name
        if offsets == [0]:
            return self._joined(number - 1, grid, name)
        inside = self.plan.grids[number - 1]
        whole = self._joined(number - 1, inside, name)
        if whole.still:
            return Rows(f"{whole.text}.repeat(1, {len(offsets)}, 1)", grid, True)
        variable = self._variable(f"{name}_input")
        self.lines.append(f"{variable} = {whole.text}")
        rows = Rows(variable, inside)
        listed = [_cut(rows, grid, o, o, grid.step // inside.step) for o in offsets]
        return Rows(f"torch.cat([{', '.join(listed)}], 1)", grid)

    def _joined(self, number: int, grid: Grid, name: str) -> Rows:
        """What a descriptor node appends, on a grid."""
        parts = [
            self._part(part, grid, name) for part in self.topology.nodes[number].expression().parts
        ]
        if len(parts) == 1:
            return parts[0]
        moving = next((rows for rows in parts if not rows.still), None)
        texts = [rows.text for rows in parts]
        if moving is not None and any(rows.still for rows in parts):
            like = self._variable(f"{name}_rows")
            self.lines.append(f"{like} = {moving.text}")
            texts = [
                f"{rows.text}.expand(-1, -1, {like}.shape[2])"
                if rows.still
                else (like if rows is moving else rows.text)
                for rows in parts
            ]
        return Rows(f"torch.cat([{', '.join(texts)}], 1)", grid, moving is None)

    def _part(self, part: SumDescriptor, grid: Grid, name: str) -> Rows:
        if isinstance(part, ConstantSumDescriptor):
            shape = f"(input.shape[0], {part.columns}, 1)"
            return Rows(f"input.new_full({shape}, {part.value!r})", grid, True)
        if isinstance(part, OptionalSumDescriptor):
            return self._optional(part.src, grid, name)
        if isinstance(part, BinarySumDescriptor):
            if part.op == "Failover":
                if not self.plan.reach_of(part.a).covers(grid):
                    raise NotInTorchError(f"'{name}': Failover depends on the length of the input")
                return self._part(part.a, grid, name)
            a, b = self._part(part.a, grid, name), self._part(part.b, grid, name)
            return Rows(f"({a.text} + {b.text})", grid, a.still and b.still)
        assert isinstance(part, SimpleSumDescriptor)
        terms: list[Rows] = []
        for read in self.plan.reads(part.src):
            here = read.on(grid)
            if here is not None:
                terms.append(self._read(here, grid, name, str(part)))
        text = " + ".join(rows.text for rows in terms)
        still = all(rows.still for rows in terms)
        return Rows(f"({text})" if len(terms) > 1 else text, grid, still)

    def _optional(self, part: SumDescriptor, grid: Grid, name: str) -> Rows:
        """A part where it can be computed, else zeros."""
        border = self.plan.border(self.plan.reach_of(part), grid)
        found = self._part(part, border.inner, name)
        if border.masked or (found.still and (border.left or border.right)):
            raise NotInTorchError(f"'{name}': which optional rows are there depends on the length")
        if border.left or border.right:
            return Rows(f"F.pad({found.text}, ({border.left}, {border.right}))", grid)
        return found

    def _read(self, read: Read, grid: Grid, name: str, part: str) -> Rows:
        rows = self._rows[read.node]
        if rows.still:
            text = rows.text
        elif read.at is not None:
            row = (read.at - rows.grid.first) // rows.grid.step
            text = f"{rows.text}[:, :, {row}:{row + 1}]"
        else:
            offset, stride = read.offset, grid.step // rows.grid.step
            if offset is None or grid.step % rows.grid.step:
                raise NotInTorchError(f"'{name}': '{part}' reads rows that are no plain sequence")
            text = _cut(rows, grid, offset, offset, stride)
        if read.scale != 1:
            text = f"{number_text(read.scale)} * {text}"
        return Rows(text, grid, rows.still or read.at is not None)


def _start(have: Grid, grid: Grid, offset: int) -> int | None:
    start, odd = divmod(grid.first + offset - have.first, have.step)
    return None if odd or start < 0 else start


def _drop(have: Grid, grid: Grid, offset: int) -> int | None:
    drop, odd = divmod(have.last - grid.last - offset, have.step)
    return None if odd or drop < 0 else drop


def _cut(rows: Rows, grid: Grid, first: int, last: int, stride: int) -> str:
    """Rows from that at `first` for the grid's first row to that at `last` for its last one."""
    have = rows.grid
    start, drop = _start(have, grid, first), _drop(have, grid, last)
    if start is None or (grid.moving and (drop is None or not have.moving)):
        raise NotInTorchError(f"'{rows.text}' has no rows {grid} among {have}")
    if not grid.moving:
        stop = start + (grid.rows(0) - 1) * (grid.step // have.step)
        end = str(stop + (last - first) // have.step + 1)
    else:
        end = f"-{drop}" if drop else ""
    if not start and not end and stride == 1:
        return rows.text
    step = f":{stride}" if stride > 1 else ""
    return f"{rows.text}[:, :, {start or ''}:{end}{step}]"


def _unique(name: str, taken: set[str]) -> str:
    """A Python name that is like another, and not yet taken; it is taken then."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name) or "_"
    if plain[0].isdigit() or keyword.iskeyword(plain) or plain.startswith("__"):
        plain = f"n_{plain}"
    found, count = plain, 1
    while found in taken:
        count += 1
        found = f"{plain}_{count}"
    taken.add(found)
    return found
