"""Convolutions, poolings, interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....onnx.importing.calls import Value
from ....onnx.importing.kinds.windows import summed_blocks
from ..calls import Aten, aten, wants_floats


def batched(n: Aten, x: Value, rank: int, run: Callable[[Value], Any]) -> Any:
    """Apply an operator of [N, C, ...] to x, which may lack N."""
    if x.ndim == rank + 2:
        return run(x)
    given = run(n.op("unsqueeze", x, axes=[0]))
    if isinstance(given, list):
        return [one and n.op("squeeze", one, axes=[0]) for one in given]
    return n.op("squeeze", given, axes=[0])


def listed(value: Any, rank: int) -> list[int]:
    """Numbers for each axis, of which one may stand for all."""
    given = value if isinstance(value, list) else [value]
    return [int(one) for one in given] * (rank if len(given) == 1 else 1)


@aten("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d",
      "conv_transpose3d")  # fmt: skip
def _conv(n: Aten, x: Value, weight: Value, bias: Value | None = None) -> Value:
    wants_floats(n, x)
    rank = weight.ndim - 2
    turned = n.get("transposed", n.name.startswith("conv_t"))
    more: dict[str, Any] = {
        "stride": listed(n["stride"], rank),
        "dilation": listed(n["dilation"], rank),
        "groups": int(n["groups"]),
    }
    padding = n["padding"]
    if padding == "same":  # the greater part stands at the end
        sizes = [d * (k - 1) for d, k in zip(more["dilation"], weight.shape[2:], strict=True)]
        more["padding"] = [size // 2 for size in sizes] + [size - size // 2 for size in sizes]
    else:
        more["padding"] = [0] * rank if padding == "valid" else listed(padding, rank)
    if turned:
        more["output_padding"] = listed(n["output_padding"], rank)
    op = f"conv_transpose{rank}d" if turned else f"conv{rank}d"
    return batched(n, x, rank, lambda given: n.op(op, given, weight, bias, **more))


@aten("col2im")
def _col2im(n: Aten) -> Value:
    sizes, kernel, strides, dilations, pads = (
        listed(n[name], 2)
        for name in ("output_size", "kernel_size", "stride", "dilation", "padding")
    )

    def image(x: Value) -> Value:
        return summed_blocks(n, x, sizes, kernel, strides, dilations, [(p, p) for p in pads])

    return batched(n, n["self"], 1, image)


def _window(n: Aten, rank: int) -> dict[str, Any]:
    kernel = listed(n["kernel_size"], rank)
    return {
        "kernel": kernel,
        "stride": listed(n.get("stride") or kernel, rank),
        "padding": listed(n.get("padding", 0), rank),
        "ceil_mode": bool(n.get("ceil_mode", False)),
    }


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(n: Aten) -> Value:
    rank = int(n.name[-2])
    more = _window(n, rank)
    more["count_include_pad"] = bool(n["count_include_pad"])
    divisor = n.get("divisor_override")
    if divisor:
        n.refuse_unless(not more["ceil_mode"], "divisor_override with ceil_mode")
        more["count_include_pad"] = True
    y = batched(n, n["self"], rank, lambda x: n.op(n.name, x, **more))
    return n.op("scale", y, scale=math.prod(more["kernel"]) / divisor) if divisor else y


@aten(*(f"max_pool{d}d{end}" for d in (1, 2, 3) for end in ("", "_with_indices")))
def _max_pool(n: Aten, x: Value, dilation: Any = 1) -> Value | list[Value]:
    op = n.name.removesuffix("_with_indices")
    rank = int(op[-2])
    more = _window(n, rank)
    gaps = listed(dilation, rank)

    def pooled(x: Value) -> list[Value]:
        if set(gaps) == {1} and not n.wants(1):
            return [n.op(op, x, outs=("out",), **more)]
        values, *ids = n.onnx(
            "MaxPool", x, kernel_shape=more["kernel"], strides=more["stride"], dilations=gaps,
            pads=more["padding"] * 2, ceil_mode=int(more["ceil_mode"]),
        )  # fmt: skip
        size = n.const(math.prod(x.shape[2:]), np.int64)  # ONNX counts through all planes
        return [values, *(n.op("mod", one, size) for one in ids)]

    results = batched(n, x, rank, pooled)
    return results[0] if op == n.name else results


@aten(*(f"{end}adaptive_{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("avg", "max")
        for end in ("", "_")))  # fmt: skip
def _adaptive_pool(n: Aten) -> Value | list[Value]:
    op = n.name.removeprefix("_")
    rank = int(op[-2])
    size = listed(n["output_size"], rank)
    outs = ("out",) if "max" in op else 1
    pooled = batched(n, n["self"], rank, lambda x: n.op(op, x, outs=outs, size=size))
    if "max" not in op:
        return pooled
    n.refuse_unless(not n.wants(1), "the places of the largest are read")
    return [pooled]
