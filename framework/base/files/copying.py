"""Copies between files that the system makes by itself, where it can."""

from __future__ import annotations

import os
import shutil
from typing import IO

_PIECE = 1 << 30
"""Bytes of one call; Linux takes less than 2 GiB."""


def copy_contents(source: IO[bytes], target: IO[bytes]) -> None:
    """Append what is left of `source` to `target`.

    Linux copies between plain files without this process (some file systems share the blocks);
    elsewhere, and into a pipe, the bytes come through here.

    Raises:
        OSError: it cannot be read or written.
    """
    # The system copies past Python's buffer: what is in it must be in the file first.
    target.flush()
    _copy_in_kernel(source, target)
    shutil.copyfileobj(source, target, 1 << 20)


def _copy_in_kernel(source: IO[bytes], target: IO[bytes]) -> None:
    """As much as goes; `source` then stands after it."""
    copy = getattr(os, "copy_file_range", None)
    if copy is None:
        return
    offset = source.tell()
    try:
        # With an explicit offset the position of the handle stays, which Python's buffer relies on.
        while copied := copy(source.fileno(), target.fileno(), _PIECE, offset_src=offset):
            offset += copied
    except OSError:  # no such files, or a full disk: the error of writing the rest says so
        pass
    source.seek(offset)
