"""Shape rules that many kinds share, and the parts of rules.

A rule is called in passes. Before the last one shapes of inputs may be unknown: `()` for nothing
known, 0 for an unknown dimension; a rule then sets the dimensions that follow. It may also give
dimensions to parameters among the inputs (`infer`). In the last pass it raises errors.
Source of the rules: the Validate functions of ComputationNode.cpp and of the nodes' own files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .attributes import Dims
from .node import Node

HIGHEST_RANK = 64

Rule = Callable[[Node, bool], None]


def size(shape: Dims | None) -> int:
    """Number of elements; 0 for a shape that is unknown, wholly or in one dimension."""
    return math.prod(shape) if shape else 0


def text(shape: Dims | None) -> str:
    """`5 x 3`, as CNTK prints shapes."""
    return " x ".join(map(str, shape or ()))


def matrix(node: Node) -> tuple[int, int]:
    """Rows and columns of a node's value seen as a matrix: the first dimension, and the others
    together."""
    shape = node.shape or (0,)
    return shape[0], math.prod(shape[1:])


def check_inputs(node: Node, final: bool) -> None:
    """Check what every kind needs: all inputs are connected, and hold elements in the end.

    Raises:
        ShapeError: an input is missing or has no elements.
    """
    for number, child in enumerate(node.inputs):
        if child is None:
            raise node.error(f"input {number} is not connected")
        if final and size(child.shape) == 0:
            raise node.error(f"input {child.name} ({child.operation}) has no elements")


def check_rank(node: Node, rank: int) -> None:
    """Refuse axes that no tensor has.

    Raises:
        ShapeError: there would be more than `HIGHEST_RANK` axes.
    """
    if rank > HIGHEST_RANK:
        raise node.error(f"axis {rank}; tensors have at most {HIGHEST_RANK}")


def common_axis(node: Node) -> None:
    """The dynamic axis of the first input that has one. Others may differ: whether they fit is
    seen when the layouts are there."""
    node.axis = next((i.axis for i in node.inputs if i is not None and i.axis is not None), None)


def infer(node: Node, offered: Sequence[int]) -> None:
    """Give a parameter the dimensions that it lacks from the shape it is used with.

    Nothing happens for other nodes, for parameters whose shape is known, or if the offered shape
    is itself unknown.
    """
    offered = tuple(offered)
    shape = node.shape or ()
    if not node.is_parameter or size(shape) or not size(offered):
        return
    if not any(shape):
        node.shape = offered
    elif len(shape) <= len(offered):
        padded = shape + (0,) * (len(offered) - len(shape))
        node.shape = tuple(d or o for d, o in zip(padded, offered, strict=True))


def infer_each_other(inputs: Sequence[Node]) -> None:
    """Let parameters take unknown dimensions from the other inputs."""
    for one in inputs:
        for other in inputs:
            if other is not one:
                infer(one, other.shape or ())


def fits_elementwise(one: Dims, other: Dims) -> bool:
    """Whether each dimension of `one` equals the dimension of `other`, or one of both is 1."""
    for k, dim in enumerate(one):
        against = other[k] if k < len(other) else 1
        if dim != against and dim != 1 and against != 1:
            return False
    return True


def incompatible(node: Node, one: Node, other: Node) -> Exception:
    return node.error(
        f"shapes [{text(one.shape)}] of {one.name} and [{text(other.shape)}] of {other.name}"
        " do not fit together"
    )


def unary(node: Node, final: bool) -> None:
    """One value in, one of the same shape out."""
    common_axis(node)
    node.shape = node.inputs[0].shape


def elementwise(node: Node, final: bool) -> None:
    """Any number of values; dimensions that are 1 or absent are broadcast."""
    common_axis(node)
    infer_each_other(node.inputs)
    shapes = [i.shape or () for i in node.inputs]
    rank = max(map(len, shapes))
    result = list(shapes[0]) + [1] * (rank - len(shapes[0]))
    holder = [node.inputs[0]] * rank
    for other, shape in zip(node.inputs[1:], shapes[1:], strict=True):
        for k, dim in enumerate(shape):
            if result[k] <= 1 and dim != 0:
                result[k], holder[k] = dim, other
            elif dim > 1 and result[k] > 1 and dim != result[k] and final:
                raise incompatible(node, holder[k], other)
    node.shape = tuple(result)


def scalar(node: Node, final: bool) -> None:
    """All samples of the minibatch come down to one number without a dynamic axis."""
    node.axis = None
    node.shape = (1,)


def criterion(node: Node, final: bool) -> None:
    """Two minibatches of equal shape come down to one number."""
    node.axis = None
    first, second = node.inputs[:2]
    infer_each_other((first, second))
    if final:
        if not fits_elementwise(first.shape or (), second.shape or ()):
            raise incompatible(node, first, second)
        for number, child in enumerate((first, second)):
            if child.axis is None:
                raise node.error(f"input {number}, {child.name}, must hold samples of a minibatch")
    node.shape = (1,)


def constant_value(node: Node) -> float | None:
    """The number that a parameter of one element holds or will be initialized with, or None."""
    if not node.is_parameter:
        return None
    if node.value is not None:
        return float(np.asarray(node.value).reshape(-1)[0])
    initial = node.attributes["initValue"]
    if isinstance(initial, (int, float)):
        return float(initial)
    return node.attributes["value"] if node.attributes["init"] == "fixedValue" else None
