"""Convolutions, poolings, interpolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....onnx.importing.calls import Value
from ....onnx.importing.kinds.windows import summed_blocks
from ..calls import Aten, aten, wants_floats


def _batched(n: Aten, x: Value, rank: int, run: Callable[[Value], Any]) -> Any:
    """Apply an operator of [N, C, ...] to x, which may lack N."""
    if x.ndim == rank + 2:
        return run(x)
    return n.op("squeeze", run(n.op("unsqueeze", x, axes=[0])), axes=[0])


def _list(value: Any, rank: int) -> list[int]:
    given = value if isinstance(value, list) else [value]
    return [int(one) for one in given] * (rank if len(given) == 1 else 1)


@aten("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d",
      "conv_transpose3d")  # fmt: skip
def _conv(n: Aten) -> Value:
    x = n["input"]
    weight = n["weight"]
    bias = n.get("bias")
    wants_floats(n, x)
    rank = weight.ndim - 2
    turned = n.get("transposed", n.name.startswith("conv_t"))
    more: dict[str, Any] = {
        "stride": _list(n["stride"], rank),
        "dilation": _list(n["dilation"], rank),
        "groups": int(n["groups"]),
    }
    padding = n["padding"]
    if padding == "same":  # the greater part stands at the end
        sizes = [d * (k - 1) for d, k in zip(more["dilation"], weight.shape[2:], strict=True)]
        more["padding"] = [size // 2 for size in sizes] + [size - size // 2 for size in sizes]
    else:
        more["padding"] = [0] * rank if padding == "valid" else _list(padding, rank)
    if turned:
        more["output_padding"] = _list(n["output_padding"], rank)
    op = f"conv_transpose{rank}d" if turned else f"conv{rank}d"
    return _batched(n, x, rank, lambda given: n.op(op, given, weight, bias, **more))


@aten("col2im")
def _col2im(n: Aten) -> Value:
    sizes, kernel, strides, dilations, pads = (
        _list(n[name], 2)
        for name in ("output_size", "kernel_size", "stride", "dilation", "padding")
    )

    def image(x: Value) -> Value:
        return summed_blocks(n, x, sizes, kernel, strides, dilations, [(p, p) for p in pads])

    return _batched(n, n["self"], 1, image)


def _window(n: Aten, rank: int) -> dict[str, Any]:
    kernel = _list(n["kernel_size"], rank)
    return {
        "kernel": kernel,
        "stride": _list(n.get("stride") or kernel, rank),
        "padding": _list(n.get("padding", 0), rank),
        "ceil_mode": bool(n.get("ceil_mode", False)),
    }


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(n: Aten) -> Value:
    rank = int(n.name[-2])
    more = _window(n, rank)
    more["count_include_pad"] = bool(n["count_include_pad"])
    n.refuse_unless(not n.get("divisor_override"), "divisor_override is not supported")
    return _batched(n, n["self"], rank, lambda x: n.op(n.name, x, **more))


@aten(*(f"max_pool{d}d{end}" for d in (1, 2, 3) for end in ("", "_with_indices")))
def _max_pool(n: Aten) -> Value | list[Value]:
    op = n.name.removesuffix("_with_indices")
    rank = int(op[-2])
    more = _window(n, rank)
    dilated = set(_list(n.get("dilation", 1), rank)) != {1}
    n.refuse_unless(not dilated, "dilated poolings are not supported")
    pooled = _batched(n, n["self"], rank, lambda x: n.op(op, x, outs=("out",), **more))
    if op == n.name:
        return pooled
    n.refuse_unless(not n.wants(1), "the places of the largest are read")
    return [pooled]


@aten(*(f"{end}adaptive_{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("avg", "max")
        for end in ("", "_")))  # fmt: skip
def _adaptive_pool(n: Aten) -> Value | list[Value]:
    op = n.name.removeprefix("_")
    rank = int(op[-2])
    size = _list(n["output_size"], rank)
    outs = ("out",) if "max" in op else 1
    pooled = _batched(n, n["self"], rank, lambda x: n.op(op, x, outs=outs, size=size))
    if "max" not in op:
        return pooled
    n.refuse_unless(not n.wants(1), "the places of the largest are read")
    return [pooled]


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
      "upsample_bilinear2d", "upsample_trilinear3d")  # fmt: skip
def _upsample(n: Aten) -> Value:
    x = n["input"] if n.has("input") else n["self"]
    rank = x.ndim - 2
    more: dict[str, Any] = {"mode": "nearest" if "nearest" in n.name else "linear"}
    if n.get("align_corners", False):
        more["align_corners"] = True
    factors = n.get("scale_factors")
    if factors is None:
        factors = [n.get(key) for key in ("scales_d", "scales_h", "scales_w", "scales")]
        factors = [one for one in factors if one is not None]
    if factors and all(float(one).is_integer() for one in factors):
        more["scale"] = [float(one) for one in factors]
    elif factors and more["mode"] != "nearest":
        more["scale"] = [float(one) for one in factors]
    elif n.has("output_size"):
        more["size"] = _list(n["output_size"], rank)
    else:
        more["scale"] = [float(one) for one in factors]
    return n.op("interpolate", x, **more)
