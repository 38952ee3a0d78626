"""Polynomials of all traces for one row of sizes: C and NumPy compute what each `Dims` says."""

from __future__ import annotations

import random

import numpy as np
import pytest

from opscope.framework.base.sizes.dims import Dims
from opscope.framework.base.sizes.many_dims import ManyDims, Table
from opscope.framework.fusion.compiled.arguments import made_grid
from opscope.framework.fusion.team import library
from opscope.framework.runtime.other_shapes import evaluating
from opscope.framework.runtime.other_shapes.evaluating import Evaluations, Fixed
from opscope.framework.runtime.other_shapes.rebinding import _as_one, _line
from size_arithmetic import computed

NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(library() is None, reason="there is no native library")
)
NO_FIXED = Fixed(*np.zeros((3, 0), np.int64))


def evaluations(
    monkeypatch: pytest.MonkeyPatch, native: bool, dims: ManyDims, units: list[int], fixed: Fixed
) -> Evaluations:
    if not native:
        monkeypatch.setattr(evaluating, "library", lambda: None)
    return Evaluations(dims, len(units), np.array(units, np.int64), fixed)


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("seed", range(6))
def test_an_evaluation_is_what_each_table_says(
    monkeypatch: pytest.MonkeyPatch, seed: int, native: bool
) -> None:
    rng = random.Random(seed)
    parts = 4
    every = [Dims() for _ in range(parts)]
    hints = [[rng.randrange(2, 40) for _ in range(3)] for _ in every]
    values = []
    for own, sizes in zip(every, hints, strict=True):
        opened = [own.size(place, hint) for place, hint in enumerate(sizes)]
        values.append([one for one in computed(rng, opened) if abs(int(str(one))) < 1 << 40])
    tables = [Table(own, many[:5], many[5:]) for own, many in zip(every, values, strict=True)]
    places = np.random.default_rng(seed).permutation(3 * parts).reshape(parts, 3)
    # Sizes are in bytes; the last number of the row is what the last part alone is for.
    units = [4] * 3 * parts + [1]
    fixed = Fixed(*np.array([[parts - 1], [3 * parts], [7]]))
    of = evaluations(monkeypatch, native, ManyDims(tables, list(places)), units, fixed)
    functions = [
        [own.value_of(one) for one in many[:5]] for own, many in zip(every, values, strict=True)
    ]
    functions += [
        [own.value_of(one) for one in many[5:]] for own, many in zip(every, values, strict=True)
    ]
    seen = set()
    for _ in range(30):
        sizes = [[size + rng.choice((0, 0, 0, 1, 8, -1)) for size in own] for own in hints]
        last = rng.choice((7, 7, 8))
        with of.lent() as evaluation:
            evaluation.row[places] = 4 * np.array(sizes)
            evaluation.row[-1] = last
            evaluation.run()
            met = [own.meets(one) for own, one in zip(every, sizes, strict=True)]
            met[-1] = met[-1] and last == 7
            assert evaluation.met.tolist() == met
            found = evaluation.values.tolist()
        for many, one, is_met in zip(functions, [*sizes, *sizes], [*met, *met], strict=True):
            own, found = found[: len(many)], found[len(many) :]
            assert not is_met or own == [function(one) for function in many]
        assert not found
        seen |= {*met}
    assert seen == {True, False}


@pytest.mark.parametrize("native", [False, NATIVE])
def test_what_cannot_be_evaluated_is_refused(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    dims = Dims()
    size = dims.size(0, 5)
    many = ManyDims([Table(dims, [size * size * size])], [np.array([0])])
    of = evaluations(monkeypatch, native, many, [2], NO_FIXED)
    with of.lent() as evaluation:
        for row, value in ((10, 125), (1 << 41, None), (7, None), (12, 216)):
            evaluation.row[0] = row
            if value is None:  # it leaves 64 bits, or lies between two elements
                with pytest.raises(OverflowError):
                    evaluation.run()
            else:
                evaluation.run()
                assert evaluation.values.tolist() == [value]


@pytest.mark.parametrize("native", [False, NATIVE])
def test_quotients_are_rounded_down(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    dims = Dims()
    over, by = dims.unchecked(0, 50), dims.unchecked(1, 7)
    many = ManyDims([Table(dims, [over // by])], [np.array([0, 1])])
    of = evaluations(monkeypatch, native, many, [1, 1], NO_FIXED)
    with of.lent() as evaluation:
        for a, b in ((50, 7), (-50, 7), (50, -7), (-50, -7), (49, -7), (50, -1), (-50, 1), (0, 3)):
            evaluation.row[:] = a, b
            evaluation.run()
            assert (evaluation.met.tolist(), evaluation.values.tolist()) == ([1], [a // b])
        evaluation.row[:] = 50, 0
        evaluation.run()
        assert evaluation.met.tolist() == [0]


def test_two_evaluations_at_once_have_memory_of_their_own() -> None:
    dims = Dims()
    many = ManyDims([Table(dims, [3 * dims.size(0, 5)])], [np.array([0])])
    of = Evaluations(many, 1, np.ones(1, np.int64), NO_FIXED)
    with of.lent() as one, of.lent() as other:
        one.row[0], other.row[0] = 10, 20
        one.run()
        other.run()
        assert (one.values.tolist(), other.values.tolist()) == ([30], [60])


def test_grids_that_lie_evenly_are_one_line() -> None:
    rng = random.Random(0)
    seen = set()
    for _ in range(400):
        counts = [rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rng.randrange(1, 4))]
        steps = [rng.choice((1, 2, 3, 4, 6, 10, 0)) for _ in counts]
        first = rng.choice((0, 0, 0, 2))
        for at in range(len(counts) - 1, 0, -1):
            if rng.random() < 0.7:
                steps[at - 1] = counts[at] * steps[at]
        count, step = _as_one((first, *counts, *steps))
        seen.add(step > 0)
        if step:
            line = _line(count, step)
            np.testing.assert_array_equal(line[:count], made_grid(first, *counts, *steps))
            longer = _line(2 * len(line) + 1, step)
            np.testing.assert_array_equal(longer[: len(line)], line)
    assert seen == {True, False}
