"""Precomputed indexes: for many steps at once, the facts about rows that operators need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...index.indexes import IndexList
from .component import Component


class RowByRow(ABC):
    """Mixin of components whose precomputed indexes have an entry for each output row, which
    follows from that row alone: the rows of several steps are given to them at once."""

    @abstractmethod
    def precompute_rows(self, outputs: np.ndarray) -> np.ndarray:
        """The entries for some output rows, (n, t, x) [N, 3]."""


def precompute_indexes(steps: Sequence[tuple[Component, IndexList, IndexList]]) -> list[Any]:
    """The results of `Component.precompute` for some steps; None for simple components.

    Args:
        steps: component, rows of its input and of its output in the order of `Component.reorder`.

    Raises:
        ShapeError: an input that the outputs depend on is not there.
    """
    results: list[Any] = []
    by_row: dict[int, list[int]] = {}  # by the id of the component
    for number, (component, inputs, outputs) in enumerate(steps):
        if isinstance(component, RowByRow):
            by_row.setdefault(id(component), []).append(number)
            results.append(None)
        else:
            results.append(component.precompute(inputs, outputs))
    for numbers in by_row.values():
        component = steps[numbers[0]][0]
        listed = [steps[number][2].indexes for number in numbers]
        assert isinstance(component, RowByRow)
        together = component.precompute_rows(np.concatenate(listed))
        end = 0
        for number, rows in zip(numbers, listed, strict=True):
            begin = end
            end = end + len(rows)
            results[number] = together[begin:end]
    return results
