"""PLDA and LDA: ratios by the Gaussians that they are of, what estimates recover, files."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.speech.speakers.lda import principal_axes, speaker_lda
from opscope.speech.speakers.plda import (
    AdaptOptions,
    Plda,
    PldaOptions,
    estimate_plda,
    of_covariances,
)
from opscope.speech.speakers.trials import equal_error_rate

DIM = 4


def covariances() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    within, between = (rng.normal(size=(DIM, DIM)) for _ in range(2))
    return within @ within.T + np.eye(DIM), 3 * between @ between.T


def groups(speakers: int, each: int) -> list[np.ndarray]:
    """Vectors of speakers, of that many and of one fewer by turns."""
    rng = np.random.default_rng(3)
    within, between = map(np.linalg.cholesky, covariances())
    found = []
    for number in range(speakers):
        center = np.arange(DIM) + between @ rng.normal(size=DIM)
        found.append(center + rng.normal(size=(each - number % 2, DIM)) @ within.T)
    return found


def density(vector: np.ndarray, covariance: np.ndarray) -> float:
    exponent = vector @ np.linalg.solve(covariance, vector)
    return -0.5 * (exponent + np.linalg.slogdet(covariance)[1] + len(vector) * np.log(2 * np.pi))


def test_ratios_are_those_of_gaussians():
    within, between = covariances()
    mean = np.arange(DIM)
    plda = of_covariances(mean, within, between)
    for found, wanted in zip(plda.covariances(), (within, between), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(3, DIM)) * 3
    plain = PldaOptions(normalize_length=False)
    for count in (1, 5):
        enrolled = plda.transformed(vectors[:2], count, plain)[0]
        tested = plda.transformed(vectors[2:], 1, plain)[0]
        found = plda.ratios(enrolled, count, tested)
        # Both of one speaker, or of two: a Gaussian of both vectors, with or without covariance.
        both = np.block([[between + within / count, between], [between, between + within]])
        apart = both.copy()
        apart[:DIM, DIM:] = apart[DIM:, :DIM] = 0
        for row, score in zip(vectors[:2], found, strict=True):
            pair = np.concatenate((row - mean, vectors[2] - mean))
            np.testing.assert_allclose(score, density(pair, both) - density(pair, apart))
    scaled, factors = plda.transformed(vectors, 1, PldaOptions(simple_length_norm=True))
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), np.sqrt(DIM))
    expected = plda.transformed(vectors)[0]
    np.testing.assert_allclose((expected**2 / (plda.between + 1)).sum(axis=1), DIM)
    assert factors.shape == (3,)


def test_estimates_recover_the_covariances():
    told: list[str] = []
    plda = estimate_plda(groups(3000, 4), 25, told.append)
    for found, wanted in zip(plda.covariances(), covariances(), strict=True):
        assert np.linalg.norm(found - wanted) < 0.08 * np.linalg.norm(wanted)
    assert len(told) == 76
    matrix, ratios = speaker_lda(
        np.concatenate(groups(600, 4)).astype(np.float32),
        np.repeat(np.arange(600), [4, 3] * 300),
        2,
    )
    assert matrix.shape == (2, DIM + 1) and list(ratios) == sorted(ratios, reverse=True)
    vectors = np.concatenate(groups(600, 4))
    projected = vectors @ matrix[:, :DIM].T + matrix[:, DIM]
    np.testing.assert_allclose(projected.mean(axis=0), 0, atol=1e-4)
    spread = [group @ matrix[:, :DIM].T for group in groups(600, 4)]
    inside = sum((each - each.mean(axis=0)).T @ (each - each.mean(axis=0)) for each in spread)
    np.testing.assert_allclose(inside / len(vectors), np.eye(2), atol=1e-4)


def test_models_are_smoothed_projected_and_adapted():
    within, between = covariances()
    plda = of_covariances(np.zeros(DIM), within, between)
    found = plda.smoothed(0.5).covariances()
    np.testing.assert_allclose(found[0], within + 0.5 * between, atol=1e-9)
    np.testing.assert_allclose(found[1], between, atol=1e-9)
    half = np.eye(2, DIM)
    found = plda.projected(half).covariances()
    np.testing.assert_allclose(found[0], within[:2, :2], atol=1e-9)
    # Vectors that vary as expected change nothing; those that vary more, one of the covariances.
    drawn = np.random.default_rng(5).normal(size=(2000, DIM))
    drawn = (drawn - drawn.mean(axis=0)) @ np.linalg.inv(
        np.linalg.cholesky(np.cov(drawn.T, bias=True))
    ).T
    drawn = drawn @ np.linalg.cholesky(within + between).T
    same = plda.adapted(drawn, AdaptOptions()).covariances()
    np.testing.assert_allclose(same[0], within, atol=1e-6)
    twice = plda.adapted(np.sqrt(2) * drawn, AdaptOptions(1.0, 0.0, 1.0)).covariances()
    np.testing.assert_allclose(twice[0], within, atol=1e-6)
    np.testing.assert_allclose(twice[1], 2 * between + within, atol=1e-6)
    axes = principal_axes(drawn * [1, 1, 1, 100], 0.5)
    assert axes.shape == (2, DIM) and abs(axes[0, 3]) > 0.99


def test_files_errors_and_the_equal_error_rate():
    plda = estimate_plda(groups(20, 3))
    for binary in (False, True):
        writer = Writer(binary)
        plda.write_to(writer)
        data = writer.getvalue()
        again = Writer(binary)
        Plda.read(Reader(data)).write_to(again)
        assert again.getvalue() == data
        for cut in range(3, len(data) - 1, 7):
            with pytest.raises(FormatError):
                Plda.read(Reader(data[:cut]))
    with pytest.raises(FormatError, match="no speaker has two vectors"):
        estimate_plda([np.ones((1, 2)) * n for n in range(9)])
    with pytest.raises(FormatError, match="4 vectors are too few"):
        estimate_plda(groups(1, 4))
    with pytest.raises(ShapeError, match="different numbers"):
        estimate_plda([np.ones((3, 2)), np.ones((3, 3))])
    with pytest.raises(ShapeError, match="3 elements for a model of 4"):
        plda.adapted(np.ones((5, 3)))
    with pytest.raises(ShapeError, match="for a model of 4 elements"):
        plda.transformed(np.ones((5, 3)))
    with pytest.raises(OpscopeError, match="smoothing=2"):
        plda.smoothed(2)
    with pytest.raises(FormatError, match="singular"):
        of_covariances(np.zeros(2), np.zeros((2, 2)), np.eye(2))
    vectors, speakers = np.ones((3, 2), np.float32), np.array([0, 0, 1])
    for dim, part in ((3, "dim=3"), (0, "dim=0")):
        with pytest.raises(FormatError, match=part):
            speaker_lda(vectors, speakers, dim)
    with pytest.raises(FormatError, match="no speaker has two"):
        speaker_lda(vectors, np.arange(3), 1)
    assert equal_error_rate([3, 1, 4, 2], [0, 1.5, -1, -2]) == (0.25, 2)
    assert equal_error_rate([2], [1, 0]) == (0.0, 2.0)
    with pytest.raises(FormatError, match="wanted"):
        equal_error_rate([], [1])
