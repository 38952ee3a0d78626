"""apply-cmvn-online, apply-cmvn-sliding, add-deltas, splice-feats, transform-feats.

Source: Kaldi's `featbin/` and `online2bin/` of these names.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import errors_tell, shown
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.programs.base.speakers import BySpeaker
from ....nnet3.programs.base.table_copies import write_table
from ...features.cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState
from ...features.sliding import SlidingCmvnOptions, sliding_cmvn
from ...features.transforms import DeltaOptions, SpliceOptions, deltas, splice, transform


@program(
    "apply-cmvn-online",
    "Normalize features by statistics of a window of frames before each one; at the beginning of"
    " an utterance also by the speaker's earlier utterances and by global statistics.",
    ("<global-cmvn-stats>", "<feature-rspecifier>", "<feature-wspecifier>"),
    Option("spk2utt", "", "Rspecifier of the utterances of speakers, in their order"),
    # Vosk's option: Kaldi's program has no such frames.
    *(option for option in options_of(OnlineCmvnOptions) if option.name != "cmn-min-energy"),
)
def apply_cmvn_online(options: SimpleNamespace, stats: str, source: str, output: str) -> None:
    settings = from_values(OnlineCmvnOptions, vars(options), cmn_min_energy=-np.inf)
    state = OnlineCmvnState(open_reader(stats).read_matrix(np.float64))
    frames = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in _as_heard(options, settings, state, source):
            writer.write(key, matrix)
            frames += len(matrix)
        done = writer.count
    options.program.log(f"Applied online CMVN to {done} files, or {frames} frames.")
    fail_unless(done)


def _as_heard(
    options: SimpleNamespace, settings: OnlineCmvnOptions, start: OnlineCmvnState, source: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Normalized utterances: each speaker's one after the other, or each by itself."""
    if not options.spk2utt:
        for key, matrix in shown(read_table(source, "matrix"), "normalize", "utterances"):
            with errors_tell(f"{source}: {key}"):
                yield key, _normalized(OnlineCmvn(settings, start), matrix)
        return
    warning = "No features for utterance"
    for _, utterances in BySpeaker(options, options.spk2utt, source, "matrix", warning):
        state = start
        for key, matrix in utterances:
            with errors_tell(f"{source}: {key}"):
                cmvn = OnlineCmvn(settings, state)
                yield key, _normalized(cmvn, matrix)
            state = cmvn.next_state()


def _normalized(cmvn: OnlineCmvn, matrix: np.ndarray) -> np.ndarray:
    cmvn.accept(matrix)
    return cmvn.normalized(np.arange(len(matrix)))


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
    fail_unless(done)


@program(
    "splice-feats",
    "Splice features with left and right context (e.g. prior to LDA).",
    ("<feature-rspecifier>", "<feature-wspecifier>"),
    *options_of(SpliceOptions),
)
def splice_feats(options: SimpleNamespace, source: str, output: str) -> None:
    settings = from_values(SpliceOptions, vars(options))
    context = settings.left_context, settings.right_context
    entries = shown(read_table(source, "matrix"), "splice", "utterances")
    write_table(output, "matrix", ((key, splice(matrix, *context)) for key, matrix in entries))


@program(
    "add-deltas",
    "Put beside features how they change over time (typically raw MFCC or PLP features).",
    ("<in-rspecifier>", "<out-wspecifier>"),
    Option("truncate", 0, "If not 0, only so many columns of the features are taken"),
    *options_of(DeltaOptions),
)
def add_deltas(options: SimpleNamespace, source: str, output: str) -> None:
    settings = from_values(DeltaOptions, vars(options))
    if options.truncate < 0:
        raise FormatError(f"--truncate={options.truncate} must not be negative")
    with TableWriter(output, "matrix") as writer:
        for key, matrix in shown(read_table(source, "matrix"), "extend", "utterances"):
            if not len(matrix):
                options.program.warn(f"Empty feature matrix for key {key}")
                continue
            if options.truncate > matrix.shape[1]:
                raise FormatError(
                    f"{source}: {key}: {matrix.shape[1]} columns, but --truncate={options.truncate}"
                )
            writer.write(key, deltas(matrix[:, : options.truncate or None], settings))


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
    fail_unless(done)


class _LogDeterminant:
    """The mean log-determinant of transforms, by frames, of those that do not add dimensions."""

    def __init__(self) -> None:
        self.kind: str | None = None
        self.sum = 0.0
        self.frames = 0

    def add(self, matrix: np.ndarray, frames: int) -> bool:
        """False if the matrix has no finite one."""
        rows, columns = matrix.shape
        if self.kind is None:
            self.kind = "" if rows == columns else "[pseudo-]"
            self._none = rows > columns
        if self._none:
            return True
        values = matrix.astype(np.float64)
        determinant = 0.5 * float(np.linalg.slogdet(values @ values.T)[1])
        if not np.isfinite(determinant):
            return False
        self.sum = self.sum + frames * determinant
        self.frames = self.frames + frames
        return True
