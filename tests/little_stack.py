"""Hardly any of Python's stack, for tests of what must not call itself from element to element."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

FRAMES = 170
"""Python calls in one another that a task may need, however long what it works on is."""


@contextmanager
def little_stack(frames: int = FRAMES) -> Iterator[None]:
    """Leave so many calls inside one another to the body."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
