"""Kinds that behave differently while training, with states from minibatch to minibatch."""

from __future__ import annotations

from ....framework.ir.desc import make_op
from ...network.nodes.node import Node
from ..emitter import Emitter, Sparse, dims, size
from ..table import lowers

_LARGEST = 1 << 63


@lowers("Dropout")
def lower_dropout(e: Emitter, node: Node) -> str:
    (x,) = node.inputs
    if e.inference:
        return e.op("dropout", {"x": e.value(x)}, {"p": node.attributes["dropoutRate"]})
    mask = e.outside(node, lambda outer, reverse: _mask(outer, node, reverse))
    return e.op("mul", {"x": e.value(x), "y": mask})


def _mask(e: Emitter, node: Node, reverse: bool) -> str:
    """The factors of a dropout node, for the rows of all steps."""
    rate = e.state(node, "RATE", (1,), node.attributes["dropoutRate"], "float64")
    reads, drawn = _random(e, node)
    reads["rate"] = rate
    attrs = {"shape": dims(node), "dtype": e.dtype, "reverse": reverse}
    if node.axis is not None:
        reads["columns"], reads["grid"] = e.columns(node.axis)
    out = e.temporary()
    e.append(make_op("cntk.dropout_mask", reads, {"out": out, "drawn_out": drawn}, attrs))
    return out


def _random(e: Emitter, node: Node) -> tuple[dict[str, str], str]:
    """The variables of a node's generator: those that operators read, and the one they write."""
    seed, drawn = (
        e.state(node, part, (1,), node.attributes[name] % _LARGEST, "int64")
        for part, name in (("SEED", "rngSeed"), ("DRAWN", "rngOffset"))
    )
    return {"seed": seed, "drawn": drawn}, drawn


@lowers("EnvironmentInput")
def lower_environment_input(e: Emitter, node: Node) -> str:
    return e.op("cntk.is_training", {}, {"dtype": e.dtype})


@lowers("RandomSample", "RandomSampleInclusionFrequency")
def lower_random_sample(e: Emitter, node: Node) -> str:
    (weights,), values = node.inputs, node.attributes
    x = e.shaped(weights, (size(weights),))
    attrs = {"count": values["sizeOfSampledSet"], "duplicates": values["allowDuplicates"]}
    if node.operation == "RandomSample":
        reads, drawn = _random(e, node)
        rows = Sparse.of(node.name)
        writes = {**rows.slots, "drawn_out": drawn}
        e.append(make_op("cntk.random_sample", {"weights": x, **reads}, writes, attrs))
        e.set_sparse(node, rows)
        return ""
    out = e.op("cntk.inclusion_frequency", {"weights": x}, attrs)
    return e.reshape(out, dims(node))


@lowers("EpochAccumulator")
def lower_epoch_accumulator(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    mean = e.state(node, "MEAN", dims(node))
    count = e.state(node, "COUNT", (1,), 0.0, "float64")
    x = e.value(child) if child.axis is not None else e.reshape(e.value(child), (1, *dims(child)))
    writes = {"mean_out": mean, "count_out": count}
    e.append(make_op("cntk.epoch_mean", {"x": x, "mean": mean, "count": count}, writes))
    return mean
