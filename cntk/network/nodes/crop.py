"""Where a Crop node cuts, if its offsets are not given.

Along the way from each cropped input down to a common ancestor, positions on the first two axes are
mapped by convolutions and poolings: position = scale * position below + shift. The offset is what
is left when one way is gone down and the other up. Source: CropNode::ComputeCropOffsets.
"""

from __future__ import annotations

import math

from .geometry import lower_padding
from .node import Node

Map = tuple[tuple[float, float], tuple[float, float]]  # (scale, shift) of each axis
_IDENTITY: Map = ((1.0, 0.0), (1.0, 0.0))
_ELEMENTWISE = frozenset(
    "Abs Cosine Exp Floor Log Negate Pass Reciprocal RectifiedLinear Sigmoid Sin Sqrt Tanh Plus"
    " LogPlus Minus ElementTimes Equal NotEqual Less LessEqual Greater GreaterEqual".split()
)


def _compose(outer: Map, inner: Map) -> Map:
    return tuple((a * c, a * d + b) for (a, b), (c, d) in zip(outer, inner, strict=True))  # type: ignore[return-value]


def _inverse(one: Map) -> Map:
    return tuple((1 / a, -b / a) for a, b in one)  # type: ignore[return-value]


def _filter(node: Node, small: Node, large: Node) -> Map:
    values = node.attributes
    stride = values["strideShape"]
    result = []
    for axis in (0, 1):
        padding = lower_padding(node, axis, large.shape or (), small.shape or ())
        step = stride[0] if len(stride) == 1 else stride[axis]
        result.append((float(step), float((values["kernelShape"][axis] - 1) // 2 - padding)))
    return tuple(result)  # type: ignore[return-value]


def _steps_down(node: Node) -> list[tuple[Node, Map]]:
    """Inputs whose positions the node keeps or maps, with the map from input to output."""
    inputs = node.inputs
    if node.operation in _ELEMENTWISE:
        return [(child, _IDENTITY) for child in inputs if not child.is_parameter]
    if node.operation == "BatchNormalization":
        return [(inputs[0], _IDENTITY)]
    if node.operation == "Convolution":
        data = inputs[1]
        if node.attributes["transpose"]:
            return [(data, _filter(node, data, node))]
        return [(data, _inverse(_filter(node, node, data)))]
    if node.operation == "Pooling":
        return [(inputs[0], _inverse(_filter(node, node, inputs[0])))]
    if node.operation == "MaxUnpooling":
        return [(inputs[0], _filter(node, inputs[0], node))]
    if node.operation == "Crop":
        shift = [(1.0, -node.attributes[key]) for key in ("xOffset", "yOffset")]
        return [(inputs[0], tuple(shift))]  # type: ignore[list-item]
    if node.is_input:
        return []
    raise node.error("its positions cannot be followed, which a Crop above it needs")


def _maps_below(start: Node, goal: dict[Node, Map] | None = None) -> dict[Node, Map]:
    """The map of each node below `start` that is found, until one of `goal` is among them."""
    maps = {start: _IDENTITY}
    stack = [start]
    while stack:
        node = stack.pop()
        if goal is not None and node in goal:
            return {node: maps[node]}
        for child, step in _steps_down(node):
            composed = _compose(maps[node], step)
            if child not in maps:
                maps[child] = composed
                stack.append(child)
            elif maps[child] != composed:
                raise child.error("two ways from a Crop lead here with different positions")
    return {} if goal is not None else maps


def crop_offsets(node: Node) -> None:
    """Set `xOffset` and `yOffset` of a Crop node that has none.

    Raises:
        ShapeError: its inputs have no common ancestor, differ in scale, or the offset is negative.
    """
    values = node.attributes
    if math.isfinite(values["xOffset"]) and math.isfinite(values["yOffset"]):
        return
    first = _maps_below(node.inputs[0])
    if len(node.inputs) == 4:
        same, other = node.inputs[2:]
        if same not in first:
            raise node.error(f"{same.name} is not below {node.inputs[0].name}")
        first[other] = first[same]
    meeting = _maps_below(node.inputs[1], first)
    if not meeting:
        raise node.error("its inputs have no common ancestor; give offsets")
    ((ancestor, second),) = meeting.items()
    final = _compose(second, _inverse(first[ancestor]))
    for (scale, shift), key in zip(final, ("xOffset", "yOffset"), strict=True):
        if scale != 1 or shift > 0:
            raise node.error(f"its inputs differ by scale {scale:g} and offset {-shift:g}")
        values[key] = -shift
