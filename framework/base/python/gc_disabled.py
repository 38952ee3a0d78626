"""A block that makes many objects while the garbage collector is off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 100_000
"""New objects from which the collector is spared the first look at them, of some 100 ns each."""


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Turn the search for cyclic garbage off within the block; usable as a decorator as well.

    A compilation makes tens of thousands of objects that stay alive, and no cycles. The collector
    starts whenever enough new objects were made and would visit all of them each time: a third of
    the time that compiling a recurrent network takes. Nor are many of them visited afterwards: they
    go to the oldest generation as they are, as do all other young objects of the process.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
