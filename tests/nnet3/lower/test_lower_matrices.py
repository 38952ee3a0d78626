"""Fills that are read, and inputs that are written to, on random copies between two matrices."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.nnet3.compiler.command import Command
from opscope.nnet3.compiler.computation import Computation, MatrixInfo, SubMatrix
from opscope.nnet3.lower.matrix_lifetimes import MatrixLifetimes

ROWS, COLS = 3, 4


@st.composite
def parts(draw):
    row, col = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, COLS - 1))
    rows, cols = draw(st.integers(1, ROWS - row)), draw(st.integers(1, COLS - col))
    return SubMatrix(draw(st.integers(1, 2)), row, rows, col, cols)


PARTS = st.one_of(parts(), st.sampled_from([SubMatrix(m, 0, ROWS, 0, COLS) for m in (1, 2)]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(PARTS, PARTS), max_size=6))
def test_fills_and_changed_inputs(copies):
    whole = [SubMatrix(m, 0, ROWS, 0, COLS) for m in (1, 2)]
    submatrices = [SubMatrix(0, 0, 0, 0, 0), *whole, *(part for pair in copies for part in pair)]
    commands = [Command.set_const(1, 0.0), Command.accept_input(2, -1)]
    commands += [Command.matrix_copy(3 + 2 * i, 4 + 2 * i) for i in range(len(copies))]
    matrices = [MatrixInfo(0, 0), MatrixInfo(ROWS, COLS), MatrixInfo(ROWS, COLS)]
    computation = Computation(SimpleNamespace(nodes=[]), matrices, submatrices, commands)
    lifetimes = MatrixLifetimes(computation, [s.matrix for s in submatrices], [0, 1], False)

    filled, is_read = np.ones((ROWS, COLS), bool), False
    for target, source in copies:
        for part, reads in ((source, True), (target, False)):
            if part.matrix == 1:
                mine = filled[part.row : part.row + part.rows, part.col : part.col + part.cols]
                is_read |= reads and mine.any()
                mine[...] &= reads
    touching = [i for i, pair in enumerate(copies) if 1 in (pair[0].matrix, pair[1].matrix)]
    assert lifetimes.fills == ({2 + touching[0]: [commands[0]]} if is_read else {})
    assert lifetimes.changed_inputs == (
        {2} if any(target.matrix == 2 for target, _ in copies) else set()
    )
