"""A block that makes many objects while the garbage collector is off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 10_000
"""New objects from which the collector is spared the first look at them, of some 100 ns each."""

_FEW = 1_000
"""As `_MANY`, where all of them last."""


_COUNTED = 100_000
"""Moved objects from which all are counted: that visits each of them."""


class _Moved:
    """Objects that were moved to the oldest generation since all were searched last.

    Attributes:
        count: how many. then: how many objects there were when these were many; 0: they are not
            yet. searches: of all objects, by anybody.
    """

    count = then = searches = 0


_moved = _Moved()


@contextmanager
def gc_disabled(*, lasting: bool = False) -> Iterator[None]:
    """Turn the search for cyclic garbage off within the block; usable as a decorator as well.

    A compilation makes tens of thousands of objects that stay alive, and no cycles. The collector
    starts whenever enough new objects were made and would visit all of them each time: a third of
    the time that compiling a recurrent network takes. Nor are many of them visited afterwards: they
    go to the oldest generation as they are, as do all other young objects of the process. Garbage
    of the process may be among those, and moving them sets back what Python counts: so all objects
    are searched here once as many were moved as there were others.

    Args:
        lasting: whether what the block makes is no garbage while the process lives, as modules are:
            fewer of them are moved as well, and they do not count.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            young = gc.get_count()[0]
            if young > (_FEW if lasting else _MANY) and not gc.get_freeze_count():
                if lasting:
                    gc.freeze()
                    gc.unfreeze()
                else:
                    _move(young)
            gc.enable()


def _move(young: int) -> None:
    """Young objects to the oldest generation; all are searched where that was long ago."""
    gc.freeze()
    searches = gc.get_stats()[2]["collections"]
    if searches != _moved.searches:
        _moved.count, _moved.then, _moved.searches = 0, 0, searches
    _moved.count += young
    if not _moved.then and _moved.count > _COUNTED:
        _moved.then = gc.get_freeze_count()
    gc.unfreeze()
    if _moved.count > _moved.then > 0:
        gc.collect()  # the next block counts anew, from what is left
