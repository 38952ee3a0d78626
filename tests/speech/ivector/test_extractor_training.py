"""iVector extractors: iVectors by the formula, training, files, mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.packed import unpacked
from opscope.kaldi.files.posterior import Posterior
from opscope.speech.ivector.extractor import IvectorExtractor
from opscope.speech.ivector.extractor_training import (
    ExtractorAccumulator,
    ExtractorOptions,
    ExtractorStats,
    estimated,
)
from opscope.speech.ivector.full_gmm import FullGmm
from opscope.speech.ivector.gmm_start import started
from opscope.speech.ivector.kaldi_random import KaldiRandom

COUNT, DIM, SIZE = 3, 2, 3
OPTIONS = ExtractorOptions(gaussian_min_count=5)


def utterances() -> list[tuple[np.ndarray, Posterior]]:
    """Features whose means move together, with two Gaussians for each frame."""
    rng = np.random.default_rng(1)
    centers = 5 * rng.normal(size=(COUNT, DIM))
    slopes = rng.normal(size=(COUNT, DIM, 2))
    found = []
    for _ in range(25):
        which = rng.integers(0, COUNT, 30)
        rows = (centers + slopes @ rng.normal(size=2))[which] + 0.5 * rng.normal(size=(30, DIM))
        ids = np.stack((which, (which + 1) % COUNT), axis=1).ravel().astype(np.int32)
        weights = np.tile(np.array([0.9, 0.1], np.float32), 30)
        found.append((rows.astype(np.float32), Posterior(2 * np.arange(31), ids, weights)))
    return found


def extractor(use_weights: bool = False) -> IvectorExtractor:
    rows = np.concatenate([rows for rows, _ in utterances()])
    gmm = FullGmm.of_diagonal(started(rows, COUNT, KaldiRandom()))
    return IvectorExtractor.of(gmm, SIZE, KaldiRandom(), use_weights)


def accumulated(of: IvectorExtractor, **options: int) -> ExtractorStats:
    accumulator = ExtractorAccumulator(of, **options)
    for rows, posterior in utterances():
        accumulator.add(rows, posterior)
    accumulator.flush()
    return accumulator.stats


def test_ivectors_are_those_of_the_formula():
    model = extractor()
    rows, posterior = utterances()[0]
    counts, sums = np.zeros(COUNT), np.zeros((COUNT, DIM))
    quadratic, linear = np.eye(SIZE), np.zeros(SIZE)
    linear[0] = model.prior_offset
    for frame, row in enumerate(rows.astype(np.float64)):
        for gaussian, weight in zip(*posterior[frame], strict=True):
            counts[gaussian] += weight
            sums[gaussian] += weight * row
            projection = model.projections[gaussian]
            precision = unpacked(model.precisions[gaussian])
            quadratic += weight * projection.T @ precision @ projection
            linear += weight * projection.T @ precision @ row
    terms = model.terms(counts[None], sums[None])
    means, covariances = model.distribution(counts[None], terms)
    np.testing.assert_allclose(means[0], np.linalg.solve(quadratic, linear), rtol=1e-9)
    np.testing.assert_allclose(covariances[0], np.linalg.inv(quadratic), rtol=1e-9, atol=1e-12)
    # The mean is where the objective is greatest.
    best = model.objective(counts[None], sums[None], terms, means)
    for step in 0.01 * np.eye(SIZE):
        assert model.objective(counts[None], sums[None], terms, means + step) < best
        assert model.objective(counts[None], sums[None], terms, means - step) < best


@pytest.mark.parametrize("use_weights", [False, True])
def test_each_iteration_makes_features_likelier(use_weights):
    model = extractor(use_weights)
    told: list[str] = []
    objectives = []
    for _ in range(4):
        stats = accumulated(model, cached=7)
        objectives.append(stats.objective)
        model = estimated(model, stats, OPTIONS, told.append)
    assert objectives == sorted(objectives)
    assert any("proportion of within-Gaussian variance" in line for line in told)
    # The iVectors of training have the prior's mean and covariance, whatever is cached.
    stats = accumulated(model)
    again = accumulated(model, cached=4)
    np.testing.assert_allclose(again.first, stats.first, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(again.objective, stats.objective)
    mean = stats.ivector_sum / stats.ivectors
    np.testing.assert_allclose(mean[0], model.prior_offset, rtol=0.05)
    np.testing.assert_allclose(mean[1:], 0, atol=0.05 * model.prior_offset)


@pytest.mark.parametrize("use_weights", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_files_come_back_and_damage_is_told(use_weights, binary):
    model = extractor(use_weights)
    stats = accumulated(model)
    for value, kind in ((model, IvectorExtractor), (stats, ExtractorStats)):
        writer = Writer(binary)
        value.write_to(writer)
        data = writer.getvalue()
        again = Writer(binary)
        kind.read(Reader(data)).write_to(again)
        assert again.getvalue() == data
        for cut in range(3, len(data) - 1, 53):
            with pytest.raises(FormatError):
                kind.read(Reader(data[:cut]))
    stats.merge(stats)
    assert stats.ivectors == 50
    other = accumulated(extractor(not use_weights))
    with pytest.raises(ShapeError, match="statistics"):
        stats.merge(other)
    with pytest.raises(ShapeError, match="for an extractor"):
        estimated(model, other, OPTIONS, print)


def test_mistakes():
    model = extractor()
    rows, posterior = utterances()[0]
    accumulator = ExtractorAccumulator(model)
    with pytest.raises(ShapeError, match=r"features \[29, 2\] for posteriors of 30 frames"):
        accumulator.add(rows[:-1], posterior)
    wrong = Posterior(posterior.starts, posterior.ids + np.int32(1), posterior.weights)
    with pytest.raises(FormatError, match="Gaussians 1 to 3: there are 3"):
        accumulator.add(rows, wrong)
    with pytest.raises(FormatError, match="num-samples-for-weights=1"):
        ExtractorAccumulator(model, samples=1)
    with pytest.raises(FormatError, match="too few frames"):
        estimated(model, ExtractorStats.empty(model), OPTIONS, print)
