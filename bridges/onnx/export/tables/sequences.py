"""Operators over sequences, over the one sequence [T, ...] that a graph has."""

from __future__ import annotations

import numpy as np

from ..emission import END, Emission, emits

_POOLED = {"max": "ReduceMax", "sum": "ReduceSum", "mean": "ReduceMean"}


def _padding(e: Emission, before: int, after: int) -> str:
    """Rows to add before and after, as Pad takes them."""
    rest = [0] * (e.rank("x") - 1)
    return e.ints(before, *rest, after, *rest)


@emits("sequence_context")
def context(e: Emission) -> None:
    """The padded sequence, as often as there are rows in a context, each time a row further."""
    left, right = int(e.attrs["left"]), int(e.attrs["right"])
    before, after = max(0, left), max(0, right)
    mode = "edge" if e.attrs["padding"] == "edge" else "constant"
    if mode == "edge":
        before, after = max(before, -right), max(after, -left)
    else:
        before = max(before, 0)
        after = max(after, -left if left < 0 else 0)
        before = max(before, -right if right < 0 else 0)
    x = e["x"]
    if before or after:
        x = e.node("Pad", x, _padding(e, before, after), mode=mode)
    parts = [
        e.cut(x, 0, before + step, step - after if step < after else END) if before + step or
        step < after else x
        for step in range(-left, right + 1)
    ]  # fmt: skip
    e.set("out", e.concat(parts, 1))


@emits("sequence_shift")
def shift(e: Emission) -> None:
    by = int(e.attrs["by"])
    x = e["x"]
    if by == 0:
        e.set("out", x)
        return
    if e.has("boundary"):
        rest = [1] * (e.rank("x") - 1)
        border = e.node("Tile", e["boundary"], e.ints(abs(by), *rest))
        x = e.concat([border, x] if by > 0 else [x, border], 0)
    else:
        fill = e.const(e.attrs["fill"]) if e.attrs["fill"] else None
        x = e.node("Pad", x, _padding(e, max(by, 0), max(-by, 0)), fill)
    e.set("out", e.cut(x, 0, 0, -by) if by > 0 else e.cut(x, 0, -by))


def _rows_like(e: Emission, x: str, rank: int) -> str:
    """[1, ...] repeated over the rows of `like`."""
    count = e.dims(e["like"], 0, 1)
    if rank > 1:
        count = e.concat([count, e.ints(*[1] * (rank - 1))], 0)
    return e.node("Expand", x, count)


@emits("sequence_expand")
def expand(e: Emission) -> None:
    e.set("out", _rows_like(e, e["x"], e.rank("x")))


@emits("cntk.expand_rows")
def expand_rows(e: Emission) -> None:
    e.set("out", _rows_like(e, e.unsqueeze(e["x"], 0), e.rank("x") + 1))


@emits("sequence_pool")
def pool(e: Emission) -> None:
    kind = e.attrs["pool_type"]
    x = e["x"]
    if kind in ("first", "last"):
        e.set("out", e.cut(x, 0, 0, 1) if kind == "first" else e.cut(x, 0, -1))
    elif kind in _POOLED:
        e.set("out", e.reduce(_POOLED[kind], x, [0], True))
    else:
        total = e.reduce("ReduceSum", x, [0], True)
        count = e.node("Sqrt", e.cast(e.dims(x, 0, 1), e.dtype("x")))
        e.set("out", e.node("Div", total, count))


@emits("sequence_concat")
def join(e: Emission) -> None:
    e.set("out", e.concat(e.list("x"), 0))


@emits("sequence_length")
def length(e: Emission) -> None:
    e.set("out", e.dims(e["x"], 0, 1))


@emits("sequence_mask")
def mask(e: Emission) -> None:
    count = e.size(e["x"], 0)
    steps = e.attrs["steps"]
    places = e.range(count if steps < 0 else e.graph.constant(np.int64(steps)))
    there = e.unsqueeze(e.node("Less", places, count), 0)
    e.set("out", there if e.attrs["dtype"] == np.bool_ else e.cast(there, e.attrs["dtype"]))


@emits("sequence_pad")
def pad(e: Emission) -> None:
    x = e["x"]
    steps = e.attrs["steps"]
    if steps >= 0:
        gap = e.node("Sub", e.ints(steps), e.dims(x, 0, 1))
        zeros = [0] * e.rank("x")
        amounts = [e.ints(*zeros), gap]
        if zeros[1:]:
            amounts.append(e.ints(*zeros[1:]))
        value = e.const(e.attrs["value"]) if e.attrs["value"] else None
        x = e.node("Pad", x, e.concat(amounts, 0), value)
    e.set("out", e.unsqueeze(x, 0))


@emits("sequence_unpad")
def unpad(e: Emission) -> None:
    rows = e.squeeze(e["x"], 0)
    e.set("out", e.node("Slice", rows, e.ints(0), e.dims(e["like"], 0, 1), e.ints(0)))


@emits("sequence_rows")
def rows(e: Emission) -> None:
    sizes = e.shape("x")[2:]
    known = min(sizes, default=0) >= 0
    e.set("out", e.reshape(e["x"], -1, *sizes) if known else e.squeeze(e["x"], 0))


@emits("sequence_reverse")
def reverse(e: Emission) -> None:
    e.set("out", e.cut(e["x"], 0, -1, -END, -1))


@emits("sequence_slice")
def part(e: Emission) -> None:
    start, count = int(e.attrs["start"]), int(e.attrs["length"])
    if not e.has("offset"):
        end = END if count < 0 or (start < 0 <= start + count) else start + count
        e.set("out", e.cut(e["x"], 0, start, end))
        return
    begin = e["offset"] if e.dtype("offset") == np.int64 else e.cast(e["offset"], np.int64)
    if e.has("like"):
        end = e.node("Add", begin, e.dims(e["like"], 0, 1))
    elif count >= 0:
        end = e.node("Add", begin, e.ints(count))
    else:
        end = e.ints(END)
    e.set("out", e.node("Slice", e["x"], begin, end, e.ints(0)))


@emits("masked_mean")
def masked_mean(e: Emission) -> None:
    """Where the mask is 0, x does not count, even if it is NaN; a mask of zeros gives 0."""
    rank = e.rank("x")
    dtype = e.dtype("out")
    x = e["x"] if e.dtype("x") == dtype else e.cast(e["x"], dtype)
    mask = e["mask"] if e.dtype("mask") == dtype else e.cast(e["mask"], dtype)
    if rank > e.rank("mask"):
        mask = e.unsqueeze(mask, *range(e.rank("mask"), rank))
    zero = e.const(0.0, dtype)
    mask = e.node("Expand", mask, e.node("Shape", x))
    there = e.node("Greater", mask, zero)
    total = e.reduce("ReduceSum", e.node("Where", there, e.node("Mul", x, mask), zero))
    count = e.reduce("ReduceSum", mask)
    none = e.node("Equal", count, zero)
    mean = e.node("Div", total, e.node("Where", none, e.const(1.0, dtype), count))
    e.set("out", mean)


@emits("sequence_softmax")
def softmax(e: Emission) -> None:
    e.set("out", e.node("Softmax", e["x"], axis=0))
