"""What every kind of model gives to a scoring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError, nearest

Keyed = tuple[str, np.ndarray]


class Scorer(Protocol):
    """A model that is ready to compute.

    Attributes:
        input_dim: columns of an utterance; -1: any.
        rows_together: utterances are computed together until they have so many rows.
        skipped: utterances that could not be computed, and why.
    """

    input_dim: int
    rows_together: int
    skipped: list[tuple[str, str]]

    def score(self, group: Sequence[Keyed]) -> Iterable[Keyed]:
        """The outputs of utterances that are computed together: a matrix each, or a vector.

        Raises:
            OpscopeError: an utterance does not fit the model; it is named.
        """
        ...


def only_one(names: Sequence[str], chosen: str, option: str, path: str) -> str:
    """The name that is chosen, or the only one there is.

    Raises:
        OpscopeError: there is none, or several.
    """
    if chosen:
        if chosen not in names:
            raise OpscopeError(f"--{option} {chosen}: {path} has none{nearest(chosen, names)}")
        return chosen
    if len(names) != 1:
        problem = f"several: {', '.join(names)}; choose" if names else "none that is declared; name"
        raise OpscopeError(f"{path}: of {option}s there are {problem} one with --{option}")
    return names[0]


def check_columns(place: str, rows: int, columns: int, input_dim: int) -> None:
    """Refuse an utterance that is not as wide as the model wants it; `place` names it.

    Raises:
        ShapeError: it is not.
    """
    if columns != input_dim and min(columns, input_dim) >= 0:
        raise ShapeError(
            f"{place}: the input wants {input_dim} columns, you gave {columns} ({rows} rows)"
        )
