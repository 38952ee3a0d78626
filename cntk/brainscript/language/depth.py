"""Deep recursion for parser and evaluator, within bounds that end in an error of the package.

A network of many layers is one deeply nested lazy expression: asking for its criterion asks, one
inside the other, for every layer below. The interpreter's own limit on nested calls (1,000) is far
too low for that. The functions that nest are plain Python ones, which take no C stack, so the limit
can be raised while they run; the counters below keep them far from the raised one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ....framework.base.python.cached import new_lock

MAX_NESTING = 2_000  # levels of one expression in the text
MAX_OPERATORS = 4_000  # in a row, such as a + b + c
MAX_DEPTH = 20_000  # values being computed at one time, each one needed by the one before
MAX_ERRORS = 50  # reported of one text
MAX_SHOWN = 200  # records and arrays in one another, of a value to print or to give to a node

_CALLS = 400_000  # nested Python calls while something deep runs
_lock = new_lock()
_users = 0
_before = 0


@contextmanager
def deep_calls() -> Iterator[None]:
    """Let Python calls nest deeply inside the block; the limit comes back with the last user."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, _CALLS))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setrecursionlimit(_before)
