"""What the loops of a model may take in one run: rounds, and bytes that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....framework.base.untrusted.limits import check_limit, limit


class LoopBudget:
    """Counts what all loops of one run do together, also loops inside of loops.

    Inputs pay for themselves: each number that is fed allows a round, each byte a byte.

    Args:
        fed: the inputs of the run, which are counted when a loop begins.

    Attributes:
        room: bytes that a stage of a net may still make; without bound outside of loops.
    """

    # Each run has a budget, and few of them a loop: what it counts begins with these.
    _paid_rounds = _paid = _rounds = _held = _depth = 0
    _fed: dict[Any, dict[str, Any]] | None = None
    room: float = float("inf")

    def __init__(self, fed: Iterable[Any] = ()) -> None:
        self._given = fed

    def _count_fed(self) -> None:
        arrays = [array for value in self._given for array in _arrays(value)]
        self._given = ()
        self._paid_rounds += sum(array.size for array in arrays)
        self._paid += sum(array.nbytes for array in arrays)

    def fed_by(self, stage: Any) -> dict[str, Any]:
        """The arrays that a stage inside of a loop was fed last, to be kept up to date: what all
        rounds read is fed once. Nothing writes to them before the run ends."""
        if not self._depth:
            return {}
        if self._fed is None:
            self._fed = {}
        return self._fed.setdefault(stage, {})

    @contextmanager
    def loop(self, state: Iterable[Any]) -> Iterator[None]:
        """A loop runs in the block; what it begins with is there already and counts as paid."""
        self._count_fed()
        before = self._paid, self._held
        self._paid += held_bytes(state)
        self._depth += 1
        self._note_room()
        try:
            yield
        finally:
            self._paid, self._held = before
            self._depth -= 1
            self._note_room()

    def is_beyond(self, rounds: int) -> bool:
        """Whether so many more rounds are too many."""
        self._count_fed()
        return self._rounds + rounds - self._paid_rounds > limit("rounds")

    def count(self, rounds: int = 1) -> None:
        """Rounds are about to be made.

        Raises:
            FormatError: they are beyond the limit `rounds`.
        """
        self._rounds += rounds
        if self._rounds > self._paid_rounds:
            more = self._rounds - self._paid_rounds
            check_limit("rounds", more, f"loops, besides {self._paid_rounds} for what is fed")

    def hold(self, grown: int) -> None:
        """A round has changed what its loop holds, by so many bytes.

        Raises:
            FormatError: all loops together hold more than the limit `carried`.
        """
        if not grown:
            return
        self._held += grown
        if grown > 0 and self._held > self._paid:
            check_limit("carried", self._held - self._paid, "values that loops carry and collect")
        self._note_room()

    def refuse(self, nbytes: int) -> None:
        """A stage inside a loop would make so many bytes, for which there is no room.

        Raises:
            FormatError: always.
        """
        wanted = self._held + nbytes - self._paid
        check_limit("carried", wanted, "values that loops carry, collect and are about to make")

    def _note_room(self) -> None:
        if self._depth:
            self.room = limit("carried") + self._paid - self._held
        else:
            self.room = float("inf")


def held_bytes(values: Iterable[Any]) -> int:
    """The bytes of arrays and of sequences of arrays."""
    return sum([v.nbytes if isinstance(v, np.ndarray) else _nbytes(v) for v in values])


def _nbytes(value: Any) -> int:
    return sum([array.nbytes for array in _arrays(value)])


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    listed = value if isinstance(value, (list, tuple)) else ()
    return [array for array in listed if isinstance(array, np.ndarray)]
