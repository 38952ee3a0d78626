"""Components that read windows of rows: convolution over time and height, attention, statistics."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np

from ...nnet3_rows.components import ComponentNet, component_net, pooled_rows
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.plan import Border
from ...nnet3_rows.reads import NotExportedError, Read
from ..files.graph import plain_name
from .emit import F32, Value
from .rows import Rows, Writer


def _input(w: Writer, number: int, border: Border) -> tuple[Rows, Grid]:
    """The input of a component with zeros where rows are missing, and its grid with these."""
    name = f"{w.topology.nodes[number].name}.input"
    if border.masked:
        raise NotExportedError(f"'{name}' may have no row that is there")
    value = w.descriptor(number - 1, border.inner, name)
    grid = border.outer
    value = w.with_border(value, border.left, border.right, grid, name)
    return Rows(w.e.plain(value), grid, name), grid


def write_convolution(w: Writer, number: int, c: Any, grid: Grid, border: Border) -> Value:
    """TimeHeightConvolutionComponent as a convolution of images [filters, heights, times]."""
    e, name = w.e, w.topology.nodes[number].name
    rows, have = _input(w, number, border)
    times, heights = sorted({t for t, _ in c.offsets}), [h for _, h in c.offsets]
    x = w.reader.window(rows, grid, times[0], times[-1])
    images = e.op("Transpose", e.blocks(x, c.height_in, c.num_filters_in), perm=[0, 2, 1, 3])
    step = gcd(*(t - times[0] for t in times)) or have.step
    lowest = min(0, *heights)
    kernel = np.zeros(
        (
            c.num_filters_out,
            c.num_filters_in,
            max(heights) - lowest + 1,
            (times[-1] - times[0]) // step + 1,
        ),
        F32,
    )
    taps = c.linear_params.reshape(c.num_filters_out, len(c.offsets), c.num_filters_in)
    for place, (t, h) in enumerate(c.offsets):
        kernel[:, :, h - lowest, (t - times[0]) // step] = taps[:, place]
    stride = c.height_subsample_out
    seen = (c.height_out - 1) * stride + max(heights) + 1
    below = max(0, seen - c.height_in)
    made = e.op(
        "Conv",
        images,
        e.graph.constant(kernel, f"{name}.weight"),
        e.graph.constant(np.asarray(c.bias_params, F32), f"{name}.bias"),
        name=name,
        pads=[-lowest, 0, below, 0],
        strides=[stride, grid.step // have.step if grid.moving else 1],
        dilations=[1, step // have.step],
    )
    there = (c.height_in - lowest + below - kernel.shape[2]) // stride + 1
    if there > c.height_out:
        ends = (e.graph.ints(0), e.graph.ints(c.height_out), e.graph.ints(2))
        made = e.op("Slice", made, *ends, name=name)
    turned = e.op("Transpose", made, perm=[0, 2, 1, 3], name=name)
    return e.flat(turned, c.output_dim, x.still)


def write_attention(w: Writer, number: int, c: Any, grid: Grid, border: Border) -> Value:
    """RestrictedAttentionComponent, of the rows at each place of its window."""
    rows, _ = _input(w, number, border)
    first = -c.num_left_inputs
    offsets = [(first + place) * c.time_stride for place in range(c.context_dim)]
    read = [w.reader.at(rows, grid, Read(-1, 1.0, (offset,))) for offset in offsets]
    return w.e.written(component_net(c, plain_name(w.topology.nodes[number].name), 3), read)


def _clipped(w: Writer, times: str, have: Grid) -> str:
    """How many rows there are before some times, int64."""
    e, g = w.e, w.e.graph
    moved = e.op("Sub", times, g.ints(have.first))
    if have.step > 1:  # times and rows lie on multiples of the step
        moved = e.op("Div", moved, g.ints(have.step))
    return e.op("Min", e.op("Max", moved, g.ints(0)), w.reader.clock.count(have))


def write_extraction(w: Writer, number: int, c: Any, grid: Grid, border: Border) -> Value:
    """StatisticsExtractionComponent: count, sums and sums of squares of periods."""
    name = w.topology.nodes[number].name
    _check_times(name, grid, c.output_period)
    times = w.reader.clock.times(grid)
    windows = _windows(w, times, border.inner, 0, c.output_period)
    return _statistics(w, component_net(c, plain_name(name), 3), number, border.inner, windows)


def _statistics(
    w: Writer, net: ComponentNet, source: int, have: Grid, windows: tuple[str, str]
) -> Value:
    """Sums over windows of the rows that a component reads."""
    x = w.e.plain(w.descriptor(source - 1, have, net.title))
    if x.still:
        raise NotExportedError(f"'{net.title}' reads a value that is the same at all times")
    ends = (f"{net.title}.{end}" for end in ("begin", "end"))
    value = w.e.written(net, [x], dict(zip(ends, windows, strict=True)))
    return replace(value, name=w.e.cast(value.name, F32))


def _check_times(name: str, grid: Grid, period: int) -> None:
    if not grid.is_on(period):
        raise NotExportedError(f"'{name}' is read at times that are no multiples of its period")


def _windows(w: Writer, times: str, have: Grid, first: int, after: int) -> tuple[str, str]:
    """The first rows of windows around times, and the rows after their last ones."""
    if w.reader.streaming:
        raise NotExportedError("statistics take the future as far as it is there: no streams")
    add = w.e.graph.ints
    begins, ends = (w.e.op("Add", times, add(offset)) for offset in (first, after))
    return _clipped(w, begins, have), _clipped(w, ends, have)


def write_pooling(w: Writer, number: int, c: Any, grid: Grid, border: Border) -> Value:
    """StatisticsPoolingComponent: means and deviations of windows.

    Where it reads an extraction alone, sums are those of the extraction's input.
    """
    name = w.topology.nodes[number].name
    _check_times(name, grid, c.input_period)
    source, have = extraction_of(w, number), border.inner
    if source is None:
        source, net = number, component_net(c, plain_name(name), 3)
    else:
        net = pooled_rows(c, w.topology.nodes[source].component, plain_name(name))
        inner = w.plan.input_of(source, w.plan.grids[source])
        assert inner is not None
        have = inner.inner
    times = w.reader.clock.times(grid)
    windows = _windows(w, times, have, -c.left_context, c.right_context + c.input_period)
    return _statistics(w, net, source, have, windows)


def extraction_of(w: Writer, number: int) -> int | None:
    """The extraction that a pooling reads, and nothing else, in the same periods."""
    read = w.topology.inputs_of[number - 1]
    node = w.topology.nodes[read[0]]
    plain = str(w.topology.nodes[number - 1].expression()) == node.name
    if not plain or node.kind != "component" or node.component.type != EXTRACTION:
        return None
    same = node.component.output_period == w.topology.nodes[number].component.input_period
    return read[0] if same else None


EXTRACTION, POOLING = "StatisticsExtractionComponent", "StatisticsPoolingComponent"
