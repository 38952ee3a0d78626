"""Normalizations with their scale and bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....framework.base.dtypes import wide
from ....framework.ir.registry import lookup
from ..layers import known_size, nothing_to_learn
from ..methods import layer, takes
from ..net_builder import NetBuilder
from ..var import Var


@dataclass(frozen=True, kw_only=True)
class NormOptions:
    """What all normalizations take by keyword; see `layer_norm`."""

    init: Any = 1.0
    bias_init: Any = 0.0
    lr_factor: float | None = None
    trainable: bool = True
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class AffineOptions(NormOptions):
    """Of those that can do without scale and bias."""

    affine: bool = True


def _parameters(
    builder: NetBuilder,
    title: str,
    name: str,
    sizes: list[int],
    given: Mapping[str, Any],
    o: NormOptions,
) -> list[Any]:
    """Scale, and bias where `given` has one, as they are given, or else made.

    Args:
        title: of the layer, in messages.
        sizes: their shape.
        given: parameters by slot; None: to be made, unless another one is given.
    """
    learned = {"lr_factor": o.lr_factor, "trainable": o.trainable}
    there = [f"{slot}=" for slot, value in given.items() if value is not None]
    if isinstance(o, AffineOptions) and not o.affine:
        there.insert(0, "affine=False")
    if there:
        nothing_to_learn(title, there[0], learned)
        return list(given.values())
    return [
        builder.parameter(f"{name}.{slot}", sizes, init, **learned)
        for slot, init in zip(given, (o.init, o.bias_init), strict=False)
    ]


@layer("scale")
@takes(NormOptions)
def batch_norm(
    builder: NetBuilder,
    x: Any,
    *,
    scale: Any = None,
    bias: Any = None,
    mean: Any = None,
    variance: Any = None,
    momentum: float | None = None,
    epsilon: float | None = None,
    use_global_stats: bool | None = None,
    **options: Any,
) -> Var:
    """Batch normalization of [N, C, ...] with scale, bias and running statistics.

    Args:
        x: [N, C, ...].
        scale, bias: existing parameters [C].
        mean, variance: existing states [C], the running statistics.
        momentum: weight of the batch in the running statistics (0.1).
        epsilon: added to the variance (1e-5).
        use_global_stats: also use the running statistics while training.
        options: see `layer_norm`.

    Returns:
        Shape of x.
    """
    o = NormOptions(**options)
    name = builder.layer_name(o.name, "batch_norm")
    width = [known_size(builder, x, 1, name, "batch_norm")]
    given = {"scale": scale, "bias": bias}
    parameters = _parameters(builder, f"layer {name!r} (batch_norm)", name, width, given, o)
    mean = (
        builder.state(f"{name}.mean", width, 0.0, dtype=wide(builder.dtype))
        if mean is None
        else mean
    )
    variance = (
        builder.state(f"{name}.variance", width, 1.0, dtype=wide(builder.dtype))
        if variance is None
        else variance
    )
    attrs = {"momentum": momentum, "epsilon": epsilon, "use_global_stats": use_global_stats}
    running = {"mean_out": str(mean), "variance_out": str(variance)}
    inputs = (x, *parameters, mean, variance)
    return builder.append(lookup("batch_norm"), inputs, attrs, name=name, outputs=running)


def _of_axes(
    builder: NetBuilder,
    kind: str,
    x: Any,
    begin: int | None,
    given: Mapping[str, Any],
    epsilon: float | None,
    o: AffineOptions,
) -> Var:
    """A normalization over the axes from `begin` on."""
    name = builder.layer_name(o.name, kind)
    rank = len(builder.shape_of(x) or ())
    first = -1 if begin is None else begin
    axes = range(*slice(first, None).indices(rank)) or [first]  # of a wrong axis known_size says so
    sizes = [known_size(builder, x, axis, name, kind) for axis in axes]
    parameters = _parameters(builder, f"layer {name!r} ({kind})", name, sizes, given, o)
    attrs = {"begin_norm_axis": begin, "epsilon": epsilon}
    return builder.append(lookup(kind), (x, *parameters), attrs, name=name)


@layer("scale")
@takes(AffineOptions)
def layer_norm(
    builder: NetBuilder,
    x: Any,
    *,
    scale: Any = None,
    bias: Any = None,
    begin_norm_axis: int | None = None,
    epsilon: float | None = None,
    **options: Any,
) -> Var:
    """Layer normalization over the last dimension, with scale and bias.

    Args:
        x: floats of any shape.
        scale, bias: existing parameters, of the shape of the axes that are normalized.
        begin_norm_axis: first of these axes (-1).
        epsilon: added to the variance (1e-5).
        affine: make scale and bias where neither is given; False: none.
        init, bias_init: of scale and bias; see `initializers.initializer`.
        lr_factor: multiplies the learning rate of both.
        trainable: False keeps both as they are; gradients still flow to x.

    Returns:
        Shape of x.
    """
    given = {"scale": scale, "bias": bias}
    o = AffineOptions(**options)
    return _of_axes(builder, "layer_norm", x, begin_norm_axis, given, epsilon, o)


@layer("scale")
@takes(AffineOptions)
def rms_norm(
    builder: NetBuilder,
    x: Any,
    *,
    scale: Any = None,
    begin_norm_axis: int | None = None,
    epsilon: float | None = None,
    **options: Any,
) -> Var:
    """Root-mean-square normalization over the last dimension, with scale; see `layer_norm`."""
    o = AffineOptions(**options)
    return _of_axes(builder, "rms_norm", x, begin_norm_axis, {"scale": scale}, epsilon, o)


def _of_channels(
    builder: NetBuilder, kind: str, x: Any, scale: Any, bias: Any, attrs: Any, o: AffineOptions
) -> Var:
    """A normalization of [N, C, ...] with a scale and a bias for each channel."""
    name = builder.layer_name(o.name, kind)
    width = [known_size(builder, x, 1, name, kind)]
    given = {"scale": scale, "bias": bias}
    parameters = _parameters(builder, f"layer {name!r} ({kind})", name, width, given, o)
    return builder.append(lookup(kind), (x, *parameters), attrs, name=name)


@layer("scale")
@takes(AffineOptions)
def group_norm(
    builder: NetBuilder,
    x: Any,
    groups: int,
    *,
    scale: Any = None,
    bias: Any = None,
    epsilon: float | None = None,
    **options: Any,
) -> Var:
    """Group normalization of [N, C, ...] with scale and bias.

    Args:
        x: [N, C, ...].
        groups: number of groups that the channels are split into.
        scale, bias: existing parameters [C].
        epsilon: added to the variance (1e-5).
        options: see `layer_norm`.

    Returns:
        Shape of x.
    """
    attrs = {"groups": groups, "epsilon": epsilon}
    o = AffineOptions(**options)
    return _of_channels(builder, "group_norm", x, scale, bias, attrs, o)


@layer("scale")
@takes(AffineOptions)
def instance_norm(
    builder: NetBuilder,
    x: Any,
    *,
    scale: Any = None,
    bias: Any = None,
    epsilon: float | None = None,
    **options: Any,
) -> Var:
    """Instance normalization of [N, C, ...] with scale and bias.

    Args:
        x: [N, C, ...].
        scale, bias: existing parameters [C].
        epsilon: added to the variance (1e-5).
        options: see `layer_norm`.

    Returns:
        Shape of x.
    """
    attrs = {"epsilon": epsilon}
    o = AffineOptions(**options)
    return _of_channels(builder, "instance_norm", x, scale, bias, attrs, o)
