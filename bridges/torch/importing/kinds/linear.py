"""Products: linear layers, matrices, Einstein sums, embeddings, attention."""

from __future__ import annotations

import numpy as np

from ....onnx.importing.calls import Value
from ..calls import Aten, aten, wants_floats


@aten("linear")
def _linear(n: Aten, x: Value) -> Value:
    wants_floats(n, x)
    weight = n["weight"]
    bias = n.get("bias")
    if weight.ndim == 1:
        y = n.op("matmul", x, weight)
    else:
        y = n.op("matmul", x, weight, transpose_y=True)
    return y if bias is None else n.op("add", y, bias)


@aten("bilinear")
def _bilinear(n: Aten) -> Value:
    y = n.op("einsum", [n["input1"], n["weight"], n["input2"]], equation="...i,oij,...j->...o")
    return n.op("add", y, n["bias"]) if n.has("bias") else y


@aten("matmul", "mm", "bmm", "mv", "dot")
def _matmul(n: Aten, x: Value) -> Value:
    y = next(n[k] for k in ("other", "mat2", "vec", "tensor") if n.has(k))
    wants_floats(n, x, y)
    return n.op("matmul", x, y)


@aten("addmm", "baddbmm", "addmv")
def _addmm(n: Aten) -> Value:
    names = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"), "addmv": ("mat", "vec")}
    x, y = (n[name] for name in names[n.name])
    wants_floats(n, x, y)
    alpha, beta = n.get("alpha", 1), n.get("beta", 1)
    product = n.op("matmul", x, y, **({} if alpha == 1 else {"alpha": float(alpha)}))
    if not beta:
        return product
    bias = n["self"]
    return n.op("add", product, bias if beta == 1 else n.op("scale", bias, scale=float(beta)))


@aten("einsum")
def _einsum(n: Aten) -> Value:
    values = n["tensors"]
    wants_floats(n, *values)
    return n.op("einsum", values, equation=n["equation"].replace(" ", ""))


@aten("outer")
def _outer(n: Aten, x: Value, y: Value) -> Value:
    return n.op("mul", n.reshaped(x, [x.shape[0], 1]), y)


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
