"""Shortcut compilation on the random networks of the reference: the same commands as without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.compiler.shortcut import decompose, expand
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize.options import OptimizeOptions
from opscope.nnet3.optimize.passes import compile_optimized

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/request.txt")) or ["none"]
SEQUENCES = 5


def for_sequences(io):
    """The rows of one sequence for each of `SEQUENCES`, one sequence behind the other."""
    rows = io.indexes[io.indexes[:, 0] == io.indexes[0, 0]]
    indexes = np.tile(rows, (SEQUENCES, 1))
    indexes[:, 0] = np.repeat(np.arange(SEQUENCES), len(rows))
    return replace(io, indexes=indexes)


@pytest.mark.parametrize("case", CASES)
def test_equal_to_direct_compilation(case):
    nnet = Nnet.read(need("random_nets", case, "model.raw"))
    request = ComputationRequest.parse(need("random_nets", case, "request.txt").read_text())
    request = replace(
        request,
        inputs=[for_sequences(io) for io in request.inputs],
        outputs=[for_sequences(io) for io in request.outputs],
    )
    few, count = decompose(request)
    assert count == SEQUENCES and {len(np.unique(io.indexes[:, 0])) for io in few.inputs} == {2}
    # Without the files of a cache, whose computations no longer know what they were made from.
    got = expand(
        compile_optimized(nnet.topology(), few, OptimizeOptions.chosen(True), False), count
    )
    assert got is not None
    wanted = CachingCompiler(nnet, shortcut=False).compile(request)
    assert got.to_kaldi() == wanted.to_kaldi()
    assert got.submatrices == wanted.submatrices
    for one, other in zip(got.commands, wanted.commands, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
        assert replace(one, rows=None) == replace(other, rows=None)
    for one, other in zip(got.matrices, wanted.matrices, strict=True):
        np.testing.assert_array_equal(one.indexes, other.indexes)
    assert str(got.precomputed) == str(wanted.precomputed)
