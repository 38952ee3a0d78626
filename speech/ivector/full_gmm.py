"""Gaussians with full covariances. Source: Kaldi's `gmm/full-gmm.cc`."""

from __future__ import annotations

import numpy as np

from ...framework.base.python.cached import cached_property
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.packed import packed, read_packed, unpacked, write_packed
from .by_gaussian import by_gaussian, frames_of
from .gmm import DiagGmm, Gmm, Moments
from .kaldi_random import KaldiRandom


class FullGmm(Gmm):
    """A mixture of Gaussians with full covariances."""

    _TOKENS = ("FullGMM", "<MEANS_INVCOVARS>", "<INV_COVARS>")

    @classmethod
    def of_diagonal(cls, gmm: DiagGmm) -> FullGmm:
        """The same Gaussians."""
        return cls.of(gmm.weights, gmm.means, packed(_diagonals(gmm.inverse_variances)))

    def diagonal(self) -> DiagGmm:
        """Gaussians with the same means and variances, without correlations."""
        moments = self.moments
        inverse = (1 / np.diagonal(moments.variances, axis1=1, axis2=2)).astype(np.float32)
        means = moments.means.astype(np.float32) * inverse
        return DiagGmm.of(self.weights, means, inverse)

    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        self.check(features)
        wide = features.astype(np.float64)
        columns = [self._likes(gaussian, wide) for gaussian in range(len(self.weights))]
        return np.stack(columns, axis=1)

    def selected(self, features: np.ndarray, starts: np.ndarray, ids: np.ndarray) -> np.ndarray:
        self.check(features)
        wide = features.astype(np.float64)
        frames = frames_of(starts)
        likes = np.empty(len(ids))
        for gaussian, pairs in by_gaussian(ids):
            likes[pairs] = self._likes(gaussian, wide[frames[pairs]])
        return likes

    def _likes(self, gaussian: int, rows: np.ndarray) -> np.ndarray:
        squares = ((rows @ self._wide[gaussian]) * rows).sum(axis=1)
        return self.constants[gaussian] + rows @ self.means[gaussian] - 0.5 * squares

    @property
    def moments(self) -> Moments:
        covariances = np.linalg.inv(self._wide)
        means = np.matmul(covariances, self.means[..., None].astype(np.float64))[..., 0]
        return Moments(self.weights.astype(np.float64), means, covariances)

    @cached_property
    def _wide(self) -> np.ndarray:
        return unpacked(self.inverse_variances.astype(np.float64))

    @classmethod
    def _read_inverses(cls, reader: Reader, means: np.ndarray) -> np.ndarray:
        start = reader.offset
        size = means.shape[1] * (means.shape[1] + 1) // 2
        triangles = []
        for _ in means:
            triangles.append(read_packed(reader).astype(np.float32))
            if len(triangles[-1]) != size:
                raise reader.error(f"a covariance for means of {means.shape[1]} columns", start)
        return np.stack(triangles) if triangles else np.empty((0, size), np.float32)

    def _write_inverses(self, writer: Writer) -> None:
        for triangle in self.inverse_variances:
            write_packed(writer, triangle)

    @classmethod
    def _are_positive(cls, inverse: np.ndarray) -> bool:
        try:
            np.linalg.cholesky(unpacked(inverse.astype(np.float64)))
        except np.linalg.LinAlgError:
            return False
        return True

    @classmethod
    def _constant_terms(cls, means: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        whole = unpacked(inverse.astype(np.float64))
        squares = np.linalg.solve(whole, means[..., None])[..., 0]
        return np.linalg.slogdet(whole)[1] - (means * squares).sum(axis=1)

    @classmethod
    def _inverted(cls, variances: np.ndarray) -> np.ndarray:
        return packed(np.linalg.inv(variances.astype(np.float64))).astype(np.float32)

    @classmethod
    def _times(cls, inverse: np.ndarray, means: np.ndarray) -> np.ndarray:
        whole = unpacked(inverse).astype(np.float64)
        return np.matmul(whole, means[..., None].astype(np.float64))[..., 0].astype(np.float32)

    @classmethod
    def _deviation(cls, inverse: np.ndarray, random: KaldiRandom) -> np.ndarray:
        lower = np.linalg.cholesky(unpacked(inverse).astype(np.float64))
        drawn = random.normal_matrix(1, len(lower))[0]
        return (lower.T @ drawn).astype(np.float32)


def _diagonals(values: np.ndarray) -> np.ndarray:
    """Matrices with these diagonals: [..., dim, dim]."""
    return values[..., None] * np.eye(values.shape[-1], dtype=values.dtype)
