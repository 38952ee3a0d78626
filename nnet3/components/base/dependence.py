"""The input rows that each output row of a component depends on, for whole arrays of rows.

A simple component reads the row of the same index. The others read a fixed number of candidate
rows, some of which may be missing; `Component.reads` says which. (Kaldi: GetInputIndexes
and IsComputable of every non-simple component.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Column = tuple[Any, Any]  # t and x of a candidate row: integers or arrays


@dataclass(frozen=True)
class Reads:
    """The candidate rows of a component.

    Attributes:
        columns: t and x of the requested rows -> t and x of each candidate.
        required: which candidates must be there; None: at least one of them.
        allowed: which requested rows can be computed at all; None: all.
        offsets: the t offsets of the candidates where these are all there is to `columns`.
    """

    columns: Callable[[Any, Any], list[Column]]
    required: tuple[bool, ...] | None
    allowed: Callable[[Any], Any] | None = None
    offsets: tuple[int, ...] | None = None

    def combine(self, present: Sequence[Any], allowed: Any, every: Any) -> tuple[Any, list[Any]]:
        """(computable, for each candidate: used), from which candidates are there.

        Works on boolean arrays, or on integers whose bits are rows.

        Args:
            allowed: for which rows `Reads.allowed` holds.
            every: the value for all rows: True among arrays, -1 among integers.
        """
        if self.required is None:
            ok: Any = every ^ every
            for mask in present:
                ok = mask | ok
        else:
            ok = every
            for mask, wanted in zip(present, self.required, strict=True):
                if wanted:
                    ok = mask & ok
        ok = allowed & ok
        return ok, [mask & ok for mask in present]


SAME = Reads(lambda t, x: [(t, x)], (True,), offsets=(0,))
NOTHING = Reads(lambda t, x: [], (), offsets=())


def offset_reads(offsets: Sequence[int], required: Sequence[bool]) -> Reads:
    """Candidates at time offsets, each required or not."""
    steps = tuple(int(offset) for offset in offsets)

    def columns(t: Any, x: Any) -> list[Column]:
        return [(t + step, x) for step in steps]

    return Reads(columns, tuple(bool(r) for r in required), offsets=steps)
