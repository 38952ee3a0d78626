"""apply-cmvn-sliding, splice-feats, transform-feats. Source: Kaldi's `featbin/` of these names."""

from __future__ import annotations

from types import SimpleNamespace

import click
import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.tables.specifiers import is_specifier
from ...kaldi.tables.streams import open_reader
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ...nnet3.programs.base.options import shown
from ...nnet3.programs.base.program import Option, from_values, options_of, program
from ..features.sliding import SlidingCmvnOptions, sliding_cmvn
from ..features.transforms import SpliceOptions, splice, transform


@program(
    "apply-cmvn-sliding",
    "Apply sliding-window cepstral mean (and optionally variance) normalization per utterance. With"
    " --center the window lies around the frame that is normalized, otherwise it ends there.",
    ("<feats-rspecifier>", "<feats-wspecifier>"),
    *options_of(SlidingCmvnOptions),
)
def apply_cmvn_sliding(options: SimpleNamespace, source: str, output: str) -> None:
    settings = from_values(SlidingCmvnOptions, vars(options))
    failed = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in shown(read_table(source, "matrix"), "normalize", "utterances"):
            if not len(matrix):
                options.program.warn(f"Empty feature matrix for utterance {key}")
                failed += 1
                continue
            writer.write(key, sliding_cmvn(matrix, settings))
        done = writer.count
    what = "and variance " if settings.normalize_variance else ""
    options.program.log(
        f"Applied sliding-window cepstral mean {what}normalization to {done} utterances, {failed}"
        " had errors."
    )
    if not done:
        raise click.exceptions.Exit(1)


@program(
    "splice-feats",
    "Splice features with left and right context (e.g. prior to LDA).",
    ("<feature-rspecifier>", "<feature-wspecifier>"),
    *options_of(SpliceOptions),
)
def splice_feats(options: SimpleNamespace, source: str, output: str) -> None:
    settings = from_values(SpliceOptions, vars(options))
    with TableWriter(output, "matrix") as writer:
        for key, matrix in shown(read_table(source, "matrix"), "splice", "utterances"):
            writer.write(key, splice(matrix, settings.left_context, settings.right_context))


@program(
    "transform-feats",
    "Multiply features with a matrix (e.g. LDA, fMLLR, MLLT), which may have one more column than"
    " the features have, of offsets. It is one for all, or one for each utterance, or, with"
    " --utt2spk, for each speaker.",
    ("<transform>", "<feats-rspecifier>", "<feats-wspecifier>"),
    Option("utt2spk", "", "Rspecifier of the speakers of utterances"),
)
def transform_feats(options: SimpleNamespace, matrices: str, source: str, output: str) -> None:
    log, warn = options.program.log, options.program.warn
    table = None
    one = np.empty((0, 0), np.float32)
    if is_specifier(matrices):
        table = RandomAccessTable(matrices, "matrix", utt2spk=options.utt2spk)
    elif options.utt2spk:
        raise FormatError(f"--utt2spk wants a table of transforms, not the file {matrices}")
    else:
        one = open_reader(matrices).read_matrix(np.float32)
    failed = 0
    total = _LogDeterminant()
    with TableWriter(output, "matrix") as writer:
        for key, features in shown(read_table(source, "matrix"), "transform", "utterances"):
            if table is not None and key not in table:
                warn(
                    f"No fMLLR transform available for utterance {key}, producing no output for"
                    " this utterance"
                )
                failed += 1
                continue
            matrix = one if table is None else table[key]
            dim = features.shape[1]
            if matrix.shape[1] not in (dim, dim + 1):
                rows, columns = matrix.shape
                warn(
                    f"Transform matrix for utterance {key} has bad dimension {rows}x{columns}"
                    f" versus feat dim {dim}"
                )
                failed += 1
                continue
            if not total.add(matrix[:, :dim], len(features)):
                warn(f"Matrix has bad logdet, for utterance {key}")
            writer.write(key, transform(features, matrix))
        done = writer.count
    if total.frames:
        log(
            f"Overall average {total.kind}logdet is {total.sum / total.frames:g} over"
            f" {total.frames} frames."
        )
    log(f"Applied transform to {done} utterances; {failed} had errors.")
    if not done:
        raise click.exceptions.Exit(1)


class _LogDeterminant:
    """The mean log-determinant of transforms, by frames, of those that do not add dimensions."""

    def __init__(self) -> None:
        self.kind: str | None = None
        self.sum, self.frames = 0.0, 0

    def add(self, matrix: np.ndarray, frames: int) -> bool:
        """False if the matrix has no finite one."""
        rows, columns = matrix.shape
        if self.kind is None:
            self.kind = "" if rows == columns else "[pseudo-]"
            self._none = rows > columns
        if self._none:
            return True
        values = matrix.astype(np.float64)
        found = 0.5 * float(np.linalg.slogdet(values @ values.T)[1])
        if not np.isfinite(found):
            return False
        self.sum, self.frames = self.sum + frames * found, self.frames + frames
        return True
