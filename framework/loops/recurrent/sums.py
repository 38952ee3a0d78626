"""Sums over steps of what a recurrent net's loop computes, gathered step by step from zero."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from .links import Bound, fill, take_into
from .store import Stored


class StepSums:
    """The sum links that are wanted and that nothing adds up for all steps at once.

    Args:
        done: links whose sums are made by an operator that runs on the rows of all steps.
    """

    def __init__(self, bound: Bound, done: Collection[str]) -> None:
        self._xp = bound.frame.xp
        self._held: list[tuple[str, Any, Any, Any]] = []  # link, gathered in, result, track
        for name, total, track in zip(bound.step.sums, bound.sums, bound.sum_tracks, strict=True):
            if total is None or name in done:
                continue
            gathering = total
            if track is not None and not track.in_order:
                gathering = self._xp.empty(total.shape, total.dtype)
            self._held.append((name, gathering, total, track))

    def first_calls(self) -> list[Any]:
        """Before the loop."""
        return [fill(gathering, 0) for _, gathering, _, _ in self._held]

    def calls(self, step: int, stored: Mapping[str, Stored]) -> list[Any]:
        """After a step."""
        calls = []
        for name, gathering, _, track in self._held:
            target = gathering if track is None else gathering[: int(track.starts[step])]
            calls.append(partial(self._xp.add, target, stored[name].at(step), target))
        return calls

    def last_calls(self) -> list[Any]:
        """After the loop: sums that belong to sequences are brought into the order of the batch."""
        return [
            take_into(self._xp, gathering, np.argsort(track.rows, kind="stable"), total)
            for _, gathering, total, track in self._held
            if gathering is not total
        ]
