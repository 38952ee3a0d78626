"""apply-cmvn-online: features normalized by what was heard so far.

Source: Kaldi's `online2bin/apply-cmvn-online.cc`, `OnlineCmvn` in `feat/online-feature.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import click
import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ..base.options import errors_tell, shown
from ..base.program import Option, program
from ..features import CmvnTerms, dimensions


@program(
    "apply-cmvn-online",
    "Normalize features by statistics of a window of frames before each one; at the beginning of"
    " an utterance by those of the speaker's utterances before, and by global statistics.",
    ("<global-cmvn-stats>", "<feature-rspecifier>", "<feature-wspecifier>"),
    Option("spk2utt", "", "Rspecifier of the utterances of speakers, in their order"),
    Option("cmn-window", 600, "Frames of the window"),
    Option("speaker-frames", 600, "Frames that a speaker's statistics count at most"),
    Option("global-frames", 200, "Frames that the global statistics count at most"),
    Option("norm-vars", False, "Normalize variances"),
    Option("norm-means", True, "Normalize means; without it features are copied as they are"),
    Option("skip-dims", "", "Dimensions that are left alone, with ':' between"),
)
def apply_cmvn_online(options: SimpleNamespace, stats: str, source: str, output: str) -> None:
    cmvn = OnlineCmvn(open_reader(stats).read_matrix(np.float64), options)
    frames = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in _normalized(cmvn, options, source):
            writer.write(key, matrix)
            frames += len(matrix)
        done = writer.count
    options.program.log(f"Applied online CMVN to {done} files, or {frames} frames.")
    if not done:
        raise click.exceptions.Exit(1)


def _normalized(
    cmvn: OnlineCmvn, options: SimpleNamespace, source: str
) -> Iterator[tuple[str, np.ndarray]]:
    if not options.spk2utt:
        for key, matrix in shown(read_table(source, "matrix"), "normalize", "utterances"):
            with errors_tell(f"{source}: {key}"):
                yield key, cmvn.normalize(matrix, None)
        return
    features = RandomAccessTable(source, "matrix")
    for _, keys in read_table(options.spk2utt, "token_vector"):
        heard: np.ndarray | None = None
        for key in keys:
            if key not in features:
                options.program.warn(f"No features for utterance {key}")
                continue
            matrix = features[key]
            with errors_tell(f"{source}: {key}"):
                yield key, cmvn.normalize(matrix, heard)
            heard = cmvn.add(heard, matrix)


class OnlineCmvn:
    """Normalizes utterances frame after frame.

    Args:
        stats: of all speakers, [2, dim + 1]: sums and squares, and the number of frames.
        options: those of the program.

    Raises:
        FormatError: options do not go together, or the statistics are of no frames.
    """

    def __init__(self, stats: np.ndarray, options: SimpleNamespace) -> None:
        if options.norm_vars and not options.norm_means:
            raise FormatError("--norm-vars=true wants --norm-means=true")
        if options.cmn_window <= 0 or min(options.global_frames, options.speaker_frames) < 0:
            raise FormatError(
                f"--cmn-window={options.cmn_window} must be positive, --global-frames="
                f"{options.global_frames} and --speaker-frames={options.speaker_frames} not"
                " negative"
            )
        if not stats.size or not stats[0, -1] > 0:
            raise FormatError("the global statistics are of no frames")
        self._stats, self._options = stats, options
        self._terms = CmvnTerms(options.norm_vars, dimensions(options.skip_dims))

    def add(self, heard: np.ndarray | None, matrix: np.ndarray) -> np.ndarray:
        """The statistics of a speaker after one more utterance."""
        total = np.zeros((2, matrix.shape[1] + 1)) if heard is None else heard.copy()
        for row in matrix.astype(np.float64):
            total[0, :-1] += row
            total[1, :-1] += row * row
            total[0, -1] += 1
        return total

    def normalize(self, matrix: np.ndarray, heard: np.ndarray | None) -> np.ndarray:
        """The normalized features, float32, of the shape of `matrix`.

        Args:
            heard: statistics of the speaker's utterances before, if there are any.

        Raises:
            ShapeError: the statistics are of another dimension.
        """
        dim = matrix.shape[1]
        if not self._options.norm_means:
            return matrix
        rows = 2 if self._options.norm_vars or heard is None else 1
        if self._stats.shape[1] != dim + 1 or len(self._stats) < rows:
            raise ShapeError(
                f"statistics {list(self._stats.shape)} for features of {dim} columns: want"
                f" [2, {dim + 1}]"
            )
        made = np.empty(matrix.shape, np.float32)
        window = np.zeros((2, dim + 1))
        values = matrix.astype(np.float64)
        for frame, row in enumerate(values):
            self._move(window, row, 1.0)
            if frame >= self._options.cmn_window:
                self._move(window, values[frame - self._options.cmn_window], -1.0)
            scale, offset = self._terms.of(self._smoothed(window, heard), dim)
            made[frame] = (
                matrix[frame] + offset if scale is None else matrix[frame] * scale + offset
            )
        return made

    def _move(self, window: np.ndarray, row: np.ndarray, sign: float) -> None:
        window[0, :-1] += sign * row
        if self._options.norm_vars:
            window[1, :-1] += sign * (row * row)
        window[0, -1] += sign

    def _smoothed(self, window: np.ndarray, heard: np.ndarray | None) -> np.ndarray:
        """With as many frames of the speaker's and the global statistics as the window lacks."""
        stats = window.copy()
        options = self._options
        if heard is not None and heard[0, -1] > 0:
            count = min(options.cmn_window - stats[0, -1], options.speaker_frames, heard[0, -1])
            if count > 0:
                stats += count / heard[0, -1] * heard
        count = min(options.cmn_window - stats[0, -1], options.global_frames)
        if count > 0:
            stats[: len(self._stats)] += count / self._stats[0, -1] * self._stats
        return stats
