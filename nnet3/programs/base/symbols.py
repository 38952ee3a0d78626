"""Lists of symbols and of pairs of labels among the files of programs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import whole_number
from ....kaldi.tables.streams import Files

_MOST = (1 << 31) - 2


def read_symbols(name: str) -> list[int]:
    """The symbols of a file with one in each line.

    Raises:
        FormatError: a line holds something else than a number from 1 on.
    """
    return [whole_number(text, what, 1, _MOST) for what, text in _lines(name)]


def read_pairs(name: str) -> np.ndarray:
    """The old and the new labels of a file with one of each in each line, int32 [labels, 2].

    Raises:
        FormatError: a line holds something else.
    """
    pairs = []
    for what, text in _lines(name):
        fields = text.split()
        if len(fields) != 2:
            raise FormatError(f"{what}: an old and a new label are wanted")
        pairs.append([whole_number(field, what, 0, _MOST) for field in fields])
    return np.array(pairs, np.int32).reshape(-1, 2)


def _lines(name: str) -> Iterator[tuple[str, str]]:
    """What messages call each line of a file that is not empty, and the line."""
    reader = Files().reader(name)
    for number, line in enumerate(bytes(reader.data[reader.offset :]).split(b"\n"), 1):
        text = line.strip().decode("utf-8", "replace")
        if text:
            yield f"{reader.name}: line {number}", text
