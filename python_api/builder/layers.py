"""Layers: operators together with the parameters they need.

`b.fc(x, size=100)` makes `fc_0.w` and `fc_0.b` and appends the operator `fc`. Given parameters are
used as they are (`b.fc(x, w=w, b=b)`), which is also how two layers share them.

A layer is a function of the builder and further arguments; `@layer(slot)` makes it a method of
NetBuilder and says which input slot of the operator is its first parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.dtypes import wide
from ...framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ...framework.ir.registry import lookup
from .methods import layer
from .net_builder import NetBuilder, Var


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
    name: str = "",
) -> Var:
    """Fully connected layer: out = activation(x w + b), as Paddle's composite `fc`.

    Args:
        x: [..., K], or several inputs whose products are summed.
        size: width N of the output.
        activation: an activation operator (`relu`, `sigmoid`, ...), any case; "" = none.
        w: existing parameter [K, N], one for each input.
        b: existing parameter [N].
        bias: make a bias where `b` is not given.
        init: of the weights; see `initializers.initializer`.
        bias_init: of the bias.
        lr_factor: multiplies the learning rate of both.

    Returns:
        [..., N]
    """
    name = name or builder.unique_name("fc")
    inputs = list(x) if isinstance(x, (list, tuple)) else [x]
    if w is None:
        if size is None:
            raise AttributeTypeError(f"layer {name!r} (fc): give `size` or the parameter `w`")
        w = []
        for index, item in enumerate(inputs):
            suffix = f".w{index}" if len(inputs) > 1 else ".w"
            width = known_size(builder, item, -1, name, "fc")
            w.append(builder.parameter(name + suffix, [width, size], init, lr_factor=lr_factor))
        if b is None and bias:
            b = builder.parameter(f"{name}.b", [size], bias_init, lr_factor=lr_factor)
    attrs = {"activation": activation.lower()} if activation else {}
    return builder.append(lookup("fc"), (inputs, w, b), attrs, name=name)


def known_size(builder: NetBuilder, x: Any, axis: int, name: str, kind: str) -> int:
    """A dimension that a parameter's shape depends on."""
    shape = builder.shape_of(str(x))
    if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] < 0:
        raise ShapeError(
            f"layer {name!r} ({kind}): dimension {axis} of {str(x)!r} {format_shape(shape)}"
            " must be known to make the parameters"
        )
    return shape[axis]


def _conv(
    builder: NetBuilder,
    rank: int,
    x: Any,
    filters: int | None,
    kernel: int | Sequence[int] | None,
    activation: str,
    options: dict[str, Any],
    *,
    transposed: bool = False,
) -> Var:
    kind = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    name = options.pop("name", "") or builder.unique_name(kind)
    w, b = options.pop("w", None), options.pop("b", None)
    bias, init = options.pop("bias", True), options.pop("init", "he")
    bias_init, lr_factor = options.pop("bias_init", 0.0), options.pop("lr_factor", None)
    if w is None:
        if filters is None or kernel is None:
            raise AttributeTypeError(f"layer {name!r} ({kind}): give `filters` and `kernel`")
        sizes = [kernel] * rank if isinstance(kernel, int) else list(kernel)
        groups = options.get("groups", 1)
        channels = known_size(builder, x, 1, name, kind)
        pair = [channels, filters // groups] if transposed else [filters, channels // groups]
        w = builder.parameter(f"{name}.w", pair + sizes, init, lr_factor=lr_factor)
        if b is None and bias:
            b = builder.parameter(f"{name}.b", [filters], bias_init, lr_factor=lr_factor)
    if not activation:
        return builder.append(lookup(kind), (x, w, b), options, name=name)
    out = builder.append(lookup(kind), (x, w, b), options, name=f"{name}.linear")
    return builder.append(lookup(activation.lower()), (out,), {}, name=name)


@layer("w")
def conv1d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: Any = None,
    activation: str = "",
    **o: Any,
) -> Var:
    """Convolution over [N, C, L]; see `conv2d`."""
    return _conv(builder, 1, x, filters, kernel, activation, o)


@layer("w")
def conv2d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: Any = None,
    activation: str = "",
    **o: Any,
) -> Var:
    """Convolution over [N, C, H, W] with its parameters.

    Args:
        filters: channels of the output.
        kernel: size, or one for each spatial dimension.
        activation: an activation operator; "" = none.
        o: attributes of the operator (`stride`, `padding`, `dilation`, `groups`), `w`, `b`,
            `bias`, `init`, `bias_init`, `lr_factor`, `name`.
    """
    return _conv(builder, 2, x, filters, kernel, activation, o)


@layer("w")
def conv3d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: Any = None,
    activation: str = "",
    **o: Any,
) -> Var:
    """Convolution over [N, C, D, H, W]; see `conv2d`."""
    return _conv(builder, 3, x, filters, kernel, activation, o)


@layer("w")
def conv_transpose1d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: Any = None,
    activation: str = "",
    **o: Any,
) -> Var:
    """Transposed convolution over [N, C, L]; see `conv2d`."""
    return _conv(builder, 1, x, filters, kernel, activation, o, transposed=True)


@layer("w")
def conv_transpose2d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: Any = None,
    activation: str = "",
    **o: Any,
) -> Var:
    """Transposed convolution over [N, C, H, W]; see `conv2d`."""
    return _conv(builder, 2, x, filters, kernel, activation, o, transposed=True)


@layer("w")
def conv_transpose3d(
    builder: NetBuilder,
    x: Any,
    filters: int | None = None,
    kernel: Any = None,
    activation: str = "",
    **o: Any,
) -> Var:
    """Transposed convolution over [N, C, D, H, W]; see `conv2d`."""
    return _conv(builder, 3, x, filters, kernel, activation, o, transposed=True)


@layer("w")
def sequence_conv(
    builder: NetBuilder,
    x: Any,
    size: int | None = None,
    *,
    left: int = 0,
    right: int = 0,
    w: Any = None,
    b: Any = None,
    bias: bool = True,
    init: Any = "xavier",
    bias_init: Any = 0.0,
    lr_factor: float | None = None,
    name: str = "",
    **attrs: Any,
) -> Var:
    """Convolution over time: row t of a sequence becomes (x[t-left], ..., x[t+right]) w + b.

    Args:
        x: sequences [N, D].
        size: width M of the output.
        left: rows before.
        right: rows after.
        w: existing parameter [(left + right + 1) D, M].
        b: existing parameter [M].
        bias: make a bias where w is made, too, and `b` is not given.
        init: of the weights; see `initializers.initializer`.
        bias_init: of the bias.
        lr_factor: multiplies the learning rate of both.
        attrs: attributes of the operator, `padding="edge"`.

    Returns:
        Sequences [N, M].
    """
    name = name or builder.unique_name("sequence_conv")
    if w is None:
        if size is None:
            raise AttributeTypeError(f"layer {name!r} (sequence_conv): give `size` or `w`")
        rows = known_size(builder, x, -1, name, "sequence_conv") * (left + right + 1)
        w = builder.parameter(f"{name}.w", [rows, size], init, lr_factor=lr_factor)
        if b is None and bias:
            b = builder.parameter(f"{name}.b", [size], bias_init, lr_factor=lr_factor)
    attributes = {"left": left, "right": right, **attrs}
    return builder.append(lookup("sequence_conv"), (x, w, b), attributes, name=name)


@layer("w")
def embedding(
    builder: NetBuilder,
    ids: Any,
    size: Sequence[int] | None = None,
    *,
    w: Any = None,
    init: Any = "normal",
    lr_factor: float | None = None,
    name: str = "",
    **attrs: Any,
) -> Var:
    """Rows of a table: out[...] = w[ids[...]].

    Args:
        ids: integers of any shape.
        size: [rows, width] of the table to make; or give `w`.
        attrs: attributes of the operator, `sparse=True` for gradients of the used rows only.
    """
    name = name or builder.unique_name("embedding")
    if w is None:
        if size is None:
            raise AttributeTypeError(f"layer {name!r} (embedding): give `size` or `w`")
        w = builder.parameter(f"{name}.w", size, init, lr_factor=lr_factor)
    return builder.append(lookup("embedding"), (ids, w), attrs, name=name)


@layer("scale")
def batch_norm(builder: NetBuilder, x: Any, *, name: str = "", **attrs: Any) -> Var:
    """Batch normalisation of [N, C, ...] with scale, bias and running statistics."""
    name = name or builder.unique_name("batch_norm")
    width = [known_size(builder, x, 1, name, "batch_norm")]
    inputs = (
        x,
        builder.parameter(f"{name}.scale", width, 1.0),
        builder.parameter(f"{name}.bias", width, 0.0),
        builder.state(f"{name}.mean", width, 0.0, dtype=wide(builder.dtype)),
        builder.state(f"{name}.variance", width, 1.0, dtype=wide(builder.dtype)),
    )
    running = {"mean_out": f"{name}.mean", "variance_out": f"{name}.variance"}
    return builder.append(lookup("batch_norm"), inputs, attrs, name=name, outputs=running)


@layer("scale")
def layer_norm(builder: NetBuilder, x: Any, *, name: str = "", **attrs: Any) -> Var:
    """Layer normalisation over the last dimension, with scale and bias."""
    name = name or builder.unique_name("layer_norm")
    width = [known_size(builder, x, -1, name, "layer_norm")]
    inputs = (
        x,
        builder.parameter(f"{name}.scale", width, 1.0),
        builder.parameter(f"{name}.bias", width, 0.0),
    )
    return builder.append(lookup("layer_norm"), inputs, attrs, name=name)


@layer("scale")
def rms_norm(builder: NetBuilder, x: Any, *, name: str = "", **attrs: Any) -> Var:
    """Root-mean-square normalisation over the last dimension, with scale."""
    name = name or builder.unique_name("rms_norm")
    width = [known_size(builder, x, -1, name, "rms_norm")]
    inputs = (x, builder.parameter(f"{name}.scale", width, 1.0))
    return builder.append(lookup("rms_norm"), inputs, attrs, name=name)
