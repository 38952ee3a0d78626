"""Examples on disk, read in any order."""

from __future__ import annotations

import os
from typing import Any

from ...kaldi.tables.kinds import kind_of
from ...kaldi.tables.streams import Files
from ...kaldi.tables.tables import read_script

_LARGEST_KEPT = 1 << 29
"""Bytes of an archive whose examples are kept in memory once they were read."""


class ExampleStore:
    """The examples of one part, in any order; the folder may have been moved since.

    Args:
        folder, part: which hold `PART.ark` and `PART.scp`. kind: of the examples.

    Raises:
        FormatError: its files cannot be read.
    """

    def __init__(self, folder: str, part: str, kind: str = "example") -> None:
        self._files = Files()
        self._kind = kind_of(kind)
        self._archive = os.path.join(folder, f"{part}.ark")
        lines = read_script(self._files, os.path.join(folder, f"{part}.scp"))
        self._offsets = [line.name.rpartition(":")[2] for line in lines]
        self._keeps = os.path.getsize(self._archive) < _LARGEST_KEPT
        self._kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Any:
        example = self._kept.get(number)
        if example is None:
            place = f"{self._archive}:{self._offsets[number]}"
            example = self._files.read(place, self._kind.read_value)
            if self._keeps:
                self._kept[number] = example
        return example

    @staticmethod
    def is_there(folder: str, part: str) -> bool:
        """Whether there are examples of this part."""
        return os.path.exists(os.path.join(folder, f"{part}.scp"))
