"""Counts of what a call does, in place of its time: the same on every machine, however busy."""

import sys
from collections.abc import Callable

# Methods of text that go through all of it; others may be told to begin at a place.
_WHOLE = frozenset(
    ("strip", "lstrip", "rstrip", "split", "splitlines", "encode", "decode", "lower", "upper")
)
_STEP = 64  # characters that such a method goes through in one operation


def operations(function: Callable[[], object]) -> int:
    """How many lines of Python run, and how many calls into C are made, until it returns.

    A call into C that goes through a whole text counts more for a longer one.
    """
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    def profile(frame, event, argument):
        nonlocal count
        if event == "c_call":
            count += 1
            if argument.__name__ in _WHOLE and isinstance(argument.__self__, (str, bytes)):
                count += len(argument.__self__) // _STEP

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count


def growth(make: Callable[[int], Callable[[], object]], size: int) -> float:
    """By how much the operations grow where the input is doubled; 2 is linear, 4 is quadratic.

    Args:
        make: the call for an input of some size.
    """
    make(size)()  # what is made once is made
    return operations(make(2 * size)) / operations(make(size))
