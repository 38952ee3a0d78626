"""Frames counted for an iVector in C, where there is the native library."""

from __future__ import annotations

import numpy as np

from ...framework.fusion.compiled.arguments import bind
from ...framework.fusion.compiled.libraries import Library
from .estimation import IvectorStats
from .extractor import IvectorExtractor
from .gmm import DiagGmm


class CompiledFrames:
    """Adds frames to the terms of iVectors, as `posteriors` and `IvectorStats.add` do it.

    What is derived of a Gaussian is computed when it is first heard.

    Args:
        gaussians, extractor: of a model.
    """

    def __init__(self, gaussians: DiagGmm, extractor: IvectorExtractor) -> None:
        count, dim, wide = extractor.projections.shape
        triangle = wide * (wide + 1) // 2
        self._sizes = {"gaussians": count, "dim": dim, "ivector": wide}
        self._arrays = {
            "constants": gaussians.constants,
            "means": np.ascontiguousarray(gaussians.means.T, np.float64),
            "inverses": np.ascontiguousarray(gaussians.inverse_variances.T, np.float64),
            "projections": extractor.projections.reshape(count, dim * wide),
            "precisions": extractor.precisions,
            "linears": np.empty((count, dim * wide)),
            "quadratics": np.empty((count, triangle)),
            "derived": np.zeros(count, np.uint8),
        }

    def add(
        self,
        library: Library,
        stats: IvectorStats,
        frames: tuple[np.ndarray, np.ndarray, np.ndarray],
        most: int,
        least: float,
        scale: float,
    ) -> float:
        """Add frames.

        Args:
            library: of the C file. stats: that change.
            frames: what Gaussians are chosen by, and what is added, float32, [frames, dim]; their
                weights, float32, [frames].
            most: Gaussians of a frame. least: of a posterior, of a frame of weight 1.
            scale: of posteriors.

        Returns:
            The log-likelihood of the frames, with their weights.
        """
        normalized, used, weights = frames
        count, gaussians = len(weights), self._sizes["gaussians"]
        most = min(most, gaussians)
        rows = min(gaussians, count * most)
        cells = 3 * gaussians + 2 * most + self._sizes["dim"] + self._sizes["ivector"]
        sums = np.empty(2)
        bind(
            library,
            "ivector_frames",
            frames=count,
            most=most,
            least=least,
            scale=scale,
            normalized=np.ascontiguousarray(normalized),
            used=np.ascontiguousarray(used),
            weights=weights,
            linear=stats.linear,
            quadratic=stats.quadratic,
            numbers=np.empty(2 * gaussians, np.int64),
            memory=np.empty(cells + rows * count),
            rows=rows,
            sums=sums,
            **self._sizes,
            **self._arrays,
        ).run()
        added, log_likelihood = sums.tolist()
        stats.count_more(added)
        return log_likelihood
