"""Statistics for LDA, and the transform of a network's input that is made of them.

The transform diagonalizes the within-class covariance, orders directions by how far they tell
classes apart, and scales the less telling ones down ("preconditioning" of the input).

Source: Kaldi's `transform/lda-estimate.cc`, `nnet2/get-feature-transform.cc`,
`nnet3bin/nnet3-acc-lda-stats.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import AttributeTypeError, FormatError, ShapeError
from ...framework.base.options.option_fields import option
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.packed import packed, read_packed, unpacked, write_packed
from ...kaldi.files.sparse import to_dense
from ..cache.computers import ComputerCache
from ..chain.examples import NnetChainExample
from ..chain.numerator import numerator
from ..files.examples import NnetExample
from ..graph.request import ComputationRequest, IoSpecification
from ..network.nnet import Nnet
from .example_request import example_request
from .progress import Log, number


@dataclass
class LdaStats:
    """Sums over vectors x with their classes: float64.

    Attributes:
        counts: weights of the classes, [C]. sums: of x, by class, [C, D]. squares: of x x', [D, D].
    """

    counts: np.ndarray = field(default_factory=lambda: np.zeros(0))
    sums: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    squares: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def total(self) -> float:
        """The weight of all vectors."""
        return float(self.counts.sum())

    def accumulate(self, x: np.ndarray, weights: np.ndarray) -> None:
        """Add vectors [N, D] with their weights for all classes, [N, C].

        Raises:
            ShapeError: other dimensions than before.
        """
        x, weights = x.astype(np.float64), weights.astype(np.float64)
        classes, dim = weights.shape[1], x.shape[1]
        if not self.counts.size:
            self.counts = np.zeros(classes)
            self.sums = np.zeros((classes, dim))
            self.squares = np.zeros((dim, dim))
        if (classes, dim) != self.sums.shape:
            raise ShapeError(
                f"{classes} classes of dimension {dim}, and {self.sums.shape[0]} of"
                f" {self.sums.shape[1]} before"
            )
        self.counts += weights.sum(axis=0)
        self.sums += weights.T @ x
        self.squares += (x * weights.sum(axis=1)[:, None]).T @ x

    def add(self, other: LdaStats) -> None:
        """Add other statistics. Raises ShapeError: of other dimensions."""
        if not self.counts.size:
            self.counts = other.counts.copy()
            self.sums = other.sums.copy()
            self.squares = other.squares.copy()
            return
        if self.sums.shape != other.sums.shape:
            raise ShapeError(f"statistics of {self.sums.shape} and {other.sums.shape}")
        self.counts += other.counts
        self.sums += other.sums
        self.squares += other.squares

    def covariances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Total and between-class covariance, [D, D], and the mean, [D].

        Raises:
            ShapeError: there is nothing in the statistics.
        """
        if not self.total:
            raise ShapeError("the statistics for LDA are empty")
        mean = self.sums.sum(axis=0) / self.total
        total = self.squares / self.total - np.outer(mean, mean)
        seen = self.counts != 0
        means = self.sums[seen] / self.counts[seen, None]
        between = (means * (self.counts[seen, None] / self.total)).T @ means - np.outer(mean, mean)
        return total, between, mean

    # Files hold the squares minus the squares of the class means, in float32.

    def write(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        classes, dim = self.sums.shape
        writer.write_token("<LDAACCS>")
        writer.write_token("<VECSIZE>")
        writer.write_int32(dim)
        writer.write_token("<NUMCLASSES>")
        writer.write_int32(classes)
        writer.write_token("<ZERO_ACCS>")
        writer.write_vector(self.counts.astype(np.float32))
        writer.write_token("<FIRST_ACCS>")
        writer.write_matrix(self.sums.astype(np.float32))
        writer.write_token("<SECOND_ACCS>")
        within = self.squares - _class_squares(self.counts, self.sums)
        write_packed(writer, packed(within).astype(np.float32))
        writer.write_token("</LDAACCS>")

    @classmethod
    def read(cls, reader: Reader) -> LdaStats:
        """Read what Kaldi's `acc-lda` or `nnet3-acc-lda-stats` wrote.

        Raises:
            FormatError: it is damaged.
        """
        reader.expect_token("<LDAACCS>")
        reader.expect_token("<VECSIZE>")
        start = reader.offset
        dim = reader.read_int32()
        reader.expect_token("<NUMCLASSES>")
        classes = reader.read_int32()
        reader.expect_token("<ZERO_ACCS>")
        counts = reader.read_vector(np.float32).astype(np.float64)
        reader.expect_token("<FIRST_ACCS>")
        sums = reader.read_matrix(np.float32).astype(np.float64)
        reader.expect_token("<SECOND_ACCS>")
        within = unpacked(read_packed(reader))
        reader.expect_token("</LDAACCS>")
        if (counts.shape, sums.shape, within.shape) != ((classes,), (classes, dim), (dim, dim)):
            raise reader.error(f"no statistics of {classes} classes of dimension {dim}", start)
        return cls(counts, sums, within + _class_squares(counts, sums))


def _class_squares(counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    seen = counts != 0
    return (sums[seen] / counts[seen, None]).T @ sums[seen]


class LdaAccumulator:
    """Statistics of the output of a network, by the classes in the examples.

    Args:
        rand_prune: weights below this are set to it with so high a probability that they stay the
            same on average, else to 0; this saves time with soft classes.
    """

    def __init__(self, nnet: Nnet, rand_prune: float = 0.0, seed: int = 0) -> None:
        self.nnet = nnet
        self.rand_prune = rand_prune
        self.stats = LdaStats()
        self._rng = np.random.default_rng(seed)
        self._cache = ComputerCache(nnet)

    def accumulate(self, example: NnetExample) -> None:
        """Add an example.

        Raises:
            FormatError, ShapeError: it does not fit the network, or has no `output`.
        """
        classes = next((io for io in example.io if io.name == "output"), None)
        if classes is None:
            raise FormatError("the example has no 'output'")
        inputs = {node.name for node in self.nnet.inputs()}
        request = example_request(self.nnet, _without_width(example, self.nnet))
        computer = self._cache.computer(request)
        for io in example.io:
            if io.name in inputs:
                computer.accept_input(io.name, to_dense(io.features))
        computer.run()
        self._add(computer.get_output("output"), to_dense(classes.features))

    def accumulate_chain(self, example: NnetChainExample) -> None:
        """Add a chain example: its classes are the posteriors of the supervision's paths, or in
        end-to-end supervision its alignment.

        Raises:
            FormatError, ShapeError: it does not fit the network, is merged, or has other outputs
                than one `output`.
        """
        if len(example.outputs) != 1 or example.outputs[0].name != "output":
            raise FormatError("the example wants one output, called 'output'")
        supervision = example.outputs[0].supervision
        if supervision.num_sequences != 1:
            raise ShapeError("statistics for LDA are made of examples that are not merged")
        shape = supervision.rows, supervision.label_dim
        if supervision.fst is not None:
            _, weights = numerator(supervision, np.zeros(shape, np.float32))
        else:
            weights = np.zeros(shape, np.float32)
            if len(supervision.alignment_pdfs) != supervision.rows:
                raise FormatError("end-to-end supervision without an alignment has no classes")
            weights[np.arange(supervision.rows), supervision.alignment_pdfs] = 1.0
        request = ComputationRequest()
        for io in example.inputs:
            if not io.name.startswith("__"):
                request.inputs.append(IoSpecification(io.name, io.indexes, False))
        request.outputs.append(IoSpecification("output", example.outputs[0].indexes, False))
        computer = self._cache.computer(request)
        for io in example.inputs:
            if not io.name.startswith("__"):
                computer.accept_input(io.name, to_dense(io.features))
        computer.run()
        self._add(computer.get_output("output"), weights)

    def _add(self, output: np.ndarray, weights: np.ndarray) -> None:
        if self.rand_prune > 0:
            small = np.abs(weights) < self.rand_prune
            kept = self._rng.random(weights.shape) * self.rand_prune < np.abs(weights)
            pruned = np.where(kept, np.sign(weights) * self.rand_prune, 0.0)
            weights = np.where(small, pruned, weights)
        self.stats.accumulate(output, weights)


def _without_width(example: NnetExample, nnet: Nnet) -> NnetExample:
    """The example with an output as wide as the network's, which is a transform of the input."""
    from ..files.examples import NnetIo

    dim = nnet.output_dim("output")
    return NnetExample(
        [
            NnetIo(io.name, io.indexes, np.zeros((len(io.indexes), dim), np.float32))
            if io.name == "output"
            else io
            for io in example.io
        ]
    )


@dataclass(frozen=True)
class TransformOptions:
    """How a transform is made.

    Attributes:
        within_class_factor: variance within classes that telling directions are given, in place of
            1, relative to that between classes.
    """

    remove_offset: bool = option(True, "Append a column that takes the mean to 0")
    dim: int = option(-1, "Dimension of the result; -1 = the input's")
    within_class_factor: float = option(0.001, "Variance within classes in telling dimensions")
    max_singular_value: float = option(
        5.0, "If above 0, the largest singular value of the transform"
    )

    def __post_init__(self) -> None:
        if not 0 <= self.within_class_factor < np.inf:
            raise AttributeTypeError(
                f"within-class-factor is a number from 0 on, not {self.within_class_factor}"
            )


def within_cholesky(stats: LdaStats, log: Log) -> np.ndarray:
    """The Cholesky factor of the within-class covariance, a little smoothed where it has none."""
    total, between, _ = stats.covariances()
    within = total - between
    try:
        return np.linalg.cholesky(within)
    except np.linalg.LinAlgError:
        smooth = 1e-3 * np.trace(within) / len(within)
        log(
            f"Cholesky failed (possibly not +ve definite), so adding {number(smooth)} to diagonal"
            " and trying again."
        )
        try:
            return np.linalg.cholesky(within + smooth * np.eye(len(within)))
        except np.linalg.LinAlgError:
            raise ShapeError("the within-class covariance is not positive definite") from None


def feature_transform(stats: LdaStats, options: TransformOptions, log: Log) -> np.ndarray:
    """The transform of the input of a network, float32, [dim, D] or [dim, D+1].

    Raises:
        ShapeError: there are no statistics, or fewer columns than wanted rows, or they are too
            large.
    """
    _, between, mean = stats.covariances()
    size = len(mean)
    dim = options.dim if options.dim > 0 else size
    if dim > size:
        raise ShapeError(f"a transform to {dim} dimensions, but the input has {size}")
    log(f"Data count is {number(stats.total)}")
    with np.errstate(over="ignore", invalid="ignore"):
        whiten = np.linalg.inv(within_cholesky(stats, log))
        ratio = whiten @ between @ whiten.T
    if not np.isfinite(ratio).all():
        raise ShapeError("the covariances of the statistics are too large, or are not numbers")
    u, values, _ = np.linalg.svd(ratio)
    log(f"LDA singular values are  [ {' '.join(map(number, values.tolist()))} ]")
    log(f"Sum of all singular values is {number(values.sum())}")
    log(f"Sum of selected singular values is {number(values[:dim].sum())}")
    transform = (u.T @ whiten)[:dim]
    if options.within_class_factor != 1:
        variances = (options.within_class_factor + values) / (1.0 + values)
        transform *= np.sqrt(variances[:dim, None])
    if options.max_singular_value > 0:
        left, s, right = np.linalg.svd(transform, full_matrices=False)
        high = s > options.max_singular_value
        if high.any():
            log(
                f"Applied ceiling to {high.sum()} out of {len(s)} singular values of transform"
                f" using ceiling {number(options.max_singular_value)}, max is {number(s.max())}"
            )
            transform = (left * np.minimum(s, options.max_singular_value)) @ right
    if options.remove_offset:
        transform = np.column_stack((transform, -transform @ mean))
    return transform.astype(np.float32)
