"""The steps of a plan, and the chains of operators that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.operation import Operator


class Chain(list[Operator]):
    """Operators that run as one step, and the loops that they fuse into.

    Attributes:
        loops: the fused loops, for fuse.py; empty where the operators do not fuse.
    """

    def __init__(self, operators: Iterable[Operator], loops: Sequence[Sequence[Any]] = ()) -> None:
        super().__init__(operators)
        self.loops = loops


@dataclass(frozen=True)
class PlanStep:
    """One callable of the loop: a single operator, or several that are fused into one kernel.

    `reads` and `writes` leave out what stays inside a fused chain; `loops` is that of the chain.
    """

    operators: tuple[Operator, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loops: Sequence[Sequence[Any]] = ()
