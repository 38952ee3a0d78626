"""Criteria of language models, sequences and rankings, and criteria with a given gradient."""

from __future__ import annotations

import math

from ....framework.ir.desc import INPUT, make_op
from ...lattices.lattice import PARTS, lattice_variable
from ...network.nodes.node import Node
from ..emitter import Emitter, size
from ..table import lowers


@lowers("ClassBasedCrossEntropyWithSoftmax")
def lower_class_based_cross_entropy_with_softmax(e: Emitter, node: Node) -> str:
    label, data, weight, classes = node.inputs
    reads = {"label": e.flat(label), "x": e.flat(data), "classes": e.flat(classes)}
    reads["w"] = e.shaped(weight, (size(weight) // size(data), size(data)))
    return e.op("cntk.class_cross_entropy", reads, out=("out", "log_softmax"))


_EVALUATIONS = {0: "softmax", 1: "unnormalised"}  # else noise contrastive estimation, for training


@lowers("NCEBasedCrossEntropyWithSoftmax")
def lower_nce_based_cross_entropy_with_softmax(e: Emitter, node: Node) -> str:
    label, data, weight, bias = node.inputs
    reads = {"x": e.flat(data), "w": e.shaped(weight, (size(weight) // size(data), size(data)))}
    reads["b"] = e.reshape(e.value(bias), (-1,))
    mode = _EVALUATIONS.get(node.attributes["evalMode"])
    if mode is None and size(label) == 1:
        mode = "either"
    if mode is not None:
        return e.op("cntk.word_score", {"label": e.flat(label), **reads}, {"mode": mode})
    reads["samples"] = e.flat(label)
    return e.op("cntk.noise_contrastive", reads, out=("out", "slope"))


@lowers("DummyCriterion")
def lower_dummy_criterion(e: Emitter, node: Node) -> str:
    value, slope, x = (e.flat(child) for child in node.inputs)
    return e.op("cntk.given_gradient", {"value": value, "slope": slope, "x": x})


@lowers("GMMLogLikelihood")
def lower_gmm_log_likelihood(e: Emitter, node: Node) -> str:
    """Gaussians of C components and D features, each with one deviation for all features. As in
    CNTK, the exponent in the norm of a density is C, though a density of D features has D."""
    prior, means, deviations, data = node.inputs
    count = size(prior)
    lead = (0,) if prior.axis is not None else (1,)
    x = e.reshape(e.flat(data), (0, 1, size(data)))
    centers = e.reshape(e.value(means), (*lead, count, size(data)))
    spread = e.reshape(e.value(deviations), (*lead, count))
    weights = e.op("log_softmax", {"x": e.reshape(e.value(prior), (*lead, count))}, {"axis": -1})
    squares = e.op("square", {"x": e.op("sub", {"x": x, "y": centers})})
    distance = e.op("reduce_sum", {"x": squares}, {"axes": (2,)})
    precision = e.op("exp", {"x": e.scale(spread, -2.0)})
    normed = e.scale(e.op("mul", {"x": distance, "y": precision}), -0.5)
    norms = e.scale(spread, -count, -0.5 * count * math.log(2 * math.pi))
    factors = e.op("add", {"x": weights, "y": norms})
    joint = e.op("add", {"x": normed, "y": factors})
    return e.op("logsumexp", {"x": joint}, {"axes": (1,), "keepdims": True})


def _read_path(e: Emitter, node: Node) -> dict[str, str]:
    """Inputs of operators over paths of labels: labels, their scores, and the scores of pairs."""
    label, scores, pairs = node.inputs
    e.sequences(label.axis)
    reads = {"label": e.flat(label), "x": e.flat(scores)}
    reads["pairs"] = e.shaped(pairs, (size(scores), size(scores)))
    return reads


@lowers("CRF")
def lower_crf(e: Emitter, node: Node) -> str:
    reads = _read_path(e, node)
    slots = ("out", "start", "by_x", "by_pairs")
    writes = {slot: e.temporary() for slot in slots}
    e.append(make_op("cntk.crf", reads, writes))
    return e.op("add", {"x": writes["out"], "y": writes["start"]})


@lowers("SequenceDecoderNode")
def lower_sequence_decoder_node(e: Emitter, node: Node) -> str:
    return e.unflat(e.op("cntk.best_path", _read_path(e, node)), node)


@lowers("EditDistanceError")
def lower_edit_distance_error(e: Emitter, node: Node) -> str:
    x, y = node.inputs
    values = node.attributes
    e.sequences(x.axis)
    attrs = {
        "substitution": values["subPen"],
        "deletion": values["delPen"],
        "insertion": values["insPen"],
        "squash": values["squashInputs"],
        "ignore": tuple(values["samplesToIgnore"]),
    }
    return e.op("cntk.edit_error", {"x": e.flat(x), "y": e.flat(y)}, attrs)


@lowers("LambdaRank", "NDCG1Eval")
def lower_lambda_rank(e: Emitter, node: Node) -> str:
    gain, score, query = (e.flat(child) for child in node.inputs)
    reads = {"gain": gain, "x": score, "query": query}
    if node.operation == "LambdaRank":
        return e.op("cntk.lambda_rank", reads, out=("out", "slope"))
    return e.op("cntk.first_gain", reads)


_SEQUENCE = {  # attributes of the node, and of the operator
    "seqGammarAMF": "acoustic",
    "seqGammarLMF": "language",
    "seqGammarWordPen": "penalty",
    "seqGammarBMMIFactor": "boost",
    "seqGammarUsesMBR": "risk",
    "doReferenceAlign": "realign",
    "hSmoothingWeight": "smoothing",
    "frameDropThresh": "drop",
}


@lowers("SequenceWithSoftmax")
def lower_sequence_with_softmax(e: Emitter, node: Node) -> str:
    """The lattices are variables, which `feed_lattices` sets. As with CNTK on a GPU; its CPU code
    drops all frames."""
    names = ("label", "x", "likelihoods")
    reads: dict[str, str] = dict(zip(names, map(e.flat, node.inputs), strict=True))
    e.lowered.lattices.append(node)
    for part, shape, dtype in PARTS:
        reads[part] = e.var(lattice_variable(node.name, part), shape, INPUT, dtype)
    attrs = {name: node.attributes[key] for key, name in _SEQUENCE.items()}
    return e.op("cntk.lattice_criterion", reads, attrs, out=("out", "slope"))
