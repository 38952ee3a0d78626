"""Kinds of CNTK 2.0 that its version of January 2017 did not have yet: connectionist temporal
classification."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.kind import standard

standard(
    "LabelsToGraph",
    1,
    rules.unary,
    reads="label",
    doc="The labels as `ForwardBackward` takes them: here the labels themselves.",
)
standard(
    "ForwardBackward",
    2,
    rules.criterion,
    attributes={
        "blankTokenId": AttributeSpec("int", doc="number of the blank; below 0: the last"),
        "delayConstraint": AttributeSpec(
            "int", -1, doc="steps by which a label may come later than in `label`; -1: any"
        ),
    },
    file_fields=(FileField("delayConstraint", "int32"), FileField("blankTokenId", "uint64")),
    ndl=None,
    whole=True,
    reads="label output",
    doc=(
        "Connectionist temporal classification (CTC): minus the log probability"
        " that `output`, before the softmax, gives the labels in their order, with"
        " blanks between them."
    ),
)
