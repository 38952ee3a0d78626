"""Selecting and looking up: by position, by order, by index."""

from __future__ import annotations

import numpy as np

from ..emission import Emission, emits


@emits("argmax", "argmin")
def position_of_extreme(e: Emission) -> None:
    x = e["x"]
    if e.dtype("x") == np.int64:  # runtimes have no kernel for these
        _, place = _ordered(e, e.ints(1), e.op.type == "argmax")
        e.set("out", place if e.attrs["keepdims"] else e.squeeze(place, e.axis()))
        return
    if e.dtype("x").kind in "bu" or e.dtype("x") in (np.int8, np.int16):
        x = e.cast(x, np.int32)
    e.set("out", e.node(e.theirs, x, axis=e.axis(), keepdims=int(e.attrs["keepdims"])))


def _ordered(e: Emission, count: str, largest: bool) -> list[str]:
    x = e["x"]
    if e.dtype("x").kind in "bu" or e.dtype("x") in (np.int8, np.int16):
        x = e.cast(x, np.int64)
    ordered = e.node("TopK", x, count, outputs=2, axis=e.axis(), largest=int(largest), sorted=1)
    return [ordered[0] if x == e["x"] else e.cast(ordered[0], e.dtype("x")), ordered[1]]


@emits("sort", "argsort")
def sort(e: Emission) -> None:
    count = e.dims(e["x"], e.axis(), e.axis() + 1)
    values, places = _ordered(e, count, e.attrs["descending"])
    if e.op.type == "argsort":
        e.set("out", places)
    else:
        e.set("out", values)
        e.set("ids", places)


@emits("top_k")
def top_k(e: Emission) -> None:
    values, places = _ordered(e, e.ints(e.attrs["k"]), True)
    e.set("values", values)
    e.set("ids", places)


def _index(e: Emission, slot: str) -> str:
    return e[slot] if e.dtype(slot) == np.int64 else e.cast(e[slot], np.int64)


@emits("gather")
def gather(e: Emission) -> None:
    e.set("out", e.node("Gather", e["x"], _index(e, "ids"), axis=e.axis()))


@emits("embedding")
def embedding(e: Emission) -> None:
    ids = _index(e, "ids")
    pad = e.attrs["padding_idx"]
    rows = e.node("Gather", e["w"], ids)
    if pad >= 0:
        there = e.node("Not", e.node("Equal", ids, e.graph.constant(np.int64(pad))))
        there = e.unsqueeze(there, e.rank("ids"))
        rows = e.node("Where", there, rows, e.const(0, like="w"))
    e.set("out", rows)


@emits("one_hot")
def one_hot(e: Emission) -> None:
    values = e.graph.constant(np.array([0, 1], e.attrs["dtype"]))
    depth = e.graph.constant(np.int64(e.attrs["depth"]))
    ids = _index(e, "ids")
    if e.rank("ids"):
        e.set("out", e.node("OneHot", ids, depth, values, axis=-1))
    else:
        e.set("out", e.squeeze(e.node("OneHot", e.unsqueeze(ids, 0), depth, values, axis=-1), 0))


@emits("scatter_add")
def scatter_add(e: Emission) -> None:
    ids = e.unsqueeze(_index(e, "ids"), e.rank("ids"))
    e.set("out", e.node("ScatterND", e["x"], ids, e["updates"], reduction="add"))


@emits("gather_nd")
def gather_nd(e: Emission) -> None:
    ids = _index(e, "ids")
    e.set("out", e.node("GatherND", e["x"], ids, batch_dims=int(e.attrs["batch_dims"])))


@emits("scatter_nd")
def scatter_nd(e: Emission) -> None:
    mode = "add" if e.attrs["mode"] == "add" else "none"
    e.set("out", e.node("ScatterND", e["x"], _index(e, "ids"), e["updates"], reduction=mode))


def _stretched(e: Emission, value: str, slot: str, lines: str) -> str:
    """A value whose axes other than `axis` may be 1, as long as x's axes."""
    axis = e.axis()
    x = e.shape("x")
    own = e.shape(slot)
    if all(a == b >= 0 for n, (a, b) in enumerate(zip(own, x, strict=True)) if n != axis):
        return value
    sizes = [e.dims(e["x"], 0, axis)] if axis else []
    sizes.append(e.dims(lines, axis, axis + 1))
    if axis + 1 < len(x):
        sizes.append(e.dims(e["x"], axis + 1))
    return e.node("Expand", value, e.concat(sizes, 0))


@emits("take_along_axis")
def take_along_axis(e: Emission) -> None:
    ids = _index(e, "ids")
    ids = _stretched(e, ids, "ids", ids)
    e.set("out", e.node("GatherElements", e["x"], ids, axis=e.axis()))


@emits("put_along_axis")
def put_along_axis(e: Emission) -> None:
    ids = _index(e, "ids")
    updates = e["updates"]
    axis = e.axis()
    lines = ids if e.shape("ids")[axis] != 1 else updates
    updates = e.node("Expand", updates, e.dims(_stretched(e, ids, "ids", lines)))
    ids = e.node("Expand", ids, e.dims(updates))
    mode = "add" if e.attrs["mode"] == "add" else "none"
    e.set("out", e.node("ScatterElements", e["x"], ids, updates, axis=axis, reduction=mode))
