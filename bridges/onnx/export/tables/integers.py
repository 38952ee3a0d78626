"""8-bit integers that stand for reals, and matrices in few bits."""

from __future__ import annotations

from typing import cast

import numpy as np

from .....framework.base.dtypes import to_dtype
from .....operators.base.nbits import BFLOAT16, elements, middle, unpacked
from ..emission import Emission, emits
from .conv import window_attributes


def _ended(e: Emission, sums: str, axes_after: int) -> None:
    """What becomes of exact sums: with a bias, a scale, a zero point."""

    def per_result(slot: str) -> str:
        if not axes_after or e.shape(slot) in ((), (1,)):
            return e[slot]
        return e.reshape(e[slot], -1, *(1,) * axes_after)

    if e.has("bias"):
        sums = e.node("Add", sums, per_result("bias"))
    if e.has("scale"):
        dtype = e.dtype("scale")
        sums = e.node("Mul", e.cast(sums, dtype), per_result("scale"))
    if e.has("out_zero"):
        sums = e.node("QuantizeLinear", sums, e.const(1, like="scale"), _number(e, "out_zero"))
    e.set("out", sums)


def _number(e: Emission, slot: str) -> str | None:
    """An input as a number without axes; None where there is none."""
    if not e.has(slot):
        return None
    return e[slot] if e.shape(slot) == () else e.reshape(e[slot], *())


@emits("integer_matmul")
def integer_matmul(e: Emission) -> None:
    product = e.node("MatMulInteger", e["x"], e["y"], e.get("x_zero"), e.get("y_zero"))
    _ended(e, product, 0)


@emits("integer_conv")
def integer_conv(e: Emission) -> None:
    if e.has("w_zero") and e.shape("w_zero") not in ((), (1,)):
        e.refuse("runtimes take one zero point for all filters")
    zeros = _number(e, "x_zero"), _number(e, "w_zero")
    sums = e.node("ConvInteger", e["x"], e["w"], *zeros, **window_attributes(e))
    _ended(e, sums, e.rank("x") - 2)


@emits("matmul_nbits")
def matmul_nbits(e: Emission) -> None:
    columns, _, size = e.shape("w")
    bits = e.attrs["bits"]
    if bits == BFLOAT16:
        _product_of_bfloat16(e)
        return
    block = elements(size, bits)
    if e.dtype("x") != np.float32:
        e.refuse("runtimes have weights in blocks for float32 alone")
    # What rounds the first factor has no standard form.
    if e.graph.opset >= _BLOCKS and not e.attrs["int8_x"] and _are_constant(e):
        _dequantized_product(e, block)
        return
    if block < 16 or block & (block - 1):
        e.refuse(f"MatMulNBits has blocks of 16, 32, 64, ... elements, not {block}")
    given = (e[slot] for slot in ("x", "w", "scale"))
    how = {"K": e.shape("x")[-1], "N": columns, "bits": bits, "block_size": block}
    # 4: the first factor may become integers; 1: it stays float32.
    how["accuracy_level"] = 4 if e.attrs["int8_x"] else 1
    more = e.get("zero"), None, e.get("bias")
    e.set("out", e.node("MatMulNBits", *given, *more, domain="com.microsoft", **how))


def _product_of_bfloat16(e: Emission) -> None:
    """MatMul with a matrix [K, N] of bfloat16, cast to the dtype of x: few runtimes multiply it."""
    w = e.array("w")
    if w is None:
        e.refuse("ONNX cannot read bytes that are computed as bfloat16")
    (name,), (columns, blocks, size), depth = e.op.inputs["w"], w.shape, e.shape("x")[-1]
    made = e.values.owner_of(name).blocks
    key = name, BFLOAT16, depth
    if key not in made:
        rows = w.view(to_dtype("bfloat16")).reshape(columns, blocks * (size // 2))[:, :depth]
        made[key] = (e.graph.constant(np.ascontiguousarray(rows.T), name),)
    _biased_product(e, e.cast(made[key][0], e.dtype("x")))


def _biased_product(e: Emission, matrix: str) -> None:
    product = e.node("MatMul", e["x"], matrix)
    e.set("out", e.node("Add", product, e["bias"]) if e.has("bias") else product)


_BLOCKS = 21
"""The first opset whose DequantizeLinear has a `block_size`."""


def _are_constant(e: Emission) -> bool:
    slots = ("w", "scale", "zero") if e.has("zero") else ("w", "scale")
    return all(e.array(slot) is not None for slot in slots)


def _dequantized_product(e: Emission, block: int) -> None:
    """MatMul with a matrix [K, N] of DequantizeLinear, each column in blocks."""
    names = [name for slot in ("w", "scale", "zero") for name in e.op.inputs.get(slot, ())]
    key = *names, e.attrs["bits"], e.shape("x")[-1]
    blocks = e.values.owner_of(names[0]).blocks
    if key not in blocks:
        blocks[key] = _initializers(e)
    # Each product has a node of its own: runtimes make one operator of the two.
    _biased_product(e, e.node("DequantizeLinear", *blocks[key], axis=0, block_size=block))


def _initializers(e: Emission) -> tuple[str, str, str]:
    """A matrix [K, N] of integers, and the scales and zero points [blocks, N] of its columns."""
    bits, depth = e.attrs["bits"], e.shape("x")[-1]
    w, scale, zero = (cast("np.ndarray", e.array(slot)) for slot in ("w", "scale", "zero"))
    columns, blocks = scale.shape
    whole = unpacked(np, w, bits).reshape(columns, -1)[:, :depth].T
    zeros = np.full((blocks, columns), middle(bits), np.uint8)
    if e.has("zero"):
        zeros = unpacked(np, zero, bits)[:, :blocks].T
    (name,) = e.op.inputs["w"]

    def constant(numbers: np.ndarray, name: str) -> str:
        if bits == 4:
            return e.graph.four_bits(numbers, name)
        return e.graph.constant(np.ascontiguousarray(numbers), name)

    scales = e.graph.constant(scale.T.copy(), f"{name}.scale")
    return constant(whole, name), scales, constant(zeros, f"{name}.zero")


@emits("quantize_linear")
def quantize_linear(e: Emission) -> None:
    given = e["x"], _number(e, "scale"), _number(e, "zero")
    e.set("out", e.node("QuantizeLinear", *given))


@emits("dequantize_linear")
def dequantize_linear(e: Emission) -> None:
    e.set("out", _reals(e, "x", "scale", "zero"))


def _reals(e: Emission, slot: str, scale: str, zero: str) -> str:
    return e.node("DequantizeLinear", e[slot], _number(e, scale), _number(e, zero))


@emits("dynamic_quantize_linear")
def dynamic_quantize_linear(e: Emission) -> None:
    if e.dtype("x") != np.float32:
        e.refuse("DynamicQuantizeLinear is for float32")
    made = e.node("DynamicQuantizeLinear", e["x"], outputs=3)
    for slot, value in zip(("out", "scale", "zero"), made, strict=True):
        e.set(slot, value)


@emits("quantized_add", "quantized_mul")
def combined(e: Emission) -> None:
    x, y = (_reals(e, name, f"{name}_scale", f"{name}_zero") for name in "xy")
    _rounded(e, e.node("Add" if e.op.type == "quantized_add" else "Mul", x, y))


@emits("quantized_global_avg_pool")
def global_mean(e: Emission) -> None:
    _rounded(e, e.node("GlobalAveragePool", _reals(e, "x", "x_scale", "x_zero")))


def _rounded(e: Emission, reals: str) -> None:
    zero = _number(e, "out_zero") or e.const(0)
    e.set("out", e.node("QuantizeLinear", reals, _number(e, "out_scale"), zero))


@emits("byte_table")
def byte_table(e: Emission) -> None:
    # Gather counts numbers below 0 from the end: int8 finds the place of its bits so.
    e.set("out", e.node("Gather", e["table"], e.cast(e["x"], np.int64)))
