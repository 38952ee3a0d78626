"""Kinds that behave differently while training, and what is kept from minibatch to minibatch."""

from __future__ import annotations

from ...framework.desc import make_op
from ..network.node import Node
from .emitter import Emitter, dims, size
from .table import lowers


@lowers("Dropout")
def _(e: Emitter, node: Node) -> str:
    rate = e.state(node, "RATE", (1,), node.attributes["dropoutRate"], "float64")
    return e.op("cntk.dropout", {"x": e.value(node.inputs[0]), "rate": rate}, out=("out", "mask"))


@lowers("EnvironmentInput")
def _(e: Emitter, node: Node) -> str:
    return e.op("cntk.is_training", {}, {"dtype": e.dtype})


@lowers("RandomSample", "RandomSampleInclusionFrequency")
def _(e: Emitter, node: Node) -> str:
    (weights,), values = node.inputs, node.attributes
    x = e.shaped(weights, (size(weights),))
    attrs = {"count": values["sizeOfSampledSet"], "duplicates": values["allowDuplicates"]}
    if node.operation == "RandomSample":
        return e.op("cntk.random_sample", {"weights": x}, attrs)
    out = e.op("cntk.inclusion_frequency", {"weights": x}, attrs)
    return e.reshape(out, dims(node))


@lowers("EpochAccumulator")
def _(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    mean = e.state(node, "MEAN", dims(node))
    count = e.state(node, "COUNT", (1,), 0.0, "float64")
    x = e.value(child) if child.axis is not None else e.reshape(e.value(child), (1, *dims(child)))
    writes = {"mean_out": mean, "count_out": count}
    e.append(make_op("cntk.epoch_mean", {"x": x, "mean": mean, "count": count}, writes))
    return mean
