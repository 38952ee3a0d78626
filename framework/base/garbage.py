"""Making many objects without looks for garbage in between."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cyclic garbage within the block; also for use as a decorator.

    A compilation makes ten thousands of lasting objects and no cycles. Python's collector, which
    starts by the number of new objects, would go through them again and again; that takes a third
    of the time of compiling a recurrent network.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
