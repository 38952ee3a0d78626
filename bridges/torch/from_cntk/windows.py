"""Convolutions and poolings of images [N, C, ...] as calls of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....cntk.lower.emitter import dims
from ....cntk.lower.kinds.images import Windows
from ....cntk.network.nodes import geometry
from ....cntk.network.nodes.node import Node
from .expressions import shaped

_Call = tuple[str, str]
"""The call on {x}, of a convolution by {layer}; and why there is none."""


def padded_conv(node: Node) -> _Call:
    """A convolution with kernels that all windows share."""
    data, values = node.inputs[1], node.attributes
    if not geometry.is_chw(node):
        return "", ": the layout of its images is CNTK's old one"
    if values["transpose"]:
        return "", ": it is transposed"
    windows = Windows(node, data.shape, node.shape)
    if windows.usual is None or len(windows.kernel) - 1 not in (1, 2, 3):
        return "", ": its windows are none of a plain convolution"
    before, after = windows.usual
    x = shaped("{x}", dims(data), (windows.shape[0], *windows.shape[1:]))
    call = f"{{layer}}({_padded(x, before, after)})"
    maps = math.prod(windows.maps)
    return shaped(call, (maps, *windows.counts[1:]), dims(node)), ""


def image_pool(node: Node) -> _Call:
    """A pooling, of maxima or of means that count no padding."""
    (child,) = node.inputs
    windows = Windows(node, child.shape, node.shape)
    axes = zip(windows.kernel, windows.stride, windows.lower, strict=True)
    pooled = [number for number, axis in enumerate(axes) if axis != (1, 1, 0)]
    rank, first = len(windows.shape), min(pooled, default=len(windows.shape) - 1)
    padding = windows.padding(first) if 1 <= rank - first <= 3 else None
    if padding is None:
        return "", ": its windows are none of a plain pooling"
    before, after = padding
    after = [max(each, 0) for each in after]
    count = rank - first
    images = (math.prod(windows.shape[:first]), *windows.shape[first:])
    x = shaped("{x}", dims(child), images)
    size = f"{tuple(windows.kernel[first:])}, {tuple(windows.stride[first:])}"
    if node.attributes["pool"] == "max":
        call = f"F.max_pool{count}d({_padded(x, before, after, '-torch.inf')}, {size})"
    elif list(before) == list(after):
        options = f", {tuple(before)}, count_include_pad=False" if any(before) else ""
        call = f"F.avg_pool{count}d({x}, {size}{options})"
    else:
        return "", ": means with more padding at one end"
    shape = (
        images[0],
        *(dims(node)[first:] if len(dims(node)) == rank else windows.counts[first:]),
    )
    return shaped(call, shape, dims(node)), ""


def _padded(x: str, before: Sequence[int], after: Sequence[int], value: str = "") -> str:
    """Padding of the last axes; below 0 they are cut."""
    if not any(before) and not any(after):
        return x
    pairs = [side for pair in zip(before, after, strict=True) for side in pair]
    turned = [n for k in range(len(pairs) - 2, -1, -2) for n in (pairs[k], pairs[k + 1])]
    return f"F.pad({x}, {tuple(turned)}{f', value={value}' if value else ''})"
