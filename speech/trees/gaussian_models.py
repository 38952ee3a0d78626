"""Acoustic models of Gaussian mixtures: their file, and how they begin.

Source: Kaldi's `gmm/am-diag-gmm.cc`, `gmm/diag-gmm.cc`, `gmmbin/gmm-init-mono.cc`,
`gmmbin/gmm-init-model.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.python.cached import cached_property
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel
from ..ivector.gmm import DiagGmm
from ..ivector.kaldi_random import KaldiRandom
from .gaussians import sums_by
from .statistics import TreeStats, leaves

_FRAMES = 128
"""Frames that are computed at once: all Gaussians of a large model are some ten thousand."""


@dataclass(frozen=True)
class GaussianModel:
    """A transition model, and a mixture of Gaussians for each of its outputs."""

    transitions: TransitionModel
    mixtures: list[DiagGmm]

    @classmethod
    def read(cls, reader: Reader) -> GaussianModel:
        """Read Kaldi's acoustic model, such as a `final.mdl` of `steps/train_mono.sh`.

        Raises:
            FormatError: it is damaged, has a network in place of Gaussians, or not a mixture for
                each output.
        """
        transitions = TransitionModel.read_from(reader)
        start = reader.offset
        reader.expect_token("<DIMENSION>")
        dim = reader.read_int32()
        reader.expect_token("<NUMPDFS>")
        count = reader.read_int32()
        reader.check_left(count, "mixtures")
        mixtures = [DiagGmm.read(reader) for _ in range(count)]
        if any(mixture.dim != dim for mixture in mixtures):
            raise reader.error(f"a mixture of another dimension than {dim}", start)
        outputs = transitions.transitions().num_pdfs
        if count < max(outputs, 1):
            raise reader.error(f"{count} mixtures for {outputs} outputs", start)
        return cls(transitions, mixtures)

    @cached_property
    def _all(self) -> tuple[DiagGmm, np.ndarray]:
        """All Gaussians as one mixture, and the first one of each output."""
        columns = ("weights", "means", "inverse_variances")
        joint = (np.concatenate([getattr(m, name) for m in self.mixtures]) for name in columns)
        sizes = [len(mixture.weights) for mixture in self.mixtures]
        return DiagGmm.of(*joint), np.cumsum([0, *sizes[:-1]])

    def log_likelihoods(self, features: np.ndarray, prune: float = 0.0) -> np.ndarray:
        """The log-likelihood of each frame and output: float32, [frames, outputs].

        Args:
            features: float32, [frames, columns].
            prune: Gaussians that are so far below the best one of an output do not count; 0: all
                count.

        Raises:
            ShapeError: features are of another dimension.
        """
        gaussians, first = self._all
        sizes = np.diff([*first, len(gaussians.weights)])
        found = np.empty((len(features), len(first)), np.float32)
        for begin in range(0, len(features), _FRAMES):
            block = gaussians.log_likelihoods(features[begin : begin + _FRAMES])
            best = np.maximum.reduceat(block, first, axis=1)
            below = block - np.repeat(best, sizes, axis=1)
            parts = np.exp(below)
            if prune > 0:
                parts[below < -prune] = 0
            found[begin : begin + _FRAMES] = best + np.log(np.add.reduceat(parts, first, axis=1))
        return found

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        self.transitions.write_to(writer)
        writer.write_token("<DIMENSION>")
        writer.write_int32(self.mixtures[0].dim)
        writer.write_token("<NUMPDFS>")
        writer.write_int32(len(self.mixtures))
        for mixture in self.mixtures:
            mixture.write_to(writer)


def single(mean: np.ndarray, inverse_variance: np.ndarray) -> DiagGmm:
    """A mixture of one Gaussian, in single precision."""
    inverse = inverse_variance.astype(np.float32)[None]
    return DiagGmm.of(np.ones(1, np.float32), mean.astype(np.float32) * inverse, inverse)


def of_features(matrices: Iterable[np.ndarray], dim: int) -> DiagGmm:
    """A Gaussian of all frames.

    Raises:
        FormatError: there are none, or a column never changes. ShapeError: of another dimension.
    """
    frames = 0
    total, squares = np.zeros(dim), np.zeros(dim)
    for matrix in matrices:
        if matrix.shape[1] != dim:
            raise ShapeError(f"features of {matrix.shape[1]} columns, but the model wants {dim}")
        wide = matrix.astype(np.float64)
        frames += len(wide)
        total += wide.sum(axis=0)
        squares += (wide * wide).sum(axis=0)
    if not frames:
        raise FormatError("no features were seen")
    mean = total / frames
    variance = squares / frames - mean * mean
    if not variance.min() > 0:
        raise FormatError(f"column {int(variance.argmin())} of the features never changes")
    return single(mean, 1 / variance)


def perturbed(gmm: DiagGmm, factor: float, random: KaldiRandom) -> DiagGmm:
    """Gaussians whose means are moved at random, by this factor of the deviation on average."""
    shift = random.normals(gmm.means.size)
    means = gmm.means + np.float32(factor) * (
        shift.reshape(gmm.means.shape) * np.sqrt(gmm.inverse_variances)
    )
    return DiagGmm.of(gmm.weights, means, gmm.inverse_variances)


def of_statistics(row: np.ndarray, floor: float) -> DiagGmm:
    """A Gaussian of statistics, computed in single precision as Kaldi does.

    Args:
        row: [1 + 2 * dim]: see `gaussians`. floor: least variance.
    """
    dim = len(row) // 2
    scale = np.float32(1.0 / np.float64(np.float32(row[0])))
    mean = row[1 : 1 + dim].astype(np.float32) * scale
    variance = row[1 + dim :].astype(np.float32) * scale - mean * mean
    return single(mean, np.float32(1) / np.maximum(variance, np.float32(floor)))


def of_leaves(tree: ContextDependency, stats: TreeStats, floor: float) -> list[DiagGmm]:
    """A Gaussian for each output of a tree; of all statistics where it has none."""
    rows = sums_by(leaves(tree.tree, stats), stats.rows, tree.num_pdfs)
    average = of_statistics(rows.sum(axis=0), floor)
    return [of_statistics(row, floor) if row[0] > 0 else average for row in rows]


def of_old_model(
    tree: ContextDependency,
    stats: TreeStats,
    floor: float,
    old_tree: ContextDependency,
    old: list[DiagGmm],
) -> list[DiagGmm]:
    """The mixture of an old model that has most frames in common with each output of a new tree.

    Raises:
        FormatError: the old tree looks at phones that the new one does not, or has more outputs
            than the old model.
    """
    if old_tree.width > tree.width:
        raise FormatError(
            f"the old tree has a window of {old_tree.width} phones, the new one {tree.width}"
        )
    if old_tree.num_pdfs > len(old):
        raise FormatError(f"{old_tree.num_pdfs} outputs in the old tree, {len(old)} in its model")
    moved = stats.shifted(old_tree.central - tree.central, tree.width, old_tree.width)
    common = np.zeros((tree.num_pdfs, old_tree.num_pdfs))
    np.add.at(common, (leaves(tree.tree, stats), leaves(old_tree.tree, moved)), stats.counts)
    average = of_statistics(stats.rows.sum(axis=0), floor)
    return [old[int(row.argmax())] if row.max() > 0 else average for row in common]
