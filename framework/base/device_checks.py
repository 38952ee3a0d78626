"""Wrong data that kernels find on a GPU: noted there, and raised when results are read.

A kernel that asked the GPU whether its labels are in range would wait for all that was launched
before it. It notes the first wrong number instead and computes as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .backend import Place, on_device
from .errors import RunError

_BLOCK = 64
FIELDS = 3
"""Of a note: whether anything is wrong (not 0), at which element, and what is there; int64."""

Explain = Callable[[int, int], str]
"""(element, what is there) -> the message."""


class DeviceChecks:
    """The notes of the kernels of a tree of scopes.

    Attributes:
        stale: whether a run may have noted something since the host looked last.
    """

    def __init__(self) -> None:
        self.stale = False
        self._blocks: dict[Place, list[Any]] = {}
        self._notes: dict[Any, tuple[Place, int, Explain]] = {}

    def memory(self, place: Place, key: Any, explain: Explain) -> Any:
        """Memory for a note on a GPU, [3]: the same for the same key, which is of one check."""
        known = self._notes.get(key)
        blocks = self._blocks.setdefault(place, [])
        number = known[1] if known else sum(at == place for at, *_ in self._notes.values())
        self._notes[key] = place, number, explain
        if number == _BLOCK * len(blocks):
            with on_device(place):
                blocks.append(place.xp.zeros((_BLOCK, FIELDS), np.int64))
        return blocks[number // _BLOCK][number % _BLOCK]

    def look(self) -> None:
        """Fetch the notes, if something has run.

        Raises:
            RunError: something was wrong; of several the one whose operator was bound first.
        """
        if not self.stale:
            return
        self.stale = False
        fetched = {}
        for place, blocks in self._blocks.items():
            with on_device(place):
                fetched[place] = np.concatenate([block.get() for block in blocks])
        for place, number, explain in self._notes.values():
            wrong, at, value = fetched[place][number].tolist()
            if wrong:
                for block in self._blocks[place]:
                    with on_device(place):
                        block.fill(0)  # the next run is judged by itself
                raise RunError(explain(at, value))
