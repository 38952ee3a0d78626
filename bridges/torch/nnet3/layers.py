"""Components as PyTorch layers: what makes them, what their tensors hold, and the way back.

Values are [N, columns, T], so that a layer over all frames is a convolution of kernel size 1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...nnet3_rows.components import WRITTEN, component_net
from ...nnet3_rows.walk import SPLICED
from .cells import constant, dropout_mask
from .layer import F32, Layer, number_text


def affine_layer(c: Any, taps: int, stride: int = 1, dilation: int = 1) -> Layer:
    """An affine component as a convolution over time.

    Args:
        c: the component, of a type in `SPLICED`.
        taps: how many frames of equal distance the kernel covers; 1: rows are put side by side
            before.
        stride, dilation: of the convolution, in rows of its input.
    """
    weights = c.params if c.type == "LinearComponent" else c.linear_params
    bias = None if c.type == "LinearComponent" or not c.bias_params.size else c.bias_params
    rows, columns = weights.shape
    width = columns // taps
    options = [f"{width}, {rows}, kernel_size={taps}"]
    options += [f"stride={stride}"] if stride > 1 else []
    options += [f"dilation={dilation}"] if dilation > 1 and taps > 1 else []
    options += ["bias=False"] if bias is None else []
    kernel = np.ascontiguousarray(weights.reshape(rows, taps, width).transpose(0, 2, 1), F32)
    arrays = {"weight": kernel} | ({} if bias is None else {"bias": np.asarray(bias, F32)})

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        name = "params" if component.type == "LinearComponent" else "linear_params"
        flat = tensors["weight"].transpose(0, 2, 1).reshape(rows, columns)
        setattr(component, name, np.ascontiguousarray(flat, F32))
        if bias is not None:
            component.bias_params = tensors["bias"]

    trained = c.type != "FixedAffineComponent"
    make = f"nn.Conv1d({', '.join(options)})"
    return Layer(make, arrays=arrays, store=store, trained=trained, over_time=True)


def linear_layer(c: Any) -> Layer:
    """An affine component for [M, columns], as steps of a loop have it."""
    layer = recurrent_layer(c, (), range(c.input_dim))
    rows = layer.arrays["weight_hh"].shape[0]
    arrays = {"weight": layer.arrays["weight_hh"]}
    bias = "bias" in layer.arrays
    arrays |= {"bias": layer.arrays["bias"]} if bias else {}

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        assert layer.store is not None
        given = {"weight_ih": np.zeros((rows, 0), F32), "weight_hh": tensors["weight"]}
        layer.store(component, given | ({"bias": tensors["bias"]} if bias else {}))

    make = f"nn.Linear({c.input_dim}, {rows}{'' if bias else ', bias=False'})"
    return Layer(make, arrays=arrays, store=store, trained=layer.trained)


def recurrent_layer(c: Any, outside: Sequence[int], inside: Sequence[int]) -> Layer:
    """An affine component whose columns `outside` are read before a loop, `inside` in its steps."""
    weights = c.params if c.type == "LinearComponent" else c.linear_params
    bias = None if c.type == "LinearComponent" or not c.bias_params.size else c.bias_params
    first, second = list(outside), list(inside)
    arrays = {
        "weight_ih": np.ascontiguousarray(weights[:, first], F32),
        "weight_hh": np.ascontiguousarray(weights[:, second], F32),
    } | ({} if bias is None else {"bias": np.asarray(bias, F32)})

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        name = "params" if component.type == "LinearComponent" else "linear_params"
        whole = np.empty(weights.shape, F32)
        whole[:, first], whole[:, second] = tensors["weight_ih"], tensors["weight_hh"]
        setattr(component, name, whole)
        if bias is not None:
            component.bias_params = tensors["bias"]

    make = f"RecurrentLinear({len(first)}, {len(second)}, {len(weights)}"
    make += ")" if bias is not None else ", bias=False)"
    trained = c.type != "FixedAffineComponent"
    return Layer(make, "", arrays, store, trained, helper="RecurrentLinear")


def _batch_norm(c: Any) -> Layer:
    mean = c.stats_sum / c.count
    variance = np.maximum(c.stats_sumsq / c.count - mean * mean, 0)
    arrays = {
        "running_mean": mean.astype(F32),
        "running_var": variance.astype(F32),
        "num_batches_tracked": np.zeros((), np.int64),
    }
    blocks = c.dim // c.block_dim
    kind = "nn.BatchNorm1d" if blocks == 1 else "nn.BatchNorm2d"
    call = "{m}({x})"
    if blocks > 1:  # every block has the same statistics: blocks are the height of an image
        call = f"{{m}}({{x}}.unflatten(1, ({blocks}, {c.block_dim})).transpose(1, 2))"
        call += ".transpose(1, 2).flatten(1, 2)"
    if c.target_rms != 1:
        call = f"{number_text(c.target_rms)} * {call}"

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        mean, variance = (tensors[name].astype(np.float64) for name in list(arrays)[:2])
        component.stats_sum = mean * component.count
        component.stats_sumsq = (variance + mean * mean) * component.count

    make = f"{kind}({c.block_dim}, eps={number_text(c.epsilon)}, affine=False)"
    return Layer(make, call, arrays, store, over_time=blocks > 1)


def _vector(name: str, tensor: str, trained: bool) -> Callable[[Any], Layer]:
    def layer(c: Any) -> Layer:
        array = np.asarray(getattr(c, name), F32).reshape(-1)

        def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
            setattr(component, name, tensors[tensor])

        other = "offset" if tensor == "scale" else "scale"
        make = f"ScaleOffset({array.size}, {other}=False)"
        return Layer(make, "{m}({x})", {tensor: array}, store, trained, helper="ScaleOffset")

    return layer


def _scale_and_offset(c: Any) -> Layer:
    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        component.scales = tensors["scale"]
        component.offsets = tensors["offset"]

    arrays = {"scale": np.asarray(c.scales, F32), "offset": np.asarray(c.offsets, F32)}
    make = f"ScaleOffset({c.scales.size}, smallest=1e-4)"
    return Layer(make, "{m}({x})", arrays, store, helper="ScaleOffset")


def _dropout(c: Any) -> Layer:
    frames = ", per_frame=True" if c.dropout_per_frame else ""
    make = f"PlainDropout({number_text(c.dropout_proportion)}{frames})"
    return Layer(make, helper="PlainDropout")


def _general_dropout(c: Any) -> Layer:
    if c.specaugment_max_proportion:
        return Layer("", "{x}", note="SpecAugment's masks of training are left out")
    options = [number_text(c.dropout_proportion), str(c.block_dim)]
    options += [f"period={c.time_period}"] if c.time_period else []
    options += ["continuous=True"] if c.continuous else []
    return Layer(f"SharedDropout({', '.join(options)})", helper="SharedDropout", over_time=True)


def _functional(text: Callable[[Any], str], note: str = "") -> Callable[[Any], Layer]:
    return lambda c: Layer("", text(c), note=note)


def _truncation(c: Any) -> str:
    return "{x}" if c.scale == 1 else f"{number_text(c.scale)} * {{x}}"


def _parameters(c: Any) -> Layer:
    """What a component has that is written as operators: its own parameters."""
    net = component_net(c, "", 3)
    arrays = {name: net.arrays[variable] for variable, name in net.parameters.items()}

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        for name, array in tensors.items():
            setattr(component, name, array)

    listed = ", ".join(f'"{name}": torch.zeros({list(a.shape)})' for name, a in arrays.items())
    return Layer(f"nn.ParameterDict({{{listed}}})" if arrays else "", "", arrays, store)


def _composite(c: Any) -> Layer:
    """The parts one after the other, members of a list."""
    parts = [any_layer(part) for part in c.components]
    arrays: dict[str, np.ndarray] = {}
    frozen: list[str] = []
    for place, part in enumerate(parts):
        arrays |= {f"{place}.{name}": array for name, array in part.arrays.items()}
        frozen += [f"[{place}]{each}" for each in part.not_trained()]

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        component.components = [copy.copy(part) for part in component.components]
        for place, (layer, part) in enumerate(zip(parts, component.components, strict=True)):
            if layer.store is not None:
                layer.store(part, {name: tensors[f"{place}.{name}"] for name in layer.arrays})

    makes = ", ".join(part.make or "nn.Identity()" for part in parts)
    helpers = " ".join(sorted({part.helper for part in parts if part.helper}))
    notes = "; ".join(part.note for part in parts if part.note)
    make = f"nn.ModuleList([{makes}])"
    return Layer(
        make,
        "",
        arrays,
        store,
        frozen=tuple(frozen),
        helper=helpers,
        note=notes,
    )


def any_layer(c: Any) -> Layer:
    return affine_layer(c, 1) if c.type in SPLICED else layer_of(c)


_LAYERS: Final[dict[str, Callable[[Any], Layer]]] = {
    "BatchNormComponent": _batch_norm,
    "PerElementScaleComponent": _vector("scales", "scale", True),
    "NaturalGradientPerElementScaleComponent": _vector("scales", "scale", True),
    "FixedScaleComponent": _vector("scales", "scale", False),
    "PerElementOffsetComponent": _vector("offsets", "offset", True),
    "FixedBiasComponent": _vector("bias", "offset", False),
    "ScaleAndOffsetComponent": _scale_and_offset,
    "DropoutComponent": _dropout,
    "GeneralDropoutComponent": _general_dropout,
    "ConstantFunctionComponent": constant,
    "CompositeComponent": _composite,
    "NoOpComponent": _functional(lambda c: "{x}"),
    "ClipGradientComponent": _functional(lambda c: "{x}", "gradients are not clipped"),
    "BackpropTruncationComponent": _functional(_truncation, "gradients are not truncated"),
    "SpecAugmentTimeMaskComponent": _functional(
        lambda c: "{x}", "SpecAugment's masks of training are left out"
    ),
    "PermuteComponent": _functional(lambda c: f"{{x}}[:, {[int(i) for i in c.column_map]}]"),
}


def layer_of(c: Any) -> Layer:
    """A component that computes each row from the same row of its input, none of `SPLICED`."""
    if c.type in WRITTEN:
        return _parameters(c)
    return _LAYERS[c.type](c)


_SOURCES: Final[dict[str, Callable[[Any], Layer]]] = {
    "ConstantComponent": constant,
    "DropoutMaskComponent": dropout_mask,
}


def source_layer(c: Any) -> Layer:
    """A component without an input, applied to ones of its columns."""
    return _SOURCES[c.type](c)


def why_not(c: Any) -> str:
    """Why a component has no layer here; empty where it has one."""
    if c.type == "CompositeComponent":
        return "; ".join(filter(None, map(why_not, c.components)))
    if any(c.type in known for known in (SPLICED, WRITTEN, _LAYERS, _SOURCES)):
        return ""
    if c.type == "DistributeComponent":
        return f"{c.type} reads rows of another x, and a module has times alone"
    return f"{c.type} has no form in PyTorch here"
