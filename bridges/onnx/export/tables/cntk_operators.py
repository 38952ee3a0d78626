"""Operators whose meaning is CNTK's own."""

from __future__ import annotations

import math

import numpy as np

from .....cntk.operators.windows import table
from ..emission import Emission, emits, refuses

_STATISTICS = ("mean", "variance")


@emits("cntk.batch_norm")
def batch_norm(e: Emission) -> None:
    flat = [e[slot] if e.rank(slot) == 1 else e.reshape(e[slot], -1) for slot in _STATISTICS]
    given = [e["x"], e["scale"], e["bias"], *flat]
    e.set("out", e.node("BatchNormalization", *given, epsilon=float(e.attrs["epsilon"])))


def _rows(e: Emission, slot: str) -> str:
    rows = e.reshape(e[slot], -1)
    return rows if e.dtype(slot) == np.int64 else e.cast(rows, np.int64)


@emits("cntk.gather_rows")
def gather_rows(e: Emission) -> None:
    e.set("out", e.node("Gather", e["x"], _rows(e, "index")))


@emits("cntk.packed_index")
def packed_index(e: Emission) -> None:
    e.set("out", e.cast(e["x"], np.int64))


@emits("cntk.scatter_rows")
def scatter_rows(e: Emission) -> None:
    count = e.dims(e["like"], 0, 1)
    if e.rank("x") > 1:
        count = e.concat([count, e.dims(e["x"], 1)], 0)
    zeros = e.node("Expand", e.const(0.0), count)
    index = e.unsqueeze(_rows(e, "index"), 1)
    e.set("out", e.node("ScatterND", zeros, index, e["x"], reduction="add"))


@emits("cntk.initial_state")
def initial_state(e: Emission) -> None:
    if e.has("carried"):
        e.refuse("states that are kept from minibatch to minibatch are of training")
    e.set("out", e.unsqueeze(e["x"], 0))


@emits("cntk.is_training")
def is_training(e: Emission) -> None:
    e.set("out", e.graph.constant(np.zeros(1, e.attrs["dtype"])))


@emits("cntk.unfold")
def unfold(e: Emission) -> None:
    """A Gather: the places of all windows are known; the padding is one more element."""
    a = e.attrs
    places = table(a)
    inside = places >= 0
    x = e["x"]
    if not inside.all():
        x = e.node("Pad", x, e.ints(0, 0, 0, 1), e.const(a["fill"]) if a["fill"] else None)
        places = np.where(inside, places, math.prod(a["shape"]))
    e.set("out", e.node("Gather", x, e.graph.constant(places), axis=1))


@emits("cntk.fold")
def fold(e: Emission) -> None:
    """A Gather of what lies on each element, with zeros where there is less, and a sum."""
    a = e.attrs
    size = math.prod(a["shape"])
    numbers = table(a).reshape(-1)
    own = [np.flatnonzero(numbers == place) for place in range(size)]
    most = max(map(len, own))
    places = np.full((size, max(most, 1)), len(numbers), np.int64)
    for row, own_places in zip(places, own, strict=True):
        row[: len(own_places)] = own_places
    x = e.node("Pad", e.reshape(e["x"], 0, -1), e.ints(0, 0, 0, 1))
    parts = e.node("Gather", x, e.graph.constant(places), axis=1)
    e.set("out", e.reduce("ReduceSum", parts, [2]))


@emits("cntk.cos_distance")
def cos_distance(e: Emission) -> None:
    if e.attrs["negatives"]:
        e.refuse("negative samples are of training")
    product = e.reduce("ReduceSum", e.node("Mul", e["x"], e["y"]), [1], True)
    lengths = [e.reduce("ReduceL2", e[slot], [1], True) for slot in ("x", "y")]
    e.set("out", e.node("Div", product, e.node("Mul", *lengths)))


refuses(
    "a recurrence along an axis of samples runs over many sequences, and a graph has one; make that"
    " axis the dynamic one",
    "cntk.join_steps",
    "cntk.split_steps",
)
refuses("a search for the best path has no equal in ONNX", "cntk.best_path")
refuses("an unpooling by the places of maxima has no equal in ONNX", "cntk.max_unpool")
refuses("regions are rounded otherwise than by ONNX's MaxRoiPool", "cntk.region_pool")
refuses(
    "a network of CNTK with it is exported from its own file (.dnn, .cmf, .ndl)",
    "cntk.dropout_mask", "cntk.sparse_times", "cntk.to_dense",
)  # fmt: skip
