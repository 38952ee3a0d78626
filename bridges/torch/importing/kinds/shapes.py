"""Shapes: views, permutations, joining, cutting, padding, repeating."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....onnx.importing.calls import Value
from ..calls import TO_END, Aten, aten


def _filled(n: Aten, count: int, dims: Sequence[int]) -> list[int]:
    """A shape whose -1, if any, is computed."""
    filled = list(dims)
    if -1 in filled:
        rest = math.prod(dim for dim in filled if dim != -1)
        filled[filled.index(-1)] = count // rest if rest else 0
    n.refuse_unless(math.prod(filled) == count, f"{count} elements do not fit {list(dims)}")
    return filled


@aten("view", "reshape", "_reshape_alias")
def _view(n: Aten, x: Value) -> Value:
    n.refuse_unless(n.has("size") or n.has("shape"), "its bytes are read as another dtype")
    size = n["size"] if n.has("size") else n["shape"]
    return n.reshaped(x, _filled(n, math.prod(x.shape), size))


@aten("view_as", "reshape_as")
def _view_as(n: Aten, x: Value, other: Value) -> Value:
    return n.reshaped(x, other.shape)


@aten("flatten")
def _flatten(n: Aten, x: Value) -> Value:
    if not x.ndim:
        return n.reshaped(x, [1])
    first, last = n.axis("start_dim", x.ndim), n.axis("end_dim", x.ndim)
    middle = math.prod(x.shape[first : last + 1])
    return n.reshaped(x, [*x.shape[:first], middle, *x.shape[last + 1 :]])


@aten("unflatten")
def _unflatten(n: Aten, x: Value) -> Value:
    at = n.axis("dim", x.ndim)
    inner = _filled(n, x.shape[at], n["sizes"])
    return n.reshaped(x, [*x.shape[:at], *inner, *x.shape[at + 1 :]])


@aten("squeeze")
def _squeeze(n: Aten, x: Value) -> Value:
    axes = [] if n.get("dim") == [] else n.axes("dim", x.ndim)
    gone = [axis for axis in axes if x.shape[axis] == 1]
    return n.op("squeeze", x, axes=gone) if gone else x


@aten("unsqueeze")
def _unsqueeze(n: Aten, x: Value) -> Value:
    return n.op("unsqueeze", x, axes=[n.axis("dim", x.ndim + 1)])


@aten("permute")
def _permute(n: Aten, x: Value, dims: list[int]) -> Value:
    return n.moved(x, [axis % x.ndim for axis in dims])


@aten("transpose", "swapaxes", "swapdims")
def _transpose(n: Aten, x: Value, dim0: int, dim1: int) -> Value:
    perm = list(range(x.ndim))
    if x.ndim:
        perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return n.moved(x, perm)


@aten("t", "numpy_T", "mT")
def _turned(n: Aten, x: Value) -> Value:
    if n.name == "mT":
        return n.moved(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])
    return n.moved(x, list(range(x.ndim))[::-1])


@aten("movedim")
def _movedim(n: Aten, x: Value) -> Value:
    source, target = (
        [axis % x.ndim for axis in (given if isinstance(given, list) else [given])]
        for given in (n["source"], n["destination"])
    )
    perm = [axis for axis in range(x.ndim) if axis not in source]
    for to, axis in sorted(zip(target, source, strict=True)):
        perm.insert(to, axis)
    return n.moved(x, perm)


@aten("expand", "broadcast_to")
def _expand(n: Aten, x: Value) -> Value:
    wanted = list(n["size"])
    new = len(wanted) - x.ndim
    if any(n.get("likes", [])):
        x = n.grown(n.reshaped(x, [1] * new + list(x.shape)))
        new = 0
    dims = [x.shape[k - new] if dim == -1 else dim for k, dim in enumerate(wanted)]
    return x if tuple(dims) == x.shape else n.op("expand", x, shape=dims)


@aten("expand_as")
def _expand_as(n: Aten, x: Value) -> Value:
    dims = n["other"].shape
    return x if dims == x.shape else n.op("expand", x, shape=list(dims))


@aten("repeat", "tile")
def _repeat(n: Aten, x: Value) -> Value:
    repeats = list(n["repeats"] if n.has("repeats") else n["dims"])
    repeats = [1] * (x.ndim - len(repeats)) + repeats
    x = n.reshaped(x, [1] * (len(repeats) - x.ndim) + list(x.shape))
    return x if set(repeats) <= {1} else n.op("tile", x, repeats=repeats)


@aten("repeat_interleave")
def _repeat_interleave(n: Aten) -> Value:
    x, repeats = n["self"], n["repeats"]
    n.refuse_unless(isinstance(repeats, int), "counts that differ depend on data")
    if not n.has("dim"):
        x = n.reshaped(x, [math.prod(x.shape)])
    axis = n.axis("dim", x.ndim) if n.has("dim") else 0
    return n.op("repeat_interleave", x, repeats=repeats, axis=axis)


@aten("cat", "concat")
def _cat(n: Aten) -> Value:
    values = [n.cast(value, n.dtypes[0]) for value in n["tensors"]]
    values = [value for value in values if value.shape != (0,)] or values[:1]
    if len(values) == 1:
        return values[0]
    return n.op("concat", values, axis=n.axis("dim", values[0].ndim))


@aten("stack", "hstack", "vstack")
def _stack(n: Aten) -> Value:
    values = [n.cast(value, n.dtypes[0]) for value in n["tensors"]]
    if n.name == "stack":
        return n.op("stack", values, axis=n.axis("dim", values[0].ndim + 1))
    rank = values[0].ndim
    if n.name == "vstack" and rank < 2:
        return n.op("stack", values, axis=0)
    return n.op("concat", values, axis=0 if n.name == "vstack" or rank < 2 else 1)


def _place(at: int, size: int) -> int:
    return min(max(at + size if at < 0 else at, 0), size)


@aten("slice")
def _slice(n: Aten, x: Value) -> Value:
    axis = n.axis("dim", x.ndim)
    step = n.get("step", 1)
    like = n.get("likes", [None])[0]
    if like is not None and like[0] is not x and n.get("start", 0) == 0 and step == 1:
        return n.op("gather", x, n.op("positions", like[0], axis=like[1]), axis=axis)
    start = n.get("start", 0)
    end = n.get("end", TO_END)
    size = x.shape[axis]
    if _place(start, size) == 0 and _place(end, size) == size and step == 1:
        return x
    if _place(end, size) == size:
        end = TO_END
    more = {} if step == 1 else {"steps": [step]}
    return n.op("slice", x, axes=[axis], starts=[start], ends=[end], **more)


@aten("slice_scatter", "select_scatter")
def _scatter_range(n: Aten, x: Value) -> Value:
    source = n.cast(n["src"], n["self"].dtype)
    axis = n.axis("dim", x.ndim)
    size = x.shape[axis]
    if n.name == "select_scatter":
        start = _place(n["index"], size)
        end = start + 1
        source = n.op("unsqueeze", source, axes=[axis])
    elif n["step"] != 1:
        start, end = (_place(n.get(*one), size) for one in (("start", 0), ("end", TO_END)))
        lines = [1] * x.ndim
        places = np.arange(start, end, n["step"])
        lines[axis] = len(places)
        ids = n.const(places.reshape(lines))
        return n.op("put_along_axis", x, ids, source, axis=axis)
    else:
        start = _place(n.get("start", 0), size)
        end = _place(n.get("end", TO_END), size)
    parts = [n.part(x, axis, 0, start)] if start else []
    parts += [source] + ([n.part(x, axis, end)] if end < size else [])
    return parts[0] if len(parts) == 1 else n.op("concat", parts, axis=axis)


def spread(n: Aten, value: Value, like: Value) -> Value:
    """A value in the shape of another one, of whatever sizes."""
    if value.shape == like.shape:
        return value
    zeros = n.op("fill_like", n.cast(like, value.dtype))
    return n.op("logical_or" if value.dtype == np.bool_ else "add", zeros, value)


def as_row(n: Aten, value: Value) -> Value:
    """A single number as a row of one, as PyTorch takes it where an axis is named."""
    return value if value.ndim else n.reshaped(value, [1])


@aten("copy")
def _copy(n: Aten, x: Value, src: Value) -> Value:
    return spread(n, n.cast(src, n.dtypes[0]), x)


@aten("narrow")
def _narrow(n: Aten, x: Value, start: int) -> Value:
    return n.part(x, n.axis("dim", x.ndim), start, start + n["length"])


@aten("select")
def _select(n: Aten, x: Value) -> Value:
    axis = n.axis("dim", x.ndim)
    at = n["index"]
    part = n.part(x, axis, at, TO_END if at == -1 else at + 1)
    return n.op("squeeze", part, axes=[axis])


@aten("split", "split_with_sizes", "tensor_split")
def _split(n: Aten, x: Value) -> list[Value]:
    axis = n.axis("dim", x.ndim)
    size = x.shape[axis]
    if n.name == "tensor_split":
        if n.has("indices"):
            places = [_place(at, size) for at in n["indices"]]
            pairs = zip([0, *places], [*places, size], strict=True)
            return [n.part(x, axis, at, max(at, end)) for at, end in pairs]
        count = n["sections"]
        sizes = [size // count + (k < size % count) for k in range(count)]
        return _parts(n, x, axis, sizes)
    given = next(n[name] for name in ("split_sizes", "split_size") if n.has(name))
    if isinstance(given, int):
        given = [min(given, size - at) for at in range(0, size, given)]
    return _parts(n, x, axis, given)


def _parts(n: Aten, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    begins = np.cumsum([0, *sizes]).tolist()
    last = len(sizes) - 1
    return [
        n.part(x, axis, begins[k], TO_END if k == last else begins[k + 1])
        for k in range(len(sizes))
    ]


@aten("chunk")
def _chunk(n: Aten, x: Value) -> list[Value]:
    axis = n.axis("dim", x.ndim)
    size = x.shape[axis]
    count = n["chunks"]
    each = -(-size // count)
    return _parts(n, x, axis, [min(each, size - at) for at in range(0, size, each)])


@aten("unbind")
def _unbind(n: Aten, x: Value) -> list[Value]:
    axis = n.axis("dim", x.ndim)
    parts = _parts(n, x, axis, [1] * x.shape[axis])
    return [n.op("squeeze", part, axes=[axis]) for part in parts]


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten("pad", "constant_pad_nd", *(f"{kind}_pad{d}d" for d in (1, 2, 3)
      for kind in ("reflection", "replication", "circular")))  # fmt: skip
def _pad(n: Aten, x: Value) -> Value:
    given = list(n["pad"] if n.has("pad") else n["padding"])
    mode: str = n.get("mode", "constant")
    mode = {"ref": "reflect", "rep": "replicate", "cir": "circular"}.get(n.name[:3], mode)
    value = n.get("value", 0) or 0
    pairs = [(0, 0)] * (x.ndim - len(given) // 2)
    pairs += [(given[k], given[k + 1]) for k in range(len(given) - 2, -1, -2)]
    paddings = [max(side, 0) for pair in pairs for side in pair]

    def cut(x: Value) -> Value:
        for axis, (before, after) in enumerate(pairs):  # negative ones cut
            if before < 0 or after < 0:
                x = n.part(x, axis, max(-before, 0), after if after < 0 else TO_END)
        return x

    def grow(x: Value) -> Value:
        if not any(paddings):
            return x
        return n.op("pad", x, paddings=paddings, value=float(value), mode=_MODES[mode])

    # A border that repeats entries sees those that are cut off on the other side.
    return cut(grow(x)) if mode in ("reflect", "replicate") else grow(cut(x))


@aten("flip")
def _flip(n: Aten) -> Value:
    return n.op("flip", n["self"], axes=n.axes("dims", n["self"].ndim))


@aten("roll")
def _roll(n: Aten, x: Value) -> Value:
    if not n.get("dims"):
        return n.op("roll", x, shifts=list(n["shifts"]))
    axes = [axis % x.ndim for axis in n["dims"]]
    return n.op("roll", x, shifts=list(n["shifts"]), axes=axes)


@aten("pixel_shuffle", "pixel_unshuffle")
def _pixel_shuffle(n: Aten, x: Value) -> Value:
    *front, c, h, w = x.shape
    k = len(front)
    if n.name == "pixel_shuffle":
        r = n["upscale_factor"]
        shuffled = n.reshaped(x, [*front, c // r**2, r, r, h, w])
        shuffled = n.moved(shuffled, [*range(k), k, k + 3, k + 1, k + 4, k + 2])
        return n.reshaped(shuffled, [*front, c // r**2, h * r, w * r])
    r = n["downscale_factor"]
    shuffled = n.reshaped(x, [*front, c, h // r, r, w // r, r])
    shuffled = n.moved(shuffled, [*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return n.reshaped(shuffled, [*front, c * r**2, h // r, w // r])


@aten("tril", "triu")
def _triangle(n: Aten, x: Value, diagonal: int = 0) -> Value:
    return n.op(n.name, x, diagonal=diagonal)


@aten("meshgrid")
def _meshgrid(n: Aten) -> list[Value]:
    values = [n.reshaped(one, [math.prod(one.shape)]) for one in n["tensors"]]
    grids = n.op("meshgrid", values, outs=len(values), indexing=n.get("indexing", "ij"))
    return grids if isinstance(grids, list) else [grids]
