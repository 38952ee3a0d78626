"""Gaussians with diagonal covariances. Source: Kaldi's `gmm/diag-gmm.cc`, `hmm/posterior.cc`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.python.cached import cached_property
from ...kaldi.files.kaldi_io import Reader, Writer


@dataclass(frozen=True, eq=False)
class DiagGmm:
    """A mixture of Gaussians.

    Attributes:
        constants: log-likelihoods at zero, float32, [Gaussians].
        means: times the inverse variances, float32, [Gaussians, dim].
        inverse_variances: float32, [Gaussians, dim].
        weights: float32, [Gaussians].
    """

    constants: np.ndarray
    means: np.ndarray
    inverse_variances: np.ndarray
    weights: np.ndarray

    @classmethod
    def read(cls, reader: Reader) -> DiagGmm:
        """Read Kaldi's `DiagGmm`, such as a `final.dubm`.

        Raises:
            FormatError: the bytes are something else, or describe no Gaussians.
        """
        start = reader.offset
        reader.expect_token("<DiagGMM>", "<DiagGMMBegin>")
        if reader.expect_token("<GCONSTS>", "<WEIGHTS>") == "<GCONSTS>":
            reader.read_vector(np.float32)  # computed anew, as Kaldi does
            reader.expect_token("<WEIGHTS>")
        weights = reader.read_vector(np.float32)
        reader.expect_token("<MEANS_INVVARS>")
        means = reader.read_matrix(np.float32)
        reader.expect_token("<INV_VARS>")
        inverse = reader.read_matrix(np.float32)
        reader.expect_token("</DiagGMM>", "<DiagGMMEnd>")
        if not weights.size or means.shape != inverse.shape or len(means) != len(weights):
            raise reader.error(
                f"{len(weights)} weights, means {list(means.shape)} and variances"
                f" {list(inverse.shape)} are no mixture of Gaussians",
                start,
            )
        finite = np.isfinite(means).all() and np.isfinite(inverse).all()
        if not finite or not (inverse > 0).all() or not (weights >= 0).all():
            raise reader.error("Gaussians with negative weights or variances, or NaN", start)
        gmm = cls.of(weights, means, inverse)
        if np.isnan(gmm.constants).any() or not np.isfinite(gmm.constants).any():
            raise reader.error("Gaussians whose likelihoods are no numbers", start)
        return gmm

    @classmethod
    def of(cls, weights: np.ndarray, means: np.ndarray, inverse_variances: np.ndarray) -> DiagGmm:
        """Gaussians of what describes them: see the attributes."""
        with np.errstate(divide="ignore", over="ignore"):
            terms = np.log(inverse_variances.astype(np.float64))
            terms -= means.astype(np.float64) ** 2 / inverse_variances
            constants = np.log(weights.astype(np.float64)) + 0.5 * terms.sum(axis=1)
        constants -= 0.5 * np.log(2 * np.pi) * means.shape[1]
        constants[np.isinf(constants)] = -np.inf
        return cls(constants.astype(np.float32), means, inverse_variances, weights)

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        end = "" if writer.binary else "\n"
        writer.write_token("<DiagGMM>")
        writer.write_raw(end)
        writer.write_token("<GCONSTS>")
        writer.write_vector(self.constants)
        writer.write_token("<WEIGHTS>")
        writer.write_vector(self.weights)
        writer.write_token("<MEANS_INVVARS>")
        writer.write_matrix(self.means)
        writer.write_token("<INV_VARS>")
        writer.write_matrix(self.inverse_variances)
        writer.write_token("</DiagGMM>")
        writer.write_raw(end)

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self.means.shape[1]

    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        """The log-likelihood of each frame and Gaussian: float64, [frames, Gaussians].

        Raises:
            ShapeError: features are of another dimension.
        """
        if features.shape[1] != self.dim:
            raise ShapeError(f"features of {features.shape[1]} columns for Gaussians of {self.dim}")
        # In float64: posteriors are cut off, which makes what one BLAS rounds otherwise than
        # another into another iVector.
        wide = features.astype(np.float64)
        loglikes = wide @ self._means.T
        loglikes += self.constants
        loglikes -= 0.5 * ((wide * wide) @ self._inverse_variances.T)
        return loglikes

    @cached_property
    def _means(self) -> np.ndarray:
        return self.means.astype(np.float64)

    @cached_property
    def _inverse_variances(self) -> np.ndarray:
        return self.inverse_variances.astype(np.float64)


def posteriors(
    log_likelihoods: np.ndarray, most: int, least: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The most probable Gaussians of each frame, pruned.

    Args:
        log_likelihoods: [frames, Gaussians].
        most: Gaussians of a frame.
        least: a Gaussian's posterior, [frames], below 1.

    Returns:
        Their numbers, [frames, most], their posteriors, float32, 0.0 where they are pruned; and
        the log-likelihood of each frame, [frames].
    """
    frames, gaussians = log_likelihoods.shape
    most = min(most, gaussians)
    rows = np.arange(frames)[:, None]
    if most < gaussians:
        chosen = np.argpartition(log_likelihoods, gaussians - most, axis=1)[:, gaussians - most :]
    else:
        chosen = np.tile(np.arange(gaussians), (frames, 1))
    chosen.sort(axis=1)
    likes = log_likelihoods[rows, chosen].astype(np.float32)
    order = np.argsort(-likes, axis=1, kind="stable")
    chosen, likes = chosen[rows, order], likes[rows, order]
    likes = likes.astype(np.float64)  # functions of float32 differ in last bits by processor
    least = np.asarray(least, np.float64)[:, None]
    top = likes[:, :1]
    with np.errstate(divide="ignore"):
        kept = (likes > top + np.log(least)) | (least == 0)
    kept[:, 0] = True
    values = np.where(kept, np.exp(likes - top), 0.0)
    total = values.sum(axis=1, keepdims=True)
    pruned = values < least * total
    pruned[:, 0] = False
    values[pruned] = 0
    total = values.sum(axis=1, keepdims=True)
    shares = (values / total).astype(np.float32)
    return chosen, shares, top[:, 0] + np.log(total[:, 0])
