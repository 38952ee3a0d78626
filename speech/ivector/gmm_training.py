"""Training of mixtures of Gaussians: sums over frames, and the mixture that fits them best.

Source: Kaldi's `gmm/mle-diag-gmm.cc`, `gmm/mle-full-gmm.cc`, `gmm/model-common.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.options.option_fields import option
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.packed import packed, read_packed, unpacked, write_packed
from ...nnet3.language.nodes import warn
from .by_gaussian import by_gaussian, frames_of
from .full_gmm import FullGmm
from .gmm import MEANS, VARIANCES, WEIGHTS, Gmm, Moments

Mixture = TypeVar("Mixture", bound=Gmm)
_KINDS = {"m": MEANS, "v": VARIANCES, "w": WEIGHTS, "t": 8, "a": 15}
_MOST_DIM = 10000


def update_flags(text: str) -> int:
    """The kinds of parameters that letters name: means, variances, weights, all.

    Raises:
        FormatError: there is another letter.
    """
    flags = 0
    for letter in text:
        if letter not in _KINDS:
            raise FormatError(f"--update-flags={text}: letters of mvwta are wanted")
        flags |= _KINDS[letter]
    return flags


@dataclass
class GmmStats:
    """Sums over frames x, each with its weight for each Gaussian: float64.

    Attributes:
        counts: of weights, [Gaussians]. sums: of x, [Gaussians, dim].
        squares: of the squares of x, [Gaussians, dim], or of x x', [Gaussians, dim, dim].
        flags: the kinds of parameters that they are for: variances want all three.
    """

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray
    flags: int = MEANS | VARIANCES | WEIGHTS

    @classmethod
    def empty(cls, count: int, dim: int, full: bool, flags: int) -> GmmStats:
        """Statistics of no frames, for full or diagonal covariances."""
        if flags & VARIANCES:
            flags |= MEANS
        squares = (dim, dim) if full else (dim,)
        return cls(
            np.zeros(count),
            np.zeros((count, dim)),
            np.zeros((count, *squares)),
            flags | WEIGHTS,
        )

    def add(
        self, features: np.ndarray, starts: np.ndarray, ids: np.ndarray, weights: np.ndarray
    ) -> None:
        """Add frames, [frames, dim], with the Gaussians of each as a `Posterior` has them."""
        wide, weights = features.astype(np.float64), weights.astype(np.float64)
        frames = frames_of(starts)
        for gaussian, pairs in by_gaussian(ids):
            self._add(gaussian, wide[frames[pairs]], weights[pairs])

    def add_all(self, features: np.ndarray, weights: np.ndarray) -> None:
        """Add frames, [frames, dim], with weights for all Gaussians, [frames, Gaussians]."""
        wide, weights = features.astype(np.float64), weights.astype(np.float64)
        if self.squares.ndim == 3:
            for gaussian, column in enumerate(weights.T):
                self._add(gaussian, wide, column)
            return
        self.counts += weights.sum(axis=0)
        self.sums += weights.T @ wide
        self.squares += weights.T @ (wide * wide)

    def _add(self, gaussian: int, rows: np.ndarray, weights: np.ndarray) -> None:
        weighted = rows * weights[:, None]
        self.counts[gaussian] += weights.sum()
        self.sums[gaussian] += weighted.sum(axis=0)
        full = self.squares.ndim == 3
        self.squares[gaussian] += weighted.T @ rows if full else (weighted * rows).sum(axis=0)

    def merge(self, other: GmmStats) -> None:
        """Add other statistics. Raises ShapeError: of other Gaussians."""
        mine, others = (self.sums.shape, self.flags), (other.sums.shape, other.flags)
        if mine != others:
            raise ShapeError(
                "statistics of {} Gaussians of dimension {} for the parameters {}".format(
                    *others[0], others[1]
                )
                + ", and {} of {} for {} before".format(*mine[0], mine[1])
            )
        self.counts += other.counts
        self.sums += other.sums
        self.squares += other.squares

    def write_to(self, writer: Writer) -> None:
        """Write them as Kaldi does."""
        count, dim = self.sums.shape
        full = self.squares.ndim == 3
        none = np.zeros((0, 0), np.float32)
        writer.write_token("<GMMACCS>")
        writer.write_token("<VECSIZE>")
        writer.write_int32(dim)
        writer.write_token("<NUMCOMPONENTS>")
        writer.write_int32(count)
        writer.write_token("<FLAGS>")
        writer.write_int(self.flags, 2, signed=False)
        writer.write_token("<OCCUPANCY>")
        writer.write_vector(self.counts.astype(np.float32))
        writer.write_token("<MEANACCS>")
        writer.write_matrix(self.sums.astype(np.float32) if self.flags & MEANS else none)
        if not full:
            writer.write_token("<DIAGVARACCS>")
            writer.write_matrix(self.squares.astype(np.float32) if self.flags & VARIANCES else none)
        elif self.flags & VARIANCES:
            # Files hold the scatter around the mean, which rounding to float32 would drown.
            writer.write_token("<FULLVARACCS>")
            for triangle in packed(self.squares - self._squares_of_means()).astype(np.float32):
                write_packed(writer, triangle)
        writer.write_token("</GMMACCS>")

    def _squares_of_means(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            shares = np.where(self.counts != 0, 1 / self.counts, 0.0)
        return shares[:, None, None] * self.sums[:, :, None] * self.sums[:, None, :]

    @classmethod
    def read(cls, reader: Reader, full: bool) -> GmmStats:
        """Read what Kaldi wrote.

        Raises:
            FormatError: it is damaged, or of the other kind of covariances.
        """
        start = reader.offset
        reader.expect_token("<GMMACCS>")
        reader.expect_token("<VECSIZE>")
        dim = reader.read_int32()
        reader.expect_token("<NUMCOMPONENTS>")
        count = reader.read_int32()
        reader.expect_token("<FLAGS>")
        flags = reader.read_int(2, signed=False)
        reader.expect_token("<OCCUPANCY>")
        counts = reader.read_vector(np.float64)
        if not 0 < dim < _MOST_DIM or not 0 < count == len(counts):
            raise reader.error(f"{len(counts)} counts of {count} Gaussians of {dim} columns", start)
        stats = cls.empty(count, dim, full, flags)
        stats.counts, stats.flags = counts, flags
        reader.expect_token("<MEANACCS>")
        if flags & MEANS:
            stats.sums = _checked(reader, reader.read_matrix(np.float64), (count, dim), start)
        else:
            _checked(reader, reader.read_matrix(np.float64), (0, 0), start)
        if not full:
            reader.expect_token("<DIAGVARACCS>")
            shape = (count, dim) if flags & VARIANCES else (0, 0)
            squares = _checked(reader, reader.read_matrix(np.float64), shape, start)
            stats.squares = squares if flags & VARIANCES else stats.squares
        elif flags & VARIANCES:
            reader.expect_token("<FULLVARACCS>")
            size = (dim * (dim + 1) // 2,)
            for gaussian in range(count):
                scatter = _checked(reader, read_packed(reader), size, start)
                stats.squares[gaussian] = unpacked(scatter)
            stats.squares += stats._squares_of_means()
        reader.expect_token("</GMMACCS>")
        return stats


def _checked(reader: Reader, values: np.ndarray, shape: tuple[int, ...], start: int) -> np.ndarray:
    if values.shape != shape:
        raise reader.error(f"sums {list(values.shape)} in place of {list(shape)}", start)
    return values


class GmmOptions(Protocol):
    """How a mixture is estimated."""

    @property
    def min_gaussian_weight(self) -> float: ...

    @property
    def min_gaussian_occupancy(self) -> float: ...

    @property
    def remove_low_count_gaussians(self) -> bool: ...

    def floored(self, variances: np.ndarray) -> tuple[np.ndarray, int]:
        """Variances that are large enough, and how many were not."""
        ...


@dataclass(frozen=True)
class DiagGmmOptions:
    """How a mixture with diagonal covariances is estimated, with Kaldi's names and defaults."""

    min_gaussian_weight: float = option(1e-5, "Least weight of a Gaussian, below it is removed")
    min_gaussian_occupancy: float = option(10.0, "Least count of a Gaussian that is updated")
    min_variance: float = option(0.001, "Least variance")
    remove_low_count_gaussians: bool = option(True, "Remove Gaussians that are too rare")

    def floored(self, variances: np.ndarray) -> tuple[np.ndarray, int]:
        low = int(np.count_nonzero(variances < self.min_variance))
        return np.maximum(variances, self.min_variance), low


@dataclass(frozen=True)
class FullGmmOptions:
    """How a mixture with full covariances is estimated, with Kaldi's names and defaults."""

    min_gaussian_weight: float = option(1e-5, "Least weight of a Gaussian, below it is removed")
    min_gaussian_occupancy: float = option(100.0, "Least count of a Gaussian that is updated")
    variance_floor: float = option(0.001, "Least eigenvalue of covariances")
    max_condition: float = option(1e4, "Greatest eigenvalue of a covariance over its least")
    remove_low_count_gaussians: bool = option(True, "Remove Gaussians that are too rare")

    def floored(self, variances: np.ndarray) -> tuple[np.ndarray, int]:
        values, vectors = np.linalg.eigh(variances)
        least = np.abs(values).max(axis=1, keepdims=True) / self.max_condition
        least = np.maximum(least, self.variance_floor).astype(np.float32)
        low = int(np.count_nonzero(values < least))
        scaled = vectors * np.maximum(values, least)[:, None, :]
        return scaled @ vectors.transpose(0, 2, 1), low


def estimated(
    gmm: Mixture, stats: GmmStats, options: GmmOptions, update: int
) -> tuple[Mixture, float]:
    """The mixture that fits statistics best, and what the log-likelihood of all frames gains.

    Args:
        update: the kinds of parameters that change.

    Raises:
        ShapeError: the statistics are of other Gaussians.
        FormatError: they were not made for all of `update`.
    """
    if stats.sums.shape != gmm.means.shape:
        raise ShapeError(
            "statistics of {} Gaussians of dimension {} for a mixture of {} of {}".format(
                *stats.sums.shape, *gmm.means.shape
            )
        )
    if update & ~stats.flags:
        raise FormatError("--update-flags names parameters that the statistics were not made for")
    old = gmm.moments
    number, total = len(stats.counts), float(stats.counts.sum())
    shares = stats.counts / total if total > 0 else np.full(number, 1 / number)
    enough = (stats.counts > np.float32(options.min_gaussian_occupancy)) & (
        shares > np.float32(options.min_gaussian_weight)
    )
    means, variances = old.means.copy(), old.variances.copy()
    # Counts that stand beside sums, and beside squares of any rank.
    counts = stats.counts[enough, None]
    if stats.flags & MEANS:
        means[enough] = stats.sums[enough] / counts
    if stats.flags & VARIANCES:
        full = isinstance(gmm, FullGmm)
        found = stats.squares[enough] / (counts[..., None] if full else counts)
        found -= _squares(means[enough], full)
        if not update & MEANS:  # around the mean that stays
            found += _squares(old.means[enough] - means[enough], full)
        variances[enough], low = options.floored(found)
        if low and full:
            warn(f"{low} variances floored.")
    rare = np.flatnonzero(~enough)
    removed = rare[: number - 1] if options.remove_low_count_gaussians else rare[:0]
    _tell(rare, removed, shares, stats.counts)
    weights = np.where(enough, shares, np.maximum(shares, options.min_gaussian_weight))
    weights[removed] = old.weights[removed]
    new = gmm.updated(Moments(weights, means, variances), update)
    used = [stats.counts]
    for flag, each in ((MEANS, stats.sums), (VARIANCES, stats.squares)):
        used.append(each if stats.flags & flag else np.empty(0))
    gain = new.objective(*used) - gmm.objective(*used)
    if len(removed):
        new = new.kept(np.setdiff1d(np.arange(number), removed))
    return new, gain


def _squares(vectors: np.ndarray, full: bool) -> np.ndarray:
    return vectors[:, :, None] * vectors[:, None, :] if full else vectors * vectors


def _tell(rare: np.ndarray, removed: np.ndarray, shares: np.ndarray, counts: np.ndarray) -> None:
    for gaussian in rare.tolist():
        what = f"weight {shares[gaussian]:.6g}, occupation count {counts[gaussian]:.6g}"
        if gaussian in removed:
            warn(f"Too little data - removing Gaussian ({what})")
        else:
            warn(f"Gaussian {gaussian} has too little data but is not removed ({what})")
