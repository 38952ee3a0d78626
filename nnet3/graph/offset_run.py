"""Candidates at many evenly spaced offsets, as those that statistics are pooled over.

A set of times that is moved by each of n offsets, and joined, takes log2(n) steps: each doubles the
offsets that are covered. So ten thousand candidates are followed as quickly as some dozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LEAST = 32  # candidates; fewer are followed one by one


@dataclass(frozen=True)
class OffsetRun:
    """The candidates of a unit: rows of `node` at the offsets first, first + step and so on.

    A row can be computed where one of them is there, and uses all that are. Sets of times are
    integers, see time_graph.py.
    """

    node: int
    first: int
    step: int
    count: int

    @classmethod
    def of(cls, candidates: Sequence[tuple[int, int, int]]) -> OffsetRun | None:
        """The run of (node, t offset, x offset), or None where they are few, or are no such run."""
        if len(candidates) < _LEAST:
            return None
        (node, first, _), (_, second, _), *_ = candidates
        step = second - first
        even = [(node, first + step * i, 0) for i in range(len(candidates))]
        return cls(node, first, step, len(even)) if step > 0 and list(candidates) == even else None

    def readers(self, bits: int) -> int:
        """The rows that may read one of these."""
        reading = bits << max(-self.first, 0) >> max(self.first, 0)
        covered = 1
        while covered < self.count:
            more = min(covered, self.count - covered)
            reading |= reading >> self.step * more
            covered += more
        return reading

    def read(self, rows: int) -> int:
        """What these rows may read."""
        reached = rows
        covered = 1
        while covered < self.count:
            more = min(covered, self.count - covered)
            reached |= reached << self.step * more
            covered += more
        return reached << max(self.first, 0) >> max(-self.first, 0)
