"""Processes that take a core, or a part of one, beside what is measured."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

NEIGHBORS = {"light": 0.1, "half": 0.5, "busy": 1.0}
"""What part of a core a neighbor takes, in one go of every 0.2 s."""

_SPIN = """
import sys, time
share = float(sys.argv[1])
while True:
    begun = time.perf_counter()
    while time.perf_counter() < begun + 0.2 * share:
        pass
    time.sleep(0.2 * (1 - share))
"""


@contextlib.contextmanager
def neighbor(kind: str) -> Iterator[None]:
    """A neighbor of some kind while something is measured; none for what names no kind."""
    if kind not in NEIGHBORS:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", _SPIN, str(NEIGHBORS[kind])])
    try:
        yield
    finally:
        process.kill()
        process.wait()
