"""Training criteria and evaluation nodes."""

from __future__ import annotations

from .. import rules
from ..kind import AttributeSpec
from ._make import standard

standard("SquareError", 2, rules.unary, ndl=("SE",), whole=True)
standard("CrossEntropyWithSoftmax", 2, rules.unary, ndl=("CEWithSM",), whole=True)
standard("CrossEntropy", 2, rules.unary, whole=True)
standard("Logistic", (2, 3), rules.unary, whole=True)
standard("MatrixL1Reg", 1, rules.unary, ndl=("L1Reg",), whole=True)
standard("MatrixL2Reg", 1, rules.unary, ndl=("L2Reg",), whole=True)
standard("LambdaRank", 3, rules.unary, ndl=None, whole=True)
standard("NDCG1Eval", 3, rules.unary, ndl=None, whole=True)
standard(
    "ClassificationError",
    (2, 3),
    rules.unary,
    aliases=("ErrorPrediction",),
    ndl=("ErrorPrediction",),
    whole=True,
)
standard(
    "EditDistanceError",
    2,
    rules.unary,
    whole=True,
    attributes={
        "subPen": AttributeSpec("float", 0.0),
        "delPen": AttributeSpec("float", 0.0),
        "insPen": AttributeSpec("float", 0.0),
        "squashInputs": AttributeSpec("bool", False),
        "samplesToIgnore": AttributeSpec("ints", ()),
    },
)
standard(
    "NoiseContrastiveEstimation",
    4,
    rules.unary,
    ndl=None,
    whole=True,
    attributes={"evalMode": AttributeSpec("int", 0)},
)
standard("ClassBasedCrossEntropyWithSoftmax", 4, rules.unary, ndl=("CBCEWithSM",), whole=True)
standard("SequenceWithSoftmax", 3, rules.unary, ndl=("SEWithSM",), whole=True)
standard("DummyCriterion", 3, rules.unary, whole=True)
for _name in ("RandomSample", "RandomSampleInclusionFrequency"):
    standard(
        _name,
        1,
        rules.unary,
        ndl=None,
        whole=True,
        attributes={
            "sizeOfSampledSet": AttributeSpec("int"),
            "allowDuplicates": AttributeSpec("bool"),
        },
    )
