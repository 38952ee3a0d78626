"""Transformers: encoder and decoder layers, and stacks of them.

Each takes padded batches [N, T, D] with masks, or packed sequences [rows, D] without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....framework.base.errors import AttributeTypeError
from ..methods import builder_method, takes
from ..net_builder import NetBuilder
from ..var import Var
from .parts import Parts


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """What all encoders take by keyword; see `transformer_encoder_layer`."""

    heads: int
    feedforward: int | None = None
    activation: str = "relu"
    norm_first: bool = False
    dropout: float = 0.1
    mask: Var | str | None = None
    key_padding_mask: Var | str | None = None
    causal: bool = False
    rotary: bool = False
    epsilon: float = 1e-5
    init: Any = "xavier"
    lr_factor: float | None = None
    trainable: bool = True
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(EncoderOptions):
    """What all decoders take by keyword; see `transformer_decoder_layer`."""

    causal: bool = True
    memory_mask: Var | str | None = None
    memory_key_padding_mask: Var | str | None = None


class _Layer:
    """One layer: sublayers with a norm, dropout and a way round each of them."""

    def __init__(self, builder: NetBuilder, name: str, kind: str, o: EncoderOptions) -> None:
        self.builder = builder
        self.name = builder.layer_name(name, kind)
        self.options = o
        self.shared = {"init": o.init, "lr_factor": o.lr_factor, "trainable": o.trainable}
        self.parts = Parts(builder, self.name, kind, **self.shared)
        self._norms = 0

    def norm(self, x: Any, name: str = "") -> Var:
        self._norms += 1
        return self.parts.norm(x, f"norm{self._norms}", self.options.epsilon, name=name)

    def around(self, x: Any, sublayer: Any, name: str = "") -> Var:
        """x + sublayer(norm(x)), or norm(x + sublayer(x))."""
        if self.options.norm_first:
            added = self.parts.dropout(sublayer(self.norm(x)), self.options.dropout)
            return self.builder.add(x, added, name=name)
        added = self.parts.dropout(sublayer(x), self.options.dropout)
        return self.norm(self.builder.add(x, added), name)

    def attention(self, part: str, x: Any, memory: Any = None, **how: Any) -> Var:
        return self.builder.multi_head_attention(
            x,
            memory,
            heads=self.options.heads,
            size=self.parts.width(x, "x"),
            dropout=self.options.dropout,
            name=f"{self.name}.{part}",
            **how,
            **self.shared,
        )

    def own_attention(self, x: Any) -> Var:
        o = self.options
        masks = {"mask": o.mask, "key_padding_mask": o.key_padding_mask, "causal": o.causal}
        return self.attention("attention", x, rotary=o.rotary, **masks)

    def feedforward(self, x: Any) -> Var:
        width = self.parts.width(x, "x")
        inner = self.parts.linear(x, self.options.feedforward or 4 * width, "feedforward.in")
        inner = self.builder.add_op(self.options.activation, inner)
        inner = self.parts.dropout(inner, self.options.dropout)
        return self.parts.linear(inner, width, "feedforward.out")


def _encoder_layer(layer: _Layer, x: Any) -> Var:
    x = layer.around(x, layer.own_attention)
    return layer.around(x, layer.feedforward, layer.name)


def _decoder_layer(layer: _Layer, x: Any, memory: Any, o: DecoderOptions) -> Var:
    masks = {"mask": o.memory_mask, "key_padding_mask": o.memory_key_padding_mask}
    x = layer.around(x, layer.own_attention)
    x = layer.around(x, lambda y: layer.attention("memory", y, memory, **masks))
    return layer.around(x, layer.feedforward, layer.name)


def _numbers(name: str, kind: str, layers: int) -> range:
    if layers < 1:
        raise AttributeTypeError(f"layer {name!r} ({kind}): layers={layers} wants 1 or more")
    return range(layers)


def _finished(
    builder: NetBuilder, name: str, kind: str, x: Any, final_norm: bool | None, o: EncoderOptions
) -> Var:
    """The end of a stack: a norm, by default where the layers leave their sums without one."""
    if not (o.norm_first if final_norm is None else final_norm):
        return builder.assign(x, name=name)
    return _Layer(builder, name, kind, o).parts.norm(x, "norm", o.epsilon, name=name)


@builder_method
@takes(EncoderOptions)
def transformer_encoder_layer(
    builder: NetBuilder,
    x: Var | str,
    **options: Any,
) -> Var:
    """Layer of a transformer's encoder: self-attention, then two products with an activation.

        norm_first=False:  y = norm1(x + attention(x)),   out = norm2(y + feedforward(y))
        norm_first=True:   y = x + attention(norm1(x)),   out = y + feedforward(norm2(y))

    Args:
        x: [N, T, D], or packed sequences [rows, D], which need no padding mask.
        heads: heads of the attention; they divide D.
        feedforward: columns between the two products; by default 4 D.
        activation: between them, an activation operator such as "relu" or "gelu".
        norm_first: normalize what goes into a sublayer, not the sum that comes out.
        dropout: probability, of the weights of attention, after the activation and after both
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
    o = EncoderOptions(**options)
    return _encoder_layer(_Layer(builder, o.name, kind, o), x)


@builder_method
@takes(EncoderOptions)
def transformer_encoder(
    builder: NetBuilder,
    x: Var | str,
    *,
    layers: int,
    final_norm: bool | None = None,
    **options: Any,
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
    o = EncoderOptions(**options)
    name = builder.layer_name(o.name, kind)
    for number in _numbers(name, kind, layers):
        x = _encoder_layer(_Layer(builder, f"{name}.{number}", kind, o), x)
    return _finished(builder, name, kind, x, final_norm, o)


@builder_method
@takes(DecoderOptions)
def transformer_decoder_layer(
    builder: NetBuilder,
    x: Var | str,
    memory: Var | str,
    **options: Any,
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
    o = DecoderOptions(**options)
    layer = _Layer(builder, o.name, kind, o)
    return _decoder_layer(layer, x, memory, o)


@builder_method
@takes(DecoderOptions)
def transformer_decoder(
    builder: NetBuilder,
    x: Var | str,
    memory: Var | str,
    *,
    layers: int,
    final_norm: bool | None = None,
    **options: Any,
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
    o = DecoderOptions(**options)
    name = builder.layer_name(o.name, kind)
    for number in _numbers(name, kind, layers):
        x = _decoder_layer(_Layer(builder, f"{name}.{number}", kind, o), x, memory, o)
    return _finished(builder, name, kind, x, final_norm, o)
