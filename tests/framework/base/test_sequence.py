"""Sequences: packing and unpacking, picking, schedules, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.framework.base.errors import ShapeError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences, lengths_of, make_schedule, offsets_of, runs

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=8)
NESTED_LENGTHS = st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=5)
QUICK = settings(max_examples=60, deadline=None)


def numbered(lengths, width=2):
    """Arrays of these lengths that hold 0, 1, 2 ..."""
    ends = np.cumsum([0, *lengths]) * width
    return [np.arange(a, b).reshape(-1, width) for a, b in zip(ends[:-1], ends[1:], strict=True)]


@QUICK
@given(LENGTHS)
def test_lists_there_and_back(lengths):
    items = numbered(lengths)
    packed = Sequences.from_list(items)
    assert len(packed) == len(lengths) and packed.shape == (sum(lengths), 2)
    assert np.array_equal(lengths_of(packed.levels[0]), lengths)
    for found, item in zip(packed, items, strict=True):
        assert found.base is not None and np.array_equal(found, item)


@QUICK
@given(NESTED_LENGTHS)
def test_nested_lists_there_and_back(nested):
    flat = numbered([length for lengths in nested for length in lengths])
    rest = iter(flat)
    items = [[next(rest) for _ in lengths] for lengths in nested]
    packed = Sequences.from_list(items, levels=2)
    assert len(packed) == len(nested) and len(packed.levels) == 2
    for found, item in zip(packed.to_list(), items, strict=True):
        assert len(found) == len(item)
        assert all(np.array_equal(a, b) for a, b in zip(found, item, strict=True))


@QUICK
@given(LENGTHS, st.booleans())
def test_padded_there_and_back(lengths, by_mask):
    packed = Sequences.from_list([item + 1 for item in numbered(lengths)])
    batch, mask = packed.to_padded(-1)
    assert batch.shape == (len(lengths), max(lengths), 2)
    assert (batch[~mask] == -1).all() and (batch[mask] > 0).all()
    how = {"mask": mask} if by_mask else {"lengths": lengths}
    again = Sequences.from_padded(batch, **how)
    assert np.array_equal(again.data, packed.data)
    assert np.array_equal(again.levels[0], packed.levels[0])


@QUICK
@given(NESTED_LENGTHS, st.data())
def test_picking(nested, data):
    flat = iter(numbered([length for lengths in nested for length in lengths]))
    packed = Sequences.from_list([[next(flat) for _ in n] for n in nested], levels=2)
    numbers = data.draw(st.lists(st.integers(0, len(nested) - 1), max_size=6))
    picked = packed[np.array(numbers, int)]
    assert len(picked) == len(numbers)
    for found, number in zip(picked, numbers, strict=True):
        wanted = packed.to_list()[number]
        assert len(found) == len(wanted)
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    half = packed[: len(nested) // 2]
    assert np.array_equal(half.data, packed.data[: len(half.data)])


@QUICK
@given(LENGTHS)
def test_schedule(lengths):
    """Every row runs once, in the step of its place; sequences come by falling length."""
    schedule = make_schedule(offsets_of(lengths))
    assert schedule.steps == max(lengths)
    assert sorted(schedule.rows.tolist()) == list(range(sum(lengths)))
    by_length = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    assert schedule.order.tolist() == by_length, "equal lengths keep their order"
    begins = offsets_of(lengths)
    for step in range(schedule.steps):
        rows = schedule.rows[schedule.starts[step] : schedule.starts[step + 1]]
        running = [i for i in by_length if lengths[i] > step]
        assert schedule.sizes[step] == len(running)
        assert rows.tolist() == [begins[i] + step for i in running]


def test_dtypes():
    assert Sequences.from_list([[1, 2], []]).data.dtype == np.int64
    assert Sequences.from_list([[1, 2]], "float32").data.dtype == np.float32
    assert Sequences.from_list([[], []]).data.shape == (0,)
    assert Sequences.from_list([np.zeros((0, 3)), []]).data.shape == (0, 3)
    given_lists = Sequences([1.0, 2.0], [[0, 2]])
    assert given_lists.data.shape == (2,) and given_lists.levels[0].dtype == np.int64


def test_runs():
    assert runs(np.array([5, 0, 2]), np.array([2, 0, 3])).tolist() == [5, 6, 2, 3, 4]
    assert runs(np.zeros(0, int), np.zeros(0, int)).tolist() == []


@pytest.mark.parametrize(
    ("items", "levels", "message"),
    [
        ([], 1, "a batch holds at least one"),
        ([[1]], 3, "1 or 2 levels, not 3"),
        ([np.zeros((2, 3)), np.zeros((1, 4))], 1, r"different shapes: \[3\] and \[4\]"),
        ([[1, 2], 3], 1, "sequence 1 is a single number"),
        ([[[1], [1, 2]]], 1, "sequence 0 is no array"),
        ([[[1]], 2], 2, "item 1 is no list of sequences: 2"),
        ([[[1]], [3]], 2, "sequence 1 is a single number"),
    ],
)
def test_lists_that_are_no_sequences(items, levels, message):
    with pytest.raises(ShapeError, match=message):
        Sequences.from_list(items, levels=levels)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "either a mask or lengths"),
        ({"mask": np.ones((2, 3)), "lengths": [1, 2]}, "either a mask or lengths"),
        ({"mask": np.ones((2, 4))}, r"mask is \(2, 4\); the batch has \(2, 3\) steps"),
        ({"mask": [[1, 1, 1], [1, 0, 1]]}, "mask of sequence 1 has a gap"),
        ({"lengths": [1, 4]}, "want 2 lengths from 0 to 3"),
        ({"lengths": [1, -1]}, "want 2 lengths from 0 to 3"),
        ({"lengths": [1]}, "want 2 lengths from 0 to 3"),
        ({"lengths": [1, 1.5]}, "want 2 lengths from 0 to 3"),
    ],
)
def test_padded_batches_that_are_none(how, message):
    with pytest.raises(ShapeError, match=message):
        Sequences.from_padded(np.zeros((2, 3, 1)), **how)


def test_a_padded_batch_has_steps():
    with pytest.raises(ShapeError, match=r"is \[sequences, steps, ...\], not \(3,\)"):
        Sequences.from_padded(np.zeros(3), lengths=[1, 1, 1])


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([], "want offsets"),
        ([[0, 3, 2, 5]], "fall from 3 to 2 at entry 2"),
        ([[0, 6]], "end at 6, but there are 5 rows"),
        ([[0, 3], [0, 2, 5]], "level 0 end at 3, but there are 2 sequences"),
        ([[1, 5]], "starts with 0"),
        ([[0.0, 5.0]], "integers, not float64"),
        ([[0, [5]]], "no list of integers"),
    ],
)
def test_bad_offsets(levels, message):
    with pytest.raises(ShapeError, match=message):
        Sequences(np.zeros((5, 2)), levels)


def test_one_number_picks_nothing():
    with pytest.raises(ShapeError, match="list of numbers or a slice, not 0"):
        Sequences.from_list([[1, 2], [3]])[0]


# -- variables that hold them --------------------------------------------------------------------


def test_variables_take_and_give_sequences():
    scope = Scope()
    given_rows = Sequences.from_list([[1.0, 2.0], [], [3.0]])
    scope.var("x").set(given_rows)
    found = scope.sequences("x")
    assert [part.tolist() for part in found] == [[1, 2], [], [3]]
    found.data[:] = 0
    assert scope.numpy("x").tolist() == [1, 2, 3], "a copy"
    scope.feed({"x": given_rows[[2, 0]]})
    assert [part.tolist() for part in scope.sequences("x")] == [[3], [1, 2]]


def test_plain_arrays_are_no_sequences():
    scope = Scope()
    with pytest.raises(VariableError, match="'x' holds no value"):
        scope.var("x").sequences()
    scope.var("x").set([1.0])
    with pytest.raises(VariableError, match="'x' is a plain array and holds no sequences"):
        scope.sequences("x")
