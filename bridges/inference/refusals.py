"""Why operators are not written for another system: reasons by type or module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...framework.ir.registry import OperatorDef

OF_TRAINING: Final = {
    "opscope.operators.optim": "optimizers are of training",
    "opscope.operators.collective": "exchanges between ranks are of training",
    "opscope.operators.control.host_copies": "copies between a GPU and its host are of training",
    "opscope.cntk.operators.updates.learners": "optimizers are of training",
}
"""What is not written although there may be an expression of it."""
_CRITERIA: Final = ("criteria", "ctc", "large_outputs", "lattices", "ranking")
OF_MODULES: Final = {
    **dict.fromkeys(
        [f"{kind}_random" for kind in "bernoulli gaussian he orthogonal uniform xavier".split()],
        "its numbers are drawn at random, so that two runtimes never agree; feed them as an input",
    ),
    **dict.fromkeys(("merge_rows", "rows_to_dense"), "it is for gradients of sparse rows"),
    "cache_append": "it writes in place; `Generator.to_onnx` writes a step with its caches",
    "recursive": "trees have no form elsewhere: their shape is data",
    "opscope.operators.loss": "losses and metrics are of training; ask for the outputs before it",
    **dict.fromkeys(
        [
            "cntk.crf",
            "cntk.edit_error",
            *(f"opscope.cntk.operators.losses.{one}" for one in _CRITERIA),
        ],
        "criteria and evaluations are of training; ask for the outputs before them",
    ),
    "opscope.cntk.operators": "this operation of CNTK has no equal here",
    "opscope.nnet3": "nnet3 networks are exported from their own files (.raw, .mdl), not from op"
    " lists",
}
"""What has neither a writer nor an expression."""


def reason_of(op_type: str, entry: OperatorDef, reasons: Mapping[str, str]) -> str:
    """Why an operator is not written: the reason of its type, or of its module; "" if none."""
    return reasons.get(op_type) or next(
        (why for module, why in reasons.items() if entry.module.startswith(module)), ""
    )
