"""Probabilistic linear discriminant analysis: how likely vectors are one speaker's.

Source: Kaldi's `ivector/plda.cc`; Ioffe, Probabilistic Linear Discriminant Analysis (2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.options.option_fields import option
from ...kaldi.files.kaldi_io import Reader, Writer
from ..ivector.eigen import falling_eigenvectors


@dataclass(frozen=True)
class PldaOptions:
    """How vectors are scaled before they are compared, with Kaldi's names and defaults."""

    normalize_length: bool = option(True, "Give vectors the length that the model expects")
    simple_length_norm: bool = option(
        False, "The length is the square root of the dimension", "simple-length-normalization"
    )


@dataclass(frozen=True)
class AdaptOptions:
    """How a model is adapted to vectors without speakers, with Kaldi's names and defaults."""

    mean_diff_scale: float = option(1.0, "Factor of the shift of the mean, as added variance")
    within_covar_scale: float = option(0.3, "Part of added variance that is within speakers")
    between_covar_scale: float = option(0.7, "Part of added variance that is between speakers")


@dataclass(frozen=True, eq=False)
class Plda:
    """Gaussians of speakers and, around each, of the speaker's vectors.

    Attributes:
        mean: of vectors, float64, [dim].
        transform: what gives vectors, less the mean, the covariance 1 within speakers and a
            diagonal one between them: float64, [dim, dim].
        between: that diagonal, falling: float64, [dim].
    """

    mean: np.ndarray
    transform: np.ndarray
    between: np.ndarray

    @classmethod
    def read(cls, reader: Reader) -> Plda:
        """Read what Kaldi's `ivector-compute-plda` wrote.

        Raises:
            FormatError: the bytes are something else, shapes do not agree, or numbers are not
                finite.
        """
        start = reader.offset
        reader.expect_token("<Plda>")
        mean = reader.read_vector(np.float64)
        transform = reader.read_matrix(np.float64)
        between = reader.read_vector(np.float64)
        reader.expect_token("</Plda>")
        dim = len(mean)
        if not dim or transform.shape != (dim, dim) or between.shape != (dim,):
            raise reader.error(
                f"a mean of {dim} elements, a transform {list(transform.shape)}, and variances of"
                f" {len(between)}",
                start,
            )
        if not all(np.isfinite(each).all() for each in (mean, transform, between)):
            raise reader.error("numbers that are not finite", start)
        if between.min() < 0:
            raise reader.error("variances between speakers that are negative", start)
        return cls(mean, transform, between)

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        writer.write_token("<Plda>")
        writer.write_vector(self.mean)
        writer.write_matrix(self.transform)
        writer.write_vector(self.between)
        writer.write_token("</Plda>")

    @property
    def dim(self) -> int:
        """Elements of a vector."""
        return len(self.mean)

    def transformed(
        self, vectors: np.ndarray, counts: ArrayLike = 1, options: PldaOptions | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Vectors in the space of the model, float64, [some, dim], and factors of their lengths.

        Args:
            vectors: [some, dim]. counts: how many vectors each is the mean of.

        Raises:
            ShapeError: they are of another dimension.
        """
        options = options or PldaOptions()
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ShapeError(f"vectors {list(vectors.shape)} for a model of {self.dim} elements")
        moved = (vectors.astype(np.float64) - self.mean) @ self.transform.T
        squares = moved * moved
        if not options.simple_length_norm:
            squares /= self.between + 1 / np.asarray(counts, np.float64).reshape(-1, 1)
        lengths = squares.sum(axis=1)
        factors = np.sqrt(np.divide(self.dim, lengths, out=np.ones(len(moved)), where=lengths > 0))
        return (moved * factors[:, None] if options.normalize_length else moved), factors

    def ratios(self, enrolled: np.ndarray, counts: ArrayLike, tested: np.ndarray) -> np.ndarray:
        """How much likelier each tested vector is the speaker's of an enrolled one than a new
        speaker's, as logarithms: float64, [...].

        Args:
            enrolled, tested: transformed vectors, [..., dim], of shapes that go together.
            counts: how many vectors each enrolled one is the mean of, [..., 1].
        """
        counts = np.asarray(counts, np.float64)
        known = counts * self.between + 1.0
        variance = 1.0 + self.between / known
        away = tested - (counts * self.between / known) * enrolled
        same = np.log(variance) + away * away / variance
        total = 1.0 + self.between
        other = np.log(total) + tested * tested / total
        return 0.5 * (other - same).sum(axis=-1)

    def smoothed(self, factor: float) -> Plda:
        """A model to whose covariance within speakers that between them is added, times a factor.

        Raises:
            OpscopeError: the factor is not from 0 to 1.
        """
        if not 0 <= factor <= 1:
            raise OpscopeError(f"smoothing={factor:g} must lie from 0 to 1")
        within = 1.0 + factor * self.between
        return Plda(self.mean, self.transform / np.sqrt(within)[:, None], self.between / within)

    def projected(self, matrix: np.ndarray) -> Plda:
        """The model of vectors that are multiplied with a matrix, [fewer, dim]."""
        within, between = self.covariances()
        return of_covariances(
            matrix @ self.mean, matrix @ within @ matrix.T, matrix @ between @ matrix.T
        )

    def covariances(self) -> tuple[np.ndarray, np.ndarray]:
        """The covariances within speakers and between them: float64, [dim, dim]."""
        back = np.linalg.inv(self.transform)
        return back @ back.T, (back * self.between) @ back.T

    def adapted(self, vectors: np.ndarray, options: AdaptOptions | None = None) -> Plda:
        """A model for vectors of other conditions, whose speakers are not known.

        Args:
            vectors: [some, dim].

        Raises:
            ShapeError: they are of another dimension. FormatError: there are none.
        """
        options = options or AdaptOptions()
        if not len(vectors):
            raise FormatError("there are no vectors to adapt to")
        if vectors.shape[1] != self.dim:
            raise ShapeError(f"vectors of {vectors.shape[1]} elements for a model of {self.dim}")
        wide = vectors.astype(np.float64)
        mean = wide.mean(axis=0)
        shift = mean - self.mean
        variance = wide.T @ wide / len(wide) - np.outer(mean, mean)
        variance += options.mean_diff_scale * np.outer(shift, shift)
        # Where the model's whole covariance is 1, and the vectors' is diagonal.
        white = self.transform / np.sqrt(1.0 + self.between)[:, None]
        values, vectors_of = falling_eigenvectors(white @ variance @ white.T)
        move = vectors_of.T @ white
        excess = np.maximum(values - 1.0, 0.0)
        shares = self.between / (1.0 + self.between)
        between = (vectors_of.T * shares) @ vectors_of
        within = (vectors_of.T * (1.0 - shares)) @ vectors_of
        within += np.diag(options.within_covar_scale * excess)
        between += np.diag(options.between_covar_scale * excess)
        back = np.linalg.inv(move)
        return of_covariances(mean, back @ within @ back.T, back @ between @ back.T)


def of_covariances(mean: np.ndarray, within: np.ndarray, between: np.ndarray) -> Plda:
    """A model with these covariances within speakers and between them.

    Raises:
        FormatError: that within speakers is singular.
    """
    try:
        root = np.linalg.cholesky(within)
    except np.linalg.LinAlgError:
        raise FormatError("the covariance within speakers is singular") from None
    white = np.linalg.inv(root)
    values, vectors = falling_eigenvectors(white @ between @ white.T)
    return Plda(mean, vectors.T @ white, np.maximum(values, 0.0))


def estimate_plda(
    speakers: Iterable[np.ndarray],
    iterations: int = 10,
    log: Callable[[str], None] = lambda text: None,
) -> Plda:
    """A model of vectors whose speakers are known, by expectation and maximization.

    Args:
        speakers: the vectors of each speaker, [some, dim].

    Raises:
        FormatError: there are no more vectors than elements, or no speaker has two.
        ShapeError: vectors have different dimensions.
    """
    groups = [np.asarray(each, np.float64) for each in speakers if len(each)]
    if len({each.shape[1:] for each in groups}) > 1:
        raise ShapeError("vectors of speakers have different numbers of elements")
    total = sum(map(len, groups))
    if not groups or total <= groups[0].shape[1]:
        raise FormatError(f"{total} vectors are too few: more than their elements are wanted")
    if total == len(groups):
        raise FormatError("no speaker has two vectors")
    dim = groups[0].shape[1]
    means = np.stack([each.mean(axis=0) for each in groups])
    scatter = np.zeros((dim, dim))
    for each, mean in zip(groups, means, strict=True):
        away = each - mean
        scatter += away.T @ away
    center = means.mean(axis=0)
    means -= center
    counts = np.array([len(each) for each in groups])
    within = between = np.eye(dim)
    for number in range(iterations):
        log(f"Plda estimation iteration {number} of {iterations}")
        within, between = _step(within, between, means, counts, scatter)
        log(f"Trace of within-class variance is {np.trace(within):g}")
        log(f"Trace of between-class variance is {np.trace(between):g}")
    log(f"Norm of mean of iVector distribution is {np.linalg.norm(center):g}")
    return of_covariances(center, within, between)


def _step(
    within: np.ndarray,
    between: np.ndarray,
    means: np.ndarray,
    counts: np.ndarray,
    scatter: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Better covariances, by what is expected of speakers with the present ones.

    Args:
        means: of speakers, less the mean, [speakers, dim]. counts: of their vectors.
        scatter: of vectors around the means of their speakers.
    """
    try:
        inverse_within, inverse_between = np.linalg.inv(within), np.linalg.inv(between)
    except np.linalg.LinAlgError:
        raise FormatError("the covariances of the vectors are singular") from None
    new_within, new_between = scatter.copy(), np.zeros_like(scatter)
    for count in np.unique(counts).tolist():
        some = means[counts == count]
        uncertain = np.linalg.inv(inverse_between + count * inverse_within)
        expected = count * some @ inverse_within @ uncertain
        left = some - expected
        new_between += len(some) * uncertain + expected.T @ expected
        new_within += count * (len(some) * uncertain + left.T @ left)
    return new_within / counts.sum(), new_between / len(counts)
