"""Affine components: one convolution over the times of each node that they read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np

from ...nnet3_rows.grids import Grid
from ...nnet3_rows.reads import Read
from .emit import F32, Emitter, Value
from .rows import RowReader, Rows
from .rowwise import matrix

_FULL = 2
"""A kernel may have that many times more places than taps."""


@dataclass
class Taps:
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


def write_taps(e: Emitter, reader: RowReader, taps: Taps, grid: Grid) -> Value:
    """The value of an affine component on a grid."""
    bias = np.zeros(taps.dim) if taps.bias is None else np.asarray(taps.bias, np.float64)
    factor = None if taps.scale is None else taps.scale[:, None]
    work: list[tuple[Rows, dict[int, np.ndarray]]] = []
    for rows, listed in taps.groups.values():
        value = rows.value
        if value.offset is not None:
            bias = bias + sum(w @ value.offset for w in listed.values())
        if value.scale is not None:
            listed = {offset: w * value.scale for offset, w in listed.items()}
        bare = replace(rows, value=Value(value.name, value.dim, value.still))
        if factor is not None:
            listed = {offset: w * factor for offset, w in listed.items()}
        work.append((bare, listed))
    if taps.scale is not None:
        bias = bias * taps.scale
    if taps.shift is not None:
        bias = bias + taps.shift
    work.sort(key=lambda each: each[0].value.still)  # the bias goes with a moving one
    has_bias = bool(np.any(bias))
    total: Value | None = None
    for rows, listed in work:
        given = bias if has_bias and total is None else None
        found = _write_group(e, reader, rows, listed, grid, given, taps)
        total = found if total is None else e.add(total, found, taps.name)
    assert total is not None
    return total


def _write_group(
    e: Emitter,
    reader: RowReader,
    rows: Rows,
    listed: dict[int, np.ndarray],
    grid: Grid,
    bias: Any,
    taps: Taps,
) -> Value:
    name = taps.name
    if rows.value.still:
        return matrix(e, rows.value, listed[0], bias, name)
    offsets = sorted(listed)
    regular = all(rows.grid.has_slice(grid, offset) for offset in offsets)
    step = gcd(*(offset - offsets[0] for offset in offsets)) or rows.grid.step
    places = (offsets[-1] - offsets[0]) // step + 1
    if not regular or places > _FULL * len(offsets):
        total: Value | None = None
        for offset in offsets:
            value = reader.at(rows, grid, Read(-1, 1.0, (offset,)), taps.older)
            found = matrix(e, value, listed[offset], bias, name)
            bias = None
            total = found if total is None else e.add(total, found, name)
        assert total is not None
        return total
    value = reader.window(rows, grid, offsets[0], offsets[-1], taps.older)
    shape = listed[offsets[0]].shape
    if places == 1:  # the network's own array where nothing has changed it
        kernel = np.asarray(listed[offsets[0]], F32)[:, :, None]
    else:
        kernel = np.zeros((*shape, places), F32)
        for offset, weights in listed.items():
            kernel[:, :, (offset - offsets[0]) // step] = weights
    stride = grid.step // rows.grid.step if grid.moving or grid.rows(0) > 1 else 1
    made = e.op(
        "Conv",
        value.name,
        e.graph.constant(kernel, f"{name}.weight"),
        None if bias is None else e.graph.constant(bias.astype(F32), f"{name}.bias"),
        name=name,
        dilations=None if places == 1 else [step // rows.grid.step],
        strides=None if stride == 1 else [stride],
    )
    return Value(made, shape[0])
