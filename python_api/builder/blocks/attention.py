"""Attention over a memory sequence: each query decides where to look."""

from __future__ import annotations

from typing import Any

from ....framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ..layers import nothing_to_learn
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var

KINDS = ("dot", "additive")


@builder_method
def attention(
    builder: NetBuilder,
    query: Var | str,
    memory: Var | str,
    *,
    keys: Var | str | None = None,
    kind: str = "dot",
    size: int = 0,
    scale: float = 1.0,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> tuple[Var, Var]:
    """Attention of each query over its own sequence of the memory.

        dot:       e_t = scale (query . keys_t)
        additive:  e_t = tanh(query w_q + keys_t) . v
        a = softmax of e over the sequence,    context = sum_t a_t memory_t

    Inside a step the query is a state and the memory a static variable, such as the outputs of
    an encoder: then compute `keys` outside of the step, once.

    Args:
        query: [sequences, Q], a row for each sequence of the memory.
        memory: sequences [rows, M].
        keys: sequences [rows, A] like the memory. By default dot takes the memory itself, and
            additive memory w_k.
        kind: "dot", where Q = A, or "additive".
        size: additive: width A; may be left away where `keys` are given.
        init, lr_factor, trainable: of the parameters `name.q.w` [Q, A], `name.v` [A, 1],
            `name.k.w`.

    Returns:
        context [sequences, M], and the weights a, sequences [rows, 1].

    Source: D. Bahdanau, K. Cho and Y. Bengio, Neural machine translation by jointly learning to
    align and translate; M.-T. Luong, H. Pham and C. D. Manning, Effective approaches to
    attention-based neural machine translation.
    """
    if kind not in KINDS:
        raise AttributeTypeError(f"attention: kind is one of {', '.join(KINDS)}, not {kind!r}")
    name = builder.layer_name(name, "attention")
    shared = {"init": init, "lr_factor": lr_factor, "trainable": trainable}
    if kind == "dot":
        learned = {"lr_factor": lr_factor, "trainable": trainable}
        nothing_to_learn(f"attention {name!r}", "kind='dot'", learned)
        searched = memory if keys is None else keys
        _check_dot(builder, name, query, searched)
        spread = builder.sequence_expand(query, searched)
        scores = builder.reduce_sum(spread * searched, axes=[1], keepdims=True)
        scores = scores if scale == 1.0 else scores * scale
    else:
        if keys is None:
            if size < 1:
                raise AttributeTypeError(f"attention {name!r}: additive wants `keys` or a size")
            keys = builder.fc(memory, size=size, bias=False, name=f"{name}.k", **shared)
        known = builder.shape_of(keys)
        width = known[-1] if known else -1
        if width < 1 or size not in (0, width):
            raise ShapeError(
                f"attention {name!r}: keys {str(keys)!r} {format_shape(known)} do not have the"
                f" width {size or 'that the parameters need'}"
            )
        asked = builder.fc(query, size=width, bias=False, name=f"{name}.q", **shared)
        v = builder.parameter(f"{name}.v", [width, 1], **shared)
        scores = builder.matmul(builder.tanh(builder.sequence_expand(asked, keys) + keys), v)
    weights = builder.sequence_softmax(scores, name=f"{name}.weights")
    return builder.sequence_pool(weights * memory, pool_type="sum", name=name), weights


def _check_dot(builder: NetBuilder, name: str, query: Any, keys: Any) -> None:
    one, two = builder.shape_of(query), builder.shape_of(keys)
    if one and two and one[-1] != two[-1] and min(one[-1], two[-1]) >= 0:
        raise ShapeError(
            f"attention {name!r} (dot): query {str(query)!r} {format_shape(one)} and keys"
            f" {str(keys)!r} {format_shape(two)} have different widths"
        )
