"""Registers the kernels of this room as the library "direct"."""

from __future__ import annotations

import numpy as np

from ...framework.ir.registry import Kernel, lookup
from . import convolutions as _convolutions


def _register(op_type: str, kernel: Kernel) -> None:
    lookup(op_type).kernel(
        kernel, device="cpu", dtypes=(np.float32, np.float64), library="direct"
    )


for _rank in (1, 2):
    _register(f"conv{_rank}d", _convolutions.conv)
    _register(f"conv{_rank}d_grad", _convolutions.conv_grad)
