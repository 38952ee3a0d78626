"""An iVector extractor for a training: transform, Gaussians, extractor, and iVectors of the copies.

Source: Kaldi's `steps/online/nnet2/get_pca_transform.sh`, `train_diag_ubm.sh`,
`train_ivector_extractor.sh`, `extract_ivectors_online.sh`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import write_atomically
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.files.posterior import Posterior
from ...kaldi.files.sparse import to_dense
from ...nnet3.programs.base.options import shown as progress
from ...nnet3.programs.base.saving import write_model
from ...nnet3.training.progress import Log
from ..features.cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState
from ..features.transforms import SpliceOptions, splice, transform
from ..ivector.extractor import IvectorExtractor
from ..ivector.extractor_training import ExtractorAccumulator, ExtractorOptions, estimated
from ..ivector.full_gmm import FullGmm
from ..ivector.gmm import DiagGmm, posteriors
from ..ivector.gmm_start import drawn_frames, started, trained
from ..ivector.gmm_training import DiagGmmOptions
from ..ivector.kaldi_random import KaldiRandom
from ..ivector.model import IvectorModel, IvectorOptions
from ..ivector.online import online_ivectors
from .preparing import ivector_writer, read_features

_SPLICE = SpliceOptions(3, 3)
_DIM = 40  # of features after the transform, at most
_FRAMES = 200_000  # that the Gaussians are trained on
_MOST_FRAMES = 1_000_000  # that the extractor is trained on, about
_FRAMES_A_GAUSSIAN = 2000  # posteriors count a tenth, and 100 are wanted
_MOST_GAUSSIANS = 512
_GMM_ITERATIONS, _EXTRACTOR_ITERATIONS = 20, 10
_POSTERIORS = IvectorOptions()  # the same in training and afterwards


def write_extractor(features: str, dim: int, seed: int, folder: str, log: Log) -> None:
    """Write the folder `ivector` of a model.

    Args:
        features: the folder of `write_features`. dim: elements of an iVector.

    Raises:
        FormatError: there are too few frames. SaveError: a file cannot be written.
    """
    stats, frames = _global_stats(features)
    step = max(frames // _MOST_FRAMES, 1)
    cmvn = OnlineCmvnOptions()

    def normalized() -> Iterator[np.ndarray]:
        """Every step-th copy after CMVN, spliced."""
        for matrix in _matrices(features, step):
            online = OnlineCmvn(cmvn, OnlineCmvnState(stats))
            online.accept(matrix)
            yield _spliced(online.normalized(np.arange(len(matrix))))

    random = KaldiRandom(seed)
    kept, _ = drawn_frames(normalized(), _FRAMES, random)
    matrix = _principal(kept, _DIM)
    count = int(np.clip(frames // step // _FRAMES_A_GAUSSIAN, 1, _MOST_GAUSSIANS))
    log(f"{count} Gaussians over {len(kept)} frames, iVectors of {dim} elements")
    kept = transform(kept, matrix)
    gmm = trained(
        kept,
        started(kept, max(count // 2, 1), random),
        count,
        _GMM_ITERATIONS,
        DiagGmmOptions(),
        random,
        _quiet,
    )
    extractor = IvectorExtractor.of(FullGmm.of_diagonal(gmm), dim, random)
    for number in range(_EXTRACTOR_ITERATIONS):
        accumulator = ExtractorAccumulator(extractor)
        pairs = zip(_matrices(features, step), normalized(), strict=True)
        what = f"extractor {number + 1}/{_EXTRACTOR_ITERATIONS}"
        for raw, spliced in progress(pairs, what, "utterances"):
            accumulator.add(
                transform(_spliced(raw), matrix), _posterior(gmm, transform(spliced, matrix))
            )
        accumulator.flush()
        stated = accumulator.stats
        extractor = estimated(extractor, stated, ExtractorOptions(), _quiet)
        log(
            f"iteration {number + 1}: log-likelihood"
            f" {stated.objective / max(float(stated.counts.sum()), 1e-9):.4f} a frame"
        )
    _write(IvectorModel(matrix, stats, gmm, extractor, splice=_SPLICE), folder)


def write_ivectors(features: str, extractor: str, folder: str) -> None:
    """Write `ivectors.ark` with the iVectors of each copy.

    Args:
        features: the folder of `write_features`. extractor: that of `write_extractor`.

    Raises:
        SaveError: a file cannot be written.
    """
    model = IvectorModel.from_folder(extractor)
    with ivector_writer(folder, model.options.ivector_period) as writer:
        for key, matrix in progress(read_features(features), "iVectors", "utterances"):
            writer.write(key, online_ivectors(model, to_dense(matrix)))


def _quiet(line: str) -> None:
    """Takes the many lines of an iteration."""


def _matrices(features: str, step: int) -> Iterator[np.ndarray]:
    """The features of every step-th copy."""
    for number, (_, matrix) in enumerate(read_features(features)):
        if number % step == 0:
            yield to_dense(matrix)


def _global_stats(features: str) -> tuple[np.ndarray, int]:
    """Statistics of CMVN over all frames, float64, [2, dim + 1], and how many frames there are."""
    stats = None
    for matrix in _matrices(features, 1):
        wide = matrix.astype(np.float64)
        sums = np.zeros((2, matrix.shape[1] + 1))
        sums[0, :-1], sums[1, :-1], sums[0, -1] = wide.sum(0), (wide**2).sum(0), len(wide)
        stats = sums if stats is None else stats + sums
    if stats is None:
        raise FormatError(f"{features}: there are no features")
    return stats, int(stats[0, -1])


def _spliced(matrix: np.ndarray) -> np.ndarray:
    return splice(matrix, _SPLICE.left_context, _SPLICE.right_context)


def _principal(rows: np.ndarray, most: int) -> np.ndarray:
    """The directions in which rows vary most, float32, [at most `most`, columns]."""
    _, vectors = np.linalg.eigh(np.cov(rows, rowvar=False, dtype=np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :most].T, np.float32)


def _posterior(gmm: DiagGmm, features: np.ndarray) -> Posterior:
    """The posteriors of frames, scaled as in the estimation of iVectors."""
    options = _POSTERIORS
    least = np.full(len(features), options.min_post)
    chosen, shares, _ = posteriors(gmm.log_likelihoods(features), options.num_gselect, least)
    kept = shares > 0
    starts = np.append(0, np.cumsum(kept.sum(axis=1))).astype(np.int64)
    weights = shares[kept] * np.float32(options.posterior_scale)
    return Posterior(starts, chosen[kept].astype(np.int32), weights)


def _write(model: IvectorModel, folder: str) -> None:
    def path(name: str) -> str:
        return os.path.join(folder, name)

    for name, matrix in (("final.mat", model.transform), ("global_cmvn.stats", model.global_stats)):
        writer = Writer(True)
        writer.write_matrix(matrix)
        writer.save(path(name))
    write_model(model.gaussians, path("final.dubm"), True)
    write_model(model.extractor, path("final.ie"), True)
    splicing = f"--left-context={_SPLICE.left_context}\n--right-context={_SPLICE.right_context}\n"
    write_atomically(path("splice.conf"), splicing.encode())
    write_atomically(path("online_cmvn.conf"), b"# as Kaldi has it by default\n")
