"""Arrays that callers give: features, iVectors, rows of input nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.errors import ShapeError
from ..language.nodes import warn


def float_array(values: Any, what: str) -> np.ndarray:
    """Numbers that were given, as a float32 array; `what` they are, for messages.

    Raises:
        ShapeError: they are no array of real numbers.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufO" and values is not None:
            return np.asarray(array, np.float32)
        problem = f"you gave {type(values).__name__} ({array.dtype})"
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise ShapeError(f"{what}: no array of real numbers: {problem}"[:500])


def warn_of_nan(rows: np.ndarray, what: str, first: int = 0, unit: str = "row") -> None:
    """Warn where rows [count, dim] hold NaN or infinities, which what is computed then holds, too.

    Args:
        rows: float32, or any other kind of numbers.
        what: the rows are: `one: features`.
        first: the number of the first row.
        unit: what a row is.
    """
    finite = np.isfinite(rows)
    if finite.all():
        return
    wrong = np.flatnonzero(~finite.reshape(len(rows), -1).all(axis=1))
    warn(
        f"{what}: {len(wrong)} of {len(rows)} {unit}s hold nan or infinite numbers, the first of"
        f" them {unit} {first + wrong[0]}; what is computed from them is also nan or infinite"
    )
