"""Mixtures of Gaussians trained from nothing, on frames in memory.

Source: Kaldi's `gmmbin/gmm-global-init-from-feats.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from .gmm import MEANS, VARIANCES, WEIGHTS, DiagGmm, softmax
from .gmm_training import DiagGmmOptions, GmmStats, estimated
from .kaldi_random import KaldiRandom

_BLOCK = 2048  # frames whose likelihoods by all Gaussians are there at once
_LEAST = 10  # frames for each Gaussian
_MOVED = 0.1  # of a deviation, the means of a Gaussian that becomes two
_ALL = MEANS | VARIANCES | WEIGHTS


def drawn_frames(
    matrices: Iterable[np.ndarray], most: int, random: KaldiRandom
) -> tuple[np.ndarray, int]:
    """At most so many of all frames, each with the same probability; and how many there were.

    Raises:
        ShapeError: matrices have different numbers of columns. FormatError: there are no frames.
    """
    parts: list[np.ndarray] = []
    kept = np.empty((0, 0), np.float32)  # of all parts, once there are more frames
    seen = 0
    for matrix in filter(len, matrices):
        if parts and matrix.shape[1] != parts[0].shape[1]:
            raise ShapeError(
                f"features of {matrix.shape[1]} columns after some of {parts[0].shape[1]}"
            )
        room = max(most - seen, 0)
        if room:
            parts.append(matrix[:room])
        if len(matrix) > room and not len(kept):
            kept = np.concatenate(parts)
        for row in range(room, len(matrix)):
            if random.happens(float(np.float32(most) / np.float32(seen + row + 1))):
                kept[random.integer(most)] = matrix[row]
        seen += len(matrix)
    if not seen:
        raise FormatError("there are no frames of features")
    return kept if len(kept) else np.concatenate(parts), seen


def started(features: np.ndarray, count: int, random: KaldiRandom) -> DiagGmm:
    """Gaussians around frames drawn at random, all with the variance of all frames.

    Raises:
        FormatError: there are too few frames, or a column never changes.
    """
    if len(features) < _LEAST * count:
        raise FormatError(
            f"{len(features)} frames for {count} Gaussians: {_LEAST} a Gaussian are wanted"
        )
    variance = features.var(axis=0, dtype=np.float64)
    if not variance.min() > 0:
        raise FormatError(f"column {int(variance.argmin())} of the features never changes")
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        chosen[random.integer(len(features))] = None
    inverse = np.tile(np.float32(1) / variance.astype(np.float32), (count, 1))
    weights = np.full(count, 1 / count, np.float32)
    return DiagGmm.of(weights, features[list(chosen)].astype(np.float32) * inverse, inverse)


def trained(
    features: np.ndarray,
    gmm: DiagGmm,
    target: int,
    iterations: int,
    options: DiagGmmOptions,
    random: KaldiRandom,
    log: Callable[[str], None],
) -> DiagGmm:
    """A mixture after iterations of training, in the first half of which it grows to `target`."""
    count = len(gmm.weights)
    grown = (target - count) // max(iterations // 2, 1)
    for number in range(iterations):
        stats = GmmStats.empty(len(gmm.weights), gmm.dim, False, _ALL)
        likelihood = 0.0
        for begin in range(0, len(features), _BLOCK):
            block = features[begin : begin + _BLOCK]
            shares, likes = softmax(gmm.log_likelihoods(block))
            stats.add_all(block, shares)
            likelihood += float(likes.sum())
        frames = len(features)
        log(
            f"Likelihood per frame on iteration {number} was {likelihood / frames:g} over {frames}"
            " frames."
        )
        gmm, gain = estimated(gmm, stats, options, _ALL)
        log(
            f"Objective-function change on iteration {number} was {gain / frames:g} over {frames}"
            " frames."
        )
        wanted = min(target, count + grown)
        if wanted > len(gmm.weights):
            log(f"Splitting to {wanted} Gaussians.")
            gmm = gmm.split(wanted, _MOVED, random)
            count = wanted
    return gmm
