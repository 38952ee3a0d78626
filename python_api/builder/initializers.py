"""Initialisers of parameters by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, nearest
from ...framework.ir.desc import make_op
from ...framework.ir.op_list import OpNode

# name -> operator type and attributes
INITIALIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "zeros": ("fill_constant", {"value": 0.0}),
    "ones": ("fill_constant", {"value": 1.0}),
    "uniform": ("uniform_random", {"low": -0.05, "high": 0.05}),
    "normal": ("gaussian_random", {"mean": 0.0, "std": 0.01}),
    "xavier": ("xavier_random", {}),
    "he": ("he_random", {}),
}


def initializer(init: Any, name: str, shape: Sequence[int], dtype: np.dtype) -> OpNode:
    """The operator that fills variable `name`.

    Args:
        init: a name of `INITIALIZERS`; a number (constant); (operator type, attributes); or a name
            with attributes, as `("uniform", {"low": -1.0, "high": 1.0})`; or an array.

    Raises:
        AttributeTypeError: no such initialiser, or an array of another shape.
    """
    if isinstance(init, np.ndarray):
        if init.shape != tuple(shape):
            raise AttributeTypeError(
                f"parameter {name!r} is {list(shape)}, its first value {list(init.shape)}"
            )
        return make_op("constant", {}, {"out": name}, {"value": init.astype(dtype)})
    attrs: Mapping[str, Any] = {}
    if isinstance(init, (int, float)):
        init, attrs = "fill_constant", {"value": float(init)}
    elif isinstance(init, tuple) and len(init) == 2 and isinstance(init[0], str):
        init, attrs = init
    elif not isinstance(init, str):
        raise AttributeTypeError(f"parameter {name!r}: {init!r} is no initialiser")
    if init in INITIALIZERS:
        op_type, defaults = INITIALIZERS[init]
        attrs = {**defaults, **attrs}
    elif init.endswith("_random") or init == "fill_constant":
        op_type = init
    else:
        raise AttributeTypeError(
            f"parameter {name!r}: no initialiser {init!r}{nearest(init, INITIALIZERS)};"
            f" known: {', '.join(INITIALIZERS)}"
        )
    return make_op(
        op_type, {}, {"out": name}, {"shape": [int(d) for d in shape], "dtype": dtype, **attrs}
    )
