"""The forward function of a network: a line a node, over the time grids of the ONNX export."""

from __future__ import annotations

from collections.abc import Sequence

from ....nnet3.components.base.dependence import NOTHING
from ....nnet3.graph.topology import Topology
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.plan import Plan, needed_by
from ...nnet3_rows.reads import NotExportedError
from ..folder import NotInTorchError
from .affine import Windows, affine_input
from .descriptors import DescriptorWriter
from .layers import AFFINE, affine_layer, source_layer, why_not
from .loops import write_loop
from .rows import Rows
from .sources import NAMES, with_what_they_use
from .windows import WINDOWS


class ForwardWriter(DescriptorWriter):
    """Writes the nodes that some outputs need.

    Args:
        topology: of the network in test mode.
        plan: the rows of its nodes.
        outputs: names of output nodes.

    Attributes:
        arguments: of the function.

    Raises:
        NotInTorchError: parts have no form in PyTorch.
    """

    def __init__(self, topology: Topology, plan: Plan, outputs: Sequence[str]) -> None:
        super().__init__(topology, plan, set(NAMES))
        self.outputs, self.unit = list(outputs), plan.unit
        self.arguments: list[str] = []
        self._write_inputs()
        self._windows = Windows(self)
        for members, _ in topology.stages:
            if members[0] in plan.loops and members[0] in plan.grids:
                write_loop(self, plan.loops[members[0]])
                continue
            for number in members:
                if number in plan.grids and number not in self.rows:
                    self._write_node(number)
        found = {name: self._output(name) for name in outputs}
        if len(found) == 1:
            self.lines.append(f"return {next(iter(found.values()))}")
        else:
            listed = ", ".join(f"{name!r}: {text}" for name, text in found.items())
            self.lines.append(f"return {{{listed}}}")
        self.helpers = with_what_they_use(self.helpers)

    def _output(self, name: str) -> str:
        rows = self.rows[self.topology.number(name)]
        if rows.still and not self.plan.whole:
            count = self.count(rows.grid)
            return f"{rows.text}.transpose(1, 2).expand(-1, {count}, -1)"
        return f"{rows.text}.transpose(1, 2)"

    def _write_inputs(self) -> None:
        number = self.topology.index.get("input")
        if number is None or number not in self.plan.grids:
            raise NotInTorchError("no output depends on 'input'")
        grid = self.plan.grids[number]
        if not grid.moving:
            raise NotInTorchError("the frames that are read do not follow the length of the input")
        self.arguments.append(self.variable("input"))
        left, right = max(0, -grid.first), max(0, grid.last)
        turned = "input.transpose(1, 2)"
        if left or right:
            turned = f'F.pad({turned}, ({left}, {right}), mode="replicate")'
        if self.plan.exact_end and self.unit > 1:
            more = left + right + 1
            turned = f"{turned}[:, :, : {self.end()} + {more}]"
        self.set(number, "frames", turned, Grid(-left, 1, right))
        number = self.topology.index.get("ivector")
        if number is not None and number in self.plan.grids:
            self.arguments.append(self.variable("ivector"))
            self.rows[number] = Rows("ivector[:, :, None]", self.plan.grids[number], True)

    def _write_node(self, number: int) -> None:
        node, grid = self.topology.nodes[number], self.plan.grids[number]
        if node.kind == "dim-range":
            source = self.rows[node.source]
            end = node.dim_offset + node.dim
            text = f"{source.text}[:, {node.dim_offset}:{end}]"
            self.set(number, node.name, text, source.grid, source.still)
        elif node.kind == "component":
            self._write_component(number, grid)
        elif node.is_output:
            found = self.joined(number, grid, node.name)
            self.set(number, node.name, found.text, grid, found.still)

    def _write_component(self, number: int, grid: Grid) -> None:
        node = self.topology.nodes[number]
        kind = node.component.type
        if node.reads is NOTHING:
            ones = f"input.new_ones(input.shape[0], {node.dim}, {self.count(grid)})"
            text = self.applied(node, source_layer(node.component), ones)
            self.set(number, node.name, text, grid)
            return
        if kind in WINDOWS:
            rows = WINDOWS[kind](self, number, grid)
            self.set(number, node.name, rows.text, grid, rows.still)
            return
        window = self._windows.of(number) if kind in AFFINE else None
        if window is not None:
            layer = affine_layer(node.component, window.taps, window.stride, window.dilation)
            source = window.source
        elif kind in AFFINE:
            source = affine_input(self, number, grid)
            layer = affine_layer(node.component, 1)
        else:
            dims = [self.topology.nodes[number - 1].dim]
            if self.takes_parts(number):
                parts = self.parts(number - 1, grid, node.name)
                dims = self.columns(number - 1)
            else:
                parts = [self.joined(number - 1, grid, node.name)]
            given = [(rows.text, dim) for rows, dim in zip(parts, dims, strict=True)]
            text = self.component(self.lines, self.names, node, given, 3)
            self.set(number, node.name, text, grid, all(rows.still for rows in parts))
            return
        text = self.applied(node, layer, source.text)
        self.set(number, node.name, text, grid, source.still)


def written_forward(
    topology: Topology,
    context: tuple[int, int],
    outputs: Sequence[str],
    unit: int,
    whole: bool = False,
) -> ForwardWriter:
    """The forward function of a network.

    Args:
        topology: of the network in test mode.
        context: of the network, left and right.
        outputs: names of output nodes.
        unit: frames for one row of output.
        whole: the outputs are one row for all frames, and nothing is repeated at the ends.

    Raises:
        NotInTorchError: rows of the network have no form in PyTorch.
    """
    exact = False
    try:
        while True:  # again where it turns out that the exact end matters
            plan = Plan(topology, unit, *context, whole, exact_end=exact)
            plan.make([topology.number(name) for name in outputs])
            written = ForwardWriter(topology, plan, outputs)
            if plan.exact_end == exact:
                return written
            exact = plan.exact_end
    except NotExportedError as error:
        raise NotInTorchError(f"the network has no form in PyTorch: {error}") from None


def refuse_unknown(topology: Topology, outputs: Sequence[str]) -> None:
    """Refuse inputs and components that have no form in PyTorch.

    Raises:
        NotInTorchError: there are some; all are named.
    """
    told: list[str] = []
    for number in sorted(needed_by(topology, [topology.number(name) for name in outputs])):
        node = topology.nodes[number]
        if node.kind == "input" and node.name not in ("input", "ivector"):
            told.append(f"input '{node.name}': only 'input' and 'ivector' are known")
        elif node.kind == "component" and node.component.type not in WINDOWS:
            if reason := why_not(node.component):
                told.append(f"'{node.name}': {reason}")
    if told:
        raise NotInTorchError("the network has no form in PyTorch: " + "; ".join(told))
