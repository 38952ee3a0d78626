"""The benchmarked workloads, on our side and on the peers'. A module each family.

`ALL` has them by key; `BOARD` is those of nets that others chose, which take long to make.
"""

from __future__ import annotations

from . import (
    attention,
    bf16,
    board,
    cntk_nets,
    conv,
    dense,
    nnet3_nets,
    onnx_models,
    programs,
    recurrent,
    writing,
)
from .workload import Workload

ALL: dict[str, Workload] = {
    **dense.WORKLOADS,
    **conv.WORKLOADS,
    **attention.WORKLOADS,
    **recurrent.WORKLOADS,
    **cntk_nets.WORKLOADS,
    **nnet3_nets.WORKLOADS,
    **bf16.WORKLOADS,
    **onnx_models.WORKLOADS,
    **programs.WORKLOADS,
}

BOARD: dict[str, Workload] = board.WORKLOADS | writing.WORKLOADS
