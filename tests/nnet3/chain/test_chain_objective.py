"""LF-MMI against sums over all paths, and its derivatives against differences."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from chain_graphs import (
    brute_force,
    leaky_paths,
    paths,
    random_hmm,
    random_lattice,
    random_supervision,
)
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.nnet3.chain.denominator import DenominatorGraph, denominator
from opscope.nnet3.chain.numerator import numerator
from opscope.nnet3.chain.objective import ChainOptions, chain_objective
from opscope.nnet3.chain.supervisions.supervision import Supervision, merge_supervision

SEEDS = range(8)
LEAKY = 0.1


@pytest.fixture(params=["scipy", "numpy"])
def library(request, monkeypatch):
    """Sparse products by SciPy, then without it."""
    if request.param == "numpy":
        monkeypatch.setitem(sys.modules, "scipy", None)  # its import fails
    else:
        pytest.importorskip("scipy")


def interleaved(outputs):
    """Outputs of sequences, [sequences, frames, pdfs], as rows of a network's output."""
    return np.stack(outputs, axis=1).reshape(-1, outputs[0].shape[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_denominator_sums_over_all_paths(seed, library):
    rng = np.random.default_rng(seed)
    graph = DenominatorGraph.of_fst(random_hmm(rng, states=3, pdfs=3), 3)
    outputs = [rng.normal(size=(3, 3)) for _ in range(2)]
    found = leaky_paths(graph, 3, LEAKY)
    expected = [brute_force(found, output) for output in outputs]
    result = denominator(graph, interleaved(outputs), 2, LEAKY)
    assert result.log_prob == pytest.approx(sum(total for total, _ in expected), rel=1e-10)
    posterior = interleaved([posterior for _, posterior in expected])
    np.testing.assert_allclose(result.posterior, posterior, atol=1e-10)
    assert result.consistent


@pytest.mark.parametrize("seed", SEEDS)
def test_numerator_sums_over_its_paths(seed):
    rng = np.random.default_rng(seed)
    parts = [random_supervision(rng, frames=4) for _ in range(3)]
    outputs = [rng.normal(size=(4, 3)) for _ in parts]
    expected = [
        brute_force(paths(part.fst, 4), output) for part, output in zip(parts, outputs, strict=True)
    ]
    total, posterior = numerator(merge_supervision(parts), interleaved(outputs))
    assert total == pytest.approx(sum(t for t, _ in expected), rel=1e-6)
    np.testing.assert_allclose(posterior, interleaved([p for _, p in expected]), atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_end_to_end_numerator_takes_fsts_with_loops(seed):
    rng = np.random.default_rng(seed)
    fsts = [random_hmm(rng, states=3), random_lattice(rng, 3), random_hmm(rng, states=5)]
    outputs = [rng.normal(size=(3, 3)) for _ in fsts]
    merged = merge_supervision([Supervision(1.0, 1, 3, 3, e2e_fsts=[fst]) for fst in fsts])
    expected = [
        brute_force(paths(fst, 3), output) for fst, output in zip(fsts, outputs, strict=True)
    ]
    total, posterior = numerator(merged, interleaved(outputs))
    assert total == pytest.approx(sum(t for t, _ in expected), rel=1e-6)
    np.testing.assert_allclose(posterior, interleaved([p for _, p in expected]), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_derivatives_of_the_objective(seed):
    rng = np.random.default_rng(seed)
    graph = DenominatorGraph.of_fst(random_hmm(rng, states=6, pdfs=4), 4)
    parts = [random_supervision(rng, frames=5, pdfs=4, weight=0.7) for _ in range(3)]
    supervision = merge_supervision(parts)
    options = ChainOptions(l2_regularize=0.02, leaky_hmm_coefficient=LEAKY)
    output, direction = rng.normal(size=(2, 15, 4))

    def value(x):
        found = chain_objective(options, graph, supervision, x, deriv=False)
        return found.objective + found.l2_term

    step = 1e-5
    slope = (value(output + step * direction) - value(output - step * direction)) / (2 * step)
    found = chain_objective(options, graph, supervision, output, xent=True)
    assert np.vdot(found.deriv, direction) == pytest.approx(slope, rel=1e-6)
    np.testing.assert_allclose(found.xent_deriv.sum(axis=1), 0.7)
    assert found.weight == pytest.approx(0.7 * 15)


def test_outputs_out_of_range_are_pulled_back():
    rng = np.random.default_rng(0)
    graph = DenominatorGraph.of_fst(random_hmm(rng), 3)
    supervision = random_supervision(rng)
    options = ChainOptions(out_of_range_regularize=0.25, leaky_hmm_coefficient=LEAKY)
    output = np.array([[31.0, 0, 0], [0, -34.0, 0], [0, 0, 30.0]])
    found = [
        chain_objective(options, graph, supervision, output, penalize=penalize).deriv
        for penalize in (False, True)
    ]
    expected = [[-0.5, 0, 0], [0, 2.0, 0], [0, 0, 0]]
    np.testing.assert_allclose(found[1] - found[0], expected, atol=1e-12)


def test_a_broken_output_gives_no_derivative(caplog):
    rng = np.random.default_rng(1)
    graph = DenominatorGraph.of_fst(random_hmm(rng), 3)
    supervision = random_supervision(rng)
    output = np.full((3, 3), np.nan)
    found = chain_objective(ChainOptions(), graph, supervision, output, xent=True)
    assert found.objective == -30.0
    assert not found.deriv.any() and not found.xent_deriv.any()
    assert "LF-MMI" in caplog.text


def test_shapes_that_do_not_fit():
    rng = np.random.default_rng(2)
    graph = DenominatorGraph.of_fst(random_hmm(rng), 3)
    supervision = random_supervision(rng)
    with pytest.raises(ShapeError, match=r"\[3, 3\].*\[4, 3\]"):
        numerator(supervision, np.zeros((4, 3)))
    with pytest.raises(ShapeError, match=r"3 pdfs.*\[4, 5\]"):
        denominator(graph, np.zeros((4, 5)), 2, LEAKY)
    with pytest.raises(ShapeError, match="leaky"):
        denominator(graph, np.zeros((4, 3)), 2, 0.0)
    with pytest.raises(FormatError, match="1 to 2 were expected"):
        DenominatorGraph.of_fst(random_hmm(rng), 2)
    with pytest.raises(ShapeError, match="frames_per_sequence 3 and 4"):
        merge_supervision([supervision, random_supervision(rng, frames=4)])
