"""Training of iVector extractors: sums over utterances, and the extractor that fits them best.

Source: Kaldi's `IvectorExtractorStats` in `ivector/ivector-extractor.cc`; `SolveQuadraticProblem`
and `ApplyFloor` in `matrix/sp-matrix.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.options.option_fields import option
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.packed import packed, read_packed, unpacked, write_packed
from ...kaldi.files.posterior import Posterior
from ...nnet3.language.nodes import warn
from .by_gaussian import by_gaussian, frames_of
from .eigen import falling_eigenvectors
from .extractor import IvectorExtractor
from .kaldi_random import KaldiRandom

_CONDITION = 1e4  # of terms that are inverted
_TINY = 1e-40
_LEAST_DIAGONAL = 1e3 * float(np.finfo(np.float64).tiny)
_FLOOR_CONDITION = 1e-4  # of the floor of covariances itself
_LEAST_VARIANCE = 1e-7  # of iVectors


@dataclass
class ExtractorStats:
    """Sums over utterances, float64. With S elements of an iVector, D columns of features:

    Attributes:
        objective: log-likelihood.
        counts: of frames, [Gaussians].
        first: features times iVectors, [Gaussians, D, S].
        second: iVectors' expected squares times counts, lower triangles, [Gaussians, S(S+1)/2].
        weight_first, weight_second: of the expansion of weights, [Gaussians, S] and
            [Gaussians, S(S+1)/2]; without rows where weights do not depend on iVectors.
        squares: of features, lower triangles, [Gaussians, D(D+1)/2]; without rows where variances
            are not trained.
        ivectors: how many.
        ivector_sum, ivector_second: of iVectors, [S] and a lower triangle.
    """

    objective: float
    counts: np.ndarray
    first: np.ndarray
    second: np.ndarray
    weight_first: np.ndarray
    weight_second: np.ndarray
    squares: np.ndarray
    ivectors: float
    ivector_sum: np.ndarray
    ivector_second: np.ndarray

    @classmethod
    def empty(cls, extractor: IvectorExtractor, update_variances: bool = True) -> ExtractorStats:
        """Statistics of no utterance."""
        count, dim, size = extractor.projections.shape
        triangle = size * (size + 1) // 2
        weights = 0 if extractor.weight_projections is None else count
        return cls(
            0.0,
            np.zeros(count),
            np.zeros((count, dim, size)),
            np.zeros((count, triangle)),
            np.zeros((weights, size)),
            np.zeros((weights, triangle)),
            np.zeros((count if update_variances else 0, dim * (dim + 1) // 2)),
            0.0,
            np.zeros(size),
            np.zeros(triangle),
        )

    def merge(self, other: ExtractorStats) -> None:
        """Add other statistics. Raises ShapeError: of another extractor."""
        names = [each.name for each in fields(self)]
        for name in names:
            mine, others = np.shape(getattr(self, name)), np.shape(getattr(other, name))
            if mine != others:
                raise ShapeError(f"statistics of {list(others)} after some of {list(mine)}")
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def write_to(self, writer: Writer) -> None:
        """Write them as Kaldi does."""
        writer.write_token("<IvectorExtractorStats>")
        writer.write_token("<TotAuxf>")
        writer.write_double(self.objective)
        writer.write_token("<gamma>")
        writer.write_vector(self.counts)
        writer.write_token("<Y>")
        writer.write_int32(len(self.first))
        for matrix in self.first:
            writer.write_matrix(matrix)
        for token, matrix in (
            ("<R>", self.second.astype(np.float32)),
            ("<Q>", self.weight_second.astype(np.float32)),
            ("<G>", self.weight_first),
        ):
            writer.write_token(token)
            writer.write_matrix(matrix)
        writer.write_token("<S>")
        writer.write_int32(len(self.squares))
        for triangle in self.squares:
            write_packed(writer, triangle)
        writer.write_token("<NumIvectors>")
        writer.write_double(self.ivectors)
        writer.write_token("<IvectorSum>")
        writer.write_vector(self.ivector_sum)
        writer.write_token("<IvectorScatter>")
        write_packed(writer, self.ivector_second)
        writer.write_token("</IvectorExtractorStats>")

    @classmethod
    def read(cls, reader: Reader) -> ExtractorStats:
        """Read what Kaldi wrote.

        Raises:
            FormatError: it is damaged.
        """
        start = reader.offset
        reader.expect_token("<IvectorExtractorStats>")
        reader.expect_token("<TotAuxf>")
        objective = reader.read_double()
        reader.expect_token("<gamma>")
        counts = reader.read_vector(np.float64)
        reader.expect_token("<Y>")
        number = reader.read_int32()
        reader.check_left(number, "sums")
        first = _stacked(reader, [reader.read_matrix(np.float64) for _ in range(number)], 2, start)
        matrices = []
        for token in ("<R>", "<Q>", "<G>"):
            reader.expect_token(token)
            matrices.append(reader.read_matrix(np.float64))
        reader.expect_token("<S>")
        number = reader.read_int32()
        reader.check_left(number, "sums of squares")
        squares = _stacked(reader, [read_packed(reader) for _ in range(number)], 1, start)
        reader.expect_token("<NumIvectors>")
        ivectors = reader.read_double()
        reader.expect_token("<IvectorSum>")
        ivector_sum = reader.read_vector(np.float64)
        reader.expect_token("<IvectorScatter>")
        ivector_second = read_packed(reader)
        reader.expect_token("</IvectorExtractorStats>")
        second, weight_second, weight_first = matrices
        stats = cls(
            objective,
            counts,
            first,
            second,
            weight_first,
            weight_second,
            squares,
            ivectors,
            ivector_sum,
            ivector_second,
        )
        stats._check(reader, start)
        return stats

    def _check(self, reader: Reader, start: int) -> None:
        count, dim, size = self.first.shape
        triangle, columns = size * (size + 1) // 2, dim * (dim + 1) // 2
        weights = (count, 0)[not self.weight_first.size]
        wanted = {
            "counts": (count,),
            "second": (count, triangle),
            "weight_first": (weights, size if weights else 0),
            "weight_second": (weights, triangle if weights else 0),
            "squares": (len(self.squares) and count, len(self.squares) and columns),
            "ivector_sum": (size,),
            "ivector_second": (triangle,),
        }
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                found = list(getattr(self, name).shape)
                raise reader.error(f"statistics {found} in place of {list(shape)}", start)


def _stacked(reader: Reader, parts: list[np.ndarray], rank: int, start: int) -> np.ndarray:
    if len({part.shape for part in parts}) > 1:
        raise reader.error("sums of Gaussians have different shapes", start)
    return np.stack(parts) if parts else np.zeros((0,) * (rank + 1))


class ExtractorAccumulator:
    """Statistics of utterances, computed for some of them at once.

    Args:
        update_variances: whether the covariances will be trained.
        compute_objective: the log-likelihood, too.
        samples: iVectors drawn for each utterance, where weights depend on iVectors.
        cached: utterances that are computed at once.
    """

    def __init__(
        self,
        extractor: IvectorExtractor,
        update_variances: bool = True,
        compute_objective: bool = True,
        samples: int = 10,
        cached: int = 100,
    ) -> None:
        if samples < 2 or cached < 1:
            raise FormatError(
                f"--num-samples-for-weights={samples} must be above 1, --cache-size={cached} above"
                " 0"
            )
        self.stats = ExtractorStats.empty(extractor, update_variances)
        self._extractor = extractor
        self._objective = compute_objective
        self._samples = samples
        self._random = KaldiRandom()
        shape = extractor.projections.shape
        self._counts = np.zeros((cached, shape[0]))
        self._sums = np.zeros((cached, *shape[:2]))
        self._scatter = np.zeros(cached)
        self._held = 0

    def add(self, features: np.ndarray, posterior: Posterior) -> None:
        """Add an utterance: features, [frames, dim], and the Gaussians of frames.

        Raises:
            ShapeError: they do not fit the extractor. FormatError: there is no such Gaussian.
        """
        if self._held == len(self._counts):
            self.flush()
        row, stats = self._held, self.stats
        self._counts[row] = self._sums[row] = self._scatter[row] = 0
        for gaussian, rows, weights in pairs_of(self._extractor, features, posterior):
            weighted = rows * weights[:, None]
            self._counts[row, gaussian] = weights.sum()
            self._sums[row, gaussian] = weighted.sum(axis=0)
            if len(stats.squares):
                squares = weighted.T @ rows
                stats.squares[gaussian] += packed(squares)
                self._scatter[row] += np.vdot(squares, self._extractor.wide_precisions[gaussian])
        self._held += 1

    def flush(self) -> None:
        """Compute the iVectors of the utterances added last, and count them."""
        held, stats, extractor = self._held, self.stats, self._extractor
        self._held = 0
        if not held:
            return
        counts, sums = self._counts[:held], self._sums[:held]
        terms = extractor.terms(counts, sums)
        means, covariances = extractor.distribution(counts, terms)
        if self._objective:
            scatter = self._scatter[:held] if len(stats.squares) else None
            objectives = extractor.objective(counts, sums, terms, means, covariances, scatter)
            stats.objective += float(objectives.sum())
        second = packed(covariances + means[:, :, None] * means[:, None, :])
        stats.counts += counts.sum(axis=0)
        stats.first += (sums.reshape(held, -1).T @ means).reshape(stats.first.shape)
        stats.second += counts.T @ second
        stats.ivectors += held
        stats.ivector_sum += means.sum(axis=0)
        stats.ivector_second += second.sum(axis=0)
        if extractor.weight_projections is not None:
            for each in zip(counts, means, covariances, strict=True):
                self._add_weights(*each)

    def _add_weights(self, counts: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
        """The expansion of weights around iVectors drawn from a distribution."""
        number = self._samples
        drawn = self._random.normal_matrix(number, len(mean)).astype(np.float64)
        drawn = drawn @ np.linalg.cholesky(covariance).T
        drawn -= drawn.mean(axis=0)
        drawn = drawn * np.sqrt(number / (number - 1)) + mean
        slopes, bends = self._extractor.weight_terms(counts, drawn)
        self.stats.weight_first += slopes.T @ drawn / number
        triangles = packed(drawn[:, :, None] * drawn[:, None, :])
        self.stats.weight_second += bends.T @ triangles / number


def pairs_of(
    extractor: IvectorExtractor, features: np.ndarray, posterior: Posterior
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Each Gaussian of an utterance, its rows of features and their weights: float64.

    Raises:
        ShapeError: features are of another dimension, or as many frames are not in the posterior.
        FormatError: there is no such Gaussian.
    """
    count, dim = extractor.projections.shape[:2]
    if features.shape != (len(posterior), dim):
        raise ShapeError(
            f"features {list(features.shape)} for posteriors of {len(posterior)} frames and an"
            f" extractor of {dim} columns"
        )
    ids = posterior.ids
    if len(ids) and not 0 <= ids.min() <= ids.max() < count:
        raise FormatError(f"posteriors of Gaussians {ids.min()} to {ids.max()}: there are {count}")
    wide, weights = features.astype(np.float64), posterior.weights.astype(np.float64)
    frames = frames_of(posterior.starts)
    for gaussian, pairs in by_gaussian(ids):
        yield gaussian, wide[frames[pairs]], weights[pairs]


@dataclass(frozen=True)
class ExtractorOptions:
    """How an extractor is estimated, with Kaldi's names and defaults."""

    variance_floor_factor: float = option(0.1, "Least covariance, in terms of the average one")
    gaussian_min_count: float = option(100.0, "Least count of a Gaussian that is updated")
    diagonalize: bool = option(True, "Order elements of iVectors from most to least important")


def estimated(
    extractor: IvectorExtractor,
    stats: ExtractorStats,
    options: ExtractorOptions,
    log: Callable[[str], None],
) -> IvectorExtractor:
    """The extractor that fits statistics best.

    Raises:
        ShapeError: the statistics are of another extractor. FormatError: of no iVector.
    """
    shape = extractor.projections.shape
    slopes = extractor.weight_projections
    if stats.first.shape != shape or len(stats.weight_first) != (slopes is not None) * shape[0]:
        raise ShapeError(f"statistics {list(stats.first.shape)} for an extractor {list(shape)}")
    frames = float(stats.counts.sum())
    enough = np.flatnonzero(stats.counts >= options.gaussian_min_count)
    if not stats.ivectors or not len(enough):
        raise FormatError("the statistics have too few frames for every Gaussian")
    if stats.objective:
        log(f"Overall auxf/frame on training data was {stats.objective / frames:g} per frame")
    if len(enough) < shape[0]:
        warn(f"Skipping {shape[0] - len(enough)} Gaussians with counts below min-count.")
    projections = extractor.projections.copy()
    total = 0.0
    for gaussian in enough:
        projections[gaussian], gain = _improved(
            projections[gaussian],
            stats.first[gaussian],
            unpacked(stats.second[gaussian]),
            extractor.wide_precisions[gaussian],
        )
        total += gain
    log(f"Overall objective function improvement for M was {total / frames:g} per frame")
    if slopes is not None:
        slopes, gain = _improved_weights(slopes, stats)
        log(f"Overall auxf impr/frame from weight update is {gain / frames:g}")
        total += gain
    precisions = extractor.precisions
    if len(stats.squares):
        precisions, gain = _improved_precisions(projections, extractor, stats, enough, options)
        log(f"Overall objf impr/frame for variances was {gain / frames:g}")
        total += gain
    new = IvectorExtractor(
        projections, precisions, extractor.prior_offset, extractor.weights, slopes
    )
    new, gain = _with_standard_prior(new, stats, options.diagonalize, log)
    log(f"Overall objective-function improvement per frame was {(total + gain) / frames:g}")
    _tell_variance(new, stats.counts / frames, log)
    return new


def _improved(
    matrix: np.ndarray, linear: np.ndarray, quadratic: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, float]:
    """M that maximizes tr(M' P Y) - tr(P M Q M') / 2, by a step from `matrix` in which small
    eigenvalues of Q are floored; and what it gains. `matrix` stays where nothing is gained.

    Args:
        matrix, linear: Y, [rows, columns]. quadratic: Q, [columns, columns].
        precision: P, [rows, rows].
    """
    if not quadratic.any():
        return matrix, 0.0
    scale = np.sqrt(np.maximum(np.diagonal(quadratic), _LEAST_DIAGONAL))
    values, vectors = np.linalg.eigh(quadratic / np.outer(scale, scale))
    floored = np.maximum(values, max(_TINY, values.max() / _CONDITION))
    step = (((linear - matrix @ quadratic) / scale) @ vectors / floored) @ vectors.T / scale

    def objective(at: np.ndarray) -> float:
        return float(np.vdot(at, precision @ (linear - 0.5 * at @ quadratic)))

    gain = objective(matrix + step) - objective(matrix)
    return (matrix + step, gain) if gain >= 0 else (matrix, 0.0)


def _improved_weights(slopes: np.ndarray, stats: ExtractorStats) -> tuple[np.ndarray, float]:
    new, total = slopes.copy(), 0.0
    one = np.ones((1, 1))
    for gaussian in range(len(slopes)):
        row = slice(gaussian, gaussian + 1)
        quadratic = unpacked(stats.weight_second[gaussian])
        new[row], gain = _improved(slopes[row], stats.weight_first[row], quadratic, one)
        total += gain
    return new, total


def _improved_precisions(
    projections: np.ndarray,
    extractor: IvectorExtractor,
    stats: ExtractorStats,
    enough: np.ndarray,
    options: ExtractorOptions,
) -> tuple[np.ndarray, float]:
    """Inverse covariances around the features that iVectors predict, and what they gain."""
    moved = projections[enough]
    cross = stats.first[enough] @ moved.transpose(0, 2, 1)
    scatter = unpacked(stats.squares[enough]) - cross - cross.transpose(0, 2, 1)
    scatter += moved @ unpacked(stats.second[enough]) @ moved.transpose(0, 2, 1)
    counts = stats.counts[enough]
    floor = options.variance_floor_factor / counts.sum() * scatter.sum(axis=0)
    values, vectors = np.linalg.eigh(floor)
    least = np.abs(values).max() * _FLOOR_CONDITION
    if (values < least).any():
        warn("The average covariance is floored: features may depend on each other linearly.")
    floor = (vectors * np.maximum(values, least)) @ vectors.T
    covariances = scatter / counts[:, None, None]
    root = np.linalg.cholesky(floor)
    white = np.linalg.solve(root, np.linalg.solve(root, covariances).transpose(0, 2, 1))
    values, vectors = np.linalg.eigh(white)
    sides = root @ (vectors * np.sqrt(np.maximum(values, 1.0))[:, None, :])
    new = np.linalg.inv(sides @ sides.transpose(0, 2, 1))
    old = extractor.wide_precisions[enough]

    def objective(inverse: np.ndarray) -> np.ndarray:
        traces = (covariances * inverse).sum(axis=(1, 2))
        return -0.5 * (traces - np.linalg.slogdet(inverse)[1])

    precisions = extractor.precisions.copy()
    precisions[enough] = packed(new)
    return precisions, float(counts @ (objective(new) - objective(old)))


def _with_standard_prior(
    extractor: IvectorExtractor,
    stats: ExtractorStats,
    diagonalize: bool,
    log: Callable[[str], None],
) -> tuple[IvectorExtractor, float]:
    """The same extractor with iVectors moved so that the ones of training have the covariance 1
    and a mean along the first dimension; and what this gains.

    Eigenvectors may have either sign, which elements of iVectors share.
    """
    mean = stats.ivector_sum / stats.ivectors
    covariance = unpacked(stats.ivector_second) / stats.ivectors - np.outer(mean, mean)
    values, vectors = falling_eigenvectors(covariance)
    log(f"Eigenvalues of iVector covariance range from {values[-1]:g} to {values[0]:g}")
    if values[-1] < _LEAST_VARIANCE:
        warn("Floored eigenvalues of the covariance of iVectors.")
    move = vectors.T / np.sqrt(np.maximum(values, _LEAST_VARIANCE))[:, None]
    # A reflection that turns the mean into the first axis: along their difference.
    direction = move @ mean
    direction /= np.linalg.norm(direction)
    direction[0] -= 1
    length = float(direction @ direction)
    if length:
        move -= np.outer(direction, direction @ move) * (2 / length)
    if diagonalize:
        move[1:] = _ordered(extractor, move[1:]) @ move[1:]
    offset = float((move @ mean)[0])
    back = np.linalg.inv(move)
    slopes = extractor.weight_projections
    new = IvectorExtractor(
        extractor.projections @ back,
        extractor.precisions,
        offset,
        extractor.weights,
        None if slopes is None else slopes @ back,
    )
    away = mean.copy()
    away[0] -= extractor.prior_offset
    before = np.trace(covariance) + away @ away
    after = len(mean) + np.linalg.slogdet(covariance)[1]
    return new, 0.5 * stats.ivectors * float(before - after)


def _ordered(extractor: IvectorExtractor, move: np.ndarray) -> np.ndarray:
    """A rotation of all elements of iVectors but the first, after `move`, that orders them by
    how much features say about them."""
    count = len(extractor.projections)
    weights = extractor.weights if len(extractor.weights) else np.full(count, 1 / count)
    average = unpacked(weights @ extractor.quadratics)
    back = np.linalg.inv(move[:, 1:])
    return falling_eigenvectors(back.T @ average[1:, 1:] @ back)[1].T


def _tell_variance(
    extractor: IvectorExtractor, weights: np.ndarray, log: Callable[[str], None]
) -> None:
    """Log how much of the variance within Gaussians iVectors explain."""
    values = np.linalg.eigvalsh(extractor.wide_precisions)
    within = float(weights @ (1 / np.maximum(values, 1.0)).sum(axis=1))
    between = float(weights @ (extractor.projections**2).sum(axis=(1, 2)))
    share = between / (between + within)
    log(f"The proportion of within-Gaussian variance explained by the iVectors is {share:g}.")
