"""Products of matrices and tensors, and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..emission import Emission, emits


@emits("affine")
def affine(e: Emission) -> None:
    x = e["x"]
    rows = e.attrs["num_flatten_dims"]
    rank = e.rank("x")
    if rows >= 0 and rows != rank - 1:
        if rows == 0:
            x = e.reshape(x, -1)
        else:
            x = e.reshape(x, *(0,) * rows, -1)
        rank = max(rows, 0) + 1
    if e.has("b") and rank == 2:
        e.set("out", e.node("Gemm", x, e["w"], e["b"]))
        return
    product = e.node("MatMul", x, e["w"])
    e.set("out", e.node("Add", product, e["b"]) if e.has("b") else product)


def _swapped(e: Emission, slot: str) -> str:
    """An operand with its last two axes exchanged, if that is asked for."""
    rank = e.rank(slot)
    if not e.attrs[f"transpose_{slot}"] or rank < 2:
        return e[slot]
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return e.node("Transpose", e[slot], perm=perm)


@emits("matmul")
def matmul(e: Emission) -> None:
    alpha = float(e.attrs["alpha"])
    transposed = {f"trans{n}": int(e.attrs[f"transpose_{s}"]) for n, s in (("A", "x"), ("B", "y"))}
    if e.rank("x") == e.rank("y") == 2 and (alpha != 1 or any(transposed.values())):
        given: dict[str, Any] = {name: one for name, one in transposed.items() if one}
        if alpha != 1:
            given["alpha"] = alpha
        e.set("out", e.node("Gemm", e["x"], e["y"], **given))
        return
    product = e.node("MatMul", _swapped(e, "x"), _swapped(e, "y"))
    e.set("out", product if alpha == 1 else e.node("Mul", product, e.const(alpha)))


@emits("einsum")
def einsum(e: Emission) -> None:
    """`...` of all operands stands for as many axes in ONNX; here they broadcast."""
    equation = e.attrs["equation"].replace(" ", "")
    terms = equation.split("->")[0].split(",")
    free = [len(e.shape("x", n)) - len(t.replace("...", "")) for n, t in enumerate(terms)]
    most = max((count for count, term in zip(free, terms, strict=True) if "..." in term), default=0)
    given: list[str] = []
    for value, term, count in zip(e.list("x"), terms, free, strict=True):
        lacks = most - count if "..." in term else 0
        begin = term.find("...")
        places = range(begin, begin + lacks)
        given.append(e.unsqueeze(value, *places) if lacks else value)
    e.set("out", e.node("Einsum", *given, equation=equation))


def _heads(e: Emission, slot: str) -> str:
    """[N, T, heads d] as [N, heads, T, d]."""
    heads = e.attrs["heads"]
    if not heads:
        return e[slot]
    return e.node("Transpose", e.reshape(e[slot], 0, 0, heads, -1), perm=[0, 2, 1, 3])


@emits("scaled_dot_product_attention")
def attention(e: Emission) -> None:
    heads = e.attrs["heads"]
    width = e.shape("query")[-1]
    if width < 0:
        e.refuse("the width of the query is not known; declare it")
    scale = e.attrs["scale"] or 1 / math.sqrt(max(width // (heads or 1), 1))
    query, key, value = (_heads(e, slot) for slot in ("query", "key", "value"))
    rank = 4 if heads else e.rank("key")
    turned = e.node("Transpose", key, perm=[*range(rank - 2), rank - 1, rank - 2])
    query = e.node("Mul", query, e.const(scale, like="query"))
    weights = e.node("MatMul", query, turned)
    biases = _biases(e, weights, 4 if heads else max(e.rank("query"), rank))
    for bias in biases:
        weights = e.node("Add", weights, bias)
    if e.has("mask") or e.has("key_mask"):
        weights = _softmax_of_some(e, weights)
    else:
        weights = e.node("Softmax", weights, axis=-1)
    attended = e.node("MatMul", weights, value)
    if heads:
        attended = e.reshape(e.node("Transpose", attended, perm=[0, 2, 1, 3]), 0, 0, -1)
    e.set("out", attended)


def _biases(e: Emission, weights: str, rank: int) -> list[str]:
    """What is added to the products: minus infinity where nothing looks, and float masks."""
    least, zero = (e.const(number, like="query") for number in (-math.inf, 0.0))
    biases: list[str] = []
    if e.has("past"):
        keys, first = e.range(e.size(weights, -1)), e.unsqueeze(e["past"], 1, 2, 3)
        row = e.node("Add", e.unsqueeze(e.range(e.size(weights, -2)), 1), first)
        later = e.node("Greater", keys, row)
        biases.append(e.node("Where", later, least, zero))
    elif e.attrs["causal"]:
        ones = e.node("Expand", e.graph.constant(np.int64(1)), e.dims(weights, -2))
        seen = e.cast(e.node("Trilu", ones, upper=0), np.bool_)
        biases.append(e.node("Where", seen, zero, least))
    if e.has("mask"):
        mask = e["mask"]
        is_bool = e.dtype("mask") == np.bool_
        biases.append(e.node("Where", mask, zero, least) if is_bool else mask)
    if e.has("key_mask"):
        keys = e.unsqueeze(e["key_mask"], *range(1, rank - 1))
        biases.append(e.node("Where", keys, zero, least))
    return biases


def _softmax_of_some(e: Emission, weights: str) -> str:
    """Softmax that makes zeros of a row of minus infinities."""
    lowest = e.const(np.finfo(e.dtype("query")).min, like="query")
    edge = e.node("Max", e.reduce("ReduceMax", weights, [-1], True), lowest)
    powers = e.node("Exp", e.node("Sub", weights, edge))
    total = e.reduce("ReduceSum", powers, [-1], True)
    return e.node("Div", powers, e.node("Max", total, e.const(1.0, like="query")))


@emits("positions")
def positions(e: Emission) -> None:
    numbers = e.range(e.size(e["x"], e.axis()))
    e.set("out", e.node("Add", e.unsqueeze(e["past"], 1), numbers) if e.has("past") else numbers)


def _angles(e: Emission, numbers: str, width: int) -> tuple[str, str]:
    """Sines and cosines of positions times rates, [..., width / 2], counted in float64."""
    rates = e.attrs["base"] ** (-np.arange(0, width, 2) / max(width, 1))
    column = e.unsqueeze(e.cast(numbers, np.float64), -1)
    angles = e.node("Mul", column, e.graph.constant(rates))
    # kernels of cosine are for floats only; reduced to one turn float32 loses nothing more
    turn = e.graph.constant(np.float64(2 * math.pi))
    angles = e.cast(e.node("Sub", angles, e.node("Mul", turn, _turns(e, angles, turn))), np.float32)
    return e.node("Sin", angles), e.node("Cos", angles)


def _turns(e: Emission, angles: str, turn: str) -> str:
    return e.node("Floor", e.node("Div", angles, turn))


def _side_by_side(e: Emission, first: str, second: str) -> str:
    """Columns of both in turn."""
    pairs = e.concat([e.unsqueeze(first, -1), e.unsqueeze(second, -1)], -1)
    rows = e.dims(first, 0, -1)
    return e.node("Reshape", pairs, e.concat([rows, e.ints(-1)], 0))


@emits("sinusoidal_encoding")
def sinusoidal_encoding(e: Emission) -> None:
    size = e.attrs["size"]
    dtype = e.attrs["dtype"]
    both = _side_by_side(e, *_angles(e, e["positions"], size))
    if size % 2:
        both = e.cut(both, -1, 0, size)
    e.set("out", both if dtype == np.float32 else e.cast(both, dtype))


@emits("rotary_embedding")
def rotary_embedding(e: Emission) -> None:
    heads = e.attrs["heads"]
    dtype = e.dtype("x")
    width = e.shape("x")[-1] // (heads or 1)
    if width < 0:
        e.refuse("the width of x is not known; declare it")
    if e.has("positions"):
        numbers = e["positions"]
    else:
        numbers = e.range(e.size(e["x"], e.rank("x") - 2))
    sines, cosines = _angles(e, numbers, width)
    x = e["x"]
    if heads:
        x = e.reshape(x, *(0,) * (e.rank("x") - 1), heads, width)
        sines, cosines = (e.unsqueeze(one, -2) for one in (sines, cosines))
    if dtype != np.float32:
        sines, cosines = e.cast(sines, dtype), e.cast(cosines, dtype)
    if e.attrs["interleaved"]:
        first, second = e.cut(x, -1, 0, step=2), e.cut(x, -1, 1, step=2)
    else:
        first = e.cut(x, -1, 0, width // 2)
        second = e.cut(x, -1, width // 2)
    turned = (
        e.node("Sub", e.node("Mul", first, cosines), e.node("Mul", second, sines)),
        e.node("Add", e.node("Mul", first, sines), e.node("Mul", second, cosines)),
    )
    rotated = _side_by_side(e, *turned) if e.attrs["interleaved"] else e.concat(turned, -1)
    e.set("out", e.node("Reshape", rotated, e.node("Shape", e["x"])) if heads else rotated)
