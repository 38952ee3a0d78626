"""Parts of sequences that are cut from one tensor at known places: slices of the tensor."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

import numpy as np

from .calls import Attributes, Value
from .graph import Node

_SLICED = 9
"""The operator set in which Slice and Squeeze have their axes as attributes."""


def part_of(
    cut: Node, at: Node, value_of: Callable[[str], Value | None], where: str
) -> list[Node] | None:
    """What gives an element of a sequence without the sequence.

    Args:
        cut: `SplitToSequence`. at: `SequenceAt` of its result. value_of: the value of a name; None
            where it is made later.

    Returns:
        The nodes in place of `at`; None where shapes or places are not known, or do not fit.
    """
    tensor, *given = (value_of(name) if name else None for name in cut.inputs)
    position = _known(value_of(at.inputs[1]))
    sizes = _known(given[0]) if given else None
    if tensor is None or position is None or (given and given[0] and sizes is None):
        return None
    attributes = Attributes(cut, where)
    axis = attributes.axis(attributes.attr("axis", 0), tensor.ndim)
    ends = _ends(tensor.shape[axis], sizes)
    number = int(position.reshape(-1)[0])
    if ends is None or not -len(ends) < number + 1 <= len(ends):
        return None
    start, end = list(pairwise([0, *ends]))[number]
    (out,) = at.outputs
    squeezed = sizes is None and not attributes.attr("keepdims", 1)
    kept = f"{out}/part" if squeezed else out
    bounds = {"axes": [axis], "starts": [start], "ends": [end]}
    nodes = [Node("Slice", "", _SLICED, at.name, cut.inputs[:1], (kept,), bounds)]
    if squeezed:
        nodes.append(Node("Squeeze", "", _SLICED, at.name, (kept,), (out,), {"axes": [axis]}))
    return nodes


def _known(value: Value | None) -> np.ndarray | None:
    return None if value is None or value.is_parameter else value.array


def _ends(size: int, sizes: np.ndarray | None) -> list[int] | None:
    """Where parts end; None where their sizes do not add up."""
    if sizes is not None and sizes.ndim:
        ends = list(accumulate(int(each) for each in sizes))
        return ends if all(each >= 0 for each in sizes) and ends[-1:] == [size] else None
    step = 1 if sizes is None else int(sizes)
    return [*range(step, size, step), size] if step > 0 and size else None
