"""Components that read windows of rows: convolution over time and height, attention, statistics."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from .emit import F32, Value
from .grids import Grid
from .plan import Border
from .reads import NotExportedError, Read
from .rows import Rows, Writer


def _input(w: Writer, number: int, border: Border) -> tuple[Rows, Grid]:
    """The input of a component with zeros where rows are missing, and its grid with these."""
    name = f"{w.topology.nodes[number].name}.input"
    if border.masked:
        raise NotExportedError(f"'{name}' may have no row that is there")
    value = w.descriptor(number - 1, border.inner, name)
    inner = border.inner
    grid = Grid(
        inner.first - border.left * inner.step,
        inner.step,
        inner.last + border.right * inner.step,
        inner.moving,
    )
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
    """RestrictedAttentionComponent: a softmax over the places of a window, for each head."""
    e, name = w.e, w.topology.nodes[number].name
    rows, _ = _input(w, number, border)
    per_head = [c.key_dim, c.value_dim, c.key_dim, c.context_dim]

    def heads(place: int) -> list[str]:
        """Key, value, query and scores [N, heads, columns, times] of rows at an offset."""
        offset = (place - c.num_left_inputs) * c.time_stride
        x = w.reader.at(rows, grid, Read(-1, 1.0, (offset,)))
        blocks = e.blocks(x, c.num_heads, sum(per_head))
        return e.graph.node("Split", [blocks, e.graph.ints(*per_head)], outputs=4, axis=2)

    read = [heads(place) for place in range(c.context_dim)]
    _, _, query, scores = read[c.num_left_inputs]
    query = e.op("Mul", query, e.number(c.key_scale), name=f"{name}.query")
    products = [
        e.op("ReduceSum", e.op("Mul", query, key), e.graph.ints(2), keepdims=1) for key, *_ in read
    ]
    joined = e.op("Concat", *products, axis=2, name=f"{name}.products")
    weights = e.op("Softmax", e.op("Add", joined, scores), axis=2, name=f"{name}.weights")
    ones = e.graph.ints(*[1] * c.context_dim)
    shares = e.graph.node("Split", [weights, ones], outputs=c.context_dim, axis=2)
    found = ""
    for share, (_, value, *_) in zip(shares, read, strict=True):
        term = e.op("Mul", share, value)
        found = e.op("Add", found, term) if found else term
    if c.output_context:
        found = e.op("Concat", found, weights, axis=2)
    return e.flat(found, c.output_dim, False)


def _sums(w: Writer, x: str, have: Grid, begins: str, ends: str, name: str) -> str:
    """Sums of the rows of x, float64 [N, columns, times], from times `begins` to before `ends`."""
    e, g = w.e, w.e.graph
    total = e.op("CumSum", x, g.constant(np.array(2, np.int64)))
    padded = e.op("Pad", total, g.ints(0, 0, 1, 0, 0, 0), name=f"{name}.totals")
    bounds = [_clipped(w, times, have) for times in (begins, ends)]
    first, last = (e.op("Gather", padded, bound, axis=2) for bound in bounds)
    return e.op("Sub", last, first, name=f"{name}.sums")


def _clipped(w: Writer, times: str, have: Grid) -> str:
    """How many rows there are before some times, int64."""
    e, g = w.e, w.e.graph
    moved = e.op("Sub", times, g.ints(have.first))
    if have.step > 1:  # times and rows lie on multiples of the step
        moved = e.op("Div", moved, g.ints(have.step))
    return e.op("Min", e.op("Max", moved, g.ints(0)), w.reader.clock.count(have))


def _doubles(w: Writer, number: int, have: Grid, squares: bool) -> str:
    """The rows of an extraction's input beside their squares, float64 [N, columns, times].

    Deviations are small differences of large sums, so that float32 would lose them.
    """
    e, name = w.e, w.topology.nodes[number].name
    x = e.plain(w.descriptor(number - 1, have, name))
    if x.still:
        raise NotExportedError(f"'{name}' reads a value that is the same at all times")
    wide = e.op("Cast", x.name, to=_DOUBLE, name=f"{name}.rows")
    if not squares:
        return wide
    return e.op("Concat", wide, e.op("Mul", wide, wide), axis=1, name=f"{name}.with_squares")


def _counts(w: Writer, have: Grid, begins: str, ends: str) -> str:
    """How many rows there are from times `begins` to before `ends`, float64 [rows]."""
    there = w.e.op("Sub", _clipped(w, ends, have), _clipped(w, begins, have))
    return w.e.op("Cast", there, to=_DOUBLE)


def write_extraction(w: Writer, number: int, c: Any, grid: Grid, border: Border) -> Value:
    """StatisticsExtractionComponent: count, sums and sums of squares of periods."""
    e, g, name = w.e, w.e.graph, w.topology.nodes[number].name
    _check_times(name, grid, c.output_period)
    have = border.inner
    begins, ends = _bounds(w, grid, 0, c.output_period)
    sums = _sums(w, _doubles(w, number, have, c.include_variance), have, begins, ends, name)
    one = e.op("Slice", sums, g.ints(0), g.ints(1), g.ints(1))
    counts = e.op("Expand", _counts(w, have, begins, ends), e.op("Shape", one))
    joined = e.op("Concat", counts, sums, axis=1)
    return Value(e.op("Cast", joined, to=_FLOAT, name=name), c.output_dim)


def _check_times(name: str, grid: Grid, period: int) -> None:
    if grid.first % period or (grid.step % period and (grid.moving or grid.rows(0) > 1)):
        raise NotExportedError(f"'{name}' is read at times that are no multiples of its period")


def _bounds(w: Writer, grid: Grid, first: int, behind: int) -> tuple[str, str]:
    """The first times of windows, and the times behind their last ones."""
    if w.reader.streaming:
        raise NotExportedError("statistics take the future as far as it is there: no streams")
    e, g = w.e, w.e.graph
    times = w.reader.clock.times(grid)
    return e.op("Add", times, g.ints(first)), e.op("Add", times, g.ints(behind))


def write_pooling(w: Writer, number: int, c: Any, grid: Grid, border: Border) -> Value:
    """StatisticsPoolingComponent: means and deviations of windows.

    Where it reads an extraction alone, sums are those of the extraction's input.
    """
    e, g, name = w.e, w.e.graph, w.topology.nodes[number].name
    _check_times(name, grid, c.input_period)
    begins, ends = _bounds(w, grid, -c.left_context, c.right_context + c.input_period)
    source = extraction_of(w, number)
    if source is None:
        x = e.plain(w.descriptor(number - 1, border.inner, name))
        wide = e.op("Cast", x.name, to=_DOUBLE)
        whole = _sums(w, wide, border.inner, begins, ends, name)
        sizes = g.ints(1, c.input_dim - 1)
        count, sums = g.node("Split", [whole, sizes], outputs=2, axis=1)
    else:
        extraction = w.topology.nodes[source].component
        inner = w.plan.input_of(source, w.plan.grids[source])
        assert inner is not None
        have = inner.inner
        wide = _doubles(w, source, have, extraction.include_variance)
        sums = _sums(w, wide, have, begins, ends, name)
        count = _counts(w, have, begins, ends)
    means = e.op("Div", sums, count, name=f"{name}.means")
    if c.output_stddevs:
        half = (c.input_dim - 1) // 2
        mean, square = g.node("Split", [means, g.ints(half, half)], outputs=2, axis=1)
        variance = e.op("Sub", square, e.op("Mul", mean, mean))
        floor = g.constant(np.array(c.variance_floor, np.float64))
        spread = e.op("Sqrt", e.op("Max", variance, floor), name=f"{name}.stddevs")
        means = e.op("Concat", mean, spread, axis=1)
    if c.num_log_count_features:
        one = e.op("Slice", means, g.ints(0), g.ints(1), g.ints(1))
        log = e.op("Expand", e.op("Log", count), e.op("Shape", one))
        means = e.op("Concat", *[log] * c.num_log_count_features, means, axis=1)
    return Value(e.op("Cast", means, to=_FLOAT, name=name), c.output_dim)


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
_FLOAT, _DOUBLE = 1, 11  # types of ONNX
