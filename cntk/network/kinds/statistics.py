"""Statistics of the whole data, and normalization with them."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec
from ..nodes.kind import standard
from ..nodes.node import Node


def _statistic(node: Node, final: bool) -> None:
    child = node.inputs[0]
    if final and child.axis is None:
        raise node.error(f"the input {child.name} must hold samples of a minibatch")
    node.axis = None
    node.shape = child.shape


def _normalized(node: Node, final: bool) -> None:
    rules.common_axis(node)
    data, *statistics = node.inputs
    shape = data.shape or ()
    for child in statistics:
        rules.infer(child, shape)
    if len(shape) == 3 and all(child.shape == (shape[2], 1) for child in statistics):
        if shape[:2] == (1, 1):  # statistics of before tensors are column vectors
            for child in statistics:
                child.shape = shape
    if final:
        for child in statistics:
            if not rules.fits_elementwise(shape, child.shape or ()):
                raise rules.incompatible(node, data, child)
    node.shape = shape


_COMPUTED = {
    "hasComputed": AttributeSpec(
        "bool", False, doc="whether the value is known, as a model keeps it"
    )
}
standard(
    "Mean",
    1,
    _statistic,
    attributes=_COMPUTED,
    precompute=True,
    whole=True,
    reads="x",
    doc="The mean of each element over all the data, found before training.",
)
standard(
    "InvStdDev",
    1,
    _statistic,
    attributes=_COMPUTED,
    precompute=True,
    whole=True,
    reads="x",
    doc=("1 / standard deviation of each element over all the data, found before training."),
)
standard(
    "PerDimMeanVarNormalization",
    3,
    _normalized,
    aliases=("PerDimMeanVarNormalizationNode",),
    ndl=("PerDimMVNorm",),
    reads="x mean invStdDev",
    doc="(x - mean) * invStdDev.",
)
standard(
    "PerDimMeanVarDeNormalization",
    3,
    _normalized,
    aliases=("PerDimMeanVarDeNormalizationNode",),
    ndl=("PerDimMVDeNorm",),
    reads="x mean invStdDev",
    doc="x / invStdDev + mean.",
)
