"""Convolutions over one and two spatial axes without a matrix of all windows.

Each image is laid out once with its channels side by side and zeros around it (where it does not
lie so already), small enough for a cache; see `native/convolution.c` for what is computed from it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...framework.fusion.compiled.arguments import Several, grid
from ...framework.ir.kernel_args import Call, KernelArgs
from . import batch_norm, tile_convolutions, winograd
from .convolution_sums import (
    READ,
    Ends,
    Phase,
    Shapes,
    Target,
    add_sums,
    declines,
    parts_of,
    without_padding,
)
from .images import Work, image, lanes, rooms, steps, suited, threads
from .panels import pack
from .pooling import windows_part
from .tail import Tail, activation

_DEPTHWISE = 2
"""Work of a multiplication where each output has one channel of its own."""
_DEEP = 1024
"""Weights of an output up to which all are added in one pass."""
_FEW_PIXELS = 64
"""Pixels up to which threads share the outputs and not the pixels."""


def conv(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays or the shapes do not suit."""
    x = k["x"]
    w = k["w"]
    b = k.get("b")
    tail = Tail(k)
    if declines(k, x.ndim - 2) or not suited(x, w, b, tail.out) or not tail.fits():
        return None
    s = Shapes(k, x, tail.out, w)
    work = Work(x.dtype)
    filters = w.shape[0] // s.groups
    folds = None if tail.norm is None else batch_norm.folded(tail.norm, work, b, s.groups)
    for group in range(s.groups):
        own = slice(group * filters, (group + 1) * filters)
        ends = Ends(None if b is None else b[own])
        if folds is not None:
            ends = Ends(None, folds[group, 0], folds[group, 1])
        if _in_place(s, tail, b):
            depthwise(k, work, s, ends, tail)
        else:
            forward(k, work, s, group, s.w[own], s.part(s.small, group), ends, tail)
    return work.call()


def _in_place(s: Shapes, tail: Tail, b: Any) -> bool:
    """Whether each output has one channel of its own and the channels lie side by side in vectors,
    so that neither image is copied."""
    together = all(array.strides[1] == array.itemsize for array in (s.large, s.small))
    dilated = max(s.down.dilation, s.right.dilation) > 1
    wide = s.large.shape[1] >= lanes(s.large.dtype)
    plain = s.deep and not dilated and tail.pool is None
    return plain and together and wide and (b is None or b.flags.c_contiguous)


def depthwise(k: KernelArgs, work: Work, s: Shapes, ends: Ends, tail: Tail) -> None:
    """A convolution of which `_in_place` holds, with its tail."""
    work.add(
        *("depthwise", "depthwise", _DEPTHWISE * s.small.size * s.w[0].size),
        **{"windows": windows_part(work, (s.down, s.right), s.large, s.small)},
        **{"x": s.large, "out": s.small, "factors": ends.factors},
        **_row_memory(k, s.small, tail.epilogue(work, s.lift)),
        activation=activation(work, tail.activation),
        panels=pack(k, work, s.w, 0, np.arange(s.w[0].size), keep=not k.train, overlap=True),
        bias=ends.terms if ends.bias is None else ends.bias,
    )


def _row_memory(k: KernelArgs, out: Any, epilogue: Several | None) -> dict[str, Any]:
    """Fields of `depthwise`: the epilogue, and memory of each part for what it reads."""
    memory = None
    if epilogue is not None:
        row = out.shape[1] * out.shape[3]
        memory = k.scratch((rooms(row * out.itemsize), row), out.dtype)
    parts = rooms(0) if memory is None else len(memory)
    return {"epilogue": epilogue, "memory": memory, "threads": parts}


def forward(
    k: KernelArgs,
    work: Work,
    s: Shapes,
    group: int,
    w: Any,
    out: Any,
    ends: Ends,
    tail: Tail | None = None,
) -> None:
    """The convolution of one group, with its tail."""
    x = s.part(s.large, group)
    depth = w[0].size
    others = tile_convolutions, winograd
    faster = next((one for one in others if one.serves(k, s, w, x, out, tail)), None)
    epilogue = other = None
    added = tail and tail.sum()
    # Of weights that are read in several passes out holds the sums meanwhile, and not the other.
    if added and not s.deep and s.groups == 1 and (faster or depth <= _DEEP):
        other = s.lift(added.other)
    elif tail:
        epilogue = tail.epilogue(work, lambda array: s.part(s.lift(array), group))
    relu = other is not None and added is not None and added.relu
    then = activation(work, tail and tail.activation, relu=relu)
    if faster:
        faster.convolve(k, work, s, w, x, out, ends, then, epilogue, other)
        return
    into = Target(out, x.shape[0], then, deep=s.deep, epilogue=epilogue, other=other)
    pooled = tail is not None and tail.pool is not None
    if tail and pooled:
        shape = (1,) * s.lifted + tail.shape[2:]
        count = rooms(prod(shape) * w.shape[0] * x.itemsize)
        memory = k.scratch((count, *shape, w.shape[0]), x.dtype)
        image_of_one = memory[:1].transpose(0, 3, 1, 2)
        pool = tail.pooling(work, image_of_one, out[:1])
        into = Target(image_of_one, x.shape[0], then, pool, memory, out, s.deep)
    plane = into.array.shape[2:]
    parts = parts_of(x.shape[0], max(into.array[0].size * depth, READ * w.size))
    # Of few pixels each thread reads its share of the weights, and none has less than a vector.
    vectors = len(w) // lanes(x.dtype)
    turned = into.array.strides[1] != into.array.itemsize
    sliced = prod(plane) <= _FEW_PIXELS and vectors > 1 and not pooled and not turned
    if sliced:
        parts = min(parts, vectors)
    if tail and pooled:
        parts = tail.parts(parts, max(threads() // x.shape[0], 1))
    ragged = s.deep and x.shape[1] % lanes(x.dtype) != 0  # vectors reach beyond the array
    seen = image(k, work, x, s.frame(plane), at_once=parts > 1, copy=ragged)
    # In training the weights are others in each run.
    panels = pack(k, work, w, 0, np.arange(w[0, 0].size), keep=not k.train)
    phase = Phase(
        s.taps(seen.row, seen.pixel),
        panels,
        s.pixels(seen.row, seen.pixel, plane),
        grid(plane, steps(into.array)[2:]),
    )
    reach = [s.down.span(tap, x.shape[2], plane[0])[0] for tap in range(s.down.kernel)]
    phases = without_padding(phase, reach, plane[0])
    cut = parts, sliced
    add_sums(k, work, seen, phases, s.right.stride * seen.pixel, into, ends, cut, depth)
