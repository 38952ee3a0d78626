"""Transformers: encoder and decoder layers, and stacks of them.

Each takes padded batches [N, T, D] with masks, or packed sequences [rows, D] without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....framework.base.errors import AttributeTypeError
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var
from .parts import Parts


@dataclass(frozen=True)
class _Style:
    """What the layers of one stack have in common; see `transformer_encoder_layer`."""

    heads: int
    feedforward: int | None
    activation: str
    norm_first: bool
    dropout: float
    rotary: bool
    epsilon: float
    init: Any
    lr_factor: float | None
    trainable: bool


class _Layer:
    """One layer: sublayers with a norm, dropout and a way round each of them."""

    def __init__(self, builder: NetBuilder, name: str, kind: str, style: _Style) -> None:
        self.builder, self.name, self.style = builder, name, style
        self.shared = {
            "init": style.init,
            "lr_factor": style.lr_factor,
            "trainable": style.trainable,
        }
        self.parts = Parts(builder, name, kind, **self.shared)
        self._norms = 0

    def norm(self, x: Any, name: str = "") -> Var:
        self._norms += 1
        return self.parts.norm(x, f"norm{self._norms}", self.style.epsilon, name=name)

    def around(self, x: Any, sublayer: Any, name: str = "") -> Var:
        """x + sublayer(norm(x)), or norm(x + sublayer(x))."""
        if self.style.norm_first:
            added = self.parts.dropout(sublayer(self.norm(x)), self.style.dropout)
            return self.builder.add(x, added, name=name)
        added = self.parts.dropout(sublayer(x), self.style.dropout)
        return self.norm(self.builder.add(x, added), name)

    def attention(self, x: Any, part: str, memory: Any = None, **masks: Any) -> Var:
        style = self.style
        return self.builder.multi_head_attention(
            x,
            memory,
            heads=style.heads,
            size=self.parts.width(x, "x"),
            dropout=style.dropout,
            rotary=style.rotary and memory is None,
            name=f"{self.name}.{part}",
            **masks,
            **self.shared,
        )

    def feedforward(self, x: Any) -> Var:
        width = self.parts.width(x, "x")
        inner = self.parts.linear(x, self.style.feedforward or 4 * width, "feedforward.in")
        inner = self.builder.add_op(self.style.activation.lower(), inner)
        inner = self.parts.dropout(inner, self.style.dropout)
        return self.parts.linear(inner, width, "feedforward.out")


def _encoder_layer(layer: _Layer, x: Any, masks: dict[str, Any]) -> Var:
    x = layer.around(x, lambda y: layer.attention(y, "attention", **masks))
    return layer.around(x, layer.feedforward, layer.name)


def _decoder_layer(
    layer: _Layer, x: Any, memory: Any, masks: dict[str, Any], memory_masks: dict[str, Any]
) -> Var:
    x = layer.around(x, lambda y: layer.attention(y, "attention", **masks))
    x = layer.around(x, lambda y: layer.attention(y, "memory", memory, **memory_masks))
    return layer.around(x, layer.feedforward, layer.name)


def _numbers(name: str, kind: str, layers: int) -> range:
    if layers < 1:
        raise AttributeTypeError(f"layer {name!r} ({kind}): layers={layers} wants 1 or more")
    return range(layers)


def _finished(
    builder: NetBuilder, name: str, kind: str, x: Any, final_norm: bool | None, style: _Style
) -> Var:
    """The end of a stack: a norm, by default where the layers leave their sums without one."""
    if not (style.norm_first if final_norm is None else final_norm):
        return builder.assign(x, name=name)
    layer = _Layer(builder, name, kind, style)
    return layer.parts.norm(x, "norm", style.epsilon, name=name)


@builder_method
def transformer_encoder_layer(
    builder: NetBuilder,
    x: Var | str,
    *,
    heads: int,
    feedforward: int | None = None,
    activation: str = "relu",
    norm_first: bool = False,
    dropout: float = 0.1,
    mask: Var | str | None = None,
    key_padding_mask: Var | str | None = None,
    causal: bool = False,
    rotary: bool = False,
    epsilon: float = 1e-5,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Layer of a transformer's encoder: self-attention, then two products with an activation.

        norm_first=False:  y = norm1(x + attention(x)),   out = norm2(y + feedforward(y))
        norm_first=True:   y = x + attention(norm1(x)),   out = y + feedforward(norm2(y))

    Args:
        x: [N, T, D], or packed sequences [rows, D], which need no padding mask.
        heads: heads of the attention; they divide D.
        feedforward: columns between the two products; by default 4 D.
        activation: between them, an activation operator such as "relu" or "gelu".
        norm_first: normalise what goes into a sublayer, not the sum that comes out.
        dropout: probability, of the weights of attention, behind the activation and behind both
            sublayers, while training.
        mask, key_padding_mask, causal, rotary: see `multi_head_attention`.
        epsilon: of the norms.
        init, lr_factor, trainable: of the parameters of `name.attention` (see
            `multi_head_attention`), `name.feedforward.in.w` [D, feedforward],
            `name.feedforward.out.w`, their biases, and `name.norm1.scale`, `name.norm1.bias`, ...

    Returns:
        Shape of x.

    Source: Vaswani et al. 2017, Attention is all you need; torch.nn.TransformerEncoderLayer.
    """
    kind = "transformer_encoder_layer"
    style = _Style(
        heads, feedforward, activation, norm_first, dropout, rotary, epsilon, init, lr_factor,
        trainable,
    )  # fmt: skip
    layer = _Layer(builder, name or builder.unique_name(kind), kind, style)
    masks = {"mask": mask, "key_padding_mask": key_padding_mask, "causal": causal}
    return _encoder_layer(layer, x, masks)


@builder_method
def transformer_encoder(
    builder: NetBuilder,
    x: Var | str,
    *,
    layers: int,
    heads: int,
    feedforward: int | None = None,
    activation: str = "relu",
    norm_first: bool = False,
    dropout: float = 0.1,
    mask: Var | str | None = None,
    key_padding_mask: Var | str | None = None,
    causal: bool = False,
    rotary: bool = False,
    final_norm: bool | None = None,
    epsilon: float = 1e-5,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Encoder of a transformer: a stack of `transformer_encoder_layer`, which says more.

    Args:
        x: [N, T, D], or packed sequences [rows, D]; positions are to be added before
            (`positional_encoding`), or asked for by `rotary`.
        layers: how many; their names are `name.0`, `name.1`, ...
        final_norm: a norm at the end, `name.norm`; by default where `norm_first` is set.

    Returns:
        Shape of x.

    Source: Vaswani et al. 2017, Attention is all you need; torch.nn.TransformerEncoder.
    """
    kind = "transformer_encoder"
    name = name or builder.unique_name(kind)
    style = _Style(
        heads, feedforward, activation, norm_first, dropout, rotary, epsilon, init, lr_factor,
        trainable,
    )  # fmt: skip
    masks = {"mask": mask, "key_padding_mask": key_padding_mask, "causal": causal}
    for number in _numbers(name, kind, layers):
        x = _encoder_layer(_Layer(builder, f"{name}.{number}", kind, style), x, masks)
    return _finished(builder, name, kind, x, final_norm, style)


@builder_method
def transformer_decoder_layer(
    builder: NetBuilder,
    x: Var | str,
    memory: Var | str,
    *,
    heads: int,
    feedforward: int | None = None,
    activation: str = "relu",
    norm_first: bool = False,
    dropout: float = 0.1,
    mask: Var | str | None = None,
    memory_mask: Var | str | None = None,
    key_padding_mask: Var | str | None = None,
    memory_key_padding_mask: Var | str | None = None,
    causal: bool = True,
    rotary: bool = False,
    epsilon: float = 1e-5,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Layer of a transformer's decoder: attention over x itself, then over a memory, then products.

        norm_first=False:  y = norm1(x + attention(x)),  z = norm2(y + attention(y, memory)),
                           out = norm3(z + feedforward(z))
        norm_first=True:   y = x + attention(norm1(x)),  z = y + attention(norm2(y), memory),
                           out = z + feedforward(norm3(z))

    Args:
        x: [N, T, D], or packed sequences [rows, D].
        memory: what the encoder gives, [N, S, D_m] or packed sequences.
        mask, key_padding_mask, causal: of the attention over x; by default row t sees 0 .. t.
        memory_mask, memory_key_padding_mask: of the attention over the memory.
        rotary: of the attention over x.
        heads, feedforward, activation, norm_first, dropout, epsilon, init, lr_factor, trainable:
            as of `transformer_encoder_layer`; the attention over the memory is `name.memory`.

    Returns:
        Shape of x.

    Source: Vaswani et al. 2017, Attention is all you need; torch.nn.TransformerDecoderLayer.
    """
    kind = "transformer_decoder_layer"
    style = _Style(
        heads, feedforward, activation, norm_first, dropout, rotary, epsilon, init, lr_factor,
        trainable,
    )  # fmt: skip
    layer = _Layer(builder, name or builder.unique_name(kind), kind, style)
    masks = {"mask": mask, "key_padding_mask": key_padding_mask, "causal": causal}
    memory_masks = {"mask": memory_mask, "key_padding_mask": memory_key_padding_mask}
    return _decoder_layer(layer, x, memory, masks, memory_masks)


@builder_method
def transformer_decoder(
    builder: NetBuilder,
    x: Var | str,
    memory: Var | str,
    *,
    layers: int,
    heads: int,
    feedforward: int | None = None,
    activation: str = "relu",
    norm_first: bool = False,
    dropout: float = 0.1,
    mask: Var | str | None = None,
    memory_mask: Var | str | None = None,
    key_padding_mask: Var | str | None = None,
    memory_key_padding_mask: Var | str | None = None,
    causal: bool = True,
    rotary: bool = False,
    final_norm: bool | None = None,
    epsilon: float = 1e-5,
    init: Any = "xavier",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Decoder of a transformer: a stack of `transformer_decoder_layer`, which says more.

    Args:
        x: [N, T, D], or packed sequences [rows, D], with positions added before.
        memory: what the encoder gives, [N, S, D_m] or packed sequences; each layer sees it.
        layers: how many; their names are `name.0`, `name.1`, ...
        final_norm: a norm at the end, `name.norm`; by default where `norm_first` is set.

    Returns:
        Shape of x.

    Source: Vaswani et al. 2017, Attention is all you need; torch.nn.TransformerDecoder.
    """
    kind = "transformer_decoder"
    name = name or builder.unique_name(kind)
    style = _Style(
        heads, feedforward, activation, norm_first, dropout, rotary, epsilon, init, lr_factor,
        trainable,
    )  # fmt: skip
    masks = {"mask": mask, "key_padding_mask": key_padding_mask, "causal": causal}
    memory_masks = {"mask": memory_mask, "key_padding_mask": memory_key_padding_mask}
    for number in _numbers(name, kind, layers):
        layer = _Layer(builder, f"{name}.{number}", kind, style)
        x = _decoder_layer(layer, x, memory, masks, memory_masks)
    return _finished(builder, name, kind, x, final_norm, style)
