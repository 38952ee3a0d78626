"""Counts of what a call does, in place of its time: the same on every machine, however busy."""

import sys
from collections.abc import Callable


def operations(function: Callable[[], object]) -> int:
    """How many lines of Python run, and how many calls into C are made, until it returns."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    def profile(frame, event, argument):
        nonlocal count
        count += event == "c_call"

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
