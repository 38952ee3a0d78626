"""Numbers that tests draw without a seed: the same ones in every run of a test.

What draws without a seed asks the system for one, through `random`: NumPy's generators, which take
theirs from `secrets`, and Python's own. Here that source is a stream that follows from the test's
name, so that a test passes always or never. It goes on from draw to draw: two contexts without a
seed still differ. Names of temporary files come from elsewhere, and stay new in each process.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

BASE = "OPSCOPE_TEST_SEED"
"""The variable that says which streams: those of `--seed`, for processes that tests start too."""

_stream = random.Random()


def begin(name: str) -> None:
    """The stream of what is called so, from its beginning."""
    base = os.environ.get(BASE, "0")
    _stream.seed(f"{base} {name}")
    python, numpy = _stream.getrandbits(64), _stream.getrandbits(32)
    random.seed(python)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(numpy)
    if "torch" in sys.modules:
        # As PyTorch itself begins: a test that is the first to load it draws the same.
        torch: Any = sys.modules["torch"]
        torch.default_generator.manual_seed(67280421310721 + int(base))


def state() -> tuple[Any, ...]:
    """Where all streams stand, for `go_on`."""
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    return (
        _stream.getstate(),
        random.getstate(),
        numpy and numpy.get_state(),
        torch and torch.default_generator.get_state(),
    )


def go_on(at: tuple[Any, ...]) -> None:
    """Let the streams go on from where they stood."""
    own, python, numpy, torch = at
    _stream.setstate(own)
    random.setstate(python)
    if numpy is not None:
        sys.modules["numpy.random"].set_state(numpy)
    if torch is not None:
        sys.modules["torch"].default_generator.set_state(torch)


def install() -> None:
    """Take the system's place as the source of seeds, in this process."""
    random._urandom = _stream.randbytes
