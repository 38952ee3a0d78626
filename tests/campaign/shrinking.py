"""Makes a file smaller while it still shows what it was kept for."""

from __future__ import annotations

import re
from collections.abc import Callable

_TRIES = 2000  # runs of one shrinking, at most


def shrunk(data: bytes, same: Callable[[bytes], bool]) -> bytes:
    """The smallest part of a file, by lines and then by words, of which `same` is true."""
    left = _TRIES
    for unit in (rb"[^\n]*\n?", rb"\s*\w+|\s*\W"):
        size = max(1, len(re.findall(unit, data)) // 2)
        while left > 0:
            parts = [part for part in re.findall(unit, data) if part]
            begin, cut = 0, False
            while begin < len(parts) and left > 0:
                less = b"".join(parts[:begin] + parts[begin + size :])
                left -= 1
                if same(less):
                    data, cut = less, True
                    del parts[begin : begin + size]
                else:
                    begin += size
            if size == 1 and not cut:
                break
            size = max(1, size // 2)
    return data
