"""What passes know of accesses: parts of matrices that are put together, analyses handed on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnet3_runs import random_net, request_for
from opscope.nnet3.compiler.analyze import Analysis, Cover
from opscope.nnet3.compiler.computation import SubMatrix
from opscope.nnet3.inference.pipeline import compile_computation
from opscope.nnet3.optimize import PASSES, OptimizeOptions
from opscope.nnet3.optimize.row_ops import _runs

ROWS, COLS = 6, 7


@st.composite
def parts(draw):
    row, col = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, COLS - 1))
    rows, cols = draw(st.integers(1, ROWS - row)), draw(st.integers(1, COLS - col))
    return SubMatrix(1, row, rows, col, cols)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), parts()), max_size=12))
def test_cover_is_a_set_of_elements(steps):
    cover, marks = Cover(COLS), np.zeros((ROWS, COLS), bool)
    for adds, part in steps:
        _, row, rows, col, cols = part
        mine = marks[row : row + rows, col : col + cols]
        assert cover.contains(part) == mine.all()
        assert cover.touches(part) == mine.any()
        if adds:
            cover.add(part)
            mine[...] = True


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 4), min_size=1, max_size=6), min_size=1, max_size=5))
def test_runs_of_rows(lists):
    for rows, run in zip(lists, _runs([np.array(rows) for rows in lists]), strict=True):
        real = [place for place, row in enumerate(rows) if row >= 0]
        if run is None:
            inner = rows[real[0] : real[-1] + 1] if real else []
            assert not real or inner != list(range(inner[0], inner[0] + len(inner)))
        else:
            first, count, row = run
            others = rows[:first] + rows[first + count :]
            assert rows[first : first + count] == list(range(row, row + count))
            assert set(others) <= {-1}


@pytest.mark.parametrize("seed", range(6))
def test_an_analysis_that_is_handed_on_is_that_of_the_result(seed):
    nnet = random_net(seed)
    computation = compile_computation(nnet, request_for(nnet))
    options = OptimizeOptions()
    for step in PASSES[: [p.name for p in PASSES].index("place_memory")]:
        computation = step.apply(computation, options)
        known = computation.analysis
        if known is None:
            continue
        assert known.left() == computation.commands
        wanted = Analysis(computation)
        left = [n for n in range(len(known.commands)) if n not in known.dropped]
        place = dict(zip(left, range(len(left)), strict=True))
        for matrix in range(1, len(computation.matrices)):
            uses = [(place[number], mode, s) for number, mode, s in known.of_matrix[matrix]]
            assert [number for number, _, _ in uses] == sorted(number for number, _, _ in uses)
            assert sorted(uses) == sorted(wanted.of_matrix[matrix])
        there = {s.matrix for s in computation.submatrices}
        assert (
            known.accepted & there == wanted.accepted and known.provided & there == wanted.provided
        )
    assert computation.analysis is not None
