"""iVector extractors. Source: Kaldi's `ivector/ivector-extractor.cc`."""

from __future__ import annotations

import numpy as np

from ...framework.base.python.cached import cached_property
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.packed import dim_of, packed, read_packed, unpacked, write_packed
from .fixed_order import product
from .full_gmm import FullGmm
from .kaldi_random import KaldiRandom

_MOST_DIM = 2000  # of iVectors: a matrix of so many rows and columns is made
_PRIOR_OFFSET = 100.0  # of new extractors
_BLOCK = 64  # Gaussians whose products are whole matrices at once
_EXPANSIONS = 4  # of the log-likelihood of weights, each around the iVector before
_CHANGE = 0.1  # of the iVector, below which they end
_LOG_2_PI = float(np.log(2 * np.pi))


class IvectorExtractor:
    """What estimates iVectors from posteriors of Gaussians: a projection and a precision for each.

    What is derived of a Gaussian is computed when it is first wanted.

    Args:
        projections: float64, [Gaussians, feature dim, iVector dim].
        precisions: lower triangles of inverse covariances, float64, [Gaussians, ...].
        prior_offset: the mean of the prior, along the first dimension.
        weights: of the Gaussians, float64, [Gaussians].
        weight_projections: what gives logarithms of weights, less a constant, of an iVector:
            float64, [Gaussians, iVector dim]; there are no `weights` then. None: weights do not
            depend on the iVector.
    """

    def __init__(
        self,
        projections: np.ndarray,
        precisions: np.ndarray,
        prior_offset: float,
        weights: np.ndarray,
        weight_projections: np.ndarray | None = None,
    ) -> None:
        self.projections = projections
        self.precisions = precisions
        self.prior_offset = prior_offset
        self.weights = weights
        self.weight_projections = weight_projections
        self._linear: dict[int, np.ndarray] = {}
        self._quadratic: dict[int, np.ndarray] = {}

    @classmethod
    def of(
        cls, gmm: FullGmm, dim: int, random: KaldiRandom, use_weights: bool = False
    ) -> IvectorExtractor:
        """An extractor to train: random projections around the means of a mixture."""
        means = gmm.moments.means / _PRIOR_OFFSET
        projections = np.stack(
            [random.normal_matrix(gmm.dim, dim).astype(np.float64) for _ in means]
        )
        projections[:, :, 0] = means
        precisions = gmm.inverse_variances.astype(np.float64)
        if use_weights:
            none = np.zeros(0)
            slopes = np.zeros((len(means), dim))
            return cls(projections, precisions, _PRIOR_OFFSET, none, slopes)
        return cls(projections, precisions, _PRIOR_OFFSET, gmm.weights.astype(np.float64))

    @classmethod
    def read(cls, reader: Reader) -> IvectorExtractor:
        """Read Kaldi's `IvectorExtractor`, such as a `final.ie`.

        Raises:
            FormatError: the bytes are something else, shapes do not agree, or numbers are not
                finite.
        """
        start = reader.offset
        reader.expect_token("<IvectorExtractor>")
        reader.expect_token("<w>")
        slopes = reader.read_matrix(np.float64)
        reader.expect_token("<w_vec>")
        weights = reader.read_vector(np.float64)
        reader.expect_token("<M>")
        place = reader.offset
        count = reader.read_int32()
        if count < 1 or count != len(slopes) + len(weights) or (len(slopes) and len(weights)):
            known = f"{len(slopes) + len(weights)} weights"
            raise reader.error(f"{count} projections for {known}", place)
        projections = []
        shape = None
        for _ in range(count):
            place = reader.offset
            matrix = reader.read_matrix(np.float64)
            if matrix.shape[1] > _MOST_DIM:
                raise reader.error(
                    f"iVectors of {matrix.shape[1]} elements: at most {_MOST_DIM} are read", place
                )
            if 0 in matrix.shape or (shape or matrix.shape) != matrix.shape:
                raise reader.error(f"a projection {list(matrix.shape)} after {shape}", place)
            shape = matrix.shape
            projections.append(matrix)
        if len(slopes) and slopes.shape[1] != projections[0].shape[1]:
            raise reader.error(f"weights of iVectors of {slopes.shape[1]} elements", start)
        reader.expect_token("<SigmaInv>")
        precisions = []
        for matrix in projections:
            place = reader.offset
            triangle = read_packed(reader)
            if dim_of(triangle) != len(matrix):
                raise reader.error(
                    f"a covariance of {dim_of(triangle)} rows for {len(matrix)} columns", place
                )
            precisions.append(triangle)
        reader.expect_token("<IvectorOffset>")
        place = reader.offset
        offset = reader.read_double()
        reader.expect_token("</IvectorExtractor>")
        extractor = cls(
            np.stack(projections),
            np.stack(precisions),
            offset,
            weights,
            slopes if len(slopes) else None,
        )
        numbers = extractor.projections, extractor.precisions, offset, slopes, weights
        if not all(np.isfinite(each).all() for each in numbers):
            raise reader.error("numbers of the extractor are not finite", start)
        return extractor

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        slopes = self.weight_projections
        writer.write_token("<IvectorExtractor>")
        writer.write_token("<w>")
        writer.write_matrix(np.zeros((0, 0)) if slopes is None else slopes)
        writer.write_token("<w_vec>")
        writer.write_vector(self.weights)
        writer.write_token("<M>")
        writer.write_int32(len(self.projections))
        for matrix in self.projections:
            writer.write_matrix(matrix)
        writer.write_token("<SigmaInv>")
        for triangle in self.precisions:
            write_packed(writer, triangle)
        writer.write_token("<IvectorOffset>")
        writer.write_double(self.prior_offset)
        writer.write_token("</IvectorExtractor>")

    @property
    def feature_dim(self) -> int:
        """Columns of the features."""
        return self.projections.shape[1]

    @property
    def dim(self) -> int:
        """Elements of an iVector."""
        return self.projections.shape[2]

    def linear(self, gaussian: int) -> np.ndarray:
        """The inverse covariance times the projection: float64, [feature dim, dim]."""
        found = self._linear.get(gaussian)
        if found is None:
            found = product(unpacked(self.precisions[gaussian]), self.projections[gaussian])
            self._linear[gaussian] = found
        return found

    def quadratic(self, gaussian: int) -> np.ndarray:
        """The projection's transpose times `linear`: a lower triangle, float64."""
        found = self._quadratic.get(gaussian)
        if found is None:
            found = packed(product(self.projections[gaussian].T, self.linear(gaussian)))
            self._quadratic[gaussian] = found
        return found

    # Of whole utterances, by all Gaussians at once: BLAS adds up in an order of its own, which
    # `linear` and `quadratic` must not.

    @cached_property
    def wide_precisions(self) -> np.ndarray:
        """Inverse covariances: float64, [Gaussians, feature dim, feature dim]."""
        return unpacked(self.precisions)

    @cached_property
    def _determinants(self) -> np.ndarray:
        """Logarithms of the determinants of inverse covariances: [Gaussians]."""
        return np.linalg.slogdet(self.wide_precisions)[1]

    @cached_property
    def linears(self) -> np.ndarray:
        """`linear` of all Gaussians: [Gaussians, feature dim, dim]."""
        return self.wide_precisions @ self.projections

    @cached_property
    def quadratics(self) -> np.ndarray:
        """`quadratic` of all Gaussians: [Gaussians, dim * (dim + 1) / 2]."""
        blocks = range(0, len(self.projections), _BLOCK)
        parts = [slice(begin, begin + _BLOCK) for begin in blocks]
        transposed = self.projections.transpose(0, 2, 1)
        return np.concatenate([packed(transposed[part] @ self.linears[part]) for part in parts])

    def terms(self, counts: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What features say of iVectors, as a linear and a quadratic term.

        Args:
            counts: of frames, by Gaussian, [utterances, Gaussians].
            sums: of features, [utterances, Gaussians, feature dim].

        Returns:
            [utterances, dim] and lower triangles, [utterances, dim * (dim + 1) / 2].
        """
        count = len(counts)
        linear = sums.reshape(count, -1) @ self.linears.reshape(-1, self.dim)
        return linear, counts @ self.quadratics

    def distribution(
        self, counts: np.ndarray, terms: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariances of iVectors of utterances, with the offset of the prior.

        Args:
            counts: see `terms`. terms: what that gives for them.

        Returns:
            [utterances, dim] and [utterances, dim, dim].
        """
        linear, triangles = terms[0].copy(), terms[1]
        linear[:, 0] += self.prior_offset
        quadratic = unpacked(triangles) + np.eye(self.dim)
        if self.weight_projections is None:
            covariances = np.linalg.inv(quadratic)
            return np.matmul(covariances, linear[..., None])[..., 0], covariances
        found = [self._expanded(*each) for each in zip(counts, linear, quadratic, strict=True)]
        return np.stack([mean for mean, _ in found]), np.stack([each for _, each in found])

    def _expanded(
        self, counts: np.ndarray, linear: np.ndarray, quadratic: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One iVector whose weights depend on it, by expansions around the ones before."""
        slopes = self.weight_projections
        assert slopes is not None
        covariance = _inverse(quadratic)
        mean = covariance @ linear
        for _ in range(_EXPANSIONS):
            slope, bend = self.weight_terms(counts, mean[None])
            covariance = _inverse(quadratic + (slopes.T * bend[0]) @ slopes)
            before, mean = mean, covariance @ (linear + slope[0] @ slopes)
            if np.linalg.norm(mean - before) < _CHANGE:
                break
        return mean, covariance

    def weight_terms(
        self, counts: np.ndarray, ivectors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The linear and the quadratic coefficient of each Gaussian, in the expansion of the
        log-likelihood of weights around iVectors, [some, dim]: [some, Gaussians] each."""
        assert self.weight_projections is not None
        logits = ivectors @ self.weight_projections.T
        expected = counts.sum() * _softmax(logits)
        bend = np.maximum(counts, expected)
        return counts - expected + bend * logits, bend

    def objective(
        self,
        counts: np.ndarray,
        sums: np.ndarray,
        terms: tuple[np.ndarray, np.ndarray],
        ivectors: np.ndarray,
        covariances: np.ndarray | None = None,
        scatter: np.ndarray | None = None,
    ) -> np.ndarray:
        """The log-likelihood of utterances whose iVectors are known, or have a distribution.

        Args:
            counts, sums: see `terms`. terms: what that gives for them.
            ivectors: [utterances, dim]. covariances: [utterances, dim, dim]; None: no such.
            scatter: the squares of features times the inverse covariances, summed, [utterances];
                None: as the covariances have it.

        Returns:
            [utterances].
        """
        linear, quadratic = terms[0], unpacked(terms[1])
        if scatter is None:
            scatter = self._own_scatter(counts, sums)
        total = 0.5 * counts @ (self._determinants - self.feature_dim * _LOG_2_PI) - 0.5 * scatter
        total += self._log_weights(counts, ivectors, covariances)
        bent = np.matmul(quadratic, ivectors[..., None])[..., 0]
        total += (ivectors * (linear - 0.5 * bent)).sum(axis=1)
        offsets = ivectors.copy()
        offsets[:, 0] -= self.prior_offset
        total -= 0.5 * (offsets * offsets).sum(axis=1)
        if covariances is None:
            return total - 0.5 * self.dim * _LOG_2_PI
        total -= 0.5 * (covariances * quadratic).sum(axis=(1, 2))
        traces = np.trace(covariances, axis1=1, axis2=2)
        return total - 0.5 * (traces - self.dim - np.linalg.slogdet(covariances)[1])

    def _own_scatter(self, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """The scatter of features with these means, and the extractor's covariances."""
        shares = np.divide(1, counts, out=np.zeros_like(counts), where=counts > 0)
        scaled = np.matmul(sums.transpose(1, 0, 2), self.wide_precisions).transpose(1, 0, 2)
        means = (shares * (scaled * sums).sum(axis=2)).sum(axis=1)
        return means + self.feature_dim * counts.sum(axis=1)

    def _log_weights(
        self, counts: np.ndarray, ivectors: np.ndarray, covariances: np.ndarray | None
    ) -> np.ndarray:
        """The part of the objective that weights give."""
        slopes = self.weight_projections
        if slopes is None:
            seen = self.weights > 0
            return counts[:, seen] @ np.log(self.weights[seen])
        logits = ivectors @ slopes.T
        weights = _softmax(logits)
        top = logits.max(axis=1, keepdims=True)
        totals = top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        found = (counts * (logits - totals)).sum(axis=1)
        if covariances is not None:
            for row, (count, weight) in enumerate(zip(counts, weights, strict=True)):
                # Kaldi adds the mean slope where the derivative has it subtracted.
                derivative = slopes + np.outer(weight, weight @ slopes)
                curved = derivative.T @ (derivative * count[:, None])
                found[row] -= 0.5 * np.vdot(curved, covariances[row])
        return found


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a matrix whose eigenvalues are 1 and more, but for rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.maximum(values, 1.0)) @ vectors.T


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
