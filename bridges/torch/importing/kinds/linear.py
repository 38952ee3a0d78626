"""Products: linear layers, matrices, Einstein sums, embeddings, attention."""

from __future__ import annotations

from functools import partial

import numpy as np

from .....framework.base.dtypes import is_float
from ....onnx.importing.calls import Value
from ..calls import Aten, aten, wants_floats
from .arithmetic import times


def _product(n: Aten, x: Value, y: Value, alpha: float = 1) -> Value:
    """A product of matrices, times a number."""
    if is_float(x.dtype):
        return n.op("matmul", x, y, **({} if alpha == 1 else {"alpha": float(alpha)}))
    return times(n, n.exact(np.matmul, x, y), int(alpha))


@aten("linear")
def _linear(n: Aten, x: Value) -> Value:
    weight = n["weight"]
    bias = n.get("bias")
    if weight.ndim == 1:
        y = _product(n, x, weight)
    elif is_float(x.dtype):
        y = n.op("matmul", x, weight, transpose_y=True)
    else:
        y = _product(n, x, n.moved(weight, [1, 0]))
    return y if bias is None else n.op("add", y, bias)


@aten("bilinear")
def _bilinear(n: Aten) -> Value:
    y = n.op("einsum", [n["input1"], n["weight"], n["input2"]], equation="...i,oij,...j->...o")
    return n.op("add", y, n["bias"]) if n.has("bias") else y


@aten("matmul", "mm", "bmm", "mv", "dot")
def _matmul(n: Aten, x: Value) -> Value:
    return _product(n, x, next(n[k] for k in ("other", "mat2", "vec", "tensor") if n.has(k)))


_FACTORS = {"addmm": ("mat1", "mat2"), "addmv": ("mat", "vec"),
            "baddbmm": ("batch1", "batch2"), "addbmm": ("batch1", "batch2")}  # fmt: skip


@aten(*_FACTORS)
def _addmm(n: Aten) -> Value:
    x, y = (n[name] for name in _FACTORS[n.name])
    product = _product(n, x, y, n.get("alpha", 1))
    if n.name == "addbmm":
        product = n.op("reduce_sum", product, axes=[0])
    beta = n.get("beta", 1)
    beta = beta if is_float(x.dtype) else int(beta)
    return n.op("add", product, times(n, n["self"], beta)) if beta else product


@aten("einsum")
def _einsum(n: Aten) -> Value:
    values = n["tensors"]
    equation = n["equation"].replace(" ", "")
    if not is_float(n.dtypes[0]):
        return n.exact(partial(np.einsum, equation), *values)
    return n.op("einsum", values, equation=equation)


@aten("outer")
def _outer(n: Aten, x: Value, y: Value) -> Value:
    op = "logical_and" if n.dtypes[0] == np.bool_ else "mul"
    return n.op(op, n.reshaped(n.cast(x, n.dtypes[0]), [x.shape[0], 1]), n.cast(y, n.dtypes[0]))


@aten("embedding")
def _embedding(n: Aten) -> Value:
    # torch's padding_idx stops the gradient alone; the row itself is looked up as any other
    weight = n["weight"]
    ids = n["indices"]
    padding = n.get("padding_idx", -1)
    if padding < 0 or (weight.array is not None and not weight.array[padding].any()):
        return n.op("embedding", ids, weight, padding_idx=padding)
    rows = n.op("embedding", ids, weight)
    alone = n.op("equal", n.op("unsqueeze", ids, axes=[ids.ndim]), n.const(padding, ids.dtype))
    return n.op("where", alone, n.op("stop_gradient", rows), rows)


@aten("one_hot")
def _one_hot(n: Aten) -> Value:
    n.refuse_unless(n.get("num_classes", -1) > 0, "the number of classes depends on data")
    return n.op("one_hot", n["self"], depth=n["num_classes"], dtype=n.dtypes[0])


@aten(
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_efficient_attention",
)
def _attention(n: Aten) -> Value | list[Value]:
    query, key, value = n["query"], n["key"], n["value"]
    wants_floats(n, query, key, value)
    mask = n.get("attn_mask", n.get("attn_bias"))
    if n.get("enable_gqa", False) and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (
            n.op("repeat_interleave", one, repeats=times, axis=one.ndim - 3) for one in (key, value)
        )
    if mask is not None and mask.dtype != np.bool_:
        mask = n.cast(mask, query.dtype)
    more = {}
    if n.get("scale"):
        more["scale"] = float(n["scale"])
    if n.get("is_causal", False):
        more["causal"] = True
    if n.get("dropout_p", 0.0):
        more["dropout"] = float(n["dropout_p"])
    attended = n.op("scaled_dot_product_attention", query, key, value, mask, outs=("out",), **more)
    return attended if n.name == "scaled_dot_product_attention" else [attended]
