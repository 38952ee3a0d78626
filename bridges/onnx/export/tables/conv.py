"""Convolutions, poolings, interpolation, local response normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....operators.conv.interpolate import scales_of
from .....operators.conv.windows import spread
from ..emission import Emission, emits, refuses

_POOLS = [f"{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)]
_ADAPTIVE = [f"adaptive_{name}" for name in _POOLS]


def _pads(e: Emission, rank: int, extents: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Begins, then ends."""
    given = list(e.attrs["padding"])
    how = e.attrs.get("padding_algorithm", "explicit")
    if how == "valid":
        return [0] * (2 * rank)
    if how == "explicit":
        return given if len(given) == 2 * rank else list(spread(given, rank)) * 2
    sizes = e.shape("x")[2:]
    if min(sizes) < 0:
        if all(step == 1 for step in strides):
            totals = [extent - 1 for extent in extents]
        else:
            e.refuse("padding `same` with a stride wants sizes that are known; declare them")
    else:
        totals = [
            max((-(-size // step) - 1) * step + extent - size, 0)
            for size, step, extent in zip(sizes, strides, extents, strict=True)
        ]
    before = [total // 2 for total in totals]
    return [*before, *(total - begin for total, begin in zip(totals, before, strict=True))]


def window_attributes(e: Emission) -> dict[str, Any]:
    """The attributes of a convolution."""
    rank = e.rank("x") - 2
    kernel = e.shape("w")[2:]
    strides, dilations = (list(spread(e.attrs[name], rank)) for name in ("stride", "dilation"))
    extents = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
    return {
        "kernel_shape": list(kernel),
        "strides": strides,
        "dilations": dilations,
        "pads": _pads(e, rank, extents, strides),
        "group": int(e.attrs["groups"]),
    }


@emits("conv1d", "conv2d", "conv3d")
def conv(e: Emission) -> None:
    e.set("out", e.node("Conv", e["x"], e["w"], e.get("b"), **window_attributes(e)))


@emits("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(e: Emission) -> None:
    rank = e.rank("x") - 2
    more: dict[str, Any] = {"output_padding": list(spread(e.attrs["output_padding"], rank))}
    strides, dilations = (list(spread(e.attrs[name], rank)) for name in ("stride", "dilation"))
    if any(a >= b for a, b in zip(more["output_padding"], strides, strict=True) if a):
        e.refuse("runtimes want an output_padding below the stride; pad the result instead")
    e.set(
        "out",
        e.node(
            "ConvTranspose", e["x"], e["w"], e.get("b"), kernel_shape=list(e.shape("w")[2:]),
            strides=strides, dilations=dilations, pads=_pads(e, rank, [], []),
            group=int(e.attrs["groups"]), **more,
        ),
    )  # fmt: skip


@emits(*_POOLS)
def pool(e: Emission) -> None:
    rank = e.rank("x") - 2
    a = e.attrs
    kernel = list(spread(a["kernel"], rank))
    strides = list(spread(a["stride"], rank)) if a["stride"] else kernel
    pads = _pads(e, rank, kernel, strides)
    is_max = e.op.type.startswith("max")
    x = e["x"]
    more = dict[str, Any]()
    if not is_max and a["count_include_pad"]:
        if any(pads) and a["ceil_mode"]:  # runtimes disagree on what counts then
            borders = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
            x = e.node("Pad", x, e.ints(*borders))
            pads = [0] * (2 * rank)
        else:
            more["count_include_pad"] = 1
    if a["ceil_mode"]:
        more["ceil_mode"] = 1
    op_type = "MaxPool" if is_max else "AveragePool"
    pooled = e.node(op_type, x, kernel_shape=kernel, strides=strides, pads=pads, **more)
    e.set("out", pooled)


@emits(*_ADAPTIVE)
def adaptive_pool(e: Emission) -> None:
    """Axis by axis; windows of one size are a pooling, others are cut out one by one."""
    is_max = "max" in e.op.type
    rank = e.rank("x") - 2
    wanted = list(spread(e.attrs["size"], rank))
    sizes = e.shape("x")[2:]
    pooled = e["x"]
    if set(wanted) == {1}:
        e.set("out", e.node("GlobalMaxPool" if is_max else "GlobalAveragePool", pooled))
        return
    if all(size >= 0 and size % count == 0 for size, count in zip(sizes, wanted, strict=True)):
        kernel = [size // count for size, count in zip(sizes, wanted, strict=True)]
        kind = "MaxPool" if is_max else "AveragePool"
        e.set("out", e.node(kind, pooled, kernel_shape=kernel, strides=kernel))
        return
    kind = "ReduceMax" if is_max else "ReduceMean"
    for axis, (size, count) in enumerate(zip(sizes, wanted, strict=True), 2):
        if size != count:
            pooled = _adapted(e, pooled, axis, count, kind)
    e.set("out", pooled)


def _adapted(e: Emission, x: str, axis: int, count: int, kind: str) -> str:
    size = e.dims(x, axis, axis + 1)
    parts: list[str] = []
    for number in range(count):
        begin = e.node("Div", e.node("Mul", size, e.ints(number)), e.ints(count))
        end = e.node("Add", e.node("Mul", size, e.ints(number + 1)), e.ints(count - 1))
        end = e.node("Div", end, e.ints(count))
        part = e.node("Slice", x, begin, end, e.ints(axis))
        parts.append(e.reduce(kind, part, [axis], True))
    return e.concat(parts, axis)


@emits("interpolate")
def interpolate(e: Emission) -> None:
    a = e.attrs
    rank = e.rank("x") - 2
    mode = {"bi": "", "tr": ""}.get(a["mode"][:2], a["mode"])
    mode = mode or a["mode"].removeprefix("bi").removeprefix("tri")
    if mode == "cubic" and rank > 2:
        e.refuse("cubic interpolation of more than two axes is not in runtimes; take mode linear")
    x = e["x"]
    flat = rank == 1 and mode != "nearest"  # runtimes want images
    if flat:
        x = e.unsqueeze(x, 2)
    front = [1.0] * (2 + flat)
    how: dict[str, Any] = {"mode": mode}
    if mode == "nearest":
        how |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif a["align_corners"]:
        how["coordinate_transformation_mode"] = "align_corners"
    else:
        how["coordinate_transformation_mode"] = "half_pixel"
    scales = sizes = None
    if a["size"] or e.has("like"):
        ahead = e.dims(x, 0, 2 + flat)
        own = e.ints(*spread(a["size"], rank)) if a["size"] else e.dims(e["like"], 2, 2 + rank)
        sizes = e.concat([ahead, own], 0)
    else:
        factors = [float(factor) for factor in spread(a["scale"], rank)]
        old, new = e.shape("x"), e.shape("out")
        if -1 not in (*old[2:], *new[2:]):
            scales = scales_of(a, old, new)
            if old[2:] == new[2:] and not all(scale in (0, 1) for scale in scales):
                e.refuse("runtimes copy where factors leave all sizes as they are; take size")
            found = zip(scales, old[2:], new[2:], strict=True)
            factors = [scale or after / before for scale, before, after in found]
        scales = e.graph.constant(np.array([*front, *factors], np.float32))
    resized = e.node("Resize", x, None, scales, sizes, **how)
    e.set("out", e.squeeze(resized, 2) if flat else resized)


@emits("lrn")
def lrn(e: Emission) -> None:
    a = e.attrs
    size, alpha, beta, k = int(a["size"]), float(a["alpha"]), float(a["beta"]), float(a["k"])
    rank = e.rank("x")
    if size % 2 and rank == 4:
        e.set("out", e.node("LRN", e["x"], size=size, alpha=alpha, beta=beta, bias=k))
        return
    # runtimes want images, and ONNX puts the longer half at the end
    squares = e.node("Mul", e["x"], e["x"])
    before, after = [0] * rank, [0] * rank
    before[1], after[1] = size // 2, size - 1 - size // 2
    padded = e.node("Pad", squares, e.ints(*before, *after))
    parts = [e.cut(padded, 1, n, n + 1 - size or np.iinfo(np.int64).max) for n in range(size)]
    total = e.node("Mul", e.node("Sum", *parts), e.const(alpha / size))
    base = e.node("Pow", e.node("Add", total, e.const(k)), e.const(beta))
    e.set("out", e.node("Div", e["x"], base))


refuses("the running sums of a batch that ranks share are of training alone", "batch_norm_sums")
