"""Encodings of positions that are added to the inputs of a network."""

from __future__ import annotations

from typing import Any

from ....framework.base.errors import AttributeTypeError
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var, as_var
from .parts import Parts

_KIND = "positional_encoding"
KINDS = ("sinusoidal", "learned")


@builder_method
def positional_encoding(
    builder: NetBuilder,
    x: Var | str,
    *,
    kind: str = "sinusoidal",
    max_length: int = 0,
    base: float = 1e4,
    init: Any = "normal",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """x plus a vector for each position: out[n, t] = x[n, t] + p[t].

        sinusoidal:  p[t, 2i] = sin(t / base^(2i / D)), p[t, 2i + 1] = cos(t / base^(2i / D))
        learned:     p[t] = w[t]

    (Rotary positions belong to the attention: `multi_head_attention(..., rotary=True)`.)

    Args:
        x: [N, T, D], or sequences [rows, D], each of which begins with position 0.
        kind: "sinusoidal" or "learned".
        max_length: learned: rows of w, the longest sequence; a longer one is an error of the run.
        base: sinusoidal: where the slowest pair has turned by about 1.
        init, lr_factor, trainable: learned: of the parameter `name.w` [max_length, D].

    Returns:
        Shape of x.

    Source: Vaswani et al. 2017, Attention is all you need.
    """
    name = builder.layer_name(name, _KIND)
    parts = Parts(builder, name, _KIND, init=init, lr_factor=lr_factor, trainable=trainable)
    if kind not in KINDS:
        raise AttributeTypeError(
            f"layer {name!r} ({_KIND}): kind is one of {', '.join(KINDS)}, not {kind!r}"
        )
    width = parts.width(x, "x")
    numbers = builder.positions(x)
    if kind == "sinusoidal":
        dtype = as_var(builder, x).dtype or builder.dtype
        codes = builder.sinusoidal_encoding(numbers, size=width, dtype=dtype, base=base)
    else:
        if max_length < 1:
            raise AttributeTypeError(
                f"layer {name!r} ({_KIND}): learned positions want max_length, the longest sequence"
            )
        codes = builder.embedding(numbers, w=parts.parameter("w", [max_length, width], init))
    return builder.add(x, codes, name=name)
