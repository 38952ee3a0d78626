"""Lists of symbols among the files of programs."""

from __future__ import annotations

from ....framework.base.untrusted.values import whole_number
from ....kaldi.tables.streams import Files

_MOST = (1 << 31) - 2


def read_symbols(name: str) -> list[int]:
    """The symbols of a file with one in each line.

    Raises:
        FormatError: a line holds something else than a number from 1 on.
    """
    reader = Files().reader(name)
    symbols = []
    for number, line in enumerate(bytes(reader.data[reader.offset :]).split(b"\n"), 1):
        if line.strip():
            text = line.strip().decode("utf-8", "replace")
            symbols.append(whole_number(text, f"{reader.name}: line {number}", 1, _MOST))
    return symbols
