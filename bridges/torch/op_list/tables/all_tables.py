"""Registers all writers."""

from __future__ import annotations

from . import (
    cntk_operators,
    conv,
    elementwise,
    integers,
    linear,
    nnet3_rows,
    norms,
    recurrent,
    selecting,
    sequences,
    shapes,
)

__all__ = [
    "cntk_operators",
    "conv",
    "elementwise",
    "integers",
    "linear",
    "nnet3_rows",
    "norms",
    "recurrent",
    "selecting",
    "sequences",
    "shapes",
]
