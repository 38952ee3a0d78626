"""What was measured of one operator or node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """An operator or node of the net that ran.

    Attributes:
        name, kind: its own, and its type.
        path: names of the groups around it, the outermost first.
        seconds: the least of several runs. The time of a fused loop is shared among its
            operators by what each takes by itself.
        bytes: of its results.
    """

    name: str
    kind: str
    path: tuple[str, ...]
    seconds: float
    bytes: int
