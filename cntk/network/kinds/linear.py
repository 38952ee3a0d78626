"""Products of matrices and tensors, distances, and rearrangements of axes."""

from __future__ import annotations

from .. import rules
from ..kind import AttributeSpec, Kind, NdlFunction, register
from ._make import standard

OUTPUT_RANK = AttributeSpec("int", 1)
INFER_INPUT_RANK = AttributeSpec("int", -1)

standard(
    "Times",
    2,
    rules.unary,
    attributes={"outputRank": OUTPUT_RANK, "inferInputRankToMap": INFER_INPUT_RANK},
)
standard("TransposeTimes", 2, rules.unary, attributes={"outputRank": OUTPUT_RANK})
standard(
    "QuantizedTimes",
    2,
    rules.unary,
    ndl=None,
    attributes={
        "bitShiftA": AttributeSpec("int", 1),
        "bitShiftB": AttributeSpec("int", 1),
        "outputRank": OUTPUT_RANK,
        "inferInputRankToMap": INFER_INPUT_RANK,
    },
)
standard("DiagTimes", 2, rules.unary)
standard("KhatriRaoProduct", 2, rules.unary, ndl=("ColumnwiseCrossProduct",))
standard("CosDistance", 2, rules.unary, ndl=("CosDist",))
standard("CosDistanceWithNegativeSamples", 4, rules.unary, ndl=("CosWithNegSamples",))
standard("SumElements", 1, rules.unary)
standard("SumColumnElements", 1, rules.unary)
standard("Diagonal", 1, rules.unary)
standard("EpochAccumulator", 1, rules.unary, ndl=None)
register(
    Kind(
        "TransposeDimensions",
        (1, 1),
        rules.unary,
        {"axis1": AttributeSpec("int", 1), "axis2": AttributeSpec("int", 2)},
        aliases=("Transpose",),
        ndl=(NdlFunction(("Transpose",), "TransposeDimensions", (1,)),),
    )
)
