"""Products with matrices that stay in blocks of few bits: weights that only predictions read."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import rows_of
from ..base.nbits import BFLOAT16, BITS, elements, from_blocks, rounded
from .matmul import as_rows

matmul_nbits = operator(
    "matmul_nbits",
    doc=(
        "Product with a matrix of 4, 8 or 16 bits: out = x m + bias. Column n of m is row n of w,"
        " cut into blocks; element q of block b stands for scale[n, b] * (q - zero[n, b]). Of 4"
        " bits two lie in a byte, the first one in its lower half. With `int8_x` x is rounded as"
        " well, each block of a row to 127 steps of its largest size, and sums are sums of"
        " integers. Of 16 bits elements are numbers in bfloat16, without scale, zero and `int8_x`;"
        " sums have the dtype of x."
    ),
    inputs=[
        Slot("x", "[..., K]"),
        Slot("w", "[N, blocks, bytes], uint8: blocks of 8 * bytes / bits elements; not trained"),
        Slot("scale", "[N, blocks], dtype of x; none with 16 bits", optional=True),
        Slot("zero", "[N, bytes of all blocks], uint8, packed as w; none: 8, 128", optional=True),
        Slot("bias", "[N], dtype of x", optional=True, not_in_gradient=True),
    ],
    outputs=[Slot("out", "[..., N]", not_in_gradient=True)],
    attrs=[
        AttrSpec("bits", "int", "of an element of w", 4, choices=(*BITS, BFLOAT16)),
        AttrSpec("int8_x", "bool", "round x to 8 bits; the gradient is that without it", False),
    ],
    source="ONNX Runtime: docs/ContribOperators.md, MatMulNBits",
    rows=rows_of("x", but=("w", "scale", "zero", "bias"), rank=2),
)


@matmul_nbits.shape_rule
def matmul_nbits_shape(s: ShapeArgs) -> None:
    x = s["x"]
    if not x:
        s.fail("x wants at least 1 dimension")
    columns, blocks, size = s.rank("w", 3)
    bits = s.attrs["bits"]
    for slot in ("w", "zero"):
        if s.has(slot) and s.dtype(slot) != "uint8":
            s.fail(f"{slot} wants dtype uint8 and has {s.dtype(slot)}")
    dtype = s.floats("x", *(slot for slot in ("scale", "bias") if s.has(slot)))
    if size == 0 or (bits == BFLOAT16 and size > 0 and size % 2):
        s.fail(f"w wants whole elements of {bits} bits in a block, at least one, not {size} bytes")
    if bits == BFLOAT16:
        wrong = [slot for slot in ("scale", "zero") if s.has(slot)]
        wrong += ["int8_x"] if s.attrs["int8_x"] else []
        if wrong:
            s.fail(f"w of 16 bits is in bfloat16, which has no {wrong[0]}")
    elif not s.has("scale"):
        s.fail(f"w of {bits} bits wants a scale for each block")
    else:
        rows, of_blocks = s.rank("scale", 2)
        columns = s.same("the rows of w and of scale", columns, rows)
        blocks = s.same("the blocks of w and of scale", blocks, of_blocks)
    if size > 0 and x[-1] >= 0:
        wanted = -(-x[-1] // elements(size, bits))
        blocks = s.same("the blocks of w and those that the columns of x fill", blocks, wanted)
    if s.has("zero"):
        rows, packed = s.rank("zero", 2)
        columns = s.same("the rows of w and of zero", columns, rows)
        if blocks >= 0:
            wanted = -(-blocks * bits // 8)
            s.same("the bytes of zero and those that a zero point each takes", packed, wanted)
    if s.has("bias"):
        columns = s.same("the rows of w and the length of bias", columns, s.rank("bias", 1)[0])
    s.set("out", ((*x[:-1], columns), dtype))


_Blocks = tuple[Any, Any, Any, int]
"""Weights, scales, zero points, bits."""


def _blocks(k: KernelArgs) -> _Blocks:
    return k["w"], k.get("scale"), k.get("zero"), k.attrs["bits"]


@matmul_nbits.kernel
def matmul_nbits_kernel(k: KernelArgs) -> Call:
    x, load = as_rows(k, k["x"], count(k["x"].shape[:-1]), k["x"].shape[-1])
    out, store = as_rows(k, k["out"], len(x), len(k["w"]), write=True)
    block = elements(k["w"].shape[2], k.attrs["bits"]) if k.attrs["int8_x"] else 0
    multiply = partial(_multiply, k.xp, x, _blocks(k), block, k.get("bias"), out)
    return in_order(*load, multiply, *store)


def _multiply(xp: Any, x: Any, blocks: _Blocks, block: int, bias: Any, out: Any) -> None:
    whole = rounded(xp, x, block) if block else x
    out[...] = whole @ from_blocks(xp, *blocks, x.shape[-1]).T
    if bias is not None:
        out += bias


@matmul_nbits.backward("x", "bias")
def matmul_nbits_grad_kernel(k: KernelArgs) -> Call:
    rows, depth = count(k.shape("x")[:-1]), k.shape("x")[-1]
    grad, calls = as_rows(k, k["out_grad"], rows, len(k["w"]))
    if k.get("bias_grad") is not None:
        calls.append(partial(k.xp.sum, grad, axis=0, out=k["bias_grad"]))
    if k.get("x_grad") is not None:
        target, store = as_rows(k, k["x_grad"], rows, depth, write=True)
        calls += [partial(_multiply_back, k.xp, grad, _blocks(k), target), *store]
    return in_order(*calls)


def _multiply_back(xp: Any, grad: Any, blocks: _Blocks, out: Any) -> None:
    out[...] = grad @ from_blocks(xp, *blocks, out.shape[1])
