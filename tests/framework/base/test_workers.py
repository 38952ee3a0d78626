"""Items that processes share."""

from __future__ import annotations

import math
import os
from functools import partial

import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.machine.workers import shared_out


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_errors_where_they_belong(jobs):
    items = [float(number * number) for number in range(12)]
    assert list(shared_out(partial(partial, math.sqrt), items, jobs)) == list(range(12))
    found = shared_out(partial(partial, math.sqrt), [4.0, 9.0, -1.0, 16.0], jobs)
    assert [next(found), next(found)] == [2.0, 3.0]
    with pytest.raises(ValueError, match="math domain error|nonnegative"):
        next(found)


def test_a_process_that_ends():
    with pytest.raises(OpscopeError, match="a process ended before its items were done"):
        list(shared_out(partial(partial, os._exit), [1, 2, 3], 2))
