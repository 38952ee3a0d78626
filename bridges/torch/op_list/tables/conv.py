"""Convolutions, poolings, interpolation, local response normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....operators.conv.windows import spread
from ..emission import Emission, dtype_text, lists, writes

_POOLS = [f"{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)]


def _pads(
    e: Emission, rank: int, extents: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is added before and after each axis."""
    given = list(e.attrs["padding"])
    how = e.attrs.get("padding_algorithm", "explicit")
    if how == "valid":
        return [0] * rank, [0] * rank
    if how == "explicit":
        both = given if len(given) == 2 * rank else list(spread(given, rank)) * 2
        return both[:rank], both[rank:]
    sizes = e.shape("x")[2:]
    if min(sizes) >= 0:
        totals = [
            max((-(-size // step) - 1) * step + extent - size, 0)
            for size, step, extent in zip(sizes, strides, extents, strict=True)
        ]
    elif all(step == 1 for step in strides):
        totals = [extent - 1 for extent in extents]
    else:
        e.refuse("padding `same` with a stride wants sizes that are known; declare them")
    before = [total // 2 for total in totals]
    return before, [total - begin for total, begin in zip(totals, before, strict=True)]


def _padded(x: str, before: Sequence[int], after: Sequence[int], value: str = "") -> str:
    """x with borders around its last axes."""
    if not any(before) and not any(after):
        return x
    pairs = list(zip(before, after, strict=True))
    turned = [str(n) for pair in reversed(pairs) for n in pair]
    return f"F.pad({x}, {lists(turned)}{f', value={value}' if value else ''})"


def _one(values: Sequence[int]) -> str:
    """A number for all axes, where they agree."""
    return str(values[0]) if len(set(values)) == 1 else str(tuple(values))


def _options(**given: tuple[Sequence[int], int]) -> str:
    """Arguments that are not what PyTorch has without them."""
    return "".join(
        f", {name}={_one(values)}"
        for name, (values, usual) in given.items()
        if set(values) != {usual}
    )


def _applied(e: Emission, kind: str, rank: int, x: str, options: str, turned: bool) -> None:
    """A convolution as a layer, where its weights are its own; else as a function."""
    w, bias = e.owned("w"), e.owned("b")
    groups = int(e.attrs["groups"])
    if groups != 1:
        options += f", groups={groups}"
    if w is None or (e.has("b") and bias is None):
        name = "conv_transpose" if turned else "conv"
        e.set("out", f"F.{name}{rank}d({x}, {e['w']}, {e.get('b')}{options})")
        return
    into, out = (w.shape[0], w.shape[1] * groups) if turned else (w.shape[1] * groups, w.shape[0])
    if bias is None:
        options += ", bias=False"
    if w.dtype != np.float32:
        options += f", dtype={dtype_text(w.dtype)}"
    tensors = [("weight", w, "w")] + ([("bias", bias, "b")] if bias is not None else [])
    make = f"nn.{kind}{rank}d({into}, {out}, {_one(w.shape[2:])}{options})"
    e.set("out", f"{e.layer(make, *tensors)}({x})")


def windows(e: Emission, x: str) -> tuple[str, str]:
    """What a convolution reads of x, and its options."""
    rank = e.rank("x") - 2
    kernel = e.shape("w")[2:]
    strides, dilations = (list(spread(e.attrs[name], rank)) for name in ("stride", "dilation"))
    extents = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
    before, after = _pads(e, rank, extents, strides)
    if before != after:
        x = _padded(x, before, after)
        before = [0] * rank
    return x, _options(stride=(strides, 1), padding=(before, 0), dilation=(dilations, 1))


@writes("conv1d", "conv2d", "conv3d")
def conv(e: Emission) -> None:
    _applied(e, "Conv", e.rank("x") - 2, *windows(e, e["x"]), False)


@writes("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(e: Emission) -> None:
    rank = e.rank("x") - 2
    strides, dilations, more = (
        list(spread(e.attrs[name], rank)) for name in ("stride", "dilation", "output_padding")
    )
    before, after = _pads(e, rank, [], [])
    if before != after:
        e.refuse("its padding differs at both ends; cut the result instead")
    options = _options(
        stride=(strides, 1), padding=(before, 0), output_padding=(more, 0), dilation=(dilations, 1)
    )
    _applied(e, "ConvTranspose", rank, e["x"], options, True)


@writes(*_POOLS)
def pool(e: Emission) -> None:
    rank = e.rank("x") - 2
    a = e.attrs
    kernel = list(spread(a["kernel"], rank))
    strides = list(spread(a["stride"], rank)) if a["stride"] else kernel
    before, after = _pads(e, rank, kernel, strides)
    is_max = e.op.type.startswith("max")
    x = e["x"]
    usual = before == after and all(2 * n <= k for n, k in zip(before, kernel, strict=True))
    options = ""
    if usual:
        options = _options(padding=(before, 0))
    elif is_max:
        x = _padded(x, before, after, "-torch.inf")
    elif a["count_include_pad"] and not a["ceil_mode"]:
        x = _padded(x, before, after)
    else:
        e.refuse("means with more padding at one end")
    if a["ceil_mode"]:
        options += ", ceil_mode=True"
    if not is_max and not a["count_include_pad"]:
        options += ", count_include_pad=False"
    e.set("out", f"F.{e.op.type}({x}, {_one(kernel)}, {_one(strides)}{options})")


@writes("global_avg_pool", "global_max_pool")
def global_pool(e: Emission) -> None:
    axes = lists([str(axis) for axis in range(2, e.rank("x"))])
    kind = "mean" if e.op.type == "global_avg_pool" else "amax"
    e.set("out", f"{e['x']}.{kind}({axes}, keepdim=True)")


@writes(*(f"adaptive_{name}" for name in _POOLS))
def adaptive_pool(e: Emission) -> None:
    rank = e.rank("x") - 2
    e.set("out", f"F.{e.op.type}({e['x']}, {_one(list(spread(e.attrs['size'], rank)))})")


@writes("interpolate")
def interpolate(e: Emission) -> None:
    a = e.attrs
    rank = e.rank("x") - 2
    kind = a["mode"].removeprefix("bi").removeprefix("tri")
    prefix = {"linear": ("", "bi", "tri"), "cubic": ("", "bi", "")}.get(kind, ("", "", ""))
    mode = prefix[rank - 1] + kind
    if kind == "cubic" and rank != 2:
        e.refuse("PyTorch has cubic interpolation of images alone; take mode linear")
    if e.has("like"):
        how = f"size={e['like']}.shape[2:]"
    elif a["size"]:
        how = f"size={list(spread(a['size'], rank))}"
    else:
        how = f"scale_factor={[float(one) for one in spread(a['scale'], rank)]}"
    corners = "" if kind == "nearest" or not a["align_corners"] else ", align_corners=True"
    e.set("out", f'F.interpolate({e["x"]}, {how}, mode="{mode}"{corners})')


@writes("lrn")
def lrn(e: Emission) -> None:
    a = e.attrs
    given = ", ".join(repr(a[name]) for name in ("size", "alpha", "beta", "k"))
    if e.rank("x") == 2:
        e.set("out", f"F.local_response_norm({e['x']}.unsqueeze(2), {given}).squeeze(2)")
    else:
        e.set("out", f"F.local_response_norm({e['x']}, {given})")
