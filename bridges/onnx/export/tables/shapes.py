"""Filling, reshaping, joining, cutting, padding, running sums and products."""

from __future__ import annotations

import numpy as np

from ..emission import END, Emission, emits

_BEGIN = -END


def _constant(e: Emission, array: np.ndarray) -> None:
    e.set("out", e.graph.constant(array, e.op.outputs["out"][0]))


@emits("constant")
def constant(e: Emission) -> None:
    _constant(e, np.asarray(e.attrs["value"]))


@emits("fill_constant")
def fill_constant(e: Emission) -> None:
    _constant(e, np.full(e.attrs["shape"], e.attrs["value"], e.attrs["dtype"]))


@emits("arange")
def arange(e: Emission) -> None:
    a = e.attrs
    count = max(int(np.ceil((a["stop"] - a["start"]) / a["step"])), 0)
    _constant(e, (a["start"] + np.arange(count) * a["step"]).astype(a["dtype"]))


@emits("linspace")
def linspace(e: Emission) -> None:
    a = e.attrs
    _constant(e, np.linspace(a["start"], a["stop"], a["num"]).astype(a["dtype"]))


@emits("eye")
def eye(e: Emission) -> None:
    a = e.attrs
    columns = a["rows"] if a["columns"] < 0 else a["columns"]
    _constant(e, np.eye(a["rows"], columns, a["diagonal"], a["dtype"]))


@emits("fill_like")
def fill_like(e: Emission) -> None:
    e.set("out", e.node("Expand", e.const(e.attrs["value"]), e.node("Shape", e["x"])))


@emits("reshape")
def reshape(e: Emission) -> None:
    e.set("out", e.reshape(e["x"], *e.attrs["shape"]))


@emits("flatten")
def flatten(e: Emission) -> None:
    e.set("out", e.node("Flatten", e["x"], axis=e.attrs["axis"]))


@emits("squeeze")
def squeeze(e: Emission) -> None:
    e.set("out", e.squeeze(e["x"], *e.attrs["axes"]) if e.attrs["axes"] else e["x"])


@emits("unsqueeze")
def unsqueeze(e: Emission) -> None:
    e.set("out", e.unsqueeze(e["x"], *e.attrs["axes"]) if e.attrs["axes"] else e["x"])


@emits("transpose")
def transpose(e: Emission) -> None:
    rank = e.rank("x")
    perm = [axis % rank for axis in e.attrs["perm"]] or list(range(rank))[::-1]
    e.set("out", e.node("Transpose", e["x"], perm=perm) if rank else e["x"])


@emits("expand")
def expand(e: Emission) -> None:
    """-1 keeps a dimension, as 1 does in ONNX."""
    sizes = [1 if size < 0 else size for size in e.attrs["shape"]]
    e.set("out", e.node("Expand", e["x"], e.ints(*sizes)))


@emits("tile")
def tile(e: Emission) -> None:
    e.set("out", e.node("Tile", e["x"], e.ints(*e.attrs["repeats"])))


@emits("meshgrid")
def meshgrid(e: Emission) -> None:
    given = e.list("x")
    count = len(given)
    swapped = e.attrs["indexing"] == "xy" and len(given) > 1
    places = [1, 0, *range(2, count)] if swapped else list(range(count))
    order = [given[place] for place in places]
    sizes = e.concat([e.node("Shape", one) for one in order], 0)
    grids: list[str] = []
    for number, one in enumerate(given):
        dims = [1] * count
        dims[places[number]] = -1
        grids.append(e.node("Expand", e.reshape(one, *dims), sizes))
    e.set("out", *grids)


@emits("concat")
def concat(e: Emission) -> None:
    e.set("out", e.concat(e.list("x"), e.axis()))


@emits("stack")
def stack(e: Emission) -> None:
    axis = e.attrs["axis"] % (e.rank("x") + 1)
    e.set("out", e.concat([e.unsqueeze(one, axis) for one in e.list("x")], axis))


@emits("slice")
def slice_(e: Emission) -> None:
    a = e.attrs
    if not a["axes"]:
        e.set("out", e["x"])
        return
    steps = list(a["steps"]) or [1] * len(a["axes"])
    ends = list(a["ends"]) or [END if step > 0 else _BEGIN for step in steps]
    given = None if set(steps) == {1} else e.ints(*steps)
    lists = [e.ints(*a["starts"]), e.ints(*ends), e.ints(*a["axes"])]
    e.set("out", e.node("Slice", e["x"], *lists, given))


@emits("split")
def split(e: Emission) -> None:
    axis = e.axis()
    count = len(e.op.outputs["out"])
    size = e.shape("x")[axis]
    sections = list(e.attrs["sections"])
    if not sections and size >= 0:
        sections = [size // count] * count
    if not sections:
        parts = e.node(
            "Split", e["x"], outputs=count, axis=axis,
            num_outputs=count if e.graph.opset >= 18 else None,
        )  # fmt: skip
        e.set("out", *([parts] if count == 1 else parts))
        return
    if -1 in sections and size >= 0:
        sections[sections.index(-1)] = size - sum(sections) - 1
    if -1 not in sections:
        e.set("out", *e.split(e["x"], axis, sections))
        return
    free = sections.index(-1)
    pieces: list[str] = []
    for number in range(count):
        begin = sum(sections[:number])
        after = -sum(sections[number + 1 :])
        if number > free:
            begin = -sum(sections[number:])
            after = after or END
        elif number < free:
            after = begin + sections[number]
        pieces.append(e.cut(e["x"], axis, begin, after or END))
    e.set("out", *pieces)


@emits("pad")
def pad(e: Emission) -> None:
    pads = list(e.attrs["paddings"])
    mode = e.attrs["mode"]
    if not any(pads):
        e.set("out", e["x"])
        return
    if mode == "wrap":
        e.set("out", _wrapped(e, pads))
        return
    value = e.const(e.attrs["value"]) if mode == "constant" and e.attrs["value"] else None
    e.set("out", e.node("Pad", e["x"], e.ints(*pads[::2], *pads[1::2]), value, mode=mode))


def _wrapped(e: Emission, pads: list[int]) -> str:
    """By whole turns: every place is read at its number modulo the size."""
    wrapped = e["x"]
    for axis, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        if before or after:
            count = e.size(wrapped, axis)
            more = e.node("Add", count, e.graph.constant(np.int64(before + after)))
            places = e.node("Sub", e.range(more), e.graph.constant(np.int64(before)))
            wrapped = e.node("Gather", wrapped, e.node("Mod", places, count), axis=axis)
    return wrapped


@emits("flip")
def flip(e: Emission) -> None:
    rank = e.rank("x")
    axes = [axis % rank for axis in e.attrs["axes"]] or list(range(rank))
    ones = [-1] * len(axes)
    lists = [e.ints(*ones), e.ints(*[_BEGIN] * len(axes)), e.ints(*axes), e.ints(*ones)]
    e.set("out", e.node("Slice", e["x"], *lists) if axes else e["x"])


@emits("repeat_interleave")
def repeat_interleave(e: Emission) -> None:
    axis = e.axis()
    times = e.graph.constant(np.int64(e.attrs["repeats"]))
    count = e.node("Mul", e.size(e["x"], axis), times)
    places = e.node("Div", e.range(count), times) if e.attrs["repeats"] else e.range(count)
    e.set("out", e.node("Gather", e["x"], places, axis=axis))


@emits("roll")
def roll(e: Emission) -> None:
    rolled = e["x"]
    shifts = list(e.attrs["shifts"])
    axes = list(e.attrs["axes"])
    if not axes:
        rolled = e.reshape(rolled, -1)
        axes = [0]
        shifts = [sum(shifts)]
    for shift, axis in zip(shifts, axes, strict=True):
        count = e.size(rolled, axis)
        moved = e.node("Sub", e.range(count), e.graph.constant(np.int64(shift)))
        rolled = e.node("Gather", rolled, e.node("Mod", moved, count), axis=axis)
    if not e.attrs["axes"]:
        rolled = e.node("Reshape", rolled, e.node("Shape", e["x"]))
    e.set("out", rolled)


@emits("cumsum")
def cumsum(e: Emission) -> None:
    wanted = e.dtype("out")
    x = e["x"] if e.dtype("x") == wanted else e.cast(e["x"], wanted)
    axis = e.graph.constant(np.int64(e.axis()))
    how = {name: int(e.attrs[name]) for name in ("exclusive", "reverse")}
    e.set("out", e.node("CumSum", x, axis, **how))


@emits("cumprod")
def cumprod(e: Emission) -> None:
    """A Scan: ONNX has no running product before opset 26."""
    axis = e.axis()
    dtype = e.dtype("out")
    x = e["x"] if e.dtype("x") == dtype else e.cast(e["x"], dtype)
    rank = e.rank("x")
    if rank == 0:
        e.refuse("x has no axis")
    shape = e.node("Shape", x)
    others = [number for number in range(rank) if number != axis]
    sizes = e.node("Gather", shape, e.ints(*others))
    start = e.node("Expand", e.const(1, dtype), sizes)
    body = e.graph.sub_graph("cumprod")
    before, entry = body.unique("before"), body.unique("entry")
    body.message.input.add(name=before)
    body.message.input.add(name=entry)
    after = body.node("Mul", [before, entry], "after")
    shown = body.node("Identity", [before if e.attrs["exclusive"] else after], "shown")
    body.output(after, dtype)
    body.output(shown, dtype)
    reverse = [int(e.attrs["reverse"])]
    _, out = e.node(
        "Scan", start, x, outputs=2, body=body, num_scan_inputs=1, scan_input_axes=[axis],
        scan_output_axes=[axis], scan_input_directions=reverse, scan_output_directions=reverse,
    )  # fmt: skip
    e.set("out", out)


@emits("tril", "triu")
def triangle(e: Emission) -> None:
    diagonal = e.graph.constant(np.int64(e.attrs["diagonal"]))
    e.set("out", e.node("Trilu", e["x"], diagonal, upper=int(e.op.type == "triu")))


@emits("diag")
def diag(e: Emission) -> None:
    offset = int(e.attrs["diagonal"])
    if e.rank("x") == 1:
        zero = e.const(0)
        padded = e.node("Pad", e["x"], e.ints(0, abs(offset))) if offset else e["x"]
        size = e.node("Shape", padded)
        blank = e.node("Expand", e.graph.constant(np.int64(0)), e.concat([size, size], 0))
        there = e.cast(e.node("EyeLike", blank, k=offset), np.bool_)
        laid = e.unsqueeze(padded, 1 if offset >= 0 else 0)
        e.set("out", e.node("Where", there, laid, zero))
        return
    rows, columns = e.shape("x")
    if min(rows, columns) < 0:
        e.refuse("the shape of x is not known; declare it")
    places = np.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    e.set("out", e.node("Gather", e.reshape(e["x"], -1), e.ints(*places.tolist())))
