"""Registers all emitters, and the reasons of operators that have none."""

from __future__ import annotations

from ..emission import MODULE_REFUSALS, refuses
from . import (
    cntk_operators,
    conv,
    elementwise,
    linear,
    recurrent,
    reductions,
    selecting,
    sequences,
    shapes,
)

refuses(
    "its numbers are drawn at random, so that two runtimes never agree; feed them as an input",
    "bernoulli_random",
    "gaussian_random",
    "he_random",
    "orthogonal_random",
    "uniform_random",
    "xavier_random",
)
refuses("trees have no form in ONNX: their shape is data", "recursive")
refuses("it is for gradients of sparse rows", "merge_rows", "rows_to_dense")

MODULE_REFUSALS |= {
    "opscope.operators.loss": "losses and metrics are of training; ask for the outputs before it",
    "opscope.operators.optim": "optimizers are of training",
    "opscope.operators.collective": "exchanges between ranks are of training",
    "opscope.cntk.operators": "this operation of CNTK has no equal in ONNX",
    "opscope.nnet3": "nnet3 networks are exported from their own files (.raw, .mdl), not from op"
    " lists",
}

__all__ = [
    "cntk_operators",
    "conv",
    "elementwise",
    "linear",
    "recurrent",
    "reductions",
    "selecting",
    "sequences",
    "shapes",
]
