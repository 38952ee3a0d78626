"""Training criteria and evaluation nodes."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.kind import RANDOM_FIELDS, RANDOM_STATE, standard
from ..nodes.node import Node


def _need_no_gradient(node: Node, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        if node.inputs[number].needs_gradient:
            raise node.error(f"input {number}, {node.inputs[number].name}, must be data")


def _ranking(node: Node, final: bool) -> None:
    _need_no_gradient(node, (0, 2))
    rules.criterion(node, final)


def _classification(node: Node, final: bool) -> None:
    rules.criterion(node, final)
    if len(node.inputs) == 3 and rules.size(node.inputs[2].shape) != 1:
        raise node.error("the number of best classes, the third input, must be a scalar")


def _logistic(node: Node, final: bool) -> None:
    rules.criterion(node, final)
    if len(node.inputs) < 3:
        return
    label, output, weight = node.inputs
    rules.infer(weight, output.shape or ())
    axes = {id(i.axis) for i in (label, weight) if i.axis is not None}
    if final and (rules.size(label.shape) != rules.size(weight.shape) or len(axes) > 1):
        raise rules.incompatible(node, label, weight)


def _noise_contrastive(node: Node, final: bool) -> None:
    if final:
        label, hidden, weight, _ = node.inputs
        if rules.size(hidden.shape) != rules.matrix(weight)[0]:
            raise rules.incompatible(node, hidden, weight)
        if weight.axis is not None or None in (label.axis, hidden.axis):
            raise node.error("inputs 0 and 1 must hold samples of a minibatch, input 2 a matrix")
    rules.scalar(node, final)


def _class_based(node: Node, final: bool) -> None:
    if final:
        label, hidden, weight, classes = node.inputs
        if rules.size(label.shape) != 4:
            raise node.error(
                f"the label {label.name} must have 4 rows (word, class, first and last word of the"
                f" class), not [{rules.text(label.shape)}]"
            )
        if rules.size(hidden.shape) != rules.matrix(weight)[0]:
            raise rules.incompatible(node, hidden, weight)
        if not (label.axis is hidden.axis is classes.axis):
            raise node.error("labels, hidden activations and classes must share a dynamic axis")
    rules.scalar(node, final)


def _sequence(node: Node, final: bool) -> None:
    label, output, likelihood = node.inputs
    if not label.is_input:
        raise node.error(f"the first input must be the label, not {label.name} ({label.operation})")
    if final:
        for child in (output, likelihood):
            if rules.size(child.shape) != rules.size(label.shape):
                raise rules.incompatible(node, label, child)
            if label.axis is None or child.axis is not label.axis:
                raise node.error("all inputs must share the dynamic axis of the label")
    rules.scalar(node, final)


def _dummy(node: Node, final: bool) -> None:
    for number in (0, 1):
        if node.inputs[number].operation != "InputValue":
            raise node.error(f"input {number} must be an InputValue")
    if final and rules.size(node.inputs[1].shape) != rules.size(node.inputs[2].shape):
        raise rules.incompatible(node, node.inputs[1], node.inputs[2])
    rules.scalar(node, final)


def _crf(node: Node, final: bool) -> None:
    if final:
        label, scores, pairs = node.inputs
        rows, columns = rules.matrix(pairs)
        if rows != columns or rows != rules.size(scores.shape):
            raise rules.incompatible(node, scores, pairs)
        if rules.size(label.shape) != rows:
            raise rules.incompatible(node, label, scores)
        if label.axis is None or label.axis is not scores.axis:
            raise node.error("labels and scores must share a dynamic axis")
    rules.scalar(node, final)


def _decoder(node: Node, final: bool) -> None:
    """The labels of the best path, one-hot."""
    rules.common_axis(node)
    label, scores, pairs = node.inputs
    node.shape = scores.shape
    if final:
        rows, columns = rules.matrix(pairs)
        if rows != columns or rows != rules.size(scores.shape):
            raise rules.incompatible(node, scores, pairs)
        if rules.size(label.shape) != rows:
            raise rules.incompatible(node, label, scores)
        if label.axis is None or label.axis is not scores.axis:
            raise node.error("labels and scores must share a dynamic axis")


def _mixture(node: Node, final: bool) -> None:
    """One log likelihood for each sample, of a mixture of spherical Gaussians."""
    rules.common_axis(node)
    prior, means, deviations, data = node.inputs
    node.shape = (1,)
    if not final:
        return
    if data.axis is None:
        raise node.error(f"the features {data.name} must hold samples of a minibatch")
    if not prior.axis is means.axis is deviations.axis:
        raise node.error("priors, means and deviations must have the same dynamic axis, or none")
    if rules.size(prior.shape) != rules.size(deviations.shape):
        raise rules.incompatible(node, prior, deviations)
    components, wide = rules.size(prior.shape), rules.size(data.shape)
    if rules.size(means.shape) != components * wide:
        raise node.error(
            f"the means {means.name} must have {components} x {wide} elements, as many as"
            f" components times features, not [{rules.text(means.shape)}]"
        )


def _samples(node: Node, final: bool) -> None:
    count = node.attributes["sizeOfSampledSet"]
    if count == 0:
        raise node.error("the number of samples is 0")
    classes = (node.inputs[0].shape or (0,))[0]
    if final and not node.attributes["allowDuplicates"] and classes <= count:
        raise node.error(
            f"{count} different samples cannot be drawn from {classes} classes; there must be more"
            " classes than samples"
        )
    node.axis = None
    node.shape = (classes, count if node.operation == "RandomSample" else 1)


# SGD's section sets them, under the same names, before training.
SEQUENCE_OPTIONS = {
    "seqGammarAMF": AttributeSpec("float", 14.0, doc="divides all scores"),
    "seqGammarLMF": AttributeSpec("float", 14.0, doc="factor of language-model scores"),
    "seqGammarWordPen": AttributeSpec("float", 0.0, doc="added to the score of each edge"),
    "seqGammarBMMIFactor": AttributeSpec(
        "float", 0.0, doc="boosted MMI: taken off for each correct frame; 0: none"
    ),
    "seqGammarUsesMBR": AttributeSpec(
        "bool", False, doc="expected number of correct frames instead of MMI"
    ),
    "doReferenceAlign": AttributeSpec("bool", False, doc="align labels again in each minibatch"),
    "hSmoothingWeight": AttributeSpec(
        "float", 0.95, doc="weight of the criterion, the rest being cross entropy"
    ),
    "frameDropThresh": AttributeSpec(
        "float", 1e-10, doc="frames whose reference is less probable are left out"
    ),
}

standard(
    "SquareError",
    2,
    rules.criterion,
    ndl=("SE",),
    whole=True,
    reads="label output",
    doc=(
        "The sum of the squares (label - output)^2 over all samples and elements,"
        " without a factor 1/2."
    ),
)
standard(
    "CrossEntropyWithSoftmax",
    2,
    rules.criterion,
    ndl=("CEWithSM",),
    whole=True,
    reads="label output",
    doc=(
        "-sum (label * log softmax (output)) over all samples. `output` is before"
        " the softmax; `label` is one-hot or a distribution."
    ),
)
standard(
    "CrossEntropy",
    2,
    rules.criterion,
    whole=True,
    reads="label output",
    doc=("-sum (label * log (output)) over all samples; `output` holds probabilities."),
)
standard(
    "Logistic",
    (2, 3),
    _logistic,
    whole=True,
    reads="label probability weight",
    doc=(
        "-sum (log p) over all samples, p being the probability where the label"
        " is 1 and 1 - probability where it is 0; with weights their weighted mean"
        " times the samples. Weights may be left out."
    ),
)
standard(
    "MatrixL1Reg",
    1,
    rules.scalar,
    ndl=("L1Reg",),
    whole=True,
    reads="x",
    doc="The sum of the absolute values of all elements.",
)
standard(
    "MatrixL2Reg",
    1,
    rules.scalar,
    ndl=("L2Reg",),
    whole=True,
    reads="x",
    doc=("The square root of the sum of the squares of all elements (Frobenius norm)."),
)
standard(
    "LambdaRank",
    3,
    _ranking,
    ndl=None,
    whole=True,
    reads="gain score query",
    doc=(
        "100 N (1 - NDCG) over N queries; the gradient is LambdaRank's. A sample"
        " is one document; documents of one `query` number stand together."
    ),
)
standard(
    "NDCG1Eval",
    3,
    _ranking,
    ndl=None,
    whole=True,
    reads="gain score query",
    doc="NDCG at the first place in percent, times the number of queries.",
)
standard(
    "ClassificationError",
    (2, 3),
    _classification,
    aliases=("ErrorPrediction",),
    ndl=("ErrorPrediction",),
    whole=True,
    reads="label output best",
    doc=(
        "The number of samples whose label, the largest element of `label`, is"
        " not among the `best` largest elements of `output`; without the third"
        " input, a constant, not the largest."
    ),
)
standard(
    "EditDistanceError",
    2,
    rules.criterion,
    whole=True,
    attributes={
        "subPen": AttributeSpec("float", 0.0, doc="cost of a substitution"),
        "delPen": AttributeSpec("float", 0.0, doc="cost of a deletion"),
        "insPen": AttributeSpec("float", 0.0, doc="cost of an insertion"),
        "squashInputs": AttributeSpec("bool", False, doc="count a label that repeats once"),
        "samplesToIgnore": AttributeSpec("ints", (), doc="labels that are left out"),
    },
    reads="labels reference",
    doc=(
        "Cost of the cheapest way from the best labels of each sequence to the"
        " reference's, times samples by labels."
    ),
)
standard(
    "NCEBasedCrossEntropyWithSoftmax",
    4,
    _noise_contrastive,
    ndl=None,
    whole=True,
    attributes={
        "evalMode": AttributeSpec(
            "int",
            2,
            doc=("0: cross entropy with softmax; 1: without it; 2: noise contrastive estimation"),
        )
    },
    reads="words hidden weight bias",
    doc=(
        "Noise contrastive estimation of a large output layer: `words` holds, for"
        " each sample, the word and the noise words with their log probabilities,"
        " as LMSequenceReader gives them. `weight` is [hidden x words]."
    ),
)
standard(
    "ClassBasedCrossEntropyWithSoftmax",
    4,
    _class_based,
    ndl=("CBCEWithSM",),
    whole=True,
    reads="label hidden weight classes",
    doc=(
        "Cross entropy of the word's class plus the word's own in its class."
        " `label` has 4 rows: word, class, first and last word of the class;"
        " `weight` is [hidden x words], `classes` are scores before the softmax."
    ),
)
standard(
    "SequenceWithSoftmax",
    3,
    _sequence,
    ndl=("SEWithSM",),
    whole=True,
    attributes=SEQUENCE_OPTIONS,
    reads="label output likelihood",
    doc=(
        "Discriminative criterion over lattices (MMI; boosted, or by errors of"
        " frames, if the options say so): `output` is before the softmax,"
        " `likelihood` scales it by the prior, lattices come with the minibatch."
    ),
)
standard(
    "DummyCriterion",
    3,
    _dummy,
    whole=True,
    reads="value gradient output",
    doc=(
        "The sum of `value`, whose gradient by `output` is the input `gradient`:"
        " for criteria that are computed elsewhere."
    ),
)
standard(
    "CRF",
    3,
    _crf,
    whole=True,
    reads="label score pairs",
    doc=(
        "Minus the log probability of the labels of each sequence in a"
        " linear-chain conditional random field: `score` of each label, `pairs`"
        " [labels x labels] of each two that follow one another."
    ),
)
standard(
    "SequenceDecoderNode",
    3,
    _decoder,
    aliases=("SequenceDecoder",),
    whole=True,
    reads="label score pairs",
    doc=(
        "The labels of the best path through each sequence, one-hot; first and"
        " last label are taken from `label`."
    ),
)
standard(
    "GMMLogLikelihood",
    4,
    _mixture,
    ndl=("GMMLL",),
    reads="prior means deviations x",
    doc=(
        "The log likelihood of each sample under a mixture of spherical"
        " Gaussians: `prior` before the softmax [C], `means` [C D], logarithms of"
        " the deviations [C], `x` [D]."
    ),
)
for _name, _doc in (
    (
        "RandomSample",
        (
            "So many classes drawn in proportion to their weights, as one-hot columns"
            " [classes x samples], drawn for each minibatch."
        ),
    ),
    (
        "RandomSampleInclusionFrequency",
        "How often each class is expected in a draw of `RandomSample`, [classes].",
    ),
):
    standard(
        _name,
        1,
        _samples,
        ndl=None,
        whole=True,
        attributes={
            "sizeOfSampledSet": AttributeSpec("int", doc="how many are drawn"),
            "allowDuplicates": AttributeSpec("bool", doc="whether a class may be drawn twice"),
            **RANDOM_STATE,
        },
        file_fields=(
            FileField("allowDuplicates", "bool"),
            FileField("sizeOfSampledSet", "uint64"),
            *RANDOM_FIELDS,
        ),
        reads="weights",
        doc=_doc,
    )
