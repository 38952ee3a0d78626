"""Splitting of sums of rows into lists for single commands."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.nnet3.compiler.locations import (
    contiguous_ranges,
    ensure_contiguous,
    pack_left,
    single_source,
    split_locations,
    split_locations_backward,
)

terms = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=4)


def arrays(rows):
    width = max((len(r) for r in rows), default=0)
    sub, row = np.full((len(rows), width), -1), np.full((len(rows), width), -1)
    for i, listed in enumerate(rows):
        for j, (s, r) in enumerate(listed):
            sub[i, j], row[i, j] = s, r
    return sub, row


def together(lists, count):
    found = [[] for _ in range(count)]
    for sub, row in lists:
        for i in range(count):
            assert (sub[i] < 0) == (row[i] < 0)
            if sub[i] >= 0:
                found[i].append((int(sub[i]), int(row[i])))
    return [sorted(f) for f in found]


@given(st.lists(terms, min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_split_holds_every_term_once(rows):
    lists = split_locations(*arrays(rows))
    assert together(lists, len(rows)) == [sorted(r) for r in rows]


@given(st.lists(terms, min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_backward_split_can_be_added_at_once(rows):
    lists = split_locations_backward(*arrays(rows))
    assert together(lists, len(rows)) == [sorted(r) for r in rows]
    for sub, row in lists:
        if single_source(sub) >= 0:
            assert contiguous_ranges(row) is not None
        else:
            pairs = [p for p in zip(sub.tolist(), row.tolist(), strict=True) if p[0] >= 0]
            assert len(pairs) == len(set(pairs))


def test_frequent_matrices_get_lists_of_their_own():
    rows = [[(1, 0), (2, 5)], [(2, 4), (1, 1)], [(1, 2)], [(3, 0), (1, 3)]]
    lists = split_locations(*arrays(rows))
    assert [single_source(sub) for sub, _ in lists] == [1, -2]
    assert lists[0][1].tolist() == [0, 1, 2, 3]


def test_pack_left():
    sub, row = pack_left(
        np.array([[-1, 2], [-1, -1], [3, -1]]), np.array([[-1, 7], [-1, -1], [8, -1]])
    )
    assert sub.tolist() == [[2], [-1], [3]]
    assert row.tolist() == [[7], [-1], [8]]


def test_ensure_contiguous():
    lists = ensure_contiguous(np.array([1, 1, 0, 1, -1, 0, 0, 2]))
    assert [part.tolist() for part in lists] == [
        [1, 1, 0, -1, -1, -1, -1, 2],
        [-1, -1, -1, 1, -1, 0, 0, -1],
    ]
    assert ensure_contiguous(np.array([-1, -1])) == []
    assert contiguous_ranges(np.array([2, 2, -1, 0])).tolist() == [[3, 4], [-1, -1], [0, 2]]
    assert contiguous_ranges(np.array([2, 0, 2])) is None
