"""Operators whose meaning is CNTK's own."""

from __future__ import annotations

import math

import numpy as np

from .....cntk.operators.windows import table
from ..emission import Emission, emits, refuses


@emits("cntk.log")
def log(e: Emission) -> None:
    least = e.const(1e-37)
    found = e.node("Log", e.node("Max", e["x"], least))
    low = e.node("Less", e["x"], least)
    e.set("out", e.node("Where", low, e.const(math.log(np.float64(np.float32(1e-37)))), found))


@emits("cntk.log_plus")
def log_plus(e: Emission) -> None:
    most, least = (e.node(kind, e["x"], e["y"]) for kind in ("Max", "Min"))
    powers = e.node("Exp", e.node("Sub", least, most))
    e.set("out", e.node("Add", most, e.node("Log", e.node("Add", powers, e.const(1.0)))))


@emits("cntk.reciprocal")
def reciprocal(e: Emission) -> None:
    zero = e.const(0.0)
    is_zero = e.node("Equal", e["x"], zero)
    safe = e.node("Where", is_zero, e.const(1.0), e["x"])
    e.set("out", e.node("Where", is_zero, zero, e.node("Reciprocal", safe)))


@emits("cntk.sqrt")
def sqrt(e: Emission) -> None:
    e.set("out", e.node("Sqrt", e.node("Max", e["x"], e.const(0.0))))


@emits("cntk.batch_norm")
def batch_norm(e: Emission) -> None:
    given = [e["x"]]
    for slot in ("scale", "bias", "mean", "variance"):
        array = e.array(slot)
        if array is not None:
            given.append(e.graph.constant(array.reshape(-1), e.op.inputs[slot][0], e.dtype("x")))
        else:
            given.append(e[slot] if e.rank(slot) == 1 else e.reshape(e[slot], -1))
    e.set("out", e.node("BatchNormalization", *given, epsilon=float(e.attrs["epsilon"])))


def _rows(e: Emission, slot: str) -> str:
    found = e.reshape(e[slot], -1)
    return found if e.dtype(slot) == np.int64 else e.cast(found, np.int64)


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
        e.refuse("states that go on from minibatch to minibatch are of training")
    e.set("out", e.unsqueeze(e["x"], 0))


@emits("cntk.is_training")
def is_training(e: Emission) -> None:
    e.set("out", e.graph.constant(np.zeros(1, e.attrs["dtype"])))


@emits("cntk.dropout_mask")
def dropout_mask(e: Emission) -> None:
    """Ones, which products leave out."""
    e.values.ones.update(e.op.outputs["out"])


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
    size, numbers = math.prod(a["shape"]), table(a).reshape(-1)
    own = [np.flatnonzero(numbers == place) for place in range(size)]
    most = max(map(len, own))
    places = np.full((size, max(most, 1)), len(numbers), np.int64)
    for row, found in zip(places, own, strict=True):
        row[: len(found)] = found
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
    "criteria and evaluations are of training; export the outputs before them",
    "cntk.classification_error", "cntk.cross_entropy_with_softmax", "cntk.logistic", "cntk.ctc",
    "cntk.crf", "cntk.edit_error", "cntk.class_cross_entropy",
    "cntk.given_gradient", "cntk.noise_contrastive", "cntk.word_score", "cntk.lattice_criterion",
    "cntk.first_gain", "cntk.lambda_rank",
)  # fmt: skip
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
    "inputs of sparse rows have no form in ONNX; declare the input dense",
    "cntk.sparse_times",
    "cntk.to_dense",
)
