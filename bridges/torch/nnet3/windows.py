"""Components that read windows of rows: convolution over time and height, attention, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...nnet3_rows.components import component_net
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.reads import Read
from ..folder import NotInTorchError
from ..formatting import atom
from .descriptors import DescriptorWriter, plus
from .rows import Rows, cut
from .time_height import kernel_of, time_height_layer


def _input(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """The input of a component with zeros where rows are missing, in a variable."""
    name, border = w.topology.nodes[number].name, w.plan.input_of(number, grid)
    assert border is not None
    if border.masked:
        raise NotInTorchError(f"'{name}' may have no row of its input that is there")
    found = w.joined(number - 1, border.inner, name)
    if found.still:
        raise NotInTorchError(f"'{name}' reads rows that are the same at all times")
    grid = border.outer
    found = w.with_border(found, border.left, border.right, grid)
    if found.text.isidentifier():
        return Rows(found.text, grid)
    return Rows(w.assigned(f"{name}_input", found.text), grid)


def _convolution(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """A convolution of images [filters, heights, times]."""
    node = w.topology.nodes[number]
    rows = _input(w, number, grid)
    kernel = kernel_of(node.component, rows.grid.step)
    text = cut(rows, grid, kernel.times[0], kernel.times[-1], 1)
    stride = grid.step // rows.grid.step if grid.moving or grid.rows(0) > 1 else 1
    layer = time_height_layer(node.component, kernel, stride)
    return Rows(w.applied(node, layer, text), grid)


def _attention(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """A softmax over the places of a window, for each head."""
    node = w.topology.nodes[number]
    rows, c = _input(w, number, grid), node.component
    offsets = [(i - c.num_left_inputs) * c.time_stride for i in range(c.context_dim)]
    read = [w.read(rows, Read(-1, 1.0, (offset,)), grid).text for offset in offsets]
    net = component_net(c, node.name, 3)
    return Rows(w.written(w.lines, w.names, net, read), grid)


def _check_times(name: str, grid: Grid, period: int) -> None:
    if not grid.is_on(period):
        raise NotInTorchError(f"'{name}' is read at times that are no multiples of its period")


def _extraction(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """Count, sums and sums of squares of periods."""
    node = w.topology.nodes[number]
    c, rows = node.component, _input(w, number, grid)
    _check_times(node.name, grid, c.output_period)
    text = _sums(w, number, rows, grid, 0, c.output_period)
    return Rows(text if _only_pooled(w, number) else f"{text}.to(input.dtype)", grid)


def _sums(w: DescriptorWriter, number: int, rows: Rows, grid: Grid, first: int, after: int) -> str:
    """A component of sums over windows: from `first` to before `after` around each time."""
    node, have, times = w.topology.nodes[number], rows.grid, w.times(grid)
    net, more = component_net(node.component, node.name, 3), dict[str, str]()
    for end, offset in (("begin", first), ("end", after)):
        row = plus(times, offset - have.first)
        row = f"({row}) // {have.step}" if have.step > 1 else row
        text = f"{atom(row)}.clamp(0, {rows.text}.shape[2])"
        more[f"{net.title}.{end}"] = w.assigned(f"{node.name}_{end}", text)
    return w.written(w.lines, w.names, net, [rows.text], more=more)


def _only_pooled(w: DescriptorWriter, number: int) -> bool:
    """Whether poolings alone read a node, which take doubles."""
    nodes = w.topology.nodes
    readers = [each for each in w.topology.readers_of[number] if each in w.plan.grids]
    return all(
        nodes[each].kind == "descriptor"
        and not nodes[each].is_output
        and nodes[each + 1].component.type == POOLING
        for each in readers
    )


def _pooling(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """Means and deviations of windows."""
    node = w.topology.nodes[number]
    c, rows = node.component, _input(w, number, grid)
    _check_times(node.name, grid, c.input_period)
    text = _sums(w, number, rows, grid, -c.left_context, c.right_context + c.input_period)
    return Rows(f"{text}.to(input.dtype)", grid)


POOLING: Final = "StatisticsPoolingComponent"
WINDOWS: Final[dict[str, Callable[[DescriptorWriter, int, Grid], Rows]]] = {
    "TimeHeightConvolutionComponent": _convolution,
    "RestrictedAttentionComponent": _attention,
    "StatisticsExtractionComponent": _extraction,
    POOLING: _pooling,
}
"""By component type: writes a node of it."""
