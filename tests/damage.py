"""Damaged files: every truncation and many bit flips must give the package's error or a value."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError

_ALLOWED = 4 << 20  # bytes of memory that reading a small damaged file may take


def truncations(data: bytes) -> Iterator[bytes]:
    return (data[:end] for end in range(len(data)))


def flips(data: bytes, rng: np.random.Generator, count: int = 400) -> Iterator[bytes]:
    """All single bit flips of the first bytes, then random ones, and bytes set to extremes."""
    places = list(range(min(8 * 48, 8 * len(data))))
    places += rng.integers(0, 8 * len(data), count).tolist()
    for place in places:
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        yield bytes(changed)
    for place in rng.integers(0, len(data), count // 4).tolist():
        for value in (0, 0x7F, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] = value
            yield bytes(changed)


def check_damaged(data: bytes, read: Callable[[bytes], object], *, whole: bool = True) -> None:
    """`read` takes `data`, and every damaged form of it without a surprise.

    Args:
        data: a small file.
        read: raises FormatError for what it cannot read.
        whole: whether every truncation must be refused.
    """
    read(data)
    tracemalloc.start()
    try:
        for cut in truncations(data):
            if whole:
                with pytest.raises(FormatError):
                    read(cut)
            else:
                _try(read, cut)
        for changed in flips(data, np.random.default_rng(0)):
            _try(read, changed)
    finally:
        tracemalloc.stop()


def _try(read: Callable[[bytes], object], data: bytes) -> None:
    tracemalloc.reset_peak()
    try:
        read(data)
    except FormatError as error:
        assert "byte" in str(error), error
    assert tracemalloc.get_traced_memory()[1] < _ALLOWED
