"""compute-cmvn-stats: sums and squares of features, by which they are normalized.

Source: Kaldi's `featbin/compute-cmvn-stats.cc`, `transform/cmvn.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.tables import RandomAccessTable, read_table
from ..base.options import BINARY, errors_tell, shown
from ..base.program import Option, program
from ..base.saving import fail_unless, save
from ..base.speakers import BySpeaker
from ..base.table_copies import write_table


@program(
    "compute-cmvn-stats",
    "Add up features and their squares, of each utterance, of each speaker, or, where the output"
    " is a file, of all.",
    ("<feats-rspecifier>", "<stats-out>"),
    BINARY,
    Option("spk2utt", "", "Rspecifier of the utterances of speakers; then statistics are theirs"),
    Option("weights", "", "Rspecifier of vectors with a weight for each frame"),
)
def compute_cmvn_stats(options: SimpleNamespace, source: str, output: str) -> None:
    sums = _Sums(options)
    if is_specifier(output):
        entries = _by_speaker(sums, source) if options.spk2utt else _by_utterance(sums, source)
        write_table(output, "double_matrix", entries)
    elif options.spk2utt:
        raise FormatError(
            "--spk2utt option not compatible with wxfilename as output (did you forget ark:?)"
        )
    else:
        total: np.ndarray | None = None
        for key, matrix in shown(read_table(source, "matrix"), "add up", "utterances"):
            with errors_tell(f"{source}: {key}"):
                total = sums.add(total, key, matrix)
        if total is None:
            raise FormatError(f"{source}: no features in it")
        file = Writer(options.binary)
        file.write_matrix(total.astype(np.float32))
        save(file, output)
        options.program.log(f"Wrote global CMVN stats to {output}")
    options.program.log(
        f"Done accumulating CMVN stats for {sums.done} utterances; {sums.failed} had errors."
    )
    fail_unless(sums.done)


class _Sums:
    """Adds utterances to statistics, and counts them."""

    def __init__(self, options: SimpleNamespace) -> None:
        self.options = options
        self._weights: Any = None
        if options.weights:
            self._weights = RandomAccessTable(options.weights, "vector")
        self.done = self.failed = 0

    def fail(self, message: str) -> None:
        """Tell what is wrong with an utterance."""
        self.options.program.warn(message)
        self.failed += 1

    def warn(self, message: str) -> None:
        """Tell what is wrong with a speaker."""
        self.options.program.warn(message)

    def add(self, stats: np.ndarray | None, key: str, matrix: np.ndarray) -> np.ndarray:
        """The statistics with an utterance, float64, [2, dim + 1]; without it if it fails.

        Raises:
            ShapeError: it has other columns than the ones before.
        """
        dim = matrix.shape[1]
        stats = np.zeros((2, dim + 1)) if stats is None else stats
        if stats.shape[1] != dim + 1:
            raise ShapeError(f"features of {dim} columns after others of {stats.shape[1] - 1}")
        weights = np.ones(len(matrix), np.float32)
        if self._weights is not None:
            if key not in self._weights:
                self.fail(f"No weights available for utterance {key}")
                return stats
            weights = self._weights[key]
            if len(weights) != len(matrix):
                self.fail(
                    f"Weights for utterance {key} have wrong dimension {len(weights)} vs."
                    f" {len(matrix)}"
                )
                return stats
        column = weights[:, None]
        stats[0, :dim] += (matrix * column).sum(0, dtype=np.float64)
        stats[1, :dim] += (matrix * matrix * column).sum(0, dtype=np.float64)
        stats[0, dim] += weights.sum(dtype=np.float64)
        self.done += 1
        return stats


def _by_utterance(sums: _Sums, source: str) -> Iterator[tuple[str, np.ndarray]]:
    for key, matrix in shown(read_table(source, "matrix"), "add up", "utterances"):
        failed = sums.failed
        stats = sums.add(None, key, matrix)
        if sums.failed == failed:
            yield key, stats


def _by_speaker(sums: _Sums, source: str) -> Iterator[tuple[str, np.ndarray]]:
    warning = "Did not find features for utterance"
    speakers = BySpeaker(sums.options, sums.options.spk2utt, source, "matrix", warning)
    for speaker, utterances in shown(speakers, "add up", "speakers"):
        stats: np.ndarray | None = None
        for key, matrix in utterances:
            with errors_tell(f"{source}: {key}"):
                stats = sums.add(stats, key, matrix)
        if stats is None:
            sums.warn(f"No stats accumulated for speaker {speaker}")
        else:
            yield speaker, stats
    sums.failed += speakers.missing
