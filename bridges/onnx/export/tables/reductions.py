"""Reductions, norms, softmax, normalization."""

from __future__ import annotations

import math

import numpy as np

from ..emission import Emission, emits


def _axes(e: Emission) -> list[int]:
    rank = e.rank("x")
    return [axis % rank for axis in e.attrs["axes"]] or list(range(rank))


@emits("logsumexp", *(f"reduce_{kind}" for kind in "max mean min prod sum".split()))
def reduce(e: Emission) -> None:
    x = e["x"]
    wanted = e.dtype("out")
    if e.dtype("x") != wanted:
        x = e.cast(x, wanted)
    if not e.rank("x"):
        e.set("out", x)
        return
    e.set("out", e.reduce(e.theirs, x, _axes(e), e.attrs["keepdims"]))


@emits("mean")
def mean(e: Emission) -> None:
    e.set("out", e.reduce("ReduceMean", e["x"]))


@emits("reduce_all", "reduce_any")
def all_or_any(e: Emission) -> None:
    kind = "ReduceMin" if e.op.type == "reduce_all" else "ReduceMax"
    x = e.cast(e.as_bool(e["x"], e.dtype("x")), np.int32)
    e.set("out", e.cast(e.reduce(kind, x, _axes(e), e.attrs["keepdims"]), np.bool_))


@emits("reduce_var", "reduce_std")
def spread(e: Emission) -> None:
    axes = _axes(e)
    keep = e.attrs["keepdims"]
    ddof = e.attrs["ddof"]
    off = e.node("Sub", e["x"], e.reduce("ReduceMean", e["x"], axes, True))
    squares = e.node("Mul", off, off)
    if not ddof:
        variance = e.reduce("ReduceMean", squares, axes, keep)
    else:
        sizes = e.node("Gather", e.node("Shape", e["x"]), e.ints(*axes))
        count = e.node("Sub", e.reduce("ReduceProd", sizes), e.graph.constant(np.int64(ddof)))
        count = e.node("Max", e.cast(count, e.dtype("x")), e.const(0.0))
        variance = e.node("Div", e.reduce("ReduceSum", squares, axes, keep), count)
    e.set("out", e.node("Sqrt", variance) if e.op.type == "reduce_std" else variance)


@emits("norm")
def norm(e: Emission) -> None:
    x = e["x"]
    p = e.attrs["p"]
    axes = _axes(e)
    keep = e.attrs["keepdims"]
    if p in (1, 2):
        norm_value = e.reduce(f"ReduceL{int(p)}", x, axes, keep)
    elif math.isinf(p):
        norm_value = e.reduce("ReduceMax" if p > 0 else "ReduceMin", e.node("Abs", x), axes, keep)
    elif p == 0:
        there = e.node("Not", e.node("Equal", x, e.const(0.0)))
        norm_value = e.reduce("ReduceSum", e.cast(there, e.dtype("x")), axes, keep)
    else:
        powers = e.node("Pow", e.node("Abs", x), e.const(p))
        norm_value = e.node("Pow", e.reduce("ReduceSum", powers, axes, keep), e.const(1 / p))
    e.set("out", norm_value)


@emits("normalize")
def normalize(e: Emission) -> None:
    length = e.reduce("ReduceL2", e["x"], [e.axis()], True)
    e.set("out", e.node("Div", e["x"], e.node("Max", length, e.const(e.attrs["epsilon"]))))


@emits("cosine_similarity")
def cosine_similarity(e: Emission) -> None:
    rank = max(e.rank("x"), e.rank("y"))
    axis = e.attrs["axis"] % rank - rank
    product = e.node("Mul", e["x"], e["y"])
    whole = e.node("Shape", product)
    least = e.const(e.attrs["epsilon"])
    lengths: list[str] = []
    for slot in ("x", "y"):
        value = e[slot] if e.shape(slot) == e.shape("x") == e.shape("y") else ""
        value = value or e.node("Expand", e[slot], whole)
        lengths.append(e.node("Max", e.reduce("ReduceL2", value, [axis]), least))
    dot = e.reduce("ReduceSum", product, [axis])
    e.set("out", e.node("Div", dot, e.node("Mul", *lengths)))


@emits("batch_norm", "batch_norm_apply")
def batch_norm(e: Emission) -> None:
    given = [e["x"]]
    for slot in ("scale", "bias", "mean", "variance"):
        same = e.dtype(slot) == e.dtype("x")
        given.append(e[slot] if same else e.cast(e[slot], e.dtype("x")))
    e.set("out", e.node("BatchNormalization", *given, epsilon=float(e.attrs["epsilon"])))


@emits("layer_norm")
def layer_norm(e: Emission) -> None:
    axis = e.axis(name="begin_norm_axis")
    if min(e.shape("x")[axis:]) < 0 and not e.has("scale"):
        e.refuse("the axes that it normalizes have an unknown size; declare it")
    scale = e.get("scale") or e.const(np.ones(e.shape("x")[axis:]))
    e.set(
        "out",
        e.node(
            "LayerNormalization", e["x"], scale, e.get("bias"), axis=axis,
            epsilon=float(e.attrs["epsilon"]),
        ),
    )  # fmt: skip


@emits("rms_norm")
def rms_norm(e: Emission) -> None:
    axes = list(range(e.axis(name="begin_norm_axis"), e.rank("x")))
    mean = e.reduce("ReduceMean", e.node("Mul", e["x"], e["x"]), axes, True)
    root = e.node("Sqrt", e.node("Add", mean, e.const(e.attrs["epsilon"])))
    normalized = e.node("Div", e["x"], root)
    e.set("out", e.node("Mul", normalized, e["scale"]) if e.has("scale") else normalized)


def _per_channel(e: Emission, slot: str) -> str:
    return e.reshape(e[slot], -1, *(1,) * (e.rank("x") - 2))


@emits("group_norm", "instance_norm")
def group_norm(e: Emission) -> None:
    """As instance normalization of groups, which are laid side by side first."""
    groups = e.attrs.get("groups") or e.shape("x")[1]
    if groups < 0:
        e.refuse("the number of channels is not known; declare it")
    ones, zeros = e.const(np.ones(groups)), e.const(np.zeros(groups))
    rows = e.reshape(e["x"], 0, groups, -1)
    epsilon = float(e.attrs["epsilon"])
    normalized = e.node("InstanceNormalization", rows, ones, zeros, epsilon=epsilon)
    normalized = e.node("Reshape", normalized, e.node("Shape", e["x"]))
    if e.has("scale"):
        normalized = e.node("Mul", normalized, _per_channel(e, "scale"))
    if e.has("bias"):
        normalized = e.node("Add", normalized, _per_channel(e, "bias"))
    e.set("out", normalized)
