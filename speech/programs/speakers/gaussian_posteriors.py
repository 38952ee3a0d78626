"""Kaldi's programs that look at frames by a mixture of Gaussians: choices, posteriors, sums.

Source: Kaldi's `gmmbin/` and `fgmmbin/` of these names.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.posterior import Posterior
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import BINARY, shown
from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.saving import fail_unless, write_model
from ....nnet3.programs.base.table_copies import write_table
from ....nnet3.training.progress import ratio
from ...ivector.by_gaussian import frames_of
from ...ivector.full_gmm import FullGmm
from ...ivector.gmm import DiagGmm, Gmm, normalized, posteriors, softmax
from ...ivector.gmm_training import GmmStats, update_flags
from .global_gmms import UPDATE

_ACCUMULATING = (
    ("<model-in>", "<feature-rspecifier>", "<stats-out>"),
    BINARY,
    UPDATE,
    Option("gselect", "", "Rspecifier of the Gaussians of each frame, as gmm-gselect writes it"),
    Option("weights", "", "Rspecifier of weights of frames"),
)
_SELECTING = (
    ("<model-in>", "<feature-rspecifier>", "<gselect-wspecifier>"),
    Option("n", 50, "Number of Gaussians of a frame"),
    Option("gselect", "", "Rspecifier of the Gaussians of each frame to choose from"),
    Option("write-likes", "", "Wspecifier of log-likelihoods of utterances"),
)
_TO_POSTERIORS = (
    ("<model-in>", "<feature-rspecifier>", "<gselect-rspecifier>", "<post-wspecifier>"),
    Option("min-post", 0.0, "Posteriors below it are dropped, unless it is 0"),
)


class _Inputs:
    """Features of utterances, the Gaussians of their frames if a table has them, and counts."""

    def __init__(self, options: SimpleNamespace, gmm: Gmm, source: str, gselect: str) -> None:
        self._program = options.program
        self._gmm = gmm
        self._source = source
        self._gselect = RandomAccessTable(gselect, "int_vector_vector") if gselect else None
        self.done = self.failed = 0
        self._likelihood = self._weight = 0.0

    def __iter__(self) -> Iterator[tuple[str, np.ndarray, list[np.ndarray]]]:
        """Keys, features, and for each frame its Gaussians; an empty list means all of them."""
        for key, features in shown(read_table(self._source, "matrix"), "compute", "utterances"):
            if not len(features) or features.shape[1] != self._gmm.dim:
                self._program.warn(
                    f"Features {list(features.shape)} of utterance {key} for Gaussians of"
                    f" {self._gmm.dim} columns"
                )
                self.failed += 1
                continue
            chosen: list[np.ndarray] = []
            if self._gselect is not None:
                found = self.found(self._gselect, key, len(features), "gselect information")
                if found is None:
                    continue
                chosen = found
                self._check(key, chosen)
            yield key, features, chosen

    def _check(self, key: str, chosen: list[np.ndarray]) -> None:
        count = len(self._gmm.weights)
        ids = np.concatenate(chosen)
        if not all(map(len, chosen)) or not 0 <= ids.min() <= ids.max() < count:
            raise FormatError(f"{key}: a frame without Gaussians, or with others than {count}")

    def found(self, table: RandomAccessTable, key: str, frames: int, what: str) -> Any:
        """What a table has for an utterance, if it is of so many frames."""
        value = table.get(key)
        if value is not None and len(value) == frames:
            return value
        if value is None:
            self._program.warn(f"No {what} for utterance {key}")
        else:
            self._program.warn(f"{what} for utterance {key}: {len(value)} frames of {frames}")
        self.failed += 1
        return None

    def add(self, likelihoods: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Count an utterance, by log-likelihoods and weights of its frames."""
        weights = np.ones(len(likelihoods)) if weights is None else weights.astype(np.float64)
        self.done += 1
        self._likelihood += float(weights @ likelihoods)
        self._weight += float(weights.sum())

    def tell(self) -> None:
        """Log what was done; nothing at all is a failure."""
        self._program.log(
            f"Done {self.done} files, {self.failed} with errors; overall likelihood per frame ="
            f" {ratio(self._likelihood, self._weight):g} over {self._weight:g} (weighted) frames."
        )
        fail_unless(self.done)


def _pairs(chosen: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Gaussians of frames as a `Posterior` has them: where each frame begins, and all."""
    return np.cumsum([0, *map(len, chosen)]), np.concatenate([np.zeros(0, np.int32), *chosen])


@program(
    "gmm-global-acc-stats",
    "Accumulate statistics to train a mixture of diagonal Gaussians.",
    *_ACCUMULATING,
)
def gmm_global_acc_stats(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    _accumulate(options, DiagGmm.read(open_reader(model)), source, output)


@program(
    "fgmm-global-acc-stats",
    "Accumulate statistics to train a mixture of full Gaussians.",
    *_ACCUMULATING,
)
def fgmm_global_acc_stats(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    _accumulate(options, FullGmm.read(open_reader(model)), source, output)


def _accumulate(options: SimpleNamespace, gmm: Gmm, source: str, output: str) -> None:
    flags = update_flags(options.update_flags)
    stats = GmmStats.empty(len(gmm.weights), gmm.dim, isinstance(gmm, FullGmm), flags)
    inputs = _Inputs(options, gmm, source, options.gselect)
    table = RandomAccessTable(options.weights, "vector") if options.weights else None
    for key, features, chosen in inputs:
        weights = np.ones(len(features), np.float32)
        if table is not None:
            weights = inputs.found(table, key, len(features), "per-frame weights")
            if weights is None:
                continue
        if options.gselect:
            starts, ids = _pairs(chosen)
            shares, likes = normalized(starts, gmm.selected(features, starts, ids))
            stats.add(features, starts, ids, shares * weights[frames_of(starts)])
        else:
            shares, likes = softmax(gmm.log_likelihoods(features))
            stats.add_all(features, shares * weights[:, None])
        inputs.add(likes, weights)
    write_model(stats, output, options.binary)
    inputs.tell()


@program("gmm-gselect", "Choose the best diagonal Gaussians for each frame.", *_SELECTING)
def gmm_gselect(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    _select(options, DiagGmm.read(open_reader(model)), source, output)


@program("fgmm-gselect", "Choose the best full Gaussians for each frame.", *_SELECTING)
def fgmm_gselect(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    _select(options, FullGmm.read(open_reader(model)), source, output)


def _select(options: SimpleNamespace, gmm: Gmm, source: str, output: str) -> None:
    most = _number(options, gmm)
    inputs = _Inputs(options, gmm, source, options.gselect)
    written: list[tuple[str, float]] = []
    with TableWriter(output, "int_vector_vector") as writer:
        for key, features, chosen in inputs:
            least = np.zeros(len(features))
            if options.gselect:
                known, likes = _padded(gmm, features, chosen)
                columns, _, totals = posteriors(likes, most, least)
                ids = np.take_along_axis(known, columns, axis=1)
                best = [row[: len(given)] for row, given in zip(ids, chosen, strict=True)]
            else:
                best, _, totals = posteriors(gmm.log_likelihoods(features), most, least)
            writer.write(key, best)
            written.append((key, float(totals.sum())))
            inputs.add(totals)
    if options.write_likes:
        write_table(options.write_likes, "float", written)
    inputs.tell()


def _number(options: SimpleNamespace, gmm: Gmm) -> int:
    """How many Gaussians of a frame are wanted."""
    count = len(gmm.weights)
    if options.n < 1:
        raise FormatError(f"--n={options.n} must be positive")
    if options.n > count:
        options.program.warn(f"{options.n} Gaussians are asked for, but there are {count}")
    return min(options.n, count)


def _padded(
    gmm: Gmm, features: np.ndarray, chosen: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The chosen Gaussians of frames and their log-likelihoods, [frames, most]; -inf: none."""
    starts, ids = _pairs(chosen)
    frames = frames_of(starts)
    columns = np.arange(len(ids)) - starts[frames]
    known = np.zeros((len(features), int(np.diff(starts).max())), np.int32)
    likes = np.full(known.shape, -np.inf)
    known[frames, columns] = ids
    likes[frames, columns] = gmm.selected(features, starts, ids)
    return known, likes


@program(
    "gmm-global-get-post",
    "Posteriors of the best diagonal Gaussians of each frame.",
    ("<model-in>", "<feature-rspecifier>", "<post-wspecifier>"),
    Option("n", 50, "Number of Gaussians of a frame"),
    Option("min-post", 0.0, "Posteriors below it are dropped, unless it is 0"),
)
def gmm_global_get_post(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    gmm = DiagGmm.read(open_reader(model))
    most = _number(options, gmm)
    _check_least(options)
    inputs = _Inputs(options, gmm, source, "")
    with TableWriter(output, "posterior") as writer:
        for key, features, _ in inputs:
            least = np.full(len(features), options.min_post)
            ids, shares, totals = posteriors(gmm.log_likelihoods(features), most, least)
            kept = shares > 0 if options.min_post else np.ones(shares.shape, bool)
            starts = np.cumsum([0, *kept.sum(axis=1)])
            writer.write(key, Posterior(starts, ids[kept].astype(np.int32), shares[kept]))
            inputs.add(totals)
    inputs.tell()


def _check_least(options: SimpleNamespace) -> None:
    if not 0 <= options.min_post < 1:
        raise FormatError(f"--min-post={options.min_post:g} must lie from 0 to 1")


@program(
    "gmm-global-gselect-to-post",
    "Posteriors of the chosen diagonal Gaussians of each frame.",
    *_TO_POSTERIORS,
)
def gmm_global_gselect_to_post(options: SimpleNamespace, model: str, *tables: str) -> None:
    _to_posteriors(options, DiagGmm.read(open_reader(model)), *tables)


@program(
    "fgmm-global-gselect-to-post",
    "Posteriors of the chosen full Gaussians of each frame.",
    *_TO_POSTERIORS,
)
def fgmm_global_gselect_to_post(options: SimpleNamespace, model: str, *tables: str) -> None:
    _to_posteriors(options, FullGmm.read(open_reader(model)), *tables)


def _to_posteriors(
    options: SimpleNamespace, gmm: Gmm, source: str, gselect: str, output: str
) -> None:
    _check_least(options)
    inputs = _Inputs(options, gmm, source, gselect)
    with TableWriter(output, "posterior") as writer:
        for key, features, chosen in inputs:
            starts, ids = _pairs(chosen)
            shares, totals = normalized(starts, gmm.selected(features, starts, ids))
            writer.write(key, pruned(Posterior(starts, ids, shares), options.min_post))
            inputs.add(totals)
    inputs.tell()


def pruned(posterior: Posterior, least: float) -> Posterior:
    """Posteriors of `least` and more, which add up to 1 again; the best of a frame stays."""
    starts, frames = posterior.starts, frames_of(posterior.starts)
    shares = posterior.weights.astype(np.float64)
    if least:
        best = np.maximum.reduceat(shares, starts[:-1])
        shares[(shares < np.float32(least)) & (shares < best[frames])] = 0
        shares /= np.add.reduceat(shares, starts[:-1])[frames]
    kept = shares > 0
    counts = np.add.reduceat(kept.astype(np.int64), starts[:-1])
    return Posterior(np.cumsum([0, *counts]), posterior.ids[kept], shares[kept].astype(np.float32))
