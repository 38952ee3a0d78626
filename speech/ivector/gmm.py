"""Mixtures of Gaussians. Source: Kaldi's `gmm/diag-gmm.cc`, `hmm/posterior.cc`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.python.cached import cached_property
from ...kaldi.files.kaldi_io import Reader, Writer
from .by_gaussian import frames_of
from .kaldi_random import KaldiRandom

MEANS, VARIANCES, WEIGHTS = 1, 2, 4
"""Kinds of parameters, as Kaldi's files name them in sums."""
_BLOCK = 1024  # frames whose likelihoods by all Gaussians are there at once


@dataclass(frozen=True, eq=False)
class Moments:
    """Gaussians by weights [Gaussians], means [Gaussians, dim] and variances [Gaussians, dim], or
    covariances [Gaussians, dim, dim]: float64."""

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray


@dataclass(frozen=True, eq=False)
class Gmm(ABC):
    """A mixture of Gaussians.

    Attributes:
        constants: log-likelihoods at zero, float32, [Gaussians].
        means: times the inverse variances, float32, [Gaussians, dim].
        inverse_variances: float32, [Gaussians, dim]; or lower triangles of inverse covariances,
            [Gaussians, dim * (dim + 1) / 2].
        weights: float32, [Gaussians].
    """

    constants: np.ndarray
    means: np.ndarray
    inverse_variances: np.ndarray
    weights: np.ndarray

    _TOKENS: ClassVar[tuple[str, str, str]]  # of the mixture, of its means and its variances

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read Kaldi's `DiagGmm`, such as a `final.dubm`, or `FullGmm`.

        Raises:
            FormatError: the bytes are something else, or describe no Gaussians.
        """
        start = reader.offset
        name, means_token, variances_token = cls._TOKENS
        reader.expect_token(f"<{name}>", f"<{name}Begin>")
        if reader.expect_token("<GCONSTS>", "<WEIGHTS>") == "<GCONSTS>":
            reader.read_vector(np.float32)  # computed anew, as Kaldi does
            reader.expect_token("<WEIGHTS>")
        weights = reader.read_vector(np.float32)
        reader.expect_token(means_token)
        means = reader.read_matrix(np.float32)
        reader.expect_token(variances_token)
        inverse = cls._read_inverses(reader, means)
        reader.expect_token(f"</{name}>", f"<{name}End>")
        if not weights.size or len(inverse) != len(means) or len(means) != len(weights):
            raise reader.error(
                f"{len(weights)} weights, means {list(means.shape)} and variances"
                f" {list(inverse.shape)} are no mixture of Gaussians",
                start,
            )
        finite = np.isfinite(means).all() and np.isfinite(inverse).all()
        if not finite or not cls._are_positive(inverse) or not (weights >= 0).all():
            raise reader.error("Gaussians with negative weights or variances, or NaN", start)
        gmm = cls.of(weights, means, inverse)
        if np.isnan(gmm.constants).any() or not np.isfinite(gmm.constants).any():
            raise reader.error("Gaussians whose likelihoods are no numbers", start)
        return gmm

    @classmethod
    def of(cls, weights: np.ndarray, means: np.ndarray, inverse_variances: np.ndarray) -> Self:
        """Gaussians of what describes them: see the attributes."""
        with np.errstate(divide="ignore", over="ignore"):
            terms = cls._constant_terms(means.astype(np.float64), inverse_variances)
            constants = np.log(weights.astype(np.float64)) + 0.5 * terms
        constants -= 0.5 * np.log(2 * np.pi) * means.shape[1]
        constants[np.isinf(constants)] = -np.inf
        return cls(constants.astype(np.float32), means, inverse_variances, weights)

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        name, means_token, variances_token = self._TOKENS
        end = "" if writer.binary else "\n"
        writer.write_token(f"<{name}>")
        writer.write_raw(end)
        writer.write_token("<GCONSTS>")
        writer.write_vector(self.constants)
        writer.write_token("<WEIGHTS>")
        writer.write_vector(self.weights)
        writer.write_token(means_token)
        writer.write_matrix(self.means)
        writer.write_token(variances_token)
        self._write_inverses(writer)
        writer.write_token(f"</{name}>")
        writer.write_raw(end)

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self.means.shape[1]

    @abstractmethod
    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        """The log-likelihood of each frame and Gaussian: float64, [frames, Gaussians].

        Raises:
            ShapeError: features are of another dimension.
        """

    @abstractmethod
    def selected(self, features: np.ndarray, starts: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The log-likelihood of each frame by its Gaussians alone: float64, [pairs].

        Args:
            starts, ids: the Gaussians of each frame, as a `Posterior` has them.

        Raises:
            ShapeError: features are of another dimension.
        """

    def check(self, features: np.ndarray) -> None:
        """Raises ShapeError: features are of another dimension."""
        if features.shape[1] != self.dim:
            raise ShapeError(f"features of {features.shape[1]} columns for Gaussians of {self.dim}")

    # Estimation

    @property
    @abstractmethod
    def moments(self) -> Moments:
        """Weights, means, variances."""

    def updated(self, moments: Moments, update: int) -> Self:
        """The mixture with parameters of the kinds `update` taken from `moments`; rounded in the
        order in which Kaldi rounds them."""
        inverse = self.inverse_variances
        means = self.moments.means
        if update & VARIANCES:
            inverse = self._inverted(moments.variances.astype(np.float32))
        if update & MEANS:
            means = moments.means
        if update & (MEANS | VARIANCES):
            means = self._times(inverse, means.astype(np.float32))
        else:
            means = self.means
        weights = moments.weights.astype(np.float32) if update & WEIGHTS else self.weights
        return self.of(weights, means, inverse)

    def objective(self, counts: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> float:
        """The log-likelihood of frames with these statistics; empty ones count for nothing."""
        seen = counts > 0
        total = float(counts[seen] @ self.constants[seen].astype(np.float64))
        if sums.size:
            total += float(np.vdot(sums, self.means))
        if squares.size:
            total -= 0.5 * float(np.vdot(squares, self._wide))
        return total

    def kept(self, which: np.ndarray) -> Self:
        """Some of the Gaussians, whose weights add up to 1."""
        weights = self.weights[which]
        weights *= np.float32(1.0 / weights.sum(dtype=np.float32))
        return self.of(weights, self.means[which], self.inverse_variances[which])

    def split(self, target: int, factor: float, random: KaldiRandom) -> Self:
        """A mixture of `target` Gaussians: again and again the one with the greatest weight
        becomes two, whose means are moved by `factor` of a random deviation."""
        count = len(self.weights)
        weights, means, inverse = (
            np.concatenate((each, np.empty((target - count, *each.shape[1:]), np.float32)))
            for each in (self.weights, self.means, self.inverse_variances)
        )
        for new in range(count, target):
            old = int(weights[:new].argmax())
            shift = np.float32(factor) * self._deviation(inverse[old], random)
            weights[old] /= 2
            weights[new], inverse[new] = weights[old], inverse[old]
            means[new] = means[old] + shift
            means[old] -= shift
        return self.of(weights, means, inverse)

    # What the kinds of variances do otherwise

    @property
    @abstractmethod
    def _wide(self) -> np.ndarray:
        """Inverse variances, or whole inverse covariances: float64."""

    @classmethod
    @abstractmethod
    def _read_inverses(cls, reader: Reader, means: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _write_inverses(self, writer: Writer) -> None: ...

    @classmethod
    @abstractmethod
    def _are_positive(cls, inverse: np.ndarray) -> bool: ...

    @classmethod
    @abstractmethod
    def _constant_terms(cls, means: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        """The log-determinant of each inverse covariance less the squared mean times it."""

    @classmethod
    @abstractmethod
    def _inverted(cls, variances: np.ndarray) -> np.ndarray: ...

    @classmethod
    @abstractmethod
    def _times(cls, inverse: np.ndarray, means: np.ndarray) -> np.ndarray: ...

    @classmethod
    @abstractmethod
    def _deviation(cls, inverse: np.ndarray, random: KaldiRandom) -> np.ndarray:
        """A random deviation of one Gaussian, times its inverse variances: float32, [dim]."""


class DiagGmm(Gmm):
    """A mixture of Gaussians with diagonal covariances."""

    _TOKENS = ("DiagGMM", "<MEANS_INVVARS>", "<INV_VARS>")

    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        self.check(features)
        # In float64: posteriors are cut off, which makes what one BLAS rounds otherwise than
        # another into another iVector.
        wide = features.astype(np.float64)
        loglikes = wide @ self._wide_means.T
        loglikes += self.constants
        loglikes -= 0.5 * ((wide * wide) @ self._wide.T)
        return loglikes

    def selected(self, features: np.ndarray, starts: np.ndarray, ids: np.ndarray) -> np.ndarray:
        parts = [np.empty(0)]
        for begin in range(0, len(features), _BLOCK):
            bounds = starts[begin : begin + _BLOCK + 1]
            rows = frames_of(bounds)
            likes = self.log_likelihoods(features[begin : begin + _BLOCK])
            parts.append(likes[rows, ids[bounds[0] : bounds[-1]]])
        return np.concatenate(parts)

    @property
    def moments(self) -> Moments:
        variances = 1 / self._wide
        return Moments(self.weights.astype(np.float64), self.means * variances, variances)

    @cached_property
    def _wide_means(self) -> np.ndarray:
        return self.means.astype(np.float64)

    @cached_property
    def _wide(self) -> np.ndarray:
        return self.inverse_variances.astype(np.float64)

    @classmethod
    def _read_inverses(cls, reader: Reader, means: np.ndarray) -> np.ndarray:
        start = reader.offset
        inverse = reader.read_matrix(np.float32)
        if inverse.shape != means.shape:
            raise reader.error(
                f"means {list(means.shape)} and variances {list(inverse.shape)}", start
            )
        return inverse

    def _write_inverses(self, writer: Writer) -> None:
        writer.write_matrix(self.inverse_variances)

    @classmethod
    def _are_positive(cls, inverse: np.ndarray) -> bool:
        return bool((inverse > 0).all())

    @classmethod
    def _constant_terms(cls, means: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        terms = np.log(inverse.astype(np.float64))
        terms -= means**2 / inverse
        return terms.sum(axis=1)

    @classmethod
    def _inverted(cls, variances: np.ndarray) -> np.ndarray:
        return np.float32(1) / variances

    @classmethod
    def _times(cls, inverse: np.ndarray, means: np.ndarray) -> np.ndarray:
        return means * inverse

    @classmethod
    def _deviation(cls, inverse: np.ndarray, random: KaldiRandom) -> np.ndarray:
        return random.normals(len(inverse)) * np.sqrt(inverse)


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


def softmax(log_likelihoods: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of all Gaussians, [frames, Gaussians], and log-likelihoods of frames, [frames]."""
    top = log_likelihoods.max(axis=1, keepdims=True)
    shares = np.exp(log_likelihoods - top)
    totals = shares.sum(axis=1, keepdims=True)
    return shares / totals, (top + np.log(totals))[:, 0]


def normalized(starts: np.ndarray, likes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of the Gaussians of frames, and the log-likelihoods of the frames.

    Args:
        starts: where the pairs of each frame begin; each has one at least.
        likes: log-likelihoods, [pairs].

    Returns:
        float32, [pairs], and float64, [frames].
    """
    frames = frames_of(starts)
    top = np.maximum.reduceat(likes, starts[:-1])
    values = np.exp(likes - top[frames])
    totals = np.add.reduceat(values, starts[:-1])
    return (values / totals[frames]).astype(np.float32), top + np.log(totals)
