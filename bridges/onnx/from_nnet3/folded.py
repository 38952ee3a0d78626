"""`FoldedWalk`: a network in test mode as few operators, scales and offsets in its weights."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np

from ....nnet3.graph.loops import Loop
from ....nnet3.language.descriptor import SimpleSumDescriptor, SumDescriptor
from ...nnet3_rows.affine import affine_of, diagonal
from ...nnet3_rows.components import WRITTEN, component_net
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.net import F32, RowsNet, Value
from ...nnet3_rows.plan import Plan
from ...nnet3_rows.reading import Rows
from ...nnet3_rows.reads import Read
from ...nnet3_rows.walk import AT_SEVERAL_TIMES, SPLICED, RowsWalk
from .folding import Folding

_MOST_AGAIN = 3
"""Rows that a layer of a stream computes again in each chunk, at most."""
_FULL = 2
"""A kernel may have that many times more places than taps."""


@dataclass
class _Taps:
    """The weights of an affine component, by what they read.

    Attributes:
        dim: columns of the output.
        bias: [dim] or None.
        name: of the node.
        groups: by the key of rows: them, and weights [dim, columns] by offset.
        scale, shift: [dim], factors of the result and what is added to it then; None: 1 and 0.
        older: of a stream, rows of older chunks that are computed again.
    """

    dim: int
    bias: np.ndarray | None
    name: str
    groups: dict[str, tuple[Rows, dict[int, np.ndarray]]] = field(
        default_factory=dict[str, tuple[Rows, dict[int, np.ndarray]]]
    )
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None
    older: int = 0

    def add(self, rows: Rows, offset: int, weights: np.ndarray) -> None:
        """Add weights [dim, columns] for the rows at an offset."""
        _, taps = self.groups.setdefault(rows.key, (rows, {}))
        offset = 0 if rows.value.still else offset
        taps[offset] = np.add(taps[offset], weights, dtype=float) if offset in taps else weights


class FoldedWalk(RowsWalk):
    """Writes a network for those who run it alone; loops are theirs. Arguments as `RowsWalk`."""

    def __init__(self, plan: Plan, net: RowsNet, source: str, streaming: bool = False) -> None:
        super().__init__(plan, net, source, streaming)
        self.folding = Folding(plan.topology, set(plan.grids))
        self._older_rows: dict[int, int] = {}
        self._again: dict[int, int] = {}

    @abstractmethod
    def loop(self, loop: Loop) -> None: ...

    def source(self, number: int, component: Any) -> Value:
        return self.constant(row_of_source(component), self.topology.nodes[number].name)

    # Components that compute each row from the same row of their input

    def row_by_row(self, number: int, component: Any, grid: Grid) -> Value:
        net = self.net
        name = self.topology.nodes[number].name
        parts = self.parts(number - 1, grid)
        floor = self.folding.floor_of(number)
        if floor is not None:
            read = net.join(parts, name)
            least = net.vector(floor, f"{name}.floor")
            return replace(net.plain(read), name=net("maximum", net.name(read), least, name=name))
        value = self.folding.after(number, self._applied(component, parts, name))
        if self.folding.puts_off(number):
            return net.unshifted(value)
        readers = [each for each in self.topology.readers_of[number] if each in self.plan.grids]
        return net.plain(value) if len(readers) > 1 else value  # put off it would cost digits

    def _applied(self, c: Any, parts: list[Value], name: str) -> Value:
        """The output of a component for values side by side, its input."""
        net = self.net
        transform = diagonal(c)
        if c.type == "CompositeComponent":
            for place, part in enumerate(c.components):
                parts = [self._applied(part, parts, f"{name}.{place}")]
            return parts[0]
        if transform is not None:
            return net.join(parts, name).times(transform[0]).plus(transform[1])
        if c.type in WRITTEN:
            written = component_net(c, name, 3)
            return net.written(written, net.split(parts, list(written.inputs.values()), name))
        if c.type in SPLICED:
            return self.matrix(net.join(parts, name), *affine_of(c), name)
        if c.type == "PermuteComponent":
            value = net.join(parts, name)
            order = np.array(c.column_map, np.int64)
            ids = net.constant(order, f"{name}.order", np.int64)
            return value.picked(net("gather", value.name, ids, axis=1, name=name), order)
        return self.constant(c.output, name)  # ConstantFunctionComponent

    def matrix(self, value: Value, w: np.ndarray, b: Any, name: str) -> Value:
        """w [out, in] times every row, plus b [out] where there is one."""
        w = np.asarray(w, np.float64)
        bias = np.zeros(len(w)) if b is None else np.asarray(b, np.float64)
        if value.offset is not None:
            bias, b = bias + w @ value.offset, bias
        if value.scale is not None:
            w = w * value.scale
        given = [self.net.constant(w[:, :, None], f"{name}.weight")]
        given += [] if b is None else [self.net.constant(bias, f"{name}.bias")]
        return Value(self.net("conv1d", value.name, *given, name=name), len(w), value.still)

    # Affine components: one convolution over the times of each node that they read

    def older(self, number: int) -> int:
        return self._older_rows.get(number, 0)

    def affine(self, number: int, component: Any, grid: Grid) -> Value:
        weights, bias = affine_of(component)
        offsets = list(getattr(component, "time_offsets", [0]))
        taps = _Taps(len(weights), bias, self.topology.nodes[number].name)
        inside = self.plan.grids[number - 1]
        width = weights.shape[1] // len(offsets)
        begin = 0
        for place, part in enumerate(self.topology.nodes[number - 1].expression().parts):
            size = part.dim(self.topology.dims)
            source, read = self._source(number, place, part, inside)
            assert read.offset is not None
            for tap, offset in enumerate(offsets):
                share = weights[:, tap * width + begin : tap * width + begin + size]
                scaled = share if read.scale == 1 else share * np.float64(read.scale)
                taps.add(source, offset + read.offset, scaled)
            begin += size
        taps.scale = self.folding.scale_of(number)
        taps.shift = self.folding.shift_of(number)
        taps.older = self._compute_again(number) if self.reader.streaming else 0
        self._older_rows[number] = taps.older
        return self._write_taps(taps, grid)

    def _source(
        self, number: int, place: int, part: SumDescriptor, grid: Grid
    ) -> tuple[Rows, Read]:
        """Rows that an affine component reads, and where."""
        if isinstance(part, SimpleSumDescriptor):
            reads = [narrowed for read in self.plan.reads(part.src) if (narrowed := read.on(grid))]
            if len(reads) == 1 and reads[0].offset is not None:
                return self.rows[reads[0].node], reads[0]
        name = f"{self.topology.nodes[number].name}.input.{place}"
        return Rows(self.part(part, grid, name), grid, name), Read(-1, 1.0)

    def _compute_again(self, number: int) -> int:
        """Rows of older chunks that an affine component computes again.

        Its only reader is affine, too, so that the rows are few and narrow; then what it reads has
        one cache instead of two.
        """
        known = self._again
        chain = []
        last = number
        while last not in known:
            known[last] = 0
            reader = self._affine_reader(last)
            if reader is None:
                break
            chain.append((last, reader))
            last = reader
        for node, reader in reversed(chain):
            have, wanted = self.plan.grids[node], self.plan.grids[reader]
            kept = self.reader.kept(have, wanted, known[reader])
            known[node] = kept if 0 < kept <= _MOST_AGAIN else 0
        return known[number]

    def _affine_reader(self, number: int) -> int | None:
        """The only reader of an affine component, where it is one that may compute rows again."""
        reader = self.folding.only_reader(number)
        if reader is None or self.topology.nodes[reader].component.type not in SPLICED:
            return None
        parts = self.topology.nodes[number - 1].expression().parts
        return reader if all(isinstance(part, SimpleSumDescriptor) for part in parts) else None

    def _write_taps(self, taps: _Taps, grid: Grid) -> Value:
        """The value of an affine component on a grid."""
        bias = np.zeros(taps.dim) if taps.bias is None else np.asarray(taps.bias, np.float64)
        work: list[tuple[Rows, dict[int, np.ndarray]]] = []
        for rows, listed in taps.groups.values():
            value = rows.value
            if value.offset is not None:
                bias = bias + sum(w @ value.offset for w in listed.values())
            if value.scale is not None:
                listed = {offset: w * value.scale for offset, w in listed.items()}
            if taps.scale is not None:
                listed = {offset: w * taps.scale[:, None] for offset, w in listed.items()}
            bare = Value(value.name, value.dim, value.still)
            work.append((replace(rows, value=bare), listed))
        if taps.scale is not None:
            bias = bias * taps.scale
        if taps.shift is not None:
            bias = bias + taps.shift
        work.sort(key=lambda each: each[0].value.still)  # the bias goes with a moving one
        has_bias = bool(np.any(bias))
        total: Value | None = None
        for rows, listed in work:
            given = bias if has_bias and total is None else None
            part = self._write_group(rows, listed, grid, given, taps)
            total = part if total is None else self.net.add(total, part, taps.name)
        assert total is not None
        return total

    def _write_group(
        self, rows: Rows, listed: dict[int, np.ndarray], grid: Grid, bias: Any, taps: _Taps
    ) -> Value:
        net = self.net
        name = taps.name
        if rows.value.still:
            return self.matrix(rows.value, listed[0], bias, name)
        offsets = sorted(listed)
        regular = all(rows.grid.has_slice(grid, offset) for offset in offsets)
        step = gcd(*(offset - offsets[0] for offset in offsets)) or rows.grid.step
        places = (offsets[-1] - offsets[0]) // step + 1
        if not regular or places > _FULL * len(offsets):
            total: Value | None = None
            for offset in offsets:
                value = self.reader.at(rows, grid, Read(-1, 1.0, (offset,)), taps.older)
                product = self.matrix(value, listed[offset], bias, name)
                bias = None
                total = product if total is None else net.add(total, product, name)
            assert total is not None
            return total
        value = self.reader.window(rows, grid, offsets[0], offsets[-1], taps.older)
        shape = listed[offsets[0]].shape
        if places == 1:  # the network's own array where nothing has changed it
            kernel = np.asarray(listed[offsets[0]], F32)[:, :, None]
        else:
            kernel = np.zeros((*shape, places), F32)
            for offset, weights in listed.items():
                kernel[:, :, (offset - offsets[0]) // step] = weights
        stride = grid.step // rows.grid.step if grid.moving or grid.rows(0) > 1 else 1
        given = [net.constant(kernel, f"{name}.weight")]
        given += [] if bias is None else [net.constant(bias, f"{name}.bias")]
        how = {"stride": [stride], "dilation": [step // rows.grid.step if places > 1 else 1]}
        return Value(net("conv1d", value.name, *given, name=name, **how), shape[0])

    # Convolution over time and height

    def convolution(self, number: int, component: Any, rows: Rows, grid: Grid) -> Value:
        """A convolution of images [filters, heights, times]."""
        net = self.net
        name = self.topology.nodes[number].name
        c = component
        times = sorted({t for t, _ in c.offsets})
        heights = [h for _, h in c.offsets]
        x = self.reader.window(rows, grid, times[0], times[-1])
        step = gcd(*(t - times[0] for t in times)) or rows.grid.step
        lowest = min(0, *heights)
        size = max(heights) - lowest + 1, (times[-1] - times[0]) // step + 1
        kernel = np.zeros((c.num_filters_out, c.num_filters_in, *size), F32)
        taps = c.linear_params.reshape(c.num_filters_out, len(c.offsets), c.num_filters_in)
        for place, (t, h) in enumerate(c.offsets):
            kernel[:, :, h - lowest, (t - times[0]) // step] = taps[:, place]
        stride = c.height_subsample_out
        seen = (c.height_out - 1) * stride + max(heights) + 1
        below = max(0, seen - c.height_in)
        images = net("reshape", net.name(x), shape=[0, c.height_in, c.num_filters_in, -1])
        images = net("transpose", images, perm=[0, 2, 1, 3], name=f"{name}.images")
        given = [
            net.constant(kernel, f"{name}.weight"),
            net.constant(c.bias_params, f"{name}.bias"),
        ]
        how = {
            "padding": [-lowest, 0, below, 0],
            "stride": [stride, grid.step // rows.grid.step if grid.moving else 1],
            "dilation": [1, step // rows.grid.step],
        }
        images_out = net("conv2d", images, *given, name=name, **how)
        if (c.height_in - lowest + below - size[0]) // stride + 1 > c.height_out:
            images_out = net(
                "slice", images_out, axes=[2], starts=[0], ends=[c.height_out], name=name
            )
        turned = net("transpose", images_out, perm=[0, 2, 1, 3], name=name)
        flat = net("reshape", turned, shape=[0, c.output_dim, -1], name=name)
        return Value(flat, c.output_dim, x.still)


def row_of_source(component: Any) -> np.ndarray:
    """The row that a component without an input gives for all times."""
    if component.type == "ConstantComponent":
        return component.output
    sure = component.continuous or component.dropout_proportion == 0
    value = 1.0 if sure else 1.0 - component.dropout_proportion
    return np.full(component.output_dim, value)


_APPLIED = (*SPLICED[:-1], *WRITTEN, "PermuteComponent", "ConstantFunctionComponent")


def why_not(component: Any, is_source: bool = False) -> str:
    """Why a component has no form in test mode; empty where it has."""
    kind = component.type
    if kind == "CompositeComponent":
        return "; ".join(filter(None, (why_not(part) for part in component.components)))
    if is_source and kind == "DropoutMaskComponent":
        still = component.test_mode or component.dropout_proportion == 0
        return "" if still else "DropoutMaskComponent is in training mode: its result is random"
    known = ("ConstantComponent",) if is_source else (*_APPLIED, *AT_SEVERAL_TIMES)
    if kind in known or (not is_source and diagonal(component) is not None):
        return ""
    if kind == "DistributeComponent":
        return (
            f"{kind} reads rows of another x, and an ONNX model has times alone; dim-range nodes"
            " cut columns without it"
        )
    if not is_source and getattr(component, "test_mode", True) is False:
        return f"{kind} is in training mode: its result is random or follows from the batch"
    return f"{kind} has no form in ONNX here"
