"""The estimate of an iVector from what was heard so far.

Source: Kaldi's `OnlineIvectorEstimationStats` in `ivector/ivector-extractor.cc`, `LinearCgd` in
`matrix/optimization.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import bind
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.packed import dim_of, read_packed, unpacked, write_packed
from .extractor import IvectorExtractor
from .fixed_order import applied, dot, product, products

_RECOMPUTED = 1e-4  # how far the squared residual moves before it is computed anew
_TINY = float(np.finfo(np.float64).tiny)
_CONDITION = 1e4


class IvectorStats:
    """The terms of the quadratic function whose maximum is the iVector.

    Args:
        dim: of the iVector. prior_offset: of the extractor.
        max_count: of frames, scaled, beyond which the prior grows with them; 0.0: it never does.
    """

    def __init__(self, dim: int, prior_offset: float, max_count: float) -> None:
        self.prior_offset = prior_offset
        self.max_count = max_count
        self.count = 0.0
        self.linear = np.zeros(dim)
        self.linear[0] = prior_offset
        self.quadratic = np.zeros(dim * (dim + 1) // 2)
        self._diagonal = np.arange(dim) * (np.arange(dim) + 3) // 2
        self.quadratic[self._diagonal] = 1.0

    def copy(self) -> IvectorStats:
        """The same, which changes alone."""
        copied = IvectorStats(len(self.linear), self.prior_offset, self.max_count)
        copied.count = self.count
        copied.linear = self.linear.copy()
        copied.quadratic = self.quadratic.copy()
        return copied

    def add(
        self,
        extractor: IvectorExtractor,
        features: np.ndarray,
        gaussians: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        """Add frames.

        Args:
            features: [frames, feature dim]. gaussians: their numbers, [frames, some].
            weights: of the Gaussians, scaled posteriors, [frames, some]; 0.0: none.
        """
        frames, columns = np.nonzero(weights)
        if not len(frames):
            return
        known, which = np.unique(gaussians[frames, columns], return_inverse=True)
        by_gaussian = np.zeros((len(known), len(features)))
        np.add.at(by_gaussian, (which, frames), weights[frames, columns])
        sums = product(by_gaussian, features.astype(np.float64))
        totals = by_gaussian.sum(axis=1)
        numbers = known.tolist()
        linear = np.stack([extractor.linear(gaussian) for gaussian in numbers], axis=1)
        rows = zip(numbers, products(sums, linear), totals.tolist(), strict=True)
        for gaussian, row, total in rows:
            self.linear += row
            self.quadratic += total * extractor.quadratic(gaussian)
        self.count_more(float(totals.sum()))

    def count_more(self, added: float) -> None:
        """Count frames whose terms were added, by their weights; the prior grows with them."""
        self._scale_prior(self._prior_scale(self.count), self._prior_scale(self.count + added))
        self.count += added

    def _prior_scale(self, count: float) -> float:
        return max(count, self.max_count) / self.max_count if self.max_count > 0 else 1.0

    def _scale_prior(self, old: float, new: float) -> None:
        if new != old:
            self.linear[0] += self.prior_offset * (new - old)
            self.quadratic[self._diagonal] += new - old

    def scale(self, factor: float) -> None:
        """Let what was heard count for less, by a factor from 0 to 1."""
        old = factor * self._prior_scale(self.count)
        self.count *= factor
        self.linear *= factor
        self.quadratic *= factor
        self._scale_prior(old, self._prior_scale(self.count))

    def ivector(self, start: np.ndarray, iterations: int) -> np.ndarray:
        """The iVector, float64, [dim], by conjugate gradients from `start` on.

        Args:
            iterations: at most.
        """
        if self.count <= 0:
            default = np.zeros(len(self.linear))
            default[0] = self.prior_offset
            return default
        begin = start.copy()
        if begin[0] == 0.0:
            begin[0] = self.prior_offset
        return conjugate_gradients(unpacked(self.quadratic), self.linear, begin, iterations)

    def improvement(self, ivector: np.ndarray) -> float:
        """What the objective function gains a frame by an iVector over the default one."""
        if self.count == 0:
            return 0.0
        offset = self.prior_offset
        whole = float(self.linear @ ivector - 0.5 * ivector @ unpacked(self.quadratic) @ ivector)
        default = float(self.linear[0] * offset - 0.5 * self.quadratic[0] * offset * offset)
        return (whole - default) / self.count

    def write(self, writer: Writer) -> None:
        """Write them as Kaldi does."""
        writer.write_token("<OnlineIvectorEstimationStats>")
        for token, value in (
            ("<PriorOffset>", self.prior_offset),
            ("<MaxCount>", self.max_count),
            ("<NumFrames>", self.count),
        ):
            writer.write_token(token)
            writer.write_double(value)
        writer.write_token("<QuadraticTerm>")
        write_packed(writer, self.quadratic)
        writer.write_token("<LinearTerm>")
        writer.write_vector(self.linear)
        writer.write_token("</OnlineIvectorEstimationStats>")

    @classmethod
    def read(cls, reader: Reader) -> IvectorStats:
        """Read what Kaldi wrote.

        Raises:
            FormatError: the bytes are something else, or shapes do not agree.
        """
        start = reader.offset
        reader.expect_token("<OnlineIvectorEstimationStats>")
        reader.expect_token("<PriorOffset>")
        offset = reader.read_double()
        most = 0.0
        if reader.expect_token("<MaxCount>", "<NumFrames>") == "<MaxCount>":
            most = reader.read_double()
            reader.expect_token("<NumFrames>")
        count = reader.read_double()
        reader.expect_token("<QuadraticTerm>")
        quadratic = read_packed(reader)
        reader.expect_token("<LinearTerm>")
        linear = reader.read_vector(np.float64)
        reader.expect_token("</OnlineIvectorEstimationStats>")
        if not linear.size or dim_of(quadratic) != len(linear):
            raise reader.error(
                f"a quadratic term of {dim_of(quadratic)} rows and a linear one of {len(linear)}",
                start,
            )
        stats = cls(len(linear), offset, most)
        stats.count = count
        stats.linear = linear
        stats.quadratic = quadratic
        if not all(np.isfinite(each).all() for each in (linear, quadratic, count, offset, most)):
            raise reader.error("statistics that are not finite", start)
        return stats


def conjugate_gradients(
    matrix: np.ndarray, vector: np.ndarray, start: np.ndarray, iterations: int
) -> np.ndarray:
    """A solution x of `matrix @ x = vector`, as far as some steps lead from `start`.

    Args:
        matrix: positive definite, float64, [dim, dim].
    """
    dim = len(vector)
    steps = min(iterations, dim + 5) if iterations >= 0 else dim + 5
    library = native.load("ivectors")
    if library is None:
        solution = stepped(matrix, vector, start, steps)
    else:
        solution = start.copy()
        block = bind(
            library,
            "conjugate_gradients",
            dim=dim,
            iterations=steps,
            matrix=matrix,
            vector=vector,
            solution=solution,
            memory=np.empty((4, dim)),
            recomputed=_RECOMPUTED,
            tiny=_TINY,
        )
        block.run()
        solution = solution if block.struct.solved else None
    return exactly(matrix, vector, start) if solution is None else solution


def stepped(
    matrix: np.ndarray, vector: np.ndarray, start: np.ndarray, iterations: int
) -> np.ndarray | None:
    """What `conjugate_gradients` does in C; None: the residual has grown."""
    solution = start.copy()
    direction = vector - applied(matrix, solution)
    residual = -direction
    norm = first = checked = dot(residual, residual)
    for _ in range(iterations):
        moved = applied(matrix, direction)
        curvature = dot(direction, moved)
        if curvature == 0.0:  # there is nothing left to gain
            break
        step = -dot(direction, residual) / curvature
        solution += step * direction
        residual += step * moved
        after = dot(residual, residual)
        if after < _RECOMPUTED * checked or after > checked / _RECOMPUTED:
            residual = applied(matrix, solution) - vector
            after = checked = dot(residual, residual)
        if after <= _TINY:
            break
        direction *= after / norm
        direction -= residual
        norm = after
    if norm > first and norm > first + 1e-10 * dot(vector, vector):
        return None
    return solution


def exactly(matrix: np.ndarray, vector: np.ndarray, start: np.ndarray) -> np.ndarray:
    """A solution by eigenvalues, which small ones are floored of; `start` if that is no better."""
    if not (np.isfinite(matrix).all() and np.isfinite(vector).all()):
        return np.full_like(start, np.nan)  # there is none; who reads the features says so
    values, vectors = np.linalg.eigh(matrix)
    floored = np.maximum(values, max(float(values.max()) / _CONDITION, _TINY))
    solution = start + vectors @ ((vectors.T @ (vector - matrix @ start)) / floored)

    def objective(x: np.ndarray) -> float:
        return float(vector @ x - 0.5 * x @ matrix @ x)

    return solution if objective(solution) >= objective(start) else start.copy()
