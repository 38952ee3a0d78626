"""Layers: operators together with the parameters they need.

`b.fc(x, size=100)` makes `fc_0.w` and `fc_0.b` and appends the operator `fc`. Given parameters are
used as they are (`b.fc(x, w=w, b=b)`), which is also how two layers share them.

A layer is a function of the builder and further arguments; `@layer(slot)` makes it a method of
NetBuilder and says which input slot of the operator is its first parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ...framework.ir.registry import OperatorDef, lookup
from .methods import layer, takes
from .net_builder import NetBuilder
from .var import Var


@layer("w")
def fc(
    builder: NetBuilder,
    x: Var | str | Sequence[Var | str],
    size: int | None = None,
    activation: str = "",
    *,
    w: Any = None,
    b: Any = None,
    bias: bool = True,
    init: Any = "xavier",
    bias_init: Any = 0.0,
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Fully connected layer: out = activation(x w + b), as Paddle's composite `fc`.

    Args:
        x: [..., K], or several inputs whose products are summed.
        size: width N of the output.
        activation: an activation operator (`relu`, `sigmoid`, ...), any case; "" = none.
        w: existing parameter [K, N], one for each input.
        b: existing parameter [N].
        bias: also make a bias, if `w` is made and `b` is not given. init: of the weights; see
            `initializers.initializer`.
        bias_init: of the bias.
        lr_factor: multiplies the learning rate of both.
        trainable: False keeps both as they are; gradients still flow to x.

    Returns:
        [..., N]
    """
    name = builder.layer_name(name, "fc")
    learned = {"lr_factor": lr_factor, "trainable": trainable}
    inputs = list(x) if isinstance(x, (list, tuple)) else [x]
    if w is not None:
        nothing_to_learn(f"layer {name!r} (fc)", "w=", learned)
        for item in w if isinstance(w, (list, tuple)) else [w]:
            _check_given(builder, f"layer {name!r} (fc): size={size}", item, [-1, size])
    else:
        if size is None:
            raise AttributeTypeError(f"layer {name!r} (fc): give `size` or the parameter `w`")
        if isinstance(size, int) and size < 1:
            raise AttributeTypeError(f"layer {name!r} (fc): size is at least 1, not {size}")
        w = []
        for index, item in enumerate(inputs):
            suffix = f".w{index}" if len(inputs) > 1 else ".w"
            width = known_size(builder, item, -1, name, "fc")
            w.append(builder.parameter(name + suffix, [width, size], init, **learned))
        if b is None and bias:
            b = builder.parameter(f"{name}.b", [size], bias_init, **learned)
    attrs = {"activation": activation} if activation else {}
    return builder.append(lookup("fc"), (inputs, w, b), attrs, name=name)


def known_size(builder: NetBuilder, x: Any, axis: int, name: str, kind: str) -> int:
    """A dimension that a parameter's shape depends on."""
    shape = builder.shape_of(x)
    if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] < 0:
        raise ShapeError(
            f"layer {name!r} ({kind}): dimension {axis} of {str(x)!r} {format_shape(shape)}"
            " must be known to make the parameters"
        )
    return shape[axis]


def nothing_to_learn(title: str, given: str, learned: Mapping[str, Any]) -> None:
    """Refuse arguments about parameters where the layer makes none, because of `given`."""
    for key, value in learned.items():
        if value is not None and value is not True:
            raise AttributeTypeError(
                f"{title}: {key}={value!r} is about parameters that the layer makes, and with"
                f" {given} it makes none"
            )


def _check_given(builder: NetBuilder, asked: str, w: Any, wanted: Sequence[int | None]) -> None:
    """Refuse a parameter whose shape is not the one that the other arguments ask for.

    Args:
        asked: layer and arguments, for the message.
        wanted: sizes; None or -1 where nothing is asked.
    """
    shape = builder.shape_of(str(w))
    sizes = [-1 if size is None else size for size in wanted]
    if shape is None or len(shape) != len(sizes):
        return  # the operator says what is wrong
    if any(one != two and min(one, two) >= 0 for one, two in zip(shape, sizes, strict=True)):
        raise ShapeError(f"{asked}, and the given w {str(w)!r} is {format_shape(shape)}")


def _kernel_sizes(kind: str, kernel: int | Sequence[int] | None) -> list[int]:
    """The size of a kernel along each axis; -1 where it is not given."""
    given = -1 if kernel is None else kernel
    return [given] * int(kind[-2]) if isinstance(given, int) else list(given)


@dataclass(frozen=True, kw_only=True)
class ConvOptions:
    """What all convolutions take by keyword; see `conv2d`."""

    stride: int | Sequence[int] = 1
    padding: int | Sequence[int] | str = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1
    w: Any = None
    b: Any = None
    bias: bool = True
    init: Any = "he"
    bias_init: Any = 0.0
    lr_factor: float | None = None
    trainable: bool = True
    name: str = ""

    def attrs(self, entry: OperatorDef) -> dict[str, Any]:
        """The attributes of the operator that differ from their defaults."""
        given = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {
            key: value
            for key, (value, default) in given.items()
            if key in entry.attr_specs and value != default
        }


@dataclass(frozen=True, kw_only=True)
class ForwardOptions(ConvOptions):
    """Of `conv1d`, `conv2d` and `conv3d`."""

    padding_algorithm: str = "explicit"


@dataclass(frozen=True, kw_only=True)
class TransposedOptions(ConvOptions):
    """Of `conv_transpose1d`, `conv_transpose2d` and `conv_transpose3d`."""

    output_padding: int | Sequence[int] = 0


def _conv(
    builder: NetBuilder,
    kind: str,
    x: Any,
    filters: int | None,
    kernel: int | Sequence[int] | None,
    activation: str,
    o: ConvOptions,
) -> Var:
    name = builder.layer_name(o.name, kind)
    w = o.w
    b = o.b
    entry = lookup(kind)
    learned = {"lr_factor": o.lr_factor, "trainable": o.trainable}
    if w is not None:
        nothing_to_learn(f"layer {name!r} ({kind})", "w=", learned)
        asked = f"layer {name!r} ({kind}): filters={filters}, kernel={kernel}"
        each = -1 if filters is None else filters // o.groups
        pair = [-1, each] if isinstance(o, TransposedOptions) else [filters, -1]
        _check_given(builder, asked, w, [*pair, *_kernel_sizes(kind, kernel)])
    else:
        if filters is None or kernel is None:
            raise AttributeTypeError(f"layer {name!r} ({kind}): give `filters` and `kernel`")
        if o.groups < 1:
            raise AttributeTypeError(
                f"layer {name!r} ({kind}): groups is at least 1, not {o.groups}"
            )
        sizes = _kernel_sizes(kind, kernel)
        channels = known_size(builder, x, 1, name, kind)
        pair = [filters, channels // o.groups]
        if isinstance(o, TransposedOptions):
            pair = [channels, filters // o.groups]
        w = builder.parameter(f"{name}.w", pair + sizes, o.init, **learned)
        if b is None and o.bias:
            b = builder.parameter(f"{name}.b", [filters], o.bias_init, **learned)
    if not activation:
        return builder.append(entry, (x, w, b), o.attrs(entry), name=name)
    out = builder.append(entry, (x, w, b), o.attrs(entry), name=f"{name}.linear")
    return builder.append(lookup(activation), (out,), {}, name=name)


@layer("w")
@takes(ForwardOptions)
def conv1d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: int | Sequence[int] | None = None,
    activation: str = "",
    **options: Any,
) -> Var:
    """Convolution over [N, C, L]; see `conv2d`."""
    return _conv(builder, "conv1d", x, filters, kernel, activation, ForwardOptions(**options))


@layer("w")
@takes(ForwardOptions)
def conv2d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: int | Sequence[int] | None = None,
    activation: str = "",
    **options: Any,
) -> Var:
    """Convolution over [N, C, H, W] with its parameters.

    Args:
        filters: channels of the output.
        kernel: size, or one for each spatial dimension.
        activation: an activation operator; "" = none.
        stride, dilation: one value, or one an axis.
        padding: one value, one an axis, all begins and then all ends, or "same": an axis of size S
            becomes ceil(S / stride).
        groups: independent convolutions that the channels are split into.
        w, b: existing parameters [filters, C / groups, *kernel], transposed convolutions
            [C, filters / groups, *kernel], and [filters].
        bias: also make a bias, if `w` is made and `b` is not given.
        init, bias_init: see `initializers.initializer`.
        lr_factor: multiplies the learning rate of both.
        trainable: False keeps both as they are; gradients still flow to x.
        padding_algorithm: of the operator; `padding="same"` is a short form of it.

    Returns:
        [N, filters, ...], spatial sizes as the operator says.
    """
    return _conv(builder, "conv2d", x, filters, kernel, activation, ForwardOptions(**options))


@layer("w")
@takes(ForwardOptions)
def conv3d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: int | Sequence[int] | None = None,
    activation: str = "",
    **options: Any,
) -> Var:
    """Convolution over [N, C, D, H, W]; see `conv2d`."""
    return _conv(builder, "conv3d", x, filters, kernel, activation, ForwardOptions(**options))


@layer("w")
@takes(TransposedOptions)
def conv_transpose1d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: int | Sequence[int] | None = None,
    activation: str = "",
    **options: Any,
) -> Var:
    """Transposed convolution over [N, C, L]; see `conv2d`."""
    return _conv(
        builder, "conv_transpose1d", x, filters, kernel, activation, TransposedOptions(**options)
    )


@layer("w")
@takes(TransposedOptions)
def conv_transpose2d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: int | Sequence[int] | None = None,
    activation: str = "",
    **options: Any,
) -> Var:
    """Transposed convolution over [N, C, H, W]; see `conv2d`."""
    return _conv(
        builder, "conv_transpose2d", x, filters, kernel, activation, TransposedOptions(**options)
    )


@layer("w")
@takes(TransposedOptions)
def conv_transpose3d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: int | Sequence[int] | None = None,
    activation: str = "",
    **options: Any,
) -> Var:
    """Transposed convolution over [N, C, D, H, W]; see `conv2d`."""
    return _conv(
        builder, "conv_transpose3d", x, filters, kernel, activation, TransposedOptions(**options)
    )


@layer("w")
def sequence_conv(
    builder: NetBuilder,
    x: Any,
    size: int | None = None,
    *,
    left: int = 0,
    right: int = 0,
    padding: str = "zero",
    w: Any = None,
    b: Any = None,
    bias: bool = True,
    init: Any = "xavier",
    bias_init: Any = 0.0,
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Convolution over time: row t of a sequence becomes (x[t-left], ..., x[t+right]) w + b.

    Args:
        x: sequences [N, D].
        size: width M of the output.
        left: rows before.
        right: rows after.
        padding: rows outside of the sequence: "zero", or "edge", its first or last row.
        w: existing parameter [(left + right + 1) D, M].
        b: existing parameter [M].
        bias: make a bias if w is also made and `b` is not given.
        init: of the weights; see `initializers.initializer`.
        bias_init: of the bias.
        lr_factor: multiplies the learning rate of both.
        trainable: False keeps both as they are; gradients still flow to x.

    Returns:
        Sequences [N, M].
    """
    name = builder.layer_name(name, "sequence_conv")
    learned = {"lr_factor": lr_factor, "trainable": trainable}
    if w is not None:
        nothing_to_learn(f"layer {name!r} (sequence_conv)", "w=", learned)
        _check_given(builder, f"layer {name!r} (sequence_conv): size={size}", w, [-1, size])
    else:
        if size is None:
            raise AttributeTypeError(f"layer {name!r} (sequence_conv): give `size` or `w`")
        rows = known_size(builder, x, -1, name, "sequence_conv") * (left + right + 1)
        w = builder.parameter(f"{name}.w", [rows, size], init, **learned)
        if b is None and bias:
            b = builder.parameter(f"{name}.b", [size], bias_init, **learned)
    attributes: dict[str, Any] = {"left": left, "right": right}
    if padding != "zero":
        attributes["padding"] = padding
    return builder.append(lookup("sequence_conv"), (x, w, b), attributes, name=name)


@layer("w")
def embedding(
    builder: NetBuilder,
    ids: Any,
    size: Sequence[int] | None = None,
    *,
    w: Any = None,
    sparse: bool | None = None,
    padding_idx: int | None = None,
    init: Any = "normal",
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Rows of a table: out[...] = w[ids[...]].

    Args:
        ids: integers of any shape.
        size: [rows, width] of the table to make; or give `w`.
        sparse: gradients of the used rows only.
        padding_idx: id whose row counts as zeros and gets no gradient.
        init: of the table; see `initializers.initializer`.
        lr_factor: multiplies its learning rate. trainable: False keeps it as it is.
    """
    name = builder.layer_name(name, "embedding")
    learned = {"lr_factor": lr_factor, "trainable": trainable}
    attrs = {"sparse": sparse, "padding_idx": padding_idx}
    if w is not None:
        nothing_to_learn(f"layer {name!r} (embedding)", "w=", learned)
        _check_given(builder, f"layer {name!r} (embedding): size={size}", w, size or [-1, -1])
    else:
        if size is None:
            raise AttributeTypeError(f"layer {name!r} (embedding): give `size` or `w`")
        w = builder.parameter(f"{name}.w", size, init, **learned)
    return builder.append(lookup("embedding"), (ids, w), attrs, name=name)


@layer("w")
def prelu(
    builder: NetBuilder,
    x: Var | str,
    w: Any = None,
    *,
    shared: bool = False,
    init: Any = 0.25,
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> Var:
    """Parametric rectifier: out = x where x > 0, else w * x, with slopes w that are learned.

    Args:
        x: [N, C, ...].
        w: existing parameter [C], or [1].
        shared: one slope for all channels.
        init: of the slopes; see `initializers.initializer`.
        lr_factor: multiplies their learning rate. trainable: False keeps them as they are.
    """
    name = builder.layer_name(name, "prelu")
    learned = {"lr_factor": lr_factor, "trainable": trainable}
    if w is not None:
        nothing_to_learn(f"layer {name!r} (prelu)", "w=", learned)
    else:
        slopes = 1 if shared else known_size(builder, x, 1, name, "prelu")
        w = builder.parameter(f"{name}.w", [slopes], init, **learned)
    return builder.append(lookup("prelu"), (x, w), {}, name=name)
