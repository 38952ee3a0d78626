"""Multi-head attention over padded batches, and over sequences of different lengths."""

from __future__ import annotations

from typing import Any

from ....framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ....framework.ir.registry import lookup
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var, as_var
from .parts import Parts

_KIND = "multi_head_attention"


@builder_method
def multi_head_attention(
    builder: NetBuilder,
    query: Var | str,
    key: Var | str | None = None,
    value: Var | str | None = None,
    *,
    heads: int,
    size: int | None = None,
    mask: Var | str | None = None,
    key_padding_mask: Var | str | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    rotary: bool = False,
    bias: bool = True,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Multi-head attention: each head looks with its own projections of query, key and value.

        out = concat_h(softmax(q_h k_h^T / sqrt(size / heads)) v_h) w_out + b_out
        q = query w_q + b_q, k = key w_k + b_k, v = value w_v + b_v, cut into heads

    Query, key and value are padded batches [N, T, D], or packed sequences [rows, D] (fed as
    `Sequences` or as a list of arrays). Sequences need no masks: each query sees the rows of its
    own sequence, and the result is packed like the query. Packed queries may look at padded keys,
    and the other way round.

    Args:
        query: [N, T, D] or sequences [rows, D].
        key: [N, S, D_k] or sequences; by default the query (self-attention).
        value: as key, with D_v columns; by default the key.
        heads: number of heads; divides `size`.
        size: columns of all heads together, and of the result; by default D.
        mask: where a query may look, broadcast to [N, heads, T, S]: booleans, true where it may,
            or floats, which are added to the scores before softmax.
        key_padding_mask: [N, S], true where a key is padding and not looked at: booleans or
            integers, for padded keys.
        causal: row t looks at the keys 0 .. t alone.
        dropout: probability that a weight is dropped while training.
        rotary: turn queries and keys by their positions (`rotary_embedding`).
        bias: add biases.
        init, lr_factor, trainable: of the parameters `name.q.w` [D, size], `name.k.w`, `name.v.w`,
            `name.out.w` [size, size] and the biases `name.q.b`, ..., which begin at 0.

    Returns:
        [N, T, size], or sequences [rows, size]. The weights [N, heads, T, S] are the variable
        `name.weights`. A query that may look nowhere gets b_out alone.

    Raises:
        ShapeError: other ranks, unknown widths, or columns that do not divide by the heads.
        AttributeTypeError: a padding mask for sequences, or of floats.

    Source: Vaswani et al. 2017, Attention is all you need; torch.nn.MultiheadAttention, whose
    boolean masks mean the opposite for `mask` and the same for `key_padding_mask`.
    """
    name = builder.layer_name(name, _KIND)
    parts = Parts(builder, name, _KIND, init=init, lr_factor=lr_factor, trainable=trainable)
    key = query if key is None else key
    value = key if value is None else value
    size = size or parts.width(query, "query")
    each = size // max(heads, 1)
    if heads < 1 or size % heads or (rotary and each % 2):
        pairs = " into pairs of columns" if rotary else ""
        raise ShapeError(f"layer {name!r} ({_KIND}): {size} columns and {heads=} do not go{pairs}")
    q = parts.linear(query, size, "q", bias=bias)
    k = parts.linear(key, size, "k", bias=bias)
    v = parts.linear(value, size, "v", bias=bias)
    if rotary:
        q, k = (builder.rotary_embedding(x, heads=heads) for x in (q, k))
    key_mask = None
    if key_padding_mask is not None:
        key_mask = _keys(parts, key_padding_mask, k)
    if _packed(k) or _packed(v):
        if not (_packed(k) and _packed(v)):
            raise ShapeError(f"layer {name!r} ({_KIND}): of key and value one alone is packed")
        key_mask = builder.sequence_mask(k, dtype="bool")
        k, v = builder.sequence_pad(k), builder.sequence_pad(v)
    inputs = builder.sequence_pad(q) if _packed(q) else q, k, v, mask, key_mask
    attrs = {"heads": heads, "causal": causal, "dropout": float(dropout)}
    weights = {"weights": f"{name}.weights"}
    entry = lookup("scaled_dot_product_attention")
    seen = builder.append(entry, inputs, attrs, name=f"{name}.seen", outputs=weights)
    if _packed(q):
        seen = builder.sequence_unpad(seen, q)
    return parts.linear(seen, size, "out", bias=bias, name=name)


def _packed(x: Var) -> bool:
    """Whether a variable holds packed sequences [rows, D], not [N, T, D]."""
    return x.shape is not None and len(x.shape) == 2


def _keys(parts: Parts, padding: Var | str, key: Var) -> Var:
    """Where there are keys, from the mask of padding."""
    builder = parts.builder
    given = as_var(parts.builder, padding)
    if _packed(key):
        raise AttributeTypeError(
            f"layer {parts.name!r} ({_KIND}): the keys are packed sequences, which have no padding;"
            " leave key_padding_mask away"
        )
    if given.dtype is not None and given.dtype.kind not in "biu":
        raise AttributeTypeError(
            f"layer {parts.name!r} ({_KIND}): key_padding_mask {str(padding)!r} {given.dtype}"
            f"{format_shape(given.shape)} wants booleans or integers, true where a key is padding"
        )
    if given.dtype is not None and given.dtype.kind != "b":
        given = builder.cast(given, dtype="bool")
    return builder.logical_not(given)
