"""Inputs of a node that ONNX wants in one type: NumPy would mix them, and compute something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .graph import Node

_ALL = range(64)
_PLACES: dict[str, Sequence[int]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "And", "Or", "Xor", "PRelu"), _ALL),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _ALL),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean", "Concat", "Clip", "Einsum"), _ALL),
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "InstanceNormalization"), _ALL),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), _ALL),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (0, 1, 2, 3, 5, 6, 7)),
    **dict.fromkeys(("Pad", "ScatterND", "ScatterElements", "ScatterElements.row"), (0, 2)),
    "Where": (1, 2),
}
"""Operators -> the inputs that share a type; the same in all operator sets that are read."""


def mixed_types(node: Node, dtypes: Sequence[np.dtype | None]) -> str:
    """What is wrong with the types of a node's inputs, or "".

    Args:
        dtypes: of the inputs; None where one is left out, or is no tensor.
    """
    places = () if node.domain else _PLACES.get(node.op, ())
    present = [dtypes[place] for place in places if place < len(dtypes)]
    kinds = list(dict.fromkeys(str(dtype) for dtype in present if dtype is not None))
    return f"inputs of one type are wanted, these are {' and '.join(kinds)}" * (len(kinds) > 1)


def is_trained(array: np.ndarray) -> bool:
    """Whether an array is trained: one of floats; single numbers and infinities are settings."""
    floats = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return floats and array.size > 1 and bool(np.isfinite(array).all())
