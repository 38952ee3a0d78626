"""Sizes that vary: what is computed of them holds for all sizes that meet the conditions."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.sizes.dims import Dim, Dims
from size_arithmetic import computed


@pytest.mark.parametrize("seed", range(60))
def test_results_hold_where_conditions_are_met(seed: int) -> None:
    rng = random.Random(seed)
    dims = Dims()
    hints = [rng.randrange(2, 40) for _ in range(3)]
    open_sizes = [dims.size(place, hint) for place, hint in enumerate(hints)]
    values = computed(random.Random(seed), open_sizes)
    found = [dims.value_of(value) for value in values]
    together = dims.values_of(values)
    assert dims.meets(hints)
    met = 0
    for _ in range(60):
        others = [hint + rng.choice((0, 0, 1, 2, 8, -1)) for hint in hints]
        if dims.meets(others):
            met += 1
            wanted = computed(random.Random(seed), others)
            assert [value(others) for value in found] == list(together(others)) == wanted
    assert met


@pytest.mark.parametrize(
    ("compute", "shown"),
    [
        (lambda w: (w + 2 - 3) + 1 - w, 0),
        (lambda w: (w * 512) // 512 - w, 0),
        (lambda w: (w * 6 + 5) // 2 - w * 3, 2),
        (lambda w: w * w // w - w, 0),
        (lambda w: -(-w // 2) - (w + 1) // 2, 0),
        (lambda w: (w - w % 4) // 4 * 4 - w // 4 * 4, 0),
    ],
)
def test_what_no_size_changes_is_a_number(compute: Any, shown: int) -> None:
    dims = Dims()
    assert compute(dims.size(0, 9)) == shown and isinstance(compute(dims.size(0, 9)), int)
    assert dims.meets([1 << 20])


def test_uses_as_numbers_are_conditions() -> None:
    for use in (int, hash, float, range, np.asarray, np.arange, lambda w: w / 2, lambda w: 0.5 * w):
        dims = Dims()
        use(dims.size(0, 9))
        assert dims.meets([9]) and not dims.meets([10]) and dims.pinned == {0}


def test_bounds_decide_without_conditions() -> None:
    dims = Dims()
    w = dims.size(0, 9)
    assert w > 0 and w != 1 and w != -1 and bool(w) and not w + 3 < 5 and w * 2 >= 4
    assert dims.meets([2]) and not dims.meets([1])  # sizes of 1 mean too much to be any sizes
    assert not isinstance(dims.size(1, 1), Dim) and dims.size(2, 0) == 0


def test_no_condition_is_met_where_a_quotient_divides_by_zero() -> None:
    dims = Dims()
    size = dims.size(0, 5)
    value = dims.value_of(100 // (size - 3) + size)
    assert dims.meets([8]) and value([8]) == 28 and not dims.meets([3])
