"""Convolutions over one and two spatial axes without a matrix of all windows.

Each image is laid out once with its channels side by side and zeros around it (where it does not
lie so already), small enough for a cache; see `native/convolution.c` for what is computed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...framework.fusion.arguments import Block, Several
from ...framework.fusion.team import ParallelTask, aligned
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.runtime.plans.memory import as_view, memory_of, padded
from ..conv.windows import Axis, make_axes
from . import batch_norm
from .images import Frame, Image, Work, image, lanes, nothing, rooms, steps, suited, threads
from .pooling import windows_part
from .tail import Tail, activation

_FEWEST = 4
"""Channels or filters of a group from which a vector of them is worth its other lanes."""
_CACHE = 24 << 10
"""Bytes of image and gradient that are gone over again and again for sums."""
_LEAST = 128
"""Pixels that are gone over at least, as all sums pass by for each such piece."""
_MANY = 512
"""Channels of image and gradient together from which it is twice as many."""
_FULL = 0.8
"""Share of multiplications with what is no padding from which the others are not left out."""
_BLOCK = 32 << 10
"""Bytes of results that are turned, or that an epilogue reads, at a time."""
_TILES = 48
"""Pixels of whole tiles, of whatever height."""
_PART = 1 << 16
"""Multiplications from which a part of an image is worth being one."""
_READ = 8
"""Work of reading a weight: where pixels are few it takes longer than the multiplications."""
_DEPTHWISE = 2
"""Work of a multiplication where each output has one channel of its own."""
_FEW_PIXELS = 64
"""Pixels up to which threads share the outputs and not the pixels."""


class _Shapes:
    """Arrays and windows of one kernel, one-dimensional ones lifted to [N, C, 1, L]."""

    def __init__(self, k: KernelArgs, large: Any, small: Any, w: Any) -> None:
        axes = make_axes(k.attrs, k.shape("w")[2:], k.shape("x")[2:])
        self.lifted = len(axes) == 1
        self.down, self.right = (Axis(1), *axes) if self.lifted else axes
        self.groups = k.attrs["groups"]
        self.large, self.small, self.w = map(self.lift, (large, small, w))
        self.deep = self.groups > 1 and w.shape[1] == 1 and self.groups == w.shape[0]
        if self.deep:  # all groups at once, lane by lane
            self.groups = 1

    def lift(self, array: Any) -> Any:
        return array[:, :, None] if array is not None and self.lifted else array

    def part(self, array: Any, group: int) -> Any:
        """The channels of a group."""
        size = array.shape[1] // self.groups
        return array[:, group * size : (group + 1) * size]

    def taps(self, row: int, pixel: int) -> np.ndarray:
        """Places of the taps, row by row, where the image's pixels have these distances."""
        down = np.arange(self.down.kernel)[:, None] * self.down.dilation * row
        return (down + np.arange(self.right.kernel) * self.right.dilation * pixel).reshape(-1)

    def pixels(self, row: int, pixel: int, shape: Sequence[int]) -> np.ndarray:
        """Places of the first tap at each position of the small array's `shape`."""
        down = np.arange(shape[0])[:, None] * self.down.stride * row
        return (down + np.arange(shape[1]) * self.right.stride * pixel).reshape(-1)

    def frame(self, shape: Sequence[int]) -> Frame:
        """The frame that the windows at all positions of the small array's `shape` read."""
        high, wide = (
            (count - 1) * axis.stride + axis.extent
            for axis, count in zip((self.down, self.right), shape, strict=True)
        )
        return Frame(high, wide, self.down.before, self.right.before)


def _declines(k: KernelArgs, rank: int) -> bool:
    """Whether the convolution is better off with matrix products."""
    filters, channels = k.shape("w")[:2]
    groups = k.attrs["groups"]
    deep = groups == filters > _FEWEST and channels == 1
    few = min(filters // groups, channels if groups > 1 else filters) < _FEWEST
    return rank > 2 or (few and not deep)


def conv(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays or the shapes do not suit."""
    x = k["x"]
    w = k["w"]
    b = k.get("b")
    tail = Tail(k)
    if _declines(k, x.ndim - 2) or not suited(x, w, b, tail.out) or not tail.fits():
        return None
    s = _Shapes(k, x, tail.out, w)
    work = Work(x.dtype)
    filters = w.shape[0] // s.groups
    fold = None if tail.norm is None else batch_norm.folded(tail.norm, work)
    for group in range(s.groups):
        own = slice(group * filters, (group + 1) * filters)
        ends = _Ends(None if b is None else b[own])
        if fold is not None:
            ends = _Ends(None, *fold(own, ends.bias))
        if _in_place(s, tail, b):
            depthwise(k, work, s, ends, tail)
        else:
            forward(k, work, s, group, s.w[own], ends, tail)
    return work.call()


def _in_place(s: _Shapes, tail: Tail, b: Any) -> bool:
    """Whether each output has one channel of its own and the channels lie side by side in vectors,
    so that neither image is copied."""
    together = all(array.strides[1] == array.itemsize for array in (s.large, s.small))
    dilated = max(s.down.dilation, s.right.dilation) > 1
    wide = s.large.shape[1] >= lanes(s.large.dtype)
    plain = s.deep and not dilated and tail.pool is None
    return plain and together and wide and (b is None or b.flags.c_contiguous)


def depthwise(k: KernelArgs, work: Work, s: _Shapes, ends: _Ends, tail: Tail) -> None:
    """A convolution of which `_in_place` holds, with its tail."""
    work.add(
        *("depthwise", "depthwise", _DEPTHWISE * s.small.size * s.w[0].size),
        **{"windows": windows_part(work, (s.down, s.right), s.large, s.small)},
        **{"x": s.large, "out": s.small, "factors": ends.factors},
        **_row_memory(k, s.small, tail.epilogue(work, s.lift)),
        activation=activation(work, tail.activation),
        panels=_pack(k, work, s.w, 0, np.arange(s.w[0].size), keep=not k.train, overlap=True),
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


class _Ends(NamedTuple):
    """What else makes a result of a sum.

    Attributes:
        bias: of the outputs, or None. factors, terms: the same, with zeros to whole vectors.
    """

    bias: Any
    factors: Any = None
    terms: Any = None


def forward(
    k: KernelArgs, work: Work, s: _Shapes, group: int, w: Any, ends: _Ends, tail: Tail
) -> None:
    """The convolution of one group, with its tail."""
    x, out = s.part(s.large, group), s.part(s.small, group)
    epilogue = tail.epilogue(work, lambda array: s.part(s.lift(array), group))
    then = activation(work, tail.activation)
    into = _Target(out, x.shape[0], then, deep=s.deep, epilogue=epilogue)
    if tail.pool is not None:
        shape = (1,) * s.lifted + tail.shape[2:]
        count = rooms(prod(shape) * w.shape[0] * x.itemsize)
        memory = k.scratch((count, *shape, w.shape[0]), x.dtype)
        image_of_one = memory[:1].transpose(0, 3, 1, 2)
        pool = tail.pooling(work, image_of_one, out[:1])
        into = _Target(image_of_one, x.shape[0], then, pool, memory, out, s.deep)
    plane = into.array.shape[2:]
    depth = w[0].size
    parts = _parts(x.shape[0], max(into.array[0].size * depth, _READ * w.size))
    # Of few pixels each thread reads its share of the weights, and none has less than a vector.
    vectors = len(w) // lanes(x.dtype)
    turned = into.array.strides[1] != into.array.itemsize
    sliced = prod(plane) <= _FEW_PIXELS and vectors > 1 and tail.pool is None and not turned
    if sliced:
        parts = min(parts, vectors)
    if tail.pool is not None:
        parts = tail.parts(parts, max(threads() // x.shape[0], 1))
    ragged = s.deep and x.shape[1] % lanes(x.dtype) != 0  # vectors reach beyond the array
    seen = image(k, work, x, s.frame(plane), at_once=parts > 1, copy=ragged)
    # In training the weights are others in each run.
    panels = _pack(k, work, w, 0, np.arange(w[0, 0].size), keep=not k.train)
    phase = _Phase(
        s.taps(seen.row, seen.pixel),
        panels,
        s.pixels(seen.row, seen.pixel, plane),
        _places(into.array, slice(None), slice(None)),
    )
    reach = [s.down.span(tap, x.shape[2], plane[0])[0] for tap in range(s.down.kernel)]
    phases = _without_padding(phase, reach, plane[0])
    cut = parts, sliced
    _run(k, work, seen, phases, s.right.stride * seen.pixel, into, ends, cut, depth)


@dataclass(frozen=True)
class _Target:
    """What a convolution writes.

    Attributes:
        array: the images; where a pooling follows, one image in a thread's memory.
        batch: number of images. activation: what follows.
        pool: of one image, or None; `memory`: of all threads, for it; `pooled`:
            what it writes.
        deep: each output has one channel of its own.
        epilogue: the loop over its results, or None.
    """

    array: Any
    batch: int
    activation: Block
    pool: Several | None = None
    memory: Any = None
    pooled: Any = None
    deep: bool = False
    epilogue: Several | None = None


@dataclass(frozen=True)
class _Phase:
    """Outputs that the same taps go into.

    Attributes:
        taps: their places. panels: weights of these taps, and perhaps of more around them.
        pixels: places in the image. places: in what is written. first: tap among the panels.
    """

    taps: Any
    panels: Any
    pixels: Any
    places: Any
    first: int = 0


def _without_padding(phase: _Phase, reach: Sequence[slice], rows: int) -> list[_Phase]:
    """The phase without the rows of taps that meet nothing but padding, where that pays.

    Args:
        reach: the rows of positions where each row of taps meets the image. rows: of positions.
    """
    met = sum(part.stop - part.start for part in reach)
    if not reach or met > _FULL * rows * len(reach):
        return [phase]
    width = len(phase.pixels) // rows
    across = len(phase.taps) // len(reach)
    taken = [
        [tap for tap, part in enumerate(reach) if part.start <= row < part.stop]
        for row in range(rows)
    ]
    phases = []
    begin = 0
    for row in range(1, rows + 1):
        if row < rows and taken[row] == taken[begin]:
            continue
        own = taken[begin]
        pixels = slice(begin * width, row * width)
        first, end = (own[0] * across, (own[-1] + 1) * across) if own else (0, 0)
        phases.append(
            _Phase(
                phase.taps[first:end],
                phase.panels,
                phase.pixels[pixels],
                phase.places[pixels],
                first,
            )
        )
        begin = row
    return phases


def _parts(batch: int, work: int) -> int:
    """Into how many parts an image is cut, so that all threads get some."""
    # Whole images then: a part reads rows around it that its neighbors read, too.
    if batch >= 2 * threads() or threads() == 1:
        return 1
    return max(1, min(8 * threads() // batch, work // _PART))


def _pack(
    k: KernelArgs,
    work: Work,
    w: Any,
    side: int,
    taps: Any,
    *,
    keep: bool = False,
    overlap: bool = False,
) -> np.ndarray:
    """Panels [vectors, taps, inner, lanes] of weights [O, C, *K] for outs along axis `side`.

    Args:
        taps: numbers of those that are wanted, row by row.
        keep: memory of their own, which is filled again only when the weights have changed: the
            frame knows when, or else the weights are compared with what they were.
        overlap: the last vector has the last outs, and not zeros after them.
    """
    outs = w.shape[side]
    inner = w.shape[1 - side]
    size = lanes(w.dtype)
    so, si, down, right = (steps(w)[axis] for axis in (side, 1 - side, 2, 3))
    places = taps // w.shape[3] * down + taps % w.shape[3] * right
    shape = -(-outs // size), len(taps), inner, size
    known = getattr(k.frame, "kept", None) if keep else None
    if known is not None and known.holds(w):
        panels = known.get(
            w,
            (side, tuple(taps), overlap),
            int(np.prod(shape)) * w.itemsize,
            lambda: _packing(w, (outs, inner, so, si), places, shape, overlap),
        )
        if panels is not None:
            return panels
    old = None
    kept = keep and side == 0 and w.flags.c_contiguous
    if kept:
        panels, old = _compared(w, shape, (side, tuple(taps), overlap))
    else:
        panels = k.scratch(shape, w.dtype)
    _add_packing(work, w, (outs, inner, so, si), places, panels, old, overlap=overlap)
    return panels


def _add_packing(
    work: Work,
    w: Any,
    sizes: tuple[int, ...],
    places: np.ndarray,
    panels: Any,
    old: Any = None,
    *,
    overlap: bool = False,
) -> None:
    """Have panels filled; see `_pack`.

    Args:
        sizes: outs and inner, and their steps. places: of the taps.
        old: what the panels were made of before, or None.
    """
    fields = dict(zip(("outs", "inner", "out_step", "in_step"), sizes, strict=True))
    places = np.asarray(places, np.int64)
    work.add(
        *("convolution", "pack_weights", w.size),
        **{"w": w, "taps": len(places), "places": places, "old": old, **fields},
        **{"panels": panels, "panel": panels[0].size, "overlap": overlap},
    )


def _compared(w: Any, shape: tuple[int, ...], how: Any) -> tuple[np.ndarray, np.ndarray]:
    """Memory for panels, and for the weights that they were made of; frames share both."""
    room = padded(int(np.prod(shape)) * w.itemsize)

    def make() -> np.ndarray:
        memory = aligned(room + w.nbytes)
        memory.view(w.dtype)[:] = np.nan  # bytes that no weights are likely to have
        return memory

    memory = memory_of(("panels", w.ctypes.data, w.shape, w.dtype, shape, how), make)
    return as_view(memory, (shape, w.dtype)), memory[room : room + w.nbytes].view(w.dtype)


def _packing(
    w: Any, sizes: tuple[int, ...], places: np.ndarray, shape: tuple[int, ...], overlap: bool
) -> tuple[np.ndarray, ParallelTask]:
    """Panels of weights and the task that fills them; `sizes`: outs and inner, and their steps."""
    work = Work(w.dtype)
    panels = aligned(int(np.prod(shape)) * w.itemsize).view(w.dtype).reshape(shape)
    _add_packing(work, w, sizes, places, panels, overlap=overlap)
    return panels, work.task()


def _places(array: Any, rows: slice, columns: slice) -> np.ndarray:
    """Places of an image's pixels, some rows and columns of it."""
    *_, down, right = steps(array)
    height, width = (np.arange(size) for size in array.shape[2:])
    return (height[rows, None] * down + width[columns] * right).reshape(-1)


def _run(
    k: KernelArgs,
    work: Work,
    seen: Image,
    phases: Sequence[_Phase],
    step: int,
    into: _Target,
    ends: _Ends,
    cut: tuple[int, bool],
    depth: int,
) -> None:
    """The sums of all phases, times the factors, plus bias and terms.

    Args:
        cut: the number of parts of an image, and whether these are of outputs.
    """
    out = into.array
    outs = into.array.shape[1]
    dtype = into.array.dtype
    sn, sc = steps(out)[:2]
    bias, b = ends.terms, ends.bias
    size = lanes(dtype)
    if b is not None and outs % size == 0 and b.flags.c_contiguous:
        bias = b
    elif b is not None:
        bias = k.scratch((-(-outs // size) * size,), dtype)
        _add_packing(work, b, (outs, 1, *steps(b), 0), np.zeros(1), bias.reshape(-1, size))
    memory = None
    room = block = 0
    turned = sc != 1 and outs > 1
    span = max(int(phase.places.max(initial=0)) for phase in phases) + 1
    if into.pool is not None:
        memory = into.memory
        room = into.memory[0].size
        span = 1
        out = into.pooled
        sn = steps(into.pooled)[0]
        turned = False
    elif turned or into.epilogue is not None:
        block = max(_BLOCK // (outs * dtype.itemsize * _TILES), 1) * _TILES
        room = block * outs
        memory = k.scratch((rooms(room * dtype.itemsize), room), dtype)
    bound = []
    for phase in phases:
        vectors, _, inner, _ = phase.panels.shape
        taps = np.asarray(phase.taps, np.int64)
        panels = phase.panels[:, phase.first :]
        here = np.asarray(phase.places, np.int64)
        one = work.bind(
            *("convolution", "phase"),
            **{"vectors": vectors, "inner": inner, "taps": len(taps), "tap_places": taps},
            **{"panels": panels, "panel": phase.panels[0].size, "pixels": len(here)},
            pixel_places=np.asarray(phase.pixels, np.int64),
            memory_places=np.arange(len(here), dtype=np.int64) * outs if block else here,
            places=here,
            **{"depth": outs if into.deep else inner, "image_span": seen.span},
        )
        bound.append(one)
    most = rooms(0) if memory is None else len(memory)
    if seen.part.struct.copied:
        most = min(most, seen.part.struct.count)
    fields: dict[str, Any] = {"images": into.batch, "threads": most}
    fields |= dict(zip(("parts", "sliced"), cut, strict=True))
    fields |= {"channels": phases[0].panels.shape[2], "outs": outs}
    fields |= {"activation": into.activation}
    fields |= {"bias": bias, "factors": ends.factors, "image": seen.part, "deep": into.deep}
    fields |= {"out": out, "out_image": sn, "out_channel": sc, "span": span, "step": step}
    fields |= {"memory": memory, "room": room, "block": block, "pool": into.pool}
    fields |= {"epilogue": into.epilogue}
    fields |= {"count": len(bound), "phases": Several.of(bound)}
    read = sum(phase.panels.size for phase in phases)
    amount = max(into.batch * into.array[0].size * depth, _READ * read)
    work.add("convolution", "conv", amount, **fields)


# -- gradients -----------------------------------------------------------------------------------


def conv_grad(k: KernelArgs) -> Call | None:
    """Gradients; None where the arrays or the shapes do not suit."""
    grad = k["out_grad"]
    w = k["w"]
    x_grad = k.get("x_grad")
    w_grad, b_grad = k.get("w_grad"), k.get("b_grad")
    x = k["x"] if w_grad is not None else None
    if _declines(k, grad.ndim - 2) or not suited(grad, w, x, x_grad, w_grad, b_grad):
        return None
    s = _Shapes(k, x if x is not None else x_grad, grad, w)
    work = Work(grad.dtype)
    # Vectors are of input channels there: of three, as an image has, most lanes would be idle.
    if x_grad is not None and w.shape[1] < _FEWEST and not s.deep:
        return None
    filters = w.shape[0] // s.groups
    for group in range(s.groups):
        own = slice(group * filters, (group + 1) * filters)
        if w_grad is not None or b_grad is not None:
            of_w = None if w_grad is None else s.lift(w_grad)[own]
            by_weights(k, work, s, group, of_w, None if b_grad is None else b_grad[own])
        if x_grad is not None:
            target = s.part(s.lift(x_grad), group)
            by_data(k, work, s, s.part(s.small, group), s.w[own], target)
    return work.call()


def by_weights(k: KernelArgs, work: Work, s: _Shapes, group: int, w_grad: Any, b_grad: Any) -> None:
    """Gradients of one group by its weights and its bias."""
    grad = s.part(s.small, group)
    dtype = s.small.dtype
    (batch, outs), shape = grad.shape[:2], grad.shape[2:]
    room = -(-outs // lanes(dtype)) * lanes(dtype)
    if w_grad is None:  # the bias alone: no rows of weights
        x = grad
        seen = nothing(work, grad)
        at = places = np.zeros(0, np.int64)
        step = 0
    else:
        x = s.part(s.large, group)
        ragged = s.deep and room != outs
        seen = image(k, work, x, s.frame(shape), at_once=False, copy=ragged)
        channels = np.arange(1 if s.deep else x.shape[1])
        at = (s.taps(seen.row, seen.pixel)[:, None] + channels).reshape(-1)
        so, si, down, right = steps(w_grad)
        taps = np.arange(w_grad[0, 0].size)
        places = taps // w_grad.shape[3] * down + taps % w_grad.shape[3] * right
        places = (places[:, None] + channels * si).reshape(-1)
        step = so
    plane = Frame(shape[0], shape[1], 0, 0)
    # The vector of the last pixel may reach beyond the array: it is read from a copy then.
    given = image(k, work, grad, plane, at_once=False, rows=True, copy=room != outs)
    parts = min(batch, threads())
    pixels = s.pixels(seen.row, seen.pixel, shape)
    sums = k.scratch((parts, len(at) + 1, room), dtype)
    depth = x.shape[1] + room
    few = max(_CACHE // dtype.itemsize // depth, _LEAST * (2 if depth >= _MANY else 1))
    work.add(
        "convolution",
        "sums_of",
        grad.size * len(at),
        **{"parts": parts, "images": batch, "threads": threads(), "rows": len(at)},
        **{"row_places": np.asarray(at, np.int64), "pixels": len(pixels)},
        **{"pixel_places": np.asarray(pixels, np.int64), "outs": room, "few": few, "sums": sums},
        **{"grad_step": given.pixel, "image": seen.part, "grad": given.part, "deep": s.deep},
    )
    work.add(
        *("convolution", "total"),
        **{"parts": parts, "rows": len(at), "outs": room, "sums": sums, "wanted": outs},
        **{"w_grad": w_grad, "places": np.asarray(places, np.int64), "w_step": step},
        b_grad=b_grad,
    )


def by_data(k: KernelArgs, work: Work, s: _Shapes, grad: Any, w: Any, x_grad: Any) -> None:
    """Gradient of one group by its input: for each remainder of the places a convolution."""
    taps = [
        [_taps(axis, rest) for rest in range(min(axis.stride, size))]
        for axis, size in zip((s.down, s.right), x_grad.shape[2:], strict=True)
    ]
    spans = [_span(axis_taps, size, axis.stride) for axis_taps, size, axis in
             zip(taps, x_grad.shape[2:], (s.down, s.right), strict=True)]  # fmt: skip
    (top, high), (left, wide) = spans
    parts = _parts(grad.shape[0], grad[0].size * w[0].size)
    ragged = s.deep and grad.shape[1] % lanes(grad.dtype) != 0
    frame = Frame(high, wide, top, left)
    seen = image(k, work, grad, frame, at_once=parts > 1, copy=ragged)
    phases = []
    for row, down in enumerate(taps[0]):
        for column, right in enumerate(taps[1]):
            rows, columns = slice(row, None, s.down.stride), slice(column, None, s.right.stride)
            count = [
                len(range(*part.indices(size)))
                for part, size in zip((rows, columns), x_grad.shape[2:], strict=True)
            ]
            at = np.array([(dy + top) * seen.row + (dx + left) * seen.pixel
                           for _, dy in down for _, dx in right], np.int64)  # fmt: skip
            numbers = np.array(
                [ky * w.shape[3] + kx for ky, _ in down for kx, _ in right], np.int64
            )
            pixels = np.arange(count[0])[:, None] * seen.row + np.arange(count[1]) * seen.pixel
            phase = _Phase(
                at,
                _pack(k, work, w, 0 if s.deep else 1, numbers),
                pixels.reshape(-1),
                _places(x_grad, rows, columns),
            )
            reach = [_reach(shift, count[0], grad.shape[2]) for _, shift in down]
            phases += _without_padding(phase, reach, count[0]) if right else [phase]
    depth = (1 if s.deep else w.shape[0]) * w[0, 0].size // max(len(phases), 1)
    into = _Target(x_grad, len(x_grad), activation(work), deep=s.deep)
    _run(k, work, seen, phases, seen.pixel, into, _Ends(None), (parts, False), depth)


def _taps(axis: Axis, rest: int) -> list[tuple[int, int]]:
    """The taps that reach places of that remainder: number, and position less place // stride."""
    taps = []
    for tap in range(axis.kernel):
        # Of places with this remainder only every stride-th tap meets a position.
        distance = rest + axis.before - tap * axis.dilation
        if distance % axis.stride == 0:
            taps.append((tap, distance // axis.stride))
    return taps


def _reach(shift: int, count: int, size: int) -> slice:
    """The rows j < count for which row j + shift of `size` rows is there."""
    begin = min(max(-shift, 0), count)
    return slice(begin, max(begin, min(count, size - shift)))


def _span(taps: Sequence[Sequence[tuple[int, int]]], size: int, stride: int) -> tuple[int, int]:
    """Where positions begin in the frame that the taps of all remainders read, and its size."""
    shifts = [shift for each in taps for _, shift in each] or [0]
    count = -(-size // stride)
    first = min(shifts)
    return -first, max(shifts) - first + count
