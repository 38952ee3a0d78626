"""Kinds of CNTK 2.0 that its version of January 2017 did not have yet: connectionist temporal
classification."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.kind import standard

standard("LabelsToGraph", 1, rules.unary)
standard(
    "ForwardBackward",
    2,
    rules.criterion,
    attributes={
        "blankTokenId": AttributeSpec("int"),
        "delayConstraint": AttributeSpec("int", -1),
    },
    file_fields=(FileField("delayConstraint", "int32"), FileField("blankTokenId", "uint64")),
    ndl=None,
    whole=True,
)
