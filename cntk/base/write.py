"""Text files that programs write."""

from __future__ import annotations

from pathlib import Path

from ...framework.base.files.atomic import make_folder_of, write_atomically


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, with the folders it needs; bytes that are no UTF-8 as they were read.

    Raises:
        SaveError: it cannot be written; an older file is untouched.
    """
    make_folder_of(path)
    write_atomically(path, text.encode("utf-8", "surrogateescape"))
