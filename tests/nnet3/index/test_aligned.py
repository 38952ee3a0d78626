"""Rows found by sets of times, against looking for each row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.nnet3.index.aligned import align, align_listed, later, rows_among
from opscope.nnet3.index.indexes import Columns, pack_tx
from opscope.nnet3.index.time_sets import series

NS = np.array([0, 2, 3])


def keys_of(times):
    return pack_tx(np.array(sorted(times)), np.zeros(len(times), np.int64))


def family(*sets):
    return list(align(NS, {sum(1 << t for t in times): keys_of(times) for times in sets}).values())


def in_order_of(times, order, of):
    """A list of the rows of all sequences, in an order of its own."""
    rows = np.array([(n, t, 0) for n in NS for t in times], np.int32)
    if order == "times":
        rows = rows.reshape(len(NS), -1, 3).transpose(1, 0, 2).reshape(-1, 3)
    columns = Columns.of(rows)
    bits = sum(1 << t for t in times)
    align_listed(columns, of.aligned.family, bits, pack_tx(np.array(times), 0), len(NS))
    return columns


def places(columns, t=0):
    return [(n, time + t, x) for n, time, x in columns.indexes.tolist()]


times_of = st.sets(st.integers(5, 24), min_size=1, max_size=9)
series_of = st.builds(
    lambda start, step, count: set(range(start, start + step * count, step)),
    *(st.integers(5, 9), st.integers(1, 3), st.integers(1, 6)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(times_of | series_of, min_size=2, max_size=3), st.integers(-3, 3), st.booleans())
def test_rows_of_several_lists(sets, t, by_times):
    reader, *sources = family(*(sets if len(set(map(frozenset, sets))) == len(sets) else [{5}]))
    if by_times:
        listed = sorted(sets[0], key=lambda time: (time % 3, time))
        reader = in_order_of(listed, "times" if t else "sequences", reader)
    row, number = rows_among({i: one.aligned for i, one in enumerate(sources)}, reader.aligned, t)
    for place, rows, numbers in zip(places(reader, t), row.tolist(), number.tolist(), strict=True):
        holding = [i for i, one in enumerate(sources) if place in places(one)]
        assert numbers == (holding[:1] or [-1] * len(numbers))
        assert rows == [places(sources[i]).index(place) for i in holding[:1]] or rows in ([-1], [])


@settings(max_examples=60, deadline=None)
@given(times_of | series_of, st.data())
def test_rows_of_one_list(times, data):
    part = data.draw(st.sets(st.sampled_from(sorted(times)), min_size=1))
    listed = data.draw(st.permutations(sorted(times)))
    whole = family(times)[0]
    for order in ("times", "sequences"):
        source = in_order_of(listed, order, whole)
        for reader in (in_order_of(sorted(part, reverse=True), order, whole), whole):
            if reader is whole and part != times:
                continue
            rows = source.aligned.rows_of(reader.aligned, 0)
            assert [places(source)[row] for row in rows.tolist()] == places(reader)


def test_lists_that_are_later():
    first, second = family({5, 6}, {8, 9})
    assert later(first, 3) is second and later(second, -3) is first
    assert later(first, 2) is None
    assert later(Columns.of(first.indexes), 3) is None
    assert later(in_order_of([6, 5], "times", first), 3) is None


@pytest.mark.parametrize(
    ("times", "found"),
    [({7}, (7, 1, 1)), ({4, 6, 8}, (4, 2, 3)), ({4, 5, 6}, (4, 1, 3)), ({4, 5, 7}, None)],
)
def test_series(times, found):
    assert series(sum(1 << t for t in times)) == found
