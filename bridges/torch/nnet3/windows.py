"""Components that read windows of rows: convolution over time and height, attention, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...onnx.from_nnet3.grids import Grid
from ...onnx.from_nnet3.reads import Read
from ..folder import NotInTorchError
from .descriptors import DescriptorWriter
from .layer import Layer, number_text
from .rows import Rows, cut
from .time_height import kernel_of, time_height_layer


def _input(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """The input of a component with zeros where rows are missing, in a variable."""
    name, border = w.topology.nodes[number].name, w.plan.input_of(number, grid)
    assert border is not None
    if border.masked:
        raise NotInTorchError(f"'{name}' may have no row of its input that is there")
    inner = border.inner
    found = w.joined(number - 1, inner, name)
    if found.still:
        raise NotInTorchError(f"'{name}' reads rows that are the same at all times")
    grid = Grid(
        inner.first - border.left * inner.step,
        inner.step,
        inner.last + border.right * inner.step,
        inner.moving,
    )
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
    options = f"{c.num_heads}, {c.key_dim}, {c.value_dim}, {c.num_left_inputs}"
    options += f", {c.context_dim - c.num_left_inputs - 1}, key_scale={number_text(c.key_scale)}"
    options += ", output_context=True" if c.output_context else ""
    layer = Layer(f"RestrictedAttention({options})", helper="RestrictedAttention")
    return Rows(w.applied(node, layer, f"[{', '.join(read)}]"), grid)


def _check_times(name: str, grid: Grid, period: int) -> None:
    if grid.first % period or (grid.step % period and (grid.moving or grid.rows(0) > 1)):
        raise NotInTorchError(f"'{name}' is read at times that are no multiples of its period")


def _extraction(w: DescriptorWriter, number: int, grid: Grid) -> Rows:
    """Count, sums and sums of squares of periods."""
    node = w.topology.nodes[number]
    c, rows = node.component, _input(w, number, grid)
    _check_times(node.name, grid, c.output_period)
    w.helpers.add("window_sums")
    options = [] if c.include_variance else ["variance=False"]
    options = [str(c.output_period), *options]
    layer = Layer(f"StatisticsExtraction({', '.join(options)})", helper="StatisticsExtraction")
    given = f"{rows.text}, {w.times(grid)}, {rows.grid.first}, {rows.grid.step}"
    text = w.applied(node, layer, given)
    return Rows(text if _only_pooled(w, number) else f"{text}.to(input.dtype)", grid)


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
    w.helpers.add("window_sums")
    options = f"{c.left_context}, {c.right_context}, {c.input_period}"
    options += f", logs={c.num_log_count_features}" if c.num_log_count_features else ""
    if c.output_stddevs:
        options += f", deviations=True, variance_floor={number_text(c.variance_floor)}"
    layer = Layer(f"StatisticsPooling({options})", helper="StatisticsPooling")
    given = f"{rows.text}, {w.times(grid)}, {rows.grid.first}, {rows.grid.step}"
    return Rows(f"{w.applied(node, layer, given)}.to(input.dtype)", grid)


POOLING: Final = "StatisticsPoolingComponent"
WINDOWS: Final[dict[str, Callable[[DescriptorWriter, int, Grid], Rows]]] = {
    "TimeHeightConvolutionComponent": _convolution,
    "RestrictedAttentionComponent": _attention,
    "StatisticsExtractionComponent": _extraction,
    POOLING: _pooling,
}
"""By component type: writes a node of it."""
