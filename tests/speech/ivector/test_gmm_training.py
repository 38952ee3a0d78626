"""Mixtures of Gaussians: likelihoods by the formula, training, files, mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.speech.ivector.full_gmm import FullGmm
from opscope.speech.ivector.gmm import MEANS, VARIANCES, WEIGHTS, DiagGmm, normalized, softmax
from opscope.speech.ivector.gmm_start import drawn_frames, started, trained
from opscope.speech.ivector.gmm_training import (
    DiagGmmOptions,
    FullGmmOptions,
    GmmStats,
    estimated,
    update_flags,
)
from opscope.speech.ivector.kaldi_random import KaldiRandom

ALL = MEANS | VARIANCES | WEIGHTS
COUNT, DIM = 3, 4


def frames(number: int = 400) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = 4 * rng.normal(size=(COUNT, DIM))
    mixed = rng.normal(size=(number, DIM)) @ (np.eye(DIM) + 0.4 * rng.normal(size=(DIM, DIM)))
    return (centers[rng.integers(0, COUNT, number)] + mixed).astype(np.float32)


def mixture(full: bool) -> DiagGmm | FullGmm:
    gmm = started(frames(), COUNT, KaldiRandom())
    return FullGmm.of_diagonal(gmm) if full else gmm


def sums(gmm: DiagGmm | FullGmm, rows: np.ndarray) -> tuple[GmmStats, float]:
    stats = GmmStats.empty(COUNT, DIM, isinstance(gmm, FullGmm), ALL)
    shares, likes = softmax(gmm.log_likelihoods(rows))
    stats.add_all(rows, shares)
    return stats, float(likes.sum())


@pytest.mark.parametrize("full", [False, True])
def test_likelihoods_are_those_of_the_formula(full):
    rows = frames()
    gmm, _ = estimated(
        mixture(full),
        sums(mixture(full), rows)[0],
        FullGmmOptions(min_gaussian_occupancy=1) if full else DiagGmmOptions(),
        ALL,
    )
    moments = gmm.moments
    wide = moments.variances if full else moments.variances[:, :, None] * np.eye(DIM)
    away = rows[:, None] - moments.means
    exponents = np.einsum("tgi,gij,tgj->tg", away, np.linalg.inv(wide), away)
    wanted = np.log(moments.weights) - 0.5 * (
        exponents + np.linalg.slogdet(wide)[1] + DIM * np.log(2 * np.pi)
    )
    found = gmm.log_likelihoods(rows)
    np.testing.assert_allclose(found, wanted, atol=2e-4)
    # Of chosen Gaussians the same, frame by frame, also where their numbers differ.
    ids = np.array([2, 0, 1, 1, 0, 2], np.int32)
    starts = np.array([0, 1, 3, 6])
    chosen = gmm.selected(rows[:3], starts, ids)
    np.testing.assert_allclose(chosen, found[[0, 1, 1, 2, 2, 2], ids], atol=1e-9)
    shares, likes = normalized(starts, chosen)
    np.testing.assert_allclose(np.add.reduceat(shares, starts[:-1]), 1, atol=1e-6)
    np.testing.assert_allclose(likes[2], np.logaddexp.reduce(found[2]), atol=1e-9)


@pytest.mark.parametrize("full", [False, True])
def test_each_iteration_makes_frames_likelier(full):
    rows, gmm = frames(), mixture(full)
    options = FullGmmOptions(min_gaussian_occupancy=1) if full else DiagGmmOptions()
    before = -np.inf
    for _ in range(5):
        stats, likelihood = sums(gmm, rows)
        assert likelihood > before
        before = likelihood
        gmm, gain = estimated(gmm, stats, options, ALL)
        assert gain > 0
    # What is estimated is what the sums say.
    shares = softmax(gmm.log_likelihoods(rows))[0]
    stats, _ = sums(gmm, rows)
    gmm, _ = estimated(gmm, stats, options, ALL)
    for gaussian, share in enumerate(shares.T):
        mean = np.average(rows, axis=0, weights=share)
        covariance = np.cov(rows.T, aweights=share, bias=True)
        np.testing.assert_allclose(gmm.moments.means[gaussian], mean, rtol=1e-4, atol=1e-4)
        wanted = covariance if full else np.diagonal(covariance)
        np.testing.assert_allclose(gmm.moments.variances[gaussian], wanted, rtol=1e-3, atol=1e-4)
    split = gmm.split(COUNT + 2, 0.1, KaldiRandom())
    assert len(split.weights) == COUNT + 2
    np.testing.assert_allclose(split.weights.sum(), gmm.weights.sum(), rtol=1e-6)
    total = split.weights @ split.moments.means, gmm.weights @ gmm.moments.means
    np.testing.assert_allclose(*total, rtol=1e-4, atol=1e-4)


def test_frames_are_drawn_and_a_mixture_is_trained_from_nothing():
    rows = frames(300)
    kept, seen = drawn_frames(iter(np.split(rows, 6)), 120, KaldiRandom(3))
    assert seen == 300 and kept.shape == (120, DIM)
    assert {row.tobytes() for row in kept} <= {row.tobytes() for row in rows}
    assert drawn_frames([rows], 1000, KaldiRandom())[0] is not rows
    told: list[str] = []
    gmm = started(kept, 2, KaldiRandom(3))
    options = DiagGmmOptions(min_gaussian_occupancy=1)
    gmm = trained(kept, gmm, 4, 4, options, KaldiRandom(3), told.append)
    assert len(gmm.weights) == 4 and sum("Splitting" in line for line in told) == 2
    with pytest.raises(FormatError, match="120 frames for 13 Gaussians"):
        started(kept, 13, KaldiRandom())
    with pytest.raises(FormatError, match="column 1 of the features never changes"):
        started(kept * np.array([1, 0, 1, 1], np.float32), 2, KaldiRandom())
    with pytest.raises(ShapeError, match="3 columns after some of 4"):
        drawn_frames([rows, rows[:, :3]], 500, KaldiRandom())
    with pytest.raises(FormatError, match="no frames"):
        drawn_frames([], 5, KaldiRandom())


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_files_come_back_and_damage_is_told(full, binary):
    gmm = mixture(full)
    kind = FullGmm if full else DiagGmm
    writer = Writer(binary)
    gmm.write_to(writer)
    again = kind.read(Reader(writer.getvalue()))
    np.testing.assert_allclose(again.inverse_variances, gmm.inverse_variances, rtol=1e-6)
    other = DiagGmm if full else FullGmm
    with pytest.raises(FormatError, match="was expected here"):
        other.read(Reader(writer.getvalue()))
    for flags in (WEIGHTS, MEANS | WEIGHTS, ALL):
        stats = sums(gmm, frames())[0]
        stats.flags = flags
        writer = Writer(binary)
        stats.write_to(writer)
        read = GmmStats.read(Reader(writer.getvalue()), full)
        np.testing.assert_allclose(read.counts, stats.counts, rtol=1e-6)
        if flags == ALL:
            np.testing.assert_allclose(read.squares, stats.squares, rtol=1e-5, atol=1e-2)
        read.merge(read)
        np.testing.assert_allclose(read.counts, 2 * stats.counts, rtol=1e-6)
        data = writer.getvalue()
        for cut in range(3, len(data) - 1, 37):
            with pytest.raises(FormatError):
                GmmStats.read(Reader(data[:cut]), full)


def test_mistakes():
    gmm = mixture(False)
    stats = GmmStats.empty(COUNT, DIM, False, MEANS)
    with pytest.raises(FormatError, match="not made for"):
        estimated(gmm, stats, DiagGmmOptions(), ALL)
    with pytest.raises(ShapeError, match="2 Gaussians of dimension 4 for a mixture of 3 of 4"):
        estimated(gmm, GmmStats.empty(2, DIM, False, ALL), DiagGmmOptions(), ALL)
    with pytest.raises(ShapeError, match="for 5 before"):
        stats.merge(GmmStats.empty(COUNT, DIM, False, ALL)) or stats
    with pytest.raises(FormatError, match="mvx: letters of mvwta"):
        update_flags("mvx")
    with pytest.raises(ShapeError, match="3 columns for Gaussians of 4"):
        FullGmm.of_diagonal(gmm).log_likelihoods(frames()[:, :3])
    writer = Writer(False)
    broken = FullGmm.of_diagonal(gmm)
    broken.inverse_variances[0, 0] = -1
    broken.write_to(writer)
    with pytest.raises(FormatError, match="negative weights or variances"):
        FullGmm.read(Reader(writer.getvalue()))
