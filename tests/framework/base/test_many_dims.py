"""Polynomials of several sets of sizes: all at once they are what each is alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from opscope.framework.base.sizes.dims import Dims
from opscope.framework.base.sizes.many_dims import ManyDims, Sums, Table
from size_arithmetic import computed

PARTS = 5


@pytest.mark.parametrize("seed", range(12))
def test_several_dims_at_once_are_each_by_itself(seed: int) -> None:
    rng = random.Random(seed)
    dims = [Dims() for _ in range(PARTS)]
    hints = [[rng.randrange(2, 40) for _ in range(3)] for _ in dims]
    values = []
    for number, (own, sizes) in enumerate(zip(dims, hints, strict=True)):
        opened = [own.size(place, hint) for place, hint in enumerate(sizes)]
        found = computed(random.Random(PARTS * seed + number), opened)
        values.append([one for one in found if abs(int(str(one))) < 1 << 40])
    tables = [Table(own, many[:5], many[5:]) for own, many in zip(dims, values, strict=True)]
    places = np.random.default_rng(seed).permutation(3 * PARTS).reshape(PARTS, 3)
    many = ManyDims(tables, list(places))
    alone = [[own.value_of(one) for one in found] for own, found in zip(dims, values, strict=True)]
    seen = set()
    row = np.zeros(3 * PARTS, np.int64)
    for _ in range(40):
        sizes = [[size + rng.choice((0, 0, 0, 1, 8, -1)) for size in own] for own in hints]
        row[places] = sizes
        numbers, met = many.numbers(row)
        assert met.tolist() == [own.meets(one) for own, one in zip(dims, sizes, strict=True)]
        seen |= {*met.tolist()}
        lists = [one.values(numbers).tolist() for one in many.values]
        for functions, one, is_met in zip(alone, sizes, met.tolist(), strict=True):
            own = [
                [lists[k].pop(0) for _ in part]
                for k, part in enumerate((functions[:5], functions[5:]))
            ]
            assert not is_met or own[0] + own[1] == [function(one) for function in functions]
    assert seen == {True, False}


def test_what_leaves_64_bits_is_refused() -> None:
    squares = Sums.of([{(0, 0): 1}, {(): 7}])
    assert squares.values(np.array([1, 1 << 20])).tolist() == [1 << 40, 7]
    with pytest.raises(OverflowError):
        squares.values(np.array([1, 1 << 40]))
    with pytest.raises(OverflowError):
        Sums.of([{(): 1 << 70}])


def test_a_quotient_by_zero_meets_no_condition() -> None:
    one, other = Dims(), Dims()
    quotient = 100 // (one.size(0, 5) - 3)
    size = other.size(0, 3)
    many = ManyDims([Table(one, [quotient]), Table(other, [size])], [np.array([0])] * 2)
    for given, met, values in ((8, [True, True], [20, 8]), (3, [False, True], [100, 3])):
        numbers, found = many.numbers(np.array([given]))
        assert found.tolist() == met and many.values[0].values(numbers).tolist() == values


def test_sizes_that_nothing_depends_on_come_later() -> None:
    dims = Dims()
    size, address = dims.size(0, 5), dims.unchecked(1, 1000)
    many = ManyDims([Table(dims, [address + 4 * size])], [np.array([0, 1])])
    numbers, _ = many.numbers(np.array([6, 0]))
    many.put(np.array([6, 5000]), numbers)
    assert many.values[0].values(numbers).tolist() == [5024]
