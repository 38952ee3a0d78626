"""Marks in op lists that run in segments: they compute nothing, the computer looks at them."""

from __future__ import annotations

from ...framework.ir.registry import AttrSpec, operator

SEGMENT, LABEL, GOTO = "segment", "label", "goto"

mark = operator(
    "nnet3.mark",
    doc=(
        "A mark in a computation that takes its input segment by segment. `segment` ends a segment:"
        " the outputs are there, the next inputs are waited for. `goto` continues at the operator"
        " `label`, so that the list runs for ever. A plain run passes over marks."
    ),
    attrs=[AttrSpec("kind", "string", "kind of the mark", choices=(SEGMENT, LABEL, GOTO))],
    source="Kaldi: kNoOperationMarker, kNoOperationLabel, kGotoLabel of nnet-computation.h",
    shape=lambda s: None,
    no_gradient="it computes nothing",
    boundary=True,
)


@mark.kernel
def mark_kernel(k):
    return lambda: None
