"""Components of recurrent layers, rows without an input, and images in a row, as layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .layer import F32, Layer, number_text


def _of_attribute(name: str, tensor: str) -> Callable[[Any], Layer]:
    def layer(c: Any) -> Layer:
        def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
            setattr(component, name, tensors[tensor])

        return Layer("", arrays={tensor: np.asarray(getattr(c, name), F32)}, store=store)

    return layer


def constant(c: Any) -> Layer:
    """ConstantComponent and ConstantFunctionComponent; only the sizes of the input matter."""
    layer = _of_attribute("output", "value")(c)
    return Layer(
        f"Constant({c.output.size})",
        arrays=layer.arrays,
        store=layer.store,
        trained=bool(c.is_updatable),
        helper="Constant",
    )


def dropout_mask(c: Any) -> Layer:
    """DropoutMaskComponent, applied to ones."""
    options = f"{c.output_dim}, {number_text(c.dropout_proportion)}"
    options += ", continuous=True" if c.continuous else ""
    return Layer(f"DropoutMask({options})", helper="DropoutMask")
