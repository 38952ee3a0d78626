"""A block that makes many objects while the garbage collector is off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 100_000
"""New objects from which the collector is spared the first look at them, of some 100 ns each."""


class _Moved:
    """Objects that were moved to the oldest generation since all were searched last.

    Attributes:
        count: how many. then: how many objects there were at that time, or when the first were
            moved. searches: of all objects, by anybody.
    """

    count = then = searches = 0


_moved = _Moved()


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Turn the search for cyclic garbage off within the block; usable as a decorator as well.

    A compilation makes tens of thousands of objects that stay alive, and no cycles. The collector
    starts whenever enough new objects were made and would visit all of them each time: a third of
    the time that compiling a recurrent network takes. Nor are many of them visited afterwards: they
    go to the oldest generation as they are, as do all other young objects of the process. Garbage
    of the process may be among those, and moving them sets back what Python counts: so all objects
    are searched here once as many were moved as there were others.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            young = gc.get_count()[0]
            if young > _MANY and not gc.get_freeze_count():
                _move(young)
            gc.enable()


def _move(young: int) -> None:
    """Young objects to the oldest generation; all are searched where that was long ago."""
    gc.freeze()
    present = gc.get_freeze_count()
    gc.unfreeze()
    searches = gc.get_stats()[2]["collections"]
    if searches != _moved.searches or not _moved.then:
        _moved.count, _moved.then, _moved.searches = 0, present, searches
    _moved.count += young
    if _moved.count > _moved.then:
        gc.collect()  # the next block counts anew, from what is left
